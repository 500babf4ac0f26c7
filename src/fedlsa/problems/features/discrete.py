"""Features of numbered states: one per state, or one per group of states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError
from .base import FeatureMap, numbered


@dataclass(frozen=True)
class OneHot(FeatureMap):
    """One feature per state: phi(s) is the unit vector of s, and d is the number of states less those in `without`.

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
        object.__setattr__(self, "states", S)
        object.__setattr__(self, "without", tuple(gone))

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


@dataclass(frozen=True)
class Aggregation(FeatureMap):
    """One feature per group of states: phi(s) is the unit vector of the group of s, and d the number of groups.

    groups : how many, for runs of neighbouring states as equal in length as can be; or the group of each state, from 0
    on without gaps, where -1 stands for a state without features
    """

    states: int
    groups: int | tuple[int, ...]

    def __post_init__(self) -> None:
        S = checks.integer("states", self.states, at_least=1)
        object.__setattr__(self, "states", S)
        if not checks.is_sequence(self.groups):
            object.__setattr__(self, "groups", checks.integer("groups", self.groups, at_least=1, at_most=S))
            return
        listed = checks.entries("groups", self.groups, f"the group of each of {S} states")
        held = tuple(checks.integer("groups", g, at_least=-1, at_most=S - 1) for g in listed)
        if len(held) != S:
            raise ArgumentError(f"groups must hold the group of each of {S} states; got {len(held)} entries")
        missing = sorted(set(range(max(held) + 1)) - set(held)) or ([0] if max(held) < 0 else [])
        if missing:
            raise ArgumentError(f"groups must be numbered from 0 without gaps; got none with number {missing[0]}")
        object.__setattr__(self, "groups", held)

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
