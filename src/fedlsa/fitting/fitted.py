"""What a fit gives back: coefficients with error bars, what they cost, and how each site stands to the others."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError, SiteDataError, warn
from ..problems import features as maps
from ..theory.planner import Plan
from ..value_objects import Displayed, ReadOnly, call, counted, spread_table
from .design import design_of
from .fit_summary import Baseline, FitSummary, WaldTest, summarise, wald_test
from .heterogeneity import Heterogeneity, SiteReport, compare_sites
from .model_files import read_model, write_model
from .sites import from_columns, has_names
from .table_files import open_file
from .tables import MissingRows, drop_incomplete, name_of
from .tasks import OURS, Task, Value, shared_intercept

if TYPE_CHECKING:
    import pandas as pd

SKEWNESS_COST = 4.0  # times gamma^2: by how much 1 / degrees of freedom is larger
LEAST_DEGREES = 3.0  # that skewness leaves: coverage with 1 was the same, and intervals 4 times as wide
SHOWN = 20  # coefficients in a repr, which is to fit on a screen


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


@dataclass(frozen=True, eq=False, repr=False)
class Bootstrap(Displayed, ReadOnly):
    """An estimate and what it would have been on other data.

    theta : (d,) the data's solution
    replicas : (B, d) the solutions of reweighted data
    kind : what varies, in words, such as "pairs" or "40 clusters"
    degrees_of_freedom : of t quantiles, as of the fit
    """

    theta: Floats
    replicas: Floats
    kind: str = "pairs"
    degrees_of_freedom: float = np.inf

    def _further_html(self) -> str:
        names = [f"theta[{j}]" for j in range(len(self.theta))]
        return spread_table("The estimate, and its replicas:", names, self.theta, self.replicas)

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
            both sides t quantiles of the replicas' standard error, of blocks; or "basic", 2 theta - q
        """
        level = checks.real("level", level, above=0, below=1)
        kind = kind or ("normal" if self.kind.startswith("blocks") else "percentile")
        checks.choice("kind", kind, ("normal", "percentile", "basic"))
        if kind == "normal":
            reach = stdtrit(self.degrees_of_freedom, (1 + level) / 2) * self.standard_error
            return np.stack([self.theta - reach, self.theta + reach], axis=1)
        low, high = np.quantile(self.replicas, [(1 - level) / 2, (1 + level) / 2], axis=0)
        if kind == "basic":
            low, high = 2 * self.theta - high, 2 * self.theta - low
        return np.stack([low, high], axis=1)


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
    weight : by what sites count, "sites" or "samples"; cluster : the column of clusters, or "sites"
    columns : that were read as features or states, in the order of `names` where there is no feature map; of a
        formula, those that its right side names
    local : what a local step uses: "rows" drawn at random, the "log" in its order, or the site's "means"
    baselines : other ways to an answer, where asked for; bootstrap : solutions of reweighted data, where asked for
    made_by : the versions that it depends on, and the command where there was one
    covariance_kind : in words, such as "HC3" or "CR3, 40 clusters"
    degrees_of_freedom : of the covariance, for t quantiles; few where rows are correlated in time
    skewness : (d,) of the error of each coefficient of a value function, as blocks of its logs show it, from -1 to 1;
        (1,), 0 for a regression (`degrees_of`)
    residual_variance : of one observation of weight 1 about the model: weighted squares of residuals over n - d, as
        statsmodels' `scale`; NaN for a value function
    r_squared : the share of the target's variance that a regression explains, about 0 where its columns have no
        constant; NaN for a value function
    levels : of each category of a formula, agreed by all sites; notes : the warnings that were given
    log_likelihood : of a regression with normal errors, as statsmodels' llf; NaN with a ridge, with sites that count
        the same whatever their rows, and for a value function
    constant : (d,) with which columns add up to 1 in every row; None where none do, or there is an intercept
    own_effects : intercepts of the sites' own by their names; a file holds them where save(own=True) says so
    own_errors : by the same names, (1 + 2 d,): the variance of a site's mean target about the model, the means of its
        columns, and the covariance of that mean with theta
    resid, fittedvalues : (n,) of a regression's rows in their order; None where these were not kept, and in a file

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
    skewness: Floats = field(default_factory=lambda: np.zeros(1))
    residual_variance: float = math.nan
    r_squared: float = math.nan
    levels: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    log_likelihood: float = math.nan
    cluster: str | None = None
    constant: Floats | None = None
    resid: Floats | None = field(default=None, compare=False)
    fittedvalues: Floats | None = field(default=None, compare=False)
    own_effects: dict[str, float] | None = field(default=None, compare=False)
    own_errors: dict[str, Floats] | None = field(default=None, compare=False)

    if not TYPE_CHECKING:  # for which there is no name but those above and below

        def __getattr__(self, name: str) -> Any:
            instead = f"; it is called {OURS[name]}" if name in OURS else ""
            raise AttributeError(f"Fit has no {name!r}{instead}", name=name, obj=self)

    def _display(self) -> tuple[str, list[tuple[str, Any]]]:
        about = zip(self.names, self.theta, self.standard_error, self.confidence_interval(), strict=True)
        rows: list[tuple[str, Any]] = [
            (n, f"{v:.5g} with standard error {s:.2g}, 95% from {a:.5g} to {b:.5g}") for n, v, s, (a, b) in about
        ]
        if len(rows) > SHOWN:
            rows = [*rows[:SHOWN], ("...", f"{len(rows) - SHOWN:,} more coefficients")]
        rows += [("sites count by", self.weight), ("planned run", "none")]
        if self.plan is not None:
            rows[-1] = "planned run", f"{call(self.plan.algorithm)}, {self.plan.rounds:,} rounds on {self.local}"
            rows.append(("its error, in standard errors", self.error))
        data = f"{counted(self.rows, 'row')} of {counted(len(self.per_site), 'site')}"
        return f"Fit of {call(self.task)} on {data}", rows

    def _further_html(self) -> str:
        solutions = np.stack([site.theta for site in self.per_site])
        return spread_table("The coefficients, and the sites' own:", self.names, self.theta, solutions)

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
    def nobs(self) -> int:
        """The number of observations, which is `rows`."""
        return self.rows

    @property
    def params(self) -> pd.Series:
        """The coefficients theta as a pandas series, by name."""
        import pandas as pd

        return pd.Series(self.theta, index=list(self.names))

    @property
    def adjusted_r_squared(self) -> float:
        """R^2 with the variances of residuals and target each over their degrees of freedom; NaN for a value function.
        A constant, an intercept's or one among the columns, costs the target one."""
        n, d = self.rows, self._fitted
        centred = d - len(self.theta) or int(self.task.intercept or self.constant is not None)
        return 1 - (1 - self.r_squared) * (n - centred) / (n - d) if n > d else math.nan

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 d - 2 log_likelihood."""
        return 2 * (self._fitted - self.log_likelihood)

    @property
    def bic(self) -> float:
        """The Bayesian information criterion, d log n - 2 log_likelihood."""
        return self._fitted * math.log(self.rows) - 2 * self.log_likelihood

    @property
    def _fitted(self) -> int:
        """How many numbers the data have determined: coefficients, and intercepts that are sites' own."""
        return len(self.theta) + len(self.per_site) * (self.task.own is not None)

    @property
    def t_values(self) -> Floats:
        """(d,): each coefficient over its standard error."""
        with np.errstate(divide="ignore", invalid="ignore"):  # infinite where there is no error, NaN where both are 0
            return np.asarray(self.theta / self.standard_error, np.float64)

    @property
    def p_values(self) -> Floats:
        """(d,): of the hypotheses that each coefficient is 0, two-sided."""
        t, df = -np.abs(self.t_values), self.degrees_of(np.eye(len(self.theta)))
        return 2 * np.where(np.isinf(df), ndtr(t), stdtr(df, t))

    def confidence_interval(self, level: float = 0.95) -> Floats:
        """(d, 2): intervals that cover each true coefficient with probability `level`, by t quantiles."""
        reach = self._quantile(level, np.eye(len(self.theta))) * self.standard_error
        return np.stack([self.theta - reach, self.theta + reach], axis=1)

    def _quantile(self, level: float, combinations: Floats) -> Floats:
        """(n,): how many standard errors an interval of `level` reaches to either side, for combinations : (n, d)."""
        p, df = 0.5 + checks.real("level", level, above=0, below=1) / 2, self.degrees_of(combinations)
        return np.where(np.isinf(df), ndtri(p), stdtrit(df, p))

    def degrees_of(self, combinations: ArrayLike) -> Floats:
        """(n,): degrees of freedom of combinations of coefficients, an array (n, d): fewer where coefficients that have
        a large part in the variance have skew errors.

        Where errors are skew, standard errors are too small whenever the data lack what makes the long tail. Intervals
        of a mean with skewness gamma must be as wide as if 1 / degrees were larger by 0.9 gamma^2 for 95% (Hall, 1992).
        But data that lack the long tail do not show gamma either, so SKEWNESS_COST is more: what covers in
        benchmarks/intervals.py. What chance makes of gamma^2 is taken away: 6 / G^2 for G normal blocks of a log, of
        which there are two for each degree of freedom.
        """
        spread = np.atleast_2d(np.asarray(combinations, np.float64)) ** 2 * np.diag(self.covariance)
        share = spread / np.maximum(spread.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        df = np.float64(self.degrees_of_freedom)
        surplus = np.maximum(np.sum(share * self.skewness**2, axis=1) - 1.5 / df**2, 0.0)
        with np.errstate(divide="ignore"):
            left = 1 / (1 / df + SKEWNESS_COST * surplus)
        return np.where(surplus > 0, np.maximum(left, min(df, LEAST_DEGREES)), df)

    def summary(self, level: float = 0.95) -> FitSummary:
        """The fit on one page, with intervals of `level`: print it, or show it in a notebook."""
        return summarise(self, level)

    def test(self, hypothesis: str | ArrayLike | None = None, values: ArrayLike | None = None) -> WaldTest:
        """The F test of linear claims about the coefficients, with the fit's covariance and degrees of freedom.

        hypothesis : "educ = exper", or several that must hold together, "educ = 0, exper = 0", or a list of such; names
            with spaces stand in backticks. Or an array R : (q, d), with values r : (q,), by default 0, for R theta = r.
            By default that no column matters, as in the summary: the model is a constant, or 0 where it has none
        """
        hypothesis = self._no_slopes() if hypothesis is None else hypothesis
        return wald_test(self, hypothesis, values)

    def _no_slopes(self) -> Floats:
        """(q, d): R with R theta = 0 where the model is the same in every row."""
        one, k = np.eye(len(self.theta)), self.constant
        if self.task.intercept or k is None:
            return one[: len(one) - shared_intercept(self.task)]
        some = np.flatnonzero(k)
        best = some[np.argmin(self.standard_error[some] / np.abs(k[some]))]  # it says which multiple of k theta is
        return np.delete(one - np.outer(k / k[best], one[best]), best, axis=0)

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

    def save(self, path: str | os.PathLike[str], *, own: bool = False) -> None:
        """Write it all to `path` as JSON, which `Fit.load` and `fedlsa evaluate` read; own : `own_effects` and
        their errors, too.

        Features that are a function or a transformer cannot be written; there is a warning, and `load` asks for them.
        """
        kept = (
            {"own_effects": self._known_effects(), "own_errors": self.own_errors} if checks.boolean("own", own) else {}
        )
        write_model(self, checks.path("path", path), kept)

    @classmethod
    def load(cls, path: str | os.PathLike[str], features: Any = None) -> Fit:
        """Read what `save` wrote: the same to the last bit. features : those that the file could not hold."""
        return read_model(checks.path("path", path), cls, features)

    def predict(self, new: Any, *, site: Any = None, decimal: str | None = None) -> Floats:
        """(n,): the model at given points; the intercept, and the offset where the task has one, are added here.

        new : a data frame, mapping or file with the model's `columns`, matched by name whatever their order (others are
            left alone), or an array (n, k) in their order (or whatever states the task's feature map takes). A formula
            needs a table; a level that no site had is an error
        site : where sites have intercepts of their own, the name of one, or (n,) of each point's
        decimal : the decimal mark of a CSV file, as in fl.fit
        """
        x, offset = self._design_and_offset(new, decimal)
        return np.asarray(self.values_at(x, site) + offset, np.float64)

    def values_at(self, x: Floats, site: Any = None) -> Floats:
        """(n,): the model at points.

        x : (n, d), rows that end in 1 where there is an intercept; site : as in `predict`
        """
        if self.task.own is None:
            if site is not None:
                raise ArgumentError(f"site must go with a task of own='intercept'; got {checks.show(site)}")
            return np.asarray(x @ self.theta, np.float64)
        own = [self._known_effects()[name] for name in self._sites_of(site, len(x))]
        return np.asarray(x[:, :-1] @ self.theta + own, np.float64)

    def _sites_of(self, site: Any, n: int) -> list[str]:
        """The names of the sites whose own intercepts n points have, one or n."""
        known, names = self._known_effects(), [name_of(s) for s in np.asarray(site, object).ravel().tolist()]
        if len(names) not in (1, n) or any(name not in known for name in names):
            rule = f"site must be one of the fit's, which alone have intercepts, or of each of {n:,} points"
            raise ArgumentError(f"{rule}; got {checks.show(next((s for s in names if s not in known), names))}")
        return names

    def _known_effects(self) -> dict[str, float]:
        if self.own_effects is None:
            raise ArgumentError("own_effects must be in the fit, which a file holds after save(own=True); it has none")
        return self.own_effects

    def predict_interval(
        self, new: Any, level: float = 0.95, *, site: Any = None, decimal: str | None = None
    ) -> Prediction:
        """The model at given points, as in `predict`, with pointwise intervals of `level`: of the model's value, and of
        one new observation (of weight 1). site, decimal : as in `predict`;
        with site, also of a site's own intercept, which clusters, or a robust covariance of one row, do not tell
        """
        x, offset = self._design_and_offset(new, decimal)
        value, variance = self.values_at(x, site) + offset, np.zeros(len(x))
        if self.task.own is not None:  # of the site's mean target, and of the model from its mean columns to x
            names = self._sites_of(site, len(x))
            own = np.array([self._own_error(name) for name in names])
            variance, mean, with_theta = own[:, 0], *np.split(own[:, 1:], 2, axis=1)
            x = x[:, :-1] - mean
            variance = variance + 2 * np.sum(x * with_theta, axis=1)
        variance = np.maximum(variance + np.sum((x @ self.root) ** 2, axis=1), 0.0)
        reach = self._quantile(level, x)
        error = reach * np.sqrt(variance)
        wide = reach * np.sqrt(variance + self.residual_variance)
        return Prediction(value, np.sqrt(variance), value - error, value + error, value - wide, value + wide)

    def _own_error(self, name: str) -> Floats:
        """What own_errors has of a site; where that is not known, an error says why."""
        found = (self.own_errors or {}).get(name)
        if found is None:
            raise ArgumentError("own_errors must be in the fit, which a file holds after save(own=True); it has none")
        if np.isnan(found).any():
            kind, why = "'classical'", "its own intercept fits its one row exactly"
            if self.cluster is not None:
                kind, why = "one without clusters", "clusters of one site hardly tell how far off its intercept is"
            rule = f"covariance must be {kind} for errors of predictions at {name}, for {why}"
            raise ArgumentError(f"{rule}; got {self.covariance_kind}")
        return found

    def design(self, new: Any) -> Floats:
        """(n, d): the rows with which coefficients are multiplied, from points `new` as in `predict`."""
        x = self._design_and_offset(new)[0]
        return x if self.task.own is None else x[:, :-1]

    def _design_and_offset(self, new: Any, decimal: str | None = None) -> tuple[Floats, Floats | float]:
        """The rows with which coefficients are multiplied, (n, d), and what is added, (n,), at points `new`."""
        offset, formula = self.task.offset, design_of(self.task, tuple(self.levels.items()))
        is_file = isinstance(new, str | os.PathLike)
        if not is_file and not has_names(new):
            if offset is not None or formula is not None:
                what = "the columns of the formula by name" if offset is None else f"the offset {offset!r}"
                raise ArgumentTypeError(f"new must be a table with {what}; got {checks.show(new)}")
            return self._features(new), 0.0
        path = checks.path("new", new) if is_file else None
        table = from_columns("new", new) if path is None else open_file(path.name or str(path), path, decimal)
        numbers = self.columns if formula is None else formula.numbers[len(formula.formula.target.columns) :]
        wanted, labels = (*numbers, *([offset] if offset else [])), () if formula is None else formula.labels
        for column in (c for c in (*wanted, *labels) if c not in table.columns):
            if is_file:
                table.require(column)
            hint = checks.did_you_mean(column, table.columns)
            rule = f"{table.name} must have the columns {', '.join((*wanted, *labels))}, in any order"
            raise ArgumentError(f"{rule}; got none called {column!r}{hint}")
        found = drop_incomplete(table.blocks(wanted, labels=labels), MissingRows(table.sites), drop=False)
        blocks = [block for block, _ in found]
        if not blocks:
            raise SiteDataError(f"{table.name} must have at least one row; it has none")
        make = formula.features if formula else lambda b: self._features(np.stack([b[c] for c in numbers], axis=1))
        x = np.concatenate([make(block) for block in blocks])
        return x, 0.0 if offset is None else np.concatenate([b[offset] for b in blocks])

    def _features(self, states: Any) -> Floats:
        """(n, d): of an array (n, k) of columns or states, with the intercept."""
        task, features, given = self.task, self.task.features, checks.as_array("new", states)
        if features is not None:
            given = given[:, 0] if given.ndim == 2 and len(self.columns) == given.shape[1] == 1 else given
            x = maps.apply(features, given, "new")
            if isinstance(features, maps.OneHot) and not x.any(axis=1).all():
                left_out = sorted({int(s) for s in np.ravel(given)[~x.any(axis=1)]})
                warn(
                    f"OneHot leaves out {checks.show(left_out)}: the value of such states is given as 0, which is "
                    "right where the task ends in them, and unknown where no row begins there"
                )
        else:
            d = len(self.theta) - shared_intercept(task)
            is_number = isinstance(task, Value) and d == 1 and given.ndim == 1  # of each state
            x = checks.array("new", given[:, None] if is_number else states, ("n", d))
        return np.column_stack([x, np.ones(len(x))]) if task.intercept else x
