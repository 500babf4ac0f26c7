"""Sums of one pass beside what NumPy says in a line about all rows at once, on kind data and on hostile ones."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from numpy.testing import assert_allclose

import fedlsa as fl
from fedlsa.fitting.rows import observe
from fedlsa.fitting.rows.observe import FeatureScale, Piece
from fedlsa.fitting.site_sums import CrossMoments, Summary, SystemSums

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
@pytest.mark.parametrize("rows", [1, 7, 1000])
@pytest.mark.parametrize("intercept", [True, False])
def test_moments_of_pieces_give_the_system_of_standardised_rows(kind, rows, intercept):
    x, y = table(kind, 200, 1)
    scale = FeatureScale(x.mean(axis=0) + 0.1 * x.std(axis=0), x.std(axis=0), 6.0, 2.0, intercept)
    found = reduce(add, (CrossMoments.of(x[k : k + rows], y[k : k + rows]) for k in range(0, 200, rows)))
    u = np.column_stack([(x - scale.centre) / scale.spread, np.ones((200, int(intercept)))])
    expected = SystemSums.of(Piece(u, u, (y - 6.0) / 2.0))
    sums = found.in_scale(scale)
    assert sums.n == 200
    assert_allclose(sums.A, expected.A, rtol=0, atol=1e-11 * 200)
    assert_allclose(sums.b, expected.b, rtol=0, atol=1e-11 * np.abs(expected.b).max())
    whole = Summary.of(x, y)
    for name in ("mean", "scatter", "largest"):
        assert_allclose(getattr(found.summary, name), getattr(whole, name), rtol=1e-11)


def test_sums_about_zero_are_scaled_as_their_rows_are():
    rng = np.random.default_rng(2)
    u, v, y = rng.standard_normal((50, K + 1)), rng.standard_normal((50, K + 1)), rng.standard_normal(50)
    scale = FeatureScale(np.zeros(K), np.array([0.5, 3.0, 100.0]), 0.0, 1.0, True)
    found, expected = SystemSums.of(Piece(u, v, y)).in_scale(scale), SystemSums.of(Piece(u, v, y).scaled(scale))
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
@pytest.mark.parametrize("rows", [13, 1000])
@pytest.mark.parametrize("memory", [1e9, 1.0])
@pytest.mark.parametrize("weight", ["sites", "samples"])
def test_a_fit_in_pieces_is_the_sandwich_of_all_rows_at_once(monkeypatch, kind, rows, memory, weight):
    sites = [table(kind, n, seed) for seed, n in enumerate((150, 60, 40))]
    n = np.array([150, 60, 40])
    weights = np.full(3, 1 / 3) if weight == "sites" else n / n.sum()
    theta, error = by_hand(sites, weights)
    monkeypatch.setattr(observe, "_rows", lambda task, columns: rows)
    settings = {"step_size": 1e-6, "local_steps": 1, "rounds": 1, "local": "means"}
    found = fl.fit(sites, fl.Regression("y"), weight=weight, memory=memory, **settings)
    assert_allclose((found.theta[:K] - theta) / error, 0, atol=1e-8)
    assert_allclose(found.standard_error[:K], error, rtol=1e-8)
