"""Confidence regions of exact curves: intervals, ellipsoids, and bands of the squared error, under the normal law.

The squared length Q of a normal vector with mean m and variances lambda along the axes of its covariance has

    P(Q <= x) = (1 / 2 pi i) int exp(phi(p)) dp,
    phi(p) = p x - log p - sum_i (log(1 + 2 lambda_i p) / 2 + m_i^2 p / (1 + 2 lambda_i p)),

right of all singularities, which are real and at most 0. The path goes through the least value p_0 of phi on p > 0, and
bends to the left as steepest descent does, p = p_0 + i y + y^2 phi''' / (6 phi''). The trapezoidal rule on it converges
geometrically; what half of its nodes find beside all of them is more than its error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaincinv, ndtri

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from . import tuning

if TYPE_CHECKING:
    import xarray as xr


def confidence(curve: xr.Dataset, level: float = 0.95) -> xr.Dataset:
    """Where theta and its squared error lie with a probability, each round for itself, if theta is normal.

    curve : of fl.theory.exact; level : the probability

    Returns a dataset over rounds: lower and upper (rounds, dim), an interval for each coordinate alone; radius, of the
    ellipsoid (theta - mean)^T covariance^+ (theta - mean) <= radius^2, for all of them together; and error_lower and
    error_upper, a band of ||theta - theta_star||^2 with equal tails. The attribute `error` estimates the numerical
    error of the probability of the bands; how nearly normal theta is, it does not say.

    >>> p = fl.problems.garnet(agents=4, states=5, features=2, seed=1)
    >>> regions = fl.theory.confidence(fl.theory.exact(p, fl.SCAFFLSA(0.1, 10), rounds=50))
    >>> bool((regions["error_lower"] <= regions["error_upper"]).all()), round(float(regions["radius"][-1]), 3)
    (True, 2.448)
    """
    import xarray as xr

    level = checks.real("level", level, above=0, below=1)
    if not isinstance(curve, xr.Dataset) or not {"covariance", "bias"} <= set(curve):
        raise ArgumentError("curve must be a dataset of fl.theory.exact with a covariance; got another one")
    mean, C = curve["mean"].values, curve["covariance"].values
    sd = np.sqrt(np.einsum("rii->ri", C))
    finite = np.isfinite(C).all((1, 2))
    rank = np.linalg.matrix_rank(np.where(finite[:, None, None], C, 0.0), hermitian=True)
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    bands, error = squared_length_quantiles(curve["bias"].values, C, tails)
    half, radius = ndtri(tails[1]) * sd, np.sqrt(2 * gammaincinv(np.maximum(rank, 1) / 2, level)) * (rank > 0)
    values = {
        "lower": (("rounds", "dim"), mean - half),
        "upper": (("rounds", "dim"), mean + half),
        "radius": ("rounds", np.where(finite, radius, np.inf)),
        "error_lower": ("rounds", bands[:, 0]),
        "error_upper": ("rounds", bands[:, 1]),
    }
    return xr.Dataset(values, coords={"rounds": curve["rounds"]}, attrs={"level": level, "error": error})


def squared_length_quantiles(mean: Floats, covariance: Floats, levels: Floats) -> tuple[Floats, float]:
    """Quantiles : (R, q) of ||w||^2, w normal with means (R, d) and covariances (R, d, d); error of their levels."""
    out, worst = np.full((len(mean), len(levels)), np.inf), 0.0
    usable = np.isfinite(covariance).all((1, 2)) & np.isfinite(mean).all(1)
    for r in np.flatnonzero(usable):
        variance, axes = np.linalg.eigh(covariance[r])
        square = (axes.T @ mean[r]) ** 2
        some = variance > tuning.VANISHED_VARIANCE * variance[-1]
        rest, size = float(square[~some].sum()), float(variance[some].sum() + square[some].sum())
        out[r] = rest
        if some.any():
            found, error = _quantiles(variance[some] / size, square[some] / size, levels)
            out[r], worst = rest + size * found, max(worst, error)
    if not worst <= tuning.LEVEL_ERROR:
        raise PrecisionError(f"levels of squared errors must be known to {tuning.LEVEL_ERROR:g}; got {worst:.1e}")
    return out, worst


def _quantiles(variance: Floats, square: Floats, levels: Floats) -> tuple[Floats, float]:
    """Where `_probability` reaches the levels : (q,), by Newton's method on normal scores; and the error of the levels.

    For Q of mean 1, within Cantelli's bounds, and that of the widest axis alone, P <= (2 x / (pi lambda))^(1/2).
    """
    spread = np.sqrt(2 * np.sum(variance**2) + 4 * variance @ square)
    low = np.maximum(1 - spread / np.sqrt(levels), levels**2 * variance[-1])
    high = 1 + spread / np.sqrt(1 - levels)
    x = np.clip(1 + ndtri(levels) * spread, low, high)
    for _ in range(tuning.QUANTILE_STEPS):
        P, density, error = _probability(variance, square, x)
        off = P - levels
        if np.abs(off).max() <= tuning.LEVEL_ROUNDING:
            break
        low, high, score = np.where(off < 0, x, low), np.where(off > 0, x, high), ndtri(np.clip(P, 1e-300, 1 - 1e-16))
        slope = density * np.sqrt(2 * np.pi) * np.exp(score**2 / 2)
        step = x - (score - ndtri(levels)) / np.where(slope > 0, slope, np.inf)
        x = np.where((step > low) & (step < high) & (slope > 0), step, np.sqrt(low * high))
    return x, float(np.abs(off).max() + error)


@np.errstate(all="ignore")
def _probability(variance: Floats, square: Floats, x: Floats) -> tuple[Floats, Floats, float]:
    """P(Q <= x), the density there : (q,), and the error of both."""
    v, s, q = variance[:, None], square[:, None], len(x)

    def slope(p: Floats) -> Floats:
        return np.asarray(x - 1 / p - np.sum(v / (1 + 2 * v * p) + s / (1 + 2 * v * p) ** 2, axis=0))

    low, high = 1 / x, 2 / x
    while (slope(high) < 0).any():
        high = np.where(slope(high) < 0, 4 * high, high)
    for _ in range(12):
        middle = np.sqrt(low * high)
        below = slope(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    p_0, t = high, 1 + 2 * v * high
    second = 1 / p_0**2 + np.sum(2 * v**2 / t**2 + 4 * s * v / t**3, axis=0)
    third = -2 / p_0**3 - np.sum(8 * v**3 / t**3 + 24 * s * v**2 / t**4, axis=0)
    h, best = tuning.PATH_STEP / np.sqrt(second), np.full((3, q), np.inf)
    for share in tuning.BENDS:  # full bends lead squares that are far from 0 into the disc where exp(phi) grows
        bend, y = share * third / (6 * second), h * np.arange(tuning.PATH_NODES)[:, None]
        p = p_0 + 1j * y + bend * y**2
        factor = 1 + 2 * variance[:, None, None] * p
        phi = p * x - np.log(p) - np.sum(np.log(factor) / 2 + square[:, None, None] * p / factor, axis=0)
        values = np.exp(phi) * (1j + 2 * bend * y) * np.stack([np.ones(p.shape), p])
        values[:, 0] /= 2
        whole, half = h / np.pi * values.imag.sum(1), 2 * h / np.pi * values[:, ::2].imag.sum(1)
        error = np.abs(whole[0] - half[0]) + len(y) * h * np.abs(values[0, -1])
        best = np.where(error < best[2], np.stack([*whole, error]), best)
        if best[2].max() <= tuning.LEVEL_ERROR / 100:
            break
    rounded = np.finfo(float).eps * float(np.max(np.abs(p_0 * x)) + np.max(p_0 * np.sum(s / t, axis=0)))
    return best[0], best[1], float(best[2].max()) + rounded
