"""Curves of methods with control variates: round by round, or many rounds at once by Krylov spaces (krylov.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from . import krylov, tuning
from .noiseless import NoiselessMap
from .pairs import PairMap, Parts
from .recursions import at_rounds
from .stationary_pairs import limit
from .symmetric import squares


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
    second = vector.copy()  # of the mean, with itself
    y, V, W = step.parts(second)
    i, j = np.triu_indices(len(y))
    V[:], W[:] = squares(y), y[i, :, None] * y[j, None, :]
    W[(i == j) & (step.moments.count[i] == 1)] = 0
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

    values = krylov.powers(apply, look, allowed, distance, rounds[rounds >= at] - at)
    return None if values is None else np.concatenate([np.array(early).reshape(-1, d + 2), end + values])


def _norms(step: PairMap, size: float) -> Floats:
    """(d + 2,): of the linear functions that `look` shows, on the long vector."""
    k, d, (total, one, two) = step.gain, step.shape[1], step.weights
    u = np.linalg.norm(total) / k
    square = np.sqrt(d * (one @ one + two @ two))
    spread = np.sqrt(d * (np.sum((total - one) ** 2) + two @ two))
    return np.array([*np.full(d, u), size * square / k**2, np.hypot(size, 1) * spread])
