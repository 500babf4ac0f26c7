"""Charts as JSON for a page: the points are the data, to three digits; few of them; nothing that JSON has not."""

import json

import numpy as np
import pytest

from fedlsa.figures.chart_data import chart_data
from fedlsa.figures.lines import Chart, ChartRows, Line, level, mean_line, method_line

X = np.geomspace(1, 5_000, 41)
Y = 10 ** np.random.default_rng(0).uniform(-7, 2, 41)


def one(chart):
    made = chart_data(ChartRows([[chart]]))
    (found,) = json.loads(json.dumps(made, allow_nan=False))["charts"]
    return found


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_points_are_the_data_to_three_digits_of_what_the_axis_shows(scale):
    made = one(Chart([Line(X, Y, "it")], x_scale=scale))
    (line,) = made["lines"]
    np.testing.assert_allclose(line["x"], X, rtol=1e-3)
    np.testing.assert_allclose(line["y"], Y, rtol=5.1e-3)
    assert made["x"]["low"] <= X.min() < X.max() <= made["x"]["high"]
    assert made["y"]["low"] <= Y.min() < Y.max() <= made["y"]["high"]
    y = np.linspace(0.98, 1.02, 41)
    close = one(Chart([Line(X, y, "it")], y_scale="linear", limits=(0.98, 1.02)))
    np.testing.assert_allclose(close["lines"][0]["y"], y, atol=0.04 / 500)  # of the axis' length


def test_long_lines_keep_every_other_point_and_the_last_and_say_their_x_once():
    x = np.arange(201.0)
    band = mean_line(x, np.tile(1 + x, (3, 1)), "it", "#d55e00")
    first, second = one(Chart([band, Line(x, 1 + x, "and")]))["lines"]
    np.testing.assert_array_equal(first["x"], x[::2])
    assert "x" not in second
    for values in (*first["band"], second["y"]):
        np.testing.assert_allclose(values, 1 + x[::2], rtol=5.1e-3)


def test_gaps_are_null_and_so_is_what_is_infinite():
    line = Line(np.arange(5.0), np.array([1.0, np.nan, np.inf, 1e30, 3.0]), "it")
    assert one(Chart([line], limits=(0.1, 10.0)))["lines"][0]["y"] == [1, None, None, 1e30, 3]


def test_a_single_point_has_room_on_each_axis():
    for scale in ("log", "linear"):
        x = one(Chart([Line(np.array([300.0]), np.array([5.0]), "it")], x_scale=scale))["x"]
        assert x["low"] <= 300 < x["high"]


def test_only_what_differs_from_a_plain_curve_is_written_and_a_methods_colour_is_its_name():
    marks = method_line("SCAFFLSA", X, Y)
    floor = level(0.5, [marks], "floor", "#d55e00")
    own = Line(X, Y, "", "#56b4e9", name="another", deviation=Y / 10, steps=True)
    first, second, third = one(Chart([marks, floor, own]))["lines"]
    assert {k: v for k, v in first.items() if k not in "xy"} == {
        "dash": "none", "marker": "square", "label": "SCAFFLSA", "colour": "SCAFFLSA"}  # fmt: skip
    assert (second["dash"], second["colour"], second["y"]) == ("dashed", "FedLSA", [0.5, 0.5])
    assert (third["colour"], third["name"], third["steps"]) == ("#56b4e9", "another", True)
    np.testing.assert_allclose(third["deviation"], Y / 10, rtol=5.1e-3)


def test_words_are_in_one_line_without_marks_of_mathematics():
    line = Line(X, Y, r"q = $τ_{\mathrm{mix}}$ < 1")
    chart = Chart([line], "<x>", "a & b", "the\ntitle", corner="$\\psi$ = 6", title_colour="#0072b2")
    made = chart_data(ChartRows([[chart]], ["one\ntwo"]))
    (found,) = made["charts"]
    assert (found["title"], found["colour"], found["x"]["label"], found["y"]["label"]) == (
        "the title", "SCAFFLSA", "<x>", "a & b")  # fmt: skip
    assert found["lines"][0]["label"] == "q = τ_mix < 1"
    assert made["notes"] == ["one two"]


def test_charts_of_a_row_share_their_vertical_axis():
    low, high = (Chart([Line(X, v * Y, "it")]) for v in (1, 1000))
    limits = [(c["y"]["low"], c["y"]["high"]) for c in chart_data(ChartRows([[low, high], [low]]))["charts"]]
    assert limits[0] == limits[1] != limits[2]
