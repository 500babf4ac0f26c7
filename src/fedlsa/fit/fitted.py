"""What a fit gives back: coefficients with error bars, what they cost, and how each site stands to the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from .. import checks
from ..checks import Floats
from ..formatting import Displayed, call, counted
from ..frozen import ReadOnly
from ..problems import features as maps
from ..small_pictures import Strip, strips
from ..theory.planner import Plan
from .arrays import by_name, has_names
from .bootstrap import Bootstrap
from .models import read_model, write_model
from .one_message import Baseline
from .tasks import Regression, Task

SHOWN = 20  # coefficients in a repr, which is to fit on a screen


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Displayed, ReadOnly):
    """Values of n points with their error bars, each (n,); it unpacks in this order.

    value : of the model; standard_error : of the value, because data are finite
    low, high : ends of an interval that covers the true model's value with the probability that was asked for
    """

    value: Floats
    standard_error: Floats
    low: Floats
    high: Floats

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.value, self.standard_error, self.low, self.high))


@dataclass(frozen=True, eq=False, repr=False)
class SiteReport(Displayed, ReadOnly):
    """How one site stands to the shared answer.

    Lengths are in standard errors of the shared answer (error_sources.py), whatever the units of the columns.

    name : of the site
    rows : of its data
    weight : with which it counts
    theta : (d,) its own solution, on the original scale; NaN where its data leave it open
    distance : of its own solution from the shared one
    influence : how far it draws the shared answer its way, ||w_c A^-1 xi_star_c||, which is what drift is made of
    noise : root mean squared error that its draws put into the run, at most
    finite_data : root mean squared error that its finite data put into theta
    window : rows over which its scores were taken to be correlated
    """

    name: str
    rows: int
    weight: float
    theta: Floats
    distance: float
    influence: float
    noise: float
    finite_data: float
    window: int


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Displayed, ReadOnly):
    """A shared linear model estimated from the data of all sites, on the original scale of the columns.

    task : what was estimated
    names : of the coefficients
    theta : (d,) coefficients of `names`: the data's own solution, found on this machine, where all the data are
    covariance : (d, d) of theta about the truth, because data are finite
    protocol : (d,) where the run ended: the answer that sites would have got by communicating as planned
    optimisation : (d,) root mean squared distance of protocol from theta, at most, as exact theory says (or as it came
        out). An interval about `protocol` is wider for it: sqrt(covariance[j, j] + optimisation[j]**2)
    error : root mean squared errors of protocol by origin, in standard errors of theta: "start" (what is left of it),
        "drift" (FedLSA's limit bias) and "noise" (at most), all three of the run; and "finite data"
    epsilon : the accuracy that was asked of the run, in its own coordinates; None for a run by hand
    plan : the run that `protocol` comes from, and what it costs
    per_site : how each site stands to the shared answer
    weight : by what sites count, "sites" or "samples"
    centred : whether covariances are about each site's own mean score
    columns : that were read as features or states, in the order of `names` where there is no feature map
    local : what a local step uses: "rows" drawn at random, the "log" in its order, or the site's "means"
    baselines : other ways to an answer, where asked for; bootstrap : solutions of reweighted data, where asked for
    made_by : the versions that it depends on, and the command where there was one

    >>> x = np.arange(12.0).reshape(12, 1)
    >>> fit = fl.fit([(x, 2 * x[:, 0] + np.cos(x[:, 0]))], fl.Regression("y"), local="means")
    >>> fit.names, fit.theta.round(2), fit.standard_error.round(2)
    (('x0', 'intercept'), array([1.94, 0.31]), array([0.05, 0.41]))
    >>> fit.value([[20.0]]).value.round(1)
    array([39.1])
    """

    task: Task
    names: tuple[str, ...]
    theta: Floats
    columns: tuple[str, ...]
    covariance: Floats
    protocol: Floats
    optimisation: Floats
    plan: Plan
    epsilon: float | None
    error: dict[str, float]
    per_site: tuple[SiteReport, ...]
    weight: str
    local: str
    centred: bool
    baselines: tuple[Baseline, ...] = ()
    bootstrap: Bootstrap | None = None
    made_by: dict[str, Any] = field(default_factory=dict)

    def _display(self) -> tuple[str, list[tuple[str, Any]]]:
        about = zip(self.names, self.theta, self.standard_error, self.confidence_interval(), strict=True)
        listed = [(n, f"{v:.5g} with standard error {s:.2g}, 95% from {a:.5g} to {b:.5g}") for n, v, s, (a, b) in about]
        if len(listed) > SHOWN:
            listed = [*listed[:SHOWN], ("...", f"{len(listed) - SHOWN:,} more coefficients")]
        rows = sum(s.rows for s in self.per_site)
        return f"Fit of {call(self.task)} on {counted(rows, 'row')} of {counted(len(self.per_site), 'site')}", [
            *listed,
            ("sites count by", self.weight),
            ("planned run", f"{call(self.plan.algorithm)}, {self.plan.rounds:,} rounds on {self.local}"),
            ("its error, in standard errors", self.error),
        ]

    def _picture(self) -> str:
        about = zip(self.names, self.theta, self.confidence_interval(), strict=True)
        own = np.stack([site.theta for site in self.per_site], axis=1)  # (d, N)
        rows = [Strip(n, float(v), (a, b), dots) for (n, v, (a, b)), dots in zip(about, own, strict=True)]
        return strips(rows, "bars: coefficients with 95% intervals; dots: the sites' own; each row on its own scale")

    @property
    def standard_error(self) -> Floats:
        """(d,): of each coefficient of theta, because data are finite."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def solution(self) -> Floats:
        """(d,): the data's own solution, which is theta."""
        return self.theta

    @property
    def communications(self) -> int:
        """Server averages."""
        return self.plan.rounds

    def confidence_interval(self, level: float = 0.95) -> Floats:
        """(d, 2): intervals that cover each true coefficient with probability `level`, in large samples."""
        z = _quantile(level)
        return np.stack([self.theta - z * self.standard_error, self.theta + z * self.standard_error], axis=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it all to `path` as JSON, which `Fit.load` and `fedlsa evaluate` read.

        Features that are a function or a transformer cannot be written; there is a warning, and `load` asks for them.
        """
        write_model(self, checks.path("path", path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], features: Any = None) -> Fit:
        """Read what `save` wrote: the same to the last bit. features : those that the file could not hold."""
        return read_model(checks.path("path", path), cls, features)

    def value(self, features: ArrayLike, level: float = 0.95) -> Prediction:
        """The model at given points with pointwise intervals of `level`; the intercept is added here.

        features : a data frame or mapping with the model's `columns`, matched by name (columns of the task beside them
            are left alone), or an array (n, k) in their order (or whatever states the task's feature map takes)
        """
        x = self.design(features)
        z = _quantile(level)
        deviation = np.sqrt(np.maximum(np.einsum("ni,ij,nj->n", x, self.covariance, x), 0.0))
        v = x @ self.theta
        return Prediction(v, deviation, v - z * deviation, v + z * deviation)

    def design(self, features: ArrayLike) -> Floats:
        """(n, d): the rows with which coefficients are multiplied, from features as in `value`."""
        d = len(self.theta) - self.task.intercept
        mapped = not isinstance(self.task, Regression) and self.task.features is not None
        if has_names(features):
            features = by_name("features", features, self.columns, self._others(features))
            features = features[:, 0] if mapped and len(self.columns) == 1 else features
        if not isinstance(self.task, Regression) and mapped:
            x = maps.apply(self.task.features, np.asarray(features), "features")
        else:
            x = checks.array("features", features, ("n", d))
        return np.column_stack([x, np.ones(len(x))]) if self.task.intercept else x

    def _others(self, table: Any) -> list[str]:
        """The columns of a table that a fit reads beside its features."""
        if isinstance(self.task, Regression):
            return [self.task.target]
        t, after = self.task, self.task.next_state
        following = [str(c) for c in table if str(c).startswith(after)] if isinstance(after, str) else list(after)
        return [t.reward, t.terminated, t.truncated, t.importance, *following]


def _quantile(level: float) -> float:
    return float(ndtri(0.5 + checks.real("level", level, above=0, below=1) / 2))
