"""The virtual MDP against its definition, written out from the decision processes."""

from __future__ import annotations

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import ArgumentError


def processes(seed, agents=3, states=4, actions=2):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(states), (agents, states, actions))
    r = rng.random((agents, states, actions))
    return P, r, rng.dirichlet(np.ones(actions), states), rng.standard_normal((states, 2))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 5.0]])
def test_virtual_mdp_is_td_on_the_averaged_process(seed, weights):
    P, r, policy, phi = processes(seed)
    w = np.full(3, 1 / 3) if weights is None else np.array(weights) / 8
    got = fl.theory.virtual_mdp(fl.problems.from_mdps(P, r, policy, phi, 0.9, weights=weights))
    kernel = np.einsum("c,sa,csat->st", w, policy, P)
    reward = np.einsum("c,sa,csa->s", w, policy, r)
    values, vectors = np.linalg.eig(kernel.T)
    mu = vectors[:, np.argmax(values.real)].real
    mu /= mu.sum()
    A = sum(mu[s] * np.outer(phi[s], phi[s] - 0.9 * kernel[s] @ phi) for s in range(4))
    b = sum(mu[s] * reward[s] * phi[s] for s in range(4))
    np.testing.assert_allclose(got.kernel, kernel, atol=1e-14)
    np.testing.assert_allclose(got.reward, reward, atol=1e-14)
    np.testing.assert_allclose(got.stationary, mu, atol=1e-12)
    np.testing.assert_allclose(got.A_tilde, A, atol=1e-12)
    np.testing.assert_allclose(got.b_tilde, b, atol=1e-12)
    np.testing.assert_allclose(got.theta_tilde, np.linalg.solve(A, b), rtol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_virtual_mdp_is_the_problem_of_one_agent_in_the_averaged_process(seed):
    P, r, policy, phi = processes(seed)
    got = fl.theory.virtual_mdp(fl.problems.from_mdps(P, r, policy, phi, 0.7))
    alone = fl.problems.from_mdps(P.mean(axis=0)[None], r.mean(axis=0)[None], policy, phi, 0.7)
    np.testing.assert_allclose(got.theta_tilde, alone.theta_star, rtol=1e-9)
    np.testing.assert_allclose(got.A_tilde, alone.A_bar[0], atol=1e-13)


def test_virtual_solution_is_theta_star_for_equal_agents_and_not_for_others():
    P, r, policy, phi = processes(5)
    alike = fl.problems.from_mdps(P[[0, 0]], r[[0, 0]], policy, phi, 0.9)
    got = fl.theory.virtual_mdp(alike)
    assert got.distance == pytest.approx(0, abs=1e-10)
    other = fl.problems.from_mdps(P, r, policy, phi, 0.9)
    got = fl.theory.virtual_mdp(other)
    assert got.distance == pytest.approx(np.linalg.norm(got.theta_tilde - other.theta_star))
    assert got.distance > 1e-3
    assert np.array_equal(got.theta_star, other.theta_star)


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_garnet_has_a_virtual_mdp(preset):
    problem = fl.problems.garnet(agents=6, preset=preset, seed=3)
    got = fl.theory.virtual_mdp(problem)
    np.testing.assert_allclose(got.kernel.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(got.stationary @ got.kernel, got.stationary, atol=1e-12)
    np.testing.assert_allclose(got.A_tilde @ got.theta_tilde, got.b_tilde, atol=1e-12)
    assert got.distance > 0.1


def test_episodes_restart_in_the_virtual_mdp_as_they_do_for_the_agents():
    P, r, policy, phi = processes(6)
    ends, begin = np.array([False, False, False, True]), np.array([0.5, 0.5, 0.0, 0.0])
    got = fl.theory.virtual_mdp(fl.problems.from_mdps(P, r, policy, phi, 0.9, ends, begin))
    alone = fl.problems.from_mdps(P.mean(axis=0)[None], r.mean(axis=0)[None], policy, phi, 0.9, ends, begin)
    np.testing.assert_allclose(got.theta_tilde, alone.theta_star, rtol=1e-9)
    some = np.stack([ends, np.zeros(4, bool), ends])
    with pytest.raises(ArgumentError, match="terminal for all agents or for none; got state 3"):
        fl.theory.virtual_mdp(fl.problems.from_mdps(P, r, policy, phi, 0.9, some, begin))


def test_there_is_no_virtual_mdp_without_decision_processes():
    with pytest.raises(ArgumentError, match="made from decision processes"):
        fl.theory.virtual_mdp(fl.problems.from_observations([([1.0], [[[1.0]]], [[1.0]])]))
