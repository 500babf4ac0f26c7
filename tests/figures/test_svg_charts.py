"""Charts as SVG symbols: the points that are drawn are the data, to three digits; ticks are few; text is escaped."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from fedlsa.figures.lines import Chart, ChartRows, Line, mean_line
from fedlsa.figures.svg_charts import PLOT_HEIGHT, PLOT_WIDTH, Scaled, sheet

X = np.geomspace(1, 5_000, 41)
Y = 10 ** np.random.default_rng(0).uniform(-7, 2, 41)


def read_back(chart, name):
    """The points of a line, as the page's script reads them."""
    ((_, about, inside),) = sheet(ChartRows([[chart]])).panels
    ElementTree.fromstring(f"<symbol>{inside}</symbol>")
    path = re.search(rf'data-n="{name}" d="(.*?)"', inside)[1]
    units = np.cumsum([[int(v) for v in re.findall(r"-?\d+", step)] for step in re.split("[ml]", path)[1:]], axis=0)
    found = []
    for axis, length, place in zip("xy", (PLOT_WIDTH, PLOT_HEIGHT), units.T, strict=True):
        kind, low, high = re.search(rf'data-{axis}="(.*?)"', about)[1].split()
        share = (place if axis == "x" else length - place) / length
        low, high = (np.log10(float(v)) if kind == "log" else float(v) for v in (low, high))
        value = low + (high - low) * share
        found.append(10**value if kind == "log" else value)
    return path, *found


def test_a_line_is_read_back_to_three_digits():
    _, x, y = read_back(Chart([Line(X, Y, "it")], x_scale="log"), "it")
    np.testing.assert_allclose(x, X, rtol=2e-3)
    np.testing.assert_allclose(y, Y, rtol=2e-3)


def test_a_value_that_holds_until_the_next_is_drawn_in_steps():
    _, x, y = read_back(Chart([Line(np.array([1.0, 2.0, 4.0]), np.array([8.0, 4.0, 2.0]), "it", steps=True)]), "it")
    np.testing.assert_allclose(x, [1, 2, 2, 4, 4], rtol=2e-3)
    np.testing.assert_allclose(y, [8, 8, 4, 4, 2], rtol=2e-3)


def test_a_single_point_has_room_on_a_logarithmic_axis():
    _, x, _ = read_back(Chart([Line(np.array([300.0]), np.array([5.0]), "it")], x_scale="log"), "it")
    np.testing.assert_allclose(x, [300], rtol=2e-3)


def test_long_lines_keep_every_other_point_and_the_last():
    x = np.arange(201.0)
    path, found, _ = read_back(Chart([mean_line(x, np.tile(1 + x, (3, 1)), "it", "#d55e00")]), "it")
    np.testing.assert_allclose(found, x[::2], atol=0.02)
    assert len(path) < 1200


def test_gaps_stay_gaps_and_what_leaves_the_axes_stays_near_them():
    y = np.array([1.0, np.nan, 2.0, np.inf, 1e30, 3.0])
    path, x, _ = read_back(Chart([Line(np.arange(6.0), y, "it")], limits=(0.1, 10.0)), "it")
    assert path.count("m") == 3
    np.testing.assert_allclose(x, [0, 2, 4, 5], atol=1e-3)


@pytest.mark.parametrize("ends", [("log", 1e-9, 1e4), ("log", 30, 2000), ("log", 0.4, 0.7), ("linear", 0, 50_000)])
def test_ticks_are_few_round_and_inside(ends):
    ticks = Scaled(*ends, PLOT_WIDTH).ticks()
    assert 2 <= len(ticks) <= 6
    assert all(ends[1] <= value <= ends[2] for value, _ in ticks)
    assert not any("e" in text for _, text in ticks)


def test_text_is_escaped_and_mathematics_is_plain():
    line = Line(X, Y, r"q = $τ_{\mathrm{mix}}$ < 1")
    made = sheet(ChartRows([[Chart([line], "<x>", "a & b", "the\ntitle")]], ["one\ntwo"]))
    assert "&lt;x&gt;" in made.panels[0][2]
    assert "a &amp; b" in made.panels[0][2]
    assert "q = τ_mix &lt; 1" in made.legend
    assert (made.panels[0][0], made.notes) == ("the title", ("one two",))


def test_labels_of_the_vertical_axis_have_room_beside_it():
    x = np.array([15_000.0, 300_000.0])
    ((_, _, inside),) = sheet(ChartRows([[Chart([Line(x, x)], x_scale="log")]])).panels
    below, beside = (
        [re.sub(r"\s", " ", text) for text in re.findall(rf'text-anchor="{anchor}">(\d[^<]*)<', inside)]
        for anchor in ("middle", "end")
    )
    assert below == ["20 000", "50 000", "100 000", "200 000"]
    assert beside == ["20 000", "50 000", "10⁵", "2 · 10⁵"]
