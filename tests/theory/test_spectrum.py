"""The stationary law by frequency against the one by pairs of agents."""

import sys

import numpy as np
import pytest
from tables import tiny

import fedlsa as fl
from fedlsa.theory import controlled, limits, moments, spectrum
from fedlsa.theory.spectrum import Spectrum


def rounds(problem, eta, H):
    return controlled.fixed_round(moments(problem), eta, H, 1 / (eta * H))


@pytest.mark.parametrize(("eta", "H"), [(0.3, 2), (0.1, 7), (0.001, 10), (0.2, 300)])
def test_both_ways_give_one_limit_and_one_radius(eta, H):
    for problem in (
        fl.problems.garnet(agents=6, states=10, features=3, discount=0.6),
        tiny(3, 3, 4, 2, weights=[1.0, 2.0, 2.0, 3.0, 1.0, 1.0], assignment=[0, 1, 1, 2, 0, 0]),
    ):
        step = rounds(problem, eta, H)
        pairs = limits.limit(step)
        assert Spectrum.suits(step)
        np.testing.assert_allclose(Spectrum(step).limit(), pairs.U, rtol=1e-9, atol=1e-12 * pairs.U.max())
        assert abs(spectrum.radius(step) - pairs.radius) < 3e-4 * (1 - pairs.radius)


@pytest.mark.parametrize("factor", [0.9, 0.99, 1.01, 1.5, 4.0])
@pytest.mark.parametrize("H", [2, 20])
def test_both_ways_see_the_same_instability(factor, H):
    problem = fl.problems.garnet(agents=4, states=10, features=3, discount=0.6)
    edge = fl.theory.stability_limit(problem, fl.SCAFFLSA(0.1, H), tolerance=1e-4)
    found = Spectrum(rounds(problem, factor * edge, H)).limit()
    assert (found is not None) == (factor < 1)


def test_more_nodes_change_nothing():
    step = rounds(fl.problems.garnet(agents=4, states=10, features=3), 0.05, 50)
    np.testing.assert_allclose(Spectrum(step, order=14).limit(), Spectrum(step).limit(), rtol=1e-10, atol=1e-15)


def test_many_different_agents_take_this_way(monkeypatch):
    problem = fl.problems.garnet(agents=6, states=10, features=3, discount=0.6)
    by_pairs = fl.theory.stationary(problem, fl.SCAFFLSA(0.1, 7))
    room = sys.modules["fedlsa.theory.stationary"]  # the package has a function of this name
    monkeypatch.setattr(room, "MANY", 1)
    monkeypatch.setattr(room, "VERY_MANY", 1)
    by_frequency = fl.theory.stationary(problem, fl.SCAFFLSA(0.1, 7))
    assert by_frequency.mse == pytest.approx(by_pairs.mse, rel=1e-9)
    assert by_frequency.mse != by_pairs.mse
    assert by_frequency.radius == pytest.approx(by_pairs.radius, rel=1e-4)
    assert fl.theory.stationary(problem, fl.SCAFFLSA(5.0, 7)).mse == np.inf
    one_length_only = fl.theory.stationary(problem, fl.Scaffnew(0.1, 0.2))
    assert np.isfinite(one_length_only.mse)
