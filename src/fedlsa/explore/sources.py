"""From settings to the problem: one description of the call serves to make it and to print it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..fit import Regression, Value, site_problem
from ..problems import Problem, cartpoles, garnet, lakes, ring
from .settings import Settings

RATES, LENGTHS = (0.34, 0.95), (0.2, 1.5)  # of lakes and poles that differ as much as those of the examples
GARNET: dict[str, Any] = {"agents": 100, "features": 8, "discount": 0.95, "heterogeneous": True, "perturbation": 0.02}
GARNET |= {"preset": "paper", "seed": 42}  # the defaults of fl.problems.garnet
FUNCTIONS: dict[str, Callable[..., Problem]] = {
    "problems.ring": ring,
    "problems.garnet": garnet,
    "problems.lakes": lakes,
    "problems.cartpoles": cartpoles,
    "site_problem": site_problem,
}
PREFIXES = ("state", "next_state")

Stamps = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Call:
    """A call of a function of fedlsa that makes a problem: fl.problems.garnet(agents=10, ...)."""

    function: str
    arguments: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return f"fl.{self.function}({', '.join(f'{k}={_shown(v)}' for k, v in self.arguments)})"

    def problem(self) -> Problem:
        """The problem; the same object as long as nothing else is asked for and its files stay as they are."""
        files = next((v for k, v in self.arguments if k == "sites"), ())
        return _made(self, stamps(files))


def stamps(files: Sequence[str]) -> Stamps:
    """When each file was written, and its length; zeros where there is none, of which its reader complains."""
    found = []
    for file in files:
        try:
            known = os.stat(file)
            found.append((known.st_mtime_ns, known.st_size))
        except OSError:
            found.append((0, 0))
    return tuple(found)


def call(s: Settings, files: tuple[str, ...] = ()) -> Call:
    """How the problem of these settings is made; files : those of the sites, named by the user."""
    if s.problem == "ring":
        return _call("problems.ring", {"agents": s.agents, "spread": s.spread, "noise": s.noise})
    if s.problem == "garnet":
        asked = {name: getattr(s, name) for name in GARNET}
        return _call("problems.garnet", {k: v for k, v in asked.items() if v != GARNET[k]})
    if s.problem == "lakes":
        low, high = _around(*RATES, s.spread)
        return _call("problems.lakes", {"agents": s.agents, "low": low, "high": high, "discount": s.discount})
    if s.problem == "cartpoles":
        low, high = _around(*LENGTHS, s.spread)
        return _call("problems.cartpoles", {"agents": s.agents, "low": low, "high": high, "discount": s.discount})
    if not files:
        raise ArgumentError("files must hold one file per site, CSV or Parquet; got none yet")
    if s.task == "regression":
        if not s.target:
            raise ArgumentError("target must be the column to be explained; got none yet")
        task: Regression | Value = Regression(target=s.target)
    else:
        task = Value(s.discount, state=s.state, next_state=s.next_state)
    return _call("site_problem", {"sites": files, "task": task, "weight": s.weight})


def _call(function: str, arguments: Mapping[str, Any]) -> Call:
    return Call(function, tuple(arguments.items()))


def _around(low: float, high: float, spread: float) -> tuple[float, float]:
    """The part `spread` of the range, about its middle."""
    middle = (low + high) / 2
    return round(middle + spread * (low - middle), 4), round(middle + spread * (high - middle), 4)


def _shown(value: Any) -> str:
    if isinstance(value, Regression):
        return f"fl.Regression(target={value.target!r})"
    if isinstance(value, Value):
        columns = "".join(f", {k}={getattr(value, k)!r}" for k in PREFIXES if getattr(value, k) != k)
        return f"fl.Value(discount={value.discount!r}{columns})"
    if isinstance(value, tuple):
        return repr([Path(v).name for v in value])
    return repr(value)


@lru_cache(maxsize=8)
def _made(call: Call, changed: Stamps) -> Problem:
    return FUNCTIONS[call.function](**{k: list(v) if isinstance(v, tuple) else v for k, v in call.arguments})
