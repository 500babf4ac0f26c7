"""Where methods with control variates settle, and how fast: the fixed point of a round and its mean-square radius.

The map L of second moments takes positive matrices to positive ones. So whether a round settles is decided by one
linear system, X = L X + Q with a positive definite Q: its solution is positive definite where the radius is below one,
and is not where it is above (Perron and Frobenius: the left eigenvector l of the radius is positive, and
<l, X> (1 - radius) = <l, Q>). Each route to a solution states its error, and the next is tried where it is too large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import LinAlgError

from ..checks import Floats
from ..errors import PrecisionError
from .controlled import Round
from .krylov import Krylov, dimensions
from .linear import ACCURATE, positive, refined
from .lyapunov import lyapunov
from .pairs import PairMap, pair_map
from .symmetric import smat, svec

ROUTES = ("lyapunov", "krylov", "dense")  # the first is quickest by far, but for rounds of known length with all agents
FINEST, COARSE = 1e-12, 1e-6  # error that a route aims at: of a fixed point, of what decides whether there is one
STATED = 1e-6  # error up to which a fixed point is returned, with that error, where no route is accurate
RITZ = 1e-10  # residual of the radius, relative
CLEARLY = 1.01  # radius from which it decides by itself
STAGE = 8  # dimensions that a space grows by
RESTARTS = 20
SMALL = 2000  # numbers of a state up to which a round is written out as a matrix
DEFINITE = 1e-6  # least eigenvalue of a round's noise, relative, that makes it as good a Q as the identity


@dataclass(frozen=True, eq=False)
class Limit:
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

    @cached_property
    def radius(self) -> float:
        """The factor by which second moments shrink in a round, in the long run."""
        return _radius(self.step)


def limit(step: Round, routes: Sequence[str] = ROUTES) -> Limit:
    """The fixed point of a round; routes : the ways to it that are tried, in this order."""
    return _limit(pair_map(step), routes)


def settles(step: Round, routes: Sequence[str] = ROUTES) -> bool:
    """Whether the mean-square radius is below one."""
    return _stable(pair_map(step), routes)


def radius(step: Round) -> float:
    """The factor by which second moments shrink in a round, in the long run; infinite where one round has none."""
    return _radius(pair_map(step))


def _limit(step: PairMap, routes: Sequence[str] = ROUTES) -> Limit:
    source = step.advance(np.zeros(step.length)) if _finite(step) else np.zeros(step.length)
    if _mean_grows(step):
        return Limit(step, None, 0.0, "mean")
    own = np.linalg.eigvalsh(smat(step.parts(source)[1], step.shape[1]))
    definite = bool((own[:, 0] > DEFINITE * own[:, -1]).all())
    if not definite and not _stable(step, routes):
        return Limit(step, None, 0.0, routes[0])

    def decided(vector: Floats) -> bool | None:
        return _definite(step, vector) if definite else True

    vector, stable, error, route = _solved(step, source, routes, decided)
    return Limit(step, vector if stable else None, error, route)


def _stable(step: PairMap, routes: Sequence[str]) -> bool:
    if _mean_grows(step):
        return False
    unit = np.zeros(step.length)
    step.parts(unit)[1][:] = svec(np.eye(step.shape[1]))
    return _solved(step, unit, routes, lambda vector: _definite(step, vector), COARSE)[1]


def _solved(
    step: PairMap,
    source: Floats,
    routes: Sequence[str],
    decided: Callable[[Floats], bool | None],
    goal: float = FINEST,
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
        stable = decided(vector) if error <= STATED else None
        if stable is not None and (best is None or error < best[2]):
            best = vector, stable, error, route
        if best is not None and best[2] <= max(ACCURATE, goal):
            return best
        tried.append(f"{route} (error {error:.1e})")
    if best is not None:  # its error stands beside it
        return best
    if tried and _radius(step) > CLEARLY:  # where second moments grow fast, their equation is badly conditioned
        return source, False, RITZ, "radius"
    K, d = step.shape
    raise PrecisionError(
        f"the limit of second moments must be known to {STATED:g}, relative; got {', '.join(tried) or 'no route'} "
        f"for {K} groups of agents in dimension {d}"
    )


def _by_lyapunov(step: PairMap, source: Floats, goal: float) -> tuple[Floats, float]:
    equation, own = lyapunov(step), np.ascontiguousarray(step.parts(source)[1])
    S, error = equation.solve(own, goal)
    return equation.vector(S, own), error


def _by_krylov(step: PairMap, source: Floats, goal: float) -> tuple[Floats, float]:
    """The sum of what becomes of one round's noise, by full orthogonalisation, restarted from the true residual."""
    total, error, rest = np.zeros(step.length), np.inf, source
    for attempt in range(RESTARTS):
        space = Krylov(lambda v: step.advance(v, 0.0), rest)
        if space.length == 0:
            return total, 0.0
        enough = goal / 100 if attempt == 0 else 1e-3
        while True:
            space.grow(space.size + STAGE)
            y = np.linalg.solve(np.eye(space.size) - space.h, space.length * np.eye(space.size)[0])
            done = space.closed or space.rest[0] * abs(y[-1]) <= enough * space.length
            if done or space.size == space.most:
                break
        change = y @ space.basis
        total = total + change
        error = _share(step, change, total)
        rest = source + step.advance(total, 0.0) - total
        if not np.isfinite(error) or (attempt and done and error < goal):
            break
    return total, error


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
    "lyapunov": lambda step: step.round.cross is None and step.round.sampled[0] == 0,
    "krylov": lambda step: dimensions(step.length) > 0,
    "dense": lambda step: step.length <= SMALL,
}
_SOLVE = {"lyapunov": _by_lyapunov, "krylov": _by_krylov, "dense": _by_matrix}


def _finite(step: PairMap) -> bool:
    return bool(np.isfinite(step.own).all())


def _mean_grows(step: PairMap) -> bool:
    """Whether the mean of a round, or the difference of two agents of a group, clearly grows; or has no moments."""
    if not _finite(step):
        return True
    (K, d), several = step.shape, step.round.moments.count > 1
    if several.any() and np.abs(np.linalg.eigvals(step.F[several])).max() > 1 + RITZ:
        return True
    if K * d <= SMALL // 4:
        mean = np.stack([step.mean(e.reshape(K, d)).ravel() for e in np.eye(K * d)], axis=1)
        return bool(np.abs(np.linalg.eigvals(mean)).max() > 1 + 1e-6)
    space = Krylov(lambda y: step.mean(y.reshape(K, d)).ravel(), np.random.default_rng(0).standard_normal(K * d))
    space.grow(space.most)
    value, left, _ = _ritz(space)
    return value > 1 + 1e-3 and left < 1e-3 * (value - 1)


def _definite(step: PairMap, vector: Floats) -> bool | None:
    """Whether the joint second moments of all agents are positive definite; None where rounding hides it.

    Agents of a group are exchangeable: it is so for their mean, with all other groups, and for their differences.
    """
    (K, d), count = step.shape, step.round.moments.count
    _, V, W = step.parts(vector)
    i, j = np.triu_indices(K)
    V, own, n = smat(V, d), W[i == j], count[:, None, None]
    joint = np.empty((K, d, K, d))
    joint[j, :, i], joint[i, :, j] = W.transpose(0, 2, 1), W
    joint[np.arange(K), :, np.arange(K)] = (V + (n - 1) * own) / n
    blocks = [joint.reshape(K * d, K * d), *(V - own)[count > 1]]
    verdicts = [positive(b) for b in blocks]
    return False if False in verdicts else None if None in verdicts else True


def _radius(step: PairMap) -> float:
    """The largest Ritz value of the space of a positive matrix, which holds it, once its residual is small."""
    if not _finite(step):
        return np.inf
    start, d = np.zeros(step.length), step.shape[1]
    step.parts(start)[1][:] = svec(np.eye(d))
    value = left = np.inf
    for _ in range(RESTARTS):
        space = Krylov(lambda v: step.advance(v, 0.0), start)
        while not space.closed and space.size < space.most:
            space.grow(space.size + STAGE)
            value, left, along = _ritz(space)
            if left <= RITZ * value:
                return value
        if space.closed:
            return value
        start = along @ space.basis
    if step.length <= SMALL:
        return float(np.abs(np.linalg.eigvals(_matrix(step))).max())
    raise PrecisionError(
        f"the mean-square radius must be known to {RITZ:g}, relative; got {value:.12g} with a residual of {left:.1e}"
    )


def _ritz(space: Krylov) -> tuple[float, float, Floats]:
    """The largest eigenvalue in a space, the residual of its vector, and the vector's real part in the basis."""
    values, vectors = np.linalg.eig(space.h)
    k = int(np.abs(values).argmax())
    vector = vectors[:, k] * np.exp(-1j * np.angle(vectors[0, k]))
    left = 0.0 if space.closed else float(space.rest[0] * abs(vector[-1]))
    return float(abs(values[k])), left, np.asarray(vector.real, np.float64)
