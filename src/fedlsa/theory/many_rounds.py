"""Curves of methods with control variates: round by round, or many rounds at once by Krylov spaces.

What is left of the way to the limit obeys a linear recursion d <- L d. With a basis B of the Krylov space of d, the
small matrix h of L in it and b the vector that leads out of it, L B x = B h x + b x_m, so that B h^t e_1 |d| misses
L^t d by

    sum_{s < t} L^(t - 1 - s) b (h^s e_1)_m |d|.

The sum of |(h^s e_1)_m| is known: the space is believed for as many rounds as that, times |b|, is within the tolerance,
however far they are; it grows until all rounds are reached or it is full, and what is left of d starts the next one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from . import tuning
from .controlled import Round
from .krylov import Krylov
from .pairs import PairMap, Parts, pair_map
from .stationary_pairs import limit
from .symmetric import svec

ONE_BY_ONE, LEAPS = "round by round", "Krylov spaces"


def curve(
    step: Round, u: Floats, x: Floats, rounds: NDArray[np.int64], few: int = tuning.KRYLOV_FROM
) -> tuple[Floats, Floats, Floats, str]:
    """E[u] : (R, d), E||u - E[u]||^2 and sum_c w_c E||x_c||^2 : (R,) at the given rounds, and how they were found.

    From known u : (d,) and x : (K, d). At most `few` rounds are gone through one by one, and so are those of a round
    whose limit is not known well; the cost of more hardly depends on how many they are.
    """
    pairs, d = pair_map(step), len(u)
    vector = pairs.start(u, x)
    values = _leaps(pairs, vector, rounds, few) if rounds[-1] > few and np.isfinite(step.noise).all() else None
    route = ONE_BY_ONE if values is None else LEAPS
    if values is None:
        values = _one_by_one(pairs, vector, rounds)
    return values[:, :d], values[:, d], values[:, d + 1], route


def _one_by_one(step: PairMap, vector: Floats, rounds: NDArray[np.int64]) -> Floats:
    values, at = list[Floats](), 0
    mean = step.parts(vector)[0]
    for t in rounds.tolist():
        while at < t and np.isfinite(vector).all():
            if at * max(vector.size, tuning.ROUND_OVERHEAD) > tuning.MAX_ROUND_WORK:
                raise ArgumentError(
                    f"rounds must be at most {at} where only single rounds are accurate; got {rounds[-1]}"
                )
            vector, at = step.advance(vector), at + 1
            mean = step.parts(vector)[0]
        while at < t and np.isfinite(mean).all():  # second moments overflow first
            mean[:], at = step.mean(mean), at + 1
        values.append(step.seen(vector))
    return np.stack(values)


def _leaps(step: PairMap, vector: Floats, rounds: NDArray[np.int64], few: int) -> Floats | None:
    """Covariances, measured from their limit, and squares of means on one long vector; None where there is no limit.

    Covariances are divided by their size, so that they are as accurate as the squares, however small the noise is. As
    long as they are a small part of their limit, though not for more than a `few` rounds, it is one round by another.
    """
    if step.round.cross is not None and step.round.gain > tuning.MAX_GAIN * np.abs(step.round.moments.A_bar).max():
        return None
    try:
        found, n, d = limit(step.round), step.length, step.shape[1]
    except PrecisionError:
        return None
    if found.vector is None or found.error > tuning.LIMIT_ERROR:
        return None
    end, at, early = step.look(found.vector), 0, list[Floats]()
    end[:d] = 0
    while at < few and step.look(vector)[d] < tuning.NEAR_LIMIT * end[d]:
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
    squares, x, at, lost, out = [h], space.length * np.eye(m)[0], 0, 0.0, list[Floats]()
    while len(out) < len(rounds):
        if np.linalg.norm(x) <= tuning.VANISHED * allowed(np.zeros(len(seen))):
            return out + [np.zeros(len(seen))] * (len(rounds) - len(out)), int(rounds[-1]), 0 * x
        missed = np.append(0, np.cumsum(leads * np.abs(rows @ x)))  # by the end of each round of a block

        def good(ahead: int, x: Floats = x, missed: Floats = lost + missed) -> bool:
            return bool(missed[ahead] <= allowed(seen @ _further(squares, ahead, x)))

        far = min(tuning.KRYLOV_ROUNDS, int(rounds[-1]) - at)
        if not good(far):
            near = 0  # good, and `far` is not
            while far - near > 1:
                middle = (near + far) // 2
                near, far = (middle, far) if good(middle) else (near, middle)
            far = near
        for t in rounds[len(out) :]:
            if t > at + far:
                break
            out.append(seen @ _further(squares, int(t) - at, x))
        x, at, lost = _further(squares, far, x), at + far, lost + missed[far]
        if far < tuning.KRYLOV_ROUNDS:
            break
    return out, at, x


def _further(squares: list[Floats], rounds: int, x: Floats) -> Floats:
    """h^rounds x; squares : h, h^2, h^4, ..., as many as were needed so far."""
    for bit in range(rounds.bit_length()):
        if bit == len(squares):
            squares.append(squares[-1] @ squares[-1])
        if rounds >> bit & 1:
            x = squares[bit] @ x
    return x
