"""Fitted models on disk: JSON that a person can read, the same bytes for the same fit, every number to its last bit.

Numbers are written as Python's repr, so they come back exactly; NaN is null, infinities are "inf" and "-inf".
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..algorithms import Algorithm, supporting
from ..errors import ArgumentError, FedLSAError, FedLSAWarning, ResultFileError
from ..files import reason, replacing
from ..problems import features as maps
from ..theory.planner import Plan
from .bootstrap import Bootstrap
from .one_message import Baseline
from .tasks import Regression, Task, Value

FORMAT, VERSION = "fedlsa-fit", 2
KINDS = {kind.__name__: kind for kind in supporting("fit").values()}
LOST = "not in this file"  # in place of features that are code


def write_model(fit: Any, path: Path) -> None:
    """Write the fields of a fit; a file that was there before is replaced only once the new one is complete."""
    held: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    held |= {f.name: _plain(getattr(fit, f.name)) for f in fields(fit)}
    stored = held["task"]["features"]
    if isinstance(stored, dict) and LOST in stored:
        warnings.warn(
            f"{path} cannot hold the features, {stored[LOST]}, because they are code: it holds "
            "their coefficients, and Fit.load(path, features=...) needs the same features again",
            FedLSAWarning,
            stacklevel=3,
        )
    with replacing(path, "the model") as part:
        part.write_text(_text(held) + "\n", encoding="utf-8", newline="\n")


def read_model(path: Path, whole: type, site: type, features: Any = None) -> dict[str, Any]:
    """The fields of a fit (class `whole`, its sites of class `site`) that `write_model` wrote."""
    held = _held(path)
    try:
        task = _task(held["task"], path, features)
        special = {
            "task": task,
            "names": tuple(str(n) for n in held["names"]),
            "columns": tuple(str(n) for n in held["columns"]),
            "plan": _plan(held["plan"]),
            "epsilon": None if held["epsilon"] is None else _number(held["epsilon"]),
            "per_site": tuple(site(**_typed(site, s)) for s in held["per_site"]),
            "baselines": tuple(Baseline(**_typed(Baseline, r)) for r in held["baselines"]),
            "bootstrap": None if held["bootstrap"] is None else Bootstrap(**_typed(Bootstrap, held["bootstrap"])),
        }
        rest = {k: v for k, v in held.items() if k not in ("format", "version", *special)}
        out = _typed(whole, rest) | special
        d = len(out["names"])
        if out["theta"].shape != (d,) or out["covariance"].shape != (d, d):
            raise ValueError(f"{d} names for coefficients of shape {out['theta'].shape}")
    except FedLSAError:
        raise
    except Exception as error:  # a file that was edited by hand can go wrong anywhere
        what = f"it lacks {error}" if isinstance(error, KeyError) else reason(error)
        raise ResultFileError(f"{path} is damaged: {what}") from error
    return out


def _held(path: Path) -> dict[str, Any]:
    """The JSON object in a file, of a format and a version that this program knows."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultFileError(f"there is no model file {path}") from None
    except OSError as error:
        raise ResultFileError(f"cannot read the model file {path}: {reason(error)}") from error
    except UnicodeDecodeError:
        raise ResultFileError(f"{path} is not a model file: it is not text") from None
    except (ValueError, RecursionError) as error:
        raise ResultFileError(f"{path} is not a model file, or is cut short: {reason(error)}") from error
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        raise ResultFileError(f"{path} is not a model file of fedlsa fit")
    if held.get("version") != VERSION:
        raise ResultFileError(
            f"{path} has version {held.get('version')!r}; this fedlsa reads version {VERSION}: "
            "fit again, or use the fedlsa that wrote it"
        )
    return held


def _plain(value: Any) -> Any:
    """Any part of a fit as what JSON has."""
    if isinstance(value, Regression | Value):
        out = {"kind": type(value).__name__} | {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        return out if isinstance(value, Regression) else out | {"features": _features(value.features)}
    if isinstance(value, Algorithm):
        return {"kind": type(value).__name__} | {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _features(value: Any) -> Any:
    """A feature map as its settings, a table of features as its rows, code as a word that it is missing."""
    if value is None:
        return None
    if isinstance(value, maps.FeatureMap):
        return _plain(value.settings())
    if callable(value) or hasattr(value, "transform"):
        return {LOST: getattr(value, "__name__", type(value).__name__)}
    return {"rows": _plain(np.asarray(value))}


def _task(held: dict[str, Any], path: Path, features: Any) -> Task:
    given = {k: v for k, v in held.items() if k != "kind"}
    kind = {"Regression": Regression, "Value": Value}[held["kind"]]
    stored = given.get("features")
    lost = stored[LOST] if isinstance(stored, dict) and LOST in stored else None
    if features is not None and lost is None:
        raise ArgumentError(f"features must not be given, for {path} holds its own; got {type(features).__name__}")
    if lost is not None and features is None:
        raise ResultFileError(
            f"{path} was fitted with features that are code ({lost}) and not in the file: "
            "read it in Python with Fit.load(path, features=...)"
        )
    if lost is not None:
        given["features"] = features
    elif isinstance(stored, dict):
        given["features"] = np.array(stored["rows"]) if "rows" in stored else maps.from_settings(stored)
    return kind(**given)


def _plan(held: dict[str, Any]) -> Plan:
    method = dict(held["algorithm"])
    return Plan(**_typed(Plan, {**held, "algorithm": KINDS[method.pop("kind")](**method)}))


def _typed(record: type, held: dict[str, Any]) -> dict[str, Any]:
    """Entries as the fields of a dataclass want them, by their annotations."""
    kinds = {f.name: str(f.type) for f in fields(record)}
    out: dict[str, Any] = {}
    for name, value in held.items():
        kind = kinds[name]
        if kind == "Floats":
            out[name] = np.array(_numbers(value), np.float64)
        elif kind == "float":
            out[name] = _number(value)
        elif kind == "dict[str, float]":
            out[name] = {k: _number(v) for k, v in value.items()}
        else:
            out[name] = value
    return out


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _numbers(value: Any) -> Any:
    return [_numbers(v) for v in value] if isinstance(value, list) else _number(value)


def _text(value: Any, margin: str = "") -> str:
    """JSON with a line per entry of an object and per row of a table: short enough to read."""
    inner = margin + "  "
    if isinstance(value, dict) and value:
        rows = [f"{inner}{json.dumps(k)}: {_text(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{margin}}}"
    if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        return "[\n" + ",\n".join(inner + _text(v, inner) for v in value) + f"\n{margin}]"
    return json.dumps(value, allow_nan=False)
