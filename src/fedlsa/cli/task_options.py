"""The options that say what is estimated from sites' data and by which run: the same for `fit` and `network`."""

from __future__ import annotations

from .. import checks
from ..algorithms import METHODS
from ..errors import ArgumentError
from ..fit import Regression, Value
from ..fit.data_problem import WEIGHTS
from ..fit.tasks import Task
from . import parsing
from .choices import METHOD_NAMES
from .derived import Given, Option, Options, Words

BY_HAND: Words = {  # of every run on sites' data, here and on a network
    "method": Option(f"{METHOD_NAMES}.", names=METHODS),
    "step_size": "Instead of --epsilon, with --local-steps and --rounds: the run by hand.",
    "rounds": "Communications.",
    "weight": Option("sites: each counts the same; samples: each row counts the same.", names=WEIGHTS),
    "seed": "Of the rows that steps draw.",
}
EPSILON = (
    "Distance (RMSE, on the standardised scale) from the data's own solution that the run may keep; a plan follows "
    "from it."
)
REGRESSION: Words = {
    "target": "Column to be explained.",
    "features": Option(
        "Columns that explain it, a,b or repeated. By default all others.", kind=list[str] | None, read=parsing.names
    ),
    "intercept": "Without a constant term.",
    "standardise": "Run on the columns as they are.",
    "ridge": "Penalty, on the standardised columns.",
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
            "target": Option("Column to be explained.", shown="y"),
            "features": Option(
                "Columns that explain it, a,b or repeated; by default all others. Of a value function: a map such as "
                "'OneHot(16)'.",
                kind=list[str] | None,
                read=parsing.names,
            ),
        }
    },
    optional=True,
)
VALUE_TASK = Options(Value, {"Or a value function": VALUE}, optional=True)


def chosen_task(regression: Given, value: Given) -> Task | None:
    """The task that was chosen; None if none was. Options of the two kinds do not mix; --features is of both."""
    shared = "--features"
    if "--discount" in value.flags:
        _refuse(regression, shared, "a regression, and --discount asks for a value function")
        task: Task = value()
        return task
    _refuse(value, shared, "a value function, which needs --discount")
    return Regression(**{"target": "y"} | regression.arguments) if regression.flags else None


def _refuse(given: Given, shared: str, why: str) -> None:
    for option, value in given.flags.items():
        if option != shared:
            raise ArgumentError(f"{option} must not be given: it is an option of {why}; got {checks.show(value)}")
