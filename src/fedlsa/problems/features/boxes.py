"""Features of states in a box: tiles, cosines and bumps. States outside are taken as the nearest point of the box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError
from ..system import Integers
from .maps import FeatureMap, box, counts, unit


@dataclass(frozen=True, repr=False)
class BoxMap(FeatureMap):
    """Features of states in a box.

    low, high : corners of the box, a number for each coordinate of a state
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        low, high = box(self.low, self.high)
        vars(self).update(low=low, high=high)


@dataclass(frozen=True, repr=False)
class TileCoding(BoxMap):
    """Tile coding: `tilings` grids over the box, each displaced by another part of a tile; one tile of each is active.

    low, high : corners of the box, a number for each coordinate of a state
    tiles : along each coordinate, one number for all or one each
    tilings : how many grids

    An active tile has the value 1/sqrt(tilings).
    d = tilings prod(tiles) - (tilings - 1): in every grid the tiles add up to a constant, so all grids but the first
    leave out their last tile. What can be represented is the same, and the system stays invertible.
    """

    tiles: int | tuple[int, ...]
    tilings: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        tilings = checks.integer("tilings", self.tilings, at_least=1)
        vars(self).update(tiles=counts("tiles", self.tiles, len(self.low)), tilings=tilings)

    @property
    def dim(self) -> int:
        return self.tilings * (math.prod(self.tiles) - 1) + 1  # type: ignore[arg-type]

    @cached_property
    def _shifts(self) -> Floats:
        """(tilings, k): displacements in tiles; along each coordinate every grid has its own."""
        T, k = self.tilings, len(self.low)
        strides = [n for n in range(1, T * (k + 1) + 2) if math.gcd(n, T) == 1][:k]
        return np.asarray(np.arange(T)[:, None] * np.array(strides) % T / T, np.float64)

    def __call__(self, states: ArrayLike) -> Floats:
        x = unit(states, self.low, self.high)
        self._room(len(x))
        shape = np.array(self.tiles)
        per_tiling = int(shape.prod())
        out = np.zeros((len(x), self.tilings * per_tiling))
        for t, shift in enumerate(self._shifts):
            cell = np.minimum((x * shape + shift).astype(np.int64), shape - 1)  # tiles at the upper edge are wider
            out[np.arange(len(x)), t * per_tiling + np.ravel_multi_index(tuple(cell.T), tuple(shape))] = 1
        last = np.arange(2, self.tilings + 1) * per_tiling - 1
        return np.asarray(np.delete(out, last, axis=1) / math.sqrt(self.tilings), np.float64)


@dataclass(frozen=True, repr=False)
class Fourier(BoxMap):
    """The Fourier basis: cos(pi c . x) / sqrt(d) with x the state scaled to [0, 1]^k, c from {0, ..., order}^k.

    low, high : corners of the box, a number for each coordinate of a state
    order : the highest frequency along a coordinate
    total : keep only those c whose entries add up to at most `order`. Then d = binomial(order + k, k), else
    d = (order + 1)^k
    """

    order: int
    total: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self).update(order=checks.integer("order", self.order), total=checks.boolean("total", self.total))

    @property
    def dim(self) -> int:
        k = len(self.low)
        return int(math.comb(self.order + k, k) if self.total else (self.order + 1) ** k)

    @cached_property
    def frequencies(self) -> Integers:
        """(d, k): the vectors c, the constant first."""
        c = np.indices((self.order + 1,) * len(self.low)).reshape(len(self.low), -1).T
        return np.ascontiguousarray(c[c.sum(axis=1) <= self.order] if self.total else c, np.int64)

    def __call__(self, states: ArrayLike) -> Floats:
        x = unit(states, self.low, self.high)
        self._room(max(len(x), (self.order + 1) ** len(self.low) // self.dim))  # all before some are chosen
        return np.asarray(np.cos(math.pi * (x @ self.frequencies.T)) / math.sqrt(self.dim), np.float64)


@dataclass(frozen=True, repr=False)
class RadialBasis(BoxMap):
    """Normalised radial basis functions: Gaussian bumps around centres, divided by their sum, so that they add up to 1.

    low, high : corners of the box, a number for each coordinate of a state
    centres : points (d, k) in the units of a state, or a number of grid points along each coordinate (one for all or
    one each; d is their product)
    width : standard deviation of a bump in units of the box's sides; None is the
    distance of neighbours on the grid, and for explicit centres d^(-1/k)
    """

    centres: int | tuple[int, ...] | tuple[tuple[float, ...], ...]
    width: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if checks.as_array("centres", self.centres).ndim == 2:
            points = checks.array("centres", self.centres, ("d", len(self.low)))
            if len(points) == 0:
                raise ArgumentError("centres must hold at least one point; got none")
            vars(self).update(centres=tuple(map(tuple, points.tolist())))
        else:
            vars(self).update(centres=counts("centres", self.centres, len(self.low)))
        if self.width is not None:
            vars(self).update(width=checks.real("width", self.width, above=0))

    @property
    def _listed(self) -> bool:
        """Whether centres are points, rather than the numbers of a grid."""
        return isinstance(self.centres[0], tuple)  # type: ignore[index]

    @property
    def _grid(self) -> tuple[int, ...]:
        return self.centres  # type: ignore[return-value]

    @cached_property
    def _points(self) -> Floats:
        """(d, k): centres in units of the box."""
        if self._listed:
            a, b = np.array(self.low), np.array(self.high)
            return np.asarray((np.array(self.centres) - a) / (b - a), np.float64)
        sides = [np.linspace(0, 1, n) if n > 1 else np.array([0.5]) for n in self._grid]
        return np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, len(self.low))

    @property
    def dim(self) -> int:
        return len(self.centres) if self._listed else math.prod(self._grid)  # type: ignore[arg-type]

    @property
    def _widths(self) -> Floats:
        """(k,): standard deviations along the sides of the box."""
        k = len(self.low)
        if self.width is not None:
            return np.full(k, self.width)
        if self._listed:
            return np.full(k, self.dim ** (-1 / k))
        return np.array([1 / max(n - 1, 1) for n in self._grid])

    def __call__(self, states: ArrayLike) -> Floats:
        x = unit(states, self.low, self.high)
        self._room(len(x))
        gap = (x[:, None, :] - self._points[None]) / self._widths
        exponent = -0.5 * np.sum(gap**2, axis=-1)
        bump = np.exp(exponent - exponent.max(axis=1, keepdims=True))  # the nearest centre never underflows
        return np.asarray(bump / bump.sum(axis=1, keepdims=True), np.float64)
