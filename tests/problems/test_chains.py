"""Chains as lists of transitions: against decision processes written out in full, and by hand."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_matrix, csr_array

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.problems import from_chains, from_mdps, from_recipe, from_transitions

CORRIDOR = ([0, 1, 1], [1, 0, 2], [1.0, 4, 4], [1, 0.5, 0.5], [False, False, True])
PHI = [[1, 0], [0, 1], [5, 5.0]]
SHIFT = np.array([13.0, 0])


def corridor(**changes):
    """States 0, 1, 2 (terminal): 0 -> 1 surely (reward 1), 1 -> end or 0 with probability 1/2 each (reward 4)."""
    arguments = {"chains": [CORRIDOR], "features": PHI, "discount": 0.5, "initial": [0.25, 0.75, 0], **changes}
    return from_chains(**arguments)


def test_a_list_of_transitions_is_the_decision_process_it_comes_from():
    rng = np.random.default_rng(0)
    P, r = rng.dirichlet(np.ones(5), (2, 5, 3)), rng.normal(size=(2, 5, 3))
    policy, phi = rng.dirichlet(np.ones(3), 5), rng.normal(size=(5, 2))
    ends, begins = np.arange(5) == 4, [0.5, 0.5, 0, 0, 0]
    full = from_mdps(P, r, policy, phi, 0.9, ends, begins, weights=[1, 3])
    s, a, t = (x.ravel() for x in np.indices((4, 3, 5)))
    lists = [(s, t, r[m, s, a], policy[s, a] * P[m, s, a, t], ends[t]) for m in range(2)]
    sparse = from_chains(lists, phi, 0.9, begins, weights=[1, 3])
    for name in ("left", "right", "y", "following"):
        np.testing.assert_array_equal(getattr(full.observations, name), getattr(sparse.observations, name))
    np.testing.assert_allclose(sparse.prob, full.prob, rtol=1e-12)
    np.testing.assert_allclose(sparse.theta_star, full.theta_star, rtol=1e-12)
    again = from_recipe(sparse.recipe)
    np.testing.assert_array_equal(again.prob, sparse.prob)


def test_a_sparse_kernel_is_the_list_of_its_transitions():
    rng = np.random.default_rng(3)
    kernels = rng.dirichlet(np.ones(6), (2, 6)) * (rng.random((2, 6, 6)) < 0.5) + 0.1 * np.eye(6)[[1, 2, 3, 4, 5, 0]]
    kernels /= kernels.sum(axis=-1, keepdims=True)
    reward, phi = rng.normal(size=(2, 6)), rng.normal(size=(6, 2))
    full = from_mdps(kernels[:, :, None], reward[:, :, None], np.ones((6, 1)), phi, 0.9)
    for kind in (csr_array, csc_matrix, coo_array):
        p = from_chains([(kind(K), r) for K, r in zip(kernels, reward, strict=True)], phi, 0.9)
        np.testing.assert_allclose(p.theta_star, full.theta_star, rtol=1e-12)
        np.testing.assert_array_equal(from_recipe(p.recipe).prob, p.prob)


def test_rewards_belong_to_transitions_so_that_their_noise_is_right():
    # one state, one successor, rewards 0 and 2 with probability 1/2: the mean is 1 and the noise covariance 1
    p = from_chains([([0, 0], [0, 0], [0.0, 2.0], [0.5, 0.5])], [[1.0]], 0.5)
    assert sorted(p.observations.y) == [0, 2]
    assert p.theta_star[0] == pytest.approx(2)
    assert fl.theory.constants(p).Sigma_omega[0, 0, 0] == pytest.approx(1)


def test_values_end_with_the_episode_though_the_chain_restarts():
    p = corridor()
    np.testing.assert_allclose(fl.theory.value_functions(p), [[24 / 7, 34 / 7, 0]], rtol=1e-13)
    np.testing.assert_allclose(fl.theory.stationary_law(p), [[5 / 13, 8 / 13, 0]], rtol=1e-13)
    np.testing.assert_allclose(fl.theory.value_error(p, p.theta_star), 0, atol=1e-12)
    np.testing.assert_allclose(fl.theory.value_error(p, p.theta_star + SHIFT), np.sqrt(5 * 13), rtol=1e-12)
    many = fl.theory.value_error(p, np.stack([p.theta_star, p.theta_star + SHIFT]))
    np.testing.assert_allclose(many, [[0], [np.sqrt(65)]], atol=1e-12)


def test_value_functions_are_those_of_each_agent():
    p = corridor(chains=[CORRIDOR, (*CORRIDOR[:2], [2.0, 8, 8], *CORRIDOR[3:])], assignment=[1, 0, 1])
    V = np.array([24 / 7, 34 / 7, 0])
    np.testing.assert_allclose(fl.theory.value_functions(p), [2 * V, V, 2 * V], rtol=1e-12)


def test_logs_have_no_value_function():
    p = from_transitions([(np.eye(2), [1.0, 2], np.eye(2)[::-1], [0, 0])], 0.5)
    with pytest.raises(ArgumentError, match="made from decision processes or chains; got from_transitions"):
        fl.theory.value_functions(p)


BAD = [
    ({"initial": None}, "initial must be a law over the states when transitions terminate; got None"),
    (
        {"chains": [(*CORRIDOR[:3], [1, 0.5, 0.6])]},
        "probability in chains[0] must sum to one in every state; got 1.1 at",
    ),
    (
        {"chains": [(*CORRIDOR[:3], [1, 1.5, -0.5])]},
        "probability in chains[0] must hold numbers of at least 0; got -0.5",
    ),
    ({"chains": [([0, 1, 3], *CORRIDOR[1:])]}, "state in chains[0] must be integers from 0 to 2; got 3 at [2]"),
    ({"chains": [([], [], [], [])]}, "state in chains[0] must have at least one row"),
    ({"chains": [CORRIDOR[:3]]}, "chains[0] must be a tuple (state, next_state, reward, probability, terminated)"),
    ({"initial": [0.5, 0.6, 0]}, "initial must sum to one"),
    (
        {"chains": [(csr_array(np.eye(2)), [1, 2, 3])]},
        "or (kernel, reward) with a sparse matrix of shape (3, 3); got 2",
    ),
    ({"chains": [(np.eye(3), [1, 2, 3])]}, "or (kernel, reward) with a sparse matrix of shape (3, 3); got 2 entries"),
    (
        {"chains": [(csr_array(np.eye(3)), [1, 2])]},
        "reward in chains[0] must be an array of finite numbers of shape (3",
    ),
    ({"chains": [(csr_array(np.eye(3) / 2), [1, 2, 3])]}, "probability in chains[0] must sum to one in every state"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_lists_that_are_no_chains_are_refused(changes, message):
    with pytest.raises(ArgumentError) as caught:
        corridor(**changes)
    assert message in str(caught.value)
