"""The limit of every method as t goes to infinity, and the step size at which there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .. import checks
from ..algorithms import Algorithm, FedLSA, PowerStep
from ..checks import Floats
from ..errors import ArgumentError
from ..problems.base import Problem
from ..sampling import IID
from . import fedlsa, limits
from .exact import check_method, controlled_round
from .moments import Moments, moments


@dataclass(frozen=True)
class Stationary:
    """What theta tends to in law: mean, bias = mean - theta_star (d,), covariance (d, d), variance = its trace, mse.

    radius : the factor by which the slowest second moment shrinks in a round; at one or above, mse is infinite.
    """

    mean: Floats
    bias: Floats
    covariance: Floats
    variance: float
    mse: float
    radius: float


def stationary(problem: Problem | Moments, algorithm: Algorithm) -> Stationary:
    """The first two moments of the stationary law (FedLSA: th:2nd_moment_no_cv; control variates: no bias), i.i.d."""
    m, eta = _checked(problem, algorithm)
    if isinstance(algorithm, FedLSA):
        fed = fedlsa.round_map(m, eta, algorithm.local_steps, -m.xi_star, algorithm.participants(m.n_agents))
        u, second, size = fedlsa.limit(fed)
    else:
        settled = limits.limit(controlled_round(m, algorithm, eta))
        u, second, size = np.zeros(m.dim), settled.U, settled.radius
    if not size < 1:
        return Stationary(m.theta_star + u, u, second, np.inf, np.inf, size)
    covariance = second - np.outer(u, u)
    return Stationary(m.theta_star + u, u, covariance, float(np.trace(covariance)), float(np.trace(second)), size)


def radius(problem: Problem | Moments, algorithm: Algorithm) -> float:
    """The mean-square radius of a round: below one, second moments converge."""
    m, eta = _checked(problem, algorithm)
    if isinstance(algorithm, FedLSA):
        step = fedlsa.round_map(m, eta, algorithm.local_steps, -m.xi_star, algorithm.participants(m.n_agents))
        return fedlsa.limit(step)[2]
    return limits.radius(controlled_round(m, algorithm, eta))


def stability_limit(problem: Problem | Moments, algorithm: Algorithm, tolerance: float = 1e-6) -> float:
    """The step size at which the second moment of the method stops converging, to a relative tolerance.

    The algorithm's own step size is not used. 0 if no step size is found to be stable, infinity if all are.
    """
    tolerance = checks.real("tolerance", tolerance, above=0, below=1)
    m, _ = _checked(problem, algorithm)

    def unstable(eta: float) -> bool:
        with np.errstate(all="ignore"):
            try:
                return not radius(m, replace(algorithm, step_size=eta)) < 1
            except np.linalg.LinAlgError:
                return True

    size = float(np.linalg.norm(m.A_bar, 2, axis=(1, 2)).max())
    start = 1 / max(size, 1e-300)  # from here down, since tiny steps are stable by too little to tell
    low = high = start
    while unstable(low):
        low, high = low / 2, low
        if low < 1e-9 * start:
            return 0.0
    while low == high or not unstable(high):
        low, high = high, high * 2
        if high > 1e9 * start:
            return np.inf
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (low, middle) if unstable(middle) else (middle, high)
    return high


def _checked(problem: Problem | Moments, algorithm: Algorithm) -> tuple[Moments, float]:
    m = problem if isinstance(problem, Moments) else moments(problem)
    check_method(m, algorithm, IID())
    if isinstance(algorithm.step_size, PowerStep):
        raise ArgumentError(f"step_size must be constant for a stationary limit; got {algorithm.step_size}")
    if algorithm.average_after is not None:
        raise ArgumentError("average_after must be None: averages have no stationary law; got a round")
    return m, float(algorithm.step_size)
