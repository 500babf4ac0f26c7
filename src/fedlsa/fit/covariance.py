"""How far the data's solution is from the truth: the sandwich covariance from each site's scores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..checks import Floats
from .observe import Piece


@dataclass(frozen=True, eq=False)
class Scores:
    """Of one site's scores g_i = A(z_i) theta - b(z_i), i = 1 ... n.

    mean : (d,), the site's ideal control variate xi_star; row : (d, d) covariance of one score (Sigma_omega);
    long_run : (d, d) sum over lags of autocovariances, so that Cov(mean) = long_run / n; window : lags that count
    """

    n: int
    mean: Floats
    row: Floats
    long_run: Floats
    window: int


def scores(pieces: Iterable[Piece], theta: Floats, ridge: float, window: int | None, centred: bool) -> Scores:
    """Moments of a site's scores at theta; window : 0 for independent rows, None to choose it from the data."""
    n, total, square = 0, np.zeros(len(theta)), np.zeros((len(theta), len(theta)))
    for p in pieces:
        g = p.u * (p.v @ theta - p.y)[:, None] + ridge * theta
        n, total, square = n + len(g), total + g.sum(axis=0), square + g.T @ g
    mean = total / n
    row = square / n - (np.outer(mean, mean) if centred else 0.0)
    return Scores(n, mean, row, row, 0)


def sandwich(A: Floats, sites: list[Scores], weights: Floats) -> Floats:
    """Cov(theta) = A^-1 (sum_c w_c^2 long_run_c / n_c) A^-T : (d, d)."""
    S = sum(w**2 * s.long_run / s.n for w, s in zip(weights, sites, strict=True))
    left = np.linalg.solve(A, S)
    return np.asarray(np.linalg.solve(A, left.T).T, np.float64)
