"""Error bars from replicas: what the estimate would have been on other data (replicas.py)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from ... import checks
from ...checks import Floats
from ...formatting import Displayed
from ...frozen import ReadOnly
from ...small_pictures import Strip, strips


@dataclass(frozen=True, eq=False, repr=False)
class Bootstrap(Displayed, ReadOnly):
    """An estimate and what it would have been on other data.

    theta : (d,) the data's solution
    replicas : (B, d) the solutions of reweighted data
    kind : what varies, in words, such as "pairs" or "wild, 40 clusters"
    degrees_of_freedom : of t quantiles, as of the fit
    """

    theta: Floats
    replicas: Floats
    kind: str = "pairs"
    degrees_of_freedom: float = np.inf

    def _picture(self) -> str:
        rows = [Strip(f"theta[{j}]", float(v), None, self.replicas[:, j]) for j, v in enumerate(self.theta)]
        return strips(rows, "bars: the estimate; dots: its replicas; each row on its own scale")

    @property
    def covariance(self) -> Floats:
        """(d, d): of the replicas about their mean."""
        return np.atleast_2d(np.cov(self.replicas, rowvar=False))

    @property
    def standard_error(self) -> Floats:
        """(d,): the standard deviation of the replicas."""
        return np.asarray(self.replicas.std(axis=0, ddof=1), np.float64)

    def interval(self, level: float = 0.95, kind: str | None = None) -> Floats:
        """(d, 2): lower and upper ends for each coordinate, which cover the truth with probability `level`.

        kind : "percentile", the quantiles q of the replicas, the default of pairs and clusters; "normal", theta and on
            both sides t quantiles of the replicas' standard error, of blocks and signs; or "basic", 2 theta - q
        """
        level = checks.real("level", level, above=0, below=1)
        kind = kind or ("normal" if self.kind.startswith(("wild", "blocks")) else "percentile")
        checks.choice("kind", kind, ("normal", "percentile", "basic"))
        if kind == "normal":
            reach = stdtrit(self.degrees_of_freedom, (1 + level) / 2) * self.standard_error
            return np.stack([self.theta - reach, self.theta + reach], axis=1)
        low, high = np.quantile(self.replicas, [(1 - level) / 2, (1 + level) / 2], axis=0)
        if kind == "basic":
            low, high = 2 * self.theta - high, 2 * self.theta - low
        return np.stack([low, high], axis=1)
