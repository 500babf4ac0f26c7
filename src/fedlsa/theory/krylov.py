"""Krylov spaces of a linear map on long vectors, grown as far as they are needed.

start, L start, L^2 start, ... are made orthonormal for a sketch of the vectors, a few thousand sums of their entries
with random signs: inner products of sketches are close to those of the vectors, so the basis is well conditioned, and
long vectors are read once per step instead of four times. L B_m = B_{m+1} h holds to rounding for any such basis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ..checks import Floats
from ..errors import ArgumentError
from . import pair_kernels
from .threads import cores, share

MOST = 144  # dimensions
LEAST = 40  # that there must be room for: restarts of smaller spaces would not converge
MEMORY = 2**28  # numbers in a basis: 2 GB
SKETCH = 4096
CANCELLED = 1e-3  # what is left of an image when rounding calls for another pass


def _subtract(basis: Floats, along: Floats, image: Floats, begin: int, end: int) -> None:
    pair_kernels.subtract(basis, along, begin, end, image)


def dimensions(n: int, most: int = MOST) -> int:
    """How many a space of vectors of n numbers may have within the memory; 0 where these are too few."""
    room = min(most, MEMORY // n - 1, n)
    return room if room >= min(LEAST, n) else 0


class Krylov:
    """The space of `start` under `apply`: basis : (size, n), h : (size, size) the map in it, length of start.

    closed : whether the space maps to itself, so that growing further is neither possible nor needed.
    """

    def __init__(self, apply: Callable[[Floats], Floats], start: Floats, most: int = MOST) -> None:
        n = len(start)
        self.most = dimensions(n, most)
        if not self.most:
            raise ArgumentError(
                "different groups of agents times dimension must be at most about "
                f"{math.isqrt(2 * MEMORY // LEAST)} for a Krylov space of second moments to fit into "
                f"{8 * MEMORY / 2**30:.0f} GB; got about {math.isqrt(2 * n)}"
            )
        self.apply, self.size, self.closed = apply, 0, False
        self._basis = np.empty((self.most + 1, n))
        self._h = np.zeros((self.most + 1, self.most))
        self._signs = None
        if n > 2 * SKETCH:  # a sketch is a fixed part of the method, the same in every run
            self._signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), n)
        self._small = self._basis if self._signs is None else np.empty((self.most + 1, SKETCH))
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
        whole = len(signed) // SKETCH * SKETCH
        out = signed[:whole].reshape(-1, SKETCH).sum(0)
        out[: len(signed) - whole] += signed[whole:]
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
            whole = left = float(np.linalg.norm(small))
            for again in range(2):
                along += self._orthogonal(image, small, j + 1)
                small = self._sketch(image)
                before, left = left, float(np.linalg.norm(small))
                if again or left > CANCELLED * before:
                    break
            self._h[: j + 1, j], self.size = along, j + 1
            if not left > 1e-13 * whole:
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
            n, parts = len(image), cores()
            share(partial(_subtract, self._basis[:size], along, image), [n * i // parts for i in range(parts + 1)])
        return along
