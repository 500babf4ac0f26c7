"""Sums of one pass beside what NumPy says in a line about all rows at once, on kind data and on hostile ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedlsa as fl
from fedlsa.fitting import rows
from fedlsa.fitting.rows import FeatureScale, Piece
from fedlsa.fitting.sums import SiteSums, Systems

K = 3
COEFFICIENTS = np.array([1.0, -2.0, 0.5])
pytestmark = pytest.mark.filterwarnings("ignore:the run ends at:fedlsa.errors.FedLSAWarning")


def table(kind, n, seed):
    """Features (n, 3) and a target: kind, far from 0, in the order of their size, or with one row far from all."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, K))
    if kind == "far":
        x = x * [1e-3, 1.0, 1e4] + [1e5, -1e6, 1e9]
    elif kind == "sorted":
        x = np.sort(x, axis=0) + rng.standard_normal((n, K)) / 10
    elif kind == "outlier":
        x[range(K), range(K)] = 1e6
    centred = (x - x.mean(axis=0)) / x.std(axis=0)
    return x, centred @ COEFFICIENTS + rng.standard_normal(n) * (1 + centred[:, 0] ** 2) + 7


KINDS = ["kind", "far", "sorted", "outlier"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("intercept", [True, False])
def test_moments_of_pieces_give_the_system_of_standardised_rows(kind, size, intercept):
    x, y = table(kind, 200, 1)
    scale = FeatureScale(x.mean(axis=0) + 0.1 * x.std(axis=0), x.std(axis=0), 6.0, 2.0, intercept)
    found, site = SiteSums(["s", "none", "t"]), np.arange(200) % 3 // 2 * 2  # two of every three rows are of s
    for k in range(0, 200, size):
        part = np.arange(k, min(k + size, 200))
        part = part[np.argsort(site[part], kind="stable")]
        sites, starts = np.unique(site[part], return_index=True)
        here = x[part]
        found.add(here, Piece(here, here, y[part], sites, starts))
    u = np.column_stack([(x - scale.centre) / scale.spread, np.ones((200, int(intercept)))])
    z = np.column_stack([x, y])
    for c in (0, 2):
        own = site == c
        here = u[own]
        expected = Systems.of([Piece(here, here, (y[own] - 6.0) / 2.0)], ["s"], 0.0)
        with np.errstate(invalid="ignore"):  # a site without rows has no means
            made = found.systems(scale, 0.0)
        assert made.n[c] == own.sum()
        assert_allclose(made.A[c], expected.A[0], rtol=0, atol=1e-11)
        assert_allclose(made.b[c], expected.b[0], rtol=0, atol=1e-11 * np.abs(expected.b).max())
        held = found.summary(c)
        assert_allclose(held.mean, z[own].mean(axis=0), rtol=1e-11)
        assert_allclose(held.scatter, np.sum((z[own] - z[own].mean(axis=0)) ** 2, axis=0), rtol=1e-9)
        assert_allclose(held.largest, np.abs(z[own]).max(axis=0), rtol=1e-15)
    assert found.n[1] == 0
    with pytest.raises(fl.errors.SiteDataError, match="none must have at least one row; it has none"):
        found.check()


def test_sums_about_zero_are_scaled_as_their_rows_are():
    rng = np.random.default_rng(2)
    u, v, y = rng.standard_normal((50, K + 1)), rng.standard_normal((50, K + 1)), rng.standard_normal(50)
    scale = FeatureScale(np.zeros(K), np.array([0.5, 3.0, 100.0]), 0.0, 1.0, True)
    sums, piece = SiteSums(["s"]), Piece(u, v, y)
    sums.add(u[:, :K], piece)
    found, expected = sums.systems(scale, 0.0), Systems.of([piece.scaled(scale)], ["s"], 0.0)
    assert_allclose(found.A, expected.A, rtol=1e-12)
    assert_allclose(found.b, expected.b, rtol=1e-12)


def by_hand(sites, weights):
    """Slopes and their HC3 standard errors from all rows at once."""
    pooled = np.concatenate([x for x, _ in sites])
    centre, spread = pooled.mean(axis=0), pooled.std(axis=0)
    X = [np.column_stack([(x - centre) / spread, np.ones(len(y))]) for x, y in sites]
    A = sum(w * x.T @ x / len(x) for w, x in zip(weights, X, strict=True))
    theta = np.linalg.solve(A, sum(w * x.T @ y / len(y) for w, x, (_, y) in zip(weights, X, sites, strict=True)))
    inverse = np.linalg.inv(A)
    meat = np.zeros_like(A)
    for w, x, (_, y) in zip(weights, X, sites, strict=True):
        h = w / len(y) * np.einsum("ni,ij,nj->n", x, inverse, x)
        g = x * (w / len(y) * (x @ theta - y) / (1 - h))[:, None]
        meat += g.T @ g
    covariance = inverse @ meat @ inverse.T
    return theta[:K] / spread, np.sqrt(np.diag(covariance))[:K] / spread


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [13, 1000])
@pytest.mark.parametrize("memory", [1e9, 1.0])
@pytest.mark.parametrize("weight", ["sites", "samples"])
def test_a_fit_in_pieces_is_the_sandwich_of_all_rows_at_once(monkeypatch, kind, size, memory, weight):
    sites = [table(kind, n, seed) for seed, n in enumerate((150, 60, 40))]
    n = np.array([150, 60, 40])
    weights = np.full(3, 1 / 3) if weight == "sites" else n / n.sum()
    theta, error = by_hand(sites, weights)
    monkeypatch.setattr(rows, "block_rows", lambda width: size)
    settings = {"step_size": 1e-6, "local_steps": 1, "rounds": 1, "local": "means"}
    found = fl.fit(sites, fl.Regression("y"), weight=weight, memory=memory, **settings)
    assert_allclose((found.theta[:K] - theta) / error, 0, atol=1e-8)
    assert_allclose(found.standard_error[:K], error, rtol=1e-8)
