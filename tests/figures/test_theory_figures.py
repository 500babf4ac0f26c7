"""Figures of theory show the exact dataset and the plans, and say what they show."""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa import figures, theory
from fedlsa.errors import ArgumentError, UnknownNameError
from fedlsa.theory.planner import Plan


@pytest.fixture(scope="module")
def problem():
    return fl.problems.garnet(agents=4, perturbation=0.0, features=8)


def line(axes, label):
    (found,) = [one for one in axes.get_lines() if one.get_label() == label]
    return found


def texts(figure):
    return "\n".join(t.get_text() for t in figure.texts)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_the_parts_are_those_of_the_exact_dataset(problem, scale):
    methods = [fl.FedLSA(0.1, 50), fl.SCAFFLSA(0.1, 50)]
    curves = [theory.exact(problem, a, rounds=30) for a in methods]
    ends = [theory.stationary(problem, a) for a in methods]
    figure = figures.exact_parts(curves, ends, scale=scale, title="Parts")
    for axes, c, end in zip(figure.axes, curves, ends, strict=True):
        np.testing.assert_array_equal(line(axes, "mean squared error").get_xdata(), c["rounds"].values)
        np.testing.assert_array_equal(line(axes, "mean squared error").get_ydata(), c["mse"].values)
        np.testing.assert_array_equal(line(axes, "variance").get_ydata(), c["variance"].values)
        away = np.sum((c["mean"].values - end.mean) ** 2, axis=1)
        np.testing.assert_allclose(line(axes, "transient").get_ydata(), away)
        assert axes.get_yscale() == "log"
    level = line(figure.axes[0], "squared bias")
    assert level.get_ydata()[0] == pytest.approx(ends[0].bias @ ends[0].bias)
    assert level.is_dashed()
    assert "SCAFFLSA: no bias, so no dashed line." in texts(figure)


def test_a_method_without_a_limit_has_no_transient_and_no_bias(problem, tmp_path):
    a = fl.FedLSA(3.0, 5)
    figure = figures.exact_parts(theory.exact(problem, a, rounds=400), theory.stationary(problem, a))
    labels = {one.get_label() for one in figure.axes[0].get_lines()}
    assert labels == {"mean squared error", "variance"}
    assert "FedLSA is unstable" in texts(figure)
    assert figure.axes[0].get_ylim()[1] < 1e8
    figures.save(figure, tmp_path / "f.png")


def test_wrong_arguments_are_named(problem):
    c, end = theory.exact(problem, fl.FedLSA(0.1, 5), rounds=5), theory.stationary(problem, fl.FedLSA(0.1, 5))
    with pytest.raises(ArgumentError, match="stationary must hold one limit per curve, 1; got 2"):
        figures.exact_parts(c, [end, end])
    with pytest.raises(UnknownNameError, match="did you mean 'linear'"):
        figures.exact_parts(c, end, scale="lin")
    with pytest.raises(ArgumentError, match=r"plans must be a plan of fl\.plan, or a sequence of them; got none"):
        figures.trade_off([], 0.1)


def test_the_trade_off_shows_the_plans_that_no_other_beats_in_both(tmp_path):
    def a_plan(algorithm, rounds, samples):
        return Plan(algorithm, rounds, float(samples), 0.1, 4 * rounds, 512 * rounds)

    fed, scaff = fl.FedLSA(0.1, 10), fl.SCAFFLSA(0.1, 10)
    plans = [a_plan(fed, 9, 300), a_plan(fed, 20, 100), a_plan(fed, 9, 900), a_plan(scaff, 5, 200)]
    figure = figures.trade_off(plans, 0.1)
    drawn = line(figure.axes[0], "FedLSA")
    assert list(zip(drawn.get_xdata(), drawn.get_ydata(), strict=True)) == [(100, 20), (300, 9)]
    assert list(line(figure.axes[0], "SCAFFLSA").get_ydata()) == [5]
    assert "RMSE of 0.1" in texts(figure)
    for name in ("one.png", "two.png"):
        figures.save(figures.trade_off(plans, 0.1), tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
