"""Fitted models on disk: JSON that a person can read, the same bytes for the same fit, every number to its last bit.

Numbers are written as Python's repr, so they come back exactly; NaN is null, infinities are "inf" and "-inf". The last
entry is the sha256 of the text of all others: a digit that was changed would give another answer in silence.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from ..algorithms import METHODS, Algorithm
from ..checks import Floats
from ..errors import ArgumentError, FedLSAError, ResultFileError, warn
from ..files import reason, write
from ..problems import features as maps
from .tasks import Regression, Task, Value

FORMAT, VERSION = "fedlsa-fit", 6
HEADER = ("format", "version")
TASKS: dict[str, type[Task]] = {"Regression": Regression, "Value": Value}
DIGEST = "sha256"
LOST = "not in this file"  # in place of features that are code


def write_model(fit: Any, path: Path, own: dict[str, Any]) -> None:
    """Write the fields of a fit; a file that was there before is replaced only once the new one is complete.

    own : further fields, which are of single sites
    """
    content = {"format": FORMAT, "version": VERSION, **to_plain(fit), **to_plain(own)}
    stored = content["task"].get("features")
    if isinstance(stored, dict) and LOST in stored:
        warn(
            f"{path} cannot hold the features, {stored[LOST]}, because they are code: it holds "
            "their coefficients, and Fit.load(path, features=...) needs the same features again"
        )
    write(path, _with_digest(content).encode(), "the model")


def read_model(path: Path, kind: type, features: Any = None) -> Any:
    """The fit, of class `kind`, that `write_model` wrote."""
    content, text = _content(path)
    try:
        content.pop(DIGEST, None)
        if text != _with_digest(content):
            raise ResultFileError(f"{path} is damaged or was edited: its text does not match its {DIGEST}; fit again")
        task = task_from_plain(content.pop("task"), path, features)
        out = kind(task=task, **typed_fields(kind, {k: v for k, v in content.items() if k not in HEADER}))
        d = len(out.names)
        if out.theta.shape != (d,) or out.covariance.shape != (d, d):
            raise ValueError(f"{d} names for coefficients of shape {out.theta.shape}")
    except FedLSAError:
        raise
    except Exception as error:  # a file that was edited by hand can go wrong anywhere
        raise ResultFileError(f"{path} is damaged: {reason(error)}") from error
    return out


def _content(path: Path) -> tuple[dict[str, Any], str]:
    """The JSON object in a file, of a format and a version that this program knows, and its text."""
    try:
        content = json.loads(text := path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultFileError(f"there is no model file {path}") from None
    except OSError as error:
        raise ResultFileError(f"cannot read the model file {path}: {reason(error)}") from error
    except (ValueError, RecursionError) as error:  # bytes that are no text among them
        raise ResultFileError(f"{path} is not a model file, or is cut short: {reason(error)}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ResultFileError(f"{path} is not a model file of fedlsa fit")
    if content.get("version") != VERSION:
        rule = f"this fedlsa reads version {VERSION}: fit again, or use the fedlsa that wrote it"
        raise ResultFileError(f"{path} has version {content.get('version')!r}; {rule}")
    return content, text


def to_plain(value: Any) -> Any:
    """Any part of a fit as what JSON has."""
    if is_dataclass(value):
        kind = {"kind": type(value).__name__} if isinstance(value, Regression | Value | Algorithm) else {}
        out = kind | {f.name: to_plain(getattr(value, f.name)) for f in fields(value) if f.compare}
        if out.get("own", "") is None:  # files of tasks without it are as they were
            del out["own"]
        return out | {"features": _plain_features(value.features)} if isinstance(value, Value) else out
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, np.generic):
        return to_plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_plain(v) for v in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _plain_features(value: Any) -> Any:
    """A feature map as its settings, a table of features as its rows, code as a word that it is missing."""
    if value is None:
        return None
    if isinstance(value, maps.FeatureMap):
        return to_plain(value.settings())
    if callable(value) or hasattr(value, "transform"):
        return {LOST: getattr(value, "__name__", type(value).__name__)}
    return {"rows": to_plain(np.asarray(value))}


def task_from_plain(content: dict[str, Any], path: Path, features: Any = None) -> Task:
    """The inverse of `to_plain` for a task; features : those that the file could not hold."""
    given = {k: v for k, v in content.items() if k != "kind"}
    stored = given.get("features")
    lost = stored.get(LOST) if isinstance(stored, dict) else None
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
    return TASKS[content["kind"]](**given)


def typed_fields(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """Entries of a dataclass, each as its annotation wants it."""
    kinds = get_type_hints(kind)
    return {name: _typed(kinds[name], value) for name, value in content.items()}


def _typed(kind: Any, value: Any) -> Any:
    """A value as an annotation wants it: numbers for arrays, NaN for null, tuples and records."""
    if kind == Floats:
        return np.array(_numbers(value), np.float64)
    if kind is float:
        return _numbers(value)
    if kind is Algorithm:
        return METHODS[value["kind"].lower()](**{k: v for k, v in value.items() if k != "kind"})
    if get_origin(kind) is UnionType:  # ... | None
        return None if value is None else _typed(get_args(kind)[0], value)
    if get_origin(kind) is tuple:
        return tuple(_typed(get_args(kind)[0], v) for v in value)
    if get_origin(kind) is dict:
        return {k: _typed(get_args(kind)[1], v) for k, v in value.items()}
    return kind(**typed_fields(kind, value)) if isinstance(kind, type) and is_dataclass(kind) else value


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return math.nan if value is None else float(value)


def _with_digest(content: dict[str, Any]) -> str:
    """The text of a file."""
    digest = hashlib.sha256(_text(content).encode()).hexdigest()
    return _text({**content, DIGEST: digest}) + "\n"


def _text(value: Any, margin: str = "") -> str:
    """JSON with a line per entry of an object and per row of a table: short enough to read."""
    inner = margin + "  "
    if isinstance(value, dict) and value:
        rows = [f"{inner}{json.dumps(k)}: {_text(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{margin}}}"
    if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        return "[\n" + ",\n".join(inner + _text(v, inner) for v in value) + f"\n{margin}]"
    return json.dumps(value, allow_nan=False)
