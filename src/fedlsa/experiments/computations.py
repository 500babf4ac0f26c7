"""What the kinds of cells that many experiments share compute: runs, exact curves, limits and laws.

A setting "problem" holds a family of problems and its arguments; "method" and its parameters make the algorithm. A
setting "skip" makes observations come from trajectories, of which one in q is used: it is q, or "tau_mix" (the longest
mixing time of the agents' chains), or "theorem" (eq:q_block_size). These follow from the problem when the cell is
computed, so that listing cells costs nothing; a round then makes "updates" updates and takes q times as many steps.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from .. import engine, problems, theory
from ..algorithms import METHODS, Algorithm, FedLSA
from ..checks import Floats
from ..errors import TheoryWarning
from ..problems import Problem
from ..sampling import IID, Markov, Sampling
from .cells import Cell, computes

Settings = Mapping[str, Any]
How = Mapping[str, Any]
GARNET = "garnet"  # the paper's family
ROUND_LENGTHS = ("local_steps", "probability")  # settings of a method


def problem(settings: Settings) -> Problem:
    """The problem of a cell; cells of one problem share it while it is in use.

    Its setting "problem" holds a "family" (`problems.FAMILIES`; a Garnet where it says none) and its arguments. It may
    hold "copies": each agent that is drawn then stands for that many, which changes N and nothing else. And
    "first_feature": by that factor the first feature is smaller, which lowers a and nu and leaves the other constants
    nearly as they are.
    """
    return _problem(json.dumps(settings["problem"], sort_keys=True))


@functools.lru_cache(maxsize=8)
def _problem(description: str) -> Problem:
    arguments = json.loads(description)
    copies, factor = arguments.pop("copies", 1), arguments.pop("first_feature", 1)
    if copies > 1:
        arguments["assignment"] = np.tile(np.arange(arguments["agents"]), copies)
    p = problems.make(arguments.pop("family", GARNET), **arguments)
    if factor == 1:
        return p
    scale = np.append(factor, np.ones(p.dim - 1))
    tables = [(p.prob[span], *p.observations.matrices(span)) for span in p.spans()]
    smaller = [(prob, scale[:, None] * A * scale, b * scale) for prob, A, b in tables]
    return problems.from_observations(smaller, assignment=p.assignment)


def run_of(settings: Settings) -> tuple[Problem, Algorithm, Sampling]:
    """The problem, the method and the sampling of a cell."""
    p, method, eta = problem(settings), METHODS[settings["method"]], settings["step_size"]
    if "skip" not in settings:
        return p, method(step_size=eta, **{k: settings[k] for k in ROUND_LENGTHS if k in settings}), IID()
    q = skipping(p, settings)
    return p, method.with_steps(eta, settings["updates"] * q), Markov(thin=q)


def skipping(p: Problem, settings: Settings) -> int:
    """The number q that a cell's "skip" stands for.

    The theorem's q depends on H = updates q through a logarithm: the least q that is its own block is found by
    substituting it again and again (cor:sample_complexity_lsa_Markov).
    """
    if settings["skip"] == "tau_mix":
        return int(theory.mixing_times(p)[p.assignment].max())
    if settings["skip"] != "theorem":
        return int(settings["skip"])
    q, block, method = 0, 1, METHODS[settings["method"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TheoryWarning)
        while block > q:
            q = block
            a = method.with_steps(settings["step_size"], settings["updates"] * q)
            block = theory.markov_block(p, a, settings["planned_rounds"], settings["epsilon"], p.theta_star + 1).q
    return q


def _bias(p: Problem, a: FedLSA) -> Floats:
    assert isinstance(a.step_size, float)
    return theory.bias(p, a.step_size, a.local_steps)


@computes("simulate")
def simulated(settings: Settings, how: How) -> xr.Dataset:
    """A simulation from theta_star + 1, as the authors' are; "start": "limit" begins at theta_star plus the limit bias,
    with the ideal control variates."""
    p, a, sampling = run_of(settings)
    start: dict[str, Any] = {"theta_0": p.theta_star + 1}
    if settings.get("start") == "limit":
        start = (
            {"theta_0": p.theta_star + _bias(p, a)}
            if isinstance(a, FedLSA)
            else {"theta_0": p.theta_star, "xi_0": p.xi_star}
        )
    run = {"rounds": settings["rounds"], "seeds": settings["seeds"], "record": settings["record"]}
    return _with_q(engine.simulate(p, a, sampling=sampling, **run, **start, **how), sampling)


@computes("exact")
def exact(settings: Settings, how: How) -> xr.Dataset:
    """The exact error curve, with theta_star and, for FedLSA, the limit bias."""
    p, a, sampling = run_of(settings)
    run = {"rounds": settings["rounds"], "record": settings["record"], "theta_0": p.theta_star + 1}
    curve = theory.exact(p, a, sampling=sampling, **run)
    curve = curve.assign(theta_star=("dim", p.theta_star))
    if isinstance(a, FedLSA) and isinstance(sampling, IID):
        curve = curve.assign(bias=("dim", _bias(p, a)))
    return _with_q(curve, sampling)


def _with_q(result: xr.Dataset, sampling: Sampling) -> xr.Dataset:
    return result.assign(q=((), sampling.thin)) if isinstance(sampling, Markov) else result


@computes("limit")
def limit(settings: Settings, how: How) -> xr.Dataset:
    """The stationary law without its radius: mse, its drift and noise, mean and covariance."""
    p, a, _ = run_of(settings)
    end = theory.stationary(p, a)
    values = {"mse": end.mse, "drift": end.drift, "noise": end.noise}
    return _law(end.mean, end.covariance).assign({k: ((), v) for k, v in values.items()})


def _law(mean: Floats, covariance: Floats) -> xr.Dataset:
    return xr.Dataset({"mean": ("dim", mean), "covariance": (("dim", "other"), covariance)})


@computes("law")
def law(settings: Settings, how: How) -> xr.Dataset:
    """Exact mean (d,) and covariance (d, d) of theta after the last round."""
    (p, a, _), T = run_of(settings), settings["rounds"]
    end = theory.exact(p, a, rounds=T, record=[T], theta_0=p.theta_star + 1).isel(rounds=0)
    found = _law(end["mean"].values, end["covariance"].values).assign(theta_star=("dim", p.theta_star))
    return found.assign(bias=("dim", _bias(p, a))) if isinstance(a, FedLSA) else found


def scalars(**values: float) -> xr.Dataset:
    return xr.Dataset({name: ((), float(value)) for name, value in values.items()})


def updates(cell: Cell) -> float:
    """How many agent updates a cell makes: what its share of the progress is measured in."""
    if cell.kind != "simulate":
        return 0.0
    family = problems.FAMILIES[cell.columns.get("family", GARNET)]
    agents = cell.columns.get("agents", family.parameters["agents"].default) * cell.columns.get("copies", 1)
    length = 1 / cell["probability"] if "probability" in cell else cell["updates" if "skip" in cell else "local_steps"]
    return float(agents) * cell["rounds"] * length * cell["seeds"]
