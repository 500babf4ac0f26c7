"""Cells of the complexity tables: plans by exact moments, what the theorems promise, and Scaffnew's lower bound.

A setting "problem" holds the arguments of `fl.problems.garnet`, and may hold "copies": then each of the agents that are
drawn stands for that many, which changes N and nothing else.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from .. import problems, theory
from ..algorithms import Scaffnew
from ..errors import ArgumentError
from ..problems import Problem

Settings = Mapping[str, Any]


@functools.lru_cache(maxsize=8)
def _garnet(arguments: tuple[tuple[str, Any], ...], copies: int) -> Problem:
    held = dict(arguments)
    return problems.garnet(**held, assignment=np.tile(np.arange(held["agents"]), copies))


def problem(settings: Settings) -> Problem:
    """The Garnet problem of a cell, with copies of its agents."""
    arguments = dict(settings["problem"])
    copies = arguments.pop("copies", 1)
    return _garnet(tuple(sorted(arguments.items())), copies)


def planned(settings: Settings, how: Mapping[str, Any], report: object) -> xr.Dataset:
    """`fl.plan` for the accuracy "epsilon"; the method "synchronous" is FedLSA with one local step (row of Doan)."""
    p, epsilon = problem(settings), settings["epsilon"]
    if settings["method"] == "synchronous":
        found = theory.synchronous_plan(p, epsilon)
    else:
        found = theory.plan(p, epsilon, method=settings["method"])
    eta = found.algorithm.step_size
    assert isinstance(eta, float)
    return scalars(
        rounds=found.rounds,
        samples=found.samples,
        local_steps=found.samples / found.rounds,
        step_size=eta,
        rmse=found.rmse,
        bytes=found.bytes,
    )


def promised(settings: Settings, how: Mapping[str, Any], report: object) -> xr.Dataset:
    """What the method's theorem asks for (`fl.theory.complexity`); NaN where it does not speak of the problem."""
    try:
        found = theory.complexity(problem(settings), settings["method"], settings["epsilon"])
    except ArgumentError:
        return scalars(rounds=math.nan, samples=math.nan)
    return scalars(rounds=found.rounds, samples=found.samples)


def lower_bound_problem(agents: int) -> Problem:
    """The example of thm:no-speed-up-proxskip with a = 1: A(z) = I and b(z) = (b_c +- 1) (1, 1), here b_c = +-1."""
    A, u = np.stack([np.eye(2)] * 2), np.ones(2)
    tables = [([0.5, 0.5], A, np.stack([(b + 1) * u, (b - 1) * u])) for b in (1.0, -1.0)[:agents]]
    return problems.from_observations(tables, assignment=np.arange(agents) % 2)


def lower_bound(settings: Settings, how: Mapping[str, Any], report: object) -> xr.Dataset:
    """psi (all agents, at an iteration) and the server's MSE of Scaffnew in the example, after "iterations"."""
    method = Scaffnew(settings["step_size"], settings["probability"])
    last = settings["iterations"]
    found = theory.exact_iterations(lower_bound_problem(settings["agents"]), method, last, record=[0, last])
    return scalars(psi=float(found["psi"][-1]), mse=float(found["mse"][-1]))


def scalars(**values: float) -> xr.Dataset:
    """A dataset of numbers."""
    return xr.Dataset({k: ((), float(v)) for k, v in values.items()})
