"""Exact laws that claims compare with: the limit t -> infinity, and that of a run, to which simulations are held."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.stats

from ..checks import Floats
from .base import Scale
from .cells import Cell

LEVEL = 0.001  # at which simulations that are right are taken for wrong, over all comparisons of a claim


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


def p_values(theta: Floats, mean: Floats, covariance: Floats) -> tuple[float, float]:
    """How likely simulated parameters, (seed, dim), are under a normal law with exact moments: mean and spread.

    The first is the squared distance of the mean over seeds, the second the sum of the squared distances of the seeds,
    both in units of the covariance: chi-square variables with d and n d degrees of freedom. The squared error
    ||theta - theta_star||^2 itself would lose most of that: it hardly sees any direction but the noisiest.
    """
    n, d = theta.shape
    away = np.linalg.solve(np.linalg.cholesky(covariance), (theta - mean).T)
    shift, spread = n * np.sum(away.mean(axis=1) ** 2), np.sum(away**2)
    tails = scipy.stats.chi2.cdf(spread, n * d), scipy.stats.chi2.sf(spread, n * d)
    return float(scipy.stats.chi2.sf(shift, d)), min(1.0, 2 * float(min(tails)))


def together(p: list[float]) -> float:
    """The least of several p-values, times their number (Bonferroni)."""
    return min(1.0, len(p) * float(np.min(p)))
