"""Matplotlib and Plotly draw the same chart."""

import math

import numpy as np
import pytest

from fedlsa.figures import lines, theme
from fedlsa.figures.lines import Chart, Line
from fedlsa.figures.matplotlib_figures import draw_charts

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from fedlsa.explore.plotly_figures import plotly_chart


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
