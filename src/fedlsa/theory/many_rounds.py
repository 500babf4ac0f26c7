"""Curves of methods with control variates: round by round, or many rounds at once by Krylov spaces (krylov.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from . import krylov, tuning
from .linear import at_rounds, powers_on, svec
from .noiseless import NoiselessMap
from .pairs import PairMap, Parts
from .stationary_pairs import limit


def one_by_one(
    step_in: Callable[[int], PairMap | NoiselessMap], u: Floats, x: Floats, rounds: NDArray[np.int64]
) -> Floats:
    """E[u], E||u - E[u]||^2 and sum_c w_c E||x_c||^2 at the given rounds : (R, d + 2), from known u and x : (K, d).

    step_in(t) : what round t does; the same object where nothing changes.
    """

    def states() -> Iterator[tuple[PairMap | NoiselessMap, Floats]]:
        step, finite = step_in(0), True
        vector = step.start(u, x)
        for t in count():
            yield step, vector
            finite = finite and bool(np.isfinite(vector).all())  # second moments overflow first
            if not (finite or np.isfinite(step.parts(vector)[0]).all()):
                return
            if finite and t * max(vector.size, tuning.ROUND_OVERHEAD) > tuning.MAX_ROUND_WORK:
                most = f"at most {t} where only single rounds are accurate"
                raise ArgumentError(f"rounds must be {most}; got {rounds[-1]}")
            before, step = step, step_in(t)
            if step is not before:
                vector = step.regauged(vector, before.gain)
            vector = step.advance(vector) if finite else step.advance_mean(vector)

    return at_rounds(states(), rounds, lambda state: (state[0].seen(state[1]),))[0]


def mean_from_solution(
    step_in: Callable[[int], PairMap | NoiselessMap], x: Floats, rounds: NDArray[np.int64], steady: bool
) -> Floats:
    """E[u] : (R, d) at the given rounds of a run from theta_star, u = 0, and x : (K, d); steady : all rounds alike."""
    first = step_in(0)
    if isinstance(first, NoiselessMap):
        return one_by_one(step_in, np.zeros(x.shape[1]), x, rounds)[:, :-2]
    if steady and x.size <= tuning.MEANS_WRITTEN_OUT:
        M = np.stack([first.mean(e.reshape(x.shape)).ravel() for e in np.eye(x.size)], axis=1)
        return np.stack([first.server(y.reshape(x.shape)) for y in powers_on(M, x.ravel(), rounds)])

    def states() -> Iterator[tuple[PairMap, Floats]]:
        step, y, least = first, x, tuning.VANISHED * np.abs(x).max()
        for t in count():
            yield step, y
            if not least < np.abs(y).max() < np.inf:  # nothing is left of it, or it has overflowed
                return
            before, step = step, cast(PairMap, step_in(t))
            if step is not before:
                y = y + (before.gain - step.gain) * before.server(y)
            y = step.mean(y)

    return at_rounds(states(), rounds, lambda state: (state[0].server(state[1]),))[0]


def krylov_curve(step: PairMap, u: Floats, x: Floats, rounds: NDArray[np.int64]) -> Floats | None:
    """The same, at a cost that hardly depends on how many rounds they are; None where it is not known to be accurate.

    Covariances, measured from their limit, and squares of means stand on one vector. Covariances are divided by their
    size, so that they are as accurate as the squares, however small the noise is. As long as they are a small
    part of their limit, though not for more rounds than are cheap, it is one round by another.
    """
    if not np.isfinite(step.noise).all():
        return None
    if step.lengths is not None and step.gain > tuning.MAX_GAIN * np.abs(step.moments.A_bar).max():
        return None
    try:
        found, n, d = limit(step), step.length, step.shape[1]
    except PrecisionError:
        return None
    if found.vector is None or found.error > tuning.LIMIT_ERROR:
        return None
    vector, end, at, early = step.start(u, x), step.look(found.vector), 0, list[Floats]()
    end[:d] = 0
    while at < tuning.KRYLOV_FROM and step.look(vector)[d] < tuning.NEAR_LIMIT * end[d]:
        early += [step.seen(vector)] * int((rounds == at).sum())
        vector, at = step.advance(vector), at + 1
    y, distance = step.parts(vector)[0].ravel().copy(), vector - found.vector
    distance[: y.size] = 0
    noise = max(float(np.linalg.norm(v[y.size :])) for v in (found.vector, vector, step.advance(vector)))
    size = noise / max(float(np.hypot(y @ y, np.sqrt(y @ y))), 1e-100) or 1.0  # of which squares are numbers
    means = MeanSpace(step, y, krylov.dimensions(n))

    def begin(left: Floats | None) -> tuple[krylov.Map, krylov.Map, Floats]:
        nonlocal means
        if left is None:
            return apply, look, means.beside(distance / size)
        means = MeanSpace(step, means.mean(left[n:]), krylov.dimensions(n))
        return apply, look, means.beside(left[:n])

    def apply(v: Floats) -> Floats:
        C, M = step.second(v[:n]), means.second(v[n:])
        out = step.carry(C)
        step.fluctuate(Parts(*(c + m / size for c, m in zip(C, M, strict=True))), out)
        return np.concatenate([out, means.carry(v[n:])])

    def look(v: Floats) -> Floats:
        C, (u, spread) = step.look(v[..., :n]), means.look(v[..., n:])
        return np.concatenate([u, np.stack([size * C[..., d], size * C[..., d + 1] + spread], -1)], -1)

    norms = _norms(step, size)

    def allowed(value: Floats) -> float:
        shown = np.abs(end[d:]) + np.abs(value[d:])
        scale = np.array([*np.full(d, np.sqrt(shown[0] + value[:d] @ value[:d])), *shown])
        return tuning.CURVE_ACCURACY * float(np.min(scale[norms > 0] / norms[norms > 0]))

    values = krylov.powers(begin, allowed, rounds[rounds >= at] - at)
    return None if values is None else np.concatenate([np.array(early).reshape(-1, d + 2), end + values])


class MeanSpace:
    """E[y] = Q s and its square Q S Q^T, S = s s^T, in the Krylov space Q of a mean under its map.

    As many rounds as the space has dimensions are exact: they have (s, S), r + r^2 numbers, for (K d)^2 of the square.
    Dimensions in which no round leaves more than rounding are left out.
    """

    def __init__(self, step: PairMap, y: Floats, rounds: int) -> None:
        (K, d), self.step = step.shape, step
        space = krylov.Krylov(lambda v: step.mean(v.reshape(K, d)).ravel(), y)
        space.grow(rounds)
        r, self.length = space.size + (not space.closed), space.length
        self.H, self.Q = np.zeros((r, r)), np.zeros((r, K * d))
        self.H[: space.size, : space.size], self.Q[: space.size] = space.h, space.basis
        if not space.closed:
            self.H[-1, -2], self.Q[-1] = space.rest
        r = _occupied(self.H)
        self.H, self.Q = self.H[:r, :r].copy(), self.Q[:r]
        self.u = step.weights[0] @ self.Q.reshape(r, K, d) / -step.gain
        x = self.Q.reshape(r, K, d) + step.gain * self.u[:, None]
        self.spread = np.tensordot(step.weights[0][:, None] * x, x, ((1, 2), (1, 2)))

    def beside(self, C: Floats) -> Floats:
        """A vector of covariances and these means, where they begin."""
        r = len(self.H)
        start = np.zeros(r + r * r)
        if r:
            start[0], start[r] = self.length, self.length**2
        return np.append(C, start)

    def parts(self, v: Floats) -> tuple[Floats, Floats]:
        """s : (..., r) and S : (..., r, r)."""
        r = len(self.H)
        return v[..., :r], v[..., r:].reshape(*v.shape[:-1], r, r)

    def mean(self, v: Floats) -> Floats:
        """E[y] : (K d,)."""
        return self.parts(v)[0] @ self.Q

    def carry(self, v: Floats) -> Floats:
        """A round later."""
        s, S = self.parts(v)
        return np.append(self.H @ s, self.H @ S @ self.H.T)

    def look(self, v: Floats) -> tuple[Floats, Floats]:
        """E[u] : (..., d) and sum_c w_c ||x_c||^2."""
        s, S = self.parts(v)
        return s @ self.u, np.tensordot(S, self.spread, 2)

    def second(self, v: Floats) -> Parts:
        """As PairMap.second of a vector that has the square of the mean in the place of covariances."""
        (K, d), (s, S) = self.step.shape, self.parts(v)
        r = int(np.max(np.flatnonzero(S.any(1)), initial=-1)) + 1  # in early rounds of a space
        Q, u, half = self.Q[:r], self.u[:r], S[:r, :r] @ self.Q[:r]
        i, j = np.triu_indices(K)
        W = (Q.T @ half).reshape(K, d, K, d).transpose(0, 2, 1, 3)[i, j]
        V = svec(W[i == j])
        W[(i == j) & (self.step.moments.count[i] == 1)] = 0
        uy = (u.T @ half).reshape(d, K, d).transpose(1, 0, 2)
        return Parts(self.mean(v).reshape(K, d), V, W, s @ self.u, u.T @ S[:r, :r] @ u, uy)


def _occupied(H: Floats) -> int:
    """How many leading entries of e_1, H e_1, H^2 e_1, ... are ever more than rounding of the whole, in any round."""
    s = np.eye(len(H))[:1].sum(0)
    largest, power = s.copy(), H
    for t in range(len(H) + tuning.DOUBLED_ROUNDS):
        if t >= len(H):  # one by one at first, then each time twice as far
            power = power @ power
        s = power @ s
        if not (np.isfinite(s).all() and s.any()):
            break
        s /= np.abs(s).max()
        largest = np.maximum(largest, np.abs(s))
    return int(np.max(np.flatnonzero(largest > tuning.VANISHED_MEAN), initial=-1)) + 1


def _norms(step: PairMap, size: float) -> Floats:
    """(d + 2,): of the linear functions that `look` shows, on the long vector."""
    k, d, (total, one, two) = step.gain, step.shape[1], step.weights
    u = np.linalg.norm(total) / k
    square = np.sqrt(d * (one @ one + two @ two))
    spread = np.sqrt(d * (np.sum((total - one) ** 2) + two @ two))
    return np.array([*np.full(d, u), size * square / k**2, np.hypot(size, 1) * spread])
