"""What is to be estimated from the sites' columns: a linear model of a target, or the value function of a policy.

And what a covariance assumes of the rows' errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError
from ..value_objects import Checked, ReadOnly, frozen, number

Names = str | Sequence[str]
COVARIANCES = ("classical", "HC0", "HC1", "HC2", "HC3", "CR0", "CR1", "CR3", "HAC")
CLUSTERED = ("CR0", "CR1", "CR3", "HC0", "HC1", "HC3")  # with clusters; HC1 is then CR1
MISSING = ("error", "drop")
SITES = "sites"  # as a cluster: each site is one
SECURE_SITES = 3  # fewer in a sum, and each of two sites computes the other's part from the sum and its own


ELSEWHERE = {  # what statsmodels and pandas call it: what it is called here
    "formula": "target of fl.Regression",
    "data": "sites",
    "groups": "cluster of fl.fit",
    "cluster": "cluster of fl.fit",
    "covariance": "covariance of fl.fit",
    "cov_type": "covariance of fl.fit",
    "vcov": "covariance of fl.fit",
    "maxlags": "lag of fl.fit",
    "weights": "row_weights of fl.Regression",
    "exog": "columns of fl.Regression",
    "endog": "target of fl.Regression",
    "fit_intercept": "intercept of fl.Regression",
    "alpha": "ridge of fl.Regression",
    "gamma": "discount of fl.Value",
    "lambda_": "trace of fl.Value",
    "own": "own of fl.Regression",
    "thousands": "decimal of fl.fit, the other mark",
    "sep": "the header of the file",
}
OURS = {  # what statsmodels and scikit-learn call what a fit has: its name here
    "bse": "standard_error",
    "coef_": "theta",
    "conf_int": "confidence_interval(level)",
    "cov_params": "covariance",
    "cov_type": "covariance_kind",
    "df_resid": "degrees_of_freedom",
    "f_pvalue": "test().p_value",
    "f_test": "test(hypothesis)",
    "fvalue": "test().statistic",
    "get_prediction": "predict_interval(new, level)",
    "llf": "log_likelihood",
    "mse_resid": "residual_variance",
    "pvalues": "p_values",
    "rsquared": "r_squared",
    "rsquared_adj": "adjusted_r_squared",
    "scale": "residual_variance",
    "t_test": "test(hypothesis)",
    "tvalues": "t_values",
    "wald_test": "test(hypothesis)",
}
P = ParamSpec("P")
R = TypeVar("R")


def explains_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: an argument that there is not, by a name that other packages have, leads to ours."""

    @wraps(function)
    def explaining(*arguments: P.args, **options: P.kwargs) -> R:
        known = signature(function).parameters
        for name in (name for name in options if name not in known and name in ELSEWHERE):
            raise ArgumentTypeError(f"there is no argument {name!r}; it is {ELSEWHERE[name]}")
        return function(*arguments, **options)

    return explaining


@dataclass(frozen=True, eq=False, repr=False)
class Regression(Checked, ReadOnly):
    """Least squares of a target on columns: A(z) = w x x^T + ridge I and b(z) = w y x (eq:lsa_syst_fed).

    target : the column to be explained, or a formula such as "log(wage) ~ educ * exper + C(region)"
    columns : that explain it, by default all others
    intercept : a constant term; a formula says so itself (- 1)
    standardise : run on features and target of mean 0 and variance 1; coefficients are on the original scale
    ridge : of the coefficients of the standardised features, or of the features as they are; never of the intercept
    row_weights : column of weights w of at least 0, in inverse proportion to the noise's variance, as in WLS
    offset : column that is taken from the target before the fit, and added to what is predicted
    missing : "error" where a row lacks a value that is needed, or "drop" such rows and count them
    own : "intercept" where each site has an intercept of its own, which stays there (site fixed effects)

    >>> fl.Regression("y", columns=["age", "dose"], ridge=0.1).columns
    ('age', 'dose')
    """

    target: str
    columns: Names | None = None
    intercept: bool = True
    standardise: bool = True
    ridge: float = number(0.0, at_least=0)
    row_weights: str | None = None
    offset: str | None = None
    missing: str = "error"
    own: str | None = None
    features: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _name("target", self.target)
        if self.columns is not None:
            if self.formula is not None:
                raise ArgumentError(f"columns must not be given beside a formula, which names them; got {self.columns}")
            object.__setattr__(self, "columns", _names("columns", self.columns))
        for field in ("row_weights", "offset"):
            if getattr(self, field) is not None:
                _name(field, getattr(self, field))
        checks.choice("missing", self.missing, MISSING)
        if self.formula is not None:  # which says itself whether there is an intercept: - 1 leaves it out
            from .formulas import parse_formula

            parsed = parse_formula(self.formula)
            if parsed.intercept and not self.intercept:
                rule = "intercept must not be given beside a formula, which leaves it out by - 1"
                raise ArgumentError(f"{rule}; got {checks.show(self.formula)}")
            object.__setattr__(self, "intercept", parsed.intercept)
        if self.own is not None and checks.choice("own", self.own, ("intercept",)) and not self.intercept:
            raise ArgumentError("own must not be 'intercept' where the task leaves intercepts out; got both")

    @property
    def formula(self) -> str | None:
        """The formula, where there is one."""
        return self.target if "~" in self.target else None

    @property
    def response(self) -> str:
        """The column of the target; of a formula, the first on its left side."""
        if self.formula is None:
            return self.target
        from .formulas import parse_formula

        return parse_formula(self.formula).target.columns[0]

    @property
    def scaled(self) -> bool:
        """Whether the run has coordinates of its own, from sums of the sites' columns; a ridge needs centred ones, for
        there the intercept is 0, and a penalty on it changes nothing."""
        return self.standardise or (self.ridge > 0 and shared_intercept(self))


@dataclass(frozen=True, eq=False, repr=False)
class Value(Checked, ReadOnly):
    """The value function of the policy that made the logs, by TD(0) or TD(lambda) (eq:matr_A_def_td_app).

    discount : how much a reward counts one step later (the paper's gamma), from 0 to 1; 1 where every episode ends
    trace : how far a TD error reaches back (lambda), from 0, the last step alone, to 1, the whole episode
    state, next_state : columns before and after a transition, a list of names or the prefix that they share
    reward : column of the rewards
    terminated : column that says where the task ended: nothing is expected from there on, and traces start afresh
    truncated : column that says where the recording was cut: traces start afresh there. It may be missing
    importance : column of pi(a|s) / behaviour(a|s), where another policy made the log. It may be missing
    features : what maps states to features: one of fl.problems.features, anything callable, a fitted scikit-learn
        transformer, or an array (S, d) of one row per state. By default the states are the features
    intercept : a constant feature
    standardise : divide each feature by its root mean square while running
    numbers : a state that is one column of integers is a number, and its own feature. Else a fit refuses it, for such a
        column mostly numbers states, which asks for features=OneHot(...)

    There is no ridge: it would bias values towards 0, by an amount that depends on the features' units.

    >>> fl.Value(discount=0.95, trace=0.5, features=fl.problems.features.OneHot(4)).features.dim
    4
    """

    discount: float = number(at_least=0, at_most=1)
    trace: float = number(0.0, at_least=0, at_most=1)
    state: Names = "state"
    next_state: Names = "next_state"
    reward: str = "reward"
    terminated: str = "terminated"
    truncated: str = "truncated"
    importance: str = "importance"
    features: Any = None
    intercept: bool = False
    standardise: bool = False
    numbers: bool = False
    # what a regression has beside
    formula: ClassVar[None] = None
    row_weights: ClassVar[None] = None
    offset: ClassVar[None] = None
    ridge: ClassVar[float] = 0.0
    missing: ClassVar[str] = "error"
    own: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("state", "next_state"):
            given = getattr(self, field)
            object.__setattr__(self, field, given if isinstance(given, str) else _names(field, given))
        for field in ("reward", "terminated", "truncated", "importance"):
            _name(field, getattr(self, field))
        if isinstance(self.features, np.ndarray):
            checks.memory("the size of features", self.features.size, 8, "its entries")
            object.__setattr__(self, "features", frozen(self.features.copy()))

    @property
    def scaled(self) -> bool:
        """Whether the run has coordinates of its own."""
        return self.standardise


Task = Regression | Value


def shared_intercept(task: Task) -> bool:
    """Whether the last coefficient is an intercept, one for all sites."""
    return task.intercept and task.own is None


WEIGHTS = ("sites", "samples")
# coefficients, sites and rows up to which a run on rows is planned and done in two seconds of one core, however nearly
# columns determine one another: 1.7 s at most were measured. With 4 coefficients it may take 30 s, with 14 it takes 40
QUICK_ON_ROWS = 3, 10, 10_000


Regression.__init__ = explains_keywords(Regression.__init__)  # type: ignore[method-assign]
Value.__init__ = explains_keywords(Value.__init__)  # type: ignore[method-assign]


def checked_weight(task: Task, weight: str | None) -> str:
    """By what sites count: as given, else "samples" for a regression (pooled least squares), "sites" for values."""
    if weight is None:
        return "samples" if isinstance(task, Regression) else "sites"
    return checks.choice("weight", weight, WEIGHTS)


@dataclass(frozen=True)
class CovarianceKind:
    """What is assumed of the rows' errors.

    name : "classical", "HC0" to "HC3" or "HAC"; asked : whether it was asked for, or is the default
    own : whether each site has an intercept of its own, from which rows are taken
    lag : L; None has the window chosen. cluster : a column, "sites" or None; values : whether of a value function
    """

    name: str
    asked: bool = True
    lag: int | None = None
    cluster: str | None = None
    values: bool = False
    own: bool = False

    @classmethod
    def of(cls, task: Task, covariance: str | None, cluster: str | None, lag: int | None) -> CovarianceKind:
        """As the arguments of a fit say."""
        lag = None if lag is None else checks.integer("lag", lag)
        if not isinstance(task, Regression):
            for name, given in (("covariance", covariance), ("cluster", cluster)):
                if given is not None:
                    raise ArgumentError(f"{name} must not be given for a value function; got {given!r}")
            return cls("HAC", lag is not None, lag, values=True)
        if covariance is not None:
            checks.choice("covariance", covariance, COVARIANCES)
        if cluster is not None and lag is not None:
            raise ArgumentError(f"lag must not be given beside cluster, which says what is correlated; got {lag}")
        if cluster is not None and covariance not in (None, *CLUSTERED):
            rule = f"covariance must be one of {', '.join(CLUSTERED)} where cluster is given"
            raise ArgumentError(f"{rule}; got {covariance!r}")
        if cluster is None and covariance is not None and covariance.startswith("CR"):
            raise ArgumentError(f"cluster must be given for covariance={covariance!r}; got none")
        if lag is not None and covariance not in (None, "HAC"):
            raise ArgumentError(f"lag must go with covariance='HAC', not with {covariance!r}; got {lag}")
        name = (covariance or ("HC3" if lag is None else "HAC")).replace("CR", "HC")
        return cls(name, covariance is not None, lag, cluster, own=task.own is not None)

    @property
    def shown(self) -> str:
        return self.name if self.cluster is None else self.name.replace("HC", "CR")

    @property
    def long_run(self) -> bool:
        """Whether correlations in time are seen through slow cosines."""
        return self.name == "HAC" and (self.values or self.lag is None)

    @property
    def independent(self) -> bool:
        """Whether rows are taken to be independent."""
        return self.name != "HAC" and self.cluster is None

    @property
    def of_one_site(self) -> CovarianceKind:
        """The kind for a site's own solution: a site that is one cluster has its rows."""
        return replace(self, cluster=None) if self.cluster == SITES else self

    def factor(self, n: Any, d: Any, clusters: Any) -> Any:
        """Of the meat, for n rows, d coefficients and so many clusters; of one estimate or of several."""
        if self.cluster is not None:
            return clusters / (clusters - 1) * (n - 1) / (n - d) if self.name == "HC1" else 1.0
        return n / (n - d) if self.name == "HC1" or self.long_run else 1.0


def quick_on_rows(coefficients: int, sites: int, rows: int) -> bool:
    """Whether local steps use rows unless told otherwise, by the size of the data alone: the same on every machine."""
    return all(size <= most for size, most in zip((coefficients, sites, rows), QUICK_ON_ROWS, strict=True))


def _name(argument: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ArgumentTypeError(f"{argument} must be the name of a column; got {checks.show(value)}")
    return value


def _names(argument: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    listed = checks.entries(argument, value, "names of columns")
    if not listed:
        raise ArgumentTypeError(f"{argument} must be names of columns; got none")
    return tuple(_name(f"each of {argument}", entry) for entry in listed)
