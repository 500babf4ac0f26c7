"""Arrays that cannot be written to: what an object hands out is the object, so `t = p.theta_star; t += 1` must fail."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

_T = TypeVar("_T")


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


class ReadOnly:
    """Base of frozen dataclasses: their arrays are read-only from the start, and after unpickling too."""

    def __post_init__(self) -> None:
        self.__setstate__(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: frozen(value) for name, value in state.items()})


class frozen_property(cached_property[_T]):
    """A cached property whose arrays are read-only."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        known = vars(instance)
        if self.attrname not in known:
            known[self.attrname] = frozen(self.func(instance))
        return known[self.attrname]
