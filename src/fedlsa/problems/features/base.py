"""What a feature map is: states in, rows of at most unit length out, and settings that make it again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError
from ..base import Integers


class FeatureMap(ABC):
    """A map from n states to features (n, d), with ||phi(s)|| <= 1 for every state (as assum:feature_design asks)."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """The number d of features."""

    @abstractmethod
    def __call__(self, states: ArrayLike) -> Floats:
        """Features (n, d) of n states."""

    def _room(self, states: int) -> None:
        """Refuse a batch whose features, with what they are computed from, would not fit into memory."""
        coordinates = len(getattr(self, "low", (0,)))
        checks.memory("the number of states", states, 8 * self.dim * coordinates, "their features")

    def settings(self) -> dict[str, Any]:
        """The map's name and fields as plain values, which JSON can hold and `from_settings` understands."""
        return {"name": type(self).__name__} | {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def numbered(states: ArrayLike, count: int, name: str = "states") -> Integers:
    """(n,) states that are numbers from 0 to count - 1; an array (n, 1) of them is one too."""
    given = checks.as_array(name, states)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    values = checks.array(name, given, ("n",))
    out = values.astype(np.int64)
    bad = (out != values) | (out < 0) | (out >= count)
    if bad.any():
        at = int(np.argmax(bad))
        raise ArgumentError(f"{name} must be integers from 0 to {count - 1}; got {values[at]:g} at [{at}]")
    return out


def box(low: Any, high: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The two corners of a box, k finite numbers each; plain numbers are a box of one dimension."""
    a = checks.array("low", np.atleast_1d(checks.as_array("low", low)), ("k",))
    b = checks.array("high", np.atleast_1d(checks.as_array("high", high)), (len(a),))
    if len(a) == 0:
        raise ArgumentError("low must hold one number per coordinate of a state; got none")
    if (b <= a).any():
        i = int(np.argmax(b <= a))
        raise ArgumentError(f"high must be above low; got {b[i]:g} against {a[i]:g} for coordinate {i}")
    return tuple(a.tolist()), tuple(b.tolist())


def unit(states: ArrayLike, low: Sequence[float], high: Sequence[float]) -> Floats:
    """(n, k) states clipped to the box and scaled to [0, 1]; (n,) is taken as one coordinate."""
    given = checks.as_array("states", states)
    if given.ndim == 1 and len(low) == 1:
        given = given[:, None]
    x = checks.array("states", given, ("n", len(low)))
    a, b = np.asarray(low), np.asarray(high)
    return np.asarray((np.clip(x, a, b) - a) / (b - a), np.float64)


def counts(name: str, value: Any, k: int) -> tuple[int, ...]:
    """A positive integer for each of k coordinates, or one for all."""
    if checks.is_sequence(value):
        rule = f"one integer, or one per coordinate ({k})"
        listed = checks.entries(name, value, rule)
        if len(listed) != k:
            raise ArgumentError(f"{name} must be {rule}; got {checks.show(value)}")
        return tuple(checks.integer(name, n, at_least=1) for n in listed)
    return (checks.integer(name, value, at_least=1),) * k
