"""The limit of every method as t goes to infinity, and the step size at which there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from .. import checks
from ..algorithms import Algorithm, FedLSA, PowerStep
from ..checks import Floats
from ..errors import ArgumentError
from ..problems.base import Problem
from ..sampling import IID
from . import fedlsa, limits, quiet, spectrum
from .controlled import Round
from .exact import check_method, controlled_round
from .moments import Moments, moments
from .spectrum import Spectrum

MANY, VERY_MANY = 24, 300  # groups from which frequencies are quicker than pairs: for the limit, for the radius


@dataclass(frozen=True, eq=False)
class Stationary:
    """What theta tends to in law: mean, bias = mean - theta_star (d,), covariance (d, d), variance = its trace, mse.

    radius : the factor by which the slowest second moment shrinks in a round; at one or above, mse is infinite. With
    many different agents it takes longer than the rest, so it is computed when it is asked for.
    """

    mean: Floats
    bias: Floats
    covariance: Floats
    variance: float
    mse: float
    _radius: Callable[[], float] = field(repr=False)

    @cached_property
    def radius(self) -> float:
        return self._radius()


def stationary(problem: Problem | Moments, algorithm: Algorithm) -> Stationary:
    """The first two moments of the stationary law (FedLSA: th:2nd_moment_no_cv; control variates: no bias), i.i.d."""
    m, eta = _checked(problem, algorithm)
    u, size = np.zeros(m.dim), None
    if isinstance(algorithm, FedLSA):
        u, second, size = _fedlsa_limit(m, algorithm, eta)
        stable = size < 1
    else:
        step = controlled_round(m, algorithm, eta)
        if len(m.table) > MANY and Spectrum.suits(step):
            found = Spectrum(step).limit()
            stable = found is not None
            second = np.full((m.dim, m.dim), np.inf) if found is None else found
        else:
            settled = limits.limit(step)
            second, size = settled.U, settled.radius
            stable = size < 1
    rate = (lambda: _radius_with_variates(step)) if size is None else (lambda: size)
    if not stable:
        return Stationary(m.theta_star + u, u, second, np.inf, np.inf, rate)
    covariance = second - np.outer(u, u)
    return Stationary(m.theta_star + u, u, covariance, float(np.trace(covariance)), float(np.trace(second)), rate)


def radius(problem: Problem | Moments, algorithm: Algorithm) -> float:
    """The mean-square radius of a round: below one, second moments converge."""
    m, eta = _checked(problem, algorithm)
    if isinstance(algorithm, FedLSA):
        return _fedlsa_limit(m, algorithm, eta)[2]
    return _radius_with_variates(controlled_round(m, algorithm, eta))


def _settles(m: Moments, algorithm: Algorithm, eta: float) -> bool:
    """Whether the radius is below one; with few enough control variates that is quicker to tell than what it is."""
    if isinstance(algorithm, FedLSA) or len(m.table) > VERY_MANY:
        return radius(m, algorithm) < 1
    return limits.settles(controlled_round(m, algorithm, eta))


def _fedlsa_limit(m: Moments, a: FedLSA, eta: float) -> tuple[Floats, Floats, float]:
    """What fedlsa.limit says; where nothing is random, from the mean of a round alone, in any dimension."""
    if quiet.suits(m, a):
        local = quiet.local_steps(m.A_bar[m.table], m.count * m.weight)
        return fedlsa.mean_limit(quiet.fedlsa_round(local, eta, a.local_steps, -m.xi_star[m.table]))
    return fedlsa.limit(fedlsa.round_map(m, eta, a.local_steps, -m.xi_star, a.taking_part(m.n_agents)))


def _radius_with_variates(step: Round) -> float:
    """By pairs of agents, or by frequency where there are too many pairs."""
    if len(step.P) > VERY_MANY and Spectrum.suits(step):
        return spectrum.radius(step)
    return limits.radius(step)


def stability_limit(problem: Problem | Moments, algorithm: Algorithm, tolerance: float = 1e-6) -> float:
    """The step size at which the second moment of the method stops converging, to a relative tolerance.

    The algorithm's own step size is not used. 0 if no step size is found to be stable, infinity if all are.
    """
    tolerance = checks.real("tolerance", tolerance, above=0, below=1)
    m, _ = _checked(problem, algorithm)

    def unstable(eta: float) -> bool:
        with np.errstate(all="ignore"):
            try:
                return not _settles(m, replace(algorithm, step_size=eta), eta)
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
