"""The baselines of the benchmark solve the problem that fedlsa solves: without that, a comparison is worth nothing."""

import baselines
import native
import numpy as np
import pytest

import fedlsa as fl

ETA, H, ROUNDS = 0.1, 5, 20


@pytest.fixture(scope="module")
def problem():
    return fl.problems.garnet(agents=4, features=8, seed=7)


def mean_iterate(p):
    """E[theta] after ROUNDS of SCAFFLSA: observations are independent of the past and the recursion is linear."""
    theta, xi = p.theta_star + 1, np.zeros((p.n_agents, p.dim))
    for _ in range(ROUNDS):
        theta_hat = np.tile(theta, (p.n_agents, 1))
        for _ in range(H):
            theta_hat = theta_hat - ETA * (np.einsum("nij,nj->ni", p.A_bar, theta_hat) - p.b_bar - xi)
        theta = theta_hat.mean(axis=0)
        xi = xi + (theta - theta_hat) / (ETA * H)
    return theta


def squared_errors(p, theta):
    return ((theta - p.theta_star) ** 2).sum(axis=1)


@pytest.fixture(scope="module")
def ours(problem):
    run = fl.simulate(problem, fl.SCAFFLSA(step_size=ETA, local_steps=H), rounds=ROUNDS, seeds=400, record=2)
    return run["theta"].values[:, -1]


def assert_solves(problem, theta, ours):
    """Mean within 5 standard errors of the exact recursion; mean squared error within 5 of fedlsa's."""
    standard_error = theta.std(axis=0, ddof=1) / np.sqrt(len(theta))
    assert (np.abs(theta.mean(axis=0) - mean_iterate(problem)) < 5 * standard_error).all()
    assert standard_error.max() < 0.05  # small enough for the line above to say something
    a, b = squared_errors(problem, theta), squared_errors(problem, ours)
    assert abs(a.mean() - b.mean()) < 5 * np.sqrt(a.var() / len(a) + b.var() / len(b))


def test_fedlsa_itself_follows_the_mean_recursion(problem, ours):
    assert_solves(problem, ours, ours)


def test_numpy_baseline_follows_the_mean_recursion_and_has_our_error(problem, ours):
    loop = baselines.numpy_loop(problem, ETA, H)
    assert_solves(problem, np.stack([loop(H * ROUNDS, seed) for seed in range(200)]), ours)


def test_numpy_baseline_stops_within_a_round_at_the_last_average(problem):
    loop = baselines.numpy_loop(problem, ETA, H)
    assert np.array_equal(loop(H + 2, 0), loop(H, 0))


@pytest.mark.parametrize("draw", baselines.DRAWS)
def test_jax_baseline_follows_the_mean_recursion_and_has_our_error(problem, ours, draw):
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        theta = np.asarray(baselines.jax_loop(problem, ETA, H, draw)(ROUNDS, jax.numpy.arange(1000)))
    finally:
        jax.config.update("jax_enable_x64", before)
    assert theta.dtype == np.float64
    assert_solves(problem, theta, ours)


@pytest.mark.skipif(native.compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(("agents", "d", "H", "rounds"), [(4, 8, 5, 20), (33, 8, 130, 3), (3, 8, 1, 9), (5, 32, 66, 4)])
def test_cpp_twin_computes_what_fedlsa_computes(agents, d, H, rounds):
    p = fl.problems.garnet(agents=agents, features=d, states=4 * d, seed=7)
    seeds = [3, 2**40 + 1, 0]
    run = fl.simulate(p, fl.SCAFFLSA(step_size=ETA, local_steps=H), rounds=rounds, seeds=seeds, record=2)
    theta = native.native_loop(p, ETA, H, threads=2)(rounds, seeds)
    assert np.abs(theta - run["theta"].values[:, -1]).max() < 1e-9
    assert np.ptp(theta, axis=0).min() > 0  # seeds differ


def test_baselines_refuse_what_they_would_get_wrong(problem):
    weighted = fl.problems.garnet(agents=2, weights=[1, 3])
    with pytest.raises(ValueError, match="equal weights"):
        baselines.numpy_loop(weighted, ETA, H)
    ridge = fl.problems.regression([(np.eye(2), np.ones(2))], ridge=0.1)
    with pytest.raises(ValueError, match="rank-one"):
        baselines.numpy_loop(ridge, ETA, H)
