"""Sweeps: many results of `simulate` as one dataset, with what differs between them as dimensions, and back.

A sweep has the variables of a result, over (problem, algorithm, each option that was swept, seed, rounds). Options that
were not swept are scalar coordinates. The attribute `SWEEP` holds what the runs do not share, so that every run, or any
selection of them, says how it was made: `arguments` gives back what a result, or a sweep, is made with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..algorithms import FAMILY, Algorithm
from ..errors import ArgumentError, ArgumentTypeError
from ..problems import Problem
from ..sampling import Sampling
from . import recipe
from .recipe import SWEEP, LongText, abridged

if TYPE_CHECKING:
    import xarray as xr

OF_A_PROBLEM = ("agents", "dim", "theta_star", "start", "problem", recipe.NEEDS)  # attributes of a result
OF_A_METHOD = ("method", "algorithm")
ROOM = Algorithm.__module__.rpartition(".")[0] + "."  # in whichever of its files a method once stood
WORDS = {"problem": "problem", "algorithm": "method"}  # long names; those of options are their own

Axes = Mapping[str, Any]  # by name: the values along a dimension, as a list, or the one value of a scalar coordinate


def labels(values: Any) -> list[Any]:
    """What stands for the values of an axis: numbers for numbers, or else texts; classes go by their names."""
    each = [v.__name__ if isinstance(v, type) else v for v in listed(values)]
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in each)
    return each if numbers else [str(v) for v in each]


def stack(runs: Sequence[xr.Dataset], axes: Axes) -> xr.Dataset:
    """One dataset of results, which stand in the order of the axes, the last of which changes fastest.

    axes : "problem" (names; absent where there is one problem), "algorithm" (classes), then the options
    """
    import xarray as xr

    swept = [name for name, values in axes.items() if isinstance(values, list)]
    shape = tuple(len(axes[name]) for name in swept)
    first = runs[0]
    variables = {}
    for name, variable in first.data_vars.items():
        values = np.stack([r[name].values for r in runs]).reshape(shape + variable.shape)
        variables[name] = ((*swept, *variable.dims), values, variable.attrs)
    coords = {name: _coordinate(name, values) for name, values in axes.items()}
    shared = {k: v for k, v in first.attrs.items() if k not in OF_A_METHOD}
    per_problem = len(runs) // max(1, len(axes["problem"])) if "problem" in axes else len(runs)
    record: dict[str, Any] = {
        "options": {k: v for k, v in axes.items() if k not in ("problem", "algorithm")},
        "algorithms": [{"module": k.__module__, "qualname": k.__qualname__} for k in listed(axes["algorithm"])],
        "configurations": [[r.attrs[k] for k in OF_A_METHOD] for r in runs[:per_problem]],
    }
    if "problem" in axes:
        shared = {k: v for k, v in shared.items() if k not in OF_A_PROBLEM}
        record["problems"] = {
            name: {k: r.attrs[k] for k in OF_A_PROBLEM if k in r.attrs}
            for name, r in zip(axes["problem"], runs[::per_problem], strict=True)
        }
    attributes = {"method": ", ".join(labels(axes["algorithm"])), **shared}
    return xr.Dataset(variables, {**coords, **first.coords}, abridged({**attributes, SWEEP: recipe.text(record)}))


def separate(results: Iterable[xr.Dataset]) -> list[xr.Dataset]:
    """The same results, with the runs of each sweep in its place."""
    return [run for r in results for run in (runs(r) if SWEEP in r.attrs else [r])]


def runs(sweep: xr.Dataset) -> list[xr.Dataset]:
    """The results of `simulate` that a sweep, or what was selected from it, is made of.

    They stand in the order of its dimensions, problems first, then methods, then options; each is what `simulate` alone
    gives.

    >>> p = fl.problems.garnet(agents=4, seed=1)
    >>> s = fl.sweep(p, fl.SCAFFLSA, step_size=[0.05, 0.1], local_steps=10, rounds=5, seeds=2, engine="reference")
    >>> fl.results.runs(s)[1].identical(fl.simulate(p, fl.SCAFFLSA(0.1, 10), rounds=5, seeds=2, engine="reference"))
    True
    """
    record = require_sweep("sweep", sweep)
    names = ["algorithm", *record["options"]]
    axes = [[entry["qualname"].rpartition(".")[2] for entry in record["algorithms"]]]
    axes += [labels(values) for values in record["options"].values()]
    configurations = dict(zip(product(*axes), record["configurations"], strict=True))
    if "problems" in record:
        names.insert(0, "problem")
    swept = swept_dimensions(sweep)
    common = {k: v for k, v in sweep.attrs.items() if k not in (SWEEP, "method")}
    out = []
    for place in product(*(range(sweep.sizes[name]) for name in swept)):
        run = sweep.isel(dict(zip(swept, place, strict=True)))
        at = [run[name].item() for name in names]
        attributes = dict(common)
        if "problems" in record:
            attributes |= known(record["problems"], at.pop(0))
        attributes |= dict(zip(OF_A_METHOD, known(configurations, tuple(at)), strict=True))
        run = run.drop_vars(names)
        run.attrs = abridged(attributes)
        out.append(run)
    return out


def swept_dimensions(sweep: xr.Dataset) -> list[str]:
    """The dimensions of a sweep that a result of `simulate` does not have, in their order."""
    options = recipe.value(sweep.attrs[SWEEP])["options"] if SWEEP in sweep.attrs else ()
    return [name for name in ("problem", "algorithm", *options) if name in sweep.dims]


def require_sweep(name: str, sweep: Any) -> dict[str, Any]:
    """The record of a sweep; what is none, or has lost a part, is refused."""
    import xarray as xr

    if not isinstance(sweep, xr.Dataset) or SWEEP not in sweep.attrs:
        raise ArgumentTypeError(f"{name} must be a sweep (fl.sweep); got {checks.show(sweep)}")
    recipe.require_numbers(name, sweep, "a sweep (fl.sweep)", recipe.VARIABLES, ("sampling", "arguments"))
    record: dict[str, Any] = recipe.value(sweep.attrs[SWEEP])
    for coordinate in ("problem", "algorithm", *record["options"])["problems" not in record :]:
        if coordinate not in sweep.coords or sweep[coordinate].dims not in ((), (coordinate,)):
            raise ArgumentError(f"{name} must keep its coordinate {coordinate}; got a dataset without it")
    return record


def require_runs(name: str, value: Any) -> dict[str, Any]:
    """The record of a sweep, an empty one for a result of `simulate`; what is neither is refused."""
    if SWEEP in getattr(value, "attrs", {}):
        return require_sweep(name, value)
    recipe.require_result(name, value)
    return {}


def known(by_label: Mapping[Any, Any], at: Any) -> Any:
    """What a sweep holds at a label; another dataset's label is refused."""
    if at not in by_label:
        rule = "sweep must hold runs of one call of fl.sweep alone"
        raise ArgumentError(f"{rule}; got one at {checks.show(at)}, which it does not know")
    return by_label[at]


def _coordinate(name: str, values: Any) -> tuple[tuple[str, ...], Any, dict[str, str]]:
    words, at = {"long_name": WORDS.get(name, name.replace("_", " "))}, labels(values)
    return ((name,), np.array(at), words) if isinstance(values, list) else ((), at[0], words)


def listed(values: Any) -> list[Any]:
    """The values of an axis, of which there may be one."""
    return values if isinstance(values, list) else [values]


def arguments(
    dataset: xr.Dataset,
    problem: Problem | Mapping[str, Problem] | None = None,
    algorithm: Algorithm | type[Algorithm] | Sequence[type[Algorithm]] | None = None,
    sampling: Sampling | None = None,
) -> dict[str, Any]:
    """The keyword arguments with which `simulate`, or for a sweep `sweep`, gives this dataset again, bit for bit.

    problem, algorithm, sampling : needed only where the dataset could not hold them; must then be those of the run.
    """
    record = require_runs("dataset", dataset)
    made = _problems(dataset, record, problem)
    if record:
        method = _chosen(dataset, "algorithm", _classes(record["algorithms"], algorithm))
    else:
        method = _algorithm(dataset.attrs["algorithm"], algorithm)
    options = {name: _chosen(dataset, name, values) for name, values in record.get("options", {}).items()}
    return {"problem": made, "algorithm": method, **recipe.stored_arguments(dataset, made, sampling), **options}


def _algorithm(stored_text: str | LongText, given: Any) -> Algorithm:
    stored = dict(recipe.value(stored_text))
    if given is not None:
        checks.instance("algorithm", given, Algorithm, "a method (fl.Algorithm)")
        if recipe.value(recipe.text(recipe.algorithm_record(given))) != stored:
            raise ArgumentError(f"algorithm must be the one this result was made with; got {checks.show(given)}")
        return given
    if "name" not in stored:
        raise _unknown("result", stored, given)
    return FAMILY[stored.pop("name").lower()](**stored)


def _problems(sweep: xr.Dataset, record: Mapping[str, Any], given: Any) -> Problem | dict[str, Problem]:
    if "problems" not in record:  # one problem
        return recipe.stored_problem(sweep.attrs["problem"], given)
    if given is not None and not isinstance(given, Mapping):
        raise ArgumentTypeError(f"problem must be a mapping of the names in the sweep; got {checks.show(given)}")
    names = [str(name) for name in np.atleast_1d(sweep["problem"].values)]
    texts = {name: record["problems"][name]["problem"] for name in names}
    return {name: recipe.stored_problem(text, (given or {}).get(name)) for name, text in texts.items()}


def _classes(stored: Sequence[Mapping[str, str]], given: Any) -> list[type[Algorithm]]:
    """The classes of a record; those that are not of fedlsa must be given."""
    offered = [] if given is None else list(given) if checks.is_sequence(given) else [given]
    by_name = {(kind.__module__, kind.__qualname__): kind for kind in offered}
    ours = {kind.__qualname__: kind for kind in FAMILY.values()}
    found = [
        ours.get(name) if module.startswith(ROOM) else by_name.get((module, name))
        for module, name in ((entry["module"], entry["qualname"]) for entry in stored)
    ]
    if None in found:
        raise _unknown("sweep", stored[found.index(None)], given)
    return [kind for kind in found if kind is not None]


def _unknown(what: str, entry: Mapping[str, str], given: Any) -> ArgumentError:
    rule = f"algorithm must be passed: the {what} was made with {entry['module']}.{entry['qualname']}"
    return ArgumentError(f"{rule}, not a fedlsa method; got {given!r}")


def _chosen(sweep: xr.Dataset, name: str, values: Any) -> Any:
    """The values of an axis whose labels the dataset has: one where it is a scalar, a list where it is a dimension."""
    by_label = dict(zip(labels(values), listed(values), strict=True))
    found = [known(by_label, at.item()) for at in np.atleast_1d(sweep[name].values)]
    return found if sweep[name].dims else found[0]
