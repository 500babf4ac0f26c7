"""From an estimate and its standard errors to intervals and p values: t quantiles, normal ones where the degrees of
freedom are infinite."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from .. import checks
from ..checks import Floats


def quantile(level: float, degrees_of_freedom: float) -> float:
    """How many standard errors an interval of `level` reaches to either side."""
    p = 0.5 + checks.real("level", level, above=0, below=1) / 2
    return float(ndtri(p) if math.isinf(degrees_of_freedom) else stdtrit(degrees_of_freedom, p))


def two_sided(t: Floats, degrees_of_freedom: float) -> Floats:
    """The p values of t statistics : (n,)."""
    below = ndtr(-abs(t)) if math.isinf(degrees_of_freedom) else stdtr(degrees_of_freedom, -abs(t))
    return np.asarray(2 * below, np.float64)


def ratio(theta: Floats, standard_error: Floats) -> Floats:
    """theta / standard_error : (n,); infinite where there is no error, NaN where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(theta / standard_error, np.float64)
