"""Krylov spaces of a linear map L on long vectors: what solves x = L x + source, the radius of L, its powers.

start, L start, L^2 start, ... are made orthonormal for a sketch of the vectors, a few thousand sums of their entries
with random signs: inner products of sketches are close to those of the vectors, so the basis is well conditioned, and
long vectors are read once per step instead of four times. L B_m = B_{m+1} h holds to rounding for any such basis.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..threads import cores, share
from . import tuning
from .linear import Squares

Map = Callable[[Floats], Floats]
Observed = Callable[[Floats], tuple[Floats, Floats]]  # L v, and what is seen of v : (k,), a linear function of it


def dimensions(n: int) -> int:
    """How many a space of vectors of n numbers may have within the memory; 0 where these are too few."""
    room = min(tuning.MAX_KRYLOV_DIM, tuning.KRYLOV_NUMBERS // n - 1, n)
    return room if room >= min(tuning.MIN_KRYLOV_DIM, n) else 0


class Krylov:
    """The space of `start` under `apply`: basis : (size, n), h : (size, size) the map in it, length of start.

    closed : whether the space maps to itself, so that growing further is neither possible nor needed.
    """

    def __init__(self, apply: Map, start: Floats) -> None:
        n, room = len(start), tuning.KRYLOV_NUMBERS
        self.most = dimensions(n)
        if not self.most:
            most = math.isqrt(2 * room // min(tuning.MIN_KRYLOV_DIM, n))
            rule = f"different groups of agents times dimension must be at most about {most} for a Krylov space of"
            rule = f"{rule} second moments to fit into {8 * room / 2**30:.0f} GB"
            raise ArgumentError(f"{rule}; got about {math.isqrt(2 * n)}")
        self.apply, self.size, self.closed = apply, 0, False
        self._basis = np.empty((self.most + 1, n))
        self._h = np.zeros((self.most + 1, self.most))
        self._signs = None
        if n > 2 * tuning.SKETCH_SIZE:  # a sketch is a fixed part of the method, the same in every run
            self._signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), n)
        self._small = self._basis if self._signs is None else np.empty((self.most + 1, tuning.SKETCH_SIZE))
        first = self._sketch(start)
        self.length = float(np.linalg.norm(first))
        if self.length == 0:
            self.closed = True
            return
        self._basis[0], self._small[0] = start / self.length, first / self.length  # one and the same without a sketch

    def _sketch(self, vector: Floats) -> Floats:
        """Of few entries; a short vector is its own, the same array."""
        if self._signs is None:
            return vector
        signed = vector * self._signs
        full = len(signed) // tuning.SKETCH_SIZE * tuning.SKETCH_SIZE
        out = signed[:full].reshape(-1, tuning.SKETCH_SIZE).sum(0)
        out[: len(signed) - full] += signed[full:]
        return out

    @property
    def h(self) -> Floats:
        return self._h[: self.size, : self.size]

    @property
    def basis(self) -> Floats:
        return self._basis[: self.size]

    @property
    def rest(self) -> tuple[float, Floats]:
        """What leads out of the space: L b_m = (basis) + rest[0] rest[1] for the last vector b_m."""
        return float(self._h[self.size, self.size - 1]), self._basis[self.size]

    def grow(self, size: int) -> None:
        """Up to `size` dimensions, or fewer where the space is closed or full."""
        while self.size < min(size, self.most) and not self.closed:
            j = self.size
            image = self.apply(self._basis[j])
            small, along = self._sketch(image), np.zeros(j + 1)
            size_before = left = float(np.linalg.norm(small))
            for again in range(2):
                along += self._orthogonal(image, small, j + 1)
                small = self._sketch(image)
                before, left = left, float(np.linalg.norm(small))
                if again or left > tuning.CANCELLATION * before:
                    break
            self._h[: j + 1, j], self.size = along, j + 1
            if not left > 1e-13 * size_before:
                self.closed = True
                return
            self._h[j + 1, j] = left
            np.divide(image, left, out=self._basis[j + 1])
            if self._signs is not None:
                np.divide(small, left, out=self._small[j + 1])

    def _orthogonal(self, image: Floats, small: Floats, size: int) -> Floats:
        """Take from the image, in place, its parts along the first vectors; what they are is learnt from the sketch."""
        along = np.zeros(size)
        for _ in range(2):  # once more, for orthogonality to the last digit
            part = self._small[:size] @ small
            along += part
            small -= part @ self._small[:size]
        if self._signs is not None:

            def subtract(begin: int, end: int) -> None:
                image[begin:end] -= along @ self._basis[:size, begin:end]

            n, parts = len(image), cores()
            share(subtract, [n * i // parts for i in range(parts + 1)])
        return along

    def stages(self) -> Iterator[None]:
        """Grow it a few dimensions at a time, until it is closed or full."""
        while not self.closed and self.size < self.most:
            self.grow(self.size + tuning.KRYLOV_STAGE)
            yield

    def largest(self) -> tuple[float, float, Floats]:
        """The largest eigenvalue of the map in the space, its residual, and its vector's real part in the basis."""
        values, vectors = np.linalg.eig(self.h)
        k = int(np.abs(values).argmax())
        vector = vectors[:, k] * np.exp(-1j * np.angle(vectors[0, k]))
        residual = 0.0 if self.closed else float(self.rest[0] * abs(vector[-1]))
        return float(abs(values[k])), residual, np.asarray(vector.real, np.float64)


def share_of(change: Floats, whole: Floats) -> float:
    """How large a change is beside the whole."""
    return float(np.linalg.norm(change) / max(float(np.linalg.norm(whole)), 1e-300))


def solve(
    apply: Map, source: Floats, goal: float, share: Callable[[Floats, Floats], float] = share_of
) -> tuple[Floats, float]:
    """The x with x = L x + source, by full orthogonalisation, restarted from the true residual, and its error.

    share(change, x) : how large a change of x is beside x, in what is asked for. The error ought to be below `goal`.
    """
    total, error, rest = np.zeros(len(source)), np.inf, source
    for attempt in range(tuning.KRYLOV_RESTARTS):
        space = Krylov(apply, rest)
        if space.length == 0:
            return total, 0.0
        enough, done = goal / 100 if attempt == 0 else 1e-3, False
        for _ in space.stages():
            y = np.linalg.solve(np.eye(space.size) - space.h, space.length * np.eye(space.size)[0])
            done = space.closed or space.rest[0] * abs(y[-1]) <= enough * space.length
            if done:
                break
        change = y @ space.basis
        total = total + change
        error = share(change, total)
        rest = source + apply(total) - total
        if not np.isfinite(error) or (attempt and done and error < goal):
            break
    return total, error


def radius(
    apply: Map, start: Floats, restarts: int = tuning.KRYLOV_RESTARTS, beside: float | None = None
) -> tuple[float, float]:
    """The largest eigenvalue of L in the spaces of `start`, and its residual, which ought to be small beside it.

    beside : a number; it is enough to know on which side of it the eigenvalue is
    """
    value = residual = np.inf
    for _ in range(restarts):
        space = Krylov(apply, start)
        for _ in space.stages():
            if not np.isfinite(space.h).all():
                raise PrecisionError("the radius of a round must be known from numbers in range; got some beyond it")
            value, residual, along = space.largest()
            far = 0.0 if beside is None else tuning.SIDE_RESIDUAL * abs(value - beside)
            if residual <= max(tuning.RADIUS_RESIDUAL * value, far):
                return value, residual
        start = along @ space.basis
    return value, residual


def refuse_radius(value: float, residual: float) -> NoReturn:
    """Of a mean-square radius with too large a residual."""
    rule = f"the mean-square radius must be known to {tuning.RADIUS_RESIDUAL:g}, relative"
    raise PrecisionError(f"{rule}; got {value:.12g} with a residual of {residual:.1e}")


def powers(
    begin: Callable[[Floats | None], tuple[Observed, Floats]],
    allowed: Callable[[Floats], float],
    rounds: NDArray[np.int64],
) -> Floats | None:
    """What is seen of L^t d at the given rounds t >= 0, in increasing order : (R, k); None where that leads nowhere.

    begin : the linear map L, with what is seen of its argument, and d; then the same where what is left of d, which it
    is told, starts another space
    allowed : how long the error of a state may be of which the given values are seen

    With a basis B of the Krylov space of d, the small matrix h of L in it and b the vector that leads out of it,
    L B x = B h x + b x_m, so that B h^t e_1 |d| misses L^t d by

        sum_{s < t} L^(t - 1 - s) b (h^s e_1)_m |d|.

    The sum of |(h^s e_1)_m| is known: the space is believed for as many rounds as that, times |b|, is allowed, however
    far they are; it grows until all rounds are reached or it is full, and what is left of d starts the next one.
    """
    at, out, left = 0, list[Floats](), None
    while len(out) < len(rounds):
        apply, distance = begin(left)
        observed = list[Floats]()

        def step(v: Floats, apply: Observed = apply, observed: list[Floats] = observed) -> Floats:
            image, shown = apply(v)
            observed.append(shown)
            return image

        space = Krylov(step, distance)
        if space.length == 0:
            return np.stack([*out, *np.zeros((len(rounds) - len(out), len(apply(distance)[1])))])
        ahead = rounds[len(out) :] - at
        for _ in space.stages():
            found, reach, x = _follow(space, np.stack(observed, axis=1), allowed, ahead)
            if len(found) == len(ahead):
                break
        out += found
        if len(out) < len(rounds) and (reach == 0 or not np.isfinite(x).all()):
            return None
        left, at = x @ space.basis, at + reach
    return np.stack(out)


def _follow(
    space: Krylov, observed: Floats, allowed: Callable[[Floats], float], rounds: NDArray[np.int64]
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
        if np.linalg.norm(x) <= tuning.VANISHED * allowed(np.zeros(len(observed))):
            return out + [np.zeros(len(observed))] * (len(rounds) - len(out)), int(rounds[-1]), 0 * x
        missed = np.append(0, np.cumsum(leads * np.abs(rows @ x)))  # by the end of each round of a block

        def good(ahead: int, x: Floats = x, missed: Floats = lost + missed) -> bool:
            return bool(missed[ahead] <= allowed(observed @ _further(squares, ahead, x)))

        far = min(tuning.KRYLOV_ROUNDS, int(rounds[-1]) - at)
        if not good(far):
            far = bisect_left(range(1, far), True, key=lambda ahead: not good(ahead))
        for t in rounds[len(out) :]:
            if t > at + far:
                break
            out.append(observed @ _further(squares, int(t) - at, x))
        x, at, lost = _further(squares, far, x), at + far, lost + missed[far]
        if far < tuning.KRYLOV_ROUNDS:
            break
    return out, at, x


def _further(squares: Squares[Floats], rounds: int, x: Floats) -> Floats:
    """h^rounds x."""
    for power in squares.of(rounds):
        x = power @ x
    return x
