"""Features of states: maps with ||phi(s)|| <= 1 that say their dimension, and whatever else can stand for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError, ArgumentTypeError
from ..arguments import call_by_name
from .boxes import Fourier, RadialBasis, TileCoding
from .maps import Aggregation, FeatureMap, OneHot, numbered

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
