"""Where methods with control variates settle, and how fast: the fixed point of a round and its mean-square radius.

The map L of second moments takes positive matrices to positive ones. So whether a round settles is decided by one
linear system, X = L X + Q with a positive definite Q: its solution is positive definite where the radius is below one,
and is not where it is above (Perron and Frobenius: the left eigenvector l of the radius is positive, and
<l, X> (1 - radius) = <l, Q>). Each route to a solution states its error, and the next is tried where it is too large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import LinAlgError

from ..checks import Floats
from ..errors import PrecisionError
from . import krylov, tuning
from .linear import positive, refined, smat, svec, triangle
from .lyapunov import Lyapunov
from .pairs import PairMap

ROUTES = ("lyapunov", "krylov", "dense")  # the first is quickest by far, but for rounds of known length with all agents


@dataclass(frozen=True, eq=False)
class PairLimit:
    """The moments a round leaves as they are, as a vector of `step`; None where second moments do not converge.

    error : the estimated relative error of E[u u^T]; route : how it was found, one of ROUTES, or what shows that
    there is none: "mean" where the mean of a round grows already, "radius" where second moments grow fast.
    """

    step: PairMap
    vector: Floats | None
    error: float
    route: str

    @property
    def U(self) -> Floats:
        """E[u u^T] : (d, d), infinite where it does not converge."""
        d = self.step.shape[1]
        return np.full((d, d), np.inf) if self.vector is None else self.step.common(self.vector)[1]


def limit(step: PairMap, routes: Sequence[str] = ROUTES) -> PairLimit:
    """The fixed point of a round; routes : the ways to it that are tried, in this order."""
    source = step.advance(np.zeros(step.length)) if _finite(step) else np.zeros(step.length)
    if _mean_grows(step):
        return PairLimit(step, None, 0.0, "mean")
    own = np.linalg.eigvalsh(smat(step.parts(source)[1], step.shape[1]))
    definite = bool((own[:, 0] > tuning.NOISE_DEFINITE * own[:, -1]).all())
    if not definite and not settles(step, routes):
        return PairLimit(step, None, 0.0, routes[0])

    def decided(vector: Floats) -> bool | None:
        return _definite(step, vector) if definite else True

    vector, stable, error, route = _solved(step, source, routes, decided)
    return PairLimit(step, vector if stable else None, error, route)


def settles(step: PairMap, routes: Sequence[str] = ROUTES) -> bool:
    """Whether the mean-square radius is below one."""
    if _mean_grows(step):
        return False
    return _solved(step, _unit(step), routes, lambda vector: _definite(step, vector), tuning.STABILITY_GOAL)[1]


def radius(step: PairMap) -> float:
    """The factor by which second moments shrink in a round, in the long run; infinite where one round has none.

    It is the largest Ritz value of the space of a positive matrix, which holds it, once its residual is small.
    """
    if not _finite(step):
        return np.inf
    value, residual = krylov.radius(lambda v: step.advance(v, 0.0), _unit(step))
    if residual <= tuning.RADIUS_RESIDUAL * value:
        return value
    if step.length <= tuning.WRITTEN_OUT:
        return float(np.abs(np.linalg.eigvals(_matrix(step))).max())
    raise PrecisionError(
        f"the mean-square radius must be known to {tuning.RADIUS_RESIDUAL:g}, relative; got {value:.12g} with a "
        f"residual of {residual:.1e}"
    )


def _solved(
    step: PairMap,
    source: Floats,
    routes: Sequence[str],
    decided: Callable[[Floats], bool | None],
    goal: float = tuning.LIMIT_GOAL,
) -> tuple[Floats, bool, float, str]:
    """The X with X = L X + source by the first route that is accurate enough and decides, with its error and name."""
    tried, best = list[str](), None
    for route in routes:
        if not _SUITS[route](step):
            continue
        with np.errstate(all="ignore"):
            try:
                vector, error = _SOLVE[route](step, source, goal)
            except (LinAlgError, ZeroDivisionError) as e:  # the latter from compiled divisions of complex numbers
                tried.append(f"{route} ({e})")
                continue
        stable = decided(vector) if error <= tuning.MAX_LIMIT_ERROR else None
        if stable is not None and (best is None or error < best[2]):
            best = vector, stable, error, route
        if best is not None and best[2] <= max(tuning.SOLUTION_ERROR, goal):
            return best
        tried.append(f"{route} (error {error:.1e})")
    if best is not None:  # its error stands beside it
        return best
    if (
        tried and radius(step) > tuning.CLEARLY_UNSTABLE
    ):  # where second moments grow fast, their equation is badly conditioned
        return source, False, tuning.RADIUS_RESIDUAL, "radius"
    K, d = step.shape
    rule = f"the limit of second moments must be known to {tuning.MAX_LIMIT_ERROR:g}, relative"
    raise PrecisionError(f"{rule}; got {', '.join(tried) or 'no route'} for {K} groups of agents in dimension {d}")


def _by_lyapunov(step: PairMap, source: Floats, goal: float) -> tuple[Floats, float]:
    equation, own = Lyapunov(step), np.ascontiguousarray(step.parts(source)[1])
    S, error = equation.solve(own, goal)
    return equation.vector(S, own), error


def _by_krylov(step: PairMap, source: Floats, goal: float) -> tuple[Floats, float]:
    return krylov.solve(lambda v: step.advance(v, 0.0), source, goal, partial(_share, step))


def _by_matrix(step: PairMap, source: Floats, goal: float) -> tuple[Floats, float]:
    return refined(np.eye(step.length) - _matrix(step), source)


def _matrix(step: PairMap) -> Floats:
    """(length, length): a round on covariances; means are taken to 0."""
    out = np.zeros((step.length, step.length))
    for column, e in list(zip(out.T, np.eye(step.length), strict=True))[step.F.shape[0] * step.F.shape[1] :]:
        column[:] = step.advance(e, 0.0)
    return out


def _share(step: PairMap, change: Floats, total: Floats) -> float:
    """How large a change is beside the whole, in what is asked for: the worse of E[u u^T] and E[y y^T]."""
    pairs = [(step.common(v)[1], step.parts(v)[1]) for v in (change, total)]
    sizes = [np.linalg.norm(a) / np.linalg.norm(b) if np.any(b) else 0.0 for a, b in zip(*pairs, strict=True)]
    return float(max(sizes))


_SUITS: dict[str, Callable[[PairMap], bool]] = {
    "lyapunov": lambda step: step.lengths is None and step.sampled[0] == 0,
    "krylov": lambda step: krylov.dimensions(step.length) > 0,
    "dense": lambda step: step.length <= tuning.WRITTEN_OUT,
}
_SOLVE = {"lyapunov": _by_lyapunov, "krylov": _by_krylov, "dense": _by_matrix}


def _finite(step: PairMap) -> bool:
    return bool(np.isfinite(step.own).all())


def _mean_grows(step: PairMap) -> bool:
    """Whether the mean of a round, or the difference of two agents of a group, clearly grows; or has no moments."""
    if not _finite(step):
        return True
    (K, d), several = step.shape, step.moments.count > 1
    if several.any() and np.abs(np.linalg.eigvals(step.F[several])).max() > 1 + tuning.RADIUS_RESIDUAL:
        return True
    if K * d <= tuning.WRITTEN_OUT // 4:
        mean = np.stack([step.mean(e.reshape(K, d)).ravel() for e in np.eye(K * d)], axis=1)
        return bool(np.abs(np.linalg.eigvals(mean)).max() > 1 + 1e-6)
    start = np.random.default_rng(0).standard_normal(K * d)
    value, residual = krylov.radius(lambda y: step.mean(y.reshape(K, d)).ravel(), start, restarts=1)
    return value > 1 + 1e-3 and residual < 1e-3 * (value - 1)


def _definite(step: PairMap, vector: Floats) -> bool | None:
    """Whether the joint second moments of all agents are positive definite; None where rounding hides it.

    Agents of a group are exchangeable: it is so for their mean, with all other groups, and for their differences.
    """
    (K, d), count = step.shape, step.moments.count
    _, V, W = step.parts(vector)
    i, j = triangle(K)
    V, own, n = smat(V, d), W[i == j], count[:, None, None]
    joint = np.empty((K, d, K, d))
    joint[j, :, i], joint[i, :, j] = W.transpose(0, 2, 1), W
    joint[np.arange(K), :, np.arange(K)] = (V + (n - 1) * own) / n
    blocks = [joint.reshape(K * d, K * d), *(V - own)[count > 1]]
    verdicts = [positive(b) for b in blocks]
    return False if False in verdicts else None if None in verdicts else True


def _unit(step: PairMap) -> Floats:
    """The vector of agents with covariance I that are independent of one another."""
    out = np.zeros(step.length)
    step.parts(out)[1][:] = svec(np.eye(step.shape[1]))
    return out
