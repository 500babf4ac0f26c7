"""From an estimate and its covariance to intervals, p values and predictions, by t quantiles (normal ones where the
degrees of freedom are infinite)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from .. import checks
from ..checks import Floats
from ..formatting import Displayed
from ..frozen import ReadOnly

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Displayed, ReadOnly):
    """A model at n points with error bars, each (n,).

    value : of the model
    standard_error : of the value, because data are finite
    low, high : ends of an interval that covers the true model's value with the probability that was asked for
    observation_low, observation_high : the same for one new observation, which has noise of its own; NaN for a value
        function
    """

    value: Floats
    standard_error: Floats
    low: Floats
    high: Floats
    observation_low: Floats
    observation_high: Floats

    def to_frame(self) -> pd.DataFrame:
        """A pandas table with a row for each point."""
        import pandas as pd

        return pd.DataFrame({f.name: getattr(self, f.name) for f in fields(self)})


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


def predicted(
    x: Floats, offset: Floats | float, theta: Floats, covariance: Floats, noise: float, reach: float
) -> Prediction:
    """The model at rows x : (n, d), `reach` standard errors to either side; noise : the variance of an observation."""
    variance = np.maximum(np.einsum("ni,ij,nj->n", x, covariance, x), 0.0)
    v, wide = x @ theta + offset, reach * np.sqrt(variance + noise)
    error = np.sqrt(variance)
    return Prediction(v, error, v - reach * error, v + reach * error, v - wide, v + wide)


def table_of(names: tuple[str, ...], columns: dict[str, Any]) -> pd.DataFrame:
    """A pandas table with a row for each coefficient."""
    import pandas as pd

    return pd.DataFrame(columns, index=pd.Index(names, name="coefficient"))
