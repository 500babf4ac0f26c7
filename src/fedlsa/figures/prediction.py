"""What theory says about a result: the squared bias at which FedLSA must stall."""

from __future__ import annotations

import math
import warnings

import xarray as xr

from .. import results, theory
from ..algorithms import Algorithm, FedLSA
from ..errors import ArgumentError, TheoryWarning
from ..problems import Problem
from ..sampling import IID, Sampling


def predicted_bias(result: xr.Dataset, problem: Problem | None = None) -> float:
    """||bias||^2 of FedLSA (th:2nd_moment_no_cv) for the setting of a result; NaN where the theorem does not speak.

    It speaks of FedLSA with a constant step and independent observations whose mean recursion is stable; agents that
    sit out do not change the mean as long as all weigh the same. problem : needed only if the result cannot hold it.
    """
    try:
        made = results.arguments(result, problem=problem)
    except ArgumentError:
        if problem is not None:
            raise
        return math.nan  # a large problem, or a method from elsewhere
    return level(made["problem"], made["algorithm"], made["sampling"])


def level(p: Problem, a: Algorithm, sampling: Sampling) -> float:
    """||bias||^2 of a method on a problem, NaN where the theorem does not speak."""
    if not isinstance(a, FedLSA) or not isinstance(a.step_size, float) or not isinstance(sampling, IID):
        return math.nan
    if a.projection is not None:
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error", TheoryWarning)
        try:
            bias = theory.bias(p, a.step_size, a.local_steps)
        except TheoryWarning:
            return math.nan
    return float(bias @ bias)
