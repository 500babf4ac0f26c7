"""A step that is repeated: many times at once by repeated squaring, or one by one up to the rounds that are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats

Step = TypeVar("Step")
State = TypeVar("State")


def repeat(step: Step, n: int, then: Callable[[Step, Step], Step]) -> Step:
    """n >= 1 times the same step in O(log n) compositions; then(a, b) : a, and after it b.

    Factor by factor, which for round numbers takes fewer compositions than digit by digit: 12 for 1000 instead of 14.
    """
    while n > 1:
        factor, twice = next((f for f in (2, 3, 5) if n % f == 0), n), then(step, step)
        step, n = then(repeat(twice, factor // 2, then), step) if factor > 2 else twice, n // factor
    return step


class Squares(Generic[Step]):
    """A step twice, four times, eight times, ...: as many as were asked for so far. For many numbers of repetitions."""

    def __init__(self, step: Step, then: Callable[[Step, Step], Step]) -> None:
        self._then, self._known = then, [step]

    def of(self, n: int) -> Iterator[Step]:
        """Those which, one after the other, are n steps."""
        for bit in range(n.bit_length()):
            if bit == len(self._known):
                self._known.append(self._then(self._known[-1], self._known[-1]))
            if n >> bit & 1:
                yield self._known[bit]


def powers_on(M: Floats, v: Floats, rounds: NDArray[np.int64]) -> Floats:
    """M^t v at the given rounds t, in increasing order : (R, n)."""
    squares, found = Squares(M, lambda a, b: b @ a), np.empty((len(rounds), len(v)))
    for i, gap in enumerate(np.diff(rounds, prepend=0).tolist()):
        short = gap < len(v) * gap.bit_length()  # products with a vector are less work than squares
        for power in [M] * gap if short else squares.of(gap):
            v = power @ v
        found[i] = v
    return found


def at_rounds(
    states: Iterable[State], rounds: NDArray[np.int64], show: Callable[[State], Sequence[Floats | float]]
) -> list[Floats]:
    """What `show` says at the given rounds, in increasing order : one array (R, ...) for each of its values.

    states : after 0, 1, 2, ... rounds; where they end the last one stays.
    """
    ahead, at, shown = iter(states), -1, []
    for t in rounds.tolist():
        for state in islice(ahead, t - at):
            now = state
        at = t
        shown.append(show(now))
    return [np.array(column) for column in zip(*shown, strict=True)]
