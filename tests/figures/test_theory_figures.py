"""The figure of plans shows those that no other beats."""

import pytest

import fedlsa as fl
from fedlsa import figures
from fedlsa.errors import ArgumentError
from fedlsa.figures import theme
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
    sent = figures.trade_off(plans, 0.1, y="bytes")
    assert list(line(sent.axes[0], "FedLSA").get_ydata()) == [512 * 20, 512 * 9]
    assert sent.axes[0].get_ylabel() == "bytes, up and down, all agents"
    with pytest.raises(ArgumentError, match="y must be one of 'communications', 'bytes'; got 'rounds'"):
        figures.trade_off(plans, 0.1, y="rounds")


def test_methods_of_one_kind_with_other_settings_have_lines_of_their_own():
    sent = [fl.Compressed(0.1, 10, fl.RandK(k)) for k in (1, 2)]
    others = [fl.Delayed(0.1, 10), fl.SVRG(0.1, 10), fl.Dropouts(0.1, 10), fl.Momentum(0.1, 10), fl.FedProx(0.1, 10)]
    plans = [Plan(m, 9 + i, 100.0, 0.1, 4, 8) for i, m in enumerate([fl.SCAFFLSA(0.1, 10), *sent, *others])]
    drawn = figures.trade_off([*plans, Plan(fl.Compressed(0.3, 20, fl.RandK(2)), 5, 300.0, 0.1, 4, 8)], 0.1)
    labels = ["SCAFFLSA", *(f"Compressed, send RandK(coordinates={k})" for k in (1, 2))]
    labels += [type(m).__name__ for m in others]
    lines = [line(drawn.axes[0], label) for label in labels]
    assert [len(one.get_xdata()) for one in lines] == [1, 1, 2, 1, 1, 1, 1, 1]
    looks = [(one.get_color(), one.get_marker(), str(one.get_linestyle()), one._dash_pattern) for one in lines]
    assert all(looks.count(look) == 1 for look in looks)
    assert lines[0].get_color() == theme.METHODS["SCAFFLSA"]


def test_exact_curves_of_methods_with_lists_and_messages_as_settings_are_drawn():
    p = fl.problems.ring(agents=2, noise=0.3)
    methods = fl.UnequalWork(0.05, 4, length_factors=(0.5, 1)), fl.Compressed(0.05, 4, fl.RandK(1))
    figure = figures.exact_curves([fl.theory.exact(p, m, rounds=3) for m in methods])
    said = texts(figure)
    assert "length factors 0.5, 1" in said
    assert "send RandK(coordinates=1)" in said
    assert "memory: no" in said
