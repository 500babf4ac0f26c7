"""The options that say what is estimated from sites' data and by which run: the same for `fit` and `network`."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from .. import checks
from ..algorithms import METHODS
from ..errors import ArgumentError, ArgumentTypeError, SiteDataError
from ..fitting import Regression, Value
from ..fitting.tasks import MISSING, WEIGHTS, Task
from ..problems import features as maps
from .options import Given, Option, Options, Words, read_call

UNITS = {"": 1, "b": 1} | {f"{k}b": 1000**i for i, k in enumerate("kmgt", 1)}
UNITS |= {f"{k}ib": 1024**i for i, k in enumerate("kmgt", 1)}


def names(option: str, given: list[str]) -> list[str]:
    """Columns, one option each or several with commas."""
    out = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if not out:
        raise ArgumentError(f"{option} must name columns; got {', '.join(given)!r}")
    return out


def prefix_or_names(option: str, given: list[str]) -> str | list[str]:
    """A prefix if it is one word, a list if there are commas or several (a list of one ends in a comma)."""
    return given[0] if len(given) == 1 and "," not in given[0] else names(option, given)


def size(option: str, text: str) -> float:
    """Bytes, from a number with an optional unit."""
    found = re.fullmatch(r"\s*([\d.]+(?:e\d+)?)\s*([a-z]*)\s*", text.lower())
    try:
        if found and float(found[1]) > 0:
            return float(found[1]) * UNITS[found[2]]
    except (KeyError, ValueError):
        pass
    raise ArgumentTypeError(f"{option} must be a size above 0 such as 500MB or 8GB; got {text!r}")


def feature_map(option: str, given: list[str]) -> maps.FeatureMap:
    """The map that a call such as OneHot(64) or Fourier(low=[0, -1], high=[1, 1], order=3) makes."""
    such = "a map with its settings, such as 'OneHot(64)' or 'Fourier(low=0, high=1, order=3)'"
    kind, settings = read_call(option, ",".join(given), maps.MAPS, such)  # commas within a map are its own
    return maps.from_settings({"name": kind.__name__} | settings)


def site_files(given: list[Path]) -> list[Path]:
    """The files and folders that are meant; patterns that the shell has left alone are looked up here."""
    out: list[Path] = []
    for path in given:
        if path.exists() or not glob.has_magic(str(path)):
            out.append(path)
            continue
        found = sorted(glob.glob(str(path)))
        if not found:
            raise SiteDataError(f"no file is called {str(path)!r}, and none matches it as a pattern")
        out += map(Path, found)
    for path in out:
        if not path.exists():
            raise SiteDataError(f"there is no {path}")
        if out.count(path) > 1:
            raise SiteDataError(f"{path} must be named once, for it is one site; got it {out.count(path)} times")
    return out


BY_HAND: Words = {  # of every run on sites' data, here and on a network
    "method": Option("fedlsa, scafflsa or scaffnew.", kind=str, names=METHODS),
    "step_size": "Instead of --epsilon, with --local-steps and --rounds: the run by hand.",
    "local_steps": "Steps of a site between communications (scaffnew: on average).",
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
        "Columns that explain it, a,b or repeated. By default all others.", kind=list[str] | None, read=names
    ),
    "intercept": "Without a constant term.",
    "standardise": "Run on the columns as they are.",
    "ridge": "Penalty, on the standardised columns.",
    "row_weights": "Column of row weights.",
    "offset": "Column that is taken from the target.",
    "own": Option("What each site has of its own, which stays there.", names=("intercept",)),
    "missing": Option("Rows without a value that is needed: error, or drop.", names=MISSING),
}
VALUE: Words = {
    "discount": "Discount factor, at most 1.",
    "trace": "Lambda of TD(lambda).",
    "features": Option(
        "Map of states to features, as in Python: 'OneHot(64)', 'Aggregation(64, 8)', 'TileCoding(low=0, high=1, "
        "tiles=8, tilings=4)', 'Fourier(...)', 'RadialBasis(...)'. Without it columns are features.",
        kind=list[str] | None,
        read=feature_map,
    ),
    "state": Option("Columns of the state: their common prefix, or a list x,y.", kind=list[str], read=prefix_or_names),
    "next_state": Option("The same of the state that followed.", kind=list[str], read=prefix_or_names),
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
    {"A regression": {**REGRESSION, "target": Option("Column to be explained, or a formula.", shown="y")}},
    optional=True,
)
VALUE_TASK = Options(Value, {"Or a value function": VALUE}, optional=True)


def chosen_task(regression: Given, value: Given) -> Task | None:
    """The task that was chosen; None if none was. Options of the two kinds do not mix."""
    if "--discount" in value.flags:
        _refuse(regression, "a regression, and --discount asks for a value function")
        return value()
    _refuse(value, "a value function, which needs --discount")
    return Regression(**{"target": "y"} | regression.arguments) if regression.flags else None


def _refuse(given: Given, why: str) -> None:
    for option, value in given.flags.items():
        raise ArgumentError(f"{option} must not be given: it is an option of {why}; got {checks.show(value)}")
