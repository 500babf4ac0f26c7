"""The multiplier bootstrap: its run is the engine's, its replicas solve reweighted data, its spread is the sandwich."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import fedlsa as fl
from fedlsa.errors import ArgumentError, ArgumentTypeError
from fedlsa.fit.bootstrap import Bootstrap, bootstrap, reweighted, row_weights

Floats = NDArray[np.float64]
METHODS = [fl.FedLSA(0.05, 6), fl.SCAFFLSA(0.05, 6), fl.Scaffnew(0.05, 0.2)]


def panel(sizes=(40, 90, 200), d=8, shift=0.0, seed=0) -> list[tuple[Floats, Floats]]:
    """Sites of unequal size; `shift` moves each site's own intercept. Noise grows with the second feature."""
    rng = np.random.default_rng(seed)
    truth, sites = np.linspace(-1, 1, d), []
    for c, n in enumerate(sizes):
        X = rng.standard_normal((n, d))
        X[:, 0] = 1
        noise = (0.5 + np.abs(X[:, 1])) * rng.standard_normal(n)
        sites.append((X, X @ truth + shift * (c - 1) + noise))
    return sites


def logs() -> fl.Problem:
    """TD(0) on three logs of transitions, with weights per site and a table that two agents share."""
    rng = np.random.default_rng(1)
    tables = []
    for n in (30, 50, 70):
        phi, after = rng.random((2, n, 8))
        tables.append((phi, rng.standard_normal(n), after, rng.random(n) < 0.1))
    return fl.problems.from_transitions(tables, 0.9, weights=[1, 2, 3, 4], assignment=[0, 1, 2, 1])


def sandwich(problem: fl.Problem, *, centred: bool, blocks: int = 1) -> Floats:
    """A_bar^-1 S A_bar^-T, S = sum_m w_m^2 sum_j s_j s_j^T with s_j the sum of a block's p (g - mean g)."""
    S = np.zeros((problem.dim, problem.dim))
    for w, span in zip(problem.table_weights, problem.spans(), strict=True):
        A, b = problem.observations.matrices(span)
        g = A @ problem.theta_star - b
        p = problem.prob[span, None]
        part = p * (g - (p * g).sum(0) if centred else g)
        summed = np.add.reduceat(part, np.arange(0, len(part), blocks))
        S += w**2 * summed.T @ summed
    inverse = np.linalg.inv(np.tensordot(problem.table_weights, problem.table_A_bar, 1))
    return np.sqrt(np.diag(inverse @ S @ inverse.T))


@pytest.mark.parametrize("options", [{}, {"participants": 2, "average_after": 4, "projection": 0.5}], ids=str)
@pytest.mark.parametrize("method", METHODS, ids=lambda a: type(a).__name__)
def test_the_run_itself_is_that_of_simulate(method, options) -> None:
    algorithm = replace(method, **options)
    for problem in (logs(), fl.problems.regression(panel(), ridge=0.1)):
        made = bootstrap(problem, algorithm, 12, replicas=3, run_seed=5, theta_0=np.arange(8))
        run = fl.simulate(problem, algorithm, 12, seeds=[5], theta_0=np.arange(8))
        assert np.abs(made.theta - run["theta"].values[0, -1]).max() < 1e-12


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("method", METHODS, ids=lambda a: type(a).__name__)
def test_a_replica_is_the_reference_run_on_the_reweighted_problem(method, centred) -> None:
    algorithm = replace(method, step_size=fl.PowerStep(0.05, 0.3))
    for problem, blocks in ((logs(), 4), (fl.problems.regression(panel(), ridge=0.1), 1)):
        made = bootstrap(problem, algorithm, 5, replicas=70, seed=3, blocks=blocks, centred=centred)
        for b in (0, 65):
            twin = reweighted(problem, b, seed=3, blocks=blocks, centred=centred)
            run = fl.simulate(twin, algorithm, 5, seeds=1, theta_0=np.zeros(8), engine="reference")
            assert np.abs(made.replicas[b] - run["theta"].values[0, -1]).max() < 1e-12


def test_weights_are_fair_coins_that_blocks_share_and_rows_keep() -> None:
    problem = fl.problems.regression([(np.ones((1000, 1)), np.zeros(1000)), (np.ones((7, 1)), np.zeros(7))])
    W = np.stack([row_weights(problem, b, seed=1, centred=False)[:1000] for b in range(100)])
    assert set(np.unique(W)) == {0.0, 2.0}
    assert abs(W.mean() - 1) < 4 / np.sqrt(W.size)  # variance one
    pairs = np.corrcoef(W)[np.triu_indices(100, 1)]
    assert np.abs(pairs).max() < 5.5 / np.sqrt(1000)  # of 4950 independent pairs
    in_blocks = row_weights(problem, 2, seed=1, blocks=5, centred=False)
    assert (in_blocks[:1000].reshape(200, 5) == in_blocks[:1000:5, None]).all()
    assert (in_blocks[1000:1005] == in_blocks[1000]).all()  # a new site begins a new block
    assert in_blocks[1005] == in_blocks[1006]
    assert (in_blocks[:1000:5] == W[2, :200]).all()
    centred = row_weights(problem, 2, seed=1)
    assert abs(centred[:1000].mean() - 1) < 1e-12
    assert abs(centred[1000:].mean() - 1) < 1e-12


def test_neither_threads_nor_the_number_of_replicas_change_a_bit() -> None:
    problem, algorithm = logs(), fl.SCAFFLSA(0.1, 5)
    one = bootstrap(problem, algorithm, 10, replicas=131, threads=1)
    five = bootstrap(problem, algorithm, 10, replicas=131, threads=5)
    fewer = bootstrap(problem, algorithm, 10, replicas=64, threads=2)
    assert (one.replicas == five.replicas).all()
    assert (one.theta == five.theta).all()
    assert (one.theta == fewer.theta).all()
    assert (one.replicas[:64] == fewer.replicas).all()
    assert not (one.replicas == bootstrap(problem, algorithm, 10, replicas=131, seed=1).replicas).any()


def settled(problem: fl.Problem, rounds=600, **options) -> Bootstrap:
    """A run that has settled, with 1,500 replicas."""
    return bootstrap(problem, fl.SCAFFLSA(0.02, 100, average_after=50), rounds, replicas=1500, **options)


# The standard deviation of 1,500 normal replicas has a relative standard error of 1/sqrt(3000): four of them, and what
# an optimisation noise of at most 20% of it adds, which stands apart from the weights: sqrt(1 + 0.2^2) - 1 = 2%.
ALLOWED = 4 / np.sqrt(3000) + 0.02


@pytest.mark.parametrize("shift", [0.0, 2.0], ids=["alike", "heterogeneous"])
@pytest.mark.parametrize("centred", [True, False], ids=["centred", "uncentred"])
def test_the_spread_is_the_sandwich_with_sites_of_unequal_size(centred, shift) -> None:
    problem = fl.problems.regression(panel((150, 400, 1200), d=3, shift=shift))
    made = settled(problem, centred=centred)
    exact = [reweighted(problem, b, centred=centred).theta_star for b in range(50)]
    assert ((made.replicas[:50] - exact).std(axis=0) < 0.2 * made.standard_error).all()
    assert np.abs(made.standard_error / sandwich(problem, centred=centred) - 1).max() < ALLOWED
    assert np.allclose(np.sqrt(np.diag(made.covariance)), made.standard_error)


def test_uncentred_errors_of_an_intercept_that_differs_between_sites_are_larger() -> None:
    for shift, least, most in ((0.0, 0.99, 1.02), (2.0, 1.5, 2.5)):
        problem = fl.problems.regression(panel((150, 400, 1200), d=3, shift=shift))
        wider = sandwich(problem, centred=False)[0] / sandwich(problem, centred=True)[0]
        assert least < wider < most


def test_blocks_bring_the_wider_error_of_an_autocorrelated_log() -> None:
    rho, n, rng = 0.8, 2000, np.random.default_rng(2)
    sites = []
    for _ in range(2):
        y = rng.standard_normal(n)
        for k in range(1, n):
            y[k] = rho * y[k - 1] + np.sqrt(1 - rho**2) * y[k]
        sites.append((np.ones((n, 1)), y))
    problem = fl.problems.regression(sites)
    single, blocked = settled(problem), settled(problem, blocks=40)
    assert abs(single.standard_error / sandwich(problem, centred=True) - 1) < ALLOWED
    assert abs(blocked.standard_error / sandwich(problem, centred=True, blocks=40) - 1) < ALLOWED
    # the mean of an AR(1) series has sqrt((1 + rho)/(1 - rho)) = 3 times the error of independent rows; blocks of 40
    # lose 2 rho / ((1 - rho^2) 40) = 11% of the variance, and 100 of them estimate its root with an error of 7%
    true = np.sqrt((1 + rho) / (1 - rho) / (2 * n))
    assert 0.94 - 3 * 0.07 < blocked.standard_error[0] / true < 0.94 + 3 * 0.07
    assert single.standard_error[0] < 0.4 * true


def test_intervals_hold_their_share_of_the_replicas_and_basic_ones_are_turned_round() -> None:
    made = bootstrap(logs(), fl.FedLSA(0.1, 5), 20, replicas=400)
    low, high = made.interval(0.9).T
    inside = ((made.replicas >= low) & (made.replicas <= high)).mean(axis=0)
    assert np.allclose(inside, 0.9, atol=0.005)
    turned_low, turned_high = made.interval(0.9, "basic").T
    assert np.allclose(turned_low + high, 2 * made.theta)
    assert np.allclose(turned_high + low, 2 * made.theta)
    with pytest.raises(ArgumentError, match="level must be"):
        made.interval(1.0)


@dataclass(frozen=True)
class Slow(fl.FedLSA):
    """A server that moves half of the way."""

    @staticmethod
    def half(theta, mean, parameters):
        theta[:] = (theta + mean) / 2

    server_step: ClassVar = half


def test_what_is_not_supported_or_unstable_is_refused_by_name() -> None:
    problem, method = logs(), fl.FedLSA(0.1, 5)
    dense = fl.problems.from_observations([([1.0], [np.eye(2)], [[1.0, 2.0]])])
    with pytest.raises(ArgumentError, match=r"rank-one observations .* from_observations"):
        bootstrap(dense, method, 5)
    with pytest.raises(ArgumentError, match="Slow, which has a server_step"):
        bootstrap(problem, Slow(0.1, 5), 5)
    with pytest.raises(ArgumentError, match=r"step_size must .* [1-9]\d* of 50 replicas diverged; got 1\.2"):
        bootstrap(fl.problems.regression([(np.ones((60, 1)), np.ones(60))]), fl.FedLSA(1.2, 60), 500, replicas=50)
    with pytest.raises(ArgumentError, match="the run itself diverged"):
        bootstrap(problem, fl.FedLSA(9.0, 50), 50)
    with pytest.raises(ArgumentError, match=r"drops all of site 0, .* 1 blocks.* got blocks=30"):
        bootstrap(problem, method, 5, blocks=30)
    assert np.isfinite(bootstrap(problem, method, 5, blocks=30, centred=False).replicas).all()
    with pytest.raises(ArgumentError, match="replicas must be"):
        bootstrap(problem, method, 5, replicas=1)
    with pytest.raises(ArgumentTypeError, match="centred must be"):
        bootstrap(problem, method, 5, centred="yes")
    with pytest.raises(ArgumentTypeError, match="algorithm must be"):
        bootstrap(problem, "fedlsa", 5)
    with pytest.raises(ArgumentError, match="theta_0 must be"):
        bootstrap(problem, method, 5, theta_0=[1.0])
    with pytest.raises(ArgumentError, match="run_seed must be"):
        bootstrap(problem, method, 5, run_seed=-1)
