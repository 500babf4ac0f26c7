"""The limit of every method as t goes to infinity, and the step size at which there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs, gmres

from .. import checks
from ..algorithms import Algorithm, FedLSA, PowerStep
from ..checks import Floats
from ..errors import ArgumentError, FedLSAError
from ..problems.base import Problem
from ..sampling import IID
from . import controlled, fedlsa
from .exact import check_method, controlled_round
from .moments import Moments, moments

TOLERANCE = 1e-12
DENSE = 700  # second moments up to which a round is written out as a matrix


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
        step = fedlsa.round_map(m, eta, algorithm.local_steps, -m.xi_star, algorithm.participants(m.n_agents))
        u, second, radius = fedlsa.limit(step)
    else:
        u, second, radius = _controlled_limit(controlled_round(m, algorithm, eta))
    if not radius < 1:
        return Stationary(m.theta_star + u, u, second, np.inf, np.inf, radius)
    covariance = second - np.outer(u, u)
    return Stationary(m.theta_star + u, u, covariance, float(np.trace(covariance)), float(np.trace(second)), radius)


def radius(problem: Problem | Moments, algorithm: Algorithm) -> float:
    """The mean-square radius of a round: below one, second moments converge."""
    m, eta = _checked(problem, algorithm)
    if isinstance(algorithm, FedLSA):
        step = fedlsa.round_map(m, eta, algorithm.local_steps, -m.xi_star, algorithm.participants(m.n_agents))
        return fedlsa.limit(step)[2]
    return _radius(controlled_round(m, algorithm, eta))


def stability_limit(problem: Problem | Moments, algorithm: Algorithm, tolerance: float = 1e-6) -> float:
    """The smallest step size at which the second moment of the method no longer converges, to a relative tolerance.

    The algorithm's own step size is not used. 0 if no step size is stable, infinity if none is unstable below 2^40.
    """
    tolerance = checks.real("tolerance", tolerance, above=0, below=1)
    m, _ = _checked(problem, algorithm)

    def unstable(eta: float) -> bool:
        with np.errstate(all="ignore"):
            try:
                return not radius(m, replace(algorithm, step_size=eta)) < 1
            except np.linalg.LinAlgError:
                return True

    high = 2.0**-20 / max(float(np.linalg.norm(m.A_bar, 2, axis=(1, 2)).max()), 1e-300)
    if unstable(high):
        return 0.0
    for _ in range(60):
        low, high = high, high * 2
        if unstable(high):
            break
    else:
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


def _linear(step: controlled.Round) -> tuple[LinearOperator, int]:
    """The linear part of a round on the second moments of centred states of mean zero, as an operator on vectors."""
    K, d = len(step.P), step.moments.dim
    first = d + K * d  # the means stand in front, and are zero

    def apply(y: Floats) -> Floats:
        state = controlled.unflatten(np.concatenate([np.zeros(first), y.ravel()]), K, d)
        return controlled.advance(step, controlled.conserve(step.moments, state), 0.0).flat()[first:]

    size = d * d + 2 * K * d * d + (K * d) ** 2
    return LinearOperator((size, size), matvec=apply, dtype=np.float64), first


def _radius(step: controlled.Round) -> float:
    """The largest eigenvalue of the linear part on what keeps symmetry and sum_c w_c x_c = 0.

    The map takes positive matrices to positive matrices, so a positive one as start finds it.
    """
    if not np.isfinite(step.second).all():
        return np.inf
    K, d = len(step.P), step.moments.dim
    operator, first = _linear(step)
    if operator.shape[0] <= DENSE:
        matrix = np.stack([operator @ row for row in np.eye(operator.shape[0])], 1)
        return float(np.abs(np.linalg.eigvals(matrix)).max())
    one = replace(controlled.start(np.zeros(d), np.zeros((K, d))), U=np.eye(d), V=np.tile(np.eye(d), (K, 1, 1)))
    begin = controlled.conserve(step.moments, one).flat()[first:]
    try:
        largest = eigs(operator, k=1, v0=begin, ncv=20, tol=1e-5, maxiter=5, return_eigenvectors=False)
        return float(np.abs(largest).max())
    except ArpackNoConvergence:  # close eigenvalues: a power iteration gives the same number of digits
        y = begin / np.linalg.norm(begin)
        for _ in range(100):
            z = operator @ y
            size = float(np.linalg.norm(z))
            y = z / size
        return size


def _controlled_limit(step: controlled.Round) -> tuple[Floats, Floats, float]:
    """E[u] = 0, E[u u^T] and the radius: (I - linear part) y = noise, by GMRES."""
    K, d = len(step.P), step.moments.dim
    size = _radius(step)
    if not size < 1:
        return np.zeros(d), np.full((d, d), np.inf), size
    operator, first = _linear(step)
    noise = controlled.advance(step, controlled.start(np.zeros(d), np.zeros((K, d)))).flat()[first:]
    rest = LinearOperator(operator.shape, matvec=lambda y: y.ravel() - operator @ y, dtype=np.float64)
    y, failed = gmres(rest, noise, rtol=TOLERANCE, atol=0.0, restart=50, maxiter=40)
    if failed:
        raise FedLSAError(f"the stationary moments did not converge; the mean-square radius is {size:.8g}")
    state = controlled.unflatten(np.concatenate([np.zeros(first), y]), K, d)
    return np.zeros(d), (state.U + state.U.T) / 2, size
