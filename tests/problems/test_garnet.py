"""The Garnet instances: the authors' numbers, the paper's text, nesting, and size."""

import tracemalloc

import numpy as np
import pytest

from fedlsa.problems import garnet
from fedlsa.problems.garnets import _paper

AUTHORS = {
    True: "0.0097275889 -0.3558734049 0.9447432429 0.2199997232 0.6176088206 -0.9136773907 -0.7106915048 -0.3895991088",
    False: "12.7417452436 12.6553773808 11.5956737283 14.5319497853 10.9081415706 13.7561260026 13.8688879766"
    " 11.6262432183",
}


def table(p, c):
    """Everything an agent sees: rows, rewards, probabilities, chain."""
    m = p.assignment[c]
    span = slice(p.first[m], p.first[m + 1])
    z, chain = p.observations, p.chain
    states = slice(chain.first_state[m], chain.first_state[m + 1])
    return (
        z.rows[z.left[span]],
        z.rows[z.right[span]],
        z.y[span],
        p.prob[span],
        chain.origin[span],
        chain.successor[span],
        chain.conditional[span],
        chain.stationary[states],
    )


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("heterogeneous", [True, False])
def test_authors_preset_reproduces_their_published_solution(heterogeneous):
    p = garnet(agents=10, heterogeneous=heterogeneous, preset="authors", seed=42)
    expected = np.array(AUTHORS[heterogeneous].split(), float)
    np.testing.assert_allclose(p.theta_star, expected, rtol=0, atol=1e-9)


def literal_authors(N, S, A, B, d, gamma, heterogeneous, size, seed):
    """A_bar and b_bar of the authors' instance, dense and with loops, as the list of draws reads."""
    rng = np.random.default_rng(seed)
    worlds = 2 if heterogeneous else 1
    kernel = np.zeros((worlds, S, A, S))
    for s in range(S):
        for a in range(A):
            for w in range(worlds):
                row = np.zeros(S)
                row[:B] = 1
                rng.shuffle(row)
                kernel[w, s, a] = row
    noise = rng.uniform(0, size, (N, S, A, S))
    P = np.stack([kernel[c % worlds] + noise[c] * (kernel[c % worlds] > 0) for c in range(N)])
    P /= P.sum(axis=-1, keepdims=True)
    reward = rng.uniform(0, 1, S)
    drift = rng.uniform(0, size, (N, S))
    phi = rng.uniform(0, 1, (S, d))
    phi /= phi.sum(axis=1, keepdims=True)
    policy = np.zeros((S, A))
    for s in range(S):
        policy[s, : A - 1] = 1 / (A - 1)
        rng.shuffle(policy[s])
    A_bar, b_bar = np.zeros((N, d, d)), np.zeros((N, d))
    for c in range(N):
        r = (-1) ** c * reward if heterogeneous else reward + drift[c]
        K = np.einsum("sa,sat->st", policy, P[c])
        mu = np.linalg.matrix_power((K + np.eye(S)) / 2, 2**20)[0]
        for s in range(S):
            b_bar[c] += mu[s] * r[s] * phi[s]
            for t in range(S):
                A_bar[c] += mu[s] * K[s, t] * np.outer(phi[s], phi[s] - gamma * phi[t])
    return A_bar, b_bar


@pytest.mark.parametrize("heterogeneous", [True, False])
@pytest.mark.parametrize(("actions", "branching", "size"), [(2, 2, 0.02), (3, 4, 0.3), (3, 2, 0.0)])
def test_authors_preset_agrees_with_its_description_read_literally(heterogeneous, actions, branching, size):
    p = garnet(5, 12, actions, branching, 3, 0.9, heterogeneous, size, "authors", seed=7)
    A_bar, b_bar = literal_authors(5, 12, actions, branching, 3, 0.9, heterogeneous, size, 7)
    np.testing.assert_allclose(p.A_bar, A_bar, atol=1e-11)
    np.testing.assert_allclose(p.b_bar, b_bar, atol=1e-11)


def test_authors_agents_alternate_between_worlds_with_opposite_rewards():
    p = garnet(agents=6, preset="authors", perturbation=0)
    assert p.assignment.tolist() == [0, 1, 0, 1, 0, 1]
    assert (table(p, 0)[2] >= 0).all()
    assert (table(p, 1)[2] <= 0).all()


def test_outcomes_of_actions_that_the_policy_never_takes_are_left_out():
    p = garnet(agents=3, actions=2, branching=2, preset="authors")  # their policy is deterministic for two actions
    assert np.diff(p.first).tolist() == [60, 60, 60]
    assert (p.chain.conditional > 0).all()


def test_a_larger_problem_contains_the_smaller_one_world_by_world():
    small, large = garnet(agents=10), garnet(agents=100)
    for i in range(5):
        assert same(table(small, i), table(large, i))
        assert same(table(small, 5 + i), table(large, 50 + i))
    assert not same(table(large, 0), table(large, 1))


def test_the_homogeneous_world_is_the_first_of_the_two():
    one, two = garnet(agents=4, heterogeneous=False), garnet(agents=4)
    assert same(table(one, 0), table(two, 0))
    assert same(table(one, 1), table(two, 1))


def test_a_single_heterogeneous_agent_lives_in_the_first_world_and_three_split_two_to_one():
    assert same(table(garnet(agents=1), 0), table(garnet(agents=2), 0))
    assert garnet(agents=3, perturbation=0).assignment.tolist() == [0, 0, 1]


def test_paper_features_have_largest_norm_one_and_shared_policy_is_uniform():
    p = garnet(agents=2, perturbation=0)
    phi = p.observations.rows[:30]
    assert np.linalg.norm(phi, axis=1).max() == pytest.approx(1, abs=1e-15)
    origin, conditional, y = p.chain.origin, p.chain.conditional, p.observations.y
    for s in range(30):  # within a state each reward belongs to one action, whose outcomes have probability 1/2
        mine = (origin == s) & (np.arange(len(y)) < p.first[1])
        for value in set(y[mine]):
            assert conditional[mine & (y == value)].sum() == pytest.approx(0.5)
    assert ((y >= 0) & (y <= 1)).all()


def test_every_state_and_action_of_the_paper_has_its_own_reward_and_distinct_successors():
    p = garnet(agents=1, states=9, actions=3, branching=4, features=2)
    for s in range(9):
        here = p.chain.origin == s
        assert len(set(p.observations.y[here])) == 3
        assert here.sum() == 12


@pytest.mark.parametrize("size", [0.02, 0.5])
def test_each_agent_adds_its_own_uniform_perturbation_to_its_world(size):
    shape = {"N": 40, "S": 10, "A": 2, "B": 3, "d": 4, "W": 2, "seed": 7}
    still, moved = _paper(**shape, perturbation=0.0), _paper(**shape, perturbation=size)
    drift = moved.reward - still.reward[moved.world]
    assert 0 <= drift.min() < 0.02 * size
    assert 0.98 * size < drift.max() <= size
    assert drift.mean() == pytest.approx(size / 2, rel=0.1)
    base = still.kernel[moved.world]
    assert (moved.kernel <= base + size).all()
    assert (moved.kernel >= base / (1 + 3 * size)).all()
    np.testing.assert_allclose(moved.kernel.sum(axis=-1), 1, atol=1e-15)
    assert len(np.unique(drift)) == drift.size  # no two agents share a draw


def test_no_perturbation_means_one_table_per_world():
    assert garnet(50, perturbation=0).n_tables == 2
    assert garnet(50, perturbation=0, heterogeneous=False).n_tables == 1
    assert garnet(50, perturbation=0, preset="authors").n_tables == 2


@pytest.mark.parametrize("preset", ["paper", "authors"])
@pytest.mark.parametrize("heterogeneous", [True, False])
def test_vanishing_perturbation_tends_to_none(preset, heterogeneous):
    still, moved = (garnet(7, perturbation=x, heterogeneous=heterogeneous, preset=preset) for x in (0, 1e-13))
    np.testing.assert_allclose(moved.A_bar, still.A_bar, atol=1e-11)
    np.testing.assert_allclose(moved.b_bar, still.b_bar, atol=1e-11)


def test_seeds_and_presets_give_different_instances_and_equal_arguments_equal_ones():
    a, b, c = garnet(agents=4), garnet(agents=4, seed=43), garnet(agents=4)
    assert not np.array_equal(a.theta_star, b.theta_star)
    assert np.array_equal(a.theta_star, c.theta_star)


def test_weights_enter_the_averaged_system():
    w = np.array([3.0, 1.0, 2.0])
    p = garnet(agents=3, weights=w)
    A, b = np.tensordot(w, p.A_bar, 1), w @ p.b_bar
    np.testing.assert_allclose(p.theta_star, np.linalg.solve(A, b), rtol=1e-9)


def test_rows_are_states_and_pairs_however_many_agents():
    p = garnet(agents=200)
    assert len(p.observations.rows) <= 30 + 2 * 30 * 2 * 2
    assert p.observations.left.dtype == p.observations.right.dtype == np.uint32


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_a_million_agents_in_two_worlds_are_cheap(preset):
    tracemalloc.start()
    p = garnet(agents=1_000_000, perturbation=0, preset=preset)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert p.n_agents == 1_000_000
    assert p.n_tables == 2
    assert peak < 60e6


def test_a_thousand_perturbed_agents_fit_into_little_memory():
    tracemalloc.start()
    garnet(agents=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6  # of which the kernels (N, S, A, S) are 14e6
