"""Sites in the plane whose own solutions lie around a ring."""

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError


def test_each_site_has_its_own_solution_on_the_ring():
    own = fl.problems.ring(12, spread=2.0).theta_star_local
    assert (np.linalg.norm(own, axis=1) >= 1.6).all()
    assert (np.linalg.norm(own, axis=1) <= 3.0).all()
    turns = np.diff(np.unwrap(np.arctan2(own[:, 1], own[:, 0])))
    assert 2 * np.pi * 11 / 12 == pytest.approx(turns.sum(), abs=0.8)


def test_without_spread_all_agree_and_nothing_drifts():
    p = fl.problems.ring(4, spread=0.0)
    np.testing.assert_allclose(p.theta_star_local, 0, atol=1e-12)
    np.testing.assert_allclose(fl.theory.bias(p, 0.05, 100), 0, atol=1e-12)


def test_with_spread_there_is_drift_because_views_differ_too():
    p = fl.problems.ring(4)
    assert np.linalg.norm(fl.theory.bias(p, 0.05, 100)) > 0.3


def test_noise_moves_solutions_a_little_and_is_seen_in_the_error():
    quiet, noisy = fl.problems.ring(4), fl.problems.ring(4, noise=0.1)
    assert 0 < np.abs(quiet.theta_star_local[0] - noisy.theta_star_local[0]).max() < 0.1
    m = fl.SCAFFLSA(0.05, 10)
    assert fl.theory.stationary(noisy, m).mse > fl.theory.stationary(quiet, m).mse > 0


def test_ideal_noise_leaves_solutions_where_they_are_and_without_it_nothing_is_random():
    quiet, noisy = (fl.problems.ring(4, noise=noise, ideal=True) for noise in (0.0, 0.5))
    for p in (quiet, noisy):
        np.testing.assert_allclose(p.theta_star_local, fl.problems.ring(4).theta_star_local, atol=1e-14)
        np.testing.assert_allclose(p.A_bar, fl.problems.ring(4).A_bar, atol=1e-14)
    m = fl.SCAFFLSA(0.05, 10)
    assert fl.theory.stationary(quiet, m).mse == 0
    assert fl.theory.stationary(noisy, m).mse > fl.theory.stationary(fl.problems.ring(4), m).mse


def test_a_result_on_it_can_be_made_again():
    r = fl.simulate(fl.problems.ring(3, noise=0.1), fl.FedLSA(0.05, 5), rounds=4, seeds=2, engine="reference")
    again = fl.simulate(**fl.results.arguments(r))
    np.testing.assert_array_equal(r["theta"], again["theta"])


@pytest.mark.parametrize("wrong", [{"agents": 0}, {"spread": -1.0}, {"noise": -0.1}, {"seed": -1}])
def test_bad_arguments_are_named(wrong):
    (name,) = wrong
    with pytest.raises(ArgumentError, match=f"{name} must be"):
        fl.problems.ring(**wrong)
