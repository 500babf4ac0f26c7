"""A Record of the protocol as Flower carries it: one ConfigRecord, arrays as bytes beside their type and shape.

One flat record is three objects on the wire where arrays of Flower's own would be seven, and each costs a request.
What arrives is not trusted: a type outside the list, a shape that does not fit the bytes, or a value of another kind
than the schema's is a MessageError. How much may arrive is settled before: by the gate, and by pulling.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import MessageError
from ..protocol.records import Record

KEY = "fedlsa"
TYPES = {"float64": np.float64, "int8": np.int8, "int16": np.int16}


def to_content(record: Record) -> Any:
    """The RecordDict that carries a record."""
    from flwr.app import ConfigRecord, RecordDict

    held: dict[str, Any] = {"kind": record.kind, **{f"meta.{k}": v for k, v in record.meta.items()}}
    for name, array in record.arrays.items():
        a = np.ascontiguousarray(array)
        held[f"array.{name}"] = a.tobytes()
        held[f"shape.{name}"] = ":".join([str(a.dtype), *map(str, a.shape)])
    return RecordDict({KEY: ConfigRecord(held)})


def from_content(content: Any) -> Record:
    """The record that a RecordDict carries; MessageError where it carries none."""
    try:
        held = dict(content[KEY])
    except (KeyError, TypeError, ValueError):
        raise MessageError(f"a message must hold a record named {KEY}; got none") from None
    meta: dict[str, int | float | str | bool] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in held.items():
        part, _, rest = name.partition(".")
        if part == "meta" and isinstance(value, bool | int | float | str):
            meta[rest] = value
        elif part == "array" and isinstance(value, bytes):
            arrays[rest] = _array(rest, value, held.get(f"shape.{rest}"))
        elif part not in ("kind", "shape"):
            raise MessageError(f"a message's entry must be a scalar or an array; got {name[:40]!r}")
    kind = held.get("kind")
    if not isinstance(kind, str):
        raise MessageError("a message must name its kind; got none")
    return Record(kind, meta, arrays)


def _array(name: str, data: bytes, described: Any) -> np.ndarray:
    kind, *lengths = described.split(":") if isinstance(described, str) else [""]
    rule = f"array {name[:40]!r} must be one of {', '.join(TYPES)} with a shape that fits its {len(data)} bytes"
    if kind not in TYPES or len(lengths) > 3 or not all(n.isascii() and n.isdigit() and len(n) < 12 for n in lengths):
        raise MessageError(f"{rule}; got {str(described)[:40]!r}")
    shape = tuple(int(n) for n in lengths)
    if math.prod(shape) * np.dtype(TYPES[kind]).itemsize != len(data):
        raise MessageError(f"{rule}; got {described[:40]!r}")
    try:
        return np.frombuffer(data, dtype=TYPES[kind]).reshape(shape).copy()
    except ValueError:  # lengths around a zero that no array can have
        raise MessageError(f"{rule}; got {described[:40]!r}") from None
