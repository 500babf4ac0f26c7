"""The options that say what is estimated from sites' data and by which run: the same for `fit` and `network`."""

from __future__ import annotations

from .. import checks
from ..algorithms import METHODS
from ..errors import ArgumentError
from ..fitting import Regression, Value
from ..fitting.tasks import COVARIANCES, MISSING, WEIGHTS, Task
from . import parsing
from .choices import METHOD_NAMES
from .options import Given, Option, Options, Words

BY_HAND: Words = {  # of every run on sites' data, here and on a network
    "method": Option(f"{METHOD_NAMES}.", names=METHODS),
    "step_size": "Instead of --epsilon, with --local-steps and --rounds: the run by hand.",
    "rounds": "Communications.",
    "weight": Option(
        "sites: each counts the same; samples: each row counts the same.",
        shown="samples, of a value function sites",
        names=WEIGHTS,
    ),
    "seed": "Of the rows that steps draw.",
}
EPSILON = (
    "Distance (RMSE, on the standardised scale) from the data's own solution that the run may keep; a plan follows "
    "from it."
)
REGRESSION: Words = {
    "target": "Column to be explained, or a formula: 'log(wage) ~ educ + C(region)'.",
    "columns": Option(
        "Columns that explain it, a,b or repeated. By default all others.", kind=list[str] | None, read=parsing.names
    ),
    "intercept": "Without a constant term.",
    "standardise": "Run on the columns as they are.",
    "ridge": "Penalty, on the standardised columns.",
    "row_weights": "Column of row weights.",
    "offset": "Column that is taken from the target.",
    "cluster": "Column of clusters whose rows are correlated; sites: each site is one.",
    "covariance": Option("Of the coefficients; HC3 unless --lag is given.", names=COVARIANCES),
    "missing": Option("Rows without a value that is needed: error, or drop.", names=MISSING),
}
VALUE: Words = {
    "discount": "Discount factor, below 1.",
    "trace": "Lambda of TD(lambda).",
    "features": Option(
        "Map of states to features, as in Python: 'OneHot(64)', 'Aggregation(64, 8)', 'TileCoding(low=0, high=1, "
        "tiles=8, tilings=4)', 'Fourier(...)', 'RadialBasis(...)'. Without it columns are features.",
        kind=list[str] | None,
        read=parsing.feature_map,
    ),
    "state": Option(
        "Columns of the state: their common prefix, or a list x,y.", kind=list[str], read=parsing.prefix_or_names
    ),
    "next_state": Option("The same of the state that followed.", kind=list[str], read=parsing.prefix_or_names),
    "reward": "Column of rewards.",
    "terminated": "Column: the episode ended here; nothing is worth more.",
    "truncated": "Column: the record was cut here; may be missing.",
    "importance": "Column of importance weights; may be missing.",
    "intercept": "Add a constant feature.",
    "standardise": "Run on features of mean square 1.",
    "numbers": "A state of one integer column is a number, not a state's.",
}
REGRESSION_TASK = Options(
    Regression,
    {
        "A regression": {
            **REGRESSION,
            "target": Option("Column to be explained, or a formula.", shown="y"),
        }
    },
    optional=True,
)
VALUE_TASK = Options(Value, {"Or a value function": VALUE}, optional=True)


def chosen_task(regression: Given, value: Given) -> Task | None:
    """The task that was chosen; None if none was. Options of the two kinds do not mix."""
    if "--discount" in value.flags:
        _refuse(regression, "a regression, and --discount asks for a value function")
        task: Task = value()
        return task
    _refuse(value, "a value function, which needs --discount")
    return Regression(**{"target": "y"} | regression.arguments) if regression.flags else None


def _refuse(given: Given, why: str) -> None:
    for option, value in given.flags.items():
        raise ArgumentError(f"{option} must not be given: it is an option of {why}; got {checks.show(value)}")
