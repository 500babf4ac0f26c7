"""From settings to the problem: one description of the call serves to make it and to print it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..fitting import Fit, Regression, Value, fit, site_problem
from ..problems import FAMILIES, Problem, make
from .page_settings import OF_PROBLEM, Moves, PageSettings, column_name, split_moves, split_names

CONTROLLED = {"ring": {"ideal": True}}  # so that agents who differ by 0 do not drift, and noise 0 leaves no floor
Stamps = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Call:
    """A call of a function of fedlsa that makes a problem: fl.problems.garnet(agents=10, ...)."""

    function: str
    arguments: tuple[tuple[str, Any], ...]
    moves: Moves = ()

    def __str__(self) -> str:
        moved = f".moved({ {c: list(delta) for c, delta in self.moves} })" if self.moves else ""
        return f"fl.{self.function}({', '.join(f'{k}={_shown(v)}' for k, v in self.arguments)}){moved}"

    def problem(self) -> Problem:
        """The problem; the same object as long as nothing else is asked for and its files stay as they are."""
        files = next((v for k, v in self.arguments if k == "sites"), ())
        return _build(self, stamps(files))

    def fit(self) -> Fit:
        """The fit, where the call is one."""
        return fit(**self.plain())

    def plain(self) -> dict[str, Any]:
        """The arguments, by name."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in self.arguments}


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


def call(s: PageSettings, files: tuple[str, ...] = ()) -> Call:
    """How the problem of these settings is made; files : those of the sites, named by the user."""
    if s.problem in FAMILIES:
        known = FAMILIES[s.problem].parameters
        asked = {name: getattr(s, name) for name in OF_PROBLEM[s.problem]} | CONTROLLED.get(s.problem, {})
        if "low" in known:
            asked["low"], asked["high"] = _around(known["low"].default, known["high"].default, asked.pop("spread"))
            if asked["low"] == asked["high"]:  # logs of equal poles would differ: everybody has the same one
                asked |= {"agents": 1, "assignment": (0,) * asked["agents"]}
        changed = [(k, v) for k, v in asked.items() if k not in known or v != known[k].default]
        ordered = tuple(sorted(changed, key=lambda one: [*known, one[0]].index(one[0])))
        return Call(f"problems.{s.problem}", ordered, split_moves(s.moves))
    if not files:
        raise ArgumentError("files must hold one file per site, CSV or Parquet; got none yet")
    if s.task == "regression":
        if not s.target:
            raise ArgumentError("target must be the column to be explained; got none yet")
        task: Regression | Value = _regression(s)
    else:
        task = Value(s.discount, state=s.state, next_state=s.next_state)
    return Call("site_problem", (("sites", files), ("task", task), ("weight", s.weight)), split_moves(s.moves))


def fit_call(s: PageSettings, files: tuple[str, ...]) -> Call:
    """How the same files and columns are fitted; nothing is planned or run."""
    return Call("fit", (*call(s, files).arguments, ("plan", False)))


def _regression(s: PageSettings) -> Regression:
    """The chosen columns; categories among them make it a formula."""
    columns = [column_name(term) for term in split_names(s.columns)]
    if not any(text for _, text in columns):
        return Regression(s.target, tuple(name for name, _ in columns) or None, missing=s.missing)
    terms = [f"C({_quoted(name)})" if text else _quoted(name) for name, text in columns]
    return Regression(f"{_quoted(s.target)} ~ {' + '.join(terms)}", missing=s.missing)


def _quoted(name: str) -> str:
    """A column in a formula."""
    if "`" in name or (len(name) - len(name.rstrip("\\"))) % 2:
        rule = "columns must have no backtick in their names, nor a backslash at their end, beside categories"
        raise ArgumentError(f"{rule}; got {name!r}")
    return name if name.isidentifier() else f"`{name}`"


def _around(low: float, high: float, spread: float) -> tuple[float, float]:
    """The part `spread` of the range, about its middle."""
    middle = (low + high) / 2
    return round(middle + spread * (low - middle), 4), round(middle + spread * (high - middle), 4)


def _shown(value: Any) -> str:
    if isinstance(value, Regression):
        columns = "" if value.columns is None else f", columns={list(value.columns)!r}"
        missing = "" if value.missing == "error" else f", missing={value.missing!r}"
        return f"fl.Regression(target={value.target!r}{columns}{missing})"
    if isinstance(value, Value):
        columns = "".join(f", {k}={getattr(value, k)!r}" for k in ("state", "next_state") if getattr(value, k) != k)
        return f"fl.Value(discount={value.discount!r}{columns})"
    if isinstance(value, tuple):
        if set(value) == {0}:  # an assignment
            return f"[0] * {len(value)}"
        return repr([Path(v).name for v in value])
    return repr(value)


@lru_cache(maxsize=8)
def _build(call: Call, changed: Stamps) -> Problem:
    if call.moves:
        return _build(replace(call, moves=()), changed).moved(dict(call.moves))
    arguments, family = call.plain(), call.function.removeprefix("problems.")
    return make(family, **arguments) if family in FAMILIES else site_problem(**arguments)
