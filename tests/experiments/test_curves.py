"""The error curves: panels that stay readable, and what is said of FedLSA without its bias."""

import numpy as np

from fedlsa.experiments import EXPERIMENTS, Scale, tabulate
from fedlsa.figures.lines import Chart, ChartRows, Line, add_prediction, power
from fedlsa.figures.matplotlib_figures import draw_charts

QUICK = Scale("paper", 3, quick=True)


def test_removing_the_bias_twice_is_as_bad_as_not_at_all(look):
    claims = {c.name: c for c in EXPERIMENTS["debiased"].claims}
    value = {k: c.measure(tabulate(c.cells(QUICK), look)) for k, c in claims.items()}
    assert 1 <= value["debiased-matches"] < 1.5 < value["debiased-as-printed"]
    assert not claims["debiased-as-printed"].expected


LABEL = "predicted drift ‖bias‖² of FedLSA"


def lines(value):
    x, y = np.arange(3.0), np.full(3, value)
    mean = Line(x, y, "FedLSA", "#d55e00", band=(y / 2, 2 * y))
    return [Line(x, y, "exact expectation", role="expectation"), mean]


def test_a_level_far_below_the_curves_is_a_word_and_does_not_stretch_the_axis():
    far, close = (add_prediction(Chart(lines(0.01)), level, LABEL, "‖bias‖²") for level in (6e-14, 5e-3))
    figure = draw_charts(ChartRows([[far], [close]]))
    first, second = figure.axes
    assert first.get_ylim()[0] > 1e-3
    assert len(first.get_lines()) == 2
    assert [t.get_text() for t in first.texts] == [f"‖bias‖² = {power(6e-14)}"]
    assert not second.texts
    assert any(np.allclose(drawn.get_ydata(), 5e-3) for drawn in second.get_lines())


def test_a_line_that_ends_far_above_the_others_is_not_cut_off():
    figure = draw_charts(ChartRows([[Chart([*lines(1e-4), *lines(1e-4)]), Chart([*lines(7.0), *lines(1e-4)])]]))
    assert figure.axes[0].get_ylim()[1] > 7


def test_powers_of_ten_are_printed_as_such():
    assert power(6e-14).replace("\u2009", "") == "6·10⁻¹⁴"
    assert power(0.03).replace("\u2009", "") == "3·10⁻²"


def test_the_exact_expectation_stands_last_in_the_legend():
    figure = draw_charts(ChartRows([[add_prediction(Chart(lines(0.01)), 5e-3, LABEL, "‖bias‖²")]]))
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["FedLSA", LABEL, "exact expectation"]
