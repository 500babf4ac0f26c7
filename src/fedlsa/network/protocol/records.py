"""Frozen dataclasses of scalars and arrays as named values: on the wire (Record) and on the disk (network/disk.py).

A class says with its annotations what its fields are, shapes included (`theta: Annotated[Floats, "d"]`; equal letters
are equal lengths; another dtype than float64 stands before them). Writing, strict reading and checks follow from that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ...errors import FedLSAError, MessageError

VERSION = 3  # of the messages: sites and coordinator of another version refuse each other
MAX_FIELDS, MAX_CHARACTERS, MAX_NUMBERS = 32, 1_000_000, 2**24  # of a message, of a text in it, of an array in it
MAX_INTEGER = 2**63 - 1

SCALARS = (int, float, str, bool)
Scalar = int | float | str | bool
Arrays = dict[str, np.ndarray[Any, Any]]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def printable(text: object, most: int = 200) -> str:
    """What somebody else wrote, fit for a terminal and a log: one short line without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text)[:most])


class FieldType(NamedTuple):
    """What an annotation says. kind : a scalar's type, a dataclass, or the dtype of an array of this shape."""

    kind: Any
    shape: tuple[str, ...] | None = None
    optional: bool = False


def _field_types(cls: Any) -> dict[str, FieldType]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: _field_type(hints[field.name]) for field in fields(cls)}


field_types: Callable[[type], dict[str, FieldType]] = cache(_field_types)  # of a dataclass, in order


def _field_type(hint: Any) -> FieldType:
    options = [kind for kind in get_args(hint) if kind is not type(None)]
    if type(None) in get_args(hint):
        return _field_type(options[0])._replace(optional=True)
    if get_origin(hint) is not Annotated:
        return FieldType(hint)
    _, *shape = options
    dtype = np.float64 if isinstance(shape[0], str) else shape.pop(0)
    return FieldType(np.dtype(dtype), tuple(shape))


@dataclass(frozen=True, eq=False)
class Record:
    """What a transport carries: meta always has "version" and "kind"."""

    kind: str
    meta: dict[str, Scalar]
    arrays: Arrays

    @property
    def size(self) -> int:
        """Bytes of the arrays and of the scalars written as JSON: what we count, whatever the transport adds."""
        return sum(a.nbytes for a in self.arrays.values()) + len(json.dumps(self.meta))


def structure(record: object) -> Record:
    """The record, if it is one and of a sane size; its fields are not looked at yet."""
    if type(record) is not Record or type(record.meta) is not dict or type(record.arrays) is not dict:
        raise MessageError("a message must be a record with scalars and arrays")
    if len(record.meta) > MAX_FIELDS or len(record.arrays) > MAX_FIELDS:
        raise MessageError(f"a message must have at most {MAX_FIELDS} fields")
    if any(type(name) is not str or len(name) > 64 for name in (*record.meta, *record.arrays)):
        raise MessageError("names of fields and arrays must be short texts")
    for name, value in record.meta.items():
        if type(value) not in SCALARS:
            raise MessageError(f"{name!r} must be a number, a text or a truth value; got {type(value).__name__}")
        if type(value) is str and len(value) > MAX_CHARACTERS:
            raise MessageError(f"{name!r} must have at most {MAX_CHARACTERS} characters; got {len(value)}")
        if type(value) is int and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise MessageError(f"{name!r} must fit in 64 bits")
    for name, array in record.arrays.items():
        kind: type = type(array)  # what came over a wire need not be what is annotated
        if kind is not np.ndarray or array.dtype.kind not in "fi" or not array.dtype.isnative:
            raise MessageError(f"{name!r} must be a plain array of numbers")
        if array.size > MAX_NUMBERS:
            raise MessageError(f"{name!r} must have at most {MAX_NUMBERS} numbers; got {array.size}")
    if type(record.kind) is not str or record.meta.get("kind") != record.kind:
        raise MessageError("'kind' must name the kind of the message")
    if type(record.meta.get("version")) is not int or record.meta["version"] != VERSION:
        raise MessageError(f"'version' must be {VERSION}; got {str(record.meta.get('version'))[:20]}")
    return record


@dataclass(frozen=True, eq=False)
class Message:
    """Base of all messages: scalars and arrays, as annotated."""

    KIND: ClassVar[str]  # the name of the class, in small letters

    experiment: str

    def __init_subclass__(cls) -> None:
        cls.KIND = cls.__name__.lower()

    def record(self) -> Record:
        """The message as a transport carries it."""
        meta: dict[str, Scalar] = {"version": VERSION, "kind": self.KIND}
        arrays: Arrays = {}
        for name, (kind, shape, _) in field_types(type(self)).items():
            value = getattr(self, name)
            if shape is None:
                meta[name] = kind(value)
            elif value is not None:
                arrays[name] = np.array(value, kind)
        return Record(self.KIND, meta, arrays)

    @classmethod
    def from_record(cls, record: object, *, dim: int | None = None) -> Self:
        """Read strictly; dim : the length that the letter d must have, where it is known."""
        record = structure(record)
        if record.kind != cls.KIND:
            raise MessageError(f"'kind' must be {cls.KIND!r}; got {record.kind[:40]!r}")
        types, sizes = field_types(cls), {} if dim is None else {"d": dim}
        if unknown := (record.meta.keys() | record.arrays.keys()) - types.keys() - {"version", "kind"}:
            raise MessageError(f"a {cls.KIND} has no field {min(unknown)!r}")
        values: dict[str, Any] = {}
        for name, (kind, shape, optional) in types.items():
            if shape is None:
                values[name] = _scalar(name, record.meta.get(name), kind)
            elif optional and name not in record.arrays:
                values[name] = None
            else:
                values[name] = read_array(name, record.arrays.get(name), kind, shape, sizes)
        message = cls(**values)
        message.check()
        return message

    def check(self) -> None:
        """Rules beyond types, shapes and finiteness."""


def _scalar(name: str, value: Scalar | None, kind: type) -> Scalar:
    if value is None or type(value) is not kind:
        raise MessageError(f"{name!r} must be of type {kind.__name__}; got {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise MessageError(f"{name!r} must be finite; got {value}")
    if type(value) is int and value < 0:
        raise MessageError(f"{name!r} must be at least 0; got {value}")
    return value


def read_array(name: str, value: Any, dtype: Any, shape: tuple[str, ...], sizes: dict[str, int]) -> Any:
    """A copy of an array of this dtype, finite, of a shape that fits; sizes : of letters seen so far, added to."""
    if value is None or value.dtype != dtype:
        raise MessageError(f"{name!r} must be an array of {dtype}; got {None if value is None else value.dtype}")
    fits = value.ndim == len(shape)
    for have, letter in zip(value.shape, shape, strict=False):
        fits = fits and sizes.setdefault(letter, have) == have
    if not fits:
        wanted = ", ".join(str(sizes.get(letter, letter)) for letter in shape)
        raise MessageError(f"{name!r} must have shape ({wanted}); got {value.shape}")
    if not np.isfinite(value).all():
        raise MessageError(f"{name!r} must hold finite numbers")
    return np.array(value)


@dataclass(frozen=True, eq=False)
class Stored:
    """Base of states: scalars, texts, arrays, and parts that are dataclasses or write themselves as text."""

    def arrays(self, prefix: str = "") -> Arrays:
        """Plain arrays, to be stored without pickle."""
        out: Arrays = {}
        for name in field_types(type(self)):
            value: Any = getattr(self, name)
            if isinstance(value, Stored):
                out |= value.arrays(f"{prefix}{name}_")
            elif value is not None:
                plain = value.text() if hasattr(value, "text") else value
                array = np.frombuffer(plain.encode(), np.uint8) if isinstance(plain, str) else np.array(plain)
                out[prefix + name] = array
        return out

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray[Any, Any]], prefix: str = "") -> Self:
        """The state that `arrays` wrote."""
        values: dict[str, Any] = {}
        sizes: dict[str, int] = {}
        try:
            for name, (kind, shape, _) in field_types(cls).items():
                key = prefix + name
                below = {part: array for part, array in arrays.items() if part.startswith(f"{key}_")}
                if isinstance(kind, type) and issubclass(kind, Stored):
                    values[name] = kind.from_arrays(below, f"{key}_") if below else None
                elif shape is not None:
                    values[name] = read_array(name, arrays[key], kind, shape, sizes)
                elif hasattr(kind, "from_text"):
                    values[name] = kind.from_text(bytes(arrays[key]).decode())
                else:
                    values[name] = bytes(arrays[key]).decode() if kind is str else kind(arrays[key].item())
            state = cls(**values)
            state.check()
        except (KeyError, ValueError, TypeError, FedLSAError) as error:
            raise MessageError(f"a stored state must have all its parts, and they must fit; got {error}") from None
        return state

    def check(self) -> None:
        """Rules beyond types, shapes and finiteness."""


def zeros(cls: type, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Arrays of zeros for the fields of a dataclass that have a shape."""
    shaped = {name: kind for name, kind in field_types(cls).items() if kind.shape is not None}
    return {name: np.zeros([sizes[x] for x in kind.shape or ()], kind.kind) for name, kind in shaped.items()}


# Records as bytes, and bytes that say who wrote them: what every carrier moves.
#
# A body is the length of a header, the header in JSON (scalars, and name, dtype and shape of each array), and the
# arrays' bytes, little-endian. A sealed body has the writer's signature before it. What is signed names the purpose
# ("order" or "answer"), the network and the site besides the body, which names run and round: an order for one site is
# none for another, an answer is no order, and what was written for another network says nothing here.

MAX_BYTES = 16 * 2**20  # of a sealed body: moments of 1,400 features (8 d^2 bytes); all else is far smaller
MAX_HEADER = 2 * 2**20
DTYPES = {"f8": np.float64, "i2": np.int16, "i8": np.int64}
PURPOSES = ("order", "answer")


def pack(record: Record) -> bytes:
    """The bytes of a record."""
    arrays = [[name, f"{a.dtype.kind}{a.dtype.itemsize}", list(a.shape)] for name, a in record.arrays.items()]
    header = json.dumps({"kind": record.kind, "meta": record.meta, "arrays": arrays}, allow_nan=False).encode()
    parts = [np.ascontiguousarray(a, a.dtype.newbyteorder("<")).tobytes() for a in record.arrays.values()]
    return b"".join([len(header).to_bytes(4, "big"), header, *parts])


def unpack(body: bytes) -> Record:
    """The record that `pack` wrote; anything else is a MessageError."""
    length = int.from_bytes(body[:4], "big")
    if len(body) < 4 or length > min(MAX_HEADER, len(body) - 4):
        raise MessageError("a message must have a header; this one is cut short")
    try:
        header: Any = json.loads(body[4 : 4 + length])
        kind, meta, listed = header["kind"], header["meta"], header["arrays"]
        if type(meta) is not dict or type(listed) is not list or len(listed) > MAX_FIELDS:
            raise ValueError
        arrays: Arrays = {}
        start = 4 + length
        for name, dtype, shape in listed:
            if type(name) is not str or name in arrays or type(shape) is not list or len(shape) > 2:
                raise ValueError
            if any(type(n) is not int or not 0 <= n <= MAX_NUMBERS for n in shape):
                raise ValueError
            form = np.dtype(DTYPES[dtype]).newbyteorder("<")
            end = start + math.prod(shape) * form.itemsize
            if end > len(body):
                raise ValueError
            arrays[name] = np.frombuffer(body[start:end], form).reshape(shape).astype(DTYPES[dtype])
            start = end
    except (KeyError, TypeError, ValueError, RecursionError):
        raise MessageError("a message must have a header that fits its content; this one does not") from None
    if start != len(body):
        raise MessageError(f"a message must end with its last array; {len(body) - start} bytes are left over")
    return structure(Record(kind, meta, arrays))


def sign(key: Any, purpose: str, network: str, site: str, body: bytes) -> bytes:
    """A sealed body; key : the writer's private key (ECDSA); site : for whom the order or from whom the answer is."""
    signature = sign_bytes(key, _signed(purpose, network, site, body))
    return len(signature).to_bytes(2, "big") + signature + body


def verify(public: Any, purpose: str, network: str, site: str, sealed: bytes) -> bytes:
    """The body, if the holder of this public key sealed it for this purpose, network and site; else MessageError."""
    if len(sealed) > MAX_BYTES:
        raise MessageError(f"a message must have at most {MAX_BYTES} bytes; got {len(sealed)}")
    length = 2 + int.from_bytes(sealed[:2], "big")
    signature, body = sealed[2:length], sealed[length:]
    if not is_signed(public, signature, _signed(purpose, network, site, body)):
        raise MessageError(f"the {purpose} must be signed by who is said to have written it; it is not")
    return body


def sign_bytes(key: Any, content: bytes) -> bytes:
    """The signature of a private key (ECDSA)."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    return bytes(key.sign(content, ec.ECDSA(hashes.SHA256())))


def is_signed(public: Any, signature: bytes, content: bytes) -> bool:
    """Whether the holder of this public key has signed the content."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        public.verify(signature, content, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _signed(purpose: str, network: str, site: str, body: bytes) -> bytes:
    assert purpose in PURPOSES
    return json.dumps(["fedlsa", purpose, network, site]).encode() + b"\n" + body
