"""Least squares and dense observations, against closed forms and each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlsa.errors import SingularSystemError
from fedlsa.problems import from_observations, regression


def random_sites(seed, sizes=(7, 11, 5), d=3):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(K, d)), rng.normal(size=K)) for K in sizes]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.floats(0, 2), st.lists(st.floats(0.1, 5), min_size=3, max_size=3))
def test_theta_star_is_the_weighted_ridge_estimate(seed, ridge, weights):
    sites = random_sites(seed)
    p = regression(sites, ridge, weights=weights)
    w = np.array(weights) / sum(weights)
    A = sum(wc * X.T @ X / len(X) for wc, (X, _) in zip(w, sites, strict=True)) + ridge * np.eye(3)
    b = sum(wc * X.T @ y / len(X) for wc, (X, y) in zip(w, sites, strict=True))
    np.testing.assert_allclose(p.theta_star, np.linalg.solve(A, b), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(p.weights @ p.xi_star, 0, atol=1e-10 * (1 + abs(p.theta_star).max()))
    for c, (X, y) in enumerate(sites):
        local = p.theta_star_local[c]
        gradient = X.T @ (X @ local - y) / len(X) + ridge * local
        np.testing.assert_allclose(gradient, 0, atol=1e-12 * (1 + abs(local).max()))


def test_weights_proportional_to_size_give_pooled_least_squares():
    sites = random_sites(0)
    p = regression(sites, weights=[7, 11, 5])
    X, y = (np.concatenate(part) for part in zip(*sites, strict=True))
    np.testing.assert_allclose(p.theta_star, np.linalg.lstsq(X, y, rcond=None)[0], rtol=1e-11)


def test_left_and_right_are_the_same_rows_and_order_is_kept():
    sites = random_sites(1)
    p = regression(sites)
    assert p.ordered
    assert p.observations.left is p.observations.right
    np.testing.assert_array_equal(p.observations.rows, np.concatenate([X for X, _ in sites]))


def test_a_site_without_enough_rows_has_no_solution_of_its_own_but_a_finite_control_variate():
    sites = random_sites(2, sizes=(2, 9))
    p = regression(sites)
    assert np.isnan(p.theta_star_local[0]).all()
    np.testing.assert_allclose(p.theta_star_local[1], np.linalg.lstsq(*sites[1], rcond=None)[0], rtol=1e-11)
    assert np.isfinite(p.xi_star).all()
    np.testing.assert_allclose(p.weights @ p.xi_star, 0, atol=1e-13)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_collinear_columns_are_a_singular_system_unless_there_is_a_ridge(seed):
    sites = [(np.hstack([X, X @ [[1.0], [-2], [0.5]]]), y) for X, y in random_sites(seed)]
    with pytest.raises(SingularSystemError, match="A_bar must be invertible"):
        regression(sites)
    assert np.isfinite(regression(sites, ridge=0.1).theta_star).all()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_dense_observations_of_the_same_data_are_the_same_problem(seed, ridge):
    p = regression(random_sites(seed), ridge)
    written_out = [(p.prob[s], *p.observations.matrices(s)) for s in p.spans()]
    q = from_observations(written_out)
    np.testing.assert_allclose(q.A_bar, p.A_bar, atol=1e-13)
    np.testing.assert_allclose(q.b_bar, p.b_bar, atol=1e-13)
    np.testing.assert_allclose(q.theta_star, p.theta_star, rtol=1e-8, atol=1e-10)


def test_dense_means_are_expectations():
    rng = np.random.default_rng(0)
    tables = [(rng.dirichlet(np.ones(K)), rng.normal(size=(K, 2, 2)), rng.normal(size=(K, 2))) for K in (1, 4)]
    p = from_observations(tables, assignment=[0, 1, 1], weights=[1, 2, 3])
    for c, m in enumerate([0, 1, 1]):
        prob, A, b = tables[m]
        np.testing.assert_allclose(p.A_bar[c], sum(q * a for q, a in zip(prob, A, strict=True)), atol=1e-15)
        np.testing.assert_allclose(p.b_bar[c], sum(q * x for q, x in zip(prob, b, strict=True)), atol=1e-15)
    A = (p.A_bar[0] + 5 * p.A_bar[1]) / 6
    b = (p.b_bar[0] + 5 * p.b_bar[1]) / 6
    np.testing.assert_allclose(p.theta_star, np.linalg.solve(A, b), rtol=1e-10)


def test_a_million_agents_may_share_two_sites():
    p = regression(random_sites(3, sizes=(4, 6)), assignment=np.arange(1_000_000) % 2)
    assert p.n_agents == 1_000_000
    np.testing.assert_allclose(p.theta_star, regression(random_sites(3, sizes=(4, 6))).theta_star, rtol=1e-9)
