"""Runs on trajectories whose skipping is named, not numbered: the kinds of cells behind `markov`.

A setting "skip" is "none" (q = 1), "tau_mix" (the longest mixing time of the agents' chains) or "theorem"
(eq:q_block_size); its number follows from the problem when the cell is computed, so that listing cells costs nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import xarray as xr

from .. import engine, problems, theory
from ..algorithms import METHODS, Algorithm
from ..errors import TheoryWarning
from ..problems import Problem
from ..sampling import Markov

Settings = Mapping[str, Any]


def _method(name: str, step_size: float, local_steps: int) -> Algorithm:
    chosen = {"step_size": step_size, "local_steps": local_steps}
    return METHODS[name](**chosen)  # type: ignore[arg-type]


def block(p: Problem, method: str, step_size: float, updates: int, rounds: int, epsilon: float) -> int:
    """q of cor:sample_complexity_lsa_Markov where a round makes a given number of updates, so that H = updates q.

    q depends on H through a logarithm: the least q that is its own block is found by substituting it again and again.
    """
    q = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TheoryWarning)
        while True:
            found = theory.markov_block(p, _method(method, step_size, updates * q), rounds, epsilon).q
            if found <= q:
                return q
            q = found


def skipping(p: Problem, settings: Settings) -> int:
    """The number q that a cell's "skip" stands for."""
    if settings["skip"] == "none":
        return 1
    if settings["skip"] == "tau_mix":
        return int(theory.mixing_times(p)[p.assignment].max())
    assert settings["skip"] == "theorem"
    return block(
        p,
        settings["method"],
        settings["step_size"],
        settings["updates"],
        settings["planned_rounds"],
        settings["epsilon"],
    )


def _made(settings: Settings) -> tuple[Problem, Algorithm, int]:
    p = problems.garnet(**settings["problem"])
    q = skipping(p, settings)
    return p, _method(settings["method"], settings["step_size"], settings["updates"] * q), q


def simulated(settings: Settings, how: Mapping[str, Any], report: Callable[[float, float], None] | None) -> xr.Dataset:
    """A simulation of algo:fed-lsa-markov; the result holds q."""
    p, a, q = _made(settings)
    found = engine.simulate(
        p,
        a,
        rounds=settings["rounds"],
        seeds=settings["seeds"],
        sampling=Markov(thin=q),
        record=settings["record"],
        progress=report,
        **how,
    )
    return found.assign(q=((), q))


def exact(settings: Settings, how: Mapping[str, Any], report: Any) -> xr.Dataset:
    """The exact error curve on trajectories; the result holds q."""
    p, a, q = _made(settings)
    found = theory.exact(p, a, rounds=settings["rounds"], record=settings["record"], sampling=Markov(thin=q))
    return found.assign(q=((), q))
