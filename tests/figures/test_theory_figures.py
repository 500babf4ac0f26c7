"""The figure of plans shows those that no other beats."""

import pytest

import fedlsa as fl
from fedlsa import figures
from fedlsa.errors import ArgumentError
from fedlsa.theory.planner import Plan


def line(axes, label):
    (found,) = [one for one in axes.get_lines() if one.get_label() == label]
    return found


def texts(figure):
    return "\n".join(t.get_text() for t in figure.texts)


def test_wrong_arguments_are_named():
    with pytest.raises(ArgumentError, match=r"plans must be a plan of fl\.plan, or a sequence of them; got none"):
        figures.trade_off([], 0.1)


def test_the_trade_off_shows_the_plans_that_no_other_beats_in_both():
    def a_plan(algorithm, rounds, samples):
        return Plan(algorithm, rounds, float(samples), 0.1, 4 * rounds, 512 * rounds)

    fed, scaff = fl.FedLSA(0.1, 10), fl.SCAFFLSA(0.1, 10)
    plans = [a_plan(fed, 9, 300), a_plan(fed, 20, 100), a_plan(fed, 9, 900), a_plan(scaff, 5, 200)]
    figure = figures.trade_off(plans, 0.1)
    drawn = line(figure.axes[0], "FedLSA")
    assert list(zip(drawn.get_xdata(), drawn.get_ydata(), strict=True)) == [(100, 20), (300, 9)]
    assert list(line(figure.axes[0], "SCAFFLSA").get_ydata()) == [5]
    assert "RMSE of 0.1" in texts(figure)
