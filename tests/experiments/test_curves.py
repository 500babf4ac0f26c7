"""The error curves: panels that stay readable, claims that hold, and claims that notice what is wrong."""

import functools

import numpy as np
import pytest

from fedlsa.experiments import EXPERIMENTS, Scale, Verdict, appendix_claims, compute, curve_claims, curves
from fedlsa.experiments.limits import score, widest
from fedlsa.figures.panels import Panel, Series, near, panel_grid, power

QUICK = Scale("paper", 4, quick=True)
NAMES = ("fig1", "local-steps", "small-steps", "debiased")


@pytest.fixture(scope="module")
def look():
    return functools.cache(compute)  # what a claim asks for, once


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_holds_or_fails_as_expected_at_quick_scale(look, name):
    for claim in EXPERIMENTS[name].claims:
        found = Verdict(claim, QUICK, claim.measure(claim.cells(QUICK), look, QUICK))
        assert found.ok, (claim.name, found.value)


@pytest.mark.parametrize("measure", [curve_claims.furthest, curve_claims.tail])
def test_a_simulation_with_another_error_is_found(look, measure):
    def wrong(cell):
        held = look(cell)
        return held.assign(squared_error=9 * held["squared_error"]) if cell.kind == "simulate" else held

    cells = curves.FIG1.cells(QUICK)
    assert measure(cells, look, QUICK) < 4.5 < measure(cells, wrong, QUICK)


def test_removing_the_bias_twice_is_as_bad_as_not_at_all(look):
    claims = {c.name: c for c in appendix_claims.debiased_claims()}
    value = {k: c.measure(c.cells(QUICK), look, QUICK) for k, c in claims.items()}
    assert 1 <= value["debiased-matches"] < 1.5 < value["debiased-as-printed"]
    assert not claims["debiased-as-printed"].expected


@pytest.mark.parametrize("dim", [1, 2, 8])
def test_score_of_a_mean_of_skewed_squares_is_nearly_standard_normal(dim):
    squares = np.sum(np.random.default_rng(dim).normal(size=(20_000, 10, dim)) ** 2, axis=-1).mean(axis=1)
    z = np.array([score(m, dim, np.sqrt(2 * dim), 10) for m in squares])
    assert abs(z.mean()) < 0.03
    assert z.std() == pytest.approx(1, abs=0.03)
    assert abs(np.mean(z**3)) < 0.2  # the plain score has 0.9 with dim = 1
    assert score(np.inf, 1.0, 1.0, 10) == np.inf


def test_widest_spread_is_reached_by_one_direction_of_noise_along_the_bias():
    x = 2 + 0.5 * np.random.default_rng(0).normal(size=400_000)
    assert widest(4.0, 0.25) == pytest.approx((x**2).std(), rel=0.01)
    both = np.stack([x, 0.5 * np.random.default_rng(1).normal(size=len(x))])
    assert (both**2).sum(axis=0).std() < widest(4.0, 0.5)


def line(value):
    x, y = np.arange(3.0), np.full(3, value)
    return Series("FedLSA", "#d55e00", x, y, y / 2, 2 * y, (x, y))


def test_a_level_far_below_the_curves_is_a_word_and_does_not_stretch_the_axis():
    label = "predicted ‖bias‖² of FedLSA"
    far, close = Panel("far", [line(0.01)], {label: 6e-14}), Panel("close", [line(0.01)], {label: 5e-3})
    assert near(far) == {}
    assert near(close) == close.levels
    figure = panel_grid([[far], [close]], note="a note")
    first, second = figure.axes
    assert first.get_ylim()[0] > 1e-3
    assert [t.get_text() for t in first.texts] == [f"‖bias‖² = {power(6e-14)}"]
    assert not second.texts
    assert any(np.allclose(drawn.get_ydata(), 5e-3) for drawn in second.get_lines())


def test_a_line_that_ends_far_above_the_others_is_not_cut_off():
    figure = panel_grid(
        [[Panel("low", [line(1e-4), line(1e-4)]), Panel("high", [line(7.0), line(1e-4)])]], note="a note"
    )
    assert figure.axes[0].get_ylim()[1] > 7


def test_powers_of_ten_are_printed_as_such():
    assert power(6e-14).replace("\u2009", "") == "6·10⁻¹⁴"
    assert power(0.03).replace("\u2009", "") == "3·10⁻²"


def test_the_exact_expectation_stands_last_in_the_legend():
    figure = panel_grid([[Panel("p", [line(0.01)], {"predicted ‖bias‖² of FedLSA": 5e-3})]], note="a note")
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()][-1] == "exact expectation"
