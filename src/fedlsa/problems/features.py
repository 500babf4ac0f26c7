"""Features of states: maps with ||phi(s)|| <= 1 that say their dimension, and whatever else can stand for one."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError
from ..value_objects import Checked, count, number
from .arguments import call_by_name, filled
from .system import Integers

# What a feature map is: states in, rows of at most unit length out; and the maps of numbered states.


class FeatureMap(Checked, ABC):
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

    def settings(self) -> dict[str, Any]:
        """The map's name and fields as plain values, which JSON can hold and `from_settings` understands."""
        return {"name": type(self).__name__} | json.loads(json.dumps(asdict(self)))  # type: ignore[call-overload]


def _room(states: int, each: int) -> None:
    """Refuse a batch whose features, with what they are computed from, would not fit into memory."""
    checks.memory("the number of states", states, 8 * each, "their features")


def numbered(states: ArrayLike, count: int, name: str = "states") -> Integers:
    """(n,) states that are numbers from 0 to count - 1; an array (n, 1) of them is one too."""
    given = checks.as_array(name, states)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    values = checks.array(name, given, ("n",))
    out = values.astype(np.int64)
    checks.refuse(
        (out != values) | (out < 0) | (out >= count), values, f"{name} must be integers from 0 to {count - 1}"
    )
    return out


def counts(name: str, value: Any, k: int, what: str = "coordinate") -> tuple[int, ...]:
    """A positive integer for each of k coordinates, or one for all."""
    rule = f"one integer, or one per {what} ({k})"
    listed = checks.entries(name, value, rule) if checks.is_sequence(value) else [value] * k
    if len(listed) != k:
        raise ArgumentError(f"{name} must be {rule}; got {checks.show(value)}")
    return tuple(checks.integer(name, n, at_least=1) for n in listed)


class StateMap(FeatureMap):
    """Features of numbered states: the unit vector of the group that a state is in."""

    states: int

    @property
    @abstractmethod
    def _groups(self) -> Integers:
        """(S,): the group of each state, from 0; -1 where it has no features."""

    def __call__(self, states: ArrayLike) -> Floats:
        s = numbered(states, self.states)
        _room(len(s), self.dim)
        group, out = self._groups[s], np.zeros((len(s), self.dim))
        out[group >= 0, group[group >= 0]] = 1
        return out


@dataclass(frozen=True, repr=False)
class OneHot(StateMap):
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
        excluded = sorted({checks.integer("without", s, at_most=S - 1) for s in listed})
        if len(excluded) == S:
            raise ArgumentError(f"without must leave at least one state; got all {S}")
        vars(self).update(states=S, without=tuple(excluded))

    @property
    def dim(self) -> int:
        return self.states - len(self.without)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"state {s}" for s in np.flatnonzero(self._groups >= 0))

    @cached_property
    def _groups(self) -> Integers:
        kept = ~np.isin(np.arange(self.states), self.without)
        return np.where(kept, np.cumsum(kept) - 1, -1)


@dataclass(frozen=True, repr=False)
class Aggregation(StateMap):
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
        group_of_state = tuple(checks.integer("groups", g, at_least=-1, at_most=S - 1) for g in listed)
        if len(group_of_state) != S:
            raise ArgumentError(f"groups must hold the group of each of {S} states; got {len(group_of_state)} entries")
        missing = set(range(max(*group_of_state, 0) + 1)) - set(group_of_state)
        if missing:
            raise ArgumentError(f"groups must be numbered from 0 without gaps; got none with number {min(missing)}")
        vars(self).update(groups=group_of_state)

    @property
    def dim(self) -> int:
        return self.groups if isinstance(self.groups, int) else max(self.groups) + 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"group {g}" for g in range(self.dim))

    @cached_property
    def _groups(self) -> Integers:
        if isinstance(self.groups, int):
            return np.arange(self.states) * self.groups // self.states
        return np.array(self.groups)


# Features of states in a box: tiles, cosines and bumps. States outside are taken as the nearest point of the box.


@dataclass(frozen=True, repr=False)
class BoxMap(FeatureMap):
    """Features of states in a box.

    low, high : corners of the box, a number for each coordinate of a state
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        a = filled("low", np.atleast_1d(checks.as_array("low", self.low)), ("k",))
        b = checks.array("high", np.atleast_1d(checks.as_array("high", self.high)), (len(a),))
        if (b <= a).any():
            i = int(np.argmax(b <= a))
            raise ArgumentError(f"high must be above low; got {b[i]:g} against {a[i]:g} for coordinate {i}")
        vars(self).update(low=tuple(a.tolist()), high=tuple(b.tolist()))

    def __call__(self, states: ArrayLike) -> Floats:
        given, a, b = checks.as_array("states", states), np.array(self.low), np.array(self.high)
        x = checks.array("states", given[:, None] if given.ndim == len(a) == 1 else given, ("n", len(a)))
        _room(len(x), self.dim * len(a))
        return np.asarray(self._features((np.clip(x, a, b) - a) / (b - a)), np.float64)

    @abstractmethod
    def _features(self, x: Floats) -> Floats:
        """Features (n, d) of states x : (n, k), clipped to the box and scaled to [0, 1]."""


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
    tilings: int = count(1, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self).update(tiles=counts("tiles", self.tiles, len(self.low)))

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

    def _features(self, x: Floats) -> Floats:
        shape = np.array(self.tiles)
        per_tiling = int(shape.prod())
        out = np.zeros((len(x), self.tilings * per_tiling))
        for t, shift in enumerate(self._shifts):
            cell = np.minimum((x * shape + shift).astype(np.int64), shape - 1)  # tiles at the upper edge are wider
            out[np.arange(len(x)), t * per_tiling + np.ravel_multi_index(tuple(cell.T), tuple(shape))] = 1
        last = np.arange(2, self.tilings + 1) * per_tiling - 1
        return np.delete(out, last, axis=1) / math.sqrt(self.tilings)


@dataclass(frozen=True, repr=False)
class Fourier(BoxMap):
    """The Fourier basis: cos(pi c . x) / sqrt(d) with x the state scaled to [0, 1]^k, c from {0, ..., order}^k.

    low, high : corners of the box, a number for each coordinate of a state
    order : the highest frequency along a coordinate
    total : keep only those c whose entries add up to at most `order`. Then d = binomial(order + k, k), else
    d = (order + 1)^k
    """

    order: int = count()
    total: bool = False

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
        k = len(self.low)
        _room((self.order + 1) ** k, k)  # all before some are chosen
        c = np.indices((self.order + 1,) * k).reshape(k, -1).T
        return np.ascontiguousarray(c[c.sum(axis=1) <= self.order] if self.total else c, np.int64)

    def _features(self, x: Floats) -> Floats:
        return np.asarray(np.cos(math.pi * (x @ self.frequencies.T)) / math.sqrt(self.dim))


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
    width: float | None = number(None, instead=type(None), above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if checks.as_array("centres", self.centres).ndim == 2:
            points = filled("centres", self.centres, ("d", len(self.low)))
            vars(self).update(centres=tuple(map(tuple, points.tolist())))
        else:
            vars(self).update(centres=counts("centres", self.centres, len(self.low)))

    @cached_property
    def _bumps(self) -> tuple[Floats, Floats]:
        """Centres (d, k) and standard deviations (k,) in units of the box."""
        k, given = len(self.low), np.array(self.centres)
        if given.ndim == 2:
            points = (given - self.low) / np.subtract(self.high, self.low)
            widths = np.full(k, len(points) ** (-1 / k))
        else:
            sides = [np.linspace(0, 1, n) if n > 1 else np.array([0.5]) for n in given]
            points = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, k)
            widths = 1 / np.maximum(given - 1, 1)
        return points, widths if self.width is None else np.full(k, self.width)

    @property
    def dim(self) -> int:
        given = np.array(self.centres)
        return len(given) if given.ndim == 2 else math.prod(given.tolist())

    @property
    def names(self) -> tuple[str, ...]:
        centres = self.low + self._bumps[0] * np.subtract(self.high, self.low)
        return tuple(f"bump at {', '.join(f'{x:.4g}' for x in row)}" for row in centres)

    def _features(self, x: Floats) -> Floats:
        points, widths = self._bumps
        exponent = -0.5 * np.sum(((x[:, None, :] - points) / widths) ** 2, axis=-1)
        bump = np.exp(exponent - exponent.max(axis=1, keepdims=True))  # the nearest centre never underflows
        return np.asarray(bump / bump.sum(axis=1, keepdims=True))


MAPS: dict[str, type[FeatureMap]] = {
    kind.__name__: kind for kind in (OneHot, Aggregation, TileCoding, Fourier, RadialBasis)
}


def from_settings(settings: Mapping[str, Any]) -> FeatureMap:
    """The map that `map.settings()` describes: {"name": "Fourier", "low": [...], ...}."""
    if not isinstance(settings, Mapping) or "name" not in settings:
        rule = "settings of features must be a mapping with the key 'name'"
        raise ArgumentTypeError(f"{rule}; got {checks.show(settings)}")
    kind = MAPS[checks.choice("the name of features", settings["name"], MAPS)]
    return call_by_name(kind, {key: value for key, value in settings.items() if key != "name"}, "settings")


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
    out: Any
    if hasattr(features, "transform"):
        rows = batch if batch.ndim > 1 else batch[:, None]
        try:
            out = features.transform(rows)
        except Exception as error:  # scikit-learn has one class for what is not fitted, and ValueError for the rest
            rule = f"{name} must be a fitted transformer for states of shape {rows.shape}"
            raise ArgumentError(f"{rule}; got: {' '.join(str(error).split())}") from error
    elif callable(features):
        out = features(batch)
    else:
        table = checks.array(name, features, ("S", "d"))
        out = table[numbered(batch, len(table))]
    dense = out.toarray() if hasattr(out, "toarray") else out
    phi = checks.array(f"what {name} gives for {len(batch)} states", dense, (len(batch), "d"))
    if phi.shape[1] == 0:
        raise ArgumentError(f"{name} must have at least one column; got shape {phi.shape}")
    return phi


def names_of(features: Any, d: int) -> tuple[str, ...]:
    """Of the d features that `apply` gives: the map's own, or those of a transformer; else "feature 0", ..."""
    names = features.names if isinstance(features, FeatureMap) else ()
    if hasattr(features, "get_feature_names_out"):
        with suppress(Exception):  # scikit-learn's transformers refuse for reasons of their own; names are not needed
            names = tuple(map(str, features.get_feature_names_out()))
    return names if len(set(names)) == d else tuple(f"feature {j}" for j in range(d))


__all__ = sorted([*MAPS, "MAPS", "FeatureMap", "apply", "from_settings"])


def __dir__() -> list[str]:
    return __all__
