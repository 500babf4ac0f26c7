"""Covariances: windows against their definition, a value function's scores, shares that add up."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedlsa as fl
from fedlsa.fit.covariance import (
    CovarianceKind,
    Scores,
    block_length,
    complete,
    positive,
    sandwich,
    scores,
    sum_of_meats,
)
from fedlsa.fit.lag_windows import SHARE, Bartlett, choose_window, rows_about_mean
from fedlsa.fit.observe import Piece
from fedlsa.fit.site_sums import System


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


def flat_top(M):
    return lambda h: np.clip(2 - h / M, 0, 1) if M else float(h == 0)


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
    return u, v, y, theta, g, System(n, u.T @ v / n, u.T @ y / n, n)


def values_scores(pieces, own, theta, M=0, weight=1.0):
    """Of one site of a value function, whose window is given."""
    d = len(theta)
    kind = CovarianceKind.of(fl.Value(0.9), M)
    return scores(pieces, own, weight, (np.eye(d), theta), np.eye(d), np.zeros(d), kind)


@pytest.mark.parametrize("M", [0, 1, 2, 9])
@pytest.mark.parametrize("at", [(), (1, 2, 100)])
def test_the_meat_of_values_is_the_flat_top_window_of_centred_scores(M, at):
    u, v, y, theta, g, own = made_up()
    found = values_scores(pieces_of(u, v, y, at), own, theta, M, weight=0.25)
    g0 = g - g.mean(axis=0)
    kept = rows_about_mean(len(g), M)
    assert_allclose(found.mean, g.mean(axis=0), atol=1e-13)
    assert_allclose(found.row, g0.T @ g0 / len(g), atol=1e-12)
    assert_allclose(found.meat, 0.25**2 / len(g) * by_definition(g0, flat_top(M)) / kept, atol=1e-12)
    assert found.window == M


@pytest.mark.parametrize(("n", "M"), [(2, 0), (5, 0), (8, 1), (30, 4), (60, 10)])
def test_estimates_from_white_noise_about_its_own_mean_are_unbiased(n, M):
    """E sum_ij w(i - j) g_i g_j of centred white noise is the trace of C W C, with C the matrix that centres."""
    C = np.eye(n) - 1 / n
    W = np.array([[float(flat_top(M)(abs(i - j))) for j in range(n)] for i in range(n)])
    assert np.trace(C @ W @ C) == pytest.approx(rows_about_mean(n, M), rel=1e-12)


def test_a_large_mean_score_leaves_covariances_their_digits():
    """Scores of mean 1e8 and variance 1: one pass of plain sums of squares would lose every digit."""
    n = 2000
    noise = normals(n)
    u, v, y, theta = np.ones((n, 1)), np.ones((n, 1)), noise - 1e8, np.zeros(1)
    y = np.round(y * 2**10) / 2**10
    own = System(n, np.ones((1, 1)), np.array([y.mean()]), n)
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


def test_flat_top_windows_are_nearer_the_truth_than_bartletts_and_centring_is_paid_for():
    """AR(1) with rho = 0.9: the long-run variance is 1/(1 - rho)^2 = 100; n = 1000, 200 sequences of 2."""
    M, n, runs = 30, 1000, 200
    flat, bartlett = [], []
    for seed in range(runs):
        g = ar1(n + 100, 0.9, seed=seed)[100:]
        own = System(n, np.zeros((2, 2)), -g.mean(axis=0), n)
        pieces = [Piece(g, np.zeros((n, 2)), -np.ones(n))]
        found = values_scores(pieces, own, np.zeros(2), M)
        flat.append(n * np.diag(found.meat))
        bartlett.append(n * np.diag(found.spare))
    error = np.std(flat) / np.sqrt(2 * runs)
    rest = sum(2 * 0.9**h * (1 - flat_top(M)(h)) for h in range(M, 500)) / (1 - 0.81)  # beyond the window
    assert abs(np.mean(flat) - (100 - rest)) < 4 * error
    assert np.mean(bartlett) < 90


def test_a_sum_that_is_not_positive_falls_back_to_bartletts_window():
    def site(meat):
        return Scores(10, np.zeros(2), np.eye(2), np.diag(meat), np.eye(2), 3)

    good = [site([3.0, -1.0]), site([1.0, 2.0])]  # one site alone may be indefinite
    assert [s.meat is g.meat for s, g in zip(positive(good), good, strict=True)] == [True, True]
    repaired = positive([site([3.0, -1.0]), site([1.0, 0.5])])
    assert_allclose(sandwich(2 * np.eye(2), sum_of_meats(repaired)), np.eye(2) / 2)


def test_the_fitted_coefficients_of_values_cost_degrees_of_freedom():
    kind = CovarianceKind.of(fl.Value(0.9), None)
    one = Scores(10, np.zeros(2), np.eye(2), np.eye(2), np.eye(2), 3)
    _, sites = complete(kind, [one, one], ["a", "b"], np.eye(2))
    assert_allclose(sum_of_meats(sites), 2 * np.eye(2) * 20 / 18)


def test_a_lag_longer_than_a_sixth_of_a_log_is_refused():
    log = {"state": normals(50), "next_state": normals(50), "reward": normals(50), "terminated": np.zeros(50)}
    with pytest.raises(fl.errors.ArgumentError, match=r"lag must be at most a sixth of the rows .* 50; got 9"):
        fl.fit([log], fl.Value(0.9), lag=9)


def test_finite_data_of_the_sites_add_up_to_the_covariance():
    rng = np.random.default_rng(0)
    sites = [(3.0 + rng.normal(size=(n, 3)), rng.normal(size=n)) for n in (40, 90, 200)]
    settings = {"step_size": 0.3, "local_steps": 5, "rounds": 400, "local": "means"}
    for task in (fl.Regression("y"), fl.Regression("y", intercept=False, ridge=0.1, cluster="sites")):
        for weight in ("sites", "samples"):
            found = fl.fit(sites, task, weight=weight, **settings)
            assert_allclose(sum(s.finite_data**2 for s in found.per_site), 1, rtol=1e-9)
            assert found.error["finite data"] == pytest.approx(1)


def test_blocks_of_a_bootstrap_are_long_enough_for_the_window_and_many_enough_for_the_site():
    def site(n, M):
        return Scores(n, np.zeros(1), np.eye(1), np.eye(1), np.eye(1), M)

    assert block_length([site(500, 0), site(40, 0)]) == 1
    assert block_length([site(5000, 3), site(9000, 10)]) == 40
    assert block_length([site(640, 10), site(9000, 10)]) == 20
    assert block_length([site(10, 1)]) == 1
