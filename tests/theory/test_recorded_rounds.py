"""Exact curves do not depend on how many rounds are asked for, nor on which of them are shown."""

from dataclasses import replace

import numpy as np
import pytest
from tables import round_of

import fedlsa as fl
from fedlsa.theory import moments, stationarity, tuning

METHODS = [fl.FedLSA(0.1, 20), fl.SCAFFLSA(0.1, 20), fl.Scaffnew(0.1, 0.05)]
SHARED = [0, 1, 2, 3, 10, 50, 99, 100]  # rounds


def agents(n):
    return moments(fl.problems.garnet(agents=n, perturbation=0.02, seed=0))


def agree(found, want):
    """Values to ten digits, means to ten of the error that they are a part of."""
    for name in [n for n in ("mse", "psi") if n in want]:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-10)
    apart = np.linalg.norm(found["mean"].values - want["mean"].values, axis=1)
    assert (apart <= 1e-10 * np.sqrt(want["mse"].values)).all()


@pytest.mark.parametrize("n", [3, 10])
@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_few_and_many_rounds_agree_on_those_they_share(a, n):
    m = agents(n)
    few = fl.theory.exact(m, a, rounds=SHARED[-1], record=SHARED)
    for more in (tuning.KRYLOV_FROM + 1, 10_000):
        agree(fl.theory.exact(m, a, rounds=more, record=[*SHARED, more]).sel(rounds=SHARED), few)


@pytest.mark.parametrize("a", METHODS, ids=repr)
def test_a_list_of_rounds_shows_the_values_that_a_count_of_them_does(a):
    m = agents(3)
    by_count = fl.theory.exact(m, a, rounds=2000, record=2001)
    spaced = np.unique(np.round(np.geomspace(1, 2000, 120)).astype(int)).tolist()
    agree(fl.theory.exact(m, a, rounds=2000, record=spaced), by_count.sel(rounds=spaced))


@pytest.mark.parametrize("a", METHODS[1:], ids=repr)
def test_whether_a_round_settles_is_whether_its_radius_is_below_one(a):
    m = agents(3)
    edge = fl.theory.stability_limit(m, a, tolerance=1e-5)
    for factor in (0.9, 0.999, 1.001, 1.1):
        step = round_of(m, replace(a, step_size=factor * edge))
        assert stationarity.settles(step) == (stationarity.agents_radius(step) < 1) == (factor < 1), factor


def test_an_error_without_a_limit_grows_until_it_is_infinite():
    m = agents(3)
    a = fl.SCAFFLSA(2 * fl.theory.stability_limit(m, fl.SCAFFLSA(0.1, 20), tolerance=1e-2), 20)
    found = fl.theory.exact(m, a, rounds=300, record=[0, 10, 20, 300])["mse"].values
    assert (np.diff(found[:3]) > 0).all()
    assert found[3] == np.inf


def test_rounds_of_random_length_have_no_second_moment_beyond_the_step_size_of_a_single_step():
    m = agents(3)
    alone = round_of(m, fl.Scaffnew(3.5, 0.01))
    assert not np.isfinite(alone.noise).any()
    assert stationarity.agents_radius(alone) == np.inf
    assert not stationarity.settles(alone)
