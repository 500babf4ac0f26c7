"""What is said under the picture is true: how a method ends, or which step size would make it stable."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.explore import answers, scene_data
from fedlsa.explore.answers import Curve, Question
from fedlsa.explore.page_settings import METHODS, PageSettings

STABLE = PageSettings(agents=3, noise=0.3, local_steps=10, rounds=12, seeds=4)
UNSTABLE = replace(STABLE, step_size=3.0)


def curves(s, *names):
    return {name: answers.curve(Question.of(s), name) for name in names}


def floors(s, *names):
    return {name: answers.floor(Question.of(s), name) for name in names}


def only(s, known, limits=None, floors=None):
    (line,) = scene_data.verdict(s, known, limits or {}, floors or {})
    return line


def test_methods_that_settle_are_described_in_the_order_of_the_page():
    known = curves(STABLE, *reversed(METHODS))
    *lines, _ = scene_data.verdict(STABLE, known, {})
    assert [line.split("**")[1] for line in lines] == list(METHODS)
    for name, line in zip(METHODS, lines, strict=True):
        end = known[name].exact.isel(rounds=-1)
        assert f"ends at {float(end['mse']):.3g} after 12 rounds" in line
        for part in ("start", "drift", "noise"):
            share = float(end[part] / end["mse"])
            assert (f"{part} {float(end[part]):.3g}" in line) == (1e-3 < share < 0.999)
            assert (f"all of it {part}" in line) == (share >= 0.999)


def test_what_more_rounds_lead_to_is_named_and_only_said_to_help_where_it_does():
    long = replace(STABLE, rounds=100)
    for s, helps in ((replace(STABLE, rounds=2), True), (long, False)):
        for name in METHODS:
            end, line = fl.theory.stationary(Question.of(s).problem(), s.method(name)), ""
            line = only(s, curves(s, name), floors=floors(s, name))
            assert ("More rounds help, down to its" in line) is helps
            assert ("more rounds do not help, but" in line) is not helps
            assert not helps or f"floor of {end.mse:.3g}" in line
    drifting = replace(long, local_steps=100)
    assert "That is its floor: more rounds do not help, but fewer local steps" in only(
        drifting, curves(drifting, "FedLSA"), floors=floors(drifting, "FedLSA")
    )
    assert only(long, curves(long, "SCAFFLSA"), floors=floors(long, "SCAFFLSA")).endswith(
        "all of it noise. That is its noise floor: more rounds do not help, but a smaller step size would."
    )


def test_a_curve_that_rises_is_not_said_to_profit_from_more_rounds():
    s = replace(STABLE, noise=5.0, rounds=5, local_steps=5, step_size=0.3)
    rising = curves(s, "FedLSA")["FedLSA"].exact["mse"].values
    assert rising[-1] > rising[1]
    line = only(s, curves(s, "FedLSA"), floors=floors(s, "FedLSA"))
    assert "do not help, but a smaller step size would." in line
    assert "remove" not in only(s, curves(s, "FedLSA"))


@pytest.mark.parametrize("more", [{"local_steps": 1}, {"agents": 1}, {"spread": 0.0}])
def test_fedlsa_without_a_bias_is_not_said_to_drift(more):
    s = replace(STABLE, **more)
    assert "drift" not in only(s, curves(s, "FedLSA"), floors=floors(s, "FedLSA"))


def test_without_noise_there_is_no_floor_but_drift():
    s = replace(STABLE, noise=0.0, rounds=60)
    assert only(s, curves(s, "SCAFFLSA"), floors=floors(s, "SCAFFLSA")).endswith("more rounds lead to 0.")
    assert "all of it drift. That is its floor" in only(s, curves(s, "FedLSA"), floors=floors(s, "FedLSA"))


def test_control_variates_above_fedlsa_are_explained():
    s = replace(PageSettings(), spread=0.01, rounds=100)
    known = curves(s, *METHODS)
    ends = {name: float(known[name].exact["mse"][-1]) for name in METHODS}
    assert ends["SCAFFLSA"] > 1.05 * ends["FedLSA"]
    noise, drift = known["SCAFFLSA"].end[1]["noise"], known["FedLSA"].end[1]["drift"]
    said = scene_data.verdict(s, known, {})[-1]
    assert said.startswith("SCAFFLSA and Scaffnew end above FedLSA: control variates add noise")
    assert f"({noise:.3g} instead of " in said
    assert said.endswith(f"more than the drift that they take away ({drift:.3g}).")
    wide = replace(s, spread=1.0)
    assert not any("above FedLSA" in line for line in scene_data.verdict(wide, curves(wide, *METHODS), {}))
    ends = {
        "FedLSA": (1.0, {"start": 0.0, "drift": 0.9, "noise": 0.1}),
        "SCAFFLSA": (2.0, {"drift": 1.8, "noise": 0.2}),
    }
    assert scene_data._above_fedlsa(ends) == [
        "SCAFFLSA ends above FedLSA: control variates have still to be learnt, which takes rounds."
    ]


def test_an_unstable_method_says_so_before_its_limit_is_known():
    line = only(UNSTABLE, curves(UNSTABLE, "FedLSA"))
    assert line.startswith("**FedLSA is unstable** at step size 3. The error is a thousand times its start by round ")
    assert "The agents' paths are means, which may look calm" in line
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
    printed = float(scene_data._below(limit).replace(",", ""))
    assert 0.88 * limit < printed <= (1 - answers.DIGITS) * limit


def test_a_slow_instability_is_told_by_the_limit_alone():
    s = replace(STABLE, rounds=1)
    known = curves(s, "FedLSA")
    assert known["FedLSA"].blown_up is None
    line = only(s, known, {"FedLSA": 0.04})
    assert line.startswith("**FedLSA is unstable** at step size 0.05. The agents' paths are means")
    assert line.endswith("It becomes stable below 0.039.")
    assert "is unstable" in only(s, known, floors={"FedLSA": answers.Floor(0.1, math.inf)})
    assert "No step size makes it stable." in only(s, known, {"FedLSA": 0.0})
    assert "is unstable" not in only(s, known, {"FedLSA": math.inf})


def test_a_stable_method_that_settles_far_above_its_start_is_not_called_unstable():
    known = curves(STABLE, "SCAFFLSA")
    mse = known["SCAFFLSA"].of("mse")
    mse[1:] = 1e5 * mse[0]
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
    assert scene_data.limits_line({}) == ""
    line = scene_data.limits_line({"Scaffnew": 0.5, "FedLSA": math.inf, "SCAFFLSA": math.nan})
    assert line == "Stable below: FedLSA inf · SCAFFLSA not found · Scaffnew 0.49"
