"""The control experiments of a student: agents who do not differ do not drift, and without noise there is no floor."""

from dataclasses import replace

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.explore import answers
from fedlsa.explore.answers import Question
from fedlsa.explore.page_settings import METHODS, PageSettings

EQUAL = {
    "ring": {"spread": 0.0},
    "garnet": {"heterogeneous": False, "perturbation": 0.0},
    "lakes": {"spread": 0.0},
    "cartpoles": {"spread": 0.0},
}


def parts(s, name):
    exact = answers.curve(Question.of(s), name).exact
    return {part: exact[part].values for part in ("mse", "start", "drift", "noise")}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("problem", EQUAL)
def test_agents_who_differ_by_nothing_do_not_drift(problem, name):
    if problem in ("lakes", "cartpoles"):
        pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    usual = replace(PageSettings.start(problem), agents=3, rounds=20)
    assert parts(usual, "FedLSA")["drift"][-1] > 1e-4  # or there would be nothing to show
    s = replace(usual, **EQUAL[problem])
    assert Question.of(s).problem().n_agents == 3
    assert (parts(s, name)["drift"] <= 1e-25).all()


def test_without_noise_what_is_left_is_drift_alone():
    s = PageSettings(noise=0.0, rounds=200)
    for name in METHODS:
        found, first = parts(s, name), 2.0
        bias = fl.theory.bias(Question.of(s).problem(), s.step_size, s.local_steps)
        if name == "FedLSA":
            assert found["mse"][-1] == pytest.approx(bias @ bias, rel=1e-12)
        else:
            assert found["mse"][-1] < 1e-20 * first
        if name != "Scaffnew":  # the lengths of its rounds are random
            assert not found["noise"].any()
    alone = answers.simulations(Question.of(replace(s, rounds=5, seeds=2)), ["FedLSA", "SCAFFLSA"])
    for run in alone:
        np.testing.assert_array_equal(run["theta"][0], run["theta"][1])


def test_noise_and_drift_are_dialled_apart():
    base = PageSettings(rounds=20)
    drift = [parts(replace(base, noise=noise), "FedLSA")["drift"] for noise in (0.0, 0.2, 1.0)]
    for one in drift[1:]:
        np.testing.assert_allclose(one, drift[0], rtol=1e-9, atol=1e-25)
    nothing = {name: parts(replace(base, noise=0.0, spread=0.0, rounds=400), name) for name in METHODS}
    assert all(found["mse"][-1] < 1e-20 for found in nothing.values())
