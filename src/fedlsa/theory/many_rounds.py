"""Curves of methods with control variates: round by round, or many rounds at once by Krylov spaces.

What is left of the way to the limit obeys a linear recursion d <- L d. With a basis B of the Krylov space of d, the
small matrix h of L in it and b the vector that leads out of it, L B x = B h x + b x_m, so that B h^t e_1 |d| misses
L^t d by

    sum_{s < t} L^(t - 1 - s) b (h^s e_1)_m |d|.

The sum of |(h^s e_1)_m| is known: the space is believed for as many rounds as that, times |b|, is within the tolerance,
however far they are; it grows until all rounds are reached or it is full, and what is left of d starts the next one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from . import tuning
from .krylov import Krylov
from .noiseless import NoiselessMap
from .pairs import PairMap, Parts
from .recursions import Squares, at_rounds
from .stationary_pairs import limit
from .symmetric import svec


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


def krylov_curve(step: PairMap, u: Floats, x: Floats, rounds: NDArray[np.int64]) -> Floats | None:
    """The same, at a cost that hardly depends on how many rounds they are; None where it is not known to be accurate.

    Covariances, measured from their limit, and squares of means stand on one long vector. Covariances are divided by
    their size, so that they are as accurate as the squares, however small the noise is. As long as they are a small
    part of their limit, though not for more rounds than are cheap, it is one round by another.
    """
    if not np.isfinite(step.noise).all():
        return None
    if step.round.cross is not None and step.round.gain > tuning.MAX_GAIN * np.abs(step.round.moments.A_bar).max():
        return None
    try:
        found, n, d = limit(step.round), step.length, step.shape[1]
    except PrecisionError:
        return None
    if found.vector is None or found.error > tuning.LIMIT_ERROR:
        return None
    vector, end, at, early = step.start(u, x), step.look(found.vector), 0, list[Floats]()
    end[:d] = 0
    while at < tuning.KRYLOV_FROM and step.look(vector)[d] < tuning.NEAR_LIMIT * end[d]:
        early += [step.seen(vector)] * int((rounds == at).sum())
        vector, at = step.advance(vector), at + 1
    second = vector.copy()  # of the mean, with itself
    y, V, W = step.parts(second)
    i, j = np.triu_indices(len(y))
    V[:], W[:] = svec(y[:, :, None] * y[:, None, :]), y[i, :, None] * y[j, None, :]
    W[(i == j) & (step.round.moments.count[i] == 1)] = 0
    noise = max(float(np.linalg.norm(v[y.size :])) for v in (found.vector, vector, step.advance(vector)))
    size = noise / max(float(np.linalg.norm(second)), 1e-300) or 1.0

    def apply(v: Floats) -> Floats:
        C, M = step.second(v[:n]), step.second(v[n:])
        out = step.carry(C)
        step.fluctuate(Parts(*(c + m / size for c, m in zip(C, M, strict=True))), out)
        return np.concatenate([out, step.carry(M)])

    def look(v: Floats) -> Floats:
        C, M = step.look(v[..., :n]), step.look(v[..., n:])
        return np.concatenate([M[..., :d], np.stack([size * C[..., d], size * C[..., d + 1] + M[..., d + 1]], -1)], -1)

    distance = np.concatenate([vector - found.vector, second])
    distance[: y.size] = 0
    distance[:n] /= size
    norms = _norms(step, size)

    def allowed(value: Floats) -> float:
        shown = np.abs(end[d:]) + np.abs(value[d:])
        scale = np.array([*np.full(d, np.sqrt(shown[0] + value[:d] @ value[:d])), *shown])
        return tuning.CURVE_ACCURACY * float(np.min(scale[norms > 0] / norms[norms > 0]))

    values = leap(apply, look, allowed, distance, rounds[rounds >= at] - at)
    return None if values is None else np.concatenate([np.array(early).reshape(-1, d + 2), end + values])


def _norms(step: PairMap, size: float) -> Floats:
    """(d + 2,): of the linear functions that `look` shows, on the long vector."""
    k, d, (total, one, two) = step.round.gain, step.shape[1], step.weights
    u = np.linalg.norm(total) / k
    square = np.sqrt(d * (one @ one + two @ two))
    spread = np.sqrt(d * (np.sum((total - one) ** 2) + two @ two))
    return np.array([*np.full(d, u), size * square / k**2, np.hypot(size, 1) * spread])


def leap(
    apply: Callable[[Floats], Floats],
    look: Callable[[Floats], Floats],
    allowed: Callable[[Floats], float],
    distance: Floats,
    rounds: NDArray[np.int64],
) -> Floats | None:
    """look(L^t distance) at the given rounds t >= 0, in increasing order : (R, k); None where that leads nowhere.

    apply : the linear map L; look : a linear function of states, (..., n) to (..., k)
    allowed : how long the error of a state may be for which `look` shows the given values
    """
    at, out = 0, list[Floats]()
    while len(out) < len(rounds):
        space, seen = Krylov(apply, distance), np.empty((0, len(look(distance))))
        if space.length == 0:
            return np.stack([*out, *np.zeros((len(rounds) - len(out), seen.shape[1]))])
        ahead = rounds[len(out) :] - at
        while True:
            space.grow(space.size + tuning.KRYLOV_STAGE)
            seen = np.concatenate([seen, look(space.basis[len(seen) :])])
            found, reach, x = _follow(space, seen.T, allowed, ahead)
            if len(found) == len(ahead) or space.closed or space.size == space.most:
                break
        out += found
        if len(out) < len(rounds) and (reach == 0 or not np.isfinite(x).all()):
            return None
        distance, at = x @ space.basis, at + reach
    return np.stack(out)


def _follow(
    space: Krylov, seen: Floats, allowed: Callable[[Floats], float], rounds: NDArray[np.int64]
) -> tuple[list[Floats], int, Floats]:
    """Values for as many of the rounds as the space is good for, the last round for which it is, the state there."""
    h, m = space.h, space.size
    leads = 0.0 if space.closed else space.rest[0]
    rows = np.empty((tuning.KRYLOV_ROUNDS, m))  # the last one of h^s
    rows[0] = np.eye(m)[m - 1]
    for s in range(1, tuning.KRYLOV_ROUNDS):
        rows[s] = rows[s - 1] @ h
    squares, x, at, lost, out = Squares(h, np.matmul), space.length * np.eye(m)[0], 0, 0.0, list[Floats]()
    while len(out) < len(rounds):
        if np.linalg.norm(x) <= tuning.VANISHED * allowed(np.zeros(len(seen))):
            return out + [np.zeros(len(seen))] * (len(rounds) - len(out)), int(rounds[-1]), 0 * x
        missed = np.append(0, np.cumsum(leads * np.abs(rows @ x)))  # by the end of each round of a block

        def good(ahead: int, x: Floats = x, missed: Floats = lost + missed) -> bool:
            return bool(missed[ahead] <= allowed(seen @ _further(squares, ahead, x)))

        far = min(tuning.KRYLOV_ROUNDS, int(rounds[-1]) - at)
        if not good(far):
            far = bisect_left(range(1, far), True, key=lambda ahead: not good(ahead))
        for t in rounds[len(out) :]:
            if t > at + far:
                break
            out.append(seen @ _further(squares, int(t) - at, x))
        x, at, lost = _further(squares, far, x), at + far, lost + missed[far]
        if far < tuning.KRYLOV_ROUNDS:
            break
    return out, at, x


def _further(squares: Squares[Floats], rounds: int, x: Floats) -> Floats:
    """h^rounds x."""
    for power in squares.of(rounds):
        x = power @ x
    return x
