"""Federated TD(0) on decision processes, against dynamic programming and hand computation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlsa.errors import SingularSystemError
from fedlsa.problems import from_mdps


def random_mdps(seed, M=3, S=5, A=3, d=2):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(S), (M, S, A)) * (rng.random((M, S, A, S)) < 0.6)
    P[..., 0] += 0.05
    P /= P.sum(axis=-1, keepdims=True)
    return P, rng.normal(size=(M, S, A)), rng.dirichlet(np.ones(A), S), rng.normal(size=(S, d))


@pytest.mark.parametrize("seed", range(3))
def test_one_hot_features_give_each_agents_value_function(seed):
    P, r, policy, _ = random_mdps(seed)
    p = from_mdps(P, r, policy, np.eye(5), 0.9)
    for c in range(3):
        K, reward = np.einsum("sa,sat->st", policy, P[c]), (policy * r[c]).sum(axis=1)
        value = np.linalg.solve(np.eye(5) - 0.9 * K, reward)
        assert (p.chain.stationary > 0).all()
        np.testing.assert_allclose(p.theta_star_local[c], value, rtol=1e-9)


def test_value_function_on_recurrent_states_does_not_need_transient_ones():
    K = np.array([[0.5, 0.25, 0.25], [0, 0.5, 0.5], [0, 0.2, 0.8]])
    r = np.array([7.0, 1.0, -2.0])
    features = np.array([[0, 0], [1, 0], [0, 1.0]])
    p = from_mdps(K[None, :, None], r[None, :, None], np.ones((3, 1)), features, 0.8)
    value = np.linalg.solve(np.eye(3) - 0.8 * K, r)
    np.testing.assert_allclose(p.theta_star, value[1:], rtol=1e-12)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.floats(0, 0.99))
def test_means_are_the_expectations_written_as_loops(seed, gamma):
    P, r, policy, phi = random_mdps(seed, M=2, S=4, A=2)
    w = np.random.default_rng(seed).random(2) + 0.1
    p = from_mdps(P, r, policy, phi, gamma, weights=w)
    for c in range(2):
        mu = p.chain.stationary.reshape(2, 4)[c]
        A_bar, b_bar = np.zeros((2, 2)), np.zeros(2)
        for s in range(4):
            for a in range(2):
                b_bar += mu[s] * policy[s, a] * r[c, s, a] * phi[s]
                for t in range(4):
                    A_bar += mu[s] * policy[s, a] * P[c, s, a, t] * np.outer(phi[s], phi[s] - gamma * phi[t])
        np.testing.assert_allclose(p.A_bar[c], A_bar, atol=1e-12)
        np.testing.assert_allclose(p.b_bar[c], b_bar, atol=1e-12)
    assert p.prob.sum() == pytest.approx(2)
    averaged = np.tensordot(p.weights, p.A_bar, 1)
    np.testing.assert_allclose(averaged @ p.theta_star, p.weights @ p.b_bar, atol=1e-12 * (1 + abs(p.theta_star).max()))
    np.testing.assert_allclose(p.weights @ p.xi_star, 0, atol=1e-9 * (1 + abs(p.theta_star).max()))


def test_actions_with_the_same_successor_and_reward_are_one_outcome():
    P = np.full((1, 3, 4, 3), 1 / 3)
    r = np.zeros((1, 3, 4))
    r[0, :, 3] = 1
    p = from_mdps(P, r, np.full((3, 4), 0.25), np.eye(3), 0.5)
    assert len(p.prob) == 3 * 3 * 2
    assert sorted(set(p.chain.conditional.round(12))) == pytest.approx([1 / 12, 3 / 12])
    assert len(p.observations.rows) == 3 + 9


def test_impossible_outcomes_are_left_out():
    P = np.zeros((1, 2, 2, 2))
    P[0, :, 0, 1], P[0, :, 1, 0] = 1, 1
    p = from_mdps(P, np.ones((1, 2, 2)), np.array([[1, 0], [0, 1.0]]), np.eye(2), 0.5)
    assert list(zip(p.chain.origin, p.chain.successor, strict=True)) == [(0, 1), (1, 0)]


def corridor(**changes):
    """States 0, 1, 2 (terminal): 0 -> 1 surely (reward 1), 1 -> end or 0 with probability 1/2 each (reward 4)."""
    P = np.zeros((1, 3, 1, 3))
    P[0, 0, 0, 1] = 1
    P[0, 1, 0, [0, 2]] = 0.5
    P[0, 2, 0, 2] = 1
    r = np.array([1.0, 4.0, 100.0]).reshape(1, 3, 1)
    arguments = {"terminal": [False, False, True], "initial": [0.25, 0.75, 0], **changes}
    return from_mdps(P, r, np.ones((3, 1)), np.array([[1, 0], [0, 1], [5, 5.0]]), 0.5, **arguments)


def test_an_episodic_chain_solved_by_hand():
    p = corridor()
    # V(0) = 1 + V(1)/2 and V(1) = 4 + V(0)/4, so V(0) = 24/7 and V(1) = 34/7
    np.testing.assert_allclose(p.theta_star, [24 / 7, 34 / 7], rtol=1e-13)
    # mu(0) = mu(1) (1/2 + 1/2 1/4), mu(0) + mu(1) = 1
    np.testing.assert_allclose(p.chain.stationary, [5 / 13, 8 / 13, 0], rtol=1e-13)


def test_a_terminal_transition_bootstraps_nothing_and_restarts_from_initial():
    p = corridor()
    outcomes = {
        (int(s), int(t), tuple(v), float(q))
        for s, t, v, q in zip(
            p.chain.origin,
            p.chain.successor,
            p.observations.rows[p.observations.right],
            p.chain.conditional,
            strict=True,
        )
    }
    assert outcomes == {
        (0, 1, (1.0, -0.5), 1.0),
        (1, 0, (-0.5, 1.0), 0.5),
        (1, 0, (0.0, 1.0), 0.125),
        (1, 1, (0.0, 1.0), 0.375),
    }
    ending = p.observations.right == p.observations.left
    assert p.prob[ending].sum() == pytest.approx(8 / 13 / 2)


def test_terminal_states_may_differ_from_table_to_table():
    P = np.full((2, 3, 1, 3), 1 / 3)
    terminal = np.array([[False, False, True], [False, False, False]])
    p = from_mdps(P, np.ones((2, 3, 1)), np.ones((3, 1)), np.eye(3), 0.5, terminal=terminal, initial=[0.5, 0.5, 0])
    np.testing.assert_allclose(p.chain.stationary, [0.5, 0.5, 0, 1 / 3, 1 / 3, 1 / 3], atol=1e-14)
    assert np.isnan(p.theta_star_local[0]).all()  # the first agent never sees state 2
    np.testing.assert_allclose(p.theta_star_local[1], 2, rtol=1e-12)  # reward 1 for ever, discounted by 1/2
    assert np.isfinite(p.xi_star).all()


def test_two_terminal_states_with_one_reward_are_one_outcome():
    P = np.full((1, 4, 1, 4), 0.25)
    ends = [False, False, True, True]
    p = from_mdps(P, np.zeros((1, 4, 1)), np.ones((4, 1)), np.eye(4)[:, :2], 0.5, terminal=ends, initial=[1, 0, 0, 0])
    assert len(p.prob) == 2 * (2 + 1)


def test_agents_share_tables_through_assignment():
    P, r, policy, phi = random_mdps(1)
    shared = from_mdps(P[:2], r[:2], policy, phi, 0.9, assignment=[1, 0, 1])
    written_out = from_mdps(P[[1, 0, 1]], r[[1, 0, 1]], policy, phi, 0.9)
    assert shared.n_tables == 2
    np.testing.assert_allclose(shared.theta_star, written_out.theta_star, rtol=1e-11)
    np.testing.assert_allclose(shared.A_bar, written_out.A_bar, rtol=1e-13, atol=1e-15)


def test_dependent_features_are_a_singular_system():
    P, r, policy, phi = random_mdps(2)
    with pytest.raises(SingularSystemError, match="A_bar must be invertible"):
        from_mdps(P, r, policy, np.hstack([phi, phi.sum(axis=1, keepdims=True)]), 0.9)


def test_later_changes_to_the_callers_arrays_do_not_reach_the_problem():
    P, r, policy, phi = random_mdps(3)
    p = from_mdps(P, r, policy, phi, 0.9)
    kept = p.recipe["arguments"]["P"].copy()
    P[:] = 0
    np.testing.assert_array_equal(p.recipe["arguments"]["P"], kept)
