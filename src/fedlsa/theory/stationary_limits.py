"""The limit of every method as t goes to infinity, and the step size at which there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from .. import checks
from ..algorithms import Algorithm, FedLSA, PowerStep
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..problems import Problem
from ..sampling import IID
from ..value_objects import Displayed, ReadOnly
from . import agent_limits, tuning
from .bias_terms import limit_bias
from .exact_curves import checked_method, round_length
from .linear import bracket, crossing, not_negative, smat
from .problem_moments import Moments, merged, moments
from .rounds import AgentRound, ServerRound, groups_of, round_of
from .threads import small_products


@dataclass(frozen=True, eq=False, repr=False)
class Stationary(Displayed, ReadOnly):
    """The law that theta tends to, by its first two moments.

    mean : (d,) of theta
    bias : (d,) mean - theta_star: FedLSA's limit bias; 0 with control variates
    covariance : (d, d) of theta
    variance : the trace of the covariance
    mse : mean squared error, drift + noise; infinite where second moments do not converge
    drift, noise : ||bias||^2 and the variance, to which those of `exact` tend; nothing is left of the start
    route : how the covariance was found: "linear system" or "means" (without control variates), "modes", "krylov" or
        "dense" (with them, agent_limits.py), or what shows that there is none: "mean" (it grows already) or "radius"
    error : the estimated relative error of the covariance: 1e-9 where a route allows it, more where none does or where
        steps that are tiny, or near the stability limit, lose digits; beyond 1e-6 (by the digits of the steps alone,
        1e-3) PrecisionError is raised
    stable : whether second moments converge
    radius : the factor by which the slowest second moment shrinks in a round. It takes longer than the rest, so it is
        computed when it is asked for
    """

    mean: Floats
    bias: Floats
    covariance: Floats
    variance: float
    mse: float
    route: str
    error: float
    _radius: Callable[[], float] = field(repr=False, compare=False)

    @property
    def drift(self) -> float:
        squared = float(self.bias @ self.bias)
        return math.inf if math.isnan(squared) else squared  # means that grow have no limit

    @property
    def noise(self) -> float:
        return self.variance

    @property
    def stable(self) -> bool:
        return math.isfinite(self.mse)

    @cached_property
    def radius(self) -> float:
        found = self._radius()
        if (found < 1) != self.stable:
            raise PrecisionError(
                f"the mean-square radius must be {'below' if self.stable else 'at least'} 1, as the limit by "
                f"{self.route} shows; got {found:.15g}: rounding hides it"
            )
        return found


@small_products
def stationary(problem: Problem | Moments, algorithm: Algorithm) -> Stationary:
    """The first two moments of the stationary law (FedLSA: th:2nd_moment_no_cv; control variates: no bias), i.i.d.

    problem : one of fl.problems, or its moments
    algorithm : the method, with its step size and local steps
    """
    m, algorithm, eta = _checked(problem, algorithm)
    u, rate, lost = np.zeros(m.dim), partial(radius, problem, algorithm), m.check_digits(eta)
    with np.errstate(over="ignore", invalid="ignore"):
        step = _round(problem, algorithm, eta)
        if isinstance(step, ServerRound):
            (u, covariance, error), route = step.limit, "means" if step.noise is None else "linear system"
            if type(algorithm) is FedLSA and np.isfinite(u).all():  # from differences of agents, which may be small
                u, off = limit_bias(m, eta, algorithm.local_steps)
                error = max(error, off)
        else:
            end = agent_limits.limit(step)
            covariance, error, route = end.U, end.error, end.route
    own, covariance = np.diagonal(covariance), covariance.copy()
    scale = m.rounding(u, m.xi_star[m.table], round_length(algorithm)) + tuning.SOLUTION_ERROR * abs(float(own.sum()))
    np.fill_diagonal(covariance, not_negative(own, scale, f"stationary variances by {route}"))
    variance = float(np.trace(covariance))
    bias, lost = float(u @ u) if math.isfinite(variance) else 0.0, max(lost, _rounding_grown(step, u, covariance))
    return Stationary(m.theta_star + u, u, covariance, variance, variance + bias, route, max(error, lost), rate)


@np.errstate(over="ignore", invalid="ignore")
def _rounding_grown(step: ServerRound | AgentRound, u: Floats, covariance: Floats) -> float:
    """The relative error of the covariance that rounding of a round makes; refused if large.

    Near the stability limit the covariance is many times what a round adds to it, and so is its error. If what n rounds
    add is at least 1 / c of the covariance in every direction, those n shrink it by 1 - 1 / c: errors grow n c-fold.
    """
    if not np.isfinite(covariance).all() or not covariance.any():
        return 0.0
    d, n, grown = len(u), 1.0, np.inf
    if isinstance(step, AgentRound):
        m = step.moments
        added = smat(m.count * m.weight**2 @ step.noise[..., -1], d) * step.stages.change[0] ** 2
        mean = np.eye(d) - step.stages.change[0] * np.tensordot(m.count * m.weight, step.Q @ step.A, 1)
    else:
        added, mean = smat(step.added(step.start(u)[:-1]), len(step.mean) - 1)[:d, :d], step.mean[:d, :d]
    while n < grown and np.isfinite(added).all() and (size := float(np.trace(added))) > 0:  # noise spreads as n doubles
        values, axes = np.linalg.eigh(added / size)
        axes = axes / np.sqrt(np.maximum(values, tuning.NOISE_DEFINITE))
        grown = min(grown, n * float(np.linalg.norm(axes.T @ (covariance / size) @ axes, 2)))
        added, mean, n = added + mean @ added @ mean.T, mean @ mean, 2 * n
    error = 4 * float(np.finfo(np.float64).eps) * grown if np.isfinite(grown) else 0.0  # all noise is that of x
    if error > tuning.MAX_ROUNDING_ERROR:
        rule = f"the covariance must be known to {tuning.MAX_ROUNDING_ERROR:g}, relative"
        raise PrecisionError(f"{rule}; got an error of {error:.1e} so near to the stability limit")
    return error


@small_products
def radius(problem: Problem | Moments, algorithm: Algorithm) -> float:
    """The mean-square radius of a round: below one, second moments converge.

    problem : one of fl.problems, or its moments
    algorithm : the method, with its step size and local steps
    """
    _, algorithm, eta = _checked(problem, algorithm)
    with np.errstate(over="ignore", invalid="ignore"):
        step = _round(problem, algorithm, eta)
        return step.radius if isinstance(step, ServerRound) else agent_limits.radius(step)


def _round(problem: Problem | Moments, a: Algorithm, eta: float) -> ServerRound | AgentRound:
    return round_of(groups_of(problem, a), a, eta)


def margin_at(problem: Problem | Moments, a: Algorithm, eta: float) -> float:
    """Above 0 where second moments of a method converge at a step size; it goes through 0 where they no longer do."""
    with np.errstate(all="ignore"):
        try:
            step = _round(problem, replace(a, step_size=eta), eta)
            if isinstance(step, ServerRound):
                return max(1 - step.radius, -1.0)
            try:
                return agent_limits.margin(step)
            except PrecisionError:  # on the edge itself there is no limit
                left = 1 - agent_limits.radius(step)
                return left if abs(left) > tuning.EDGE else 0.0
        except np.linalg.LinAlgError:
            return -1.0


@small_products
def stability_limit(problem: Problem | Moments, algorithm: Algorithm, tolerance: float = 1e-6) -> float:
    """The step size at which the second moment of the method stops converging, to a relative tolerance.

    problem : one of fl.problems, or its moments

    The algorithm's own step size is not used. 0 if no step size is found to be stable, infinity if all are. With one
    local step the stable step sizes are an interval. Otherwise they need not be: what is returned is the first change
    from stable to unstable among step sizes on a grid (four in each of the last three octaves), refined, so every step
    size of the grid below it is stable; an unstable window between two of them would be missed. Of more than 10
    different groups of agents the grid is that of a similar problem with 10. A tolerance below 1e-12 is taken as 1e-12.
    """
    tolerance = max(checks.real("tolerance", tolerance, above=0, below=1), tuning.STEP_SIZE_DIGITS)
    m, algorithm, _ = _checked(problem, algorithm)
    margin = lru_cache(maxsize=None)(partial(margin_at, problem, algorithm))
    size = float(np.linalg.norm(m.A_bar, 2, axis=(1, 2)).max())
    start, factor = 1 / max(size, 1e-300), 2.0  # from here down, since tiny steps are stable by too little to tell
    interval = getattr(algorithm, "local_steps", 0) == 1
    if algorithm.agent_factors(m.n_agents) is None and len(m.table) > tuning.SEARCHED_GROUPS:
        similar = stability_limit(merged(m, tuning.SEARCHED_GROUPS), algorithm, tuning.SCOUTED_STEP)
        if 0 < similar < math.inf:
            start, factor, interval = similar, 1 + tuning.SCOUTED_STEP, True
    low, high = bracket(margin, start, factor, start / tuning.STEP_SIZE_RANGE, start * tuning.STEP_SIZE_RANGE)
    if low and high < math.inf and not interval:
        low, high = _first_change(lambda eta: margin(eta) > 0, high, start / tuning.STEP_SIZE_RANGE)
    return crossing(margin, low, high, tolerance) if low and high < math.inf else high if low else 0.0


def _first_change(stable: Callable[[float], bool], high: float, least: float) -> tuple[float, float]:
    """The first neighbours on a grid up to `high`, which is unstable, that are stable and unstable."""
    while high > least:
        last = 0.0
        for eta in high * 2.0 ** (-np.arange(4 * 3, 0, -1) / 4):  # four in each of three octaves
            if not stable(float(eta)):
                high = float(eta)
                break
            last = float(eta)
        if last:
            return last, high
    return 0.0, 0.0


def _checked(problem: Problem | Moments, given: Any) -> tuple[Moments, Algorithm, float]:
    m = moments(problem)
    algorithm = checked_method(m, given, IID())
    if isinstance(algorithm.step_size, PowerStep):
        raise ArgumentError(f"step_size must be constant for a stationary limit; got {algorithm.step_size}")
    if algorithm.average_after is not None:
        raise ArgumentError("average_after must be None: averages have no stationary law; got a round")
    return m, algorithm, float(algorithm.step_size)
