"""What was averaged in a run, as one chain of hashes that all its sites hold: masks are bound to its head.

An exact sum hides a site only if all sites of the sum have the same past, for an answer depends on the control variate,
and that on what was averaged before. A coordinator that tells one site of a round that nobody else took part in would
steer this site's control variate alone, and read its own part from the next sums. So every site folds every average of
a run (its generation of control variates) into a chain, those in which it took no part too, and the label of a mask
holds the chain's head: sites whose pasts differ have masks that do not cancel, and the sum is noise.

An entry is what all must agree on: the round, the digest of its order (theta, step size, sites, weights), the digest of
the mean that came of it, and who was averaged, a bit for each site of the run. Its row of bytes is what is hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...checks import Floats
from ...errors import MessageError
from .codec import Bytes

DIGEST = 32  # bytes of a SHA-256
FIXED = 8 + 2 * DIGEST  # bytes of an entry before the bits of its sites
ORIGIN = bytes(DIGEST)  # the head before the first entry


class Average(NamedTuple):
    """One average. order, mean : digests of its order, and of the theta that came of it; sites : who was averaged."""

    round: int
    order: bytes
    mean: bytes
    sites: tuple[str, ...]


def width(sites: int) -> int:
    """Bytes of an entry in a run of so many sites."""
    return FIXED + (sites + 7) // 8


def to_row(entry: Average, sites: Sequence[str]) -> Bytes:
    """The bytes of an entry; sites : all of the run, in one order."""
    fixed = entry.round.to_bytes(8, "big") + entry.order + entry.mean
    return np.append(np.frombuffer(fixed, np.uint8), np.packbits(np.isin(list(sites), list(entry.sites))))


def from_row(row: Bytes, sites: Sequence[str]) -> Average:
    """The entry of a row; one of another run is a MessageError."""
    if len(row) != width(len(sites)):
        raise MessageError(f"'entries' must have {width(len(sites))} bytes each; got {len(row)}")
    content, bits = row[:FIXED].tobytes(), np.unpackbits(row[FIXED:])
    if bits[len(sites) :].any():
        raise MessageError("'entries' must be about the sites of the run; one is not")
    members = tuple(site for site, there in zip(sites, bits[: len(sites)], strict=True) if there)
    return Average(int.from_bytes(content[:8], "big"), content[8:40], content[40:], members)


def extend(head: bytes, row: Bytes) -> bytes:
    """The head after one more entry."""
    return hashlib.sha256(head + row.tobytes()).digest()


def digest_of_mean(mean: Floats) -> bytes:
    """Of a vector (d,), to the bit."""
    return hashlib.sha256(mean.astype("<f8").tobytes()).digest()
