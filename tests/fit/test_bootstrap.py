"""The multiplier bootstrap: a replica solves rows resampled one by one, and the spread of replicas is the sandwich."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import fedlsa as fl
from fedlsa.errors import ArgumentError
from fedlsa.fit import bootstrap
from fedlsa.fit.bootstrap import Bootstrap, Coins, reweighted_solutions
from fedlsa.fit.observe import Piece

Floats = NDArray[np.float64]
Site = tuple[Floats, Floats, Floats]  # u, v : (n, d) and y : (n,) of all rows of a site


def panel(sizes=(170, 190, 260), d=3, shift=0.0, seed=0) -> list[Site]:
    """Regressions of unequal size; `shift` moves each site's own intercept. Noise grows with the second feature."""
    rng = np.random.default_rng(seed)
    truth, sites = np.linspace(-1, 1, d), []
    for c, n in enumerate(sizes):
        X = rng.standard_normal((n, d))
        X[:, 0] = 1
        noise = (0.5 + np.abs(X[:, 1])) * rng.standard_normal(n)
        sites.append((X, X, X @ truth + shift * (c - 1) + noise))
    return sites


def logs() -> list[Site]:
    """TD(0) on three logs of transitions."""
    rng = np.random.default_rng(1)
    sites = []
    for n in (170, 190, 260):
        phi, after = rng.random((2, n, 4))
        sites.append((phi, phi - 0.9 * after, rng.standard_normal(n)))
    return sites


def means(sites: list[Site], weights: Floats, ridge: Floats) -> tuple[Floats, Floats]:
    """The averaged system of plain rows."""
    A = sum(w * (u.T @ v / len(y)) for w, (u, v, y) in zip(weights, sites, strict=True)) + np.diag(ridge)
    return A, sum(w * (u.T @ y / len(y)) for w, (u, _, y) in zip(weights, sites, strict=True))


def solutions(sites: list[Site], weights, ridge, piece=17, **options) -> Floats:
    """The replicas of data that come in pieces of a few rows."""

    def pieces(c):
        u, v, y = sites[c]
        for at in range(0, len(y), piece):
            yield Piece(u[at : at + piece], v[at : at + piece], y[at : at + piece])

    return reweighted_solutions(pieces, weights, ridge, means(sites, weights, ridge)[0], **options)


def row_coins(seed: int, c: int, b: int, n: int, block: int) -> NDArray[np.bool_]:
    """Which rows of site c replica b keeps, and doubles."""
    return np.repeat(Coins(seed, c, b + 1).draw(-(-n // block))[:, b], block)[:n] == 1


def resampled(sites: list[Site], weights, ridge, b: int, *, seed, block, centred) -> Floats:
    """The slow twin: write every row that the replica keeps twice, drop the others, and solve."""
    d = len(ridge)
    A, right = np.zeros((d, d)), np.zeros(d)
    for c, (w, (u, v, y)) in enumerate(zip(weights, sites, strict=True)):
        rows = np.repeat(np.flatnonzero(row_coins(seed, c, b, len(y), block)), 2)
        n = len(rows) if centred else len(y)
        for k in rows:
            A += w / n * (np.outer(u[k], v[k]) + np.diag(ridge))
            right += w / n * y[k] * u[k]
    return np.linalg.solve(A, right)


@pytest.mark.parametrize("centred", [True, False], ids=["centred", "uncentred"])
@pytest.mark.parametrize(("block", "piece"), [(1, 17), (1, 1000), (5, 17), (8, 3), (4, 4)])
@pytest.mark.parametrize("data", [panel, logs])
def test_a_replica_is_the_solution_of_rows_resampled_one_by_one(monkeypatch, data, block, piece, centred) -> None:
    monkeypatch.setattr(bootstrap, "NUMBERS", 900)  # chunks of a few rows, shorter than some pieces
    sites, weights = data(), np.array([0.2, 0.5, 0.3])
    d = sites[0][0].shape[1]
    ridge = np.append(np.full(d - 1, 0.1), 0.0)
    found = solutions(sites, weights, ridge, piece, replicas=70, seed=3, block=block, centred=centred)
    for b in (0, 1, 65):
        twin = resampled(sites, weights, ridge, b, seed=3, block=block, centred=centred)
        np.testing.assert_allclose(found[b], twin, rtol=1e-9, atol=1e-11)


def sandwich(sites: list[Site], weights, *, centred: bool, block: int = 1) -> Floats:
    """Standard errors by A^-1 S A^-T, S = sum_c w_c^2 / n_c^2 sum_j s_j s_j^T, s_j a block's sum of scores."""
    A, right = means(sites, weights, np.zeros(sites[0][0].shape[1]))
    theta, S = np.linalg.solve(A, right), np.zeros_like(A)
    for w, (u, v, y) in zip(weights, sites, strict=True):
        g = u * (v @ theta - y)[:, None]
        s = np.add.reduceat(g - g.mean(axis=0) if centred else g, np.arange(0, len(g), block))
        S += (w / len(y)) ** 2 * s.T @ s
    inverse = np.linalg.inv(A)
    return np.sqrt(np.diag(inverse @ S @ inverse.T))


# The standard deviation of 1,500 normal replicas has a relative standard error of 1/sqrt(3000): four of them, and 2%
# for what the linearised error leaves out, which is of the order 1/n with 150 rows at the smallest site.
ALLOWED = 4 / np.sqrt(3000) + 0.02


def spread(sites: list[Site], weights, **options) -> Floats:
    ridge = np.zeros(sites[0][0].shape[1])
    return solutions(sites, weights, ridge, 4000, replicas=1500, **options).std(axis=0, ddof=1)


@pytest.mark.parametrize("shift", [0.0, 2.0], ids=["alike", "heterogeneous"])
@pytest.mark.parametrize("centred", [True, False], ids=["centred", "uncentred"])
def test_the_spread_is_the_sandwich_with_sites_of_unequal_size(centred, shift) -> None:
    sites, weights = panel((150, 400, 1200), shift=shift), np.full(3, 1 / 3)
    ratio = spread(sites, weights, centred=centred) / sandwich(sites, weights, centred=centred)
    assert np.abs(ratio - 1).max() < ALLOWED


def test_uncentred_errors_of_an_intercept_that_differs_between_sites_are_larger() -> None:
    weights = np.full(3, 1 / 3)
    for shift, least, most in ((0.0, 0.99, 1.02), (2.0, 1.5, 2.5)):
        sites = panel((150, 400, 1200), shift=shift)
        wider = sandwich(sites, weights, centred=False)[0] / sandwich(sites, weights, centred=True)[0]
        assert least < wider < most


def test_blocks_bring_the_wider_error_of_an_autocorrelated_log() -> None:
    rho, n, rng = 0.8, 2000, np.random.default_rng(2)
    sites, weights = [], np.full(2, 0.5)
    for _ in range(2):
        y = rng.standard_normal(n)
        for k in range(1, n):
            y[k] = rho * y[k - 1] + np.sqrt(1 - rho**2) * y[k]
        sites.append((np.ones((n, 1)), np.ones((n, 1)), y))
    single, blocked = spread(sites, weights), spread(sites, weights, block=40)
    assert abs(single / sandwich(sites, weights, centred=True) - 1) < ALLOWED
    assert abs(blocked / sandwich(sites, weights, centred=True, block=40) - 1) < ALLOWED
    # the mean of an AR(1) series has sqrt((1 + rho)/(1 - rho)) = 3 times the error of independent rows; blocks of 40
    # lose 2 rho / ((1 - rho^2) 40) = 11% of the variance, and 100 of them estimate its root with an error of 7%
    true = np.sqrt((1 + rho) / (1 - rho) / (2 * n))
    assert 0.94 - 3 * 0.07 < blocked[0] / true < 0.94 + 3 * 0.07
    assert single[0] < 0.4 * true


def test_weights_are_fair_coins_the_same_however_they_are_drawn() -> None:
    coins = Coins(1, 0, 100).draw(1000)
    assert set(np.unique(coins)) == {0.0, 1.0}
    assert abs(2 * coins.mean() - 1) < 4 / np.sqrt(coins.size)  # variance one
    pairs = np.corrcoef(coins.T)[np.triu_indices(100, 1)]
    assert np.abs(pairs).max() < 5.5 / np.sqrt(1000)  # of 4950 independent pairs
    again = Coins(1, 0, 100)
    assert np.array_equal(coins, np.concatenate([again.draw(n) for n in (1, 0, 399, 600)]))
    assert np.array_equal(coins[:, :70], Coins(1, 0, 70).draw(1000))
    for seed, site in ((2, 0), (1, 1)):
        assert 0.45 < (coins == Coins(seed, site, 100).draw(1000)).mean() < 0.55


def as_arrays(sites: list[Site]) -> list[tuple[Floats, Floats]]:
    return [(u[:, 1:], y) for u, _, y in sites]  # the first column is the intercept's


RUN = {"step_size": 0.05, "local_steps": 4, "rounds": 3}  # far from the solution, which the bootstrap does not see


def test_a_fit_has_replicas_of_the_datas_solution_whatever_its_run_is() -> None:
    sites, task = as_arrays(panel()), fl.Regression("y")
    with pytest.warns(fl.errors.FedLSAWarning, match="standard errors from the data's solution"):
        coarse = fl.fit(sites, task, **RUN, local="rows", bootstrap=50)
    for options in ({"local": "means"}, {"local": "log", "epsilon": 0.2}, {"memory": 1}, {"method": "fedlsa"}):
        other = fl.fit(sites, task, bootstrap=50, **options)
        np.testing.assert_allclose(other.bootstrap.replicas, coarse.bootstrap.replicas, rtol=1e-9, atol=1e-11)
    assert np.array_equal(coarse.bootstrap.theta, coarse.theta)
    more = fl.fit(sites, task, local="means", bootstrap=131).bootstrap.replicas
    np.testing.assert_allclose(more[:50], coarse.bootstrap.replicas, rtol=1e-9, atol=1e-11)
    assert not np.isclose(fl.fit(sites, task, bootstrap=50, seed=1).bootstrap.replicas, more[:50]).any()


def test_replicas_are_on_the_original_scale() -> None:
    sites = [(20 + 7 * x, 30 * y) for x, y in as_arrays(panel())]
    run = {"step_size": 1e-4, "local_steps": 1, "rounds": 1, "local": "means"}  # on which replicas do not depend
    kinds = [fl.fit(sites, fl.Regression("y", standardise=s), bootstrap=20, **run) for s in (True, False)]
    np.testing.assert_allclose(*(k.bootstrap.replicas for k in kinds), rtol=1e-6)


def test_the_bootstrap_of_a_fit_agrees_with_its_standard_errors_on_rows_and_on_logs() -> None:
    fit = fl.fit(as_arrays(panel((150, 400, 1200))), fl.Regression("y"), local="means", bootstrap=1500)
    assert np.abs(fit.bootstrap.standard_error / fit.standard_error - 1).max() < ALLOWED
    rng = np.random.default_rng(3)
    tables = []
    for _ in range(3):
        x = np.zeros((1001, 2))
        for k in range(1000):
            x[k + 1] = 0.7 * x[k] + rng.normal(size=2)
        reward = x[:-1] @ [1, 2] + rng.normal(size=1000)  # the second state is not seen, so TD errors are correlated
        tables.append((x[:-1, :1], reward, x[1:, :1], np.zeros(1000)))
    fit = fl.fit(tables, fl.Value(0.8), local="means", bootstrap=1500)
    assert min(s.window for s in fit.per_site) > 0  # the rows are correlated, and blocks are longer than one row
    # Bartlett's window of blocks against the flat-top one of the sandwich: 0.92 to 0.93 in docs/error-bars.md
    assert np.abs(fit.bootstrap.standard_error / fit.standard_error - 0.93).max() < 0.1


def test_intervals_hold_their_share_of_the_replicas_and_basic_ones_are_turned_round() -> None:
    sites, weights = logs(), np.full(3, 1 / 3)
    A, right = means(sites, weights, np.zeros(4))
    made = Bootstrap(np.linalg.solve(A, right), solutions(sites, weights, np.zeros(4), replicas=400))
    assert np.allclose(np.sqrt(np.diag(made.covariance)), made.standard_error)
    low, high = made.interval(0.9).T
    inside = ((made.replicas >= low) & (made.replicas <= high)).mean(axis=0)
    assert np.allclose(inside, 0.9, atol=0.005)
    turned_low, turned_high = made.interval(0.9, "basic").T
    assert np.allclose(turned_low + high, 2 * made.theta)
    assert np.allclose(turned_high + low, 2 * made.theta)
    with pytest.raises(ArgumentError, match="level must be"):
        made.interval(1.0)


def test_what_a_replica_cannot_do_without_is_refused_by_name() -> None:
    sites, weights = panel((30, 90)), np.full(2, 0.5)
    with pytest.raises(ArgumentError, match=r"drops all of site 0, .* 1 blocks.* got blocks of 30"):
        solutions(sites, weights, np.zeros(3), replicas=64, block=30)
    uncentred = solutions(sites, weights, np.zeros(3), replicas=8, block=30, centred=False)
    assert np.isfinite(uncentred).all()
    rare = np.zeros(120)
    rare[5] = 1  # a dummy for a single row, which half of the replicas drop
    x = np.column_stack([np.random.default_rng(0).normal(size=(120, 2)), rare])
    with pytest.raises(ArgumentError, match="every replica must determine all coefficients"):
        fl.fit([(x, x @ np.ones(3) + np.sin(np.arange(120)))], fl.Regression("y"), local="means", bootstrap=50)
