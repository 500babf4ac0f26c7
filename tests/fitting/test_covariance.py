"""Covariances: windows against their definition, a value function's scores, shares that add up."""

from dataclasses import replace
from types import SimpleNamespace as Plain

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedlsa as fl
from fedlsa.fitting.covariance import _pooled_freedom, join_scores
from fedlsa.fitting.error_sources import choose_block
from fedlsa.fitting.rows import Piece
from fedlsa.fitting.scores import (
    SHARE,
    Bartlett,
    LogCosines,
    ScorePass,
    SharedSolution,
    SlowCosines,
    choose_window,
    cosine_count,
)
from fedlsa.fitting.sums import Systems
from fedlsa.fitting.tasks import CovarianceKind


def normals(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def by_definition(g, weight):
    """sum_h weight(h) sum_i g_i g_{i+h}^T, lag by lag."""
    n = len(g)
    out = np.zeros((g.shape[1], g.shape[1]))
    for h in range(-n + 1, n):
        a, b = g[max(0, -h) : n - max(0, h)], g[max(0, h) : n + min(0, h)]
        out += weight(abs(h)) * a.T @ b
    return out


def cosines(n, count):
    """(count, n): of j = 1 ... count half waves, of length 1 each."""
    return np.sqrt(2 / n) * np.cos(np.pi / n * np.outer(np.arange(1, count + 1), np.arange(n) + 0.5))


def cut(g, at):
    return np.split(g, at)


@pytest.mark.parametrize("lags", [1, 2, 7, 40, 100])
@pytest.mark.parametrize("at", [[], [1], [3, 4, 50], list(range(1, 60))])
def test_block_sums_are_bartletts_window_however_rows_come(lags, at):
    g = normals(60, 3)
    sums = Bartlett(lags, 3)
    for piece in cut(g, at):
        sums.add(piece)
    assert_allclose(sums.total(), by_definition(g, lambda h: max(0, 1 - h / lags)), atol=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 5000])
def test_block_sums_do_not_depend_on_the_length_of_pieces(rows):
    g = normals(5000, 1)
    sums = Bartlett(3, 1)
    for start in range(0, len(g), rows):
        sums.add(g[start : start + rows])
    x = g[:, 0]
    expected = x @ x + 2 * (2 / 3 * x[1:] @ x[:-1] + 1 / 3 * x[2:] @ x[:-2])
    assert_allclose(sums.total()[0, 0], expected, rtol=1e-10)


def pieces_of(u, v, y, at=()):
    return [Piece(*parts) for parts in zip(cut(u, at), cut(v, at), cut(y, at), strict=True)]


def made_up(n=240, d=3):
    u, v, y, theta = normals(n, d), normals(n, d, seed=1), normals(n, seed=2), normals(d, seed=3)
    g = u * (v @ theta - y)[:, None]
    return u, v, y, theta, g, system(n, u.T @ v / n, u.T @ y / n)


def system(n, A, b):
    """The mean system of one site."""
    return Systems(np.array([n]), A[None], b[None], np.array([float(n)]))


def values_pass(pieces, own, theta, M=0, weight=1.0, start=0):
    """Of one site of a value function, whose window is given."""
    kind = CovarianceKind.of(fl.Value(0.9), None, None, M)
    one, d = np.eye(len(theta)), len(theta)
    of = SharedSolution(kind, one, theta, one, np.zeros(d))
    return ScorePass(of, start, own, np.array([weight])).run(pieces)


def values_scores(pieces, own, theta, M=0, weight=1.0):
    """The same, joined with no other; the meat without its factor n / (n - d)."""
    one = values_pass(pieces, own, theta, M, weight)
    s = join_scores([one], ["s"])
    n, d = int(own.n[0]), len(theta)
    about = {"window": s.window[0], "degrees": s.degrees[0], "skewness": s.skewness}
    return Plain(mean=s.mean[0], row=s.row[0], meat=s.meat * (n - d) / n, **about)


@pytest.mark.parametrize("M", [1, 2, 9, 30])
@pytest.mark.parametrize("at", [(), (1, 2, 100)])
def test_the_meat_of_values_is_the_mean_square_of_slow_cosine_sums_of_blocks_without_their_leverage(M, at):
    u, v, y, theta, g, own = made_up()
    found = values_scores(pieces_of(u, v, y, at), own, theta, M, weight=0.25)
    n, count = len(g), cosine_count(len(g), M)
    assert count == {1: 15, 2: 15, 9: 4, 30: 1}[M]
    rows = np.split(np.arange(n), 2 * count)
    S = [(g - g.mean(axis=0))[r].sum(axis=0) for r in rows]
    parts = [0.25 / n * (u[r].T @ v[r] - len(r) * own.A[0]) for r in rows]
    blocks = np.stack([s + A @ s for s, A in zip(S, parts, strict=True)])  # A of all sites is the identity
    Z = cosines(2 * count, count) @ blocks
    assert_allclose(found.mean, g.mean(axis=0), atol=1e-13)
    assert_allclose(found.meat, (0.25 / n) ** 2 * 2 * Z.T @ Z, atol=1e-12)
    assert (found.window, found.degrees) == (M, count)
    squares, cubes = (np.sum((0.25 / n * blocks) ** p, axis=0) for p in (2, 3))
    assert_allclose(found.skewness, cubes / squares**1.5, atol=1e-12)


def test_a_block_puts_into_the_cosines_what_the_solution_without_it_is_off_by():
    """To second order in its share of the rows."""
    n, d = 4000, 3
    u, v, y = normals(n, d), normals(n, d, seed=1) + 2 * normals(n, d), normals(n, seed=2)
    A, b = u.T @ v / n, u.T @ y / n
    theta = np.linalg.solve(A, b)
    g = u * (v @ theta - y)[:, None]
    sums = LogCosines(n, cosine_count(n, 100), A, np.linalg.inv(A) / n)
    for rows in np.split(np.arange(n), (7, 700, 2500)):
        sums.add_rows(g[rows], u[rows], v[rows])
    blocks = np.arange(n) // sums.block
    for block, seen in enumerate(np.linalg.solve(A, sums.sums.T).T / n):
        own = blocks == block
        off = np.linalg.solve(u[~own].T @ v[~own], u[~own].T @ y[~own]) - theta
        off *= 1 - own.mean()  # the rows that are left count for all
        first_order = np.linalg.solve(A, u[own].T @ (v[own] @ theta - y[own])) / n
        assert np.linalg.norm(seen - off) < 0.15 * np.linalg.norm(first_order - off)


def test_skewness_costs_degrees_of_freedom():
    x = normals(30, 1)
    fit = fl.fit([(x, normals(30, seed=1))], fl.Regression("y"), plan=False)

    def degrees(df, *squares):
        return [replace(fit, degrees_of_freedom=df, skewness=np.full(2, g**0.5)).degrees_of([1, 0])[0] for g in squares]

    assert_allclose(degrees(20.0, 0.0, 0.003, 0.05 + 1.5 / 400, 1.0), [20, 20, 4, 3])
    assert_allclose(degrees(np.inf, 0.0, 1 / 40), [np.inf, 10])
    assert_allclose(degrees(2.0, 0.9), [2])


@pytest.mark.parametrize("at", [(), (1, 2, 100)])
def test_independent_scores_of_values_have_their_sample_covariance(at):
    u, v, y, theta, g, own = made_up()
    found = values_scores(pieces_of(u, v, y, at), own, theta, 0, weight=0.25)
    g0 = g - g.mean(axis=0)
    assert_allclose(found.row, g0.T @ g0 / len(g), atol=1e-12)
    assert_allclose(found.meat, 0.25**2 / len(g) * np.cov(g.T), atol=1e-12)
    assert found.degrees == len(g) - 1


@pytest.mark.parametrize(("n", "count"), [(2, 1), (5, 1), (8, 3), (60, 10)])
def test_cosine_sums_of_white_noise_are_unbiased_and_constants_do_not_enter(n, count):
    """Of the n rows of the identity: E g^T total g = trace(total) for white noise g."""
    sums = SlowCosines(n, count, n)
    sums.add(np.eye(n))
    assert np.trace(sums.total()) == pytest.approx(n, rel=1e-12)
    assert_allclose(sums.total() @ np.ones(n), 0, atol=1e-12)


@pytest.mark.parametrize("at", [[], [1], [63, 64, 65, 400], list(range(1, 1000))])
def test_long_logs_are_seen_as_sums_of_blocks_however_rows_come(at):
    g = normals(1000, 2)
    sums = SlowCosines(1000, 5, 2, 128)
    for piece in cut(g, at):
        sums.add(piece)
    blocks = np.add.reduceat(g, np.arange(0, 1000, 8))
    Z = cosines(125, 5) @ blocks
    assert_allclose(sums.total(), 125 / 5 * Z.T @ Z, atol=1e-10)
    Z = cosines(1000, 5) @ g
    assert_allclose(sums.total(), 1000 / 5 * Z.T @ Z, rtol=0.05, atol=5)  # hardly another number
    assert cosine_count(10**9, 0) == 1024


def test_a_large_mean_score_leaves_covariances_their_digits():
    """Scores of mean 1e8 and variance 1: one pass of plain sums of squares would lose every digit."""
    n = 2000
    noise = normals(n)
    u, v, y, theta = np.ones((n, 1)), np.ones((n, 1)), noise - 1e8, np.zeros(1)
    y = np.round(y * 2**10) / 2**10
    own = system(n, np.ones((1, 1)), np.array([y.mean()]))
    found = values_scores(pieces_of(u, v, y), own, theta)
    assert found.row[0, 0] == pytest.approx(np.var(y), rel=1e-6)


def ar1(n, rho, d=2, seed=0):
    e = normals(n, d, seed=seed)
    for i in range(1, n):
        e[i] += rho * e[i - 1]
    return e


def test_the_window_of_independent_rows_is_short_and_that_of_correlated_rows_long_enough():
    for seed in range(10):
        assert choose_window(normals(3000, 4, seed=seed)) <= 5
    assert np.median([choose_window(normals(3000, 4, seed=s)) for s in range(40)]) == 0
    for rho in (0.5, 0.9, 0.95):
        found = np.median([choose_window(ar1(5000, rho, seed=s)) for s in range(10)])
        assert rho**found < 0.2  # what lies beyond the full lags
        assert found < 12 / (1 - rho)


def test_the_window_of_a_periodic_chain_goes_beyond_the_lags_at_which_it_happens_to_be_zero():
    wave = np.cos(np.pi / 2 * np.arange(4000))[:, None] + 0.1 * normals(4000, 1)
    assert choose_window(wave) == 4000 // SHARE


def test_scores_that_are_all_zero_and_tiny_sites_have_no_window():
    assert choose_window(np.zeros((100, 2))) == 0
    assert choose_window(np.ones((3, 2))) == 0


@pytest.mark.long
def test_slow_cosines_see_the_spectrum_of_correlated_rows_where_it_is_nearly_flat():
    """AR(1) with rho = 0.9: the long-run variance is 1/(1 - rho)^2 = 100; n = 1000, 200 sequences of 2."""
    M, n, runs = 30, 1000, 200
    found = []
    for seed in range(runs):
        g = ar1(n + 100, 0.9, seed=seed)[100:]
        own = system(n, np.zeros((2, 2)), -g.mean(axis=0))
        found.append(n * np.diag(values_scores([Piece(g, np.zeros((n, 2)), -np.ones(n))], own, np.zeros(2), M).meat))
    waves = np.pi / n * np.arange(1, cosine_count(n, M) + 1)
    expected = np.mean(1 / (1 - 2 * 0.9 * np.cos(waves) + 0.9**2))
    assert expected > 95
    assert abs(np.mean(found) - expected) < 4 * np.std(found) / np.sqrt(2 * runs)


def test_degrees_of_freedom_of_sites_add_up_by_their_shares():
    def freedom(sizes, degrees, most=198):
        return _pooled_freedom(np.array(sizes)[:, None, None] * np.diag([1.0, 1e6]), np.array(degrees, float), most)

    assert freedom([1.0, 1.0], [7, 7]) == pytest.approx(14)
    assert freedom([1.0, 1e-9], [7, 3]) == pytest.approx(7, rel=1e-6)
    assert freedom([3.0, 1.0], [4, 8]) == pytest.approx(1 / (9 / 64 + 1 / 128))
    assert freedom([0.0], [4]) == 198  # no noise
    assert freedom([1.0, 1.0], [7, 7], most=6) == 6


def test_the_fitted_coefficients_of_values_cost_degrees_of_freedom():
    u, v, y, theta, _, own = made_up(n=10, d=2)
    passes = [values_pass(pieces_of(u, v, y), own, theta, M=1, start=c) for c in range(2)]
    s = join_scores(passes, ["a", "b"])
    assert_allclose(s.meat, 2 * passes[0].sums.meats()[0] / 10**2 * 20 / 18)  # a row is a tenth of its site


def test_a_lag_longer_than_a_sixth_of_a_log_is_refused():
    log = {"state": normals(50), "next_state": normals(50), "reward": normals(50), "terminated": np.zeros(50)}
    with pytest.raises(fl.errors.ArgumentError, match=r"lag must be at most a sixth of the rows .* 50; got 9"):
        fl.fit([log], fl.Value(0.9), lag=9)


def test_a_log_too_short_to_show_its_correlations_is_said_to_be():
    log = {"state": [0.1, 0.5, -0.3, 0.2, 0.9], "next_state": [0.5, -0.3, 0.2, 0.9, 0.4], "reward": [1, 2, 0, 1, 1]}
    log |= {"terminated": np.zeros(5)}
    with pytest.warns(fl.errors.FedLSAWarning, match="1 of 1 sites .* logs too short to see how far apart rows are"):
        fl.fit([log], fl.Value(0.5), plan=False)


def test_finite_data_of_the_sites_add_up_to_the_covariance():
    rng = np.random.default_rng(0)
    sites = [(3.0 + rng.normal(size=(n, 3)), rng.normal(size=n)) for n in (40, 90, 200)]
    settings = {"step_size": 0.3, "local_steps": 5, "rounds": 400, "local": "means"}
    for task, cluster in ((fl.Regression("y"), None), (fl.Regression("y", intercept=False, ridge=0.1), "sites")):
        for weight in ("sites", "samples"):
            found = fl.fit(sites, task, weight=weight, cluster=cluster, **settings)
            assert_allclose(sum(s.finite_data**2 for s in found.per_site), 1, rtol=1e-9)
            assert found.error["finite data"] == pytest.approx(1)


def test_a_combination_without_error_that_a_ridge_alone_determines_is_no_error_without_end():
    rng = np.random.default_rng(2)
    sites = []
    for c in range(8):
        x = 3.0 * c + rng.normal(size=(30, 2))
        sites.append((np.column_stack([x, -1.7 * x[:, 0]]), x @ [1.0, 2.0] + rng.normal(size=30)))
    found = fl.fit(sites, fl.Regression("y", ridge=0.3, own="intercept"), plan=False)
    assert found.error["finite data"] == pytest.approx(np.sqrt(2 / 3))  # two of three combinations have errors
    assert sum(s.finite_data**2 for s in found.per_site) == pytest.approx(2 / 3)


def test_blocks_of_a_bootstrap_are_long_enough_for_the_window_and_many_enough_for_the_site():
    def block(*sites):
        n, window = np.array(sites).T
        kind = CovarianceKind.of(fl.Value(0.9), None, None, None)
        return choose_block(None, kind, Plain(systems=Plain(n=n), window=window, clusters=0), 1)

    assert block((500, 0), (40, 0)) == 1
    assert block((5000, 3), (9000, 10)) == 40
    assert block((640, 10), (9000, 10)) == 20
    assert block((10, 1)) == 1
