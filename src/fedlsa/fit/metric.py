"""Lengths in standard errors, so that the units of columns play no part.

With Sigma the covariance of the estimate, a difference delta of d coefficients has the length

    sqrt(delta^T Sigma^-1 delta / d),

the same in every unit of every column, and under every linear change of coordinates: 1 for a difference as large as
the estimate's own error. No single coefficient is off by more than sqrt(d) lengths, in its own standard errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..checks import Floats

NONE = 1e-12  # of the largest eigenvalue of the correlation matrix, or of the solution's size: a rounding error
EQUAL = 1e-9  # of the solution's size: differences below it, in directions without any error, are none


@dataclass(frozen=True, eq=False)
class Metric:
    """whiten : (k, d) with whiten Sigma whiten^T = I; exact : (d - k, d), combinations of coefficients without error
    of their own (data without noise), where every difference beyond `none` is infinitely many standard errors."""

    whiten: Floats
    exact: Floats
    none: float

    def length(self, delta: Floats) -> float:
        """Of one difference : (d,); NaN where it is not known."""
        if np.isnan(delta).any():
            return math.nan
        if len(self.exact) and np.abs(self.exact @ delta).max() > self.none:
            return math.inf
        return float(np.linalg.norm(self.whiten @ delta)) / math.sqrt(len(delta))

    def spread(self, covariance: Floats) -> float:
        """The root mean squared length of a difference with mean 0 and this covariance : (d, d)."""
        if len(self.exact) and np.abs(self.exact @ covariance @ self.exact.T).max() > self.none**2:
            return math.inf
        inside = float(np.einsum("ki,ij,kj->", self.whiten, covariance, self.whiten))
        return math.sqrt(max(inside, 0.0) / len(covariance))

    def largest_spread(self, variance: float) -> float:
        """The largest `spread` of a covariance with this trace."""
        if variance == 0:
            return 0.0
        return math.inf if len(self.exact) else math.sqrt(variance / self.whiten.shape[1]) * self.stretch

    @property
    def stretch(self) -> float:
        """The most by which a direction is stretched: 1 / sqrt(smallest eigenvalue of Sigma); inf where it is 0."""
        return math.inf if len(self.exact) else float(np.linalg.norm(self.whiten, 2))


def metric_of(covariance: Floats, theta: Floats) -> Metric:
    """The metric of an estimate theta : (d,) with a covariance : (d, d)."""
    size = float(np.linalg.norm(theta))
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.where(error > NONE * size, error, 1.0)  # to a correlation matrix: then units play no part
    correlation = np.where(np.outer(error > NONE * size, error > NONE * size), covariance / np.outer(scale, scale), 0.0)
    values, directions = np.linalg.eigh(correlation)
    kept = values > NONE * max(values[-1], 0.0) if values[-1] > 0 else np.zeros(len(values), np.bool_)
    whiten = (directions[:, kept] / np.sqrt(values[kept])).T / scale
    return Metric(whiten, directions[:, ~kept].T, EQUAL * size)
