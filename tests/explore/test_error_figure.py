"""Matplotlib and Plotly draw the same chart, and the page's picture of the error shows its numbers."""

import math

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.figures import lines, theme
from fedlsa.figures.lines import Chart, Line
from fedlsa.figures.matplotlib_figures import draw_charts

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from fedlsa.explore.answers import Curve, Question, curve
from fedlsa.explore.error_figure import error_figure
from fedlsa.explore.page_settings import PageSettings
from fedlsa.explore.plotly_figures import plotly_chart

SETTINGS = PageSettings(agents=3, rounds=12, local_steps=20, seeds=4)


@pytest.fixture(scope="module")
def curves():
    return {name: curve(Question.of(SETTINGS), name) for name in theme.METHODS}


def named(figure):
    return {trace.name: trace for trace in figure.data if trace.name}


def chart():
    x = np.arange(5.0)
    every = [Line(x, 2.0**-x, name, colour, dash=dash, band=(2.0**-x / 2, 2 * 2.0**-x))
             for (name, colour), dash in zip(theme.METHODS.items(), theme.TWIN_DASHES, strict=False)]  # fmt: skip
    every.append(Line(x, 3.0**-x, "marked", theme.OTHERS[0], "marks", marker="diamond"))
    return Chart([*every, lines.level(0.01, every, "level")], title="both")


def test_both_backends_draw_the_same_numbers_with_the_same_looks():
    (axes,) = draw_charts([[chart()]]).axes
    drawn, traces = {line.get_label(): line for line in axes.get_lines()}, named(plotly_chart(chart()))
    for line in chart().lines:
        one, other = drawn[line.label], traces[line.label]
        np.testing.assert_array_equal(one.get_ydata(), other.y)
        np.testing.assert_array_equal(one.get_xdata(), other.x)
        assert one.get_color() == other.line.color == line.colour
        assert theme.DASHES[line.look.dash][1] == other.line.dash
        assert (one.get_marker() == "D") == (other.marker.symbol == "diamond") == (line.label == "marked")
        assert (other.mode == "markers") == (line.label == "marked")
    low, high = axes.get_ylim()
    assert plotly_chart(chart()).layout.yaxis.range == pytest.approx((math.log10(low), math.log10(high)))


def test_every_role_dash_and_marker_can_be_drawn_by_both_and_plotly_accepts_it():
    import plotly.graph_objects as graph_objects

    x = np.arange(1.0, 4.0)
    every = [Line(x, x, role, role=role, band=(x / 2, 2 * x), deviation=x / 9) for role in theme.ROLES]
    every += [Line(x, x, dash, dash=dash) for dash in theme.DASHES]
    every += [Line(x, x, marker, marker=marker, steps=True) for marker in theme.MARKERS]
    for scale in ("linear", "log"):
        both = Chart(every, x_scale=scale, y_scale=scale)
        draw_charts([[both]]).draw_without_rendering()
        graph_objects.Figure(plotly_chart(both).to_dict(), skip_invalid=False)


@pytest.mark.parametrize("x", ["communications", "samples", "bytes"])
def test_the_picture_of_the_error_holds_exact_curves_and_the_predicted_bias(curves, x):
    figure = error_figure(PageSettings(**{**vars(SETTINGS), "x": x}), curves)
    traces = named(figure)
    for name, one in curves.items():
        np.testing.assert_array_equal(traces[name].x, one.exact[x])
        np.testing.assert_allclose(traces[name].y, one.exact["mse"])
        assert traces[name].line.color == theme.METHODS[name]
    level = traces["predicted ‖bias‖² of FedLSA"]
    assert set(level.y) == {curves["FedLSA"].bias}
    assert level.line.dash == "dash"
    assert len(traces) == 4


def test_simulated_seeds_lie_on_top_or_stand_for_the_curve(curves):
    run = fl.simulate(Question.of(SETTINGS).problem(), SETTINGS.method("FedLSA"), 12, seeds=4, record=13)
    for known, dash, shown in (
        (curves, "dot", False),
        ({"FedLSA": Curve("FedLSA", None, run, math.nan)}, "solid", True),
    ):
        traces = named(error_figure(SETTINGS, known, [run]))
        mean, error = traces["FedLSA, mean of 4 seeds"], run["squared_error"].values
        np.testing.assert_allclose(mean.y, error.mean(axis=0))
        np.testing.assert_allclose(traces["FedLSA, band"].y, np.quantile(error, 0.9, axis=0))
        assert (mean.line.dash, mean.showlegend) == (dash, shown)


def test_a_method_that_diverges_leaves_the_picture_at_its_top(curves):
    wild = curve(Question.of(PageSettings(**{**vars(SETTINGS), "step_size": 1.0, "local_steps": 500})), "FedLSA")
    assert wild.exact["mse"].values[-1] > 1e10
    figure = error_figure(SETTINGS, {"FedLSA": wild, "SCAFFLSA": curves["SCAFFLSA"]})
    top = 10 ** figure.layout.yaxis.range[1]
    sound = curves["SCAFFLSA"].exact["mse"].values
    assert sound.max() < top < 100 * sound.max()
    y = [v for v in named(figure)["FedLSA"].y if v is not None]
    assert y[-1] > top > max(y[:-1])


def test_nothing_known_yet_is_an_empty_picture():
    assert len(error_figure(SETTINGS, {}).data) == 0
