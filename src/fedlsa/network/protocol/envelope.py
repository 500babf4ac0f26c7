"""Records as bytes, and bytes that say who wrote them: what every carrier moves.

A body is the length of a header, the header in JSON (scalars, and name, dtype and shape of each array), and the arrays'
bytes, little-endian. A sealed body has the writer's signature before it. What is signed names the purpose ("order" or
"answer"), the network and the site besides the body, which names run and round: an order for one site is none for
another, an answer is no order, and what was written for another network says nothing here.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from ...errors import MessageError
from .records import MAX_FIELDS, MAX_NUMBERS, Arrays, Record, structure

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
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    signature: bytes = key.sign(_signed(purpose, network, site, body), ec.ECDSA(hashes.SHA256()))
    return len(signature).to_bytes(2, "big") + signature + body


def verify(public: Any, purpose: str, network: str, site: str, sealed: bytes) -> bytes:
    """The body, if the holder of this public key sealed it for this purpose, network and site; else MessageError."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    if len(sealed) > MAX_BYTES:
        raise MessageError(f"a message must have at most {MAX_BYTES} bytes; got {len(sealed)}")
    length = 2 + int.from_bytes(sealed[:2], "big")
    signature, body = sealed[2:length], sealed[length:]
    try:
        public.verify(signature, _signed(purpose, network, site, body), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise MessageError(f"the {purpose} must be signed by who is said to have written it; it is not") from None
    return body


def _signed(purpose: str, network: str, site: str, body: bytes) -> bytes:
    assert purpose in PURPOSES
    return json.dumps(["fedlsa", purpose, network, site]).encode() + b"\n" + body
