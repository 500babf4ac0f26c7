"""What theory says about a result: the drift, ||bias||^2, at which FedLSA must stall."""

from __future__ import annotations

import math
import warnings

import xarray as xr

from .. import results, theory
from ..algorithms import Algorithm, FedLSA
from ..checks import Floats
from ..errors import ArgumentError, TheoryWarning
from ..problems import Problem
from ..results import recipe
from ..sampling import IID, Sampling


def predicted_bias(result: xr.Dataset, problem: Problem | None = None) -> float:
    """||bias||^2 of FedLSA (th:2nd_moment_no_cv) for the setting of a result; NaN where the theorem does not speak.

    It speaks of FedLSA with a constant step and independent observations whose mean recursion is stable; agents that
    do not take part do not change the mean as long as all weigh the same.
    problem : needed only if the result cannot hold it
    """
    recipe.require_result("result", result)
    try:
        run = results.arguments(result, problem=problem)
    except ArgumentError:
        if problem is not None:
            raise
        return math.nan  # a large problem, or a method from elsewhere
    return level(run["problem"], run["algorithm"], run["sampling"])


def level(p: Problem, a: Algorithm, sampling: Sampling) -> float:
    """||bias||^2 of a method on a problem, NaN where the theorem does not speak."""
    bias = limit_bias(p, a) if isinstance(sampling, IID) else None
    return math.nan if bias is None else float(bias @ bias)


def limit_bias(p: Problem, a: Algorithm) -> Floats | None:
    """The limit bias (d,) of FedLSA with independent observations; None where the theorem does not speak."""
    if not isinstance(a, FedLSA) or not isinstance(a.step_size, float) or a.projection is not None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error", TheoryWarning)
        try:
            return theory.bias(p, a.step_size, a.local_steps)
        except TheoryWarning:
            return None
