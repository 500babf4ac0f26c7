"""What a transport carries, and how a message is written as that and read back strictly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np

from ...checks import Floats
from ...errors import MessageError

VERSION = 1
FIELDS, LETTERS, NUMBERS = 32, 1_000_000, 2**24  # the most fields, characters and numbers that a message may have
HIGHEST = 2**63 - 1  # of integers

SCALARS = (int, float, str, bool)
Scalar = int | float | str | bool
Payload = dict[str, np.ndarray[Any, Any]]  # the arrays of a coded upload (coding.py)


def printable(text: object, most: int = 200) -> str:
    """What a stranger wrote, fit for a terminal and a log: one short line without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text)[:most])


@dataclass(frozen=True, eq=False)
class Record:
    """What a transport carries: meta always has "version" and "kind"."""

    kind: str
    meta: dict[str, Scalar]
    arrays: Payload

    @property
    def size(self) -> int:
        """Bytes of the arrays and of the scalars written as JSON: what we count, whatever the transport adds."""
        return sum(a.nbytes for a in self.arrays.values()) + len(json.dumps(self.meta))


def structure(record: object) -> Record:
    """The record, if it is one and of a sane size; its fields are not looked at yet."""
    if type(record) is not Record or type(record.meta) is not dict or type(record.arrays) is not dict:
        raise MessageError("a message must be a record with scalars and arrays")
    if len(record.meta) > FIELDS or len(record.arrays) > FIELDS:
        raise MessageError(f"a message must have at most {FIELDS} fields")
    for name, value in record.meta.items():
        if type(name) is not str or len(name) > 64:
            raise MessageError("names of fields must be short texts")
        if type(value) not in (int, float, str, bool):
            raise MessageError(f"{name!r} must be a number, a text or a truth value; got {type(value).__name__}")
        if type(value) is str and len(value) > LETTERS:
            raise MessageError(f"{name!r} must have at most {LETTERS} characters; got {len(value)}")
        if type(value) is int and not -HIGHEST <= value <= HIGHEST:
            raise MessageError(f"{name!r} must fit in 64 bits")
    for name, array in record.arrays.items():
        if type(name) is not str or len(name) > 64:
            raise MessageError("names of arrays must be short texts")
        kind: type = type(array)  # what came over a wire need not be what is annotated
        if kind is not np.ndarray or array.dtype.kind not in "fi" or not array.dtype.isnative:
            raise MessageError(f"{name!r} must be a plain array of numbers")
        if array.size > NUMBERS:
            raise MessageError(f"{name!r} must have at most {NUMBERS} numbers; got {array.size}")
    if type(record.kind) is not str or record.meta.get("kind") != record.kind:
        raise MessageError("'kind' must name the kind of the message")
    if type(record.meta.get("version")) is not int or record.meta["version"] != VERSION:
        raise MessageError(f"'version' must be {VERSION}; got {str(record.meta.get('version'))[:20]}")
    return record


@dataclass(frozen=True, eq=False)
class Message:
    """Base of all messages: scalars and float64 arrays, as annotated; SHAPES gives the arrays' shapes by letters."""

    KIND: ClassVar[str] = ""
    SHAPES: ClassVar[dict[str, tuple[str, ...]]] = {}

    experiment: str

    def record(self) -> Record:
        """The message as a transport carries it."""
        meta: dict[str, Scalar] = {"version": VERSION, "kind": self.KIND}
        arrays: Payload = {}
        for name, kind in message_fields(type(self)).items():
            value = getattr(self, name)
            if kind in SCALARS:
                meta[name] = kind(value)
            elif kind == Payload:
                arrays.update(value)
            elif value is not None:
                arrays[name] = np.array(value, np.float64)
        return Record(self.KIND, meta, arrays)

    @classmethod
    def from_record(cls, record: object, *, dim: int | None = None) -> Self:
        """Read strictly; dim : the length that the letter d must have, where it is known."""
        record = structure(record)
        if record.kind != cls.KIND:
            raise MessageError(f"'kind' must be {cls.KIND!r}; got {record.kind[:40]!r}")
        kinds, sizes = message_fields(cls), {} if dim is None else {"d": dim}
        free = Payload in kinds.values()  # the rest of the arrays is the payload
        unknown = record.meta.keys() - kinds.keys() - {"version", "kind"}
        unknown |= set() if free else record.arrays.keys() - kinds.keys()
        if unknown:
            raise MessageError(f"a {cls.KIND} has no field {min(unknown)!r}")
        values: dict[str, Any] = {}
        for name, kind in kinds.items():
            if kind in SCALARS:
                values[name] = _scalar(name, record.meta.get(name), kind)
            elif kind == Payload:
                values[name] = {n: a for n, a in record.arrays.items() if n not in kinds}
            elif name not in record.arrays and kind != Floats:
                values[name] = None
            else:
                values[name] = _array(name, record.arrays.get(name), cls.SHAPES[name], sizes)
        message = cls(**values)
        message.check()
        return message

    def check(self) -> None:
        """Rules beyond types, shapes and finiteness."""


def _typed(cls: type[Any]) -> dict[str, Any]:
    """The fields of a message and their types, in order."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


message_fields: Callable[[type], dict[str, Any]] = cache(_typed)


def _scalar(name: str, value: Scalar | None, kind: type) -> Scalar:
    if value is None or type(value) is not kind:
        raise MessageError(f"{name!r} must be of type {kind.__name__}; got {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise MessageError(f"{name!r} must be finite; got {value}")
    if type(value) is int and value < 0:
        raise MessageError(f"{name!r} must be at least 0; got {value}")
    return value


def _array(name: str, value: Any, shape: tuple[str, ...], sizes: dict[str, int]) -> Floats:
    if value is None or value.dtype != np.float64:
        raise MessageError(f"{name!r} must be an array of float64; got {None if value is None else value.dtype}")
    fits = value.ndim == len(shape)
    for have, letter in zip(value.shape, shape, strict=False):
        fits = fits and sizes.setdefault(letter, have) == have
    if not fits:
        wanted = ", ".join(str(sizes.get(letter, letter)) for letter in shape)
        raise MessageError(f"{name!r} must have shape ({wanted}); got {value.shape}")
    if not np.isfinite(value).all():
        raise MessageError(f"{name!r} must hold finite numbers")
    return np.array(value)
