"""The figure of exact errors: lines are the numbers of theory.exact, simulated seeds lie on top, divergence is said."""

import json
import math

import matplotlib
import numpy as np
import pytest

import fedlsa as fl
from fedlsa import figures
from fedlsa.errors import ArgumentError, ArgumentTypeError, UnknownNameError
from fedlsa.figures.lines import common_setting, first_beyond, number

PROBLEM = fl.problems.garnet(agents=4, states=6, features=2, seed=3)
METHODS = [fl.FedLSA(0.1, 10), fl.SCAFFLSA(0.1, 10), fl.Scaffnew(0.1, 0.1)]
CURVES = [fl.theory.exact(PROBLEM, m, rounds=12) for m in METHODS]
WILD = fl.theory.exact(PROBLEM, fl.FedLSA(50.0, 10), rounds=12)


@pytest.fixture(scope="module")
def runs():
    return fl.simulate_grid(PROBLEM, METHODS, rounds=12, seeds=9)


def line_of(figure, label):
    (line,) = [line for line in figure.axes[0].get_lines() if line.get_label() == label]
    return line


def texts(figure):
    legend = figure.legends[0] if figure.legends else figure.axes[0].get_legend()
    return "\n".join(t.get_text() for t in [*figure.texts, *legend.get_texts()])


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("x", ["communications", "samples", "bytes"])
def test_lines_are_the_exact_errors_against_their_cost(x, scale):
    figure = figures.exact_curves(CURVES, x=x, scale=scale)
    for c, name in zip(CURVES, ("FedLSA", "SCAFFLSA", "Scaffnew"), strict=True):
        line = line_of(figure, name)
        np.testing.assert_array_equal(line.get_ydata(), c["mse"])
        np.testing.assert_array_equal(line.get_xdata(), c[x])  # 1536 bytes are few: the axis counts single ones
        assert line.get_color() == figures.theme.METHODS[name]
        assert name in texts(figure)
    axes = figure.axes[0]
    assert axes.get_yscale() == "log"
    assert axes.get_xlim() == (0, float(CURVES[0][x][-1]))
    assert "N = 4,  η = 0.1,  H = 10,  p = 0.1,  start: θ⋆ + 1,  exact, no simulation" in texts(figure)
    assert "diverge" not in texts(figure)


def test_many_bytes_are_counted_in_larger_units():
    long = fl.theory.exact(PROBLEM, METHODS[0], rounds=100, record=5)  # 12 800 bytes
    figure = figures.exact_curves(long, x="bytes")
    assert figure.axes[0].get_xlabel() == "kilobytes, up and down, all agents"
    np.testing.assert_allclose(line_of(figure, "FedLSA").get_xdata(), long["bytes"].values / 1000)


def test_predicted_bias_is_dashed_at_its_height():
    bias = fl.theory.stationary(PROBLEM, METHODS[0]).bias
    level = float(bias @ bias)
    figure = figures.exact_curves(CURVES, bias=[level, math.nan, math.nan])
    dashed = [line for line in figure.axes[0].get_lines() if set(line.get_ydata()) == {level}]
    assert len(dashed) == 1
    assert dashed[0].is_dashed()
    assert "predicted drift\n‖bias‖² of FedLSA" in texts(figure)
    low, high = figure.axes[0].get_ylim()
    assert low < level < high
    with pytest.raises(ArgumentError, match="bias must hold one number per curve, 3; got 1"):
        figures.exact_curves(CURVES, bias=level)


@pytest.mark.parametrize("x", ["communications", "samples", "bytes"])
def test_simulated_seeds_lie_on_the_exact_curve_of_their_method(runs, x):
    figure = figures.exact_curves(CURVES, runs=[runs[2], runs[0]], x=x, band=(0.25, 0.75))
    axes = figure.axes[0]
    for run, band in zip((runs[0], runs[2]), axes.collections, strict=True):
        name = run.attrs["method"].partition("(")[0]
        error = run["squared_error"].values
        cost = 16 * 2 * run["uploads"] if x == "bytes" else run[x]
        (thin,) = [
            line
            for line in axes.get_lines()
            if line.get_linewidth() < 1 and np.array_equal(line.get_ydata(), error.mean(axis=0))
        ]
        np.testing.assert_allclose(thin.get_xdata(), cost.mean("seed"))
        np.testing.assert_allclose(
            band.get_facecolor()[0, :3], matplotlib.colors.to_rgb(line_of(figure, name).get_color())
        )
        corners = band.get_paths()[0].vertices
        low, high = np.quantile(error, (0.25, 0.75), axis=0)
        for t in range(13):
            at = corners[corners[:, 0] == float(cost.mean("seed")[t]), 1]
            assert (at.min(), at.max()) == pytest.approx((low[t], high[t]))
    assert "Thick: exact. Thin: mean over 9 simulated seeds; tint: from their 25% to their 75% quantile." in texts(
        figure
    )
    assert "no simulation" not in texts(figure)


def test_runs_of_another_method_or_problem_are_refused(runs):
    with pytest.raises(ArgumentError, match=r"runs must be of the methods .* got Scaffnew\(.*, 4 agents, d = 2"):
        figures.exact_curves(CURVES[:2], runs=runs[2])
    other = fl.problems.garnet(agents=5, states=6, features=2, seed=3)
    with pytest.raises(ArgumentError, match="5 agents"):
        figures.exact_curves(CURVES, runs=fl.simulate(other, METHODS[0], rounds=2, seeds=1))
    with pytest.raises(ArgumentError, match="runs must be a result of simulate"):
        figures.exact_curves(CURVES, runs=CURVES[0])


def test_a_method_that_diverges_leaves_the_figure_and_is_named():
    assert float(WILD["mse"][-1]) > 1e20
    figure = figures.exact_curves([CURVES[1], WILD])
    low, high = figure.axes[0].get_ylim()
    sound = CURVES[1]["mse"].values
    assert low < sound.min() < sound.max() < high < 100 * sound.max()
    assert "FedLSA diverges: its error is beyond the figure from round 1 on." in texts(figure)
    assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()] == ["FedLSA diverges", "SCAFFLSA"]
    assert np.isfinite(line_of(figure, "FedLSA diverges").get_ydata()).all()


def test_where_all_diverge_the_figure_still_shows_the_start():
    infinite = WILD.assign(mse=WILD["mse"].where(WILD["rounds"] == 0, np.inf))
    figure = figures.exact_curves([WILD, infinite])
    low, high = figure.axes[0].get_ylim()
    assert low < float(WILD["mse"][0]) < high < 100 * float(WILD["mse"][0])
    assert "FedLSA (1); FedLSA (2) diverge: their errors are beyond the figure from round 1 on." in texts(figure)


def test_an_error_that_rises_from_nothing_to_its_limit_does_not_diverge():
    c = fl.theory.exact(PROBLEM, METHODS[1], rounds=12, theta_0=PROBLEM.theta_star)
    figure = figures.exact_curves(c)
    assert abs(float(c["mse"][0])) < 1e-15
    assert "diverge" not in texts(figure)
    low, high = figure.axes[0].get_ylim()
    assert low < float(c["mse"][1]) < float(c["mse"][-1]) < high


def test_an_error_that_comes_back_below_the_ceiling_has_not_left():
    assert first_beyond(np.array([1.0, 50.0, 2.0]), 30.0) is None
    assert first_beyond(np.array([1.0, 2.0, 50.0, np.inf]), 30.0) == 2
    assert first_beyond(np.array([np.inf, np.inf]), 30.0) == 0


def test_two_curves_of_one_method_are_told_apart():
    figure = figures.exact_curves([CURVES[0], fl.theory.exact(PROBLEM, fl.FedLSA(0.05, 10), rounds=12)])
    first, second = line_of(figure, "FedLSA, η = 0.1"), line_of(figure, "FedLSA, η = 0.05")
    assert first.get_linestyle() != second.get_linestyle()
    assert "N = 4,  H = 10,  start: θ⋆ + 1,  exact" in texts(figure)


def test_the_heading_says_how_agents_meet_their_observations():
    one = fl.problems.garnet(agents=1, states=6, features=2, seed=3)
    for thin, words in ((1, "Markov sampling"), (2, "Markov sampling, every 2nd"), (3, "every 3rd"), (11, "11th")):
        c = fl.theory.exact(one, fl.FedLSA(0.1, 12), rounds=3, sampling=fl.Markov(thin=thin, start=(0,)))
        assert words in common_setting([c])


@pytest.mark.parametrize(("value", "words"), [(0, "0"), (12.8, "12.8"), (0.02, "0.02"), (1234567.4, "1 234 567")])
def test_costs_are_written_as_numbers_that_are_right(value, words):
    assert number(value) == words.replace(" ", "\u2009")


def test_wrong_arguments_are_named():
    with pytest.raises(UnknownNameError, match="x must be one of 'communications', 'samples', 'bytes'; got 'byte'"):
        figures.exact_curves(CURVES, x="byte")
    with pytest.raises(UnknownNameError, match="scale must be one of"):
        figures.exact_curves(CURVES, scale="symlog")
    with pytest.raises(
        ArgumentError, match=r"curves must be a dataset of theory\.exact, or a sequence of them; got none"
    ):
        figures.exact_curves([])
    with pytest.raises(
        ArgumentTypeError, match=r"curves must be a dataset of theory\.exact, or a sequence of them; got 3"
    ):
        figures.exact_curves(3)
    with pytest.raises(ArgumentTypeError, match=r"curves must be a dataset of theory\.exact; got 'a'"):
        figures.exact_curves(["a"])
    with pytest.raises(ArgumentError, match="got a dataset without samples"):
        figures.exact_curves(CURVES[0].drop_vars("samples"))


def test_a_saved_figure_says_how_it_was_made(tmp_path, runs):
    from PIL import Image

    figures.save(figures.exact_curves(CURVES, runs=runs), tmp_path / "a.png", command="fedlsa explore")
    with Image.open(tmp_path / "a.png") as picture:
        made = json.loads(picture.text["Description"])
        assert picture.text["Source"] == "fedlsa explore"
    assert [c["method"] for c in made["curves"]] == [c.attrs["method"] for c in CURVES]
    assert len(made["runs"]) == 3
    assert made["versions"]["fedlsa"] == fl.__version__


def test_bands_of_every_error_add_up_to_it():
    figure = figures.exact_curves(CURVES, parts=True)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["FedLSA", "SCAFFLSA", "Scaffnew"]
    for axes, curve in zip(figure.axes, CURVES, strict=True):
        bands = {c.get_label(): c.get_paths()[0].vertices for c in axes.collections}
        assert list(bands) == ["noise", "drift", "start"]
        low, high = axes.get_ylim()
        floor, under = 0.0, 0.0
        for name, vertices in bands.items():
            over, at = under + float(curve[name][-1]), vertices[np.isclose(vertices[:, 0], 12)][:, 1]
            floor = floor or at.min()
            assert at.max() == pytest.approx(max(over, floor)), name
            assert at.min() == pytest.approx(max(under, floor)), name
            under = over
        assert under == pytest.approx(float(curve["mse"][-1]))
        (whole,) = [line for line in axes.get_lines() if line.get_label() == "mean squared error"]
        np.testing.assert_array_equal(whole.get_ydata(), curve["mse"].values)
        assert 0 < low <= floor
        assert high < 10 * float(curve["mse"][0])
    assert "mean squared error" in texts(figure)


def test_panels_with_bands_have_the_level_and_the_seeds_of_their_own_curve(runs):
    figure = figures.exact_curves(CURVES, bias=[0.01, 0, 0], runs=runs[1], parts=True)
    counts = [(sum(line.is_dashed() for line in a.get_lines()), len(a.get_lines())) for a in figure.axes]
    assert counts == [(1, 2), (0, 2), (0, 1)]
    assert "predicted drift ‖bias‖²" in texts(figure)


def test_an_unstable_method_leaves_its_panel_at_the_top_and_is_named():
    figure = figures.exact_curves(WILD, parts=True)
    assert figure.axes[0].get_title(loc="left") == "FedLSA diverges"
    assert figure.axes[0].get_ylim()[1] < 1e3 * float(WILD["mse"][0])
    assert "beyond the figure from round" in texts(figure)


def test_errors_of_trajectories_have_no_bands():
    with pytest.raises(ArgumentError, match="parts must be False along trajectories"):
        figures.exact_curves(CURVES[0].drop_vars("drift"), parts=True)
