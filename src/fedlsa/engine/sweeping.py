"""`sweep`: a method with every combination of some options, as one dataset with the options as its dimensions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from .. import checks
from ..algorithms import Algorithm, method_class
from ..errors import ArgumentError, ArgumentTypeError, ClusterError, DivergenceWarning
from ..problems import Problem
from ..results import recipe, sweeps
from ..value_objects import given_fields
from .jobs import RunOptions
from .ray_tasks import OTHER_VERSION, RayTasks
from .schedule import expected_updates
from .simulation import run_grid, warn_of_divergence

LENGTH = "local_steps"  # an option of every method: of one with random lengths, the mean number of steps


def sweep(
    problem: Problem | Mapping[str, Problem],
    algorithm: Algorithm | str | type[Algorithm] | Sequence[str | type[Algorithm]],
    *,
    rounds: int = 500,
    seeds: int | Iterable[int] = 10,
    ray: str | None = None,
    **options: Any,
) -> xr.Dataset:
    """Run a method with every combination of some of its options; the runs share the machine and the random numbers.

    problem : one, or several by name (dimension "problem")
    algorithm : the class of a method such as fl.SCAFFLSA or its name, or a list of them (dimension "algorithm"); or a
        method whose settings hold where they are not swept
    options : of the method: step_size=[0.05, 0.1], local_steps=10, ...; a list becomes a dimension of that name, a
        value a scalar coordinate. `local_steps` is for every method: of Scaffnew, the mean number of steps in a round.
        And theta_0, xi_0, sampling, engine, record, keep, dtype, threads, progress as in `simulate`, for all runs alike
    rounds : one number for all; a long run holds the shorter ones, `s.sel(rounds=...)`
    ray : the address of a Ray cluster that shares the runs out, or "local" for one on this machine; a task has
        `threads` threads, by default one
    seeds : as in `simulate`

    Returns a dataset like that of `simulate` with the swept options as dimensions in front: `s.sel(step_size=0.1)`,
    `s.squared_error.mean("seed").plot(...)`, `s.to_dataframe()`. Each run has the bits that `simulate` alone gives
    (`fl.results.runs(s)`), and `fl.sweep(**fl.results.arguments(s))` makes all of it again.

    >>> p = fl.problems.garnet(agents=4, seed=1)
    >>> s = fl.sweep(p, fl.SCAFFLSA, step_size=[0.05, 0.1], local_steps=[1, 10, 100], rounds=20, seeds=3)
    >>> dict(s.squared_error.sizes)
    {'step_size': 2, 'local_steps': 3, 'seed': 3, 'rounds': 21}
    >>> float(s.samples.sel(step_size=0.1, local_steps=100, seed=0, rounds=20))
    2000.0
    """
    given = {f.name: options.pop(f.name) for f in fields(RunOptions) if f.name in options}
    if ray is not None:
        given.setdefault("threads", 1)
    run = RunOptions(seeds, **given)
    named = _problems(problem, run.keep)
    if isinstance(algorithm, Algorithm):  # its settings are those that are not swept
        settings = given_fields(algorithm)
        if LENGTH in options:
            settings.pop(algorithm.length, None)
        algorithm, options = type(algorithm), settings | options
    kinds = _classes(algorithm)
    axes = {name: _values(name, value) for name, value in options.items()}
    places = [dict(zip(axes, at, strict=True)) for at in product(*(sweeps.listed(values) for values in axes.values()))]
    for kind in kinds:
        _check_options(kind, axes)
    algorithms = [_make(kind, at) for kind in kinds for at in places]
    if checks.is_sequence(rounds):
        raise ArgumentTypeError(f"rounds must be one number for all runs of a sweep; got {checks.show(rounds)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)  # one warning for all, below
        if ray is None:
            runs = run_grid(list(named.values()), algorithms, rounds, run)
        else:
            runs = _on_a_cluster(ray, [(p, a) for p in named.values() for a in algorithms], rounds, run)
    several = {"problem": list(named)} if isinstance(problem, Mapping) else {}
    out = sweeps.stack(runs, {**several, "algorithm": kinds if checks.is_sequence(algorithm) else kinds[0], **axes})
    pairs = [(p, a) for p in named.values() for a in algorithms]
    warn_of_divergence(pairs, run.sampling, runs, [name for name in named for _ in algorithms])
    return out


def _on_a_cluster(
    address: str, pairs: Sequence[tuple[Problem, Algorithm]], rounds: int, run: RunOptions
) -> list[xr.Dataset]:
    """Each run is a task; they are handed back in the order of the pairs."""
    checks.instance("ray", address, str | None, "text or None")
    report, run = run.progress, replace(run, progress=None)
    tasks = RayTasks(address, run.threads)
    times = checks.integer("rounds", rounds, at_least=1) * len(run.seeds)
    work = [expected_updates(a, run.sampling, p.n_agents) * times for p, a in pairs]
    runs: dict[int, xr.Dataset] = {}

    def tick(_: int) -> None:
        if report is not None:
            report(sum(work[i] for i in runs), sum(work))

    calls = [(p, [a], rounds, run) for p, a in pairs]
    for i, (found,) in tasks(run_grid, calls, tick, list({id(p): p for p, _ in pairs}.values())):
        if recipe.value(found.attrs["versions"])["fedlsa"] != recipe.versions()["fedlsa"]:
            raise ClusterError(OTHER_VERSION)
        runs[i] = found
        tick(i)
    return [runs[i] for i in range(len(pairs))]


def _problems(problem: Any, keep: Sequence[str]) -> dict[str, Problem]:
    if isinstance(problem, Problem):
        return {"": problem}
    rule = "a fedlsa problem, or a mapping of names to problems"
    checks.instance("problem", problem, Mapping, rule)
    for name, each in problem.items():
        checks.instance("a name of problem", name, str, "text")
        checks.instance(f"problem[{name!r}]", each, Problem, "a fedlsa problem")
    if not problem:
        raise ArgumentError(f"problem must be {rule}; got none")
    for what in keep:
        for quantity in ("dim",) if what == "theta" else ("dim", "n_agents"):
            sizes = sorted({getattr(each, quantity) for each in problem.values()})
            if len(sizes) > 1:
                raise ArgumentError(f"problem must have one {quantity} where {what} is kept; got {sizes}: keep=()")
    return dict(problem)


def _classes(algorithm: Any) -> list[type[Algorithm]]:
    several = checks.entries("algorithm", algorithm, "classes") if checks.is_sequence(algorithm) else [algorithm]
    if not several or any(isinstance(each, Algorithm) for each in several):
        rule = "a method's class such as fl.SCAFFLSA, whose options are arguments of sweep, or a list of classes"
        raise ArgumentTypeError(f"algorithm must be {rule}; got {checks.show(algorithm)}")
    kinds = [method_class("algorithm", each) for each in several]
    _refuse_twins("algorithm", kinds)
    return kinds


def _values(name: str, value: Any) -> Any:
    """The values of an option: a list where it is swept."""
    if not checks.is_sequence(value):
        return _plain(value)
    values = [_plain(each) for each in checks.entries(name, value, "a value or a list")]
    if not values:
        raise ArgumentError(f"{name} must be a value or a list with at least one; got an empty one")
    _refuse_twins(name, values)
    return values


def _plain(value: Any) -> Any:
    """Numbers of NumPy and xarray as Python's own."""
    return value.item() if isinstance(value, (np.generic, np.ndarray, xr.DataArray)) and value.size == 1 else value


def _refuse_twins(name: str, values: Sequence[Any]) -> None:
    labels = sweeps.labels(values)
    twins = [each for each in labels if labels.count(each) > 1]
    if twins:
        raise ArgumentError(f"{name} must hold distinct values; got {twins[0]!r} more than once")


def _check_options(kind: type[Algorithm], given: Iterable[str]) -> None:
    """Every option is one of the method's, and none that it needs is missing."""
    known = {f.name: f for f in fields(kind)}
    stands_in = {LENGTH: kind.length} if LENGTH not in known and kind.length else {}
    for name in given:
        checks.choice(f"an option of {kind.__name__}", name, (*known, *stands_in))
    has = {*given, *(stands_in[name] for name in given if name in stands_in)}
    for name, f in known.items():
        if f.init and f.default is MISSING and f.default_factory is MISSING and name not in has:
            raise ArgumentError(f"{name} must be given for {kind.__name__}, a value or a list of values; got none")


def _make(kind: type[Algorithm], options: dict[str, Any]) -> Algorithm:
    if LENGTH in options and LENGTH not in {f.name for f in fields(kind)}:
        steps = checks.integer(LENGTH, options[LENGTH], at_least=1)
        return kind.with_steps(local_steps=steps, **{k: v for k, v in options.items() if k != LENGTH})
    return kind(**options)
