"""Where methods with control variates settle, and how fast: the fixed point of a round and its mean-square radius.

The map L of second moments takes positive matrices to positive ones. So whether a round settles is decided by one
linear system, X = L X + Q with a positive definite Q: its solution is positive definite where the radius is below one,
and is not where it is above (Perron and Frobenius: the left eigenvector l of the radius is positive, and
<l, X> (1 - radius) = <l, Q>). Each route to a solution states its error, and the next is tried where it is too large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, schur
from scipy.sparse.linalg import LinearOperator, gmres

from ..checks import Floats
from ..errors import PrecisionError
from . import krylov, pairs, tuning
from .linear import positive, refined, smat, svec, triangle
from .pairs import PairMap
from .threads import share

# The fixed point of second moments of a round of known length, for any number of different agents.
#
# In the coordinates of theory/pairs.py a fixed point obeys, with S_k = E[u y_k^T] and U = -sum_k w_k S_k / gain,
#
#     V_k = own_k(U, S_k, V_k) + Q_k,   W_kl = F_k W_kl F_l^T + R_k B_l^T + B_k R_l^T,   R_k = F_k S_k^T + B_k U / 2.
#
# Given the S_k, each V_k is a small linear solve and each W_kl a Stein equation, triangular in the Schur bases of the
# F_k: unitary, so nothing depends on how good eigenvectors are; where pairs are few, its matrix is inverted instead.
# What remains is linear in the S_k alone, K d^2 numbers, and GMRES solves it in some 10 to 20 passes over the pairs, or
# over the terms of a series where these are fewer (`PairSeries`). It is told of the slow modes that agents have in
# common by the same equation for one agent that is their average. Many pairs are summed, not kept: memory grows with K.

# Sums over all pairs of groups without going through the pairs.
#
# The Stein equation has the solution
#
#     W_kl = sum_n F_k^n (R_k B_l^T + B_k R_l^T) F_l^nT,
#
# each term of which has its k and its l apart. So sum_l w_l W_lk, all that the equation for S needs, takes K times as
# many products as there are terms. What is left out after n terms is F_k^n W_kl F_l^nT, bounded by norms of powers.


@dataclass(frozen=True, eq=False)
class PairSeries:
    """w_l W_lk summed over all other agents, for an agent of each group, as a linear function of R : (K, d, d).

    spread : (n d, K d), t_k F_k^n, t the total weight of a group; gather : (n d, K d), (F_k^n B_k)^T
    own : (K, d^2, d^2), what agent k's own R_k has in the sums of others, less the pair of it with itself
    """

    spread: Floats
    gather: Floats
    own: Floats

    def sums(self, R: Floats) -> Floats:
        """(K, d, d), for R : (K, d, d)."""
        K, d, _ = R.shape
        P = (self.spread @ R.reshape(K * d, d)).reshape(-1, d, d)  # sum_l t_l F_l^n R_l
        others = P.transpose(1, 0, 2).reshape(d, -1) @ self.gather
        return others.reshape(d, K, d).transpose(1, 0, 2) + (self.own @ R.reshape(K, d * d, 1)).reshape(K, d, d)


def pair_series(F: Floats, B: Floats, total: Floats, weight: Floats) -> PairSeries | None:
    """None where powers of F fade so slowly that going through the pairs takes less.

    total, weight : (K,), of a group, and of one agent in it
    """
    K, d, _ = F.shape
    powers, last = np.broadcast_to(np.eye(d), (1, K, d, d)), F
    while not np.linalg.norm(last, axis=(1, 2)).max() <= tuning.PAIR_SERIES_POWER:
        if 2 * len(powers) > min(K, tuning.PAIR_SERIES_NUMBERS // F.size):
            return None
        powers, last = np.concatenate([powers, powers @ last]), last @ last
    n = len(powers)
    moved = powers @ B
    Q = np.einsum("k,nkij->nij", total, moved)
    crossed = (powers.transpose(1, 2, 3, 0).reshape(-1, n) @ Q.reshape(n, -1)).reshape(K, d, d, d, d)  # k, j, m, i, a
    mine = powers.transpose(1, 2, 3, 0).reshape(K, d * d, n) @ moved.transpose(1, 0, 2, 3).reshape(K, n, d * d)
    mine = mine.reshape(K, d, d, d, d)  # k, i, m, j, a: F^n R (F^n B)^T of R[m, a]
    own = crossed.transpose(0, 3, 1, 2, 4) - weight[:, None, None, None, None] * (
        mine.transpose(0, 1, 3, 2, 4) + mine.transpose(0, 3, 1, 2, 4)
    )
    spread = (total[:, None, None] * powers).transpose(0, 2, 1, 3).reshape(n * d, K * d)
    gather = np.ascontiguousarray(moved.transpose(0, 3, 1, 2)).reshape(n * d, K * d)
    return PairSeries(spread, gather, own.reshape(K, d * d, d * d))


@dataclass(frozen=True, eq=False)
class Lyapunov:
    """The equation above for a round of known length."""

    pairs: PairMap

    @cached_property
    def _inverses(self) -> Floats:
        """Of the Stein equations, where pairs are few."""
        return pairs.stein_inverses(self.pairs.F, self.pairs.moments.count)

    @cached_property
    def _turned(self) -> tuple[NDArray[np.complex128], Floats, Floats]:
        """Where they are many: Z of F = Z T Z^H : (K, d, d), and T and Z as compiled passes read them."""
        from .pair_kernels import in_lanes

        T, Z = map(np.array, zip(*(schur(F, output="complex") for F in self.pairs.F), strict=True))
        return Z, in_lanes(T), in_lanes(Z)

    @cached_property
    def _series(self) -> PairSeries | None:
        step = self.pairs
        return pair_series(step.F, step.B, step.weights[0], step.moments.weight)

    @cached_property
    def alone(self) -> Floats:
        """(I - own)^-1 on svec V_k : (K, s, s)."""
        d = self.pairs.shape[1]
        return np.asarray(np.linalg.inv(np.eye(d * (d + 1) // 2) - self.pairs.own[:, :, _of_y(d)]), np.float64)

    def solve(self, source: Floats, goal: float) -> tuple[Floats, float]:
        """The S : (K, d, d) of a fixed point, and its estimated error; source : (K, s), svec Q_k, what a round adds.

        The error, which ought to be below `goal`, is what the residual amounts to if agents are like their average,
        relative to S, and ten times that.
        """
        K, d = self.pairs.shape
        correct = self._common_modes()

        def rest(v: Floats) -> Floats:
            S = correct(v)
            return S.ravel() - self._again(S, 0.0).ravel()

        map_ = LinearOperator((K * d * d, K * d * d), matvec=rest, dtype=np.float64)
        S, error = np.zeros((K, d, d)), np.inf
        left = self._again(S, source).ravel()
        for _ in range(tuning.GMRES_REFINEMENTS):
            if not left.any():
                return S, 0.0
            change = gmres(map_, left, rtol=tuning.GMRES_REDUCTION, atol=0.0, restart=tuning.GMRES_PASSES, maxiter=1)[0]
            S = S + correct(change)
            left = (self._again(S, source) - S).ravel()
            error = 10 * float(np.linalg.norm(correct(left)) / np.linalg.norm(S))
            if error < goal or not np.isfinite(error):
                break
        return S, error

    def own(self, S: Floats, source: Floats | float) -> Floats:
        """svec V_k : (K, s) for given S."""
        return _solved(self.pairs.own, self.alone, S, self._U(S), source)

    def definite(self, S: Floats, source: Floats) -> bool:
        """Whether the series, which is there, shows that the joint second moments of all agents are positive definite.

        W_kl = G_k J G_l^T with G_k = (F_k^n R_k, F_k^n B_k), n = 0, 1, ..., and J, which swaps the two. The moments of
        all, groups by their means, are G J G^T beside blocks D_k / count_k, D_k = V_k - W_kk, which must be positive
        definite. Then they are, if and only if J + G^T (count D^-1) G has as many negative eigenvalues as J.
        """
        (K, d), series = self.pairs.shape, self._series
        assert series is not None
        terms = [np.stack([self._R(S), self.pairs.B])]
        for _ in range(len(series.spread) // d - 1):
            terms.append(self.pairs.F @ terms[-1])
        R, B = np.stack(terms, axis=3).reshape(2, K, d, -1)  # columns (n, m)
        own = R @ B.transpose(0, 2, 1)
        try:
            root = np.linalg.cholesky(smat(self.own(S, source), d) - own - own.transpose(0, 2, 1))
        except np.linalg.LinAlgError:
            return False
        many = np.sqrt(self.pairs.moments.count)[:, None, None]
        R, B = (many * np.linalg.solve(root, X) for X in (R, B))
        R, B = R.reshape(K * d, -1), B.reshape(K * d, -1)
        size = np.sqrt(np.linalg.norm(R, axis=0) / np.maximum(np.linalg.norm(B, axis=0), 1e-300)) + 1e-300
        G, one = np.concatenate([R / size, B * size], axis=1), np.eye(R.shape[1])
        E = G.T @ G
        scale = 1 / np.sqrt(1 + np.diagonal(E))
        E += np.block([[0 * one, one], [one, 0 * one]])
        values = np.linalg.eigvalsh(scale[:, None] * E * scale)
        clear = np.abs(values).min() > tuning.INERTIA_ROUNDING * np.abs(values).max()
        return bool(clear and (values < 0).sum() == len(one))

    def vector(self, S: Floats, source: Floats) -> Floats:
        """The fixed point as a vector of `pairs`, of mean 0."""
        out = np.zeros(self.pairs.length)
        _, V, W = self.pairs.parts(out)
        V[:] = self.own(S, source)
        self._sums(S, W)
        return out

    def _U(self, S: Floats) -> Floats:
        U = np.tensordot(self.pairs.weights[0], S, 1) / -self.pairs.gain
        return np.asarray((U + U.T) / 2)

    def _R(self, S: Floats) -> Floats:
        return np.asarray(self.pairs.F @ S.transpose(0, 2, 1) + self.pairs.B @ self._U(S) / 2)

    def _again(self, S: Floats, source: Floats | float) -> Floats:
        """The S that belongs to the V and W of a given one."""
        d, m = self.pairs.shape[1], self.pairs.moments
        series = self._series
        total = self._sums(S, np.zeros((0, d, d))) if series is None else series.sums(self._R(S))
        return (total + m.weight[:, None, None] * smat(self.own(S, source), d)) / -self.pairs.gain

    def _sums(self, S: Floats, store: Floats) -> Floats:
        """sum of w_l W_lk over all other agents, for an agent of each group k : (K, d, d); store : for W, or empty."""
        F, B, m = self.pairs.F, self.pairs.B, self.pairs.moments
        R = self._R(S)
        if not pairs.compiled(*self.pairs.shape):
            W = pairs.stationary(self._inverses, F, R, B, m.count)
            store[:] = W[: len(store)]
            return self.pairs.sums(W)
        from .pair_kernels import from_lanes, maps_in_lanes, solve_pairs

        Z, T_lanes, Z_lanes = self._turned
        adjoint, cuts = Z.conj().transpose(0, 2, 1), self.pairs.cuts(16 * len(F) ** 2 * F.shape[1] ** 2)
        maps = maps_in_lanes(T_lanes, Z_lanes, adjoint @ R, adjoint @ B)
        found = np.zeros((len(cuts) - 1, *maps[0].shape))
        share(lambda a, b: solve_pairs(maps, m.weight, m.count, a, b, found[cuts.index(a)], store), cuts)
        return np.asarray((from_lanes(found.sum(0), len(F)) @ adjoint).real)

    def _common_modes(self) -> Callable[[Floats], Floats]:
        """What GMRES solves for, to S: where all agents are their average, it makes the equation the identity."""
        (_, d), k, w = self.pairs.shape, self.pairs.gain, self.pairs.weights[0]
        F, B, own = (np.tensordot(w, a, 1) for a in (self.pairs.F, self.pairs.B, self.pairs.own))
        one = float(w @ self.pairs.moments.weight)  # that an agent is met twice
        alone = np.asarray(np.linalg.inv(np.eye(len(own)) - own[:, _of_y(d)]), np.float64)
        pair = np.linalg.inv(np.eye(d * d) - np.kron(F, F))
        S = np.eye(d * d).reshape(-1, d, d)
        U = (S + S.transpose(0, 2, 1)) / (-2 * k)
        V = smat(_solved(own, alone, S, U, 0.0), d)
        R = F @ S.transpose(0, 2, 1) + B @ U / 2
        W = (R @ B.T + B @ R.transpose(0, 2, 1)).reshape(-1, d * d) @ pair.T
        again = (one * V.reshape(-1, d * d) + (1 - one) * W) / -k
        extra = np.linalg.inv(np.eye(d * d) - again.T) - np.eye(d * d)
        return lambda v: (v.reshape(-1, d * d) + extra @ (w @ v.reshape(-1, d * d))).reshape(-1, d, d)


def limit_by_series(pairs: PairMap) -> tuple[Floats, float] | None:
    """E[u u^T] : (d, d) of a fixed point, and its estimated error, where the series shows all there is to know of it:
    that agents have noise of their own in every direction, and that the round settles."""
    if pairs.lengths is not None or pairs.sampled[0] or not np.isfinite(pairs.own).all():
        return None
    source, equation, (K, d) = np.ascontiguousarray(pairs.noise[..., -1]), Lyapunov(pairs), pairs.shape
    if equation._series is None or len(equation._series.spread) > K * d // tuning.PAIR_SERIES_SHARE:
        return None
    noise = np.linalg.eigvalsh(smat(source, d))
    if not (noise[:, 0] > tuning.NOISE_DEFINITE * noise[:, -1]).all():
        return None
    try:
        S, error = equation.solve(source, tuning.LIMIT_GOAL)
    except np.linalg.LinAlgError:  # an agent alone is at the edge of what settles
        return None
    return (equation._U(S), error) if error <= tuning.SOLUTION_ERROR and equation.definite(S, source) else None


def _of_y(d: int) -> NDArray[np.intp]:
    """Where E[y y^T] stands in svec E[w w^T], w = (u, y, 1)."""
    i, j = triangle(2 * d + 1)
    return np.flatnonzero((i >= d) & (j < 2 * d))


def _solved(own: Floats, alone: Floats, S: Floats, U: Floats, source: Floats | float) -> Floats:
    """svec V = alone (own(U, S) + source), with matrices of one or of several agents : (n, s)."""
    d = S.shape[-1]
    w = np.zeros((len(S), 2 * d + 1, 2 * d + 1))
    w[:, :d, :d], w[:, :d, d : 2 * d] = U, S
    return np.asarray((alone @ ((own @ svec(w)[..., None])[..., 0] + source)[..., None])[..., 0])


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

    vector, stable, error, route = _by_routes(step, source, routes, decided)
    return PairLimit(step, vector if stable else None, error, route)


def settles(step: PairMap, routes: Sequence[str] = ROUTES) -> bool:
    """Whether the mean-square radius is below one."""
    if _mean_grows(step):
        return False
    return _by_routes(step, _unit(step), routes, lambda vector: _definite(step, vector), tuning.STABILITY_GOAL)[1]


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


def _by_routes(
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
