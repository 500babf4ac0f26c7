"""What is said under the picture is true: how a method ends, or which step size would make it stable."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.explore import answers, words
from fedlsa.explore.answers import Curve, Question
from fedlsa.explore.page_settings import METHODS, PageSettings

STABLE = PageSettings(agents=3, noise=0.3, local_steps=10, rounds=12, seeds=4)
UNSTABLE = replace(STABLE, step_size=3.0)


def curves(s, *names):
    return {name: answers.curve(Question.of(s), name) for name in names}


def only(s, known, limits=None):
    (line,) = words.verdict(s, known, limits or {})
    return line


def test_methods_that_settle_are_described_in_the_order_of_the_page():
    known = curves(STABLE, *reversed(METHODS))
    lines = words.verdict(STABLE, known, {})
    assert [line.split("**")[1] for line in lines] == list(METHODS)
    for name, line in zip(METHODS, lines, strict=True):
        end = known[name].exact.isel(rounds=-1)
        assert f"ends at {float(end['mse']):.3g} after 12 rounds" in line
        assert f"{float(end['squared_bias'] / end['mse']):.0%} of it bias" in line
    assert lines[0].endswith(f"more rounds lead to a squared bias of {known['FedLSA'].bias:.3g}, not to 0.")
    assert all(line.endswith("which more rounds remove.") for line in lines[1:])


@pytest.mark.parametrize("more", [{"local_steps": 1}, {"agents": 1}, {"spread": 0.0, "noise": 0.0}])
def test_fedlsa_without_a_bias_is_not_said_to_have_one(more):
    s = replace(STABLE, **more)
    assert only(s, curves(s, "FedLSA")).endswith("which more rounds remove.")


def test_an_unstable_method_says_so_before_its_limit_is_known():
    line = only(UNSTABLE, curves(UNSTABLE, "FedLSA"))
    assert line.startswith("**FedLSA is unstable** at step size 3. The error is a thousand times its start by round ")
    assert line.endswith("Looking for the step size at which it becomes stable …")


@pytest.mark.parametrize("name", METHODS)
def test_the_step_size_that_is_printed_is_stable(name):
    limit = answers.limit(Question.of(UNSTABLE), name)
    line = only(UNSTABLE, curves(UNSTABLE, name), {name: limit})
    printed = float(re.search(r"It becomes stable below (\S+)\.$", line)[1])
    assert 0.85 * limit < printed < limit
    method = replace(UNSTABLE.method(name), step_size=printed)
    assert math.isfinite(fl.theory.stationary(Question.of(UNSTABLE).problem(), method).mse)


@pytest.mark.parametrize("limit", [0.1, 0.10001, 0.1009, 0.3, 1.0, 1.005, 9.95, 12.34, 1e-7, 1e5, 0.999])
def test_a_limit_is_printed_below_what_its_tolerance_leaves_open(limit):
    printed = float(words._below(limit).replace(",", ""))
    assert 0.88 * limit < printed <= (1 - answers.DIGITS) * limit


def test_a_slow_instability_is_told_by_the_limit_alone():
    s = replace(STABLE, rounds=1)
    known = curves(s, "FedLSA")
    assert known["FedLSA"].blown_up is None
    assert (
        only(s, known, {"FedLSA": 0.04}) == "**FedLSA is unstable** at step size 0.05. It becomes stable below 0.039."
    )
    assert "No step size makes it stable." in only(s, known, {"FedLSA": 0.0})
    assert "is unstable" not in only(s, known, {"FedLSA": math.inf})


def test_a_stable_method_that_settles_far_above_its_start_is_not_called_unstable():
    exact = curves(STABLE, "SCAFFLSA")["SCAFFLSA"].exact.copy(deep=True)
    exact["mse"].values[1:] = 1e5 * exact["mse"].values[0]
    known = {"SCAFFLSA": Curve("SCAFFLSA", exact, None, math.nan)}
    assert known["SCAFFLSA"].blown_up == 1
    assert "is unstable" not in only(STABLE, known, {"SCAFFLSA": 0.2})


def simulated(s, name="FedLSA"):
    return {name: Curve(name, None, answers.simulations(Question.of(s), [name])[0], math.nan)}


def test_seeds_without_an_exact_curve_have_a_mean_and_its_standard_error():
    known = simulated(STABLE)
    last = known["FedLSA"].runs["squared_error"].values[:, -1]
    error = np.std(last, ddof=1) / 2
    assert only(STABLE, known) == (
        f"**FedLSA** ends at {last.mean():.3g} ± {error:.1g}, the mean of 4 simulated seeds."
    )
    assert "±" not in only(STABLE, simulated(replace(STABLE, seeds=1)))


def test_seeds_that_diverge_are_counted():
    known = simulated(replace(UNSTABLE, step_size=50.0, local_steps=200))
    first = known["FedLSA"].runs["diverged_at"].values.min()
    assert only(UNSTABLE, known) == f"**FedLSA**: 4 of 4 seeds diverged, the first in round {first}."


def test_the_limits_stand_in_one_line_as_far_as_they_are_known():
    assert words.limits_line({}) == ""
    line = words.limits_line({"Scaffnew": 0.5, "FedLSA": math.inf})
    assert line == "Stable below: FedLSA inf · Scaffnew 0.49"
