"""theta_star and xi_star of ill-conditioned systems against rational arithmetic on the numbers of the tables."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from rational import rational, solve

import fedlsa as fl
from fedlsa.errors import SingularSystemError
from fedlsa.problems.averaged_system import product, two_product

EPS = np.finfo(np.float64).eps


def table_means(problem):
    """A_bar and b_bar of each table as fractions, by their definition."""
    z, means = problem.observations, []
    for span in problem.spans():
        p = rational(problem.prob[span])
        if isinstance(z, fl.problems.RankOne):
            u, v, y = (rational(x) for x in (z.rows[z.left[span]], z.rows[z.right[span]], z.y[span]))
            A = (p[:, None] * u).T @ v + Fraction(z.ridge) * rational(np.eye(problem.dim))
            means.append((A, (p * y) @ u))
        else:
            A, b = (rational(x) for x in z.matrices(span))
            means.append((np.tensordot(p, A, 1), p @ b))
    return means


def nearly_collinear(scale, **options):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((3, 12, 3))
    X[..., 2] = X[..., 0] + scale * rng.standard_normal((3, 12))
    return fl.problems.regression([(x, rng.standard_normal(12)) for x in X], **options)


def ill_conditioned_matrices(condition):
    rng = np.random.default_rng(2)
    U, V = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
    A = U @ np.diag(np.geomspace(1, 1 / condition, 3)) @ V
    return fl.problems.from_observations(
        [([0.3, 0.7], [s * A, s * A], rng.standard_normal((2, 3))) for s in (1.0, 1.3)], weights=[0.2, 0.8]
    )


CASES = {
    "collinear features": lambda: nearly_collinear(1e-4),
    "a small penalty and weights": lambda: nearly_collinear(1e-6, ridge=1e-13, weights=[1, 2, 4.4]),
    "matrices of condition 1e8": lambda: ill_conditioned_matrices(1e8),
    "matrices of condition 1e12": lambda: ill_conditioned_matrices(1e12),
}


@pytest.mark.parametrize("name", CASES)
def test_the_solution_of_an_ill_conditioned_system_has_all_its_digits(name):
    problem = CASES[name]()
    A = np.tensordot(problem.table_weights, problem.table_A_bar, 1)
    w, means = rational(problem.table_weights), table_means(problem)
    want = solve(sum(x * A for x, (A, _) in zip(w, means, strict=True)), w @ np.stack([b for _, b in means]))
    plain, size = np.linalg.solve(A, problem.table_weights @ problem.table_b_bar), float(np.abs(want).max())
    assert np.abs(plain - want.astype(float)).max() > 1e-10 * size
    assert np.abs(problem.theta_star - want.astype(float)).max() <= EPS * size
    assert np.array_equal(fl.theory.moments(problem).theta_star, problem.theta_star)
    estimated = replace(fl.theory.moments(problem), centre=None)
    w, A_bar, b_bar = (rational(x) for x in (estimated.table_weights, estimated.A_bar, estimated.b_bar))
    want = solve(np.tensordot(w, A_bar, 1), w @ b_bar).astype(float)
    assert np.abs(estimated.theta_star - want).max() <= EPS * size


def test_control_variates_of_nearly_equal_tables_keep_their_digits():
    rng = np.random.default_rng(3)
    A = np.eye(3) + 0.2 * rng.standard_normal((3, 3)) + 1e-9 * rng.standard_normal((4, 3, 3))
    b = rng.standard_normal(3) + 1e-9 * rng.standard_normal((4, 3))
    problem = fl.problems.from_observations([([1.0], A[c : c + 1], b[c : c + 1]) for c in range(4)])
    A, b, w = rational(A), rational(b), Fraction(1, 4)
    want = (A @ solve(w * A.sum(axis=0), w * b.sum(axis=0)) - b).astype(float)
    np.testing.assert_allclose(problem.xi_star, want, rtol=0, atol=1e-14 * np.abs(want).max())
    same = fl.problems.from_observations([([1.0], [np.eye(2) / 3], [[1.0, 0.1]]) for _ in range(3)])
    assert not same.xi_star.any()


def test_a_system_that_rounding_makes_singular_is_refused():
    with pytest.raises(SingularSystemError, match=r"^the averaged matrix A_bar must be invertible .* in dimension 3$"):
        ill_conditioned_matrices(1e15)


def test_products_have_twice_the_digits():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((5, 300)) * 10.0 ** rng.integers(-3, 3, (5, 300))
    y, low = rng.standard_normal(300), 1e-17 * rng.standard_normal(300)
    top, rest = product(X, (y, low))
    want = rational(X) @ (rational(y) + rational(low))
    off = np.abs((rational(top) + rational(rest) - want).astype(float))
    assert (off <= 300 * EPS**2 * np.abs(X).max(axis=1) * np.abs(y).max()).all()
    a, b = two_product(X, X[::-1])
    assert np.array_equal(rational(a) + rational(b), rational(X) * rational(X[::-1]))
