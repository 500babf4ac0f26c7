"""Stationary laws of chains that are large or nearly fall apart: against elimination written out, and in memory."""

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

import fedlsa as fl
from fedlsa.errors import StationaryLawError
from fedlsa.problems import finite_chains
from fedlsa.theory import decision_processes


def written_out(kernel):
    """The slow twin: Grassmann, Taksar and Heyman's elimination on a full matrix, in fractions, which never round."""
    K = [[Fraction(float(x)) for x in row] for row in kernel]
    n = len(K)
    for k in range(n - 1, 0, -1):
        leaving = sum(K[k][:k])
        for i in range(k):
            K[i][k] /= leaving
            for j in range(k):
                K[i][j] += K[i][k] * K[k][j]
    mu = [Fraction(1)]
    for k in range(1, n):
        mu.append(sum(mu[i] * K[i][k] for i in range(k)))
    return np.array([float(m / sum(mu)) for m in mu])


def law(kernel):
    """By `stationary_laws`, from the full matrix of one chain."""
    s, t = np.nonzero(kernel)
    begin = np.ones((1, len(kernel)), np.bool_)
    return finite_chains.stationary_laws(s, t, np.asarray(kernel)[s, t], begin, np.zeros(1, np.int64))[0]


def normalised(kernel):
    return kernel / kernel.sum(axis=1, keepdims=True)


def corridor(n, up, down):
    """A walk between two walls; up, down : numbers or (n,)."""
    K, s = np.zeros((n, n)), np.arange(n)
    K[s, np.minimum(s + 1, n - 1)] += up
    K[s, np.maximum(s - 1, 0)] += down
    return normalised(K)


def random_chain(n, successors=3, seed=0):
    rng = np.random.default_rng(seed)
    K = np.roll(np.eye(n), 1, axis=1) * 0.1  # a cycle makes it one class
    for s in range(n):
        K[s, rng.choice(n, successors, replace=False)] += rng.random(successors)
    return normalised(K)


def in_blocks(n, weak, size=6):
    """Blocks of states that are left with probability `weak` alone, some more seldom than others."""
    K = np.kron(np.eye(n // size), random_chain(size))
    K[np.arange(0, n, size), np.roll(np.arange(n), -size - 2)[::size]] += weak * np.arange(1, n // size + 1)
    return normalised(K)


def with_restarts(n):
    """Forward, or from the last state to anywhere, and from everywhere to the last state: a hub in both directions."""
    K = np.diag(np.full(n - 1, 0.9), 1)
    K[:-1, -1] += 0.1
    K[-1, :-1] = 1
    return normalised(K)


CHAINS = {
    "cycle": np.roll(np.eye(30), 1, axis=1),
    "corridor": corridor(40, 0.5, 0.5),
    "drift": corridor(40, 0.9, 0.1),
    "two ends": corridor(41, np.where(np.arange(41) < 20, 0.01, 0.99), np.where(np.arange(41) < 20, 0.99, 0.01)),
    "random": random_chain(40),
    "dense": normalised(np.random.default_rng(1).random((25, 25))),
    "blocks": in_blocks(36, 1e-6),
    "nearly apart": in_blocks(36, 1e-14),
    "dense and nearly apart": normalised(
        np.kron(np.eye(3), random_chain(8, 7)) + 1e-14 * np.random.default_rng(2).random((24, 24))
    ),
    "restarts": with_restarts(35),
    "absorbing": np.array([[0.5, 0.5], [0, 1.0]]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_law_is_right_to_the_error_that_is_promised(name):
    expected = [0, 1] if name == "absorbing" else written_out(CHAINS[name])
    np.testing.assert_allclose(law(CHAINS[name]), expected, rtol=0, atol=finite_chains.TRUSTED)


@pytest.mark.parametrize("name", CHAINS)
def test_elimination_keeps_every_digit_of_the_smallest_probability(name, monkeypatch):
    monkeypatch.setattr(finite_chains, "MOST_DENSE", 0)
    expected = [0, 1] if name == "absorbing" else written_out(CHAINS[name])
    np.testing.assert_allclose(law(CHAINS[name]), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["random", "dense", "corridor", "restarts"])
def test_arnoldi_finds_the_law_of_what_is_left(name):
    K = CHAINS[name]
    s, t = np.nonzero(K * (1 - np.eye(len(K))))
    found = finite_chains._core_law(s, t, K[s, t], len(K))
    np.testing.assert_allclose(found, written_out(K), atol=1e-12)


def test_arnoldi_does_not_answer_where_two_starts_disagree():
    K = np.kron(np.eye(2), random_chain(50))
    K[0, 60] = K[60, 0] = 1e-13
    s, t = np.nonzero(K * (1 - np.eye(100)))
    assert finite_chains._core_law(s, t, K[s, t], 100) is None


def test_parts_whose_coupling_vanishes_in_rounding_keep_their_law():
    P = np.array([[1.0, 1e-17], [3e-17, 1.0]])[None, :, None, :]
    p = fl.problems.from_mdps(P, np.ones((1, 2, 1)), np.ones((2, 1)), np.array([[1.0], [0.5]]), 0.9)
    np.testing.assert_allclose(p.chain.stationary, [0.75, 0.25], rtol=1e-12)


def test_values_where_states_are_many_steps_apart():
    S, discount = 700, 0.999
    s = np.arange(S)
    stays, reward = np.where(s % 2, 0.001, 0.3), np.random.default_rng(0).random(S)
    chain = (np.r_[s, s], np.r_[(s + 1) % S, s], np.r_[reward, reward], np.r_[1 - stays, stays])
    p = fl.problems.from_chains([chain], np.column_stack([np.ones(S), s / S]), discount)
    K = np.diag(stays) + np.roll(np.diag(1 - stays), 1, axis=1)
    expected = np.linalg.solve(np.eye(S) - discount * K, reward)
    np.testing.assert_allclose(fl.theory.value_functions(p)[0], expected, rtol=1e-9)


@pytest.mark.parametrize("discount", [0.5, 0.99, 0.999])
@pytest.mark.parametrize("name", ["cycle", "corridor", "random", "dense", "restarts"])
def test_values_of_a_large_chain_are_those_of_the_full_system(name, discount, monkeypatch):
    K = CHAINS[name]
    s, t = np.nonzero(K)
    ends = (s + t) % 7 == 0
    p = fl.problems.from_chains([(s, t, np.cos(s), K[s, t], ends)], np.ones((len(K), 1)), discount, np.eye(len(K))[0])
    expected = fl.theory.value_functions(p)
    monkeypatch.setattr(decision_processes, "MOST_DENSE", 0)
    np.testing.assert_allclose(fl.theory.value_functions(p), expected, atol=1e-9 * np.abs(expected).max())


def sparse_chain(n, seed):
    """(state, next_state, probability): four successors of each state, drawn, in one class with nearly all states."""
    rng = np.random.default_rng(seed)
    return np.repeat(np.arange(n), 4), rng.integers(0, n, 4 * n), np.full(4 * n, 0.25)


def test_a_chain_that_resists_elimination_keeps_its_law():
    s, t, p = sparse_chain(6000, 0)
    mu = fl.problems.from_chains([(s, t, np.ones(24000), p)], np.ones((6000, 1)), 0.5).chain.stationary
    np.testing.assert_allclose(np.bincount(t, mu[s] * p, 6000), mu, atol=1e-15)
    assert mu.sum() == pytest.approx(1)


def test_two_parts_that_resist_elimination_and_hardly_meet_are_refused():
    s, t, p = sparse_chain(6000, 0)
    weak = 1e-12
    s, t = np.concatenate([s, s + 6000, [0, 6000]]), np.concatenate([t, t + 6000, [6000, 0]])
    p = np.concatenate([p, p, [weak, weak]])
    p[(s == 0) & (p > weak)] -= weak / 4
    p[(s == 6000) & (p > weak)] -= weak / 4
    with pytest.raises(StationaryLawError, match=r"agent 0 .* got a class of 1\d,\d+ states that nearly falls apart"):
        fl.problems.from_chains([(s, t, np.ones(len(s)), p)], np.ones((12000, 1)), 0.5)


def test_a_law_beyond_the_range_of_doubles_keeps_both_ends():
    n = 3000  # the middle is 10^-1400 times as likely as the ends
    a = np.arange(n)
    up = np.where(a < n // 2, 0.1, 0.9)
    chain = (np.tile(a, 2), np.concatenate([np.minimum(a + 1, n - 1), np.maximum(a - 1, 0)]))
    p = fl.problems.from_chains([(*chain, np.ones(2 * n), np.concatenate([up, 1 - up]))], np.ones((n, 1)), 0.5)
    mu = p.chain.stationary
    np.testing.assert_allclose(mu[[0, 1, 2, -1, -2]], [4 / 9, 4 / 81, 4 / 729, 4 / 9, 4 / 81], rtol=1e-12)
    assert mu[n // 2] == 0


LARGE = r"""
import re
from pathlib import Path
import numpy as np
import fedlsa as fl

n = 100_000
s = np.arange(n)
state, successor = np.concatenate([s, s]), np.concatenate([np.minimum(s + 1, n - 1), np.maximum(s - 1, 0)])
probability = np.repeat([0.3, 0.7], n)
terminated = successor == n - 1
features = np.random.default_rng(0).standard_normal((n, 8))
start = np.zeros(n)
start[[5, 70_000]] = 0.5
for ends, initial in ((None, None), (terminated, start)):
    rest = () if ends is None else (ends,)
    chain = (state, successor, np.cos(state), probability, *rest)
    p = fl.problems.from_chains([chain], features, 0.9, initial, assignment=[0, 0])
    mu = p.chain.stationary
    flow = np.bincount(p.chain.successor, mu[p.chain.origin] * p.chain.conditional, n)
    assert np.abs(flow - mu).sum() < 1e-12
    assert np.isfinite(p.theta_star).all() and p.A_bar.shape == (2, 8, 8)
    assert fl.theory.value_error(p, p.theta_star).max() < 10
    for sampling in (fl.IID(), fl.Markov()):
        r = fl.simulate(p, fl.SCAFFLSA(0.01, 10), rounds=5, seeds=2, sampling=sampling)
        assert np.isfinite(r["squared_error"].values).all()
# getrusage would count the memory of the process that started this one, too
print(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of the largest memory of a process differs")
def test_a_hundred_thousand_states_take_less_than_a_gigabyte():
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1e6  # kilobytes: a flag for every pair of states would take ten times that
