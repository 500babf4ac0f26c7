"""What a fit gives back: coefficients with error bars, what they cost, and how each site stands to the others."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from ..formatting import Displayed, call, counted
from ..frozen import ReadOnly
from ..small_pictures import Strip, strips
from ..theory.planner import Plan
from .error_bars.bootstrap import Bootstrap
from .error_bars.heterogeneity import Heterogeneity, compare_sites
from .fit_summary import FitSummary, summarise
from .hypotheses import WaldTest, wald_test
from .inference import quantile, ratio, two_sided
from .models import read_model, write_model
from .one_message import Baseline
from .predictions import Prediction, design_and_offset, predict_rows
from .tasks import Task

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 20  # coefficients in a repr, which is to fit on a screen


@dataclass(frozen=True, eq=False, repr=False)
class SiteReport(Displayed, ReadOnly):
    """How one site stands to the shared answer.

    Lengths are in standard errors of the shared answer (error_sources.py), whatever the units of the columns.

    name : of the site
    rows : of its data
    weight : with which it counts
    theta : (d,) its own solution, on the original scale; NaN in what its data leave open
    distance : of its own solution from the shared one, NaN where its data leave something open
    influence : how far it draws the shared answer its way, ||w_c A^-1 xi_star_c||, which is what drift is made of
    noise : root mean squared error that its draws put into the run, at most
    finite_data : root mean squared error that its finite data put into theta
    window : rows over which its scores were taken to be correlated
    dropped : rows that were left out because they lack a value
    covariance : (d, d) of its own solution, of the fit's kind, from its rows alone; NaN where they do not tell
    degrees_of_freedom : of that covariance; for rows correlated over some lags, n over as many as they count for
    without : (d,) the shared estimate without this site; NaN where the others leave it open
    episodes : of its log, and how many of them terminated; 0 for a regression
    effective_rows : (sum of importance weights)^2 / (sum of their squares); rows where there are none
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
    covariance: Floats
    degrees_of_freedom: float
    without: Floats
    dropped: int = 0
    episodes: int = 0
    terminated: int = 0
    effective_rows: float = math.nan


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Displayed, ReadOnly):
    """A shared linear model estimated from the data of all sites, on the original scale of the columns.

    task : what was estimated
    names : of the coefficients
    theta : (d,) coefficients of `names`: the data's own solution, found on this machine, where all the data are
    covariance : (d, d) of theta about the truth, because data are finite
    root : (d, d), root root^T is the covariance. Combinations of coefficients keep digits that the covariance loses
        where columns are far from 0, such as times
    protocol : (d,) where the run ended: the answer that sites would have got by communicating as planned
    optimisation : (d,) root mean squared distance of protocol from theta, at most, as exact theory says (or as it came
        out). An interval about `protocol` is wider for it: sqrt(covariance[j, j] + optimisation[j]**2)
    error : root mean squared errors of protocol by origin, in standard errors of theta: "start" (what is left of it),
        "drift" (FedLSA's limit bias) and "noise" (at most), all three of the run; and "finite data"
    epsilon : the accuracy that was asked of the run, in its own coordinates; None for a run by hand
    plan : the run that `protocol` comes from, and what it costs; None where there is none, and protocol is NaN
    per_site : how each site stands to the shared answer
    weight : by what sites count, "sites" or "samples"
    columns : that were read as features or states, in the order of `names` where there is no feature map; of a
        formula, those that its right side names
    local : what a local step uses: "rows" drawn at random, the "log" in its order, or the site's "means"
    baselines : other ways to an answer, where asked for; bootstrap : solutions of reweighted data, where asked for
    made_by : the versions that it depends on, and the command where there was one
    covariance_kind : in words, such as "HC3" or "CR3, 40 clusters"
    degrees_of_freedom : of the covariance, for t quantiles; few where rows are correlated in time
    residual_variance : of one observation of weight 1 about the model: weighted squares of residuals over n - d, as
        statsmodels' `scale`, with weights that add up to those of the rows; NaN for a value function
    r_squared : the share of the target's variance that a regression explains, about 0 where its columns have no
        constant; NaN for a value function
    levels : of each category of a formula, agreed by all sites
    notes : the warnings that were given

    >>> x = np.arange(12.0).reshape(12, 1)
    >>> fit = fl.fit([(x, 2 * x[:, 0] + np.cos(x[:, 0]))], fl.Regression("y"), local="means")
    >>> fit.names, fit.theta.round(2), fit.standard_error.round(2)
    (('x0', 'intercept'), array([1.94, 0.31]), array([0.06, 0.45]))
    >>> fit.predict([[20.0]]).round(1), fit.predict({"x0": [20.0]}).round(1)
    (array([39.1]), array([39.1]))
    >>> fit.test("x0 = 2").df_num
    1
    """

    task: Task
    names: tuple[str, ...]
    theta: Floats
    columns: tuple[str, ...]
    covariance: Floats
    root: Floats
    protocol: Floats
    optimisation: Floats
    plan: Plan | None
    epsilon: float | None
    error: dict[str, float]
    per_site: tuple[SiteReport, ...]
    weight: str
    local: str
    baselines: tuple[Baseline, ...] = ()
    bootstrap: Bootstrap | None = None
    made_by: dict[str, Any] = field(default_factory=dict)
    covariance_kind: str = ""
    degrees_of_freedom: float = math.inf
    residual_variance: float = math.nan
    r_squared: float = math.nan
    levels: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def _display(self) -> tuple[str, list[tuple[str, Any]]]:
        about = zip(self.names, self.theta, self.standard_error, self.confidence_interval(), strict=True)
        listed = [(n, f"{v:.5g} with standard error {s:.2g}, 95% from {a:.5g} to {b:.5g}") for n, v, s, (a, b) in about]
        if len(listed) > SHOWN:
            listed = [*listed[:SHOWN], ("...", f"{len(listed) - SHOWN:,} more coefficients")]
        run: list[tuple[str, Any]] = [("planned run", "none")]
        if self.plan is not None:
            steps = f"{call(self.plan.algorithm)}, {self.plan.rounds:,} rounds on {self.local}"
            run = [("planned run", steps), ("its error, in standard errors", self.error)]
        data = f"{counted(self.rows, 'row')} of {counted(len(self.per_site), 'site')}"
        return f"Fit of {call(self.task)} on {data}", [*listed, ("sites count by", self.weight), *run]

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
        """Server averages of the planned run; 0 where there is none."""
        return 0 if self.plan is None else self.plan.rounds

    @property
    def rows(self) -> int:
        """Of all sites' data, those that were dropped left out."""
        return sum(s.rows for s in self.per_site)

    @property
    def t_values(self) -> Floats:
        """(d,): each coefficient over its standard error."""
        return ratio(self.theta, self.standard_error)

    @property
    def p_values(self) -> Floats:
        """(d,): of the hypotheses that each coefficient is 0, two-sided."""
        return two_sided(self.t_values, self.degrees_of_freedom)

    def confidence_interval(self, level: float = 0.95) -> Floats:
        """(d, 2): intervals that cover each true coefficient with probability `level`, by t quantiles."""
        reach = quantile(level, self.degrees_of_freedom) * self.standard_error
        return np.stack([self.theta - reach, self.theta + reach], axis=1)

    def summary(self, level: float = 0.95) -> FitSummary:
        """The fit on one page, with intervals of `level`: print it, or show it in a notebook."""
        return summarise(self, level)

    def test(self, hypothesis: str | ArrayLike, values: ArrayLike | None = None) -> WaldTest:
        """The F test of linear claims about the coefficients, with the fit's covariance and degrees of freedom.

        hypothesis : "educ = exper", or several that must hold together, "educ = 0, exper = 0", or a list of such; names
            with spaces stand in backticks. Or an array R : (q, d), with values r : (q,), by default 0, for R theta = r
        """
        return wald_test(hypothesis, values, self.names, self.theta, self.root, self.degrees_of_freedom)

    def to_frame(self, level: float = 0.95) -> pd.DataFrame:
        """A pandas table, by name: coefficient, standard_error, t, p, and low and high, intervals of `level`."""
        import pandas as pd

        low, high = self.confidence_interval(level).T
        columns = {"coefficient": self.theta, "standard_error": self.standard_error, "t": self.t_values}
        return pd.DataFrame(columns | {"p": self.p_values, "low": low, "high": high}, index=list(self.names))

    def plot(self, **options: Any) -> Any:
        """A matplotlib figure of the coefficients with their intervals: fl.figures.coefficients and its options."""
        from ..figures import coefficients

        return coefficients(self, **options)

    def heterogeneity(self) -> Heterogeneity:
        """Do the sites agree? Their own solutions, Cochran's Q and I^2, who stands out, and the answer without each."""
        return compare_sites(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it all to `path` as JSON, which `Fit.load` and `fedlsa evaluate` read.

        Features that are a function or a transformer cannot be written; there is a warning, and `load` asks for them.
        """
        write_model(self, checks.path("path", path))

    @classmethod
    def load(cls, path: str | os.PathLike[str], features: Any = None) -> Fit:
        """Read what `save` wrote: the same to the last bit. features : those that the file could not hold."""
        return read_model(checks.path("path", path), cls, features)

    def predict(self, new: Any) -> Floats:
        """(n,): the model at given points; the intercept, and the offset where the task has one, are added here.

        new : a data frame, mapping or file with the model's `columns`, matched by name whatever their order (others are
            left alone), or an array (n, k) in their order (or whatever states the task's feature map takes). A formula
            needs a table; a level that no site had is an error
        """
        x, offset = design_and_offset(self, new)
        return np.asarray(x @ self.theta + offset, np.float64)

    def predict_interval(self, new: Any, level: float = 0.95) -> Prediction:
        """The model at given points, as in `predict`, with pointwise intervals of `level`: of the model's value, and of
        one new observation (of weight 1)."""
        return predict_rows(self, *design_and_offset(self, new), quantile(level, self.degrees_of_freedom))

    def design(self, new: Any) -> Floats:
        """(n, d): the rows with which coefficients are multiplied, from points `new` as in `predict`."""
        return design_and_offset(self, new)[0]
