"""Cells of the complexity tables: plans by exact moments, what the theorems promise, and Scaffnew's lower bound.

A setting "problem" holds the arguments of `fl.problems.garnet`, and may hold "copies": then each of the agents that are
drawn stands for that many, which changes N and nothing else. It may hold "shrunk": by that factor the first feature is
smaller, which lowers a and nu and leaves the other constants nearly as they are.
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
from ..problems import Problem, RankOne

Settings = Mapping[str, Any]


@functools.lru_cache(maxsize=8)
def _garnet(arguments: tuple[tuple[str, Any], ...], copies: int, shrunk: float) -> Problem:
    held = dict(arguments)
    p = problems.garnet(**held, assignment=np.tile(np.arange(held["agents"]), copies))
    if shrunk == 1:
        return p
    scale = np.append(shrunk, np.ones(p.dim - 1))
    tables = [(p.prob[span], *p.observations.matrices(span)) for span in p.spans()]
    smaller = [(prob, scale[:, None] * A * scale, b * scale) for prob, A, b in tables]
    return problems.from_observations(smaller, assignment=p.assignment)


def problem(settings: Settings) -> Problem:
    """The Garnet problem of a cell, with copies of its agents and its first feature shrunk."""
    arguments = dict(settings["problem"])
    copies, shrunk = arguments.pop("copies", 1), arguments.pop("shrunk", 1)
    return _garnet(tuple(sorted(arguments.items())), copies, shrunk)


def _least_feature(settings: Settings) -> float:
    """nu, the smallest eigenvalue of an agent's E[phi phi^T] (assum:feature_design), with the first feature shrunk."""
    arguments = dict(settings["problem"])
    shrunk, plain = arguments.pop("shrunk", 1), problem({"problem": arguments})
    assert isinstance(plain.observations, RankOne)
    scale = np.append(shrunk, np.ones(plain.dim - 1))
    least = []
    for span in plain.spans():
        phi = plain.observations.rows[plain.observations.left[span]] * scale
        least.append(np.linalg.eigvalsh(phi.T @ (plain.prob[span, None] * phi))[0])
    return float(np.min(least))


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
        a=theory.constants(p).a_sym,
        nu=_least_feature(settings),
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
