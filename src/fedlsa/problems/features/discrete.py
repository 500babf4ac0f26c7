"""Features of numbered states: one per state, or one per group of states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError, ArgumentTypeError
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
        if not checks.is_sequence(self.without):
            raise ArgumentTypeError(f"without must be a list of states; got {checks.show(self.without)}")
        gone = sorted({checks.integer("without", s, at_most=S - 1) for s in self.without})
        if len(gone) == S:
            raise ArgumentError(f"without must leave at least one state; got all {S}")
        object.__setattr__(self, "states", S)
        object.__setattr__(self, "without", tuple(gone))

    @property
    def dim(self) -> int:
        return self.states - len(self.without)

    def __call__(self, states: ArrayLike) -> Floats:
        table = np.delete(np.eye(self.states), self.without, axis=1)
        return np.asarray(table[numbered(states, self.states)], np.float64)


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
        held = tuple(checks.integer("groups", g, at_least=-1) for g in self._listed())
        if len(held) != S:
            raise ArgumentError(f"groups must hold the group of each of {S} states; got {len(held)} entries")
        missing = sorted(set(range(max(held) + 1)) - set(held)) or ([0] if max(held) < 0 else [])
        if missing:
            raise ArgumentError(f"groups must be numbered from 0 without gaps; got none with number {missing[0]}")
        object.__setattr__(self, "groups", held)

    def _listed(self) -> Sequence[int]:
        return [] if isinstance(self.groups, int) else self.groups

    @property
    def dim(self) -> int:
        return self.groups if isinstance(self.groups, int) else max(self.groups) + 1

    def __call__(self, states: ArrayLike) -> Floats:
        if isinstance(self.groups, int):
            group = np.arange(self.states) * self.groups // self.states
        else:
            group = np.asarray(self.groups)
        table = np.vstack([np.eye(self.dim), np.zeros(self.dim)])  # group -1 is the last row
        return np.asarray(table[group[numbered(states, self.states)]], np.float64)
