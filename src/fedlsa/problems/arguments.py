"""What constructors that take one tuple of arrays per table have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError
from .system import Integers


def tuples(name: str, value: Any, fields: Sequence[str], optional: int = 0) -> list[tuple[Any, ...]]:
    """A list with one tuple per table; the last `optional` fields may be missing."""
    form = f"({', '.join(fields)})"
    rule = f"a list of tuples {form}, one per table"
    if isinstance(value, Mapping):
        raise ArgumentTypeError(f"{name} must be {rule}; got {checks.show(value)}")
    out = []
    for m, entry in enumerate(checks.entries(name, value, rule)):
        if not isinstance(entry, (tuple, list)):
            raise ArgumentTypeError(f"{name}[{m}] must be a tuple {form}; got {checks.show(entry)}")
        if not len(fields) - optional <= len(entry) <= len(fields):
            raise ArgumentError(f"{name}[{m}] must be a tuple {form}; got {len(entry)} entries")
        out.append(tuple(entry))
    if not out:
        raise ArgumentError(f"{name} must hold at least one table; got an empty list")
    return out


def same_columns(name: str, tables: Sequence[Any]) -> None:
    """Refuse data frames whose columns differ or stand in another order: arrays are taken by position."""
    named = [(m, [str(c) for c in t.columns]) for m, t in enumerate(tables) if hasattr(t, "columns")]
    for m, columns in named:
        if columns != named[0][1]:
            rule = f"{name} must have the same columns in the same order in every table, {', '.join(named[0][1][:8])}"
            raise ArgumentError(f"{rule}; got {', '.join(columns[:8])} in table {m}")


def not_empty(name: str, shape: tuple[int, ...]) -> None:
    """A table has at least one outcome and at least one dimension."""
    if 0 in shape:
        raise ArgumentError(f"{name} must have at least one row and one column; got shape {shape}")


def offsets(lengths: Sequence[int]) -> Integers:
    """(M + 1,): where each of the tables begins when they stand one after the other."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def recipe(
    constructor: str, weights: ArrayLike | None, assignment: ArrayLike | None, arguments: dict[str, Any]
) -> dict[str, Any]:
    """The constructor's name and arguments, as given: a law that is normalised twice may differ in its last bit."""
    shared = {"weights": own(weights), "assignment": own(assignment)}
    return {"constructor": constructor, "arguments": arguments | shared}


def own(value: ArrayLike | None) -> NDArray[Any] | None:
    """A copy of an array, for the caller may change the original; None stays None."""
    return None if value is None else np.array(checks.as_array("an argument", value))
