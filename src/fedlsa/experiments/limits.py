"""Cells of the limit t -> infinity, and how far simulated errors may be from exact ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .base import Scale
from .cells import Cell

WITHIN = 4.5  # standard errors: of a hundred sound comparisons none is further off but once in a thousand


def settings_at(
    scale: Scale, method: str, agents: int, heterogeneous: bool, step_size: float, local_steps: int
) -> dict[str, Any]:
    """The settings of a place; one agent, or one local step, makes all methods FedLSA."""
    return {
        "problem": scale.garnet(agents, heterogeneous),
        "method": "fedlsa" if agents == 1 or local_steps == 1 else method,
        "step_size": step_size,
        "local_steps": local_steps,
    }


def limit_cell(scale: Scale, method: str, **place: Any) -> Cell:
    """The stationary law of a method at a place: agents, heterogeneous, step_size, local_steps."""
    return Cell("limit", settings_at(scale, method, **place))


def score(mean: float, expected: float, spread: float, seeds: int) -> float:
    """By how many standard errors the mean of squared errors over seeds is off its expectation.

    Squared errors are skewed: their cube root is nearly normal, if they are like a sum of squares of normal variables
    with that expectation and standard deviation `spread` (Wilson and Hilferty).
    """
    if not (math.isfinite(mean) and math.isfinite(expected)):
        return math.inf
    shape = seeds * (expected / spread) ** 2
    return float((np.cbrt(mean / expected) - 1 + 1 / (9 * shape)) * 3 * math.sqrt(shape))


def widest(squared_bias: float, variance: float) -> float:
    """The largest spread of a squared error whose mean and variance are known, but not the covariance."""
    v = max(variance, 1e-12 * squared_bias)
    return math.sqrt(2 * v * v + 4 * squared_bias * v)
