"""What a feature map is: states in, rows of at most unit length out; and the maps of numbered states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError
from ...formatting import Settings
from ..system import Integers


class FeatureMap(Settings, ABC):
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


def counts(name: str, value: Any, k: int, what: str = "coordinate") -> tuple[int, ...]:
    """A positive integer for each of k coordinates, or one for all."""
    if checks.is_sequence(value):
        rule = f"one integer, or one per {what} ({k})"
        listed = checks.entries(name, value, rule)
        if len(listed) != k:
            raise ArgumentError(f"{name} must be {rule}; got {checks.show(value)}")
        return tuple(checks.integer(name, n, at_least=1) for n in listed)
    return (checks.integer(name, value, at_least=1),) * k


@dataclass(frozen=True, repr=False)
class OneHot(FeatureMap):
    """One feature per state: phi(s) is the unit vector of s, and d is the number of states less those in `without`.

    states : how many there are, numbered from 0
    without : states whose features are all 0, such as terminal states and states that are never visited: no
    observation begins there, so a parameter of their own could not be learnt
    """

    states: int
    without: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        S = checks.integer("states", self.states, at_least=1)
        listed = checks.entries("without", self.without, "a list of states")
        gone = sorted({checks.integer("without", s, at_most=S - 1) for s in listed})
        if len(gone) == S:
            raise ArgumentError(f"without must leave at least one state; got all {S}")
        vars(self).update(states=S, without=tuple(gone))

    @property
    def dim(self) -> int:
        return self.states - len(self.without)

    def __call__(self, states: ArrayLike) -> Floats:
        s = numbered(states, self.states)
        self._room(len(s))
        gone = np.asarray(self.without, np.int64)
        out = np.zeros((len(s), self.dim))
        seen = np.flatnonzero(~np.isin(s, gone))
        out[seen, s[seen] - np.searchsorted(gone, s[seen])] = 1
        return out


@dataclass(frozen=True, repr=False)
class Aggregation(FeatureMap):
    """One feature per group of states: phi(s) is the unit vector of the group of s, and d the number of groups.

    states : how many there are, numbered from 0
    groups : how many, for runs of neighbouring states as equal in length as can be; or the group of each state, from 0
    on without gaps, where -1 stands for a state without features
    """

    states: int
    groups: int | tuple[int, ...]

    def __post_init__(self) -> None:
        S = checks.integer("states", self.states, at_least=1)
        vars(self).update(states=S)
        if not checks.is_sequence(self.groups):
            vars(self).update(groups=checks.integer("groups", self.groups, at_least=1, at_most=S))
            return
        listed = checks.entries("groups", self.groups, f"the group of each of {S} states")
        held = tuple(checks.integer("groups", g, at_least=-1, at_most=S - 1) for g in listed)
        if len(held) != S:
            raise ArgumentError(f"groups must hold the group of each of {S} states; got {len(held)} entries")
        missing = sorted(set(range(max(held) + 1)) - set(held)) or ([0] if max(held) < 0 else [])
        if missing:
            raise ArgumentError(f"groups must be numbered from 0 without gaps; got none with number {missing[0]}")
        vars(self).update(groups=held)

    @property
    def dim(self) -> int:
        return self.groups if isinstance(self.groups, int) else max(self.groups) + 1

    def __call__(self, states: ArrayLike) -> Floats:
        s = numbered(states, self.states)
        self._room(len(s))
        group = s * self.groups // self.states if isinstance(self.groups, int) else np.asarray(self.groups)[s]
        out = np.zeros((len(s), self.dim))
        out[group >= 0, group[group >= 0]] = 1
        return out
