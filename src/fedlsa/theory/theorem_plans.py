"""Plans by the explicit theorems, for dimensions in which exact moments are too large; they ask for far more rounds."""

from __future__ import annotations

import math
from collections.abc import Callable

from numpy.typing import ArrayLike

from ..errors import ArgumentError
from ..problems import Problem
from .bounds.base import start_distance
from .complexity import Complexity, complexity

CLOSE = 1.001  # ratio of accuracies at which a search for the best one ends


def for_accuracy(
    problem: Problem, method: str, epsilon: float, cap: float | None, theta_0: ArrayLike | None
) -> Complexity:
    """What the method's theorem asks for to promise epsilon; a cap on observations that it passes is an error."""
    found = complexity(problem, method, epsilon, theta_0)
    if cap is not None and found.samples > cap:
        raise ArgumentError(
            f"max_samples must be at least {found.samples}, which {found.bound.label} asks for at epsilon = "
            f"{epsilon:g}; got {cap:g}"
        )
    return found


def for_budget(
    problem: Problem, method: str, rounds: float, samples: float, theta_0: ArrayLike | None, named: str
) -> Complexity:
    """The best accuracy that the theorem promises within so many rounds and observations; named : the budget."""

    def within(found: Complexity) -> bool:
        return found.rounds <= rounds and found.samples <= samples

    high = start_distance(problem, theta_0)
    best = _affordable(lambda epsilon: complexity(problem, method, epsilon, theta_0), within, high)
    if best is None:
        budget = rounds if math.isfinite(rounds) else samples
        raise ArgumentError(f"{named} must be enough for the theorem to promise any gain at all; got {budget:g}")
    return best


def _affordable(
    at: Callable[[float], Complexity], within: Callable[[Complexity], bool], high: float
) -> Complexity | None:
    best = at(high)
    if not within(best):
        return None
    low = high / 2
    while within(found := at(low)):
        best, high, low = found, low, low / 2
    while high > CLOSE * low:
        middle = math.sqrt(low * high)
        if within(found := at(middle)):
            best, high = found, middle
        else:
            low = middle
    return best
