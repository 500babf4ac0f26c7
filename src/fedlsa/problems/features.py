"""Features of states: maps with ||phi(s)|| <= 1 that say their dimension, and whatever else can stand for one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError
from ..value_objects import Settings
from .arguments import call_by_name
from .system import Integers

# What a feature map is: states in, rows of at most unit length out; and the maps of numbered states.


class FeatureMap(Settings, ABC):
    """A map from n states to features (n, d), with ||phi(s)|| <= 1 for every state (as assum:feature_design asks)."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """The number d of features."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Of the d features, as coefficients are called."""

    @abstractmethod
    def __call__(self, states: ArrayLike) -> Floats:
        """Features (n, d) of n states."""

    def _room(self, states: int) -> None:
        """Refuse a batch whose features, with what they are computed from, would not fit into memory."""
        coordinates = len(getattr(self, "low", (0,)))
        checks.memory("the number of states", states, 8 * self.dim * coordinates, "their features")

    def settings(self) -> dict[str, Any]:
        """The map's name and fields as plain values, which JSON can hold and `from_settings` understands."""
        return {"name": type(self).__name__} | {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def numbered(states: ArrayLike, count: int, name: str = "states") -> Integers:
    """(n,) states that are numbers from 0 to count - 1; an array (n, 1) of them is one too."""
    given = checks.as_array(name, states)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    values = checks.array(name, given, ("n",))
    out = values.astype(np.int64)
    bad = (out != values) | (out < 0) | (out >= count)
    if bad.any():
        at = int(np.argmax(bad))
        raise ArgumentError(f"{name} must be integers from 0 to {count - 1}; got {values[at]:g} at [{at}]")
    return out


def box(low: Any, high: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The two corners of a box, k finite numbers each; plain numbers are a box of one dimension."""
    a = checks.array("low", np.atleast_1d(checks.as_array("low", low)), ("k",))
    b = checks.array("high", np.atleast_1d(checks.as_array("high", high)), (len(a),))
    if len(a) == 0:
        raise ArgumentError("low must hold one number per coordinate of a state; got none")
    if (b <= a).any():
        i = int(np.argmax(b <= a))
        raise ArgumentError(f"high must be above low; got {b[i]:g} against {a[i]:g} for coordinate {i}")
    return tuple(a.tolist()), tuple(b.tolist())


def unit(states: ArrayLike, low: Sequence[float], high: Sequence[float]) -> Floats:
    """(n, k) states clipped to the box and scaled to [0, 1]; (n,) is taken as one coordinate."""
    given = checks.as_array("states", states)
    if given.ndim == 1 and len(low) == 1:
        given = given[:, None]
    x = checks.array("states", given, ("n", len(low)))
    a, b = np.asarray(low), np.asarray(high)
    return np.asarray((np.clip(x, a, b) - a) / (b - a), np.float64)


def counts(name: str, value: Any, k: int, what: str = "coordinate") -> tuple[int, ...]:
    """A positive integer for each of k coordinates, or one for all."""
    if checks.is_sequence(value):
        rule = f"one integer, or one per {what} ({k})"
        listed = checks.entries(name, value, rule)
        if len(listed) != k:
            raise ArgumentError(f"{name} must be {rule}; got {checks.show(value)}")
        return tuple(checks.integer(name, n, at_least=1) for n in listed)
    return (checks.integer(name, value, at_least=1),) * k


@dataclass(frozen=True, repr=False)
class OneHot(FeatureMap):
    """One feature per state: phi(s) is the unit vector of s, and d is the number of states less those in `without`.

    states : how many there are, numbered from 0
    without : states whose features are all 0, such as terminal states and states that are never visited: no
    observation begins there, so a parameter of their own could not be learnt
    """

    states: int
    without: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        S = checks.integer("states", self.states, at_least=1)
        listed = checks.entries("without", self.without, "a list of states")
        gone = sorted({checks.integer("without", s, at_most=S - 1) for s in listed})
        if len(gone) == S:
            raise ArgumentError(f"without must leave at least one state; got all {S}")
        vars(self).update(states=S, without=tuple(gone))

    @property
    def dim(self) -> int:
        return self.states - len(self.without)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"state {s}" for s in range(self.states) if s not in self.without)

    def __call__(self, states: ArrayLike) -> Floats:
        s = numbered(states, self.states)
        self._room(len(s))
        gone = np.asarray(self.without, np.int64)
        out = np.zeros((len(s), self.dim))
        seen = np.flatnonzero(~np.isin(s, gone))
        out[seen, s[seen] - np.searchsorted(gone, s[seen])] = 1
        return out


@dataclass(frozen=True, repr=False)
class Aggregation(FeatureMap):
    """One feature per group of states: phi(s) is the unit vector of the group of s, and d the number of groups.

    states : how many there are, numbered from 0
    groups : how many, for runs of neighbouring states as equal in length as can be; or the group of each state, from 0
    on without gaps, where -1 stands for a state without features
    """

    states: int
    groups: int | tuple[int, ...]

    def __post_init__(self) -> None:
        S = checks.integer("states", self.states, at_least=1)
        vars(self).update(states=S)
        if not checks.is_sequence(self.groups):
            vars(self).update(groups=checks.integer("groups", self.groups, at_least=1, at_most=S))
            return
        listed = checks.entries("groups", self.groups, f"the group of each of {S} states")
        held = tuple(checks.integer("groups", g, at_least=-1, at_most=S - 1) for g in listed)
        if len(held) != S:
            raise ArgumentError(f"groups must hold the group of each of {S} states; got {len(held)} entries")
        missing = sorted(set(range(max(held) + 1)) - set(held)) or ([0] if max(held) < 0 else [])
        if missing:
            raise ArgumentError(f"groups must be numbered from 0 without gaps; got none with number {missing[0]}")
        vars(self).update(groups=held)

    @property
    def dim(self) -> int:
        return self.groups if isinstance(self.groups, int) else max(self.groups) + 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"group {g}" for g in range(self.dim))

    def __call__(self, states: ArrayLike) -> Floats:
        s = numbered(states, self.states)
        self._room(len(s))
        group = s * self.groups // self.states if isinstance(self.groups, int) else np.asarray(self.groups)[s]
        out = np.zeros((len(s), self.dim))
        out[group >= 0, group[group >= 0]] = 1
        return out


# Features of states in a box: tiles, cosines and bumps. States outside are taken as the nearest point of the box.


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

    @property
    def names(self) -> tuple[str, ...]:
        each = math.prod(self.tiles)  # type: ignore[arg-type]
        rest = [f"tiling {t}, tile {j}" for t in range(1, self.tilings) for j in range(each - 1)]
        return (*(f"tiling 0, tile {j}" if rest else f"tile {j}" for j in range(each)), *rest)

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

    @property
    def names(self) -> tuple[str, ...]:
        """The state's coordinates are x0, x1, ..., each from 0 to 1."""
        terms = [[f"{c} x{i}".removeprefix("1 ") for i, c in enumerate(row) if c] for row in self.frequencies.tolist()]
        return tuple(f"cos(pi ({' + '.join(row)}))" if row else "constant" for row in terms)

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
    def names(self) -> tuple[str, ...]:
        low, high = np.array(self.low), np.array(self.high)
        return tuple(f"bump at {', '.join(f'{x:.4g}' for x in row)}" for row in low + self._points * (high - low))

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


MAPS: dict[str, type[FeatureMap]] = {
    kind.__name__: kind for kind in (OneHot, Aggregation, TileCoding, Fourier, RadialBasis)
}


def from_settings(settings: Mapping[str, Any]) -> FeatureMap:
    """The map that `map.settings()` describes: {"name": "Fourier", "low": [...], ...}."""
    if not isinstance(settings, Mapping) or "name" not in settings:
        rule = "settings of features must be a mapping with the key 'name'"
        raise ArgumentTypeError(f"{rule}; got {checks.show(settings)}")
    kind = MAPS[checks.choice("the name of features", settings["name"], MAPS)]
    given = {key: value for key, value in settings.items() if key != "name"}
    return call_by_name(kind, given, "settings")


def apply(features: Any, states: ArrayLike, name: str = "features") -> Floats:
    """Features (n, d) of a batch of n states, (n,) integers or (n, k) numbers, with any map that can give them.

    features : a map of this module; a callable from the batch to (n, d); a fitted scikit-learn transformer, whose
    output may be sparse; or an array (S, d) with a row for each numbered state. name : how an error calls it
    """
    batch = checks.as_array("states", states)
    if not batch.ndim:
        raise ArgumentTypeError(f"states must be a batch, (n,) or (n, k); got {checks.show(states)}")
    if isinstance(features, FeatureMap):
        return features(batch)
    if isinstance(features, type):
        raise ArgumentTypeError(f"{name} must be a feature map, not its class; got {features.__name__}")
    if hasattr(features, "transform"):
        out = _transformed(features, batch if batch.ndim > 1 else batch[:, None], name)
    elif callable(features):
        out = features(batch)
    else:
        table = checks.array(name, features, ("S", "d"))
        _columns(name, table)
        return table[numbered(batch, len(table))]
    out = checks.array(f"what {name} gives for {len(batch)} states", _dense(out), (len(batch), "d"))
    _columns(name, out)
    return out


def names_of(features: Any, d: int) -> tuple[str, ...]:
    """Of the d features that `apply` gives: the map's own, or those of a transformer; else "feature 0", ..."""
    names: Any = ()
    if isinstance(features, FeatureMap):
        names = features.names
    elif hasattr(features, "get_feature_names_out"):
        try:
            names = tuple(map(str, features.get_feature_names_out()))
        except Exception:  # scikit-learn's transformers refuse for reasons of their own, and names are not needed
            names = ()
    return names if len(set(names)) == d else tuple(f"feature {j}" for j in range(d))


def _transformed(transformer: Any, batch: Any, name: str) -> Any:
    try:
        return transformer.transform(batch)
    except Exception as error:  # scikit-learn has one class for what is not fitted, and ValueError for the rest
        reason = " ".join(str(error).split())
        raise ArgumentError(
            f"{name} must be a fitted transformer for states of shape {batch.shape}; got: {reason}"
        ) from error


def _dense(value: Any) -> Any:
    return value.toarray() if hasattr(value, "toarray") else value


def _columns(name: str, phi: Floats) -> None:
    if phi.shape[1] == 0:
        raise ArgumentError(f"{name} must have at least one column; got shape {phi.shape}")


__all__ = [
    "MAPS",
    "Aggregation",
    "FeatureMap",
    "Fourier",
    "OneHot",
    "RadialBasis",
    "TileCoding",
    "apply",
    "from_settings",
]


def __dir__() -> list[str]:
    return __all__
