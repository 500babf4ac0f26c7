"""What a log of transitions says of itself, beside its sums: how it was cut, what states it reached, what it weighs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...checks import Floats
from ...problems.system import Flags

SAME = 1e-6  # relative: a state and the same state in the next row may have been rounded


@dataclass(frozen=True, eq=False)
class LogFacts:
    """Of n consecutive transitions.

    terminated : how many ended the task; cut : how many were the last of their episode, for that or for truncation
    going_on : whether the last one was not
    states, following : (2, d) the least and the largest value of each feature, in the states that were left and in
        those that were entered, where the task did not end
    breaks : how many were not the last of their episode, and yet the next one does not begin in the state they led to
    mass, squares : sum of the importance weights and of their squares; n where there are none
    """

    n: int
    terminated: int
    cut: int
    going_on: bool
    states: Floats
    following: Floats
    breaks: int
    mass: float
    squares: float

    @classmethod
    def of(cls, phi: Floats, after: Floats, ended: Flags, cut: Flags, importance: Floats | None) -> LogFacts:
        """Of features before and after, (n, d) each, and of what the log says of each transition, (n,) each."""
        n, entered = len(phi), after[~ended] if ended.any() else after
        mass, squares = (n, n) if importance is None else (importance.sum(), importance @ importance)
        following = _range(entered) if len(entered) else np.full((2, phi.shape[1]), np.nan)
        apart = np.abs(after[:-1] - phi[1:]) > SAME * np.maximum(np.abs(after[:-1]), np.abs(phi[1:]))
        breaks = int(np.sum(apart.any(axis=1) & ~cut[:-1]))
        ends = int(ended.sum()), int(cut.sum()), not cut[-1]
        return cls(n, *ends, _range(phi), following, breaks, float(mass), float(squares))

    def __add__(self, later: LogFacts) -> LogFacts:
        """Of both, one after the other."""
        return LogFacts(
            self.n + later.n,
            self.terminated + later.terminated,
            self.cut + later.cut,
            later.going_on,
            _joint(self.states, later.states),
            _joint(self.following, later.following),
            self.breaks + later.breaks,  # between two pieces of a log nobody looks
            self.mass + later.mass,
            self.squares + later.squares,
        )

    @property
    def episodes(self) -> int:
        """In the log, the one that goes on at its end included."""
        return self.cut + self.going_on

    @property
    def effective_rows(self) -> float:
        """(sum of weights)^2 / (sum of their squares): how many rows of one weight would say as much."""
        return self.mass**2 / self.squares if self.squares > 0 else 0.0


def _range(x: Floats) -> Floats:
    return np.stack([x.min(axis=0), x.max(axis=0)])


def _joint(a: Floats, b: Floats) -> Floats:
    """The range of both; NaN stands for none."""
    return np.stack([np.fmin(a[0], b[0]), np.fmax(a[1], b[1])])
