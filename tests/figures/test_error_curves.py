"""Error curves show what is in the results, and say what they show."""

import math

import matplotlib
import numpy as np
import pytest

import fedlsa as fl
from fedlsa import figures
from fedlsa.errors import ArgumentError, ArgumentTypeError, UnknownNameError
from fedlsa.figures.lines import common_setting, names
from fedlsa.results.dataset import assemble


def a_result(algorithm=None, seeds=5, rounds=12, diverged=None, seed=0, problem=None):
    """A result with made-up errors: no simulation is needed to draw."""
    problem = problem or fl.problems.garnet(agents=4, states=6, features=2, seed=3)
    rng = np.random.default_rng(seed)
    kept = np.arange(rounds + 1)
    theta = problem.theta_star + rng.standard_normal((seeds, rounds + 1, 2)) / (1 + kept[:, None])
    arrays = {
        "theta": theta,
        "samples": np.tile(10.0 * kept, (seeds, 1)),
        "diverged_at": np.full(seeds, -1) if diverged is None else np.array(diverged),
    }
    arguments = {"rounds": rounds, "seeds": list(range(seeds)), "record": 200, "keep": ["theta"], "dtype": "float64"}
    return assemble(problem, algorithm or fl.SCAFFLSA(0.1, 10), fl.IID(), arguments, kept, np.arange(seeds), arrays)


def lines_named(figure, label):
    return [line for line in figure.axes[0].get_lines() if line.get_label() == label]


def texts(figure):
    axes = figure.axes[0]
    return "\n".join(t.get_text() for t in [*figure.texts, *axes.texts, *axes.get_legend().get_texts()])


def test_each_run_of_a_sweep_has_its_line():
    p = fl.problems.garnet(agents=3, states=6, features=2, seed=1)
    s = fl.sweep(
        p, [fl.FedLSA, fl.SCAFFLSA], step_size=[0.05, 0.1], local_steps=4, rounds=5, seeds=2, engine="reference"
    )
    (line,) = lines_named(figures.error_curves(s), "FedLSA, η = 0.05")
    expected = s.squared_error.sel(algorithm="FedLSA", step_size=0.05).mean("seed")
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-14)
    assert len(figures.error_curves(s.sel(step_size=0.1)).axes[0].get_lines()) == 2
    with pytest.raises(ArgumentError, match="result must be one result of simulate; got a sweep"):
        figures.predicted_bias(s)


@pytest.mark.parametrize("x", ["communications", "samples", "uploads"])
def test_a_line_is_the_mean_over_seeds_against_the_cost(x):
    r = a_result()
    (line,) = lines_named(figures.error_curves(r, x=x), "SCAFFLSA")
    np.testing.assert_array_equal(line.get_xdata(), r[x].values.mean(axis=0))
    np.testing.assert_allclose(line.get_ydata(), r["squared_error"].values.mean(axis=0), rtol=1e-14)


@pytest.mark.parametrize("band", [(0.1, 0.9), (0.25, 0.75)])
def test_the_band_lies_between_the_quantiles_that_the_figure_names(band):
    r = a_result(seeds=9)
    figure = figures.error_curves(r, band=band)
    corners = figure.axes[0].collections[0].get_paths()[0].vertices
    low, high = np.quantile(r["squared_error"].values, band, axis=0)
    for t in range(13):
        at = corners[corners[:, 0] == t, 1]
        assert at.min() == pytest.approx(low[t])
        assert at.max() == pytest.approx(high[t])
    assert f"Band: from their {100 * band[0]:g}% to their {100 * band[1]:g}% quantile" in texts(figure)
    assert "mean over 9 seeds" in texts(figure)


def test_the_predicted_bias_is_a_dashed_line_at_its_height():
    figure = figures.error_curves([a_result(fl.FedLSA(0.1, 10)), a_result()], bias=[0.25, math.nan])
    level = [line for line in figure.axes[0].get_lines() if list(line.get_ydata()) == [0.25, 0.25]]
    assert len(level) == 1
    assert level[0].is_dashed()
    assert "predicted drift\n‖bias‖² of FedLSA" in texts(figure)
    assert texts(figure).count("predicted") == 1


def test_seeds_that_diverge_leave_the_mean_and_are_marked_where_they_stop():
    r = a_result(seeds=4, diverged=[-1, 7, -1, 5])
    figure = figures.error_curves(r)
    (line,) = lines_named(figure, "SCAFFLSA")
    np.testing.assert_allclose(line.get_ydata(), r["squared_error"].values[[0, 2]].mean(axis=0), rtol=1e-14)
    crosses = sorted(float(m.get_xdata()[0]) for m in figure.axes[0].get_lines() if m.get_marker() == "x")
    assert crosses == [4.0, 6.0]
    assert "2 of 4 seeds of SCAFFLSA diverged (\u00d7), the first in round 5; they are not in the mean." in texts(
        figure
    )


@pytest.mark.parametrize("diverged", [[3, 3], [0, 0]])
def test_a_result_of_which_every_seed_diverges_can_be_drawn(diverged, tmp_path):
    figure = figures.error_curves(a_result(seeds=2, diverged=diverged), scale="log")
    figures.save(figure, tmp_path / "all.png")
    assert "2 of 2 seeds" in texts(figure)


def test_runs_that_pass_every_scale_do_not_flatten_the_others():
    wild = a_result(fl.FedLSA(1.0, 10), seeds=2, diverged=[8, 8])
    wild["squared_error"].values[:, 4:8] = 1e200
    figure = figures.error_curves([wild, a_result()])
    assert figure.axes[0].get_ylim()[1] < 1e4


def test_the_vertical_axis_is_logarithmic_and_the_horizontal_one_as_asked():
    assert figures.error_curves(a_result()).axes[0].get_yscale() == "log"
    figure = figures.error_curves(a_result(rounds=300), scale="log")
    assert figure.axes[0].get_xlim() == (0, 300)
    assert list(figure.axes[0].get_xticks()) == [0, 1, 10, 100, 300]


def test_one_seed_has_no_band_to_speak_of():
    assert "One seed: no band." in texts(figures.error_curves(a_result(seeds=1)))


def test_names_show_what_sets_runs_of_one_method_apart_and_the_heading_what_they_share():
    runs = [a_result(fl.FedLSA(0.1, 10)), a_result(fl.FedLSA(0.1, 100)), a_result(fl.SCAFFLSA(0.1, 10))]
    assert names(runs) == ["FedLSA, H = 10", "FedLSA, H = 100", "SCAFFLSA"]
    assert common_setting(runs).startswith("N = 4,  η = 0.1,")
    assert "H =" not in common_setting(runs)
    assert common_setting([*runs, a_result(fl.FedProx(0.1, 10, 0.3))]).endswith("  FedProx (corrected: no, pull 0.3)")
    assert names([a_result(), a_result()]) == ["SCAFFLSA (1)", "SCAFFLSA (2)"]
    odd = [a_result(fl.FedLSA(fl.PowerStep(0.5, 0.7), 10)), a_result(fl.FedLSA(0.1, 10, participants=2))]
    assert names(odd) == ["FedLSA, η = 0.5/(t+1)^0.7, all agents", "FedLSA, η = 0.1, 2 participants"]


def test_many_labels_do_not_overlap_and_nothing_is_cut_off():
    runs = [a_result(fl.FedLSA(0.1, H), seed=0) for H in range(1, 7)]
    figure = figures.error_curves(runs, title="Six", bias=[0.1] * 6)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    names = [t.get_window_extent() for t in axes.get_legend().get_texts()]
    around = [t.get_window_extent() for t in (*figure.texts, axes.xaxis.label, axes.yaxis.label) if t.get_text()]
    boxes = [*names, *around, axes.bbox]
    assert len(names) == 7
    for i, one in enumerate(boxes):
        assert figure.bbox.x0 <= one.x0 < one.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= one.y0 < one.y1 <= figure.bbox.y1
        assert not any(one.overlaps(other) for other in boxes[:i])


def test_drawing_leaves_no_trace_in_matplotlib():
    before = dict(matplotlib.rcParams)
    figures.error_curves(a_result())
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("results", "options", "error", "message"),
    [
        ([], {}, ArgumentError, "results must be a result of simulate, or a sequence of them; got none"),
        ("run.nc", {}, ArgumentTypeError, "results must be a result of simulate, or a sequence of them; got 'run.nc'"),
        ([1], {}, ArgumentTypeError, "results must be a result of simulate"),
        (None, {"x": "sample"}, UnknownNameError, "did you mean 'samples'"),
        (None, {"scale": "lin"}, UnknownNameError, "did you mean 'linear'"),
        (None, {"bias": [1.0, 2.0]}, ArgumentError, "bias must hold one number per result, 1; got 2"),
        (None, {"bias": -1.0}, ArgumentError, "bias must be a finite number at least 0; got -1"),
        (None, {"bias": math.inf}, ArgumentError, "bias must be a finite number at least 0; got inf"),
        (None, {"band": 0.9}, ArgumentTypeError, "band must be two quantiles"),
        (None, {"band": (0.9, 0.1)}, ArgumentError, "band must be two increasing quantiles"),
        (None, {"band": (math.nan, 1)}, ArgumentError, "band must be a finite number"),
    ],
)
def test_wrong_arguments_are_named(results, options, error, message):
    with pytest.raises(error, match=message):
        figures.error_curves(a_result() if results is None else results, **options)


def test_the_prediction_is_the_squared_norm_of_the_limit_bias():
    problem = fl.problems.garnet(agents=4, states=6, features=2, seed=3)
    bias = fl.theory.bias(problem, 0.1, 10)
    r = a_result(fl.FedLSA(0.1, 10), problem=problem)
    assert figures.predicted_bias(r) == pytest.approx(bias @ bias)
    assert figures.predicted_bias(r, problem) == figures.predicted_bias(r)
    assert figures.predicted_bias(a_result(fl.FedLSA(0.1, 10, participants=2))) == pytest.approx(bias @ bias)


@pytest.mark.parametrize("algorithm", [fl.SCAFFLSA(0.1, 10), fl.FedLSA(fl.PowerStep(0.1, 0.5), 10), fl.FedLSA(1e4, 10)])
def test_there_is_no_prediction_where_the_theorem_does_not_speak(algorithm):
    assert math.isnan(figures.predicted_bias(a_result(algorithm)))
