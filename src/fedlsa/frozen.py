"""Values: objects whose arrays cannot be written to, and that are equal where their numbers are.

What an object hands out is the object, so `t = p.theta_star; t += 1` must fail.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np

_T = TypeVar("_T")
SAMPLED = 16  # numbers of an array that its hash looks at: a hash must be cheap, equality looks at all of them


def frozen(value: Any) -> Any:
    """The value with every array in it read-only, also in tuples, lists and dictionaries.

    An array that owns its numbers is frozen itself, whoever holds it; a view of what others can write is copied.
    """
    if isinstance(value, np.ndarray):
        if not value.flags.writeable:
            return value
        if isinstance(value.base, np.ndarray) and value.base.flags.writeable:
            value = value.copy()
        value.flags.writeable = False
        return value
    if isinstance(value, Mapping):
        return {key: frozen(entry) for key, entry in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(frozen, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(frozen, value))
    return value


def same(one: Any, two: Any) -> bool:
    """Whether values are equal: arrays and sequences by their entries, whatever their types, and NaN equals NaN."""
    if one is two:
        return True
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        known = one.dtype.kind in "fc" and two.dtype.kind in "fc"  # where there may be NaN
        return np.array_equal(one, two) or (known and np.array_equal(one, two, equal_nan=True))
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        return False
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(same(value, two[key]) for key, value in one.items())
    if isinstance(one, (tuple, list)) and isinstance(two, (tuple, list)):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two) or (_is_nan(one) and _is_nan(two))


def _is_nan(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and bool(value != value)


def _gist(value: Any) -> Hashable:
    """Something to hash, which is equal for values that are the `same`."""
    if isinstance(value, np.ndarray):
        few = value.flat[:: max(1, value.size // SAMPLED)]
        return value.shape, _gist((few.astype(np.float64) if few.dtype.kind in "biuf" else few).tolist())
    if isinstance(value, Mapping):
        return frozenset((key, _gist(entry)) for key, entry in value.items())
    if isinstance(value, (tuple, list)):
        return tuple(map(_gist, value))
    try:
        return None if _is_nan(value) else hash(value)  # each NaN has a hash of its own
    except TypeError:
        return None


class ReadOnly:
    """Base of frozen dataclasses (with eq=False) that are values: equal and with equal hashes where their fields are.

    Their arrays are read-only from the start, and in copies and after unpickling too.
    """

    def __post_init__(self) -> None:
        self.__setstate__(vars(self))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_hash"}  # another in each process

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: frozen(value) for name, value in state.items()})
        vars(self).pop("_hash", None)

    def _values(self) -> list[Any]:
        return [getattr(self, f.name) for f in fields(self) if f.compare]  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReadOnly) or type(self) is not type(other):
            return NotImplemented
        return self is other or same(self._values(), other._values())

    def __hash__(self) -> int:
        known = vars(self)
        if "_hash" not in known:
            known["_hash"] = hash((type(self), _gist(self._values())))
        return int(known["_hash"])


def frozen_property(function: Callable[[Any], _T]) -> cached_property[_T]:
    """A cached property whose arrays are read-only."""
    return cached_property(wraps(function)(lambda instance: frozen(function(instance))))
