"""The averaged system (eq:lsa_syst_fed), which may be ill-conditioned: theta_star and xi_star with their digits.

In floating-point numbers a solution is off by eps times the condition of A, relative. So where that is more than
SOLUTION_ERROR, theta is refined: with the residual of the tables themselves, not of their rounded averages,

    r = sum_z q(z) (A(z) theta - b(z)),   q(z) = w p(z),   theta <- theta - A^{-1} r,

each step shrinks the error by eps times the condition, if r is right to about eps^2. Numbers are held as pairs, whose
sum is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import SingularSystemError

Pair = tuple[Any, Any]  # a number and what rounding left of it
EPS = float(np.finfo(np.float64).eps)
SOLUTION_ERROR = 1e-12  # relative, up to which theta_star is left as the plain solution of a linear system
LOST_DIGITS = 2  # times eps and the condition: the error of a plain solution
SUMMING_ERROR = 1e-12  # relative, of averages: tables of 1e6 outcomes leave 1e-14
MOST_AT_ONCE = 2**16  # numbers of rows that are averaged at a time: they stay in the cache


def invertible(A: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Which of the matrices (..., d, d) are invertible up to rounding, and their extreme singular values (2, ...)."""
    s = np.linalg.svd(A, compute_uv=False)
    smallest, largest = s[..., -1], s[..., 0]
    rounding = 16 * A.shape[-1] * EPS  # sums over a table leave a few units in the last place
    return np.asarray(smallest > rounding * largest), np.stack([smallest, largest])


def solution_error(A: Floats) -> float:
    """The relative error of a solution of this system by `solve_average`, at most."""
    _, (smallest, largest) = invertible(A)
    plain = LOST_DIGITS * EPS * (4 + float(largest) / max(float(smallest), 1e-300))  # averages are rounded too
    return plain if plain <= SOLUTION_ERROR else EPS


def solve_average(A: Floats, b: Floats, residual: Callable[[Pair], Pair], known: Floats | None = None) -> Floats:
    """The theta : (d,) whose residual is 0, near the solution of A theta = b, the same system up to rounding.

    known : a solution to more digits than A and b give; it is returned if it solves the system up to their rounding.
    """
    good, (smallest, largest) = invertible(A)
    if good and known is not None:
        size = largest * np.linalg.norm(known) + np.linalg.norm(b)
        if np.linalg.norm(A @ known - b) <= SUMMING_ERROR * size:
            return known
    theta, low, change = np.asarray(np.linalg.solve(A, b) if good else b, np.float64), np.zeros_like(b), np.inf
    refined, falls = LOST_DIGITS * EPS * largest <= SOLUTION_ERROR * smallest, bool(good)
    while falls and not refined:
        step = np.linalg.solve(A, sum(residual((theta, low))))
        theta, low = two_sum(theta, low - step)
        before, change = change, float(np.abs(step).max())
        refined, falls = change <= EPS * np.abs(theta).max(), change < before / 2
    if not good or not refined:
        raise SingularSystemError(
            "the averaged matrix A_bar must be invertible for theta_star to exist; "
            f"got singular values from {smallest:.3g} to {largest:.3g} in dimension {len(b)}"
        )
    return theta


def ideal_control_variates(A_bar: Floats, b_bar: Floats, weights: Floats, theta_star: Floats) -> Floats:
    """xi_star : (M, d), A_bar theta_star - b_bar of each table, with sum_m w_m xi_star_m = 0 to the last digit.

    They are taken from differences of tables, which are exact where tables are nearly equal, so that no digits are lost
    even then: xi_m - xi_n = (A_m - A_n) theta_star - (b_m - b_n), n a table with weight.
    """
    n = int(np.argmax(weights > 0))
    xi = (A_bar - A_bar[n]) @ theta_star - (b_bar - b_bar[n])
    return np.asarray(xi - weights @ xi / weights.sum(), np.float64)


def table_residual(problem: Any, theta: Pair) -> Pair:
    """The residual of a problem's averaged system, (d,), from its outcomes."""
    z, d, w = problem.observations, problem.dim, np.repeat(problem.table_weights, np.diff(problem.first))
    rows = getattr(z, "rows", None)  # of rank-one observations
    total, size = (np.zeros(d), np.zeros(d)), max(1, MOST_AT_ONCE // (d * d if rows is None else d))
    for part in (slice(start, start + size) for start in range(0, len(z), size)):
        q = two_product(w[part], problem.prob[part])
        if rows is None:
            total = plus(total, dense_residual(z.A[part], z.b[part], q, theta))
        else:
            inner = plus(product(rows[z.right[part]], theta), (-z.y[part], 0.0))
            total = plus(total, product(rows[z.left[part]].T, times(q, inner)))
    ridge = np.float64(getattr(z, "ridge", 0.0) * problem.table_weights.sum())
    return plus(total, times((ridge, 0.0), theta))


def dense_residual(A: Floats, b: Floats, q: Pair, theta: Pair) -> Pair:
    """sum_z q(z) (A(z) theta - b(z)) : (d,); A : (K, d, d), b : (K, d)."""
    inner, low = plus(product(A.reshape(-1, A.shape[-1]), theta), (-b.ravel(), 0.0))
    return plus(product(inner.reshape(b.shape).T, q), (low.reshape(b.shape).T @ q[0], 0.0))


def product(X: Floats, y: Pair) -> Pair:
    """X y : (n,), to about eps^2 of the largest numbers of a row of X and of y; X : (n, k), y : (k,)."""
    total, rest = two_product(X, y[0])
    left = rest.sum(axis=1) + X @ y[1]
    while (half := total.shape[1] // 2) > 0:  # one half of the columns is added to the other
        total[:, :half], rest = two_sum(total[:, :half], total[:, -half:])
        total, left = total[:, : total.shape[1] - half], left + rest.sum(axis=1)
    return two_sum(total[:, 0], left)


def two_sum(a: Floats, b: Floats) -> Pair:
    """a + b and its rounding error (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def two_product(a: Floats, b: Floats) -> Pair:
    """a b and its rounding error (Dekker)."""
    a1, b1 = ((shifted := 134217729.0 * x) - (shifted - x) for x in (a, b))  # 2^27 + 1: leading halves
    a2, b2, ab = a - a1, b - b1, a * b
    return ab, ((a1 * b1 - ab) + a1 * b2 + a2 * b1) + a2 * b2


def plus(a: Pair, b: Pair) -> Pair:
    """The sum of two pairs."""
    total, rest = two_sum(a[0], b[0])
    return two_sum(total, rest + (a[1] + b[1]))


def times(a: Pair, b: Pair) -> Pair:
    """The product of two pairs, entry by entry."""
    top, rest = two_product(a[0], b[0])
    return two_sum(top, rest + (a[0] * b[1] + a[1] * b[0]))
