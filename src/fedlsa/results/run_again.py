"""The arguments with which a result or a sweep is made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..algorithms import METHODS, Algorithm
from ..errors import ArgumentError, ArgumentTypeError
from ..problems import Problem
from . import recipe, sweeps
from .long_values import LongText

if TYPE_CHECKING:
    import xarray as xr


def arguments(
    dataset: xr.Dataset,
    problem: Problem | Mapping[str, Problem] | None = None,
    algorithm: Algorithm | type[Algorithm] | Sequence[type[Algorithm]] | None = None,
) -> dict[str, Any]:
    """The keyword arguments with which `simulate`, or for a sweep `sweep`, gives this dataset again, bit for bit.

    problem, algorithm : needed only where the dataset could not hold them; must then be the ones of the run.
    """
    sweeps.require_runs("dataset", dataset)
    if recipe.SWEEP in dataset.attrs:
        return _of_a_sweep(dataset, problem, algorithm)
    made = recipe.stored_problem(dataset.attrs["problem"], problem)
    method = _algorithm(dataset.attrs["algorithm"], algorithm)
    return {"problem": made, "algorithm": method, **recipe.run_arguments(dataset, made)}


def _algorithm(stored_text: str | LongText, given: Any) -> Algorithm:
    stored = dict(recipe.value(stored_text))
    if given is not None:
        checks.instance("algorithm", given, Algorithm, "a method (fl.Algorithm)")
        if recipe.value(recipe.text(recipe.algorithm_record(given))) != stored:
            raise ArgumentError(f"algorithm must be the one this result was made with; got {checks.show(given)}")
        return given
    if "name" not in stored:
        custom = f"{stored['module']}.{stored['qualname']}"
        raise ArgumentError(
            f"algorithm must be passed: the result was made with {custom}, not a fedlsa method; got None"
        )
    return METHODS[stored.pop("name").lower()](**stored)


def _of_a_sweep(sweep: xr.Dataset, problem: Any, algorithm: Any) -> dict[str, Any]:
    record = sweeps.require_sweep("dataset", sweep)
    classes = _classes(record["algorithms"], algorithm)
    made = _problems(sweep, record, problem)
    return {
        "problem": made,
        "algorithm": _chosen(sweep, "algorithm", classes),
        **recipe.run_arguments(sweep, made),
        **{name: _chosen(sweep, name, values) for name, values in record["options"].items()},
    }


def _problems(sweep: xr.Dataset, record: Mapping[str, Any], given: Any) -> Problem | dict[str, Problem]:
    if "problems" not in record:
        return recipe.stored_problem(sweep.attrs["problem"], given)
    if given is not None and not isinstance(given, Mapping):
        raise ArgumentTypeError(f"problem must be a mapping of the names in the sweep; got {checks.show(given)}")
    names = [str(name) for name in np.atleast_1d(sweep["problem"].values)]
    texts = {name: record["problems"][name]["problem"] for name in names}
    return {name: recipe.stored_problem(text, (given or {}).get(name)) for name, text in texts.items()}


def _classes(stored: Sequence[Mapping[str, str]], given: Any) -> list[type[Algorithm]]:
    """The classes of a record; those that are not of fedlsa must be given."""
    offered = [] if given is None else list(given) if checks.is_sequence(given) else [given]
    by_name = {(kind.__module__, kind.__qualname__): kind for kind in (*METHODS.values(), *offered)}
    out = []
    for entry in stored:
        kind = by_name.get((entry["module"], entry["qualname"]))
        if kind is None:
            custom = f"{entry['module']}.{entry['qualname']}"
            raise ArgumentError(
                f"algorithm must be passed: the sweep was made with {custom}, not a fedlsa method; got {given!r}"
            )
        out.append(kind)
    return out


def _chosen(sweep: xr.Dataset, name: str, values: Any) -> Any:
    """The values of an axis whose labels the dataset has: one where it is a scalar, a list where it is a dimension."""
    by_label = dict(zip(sweeps.labels(values), sweeps.listed(values), strict=True))
    found = [sweeps.known(by_label, at.item()) for at in np.atleast_1d(sweep[name].values)]
    return found if sweep[name].dims else found[0]
