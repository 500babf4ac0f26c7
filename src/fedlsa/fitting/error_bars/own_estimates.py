"""What the rows of one site say of its own coefficients, also where they leave some of them open."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...checks import Floats
from ..site_sums import System
from ..solutions import SINGULAR, own_solution

OPEN = 1e-8  # of the largest part of an open direction: a coefficient with less of it is determined


@dataclass(frozen=True, eq=False)
class OwnEstimate:
    """theta : (d,) with A theta = b, A : (d, d) regular; free : (d, k), directions that the rows leave open.

    For least squares A is the site's matrix and a multiple of the projection on what is open. Rows have no part in it,
    so residuals, leverages, and whatever the rows determine are as they are without it.
    """

    theta: Floats
    A: Floats
    free: Floats

    @property
    def rank(self) -> int:
        """How many coefficients, or combinations of them, the rows determine."""
        return len(self.theta) - self.free.shape[1]

    def open_in(self, T: Floats) -> np.ndarray:
        """(d,): which entries of T theta the rows leave open."""
        parts = np.abs(T @ self.free)
        return np.asarray((parts > OPEN * parts.max(axis=0, initial=0.0)).any(axis=1))


def own_estimate(s: System, least_squares: bool) -> OwnEstimate:
    """Of one site; where it is not least squares, all is open or nothing."""
    d = len(s.b)
    if not least_squares:
        theta = own_solution(s)
        return OwnEstimate(theta, s.A, np.eye(d) if np.isnan(theta).any() else np.zeros((d, 0)))
    scale = 1 / np.sqrt(np.where(np.diag(s.A) > 0, np.diag(s.A), 1.0))
    values, vectors = np.linalg.eigh(s.A * np.outer(scale, scale))
    N = vectors[:, values <= SINGULAR * max(values[-1], 0.0)]
    apart = N / scale[:, None]
    A = s.A + apart @ apart.T
    return OwnEstimate(np.asarray(np.linalg.solve(A, s.b), np.float64), A, scale[:, None] * N)
