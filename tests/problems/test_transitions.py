"""TD(0) and TD(lambda) on logs: traces, resets, bootstrap."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlsa.errors import ArgumentError
from fedlsa.problems import from_mdps, from_transitions
from fedlsa.problems.data import traces


def random_log(seed, K=12, d=3):
    rng = np.random.default_rng(seed)
    terminated = rng.random(K) < 0.2
    truncated = (rng.random(K) < 0.2) & ~terminated
    return rng.normal(size=(K, d)), rng.normal(size=K), rng.normal(size=(K, d)), terminated, truncated


def literal(log, gamma, lam):
    """A_bar and b_bar of one log, row by row."""
    phi, r, phi_next, terminated, truncated = log
    K, d = phi.shape
    A, b, e = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for k in range(K):
        e = gamma * lam * e + phi[k]
        v = phi[k] if terminated[k] else phi[k] - gamma * phi_next[k]
        A += np.outer(e, v) / K
        b += r[k] * e / K
        if terminated[k] or truncated[k]:
            e = np.zeros(d)
    return A, b


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.floats(0, 0.99), st.sampled_from([0.0, 0.3, 1.0]))
def test_means_are_those_of_the_recursion_written_out(seed, gamma, lam):
    logs = [random_log(seed, 12), random_log(seed + 1, 20)]
    p = from_transitions(logs, gamma, trace=lam)
    for c, log in enumerate(logs):
        A, b = literal(log, gamma, lam)
        np.testing.assert_allclose(p.A_bar[c], A, atol=1e-12)
        np.testing.assert_allclose(p.b_bar[c], b, atol=1e-12)
    np.testing.assert_allclose(p.weights @ p.xi_star, 0, atol=1e-9 * (1 + abs(p.theta_star).max()))


def test_traces_reset_after_termination_and_after_truncation_but_only_termination_stops_the_bootstrap():
    phi, phi_next = np.array([[1.0], [2], [4], [8]]), np.full((4, 1), 10.0)
    terminated, truncated = [False, True, False, False], [False, False, True, False]
    p = from_transitions([(phi, np.ones(4), phi_next, terminated, truncated)], 0.5, trace=0.5)
    z = p.observations
    assert z.rows[z.left, 0].tolist() == [1, 2.25, 4, 8]
    assert z.rows[z.right, 0].tolist() == [-4, 2, -1, 3]


def test_zero_trace_is_td_zero():
    log = random_log(0)
    z = from_transitions([log], 0.9).observations
    np.testing.assert_array_equal(z.rows[z.left], log[0])


def test_truncated_may_be_left_out():
    log = random_log(1)
    short = from_transitions([log[:4]], 0.9, trace=0.7)
    full = from_transitions([(*log[:4], np.zeros(12, bool))], 0.9, trace=0.7)
    np.testing.assert_array_equal(short.theta_star, full.theta_star)


def test_trace_one_with_one_hot_features_is_every_visit_monte_carlo():
    gamma, rng = 0.8, np.random.default_rng(3)
    visits, rewards, ends, totals, counts = [], [], [], np.zeros(3), np.zeros(3)
    for _ in range(30):
        length = rng.integers(1, 6)
        states, r = rng.integers(0, 3, length), rng.normal(size=length)
        for k, s in enumerate(states):
            totals[s] += r[k:] @ gamma ** np.arange(length - k)
            counts[s] += 1
        visits += states.tolist()
        rewards += r.tolist()
        ends += [False] * (length - 1) + [True]
    phi = np.eye(3)[visits]
    p = from_transitions([(phi, rewards, np.roll(phi, -1, axis=0), ends)], gamma, trace=1.0)
    np.testing.assert_allclose(p.theta_star, totals / counts, rtol=1e-11)


def test_a_log_that_shows_each_outcome_as_often_as_its_probability_gives_the_exact_problem():
    K = np.array([[0.5, 0.5], [0.25, 0.75]])  # law (1/3, 2/3): twelve rows show it exactly
    r = np.array([1.0, -1.0])
    pairs = [(0, 0)] * 2 + [(0, 1)] * 2 + [(1, 0)] * 2 + [(1, 1)] * 6
    s, t = np.array(pairs).T
    log = from_transitions([(np.eye(2)[s], r[s], np.eye(2)[t], np.zeros(12))], 0.9)
    exact = from_mdps(K[None, :, None], r[None, :, None], np.ones((2, 1)), np.eye(2), 0.9)
    np.testing.assert_allclose(log.A_bar, exact.A_bar, atol=1e-15)
    np.testing.assert_allclose(log.theta_star, exact.theta_star, rtol=1e-12)


def test_logs_are_ordered_and_uniform_over_their_rows():
    p = from_transitions([random_log(0, 12), random_log(1, 5)], 0.9)
    assert p.ordered
    assert p.chain is None
    assert p.first.tolist() == [0, 12, 17]
    np.testing.assert_array_equal(p.prob, np.repeat([1 / 12, 1 / 5], [12, 5]))
    np.testing.assert_array_equal(p.observations.y[12:], random_log(1, 5)[1])


@pytest.mark.parametrize("trace", [0.0, 0.5])
def test_the_callers_arrays_are_left_alone(trace):
    log = random_log(4)
    before = [x.copy() for x in log]
    p = from_transitions([log], 0.9, trace=trace)
    for x, y in zip(log, before, strict=True):
        np.testing.assert_array_equal(x, y)
        assert x.flags.writeable
        assert not any(np.shares_memory(x, held) for held in (p.observations.rows, p.observations.y))


def off_policy():
    """Three states, two actions; counts of (s, a, s') in proportion to mu(s) behaviour(a|s) P(s'|s, a), all exact."""
    P = np.array([[[0, 0.5, 0.5], [1, 0, 0]], [[0.25, 0.5, 0.25], [0, 0, 1.0]], [[0.5, 0, 0.5], [0, 1, 0]]])
    behaviour, target = np.array([[0.5, 0.5]] * 3), np.array([[0.25, 0.75], [1, 0], [0.5, 0.5]])
    r = np.array([[1.0, 0], [2, -1], [0, 3]])
    K = np.einsum("sa,sat->st", behaviour, P)
    mu = np.linalg.solve(np.vstack([(K.T - np.eye(3))[:2], np.ones(3)]), [0, 0, 1])
    joint = mu[:, None, None] * behaviour[:, :, None] * P
    smallest = min(x for x in joint.ravel() if x > 0)
    scale = next(
        n for n in range(1, 500) if np.allclose(joint * n / smallest, np.round(joint * n / smallest), atol=1e-9)
    )
    counts = np.round(joint * scale / smallest).astype(int)
    s, a, t = (np.repeat(x.ravel(), counts.ravel()) for x in np.indices((3, 2, 3)))
    return P, r, behaviour, target, mu, (s, a, t)


def test_importance_weights_turn_the_behaviours_log_into_the_targets_system():
    P, r, behaviour, target, mu, (s, a, t) = off_policy()
    phi, gamma = np.array([[1.0, 0.5], [0, 1], [0.3, -1]]), 0.8
    rho = target[s, a] / behaviour[s, a]
    p = from_transitions([(phi[s], r[s, a], phi[t], np.zeros(len(s)), None, rho)], gamma)
    K, reward = np.einsum("sa,sat->st", target, P), (target * r).sum(axis=1)
    A = np.einsum("s,si,sj->ij", mu, phi, phi - gamma * K @ phi)
    np.testing.assert_allclose(p.A_bar[0], A, atol=1e-13)
    np.testing.assert_allclose(p.b_bar[0], (mu * reward) @ phi, atol=1e-13)
    values = from_transitions([(np.eye(3)[s], r[s, a], np.eye(3)[t], np.zeros(len(s)), None, rho)], gamma).theta_star
    np.testing.assert_allclose(values, np.linalg.solve(np.eye(3) - gamma * K, reward), rtol=1e-12)


@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
def test_weighted_traces_are_those_of_the_recursion_written_out(lam):
    log, gamma = random_log(5), 0.9
    rho = np.random.default_rng(6).random(12) * 2
    p = from_transitions([(*log, rho)], gamma, trace=lam)
    e = np.zeros(3)
    for k in range(12):
        e = rho[k] * (log[0][k] + gamma * lam * e)
        np.testing.assert_allclose(p.observations.rows[p.observations.left[k]], e, rtol=1e-12)
        if log[3][k] or log[4][k]:
            e = np.zeros(3)
    plain, ones = from_transitions([log], gamma, trace=lam), from_transitions([(*log, np.ones(12))], gamma, trace=lam)
    np.testing.assert_allclose(plain.A_bar, ones.A_bar, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(
    ("rho", "message"), [(-np.ones(12), "got -1 at"), (np.full(12, np.inf), "got inf"), ([1], "shape")]
)
def test_weights_that_are_no_ratios_are_refused(rho, message):
    with pytest.raises(ArgumentError, match=r"importance in logs\[0\] must") as caught:
        from_transitions([(*random_log(0), rho)], 0.9)
    assert message in str(caught.value)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("parts", [[1], [7, 8], range(1, 40)])
def test_a_log_in_parts_has_the_traces_of_the_whole_to_the_last_bit(weighted, parts):
    rng = np.random.default_rng(len(parts))
    phi, breaks = rng.normal(size=(40, 3)), rng.random(40) < 0.1
    rho = rng.exponential(size=40) if weighted else None
    found, before = [], None
    for k in np.split(np.arange(40), parts):
        found.append(traces(phi[k], breaks[k], 0.9, None if rho is None else rho[k], before))
        before = None if breaks[k[-1]] else found[-1][-1]
    np.testing.assert_array_equal(np.concatenate(found), traces(phi, breaks, 0.9, rho))


def test_importance_may_be_none():
    log = (np.eye(2), [1.0, 2.0], np.eye(2)[::-1], [0, 1])
    plain, said = from_transitions([log], 0.5, 0.5), from_transitions([(*log, None, None)], 0.5, 0.5)
    assert plain == said
    assert not said.off_policy
