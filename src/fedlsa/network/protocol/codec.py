"""Messages and stored states as bytes: msgspec structs, whose arrays have a declared type and shape.

Annotations say what fields are (`theta: Annotated[Floats, "d"]`: equal letters are equal lengths). Reading
trusts nothing: a field that is missing, unknown, of another type or shape, or not finite is a MessageError, and so is a
byte too many. What is signed is the body with its purpose, the network and the site.
"""

from __future__ import annotations

import json
import math
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...errors import MessageError

VERSION = 4  # of the messages: sites and coordinator of another version refuse each other
MAX_BYTES = 16 * 2**20  # of a sealed body: moments of 1,400 features (8 d^2 bytes); all else is far smaller
PURPOSES = ("order", "answer")

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]


def printable(text: object, most: int = 200) -> str:
    """What somebody else wrote, fit for a terminal and a log: one short line without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text)[:most])


class FieldType(NamedTuple):
    """What an array must be; None for the shape of a number, which must be finite, and at least 0 if it is a count."""

    kind: Any
    shape: tuple[str, ...] | None


@cache
def field_types(cls: type) -> dict[str, FieldType]:
    """The forms of the fields of a struct that are arrays or numbers."""
    out = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        hint = next((kind for kind in get_args(hint) if get_origin(kind) is Annotated), hint)  # of "... | None"
        if get_origin(hint) is Annotated:
            array, *shape = get_args(hint)
            (*_, element) = get_args(array)  # NDArray is an alias of the scalar since NumPy 2.5, of its dtype before
            out[name] = FieldType(np.dtype(*(get_args(element) or (element,))), tuple(shape))
        elif hint in (int, float):
            out[name] = FieldType(hint, None)
    return out


class Struct(msgspec.Struct, frozen=True, eq=False, forbid_unknown_fields=True):
    """Base of messages and states: fields as annotated, checked whenever one is made or read."""

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        for name, (kind, shape) in field_types(type(self)).items():
            value = getattr(self, name)
            if shape is not None and value is not None:
                _check_array(name, value, kind, shape, sizes)
            elif shape is None and not (math.isfinite(value) and (kind is float or value >= 0)):
                rule = "finite" if kind is float else "at least 0"
                raise MessageError(f"{name!r} must be {rule}; got {value}")
        self.check()

    def check(self) -> None:
        """Rules beyond types, shapes and finiteness."""


class Message(Struct, frozen=True, tag=str.lower):
    """Base of what sites and server say to each other."""

    kind: ClassVar[str]  # the name of the class, in small letters

    experiment: str

    def __init_subclass__(cls, **config: Any) -> None:
        super().__init_subclass__(**config)
        cls.kind = cls.__name__.lower()


def _check_array(name: str, value: Any, dtype: Any, shape: tuple[str, ...], sizes: dict[str, int]) -> None:
    if value.dtype != dtype:
        raise MessageError(f"{name!r} must be an array of {dtype}; got {value.dtype}")
    fits = value.ndim == len(shape)
    for have, letter in zip(value.shape, shape, strict=False):
        fits = fits and sizes.setdefault(letter, have) == have
    if not fits:
        wanted = ", ".join(str(sizes.get(letter, letter)) for letter in shape)
        raise MessageError(f"{name!r} must have shape ({wanted}); got {value.shape}")
    if dtype.kind == "f" and not np.isfinite(value).all():
        raise MessageError(f"{name!r} must hold finite numbers")


def zeros(cls: type, sizes: dict[str, int]) -> dict[str, Any]:
    """Arrays of zeros for the fields of a struct that have a shape."""
    shaped = {name: layout for name, layout in field_types(cls).items() if layout.shape is not None}
    return {name: np.zeros([sizes[x] for x in layout.shape or ()], layout.kind) for name, layout in shaped.items()}


# Arrays are an extension of MessagePack: dtype, shape, and the numbers, little-endian.

ARRAY = 1
DTYPES = {"f8": np.float64, "i2": np.int16, "i8": np.int64, "u1": np.uint8, "b1": np.bool_}
_Packed = tuple[Literal["f8", "i2", "i8", "u1", "b1"], tuple[Annotated[int, msgspec.Meta(ge=0)], ...], bytes]


def _write_array(value: Any) -> msgspec.msgpack.Ext:
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(type(value).__name__)
    numbers = np.ascontiguousarray(value, value.dtype.newbyteorder("<")).tobytes()
    return msgspec.msgpack.Ext(ARRAY, msgspec.msgpack.encode((value.dtype.str[1:], value.shape, numbers)))


def _read_array(code: int, data: memoryview) -> Any:
    if code != ARRAY:
        raise ValueError(f"there is no extension {code}")
    dtype, shape, numbers = msgspec.msgpack.decode(data, type=_Packed)
    layout = np.dtype(DTYPES[dtype])
    if len(shape) > 3 or math.prod(shape) * layout.itemsize != len(numbers):
        raise ValueError("the numbers of an array must fit its shape")
    return np.frombuffer(numbers, layout.newbyteorder("<")).astype(layout).reshape(shape)


def _expect_array(kind: type, value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise ValueError("an array is expected")
    return value


_encoder = msgspec.msgpack.Encoder(enc_hook=_write_array)


@lru_cache(maxsize=32)
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_expect_array, ext_hook=_read_array)


def encode(value: Any) -> bytes:
    """A message or state as bytes, the same for the same content: the version, then MessagePack."""
    return bytes([VERSION]) + _encoder.encode(value)


class MalformedError(MessageError):
    """Bytes that hold no message of the kind that they should."""


def decode(body: bytes, kind: Any) -> Any:
    """The message or state of this class, or of one of a union of them; anything else is a MalformedError."""
    if body[:1] != bytes([VERSION]):
        raise MalformedError(f"a message must have version {VERSION}; got {body[0] if body else 'nothing'}")
    try:
        return _decoder(kind).decode(body[1:])
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, UnicodeError) as error:
        raise MalformedError(f"a message must be of this version's form: {printable(error)}") from None


# Bytes that say who wrote them: what every carrier moves. A sealed body has the writer's signature before it. What is
# signed names the purpose ("order" or "answer"), the network and the site besides the body, which names run and round:
# an order for one site is none for another, an answer is no order, and what was written for another network says
# nothing here.


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
