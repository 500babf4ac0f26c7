"""Integers modulo 2^k, in which sites hide what they send: single shares are noise, their complete sum is exact.

A site writes each number as an integer multiple of a unit (fixed point), and adds one mask for every other site of the
sum. Two sites derive the same mask from a secret that only they share; the one whose name comes first adds it, the
other subtracts it. So the sum over all sites named in the order is the sum of what they hide, and any smaller sum is
uniformly random to who does not know the secrets. The masks depend on a label, a digest of what all sites of the sum
were told: whoever is told something else uses other masks, and no mask is used for two different orders.

A share is an array (n, limbs) of 16-bit limbs, the lowest first, stored as int16 because messages hold signed numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError, MessageError
from ...theory.privacy import UNITS

Limbs = NDArray[np.int16]
LIMB_BITS = 16


class Grid(NamedTuple):
    """The numbers that a share can hold: multiples of `unit`, below 2^(16 limbs - 2) units."""

    unit: float
    limbs: int


VECTORS = Grid(2.0**-64, 8)  # of rounds: up to 9e18, to 5e-20
STATISTICS = Grid(2.0**-512, 80)  # of sums of squares: exact for all columns that the library reads


def to_integers(values: Iterable[float | Fraction], unit: float) -> list[int]:
    """The nearest multiples of the unit; numbers that are not finite are a MessageError."""
    exact = Fraction(unit)
    try:
        return [round(v / (exact if isinstance(v, Fraction) else unit)) for v in values]
    except (OverflowError, ValueError):
        raise MessageError("numbers that leave a site must be finite and within the range of sums") from None


def to_floats(integers: Iterable[int], unit: float) -> list[float]:
    """Multiples of the unit, each rounded once where the unit is a power of two."""
    part, scale = unit.as_integer_ratio()
    return [n / scale for n in integers] if part == 1 else [n * unit for n in integers]


def within(integers: Iterable[int], limbs: int) -> list[int]:
    """The integers, each brought into the range of a share. No refusal: it would tell who asks what they are.

    What sites send is weighted, and weights sum to at most 1: where each is within half the range, so is the sum.
    """
    most = 2 ** (LIMB_BITS * limbs - 2) - 1
    return [min(max(n, -most), most) for n in integers]


def to_share(integers: Sequence[int], limbs: int) -> Limbs:
    """The share (n, limbs) of integers; those out of range (`within`) are a MessageError."""
    bits = LIMB_BITS * limbs
    if any(abs(n) >= 2 ** (bits - 2) for n in integers):
        raise MessageError("numbers of a share must be within the range of sums; one is too large")
    content = b"".join((n % 2**bits).to_bytes(2 * limbs, "little") for n in integers)
    return np.frombuffer(content, "<i2").astype(np.int16).reshape(len(integers), limbs)


def from_share(share: Limbs) -> list[int]:
    """The integers, of both signs, that a share without masks, or a complete sum, holds."""
    limbs = share.shape[1]
    bits = LIMB_BITS * limbs
    content = share.astype("<i2").tobytes()
    found = (int.from_bytes(content[k : k + 2 * limbs], "little") for k in range(0, len(content), 2 * limbs))
    return [n - 2**bits if n >= 2 ** (bits - 1) else n for n in found]


def add(shares: Sequence[Limbs]) -> Limbs:
    """The sum of shares (n, limbs), modulo 2^k."""
    totals = np.stack([share.view(np.uint16) for share in shares]).sum(axis=0, dtype=np.uint64)
    carry = np.zeros(len(totals), np.uint64)
    out = np.empty(totals.shape, np.uint16)
    for limb in range(totals.shape[1]):
        total = totals[:, limb] + carry
        out[:, limb] = total & np.uint64(0xFFFF)
        carry = total >> np.uint64(LIMB_BITS)
    return out.view(np.int16)


def read_sum(shares: Sequence[Limbs], unit: float) -> Floats:
    """The numbers (n,) that the shares of all sites of a sum hold together."""
    return np.array(to_floats(from_share(add(shares)), unit))


def changes(shares: Limbs, weights: Floats, unit: float) -> Floats:
    """The changes (n, d) that shares without masks (n, d, limbs) hold."""
    return np.array([to_floats(from_share(share), unit) for share in shares]) / weights[:, None]


def pair_secret(private: Any, public: bytes) -> bytes:
    """What two sites share: X25519 of one's private key and the other's public key (32 bytes)."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    try:
        return bytes(private.exchange(X25519PublicKey.from_public_bytes(public)))
    except ValueError:
        raise MessageError("the mask key of a site must be an X25519 public key; it is not") from None


def masked(share: Limbs, own: str, secrets: Mapping[str, bytes], label: bytes) -> Limbs:
    """The share with a mask for every other site of the sum; secrets : `pair_secret` with each of them, by name."""
    added: list[Limbs] = [share]
    taken: list[Limbs] = []
    for other, secret in secrets.items():
        (added if own < other else taken).append(_mask(secret, label, share.shape))
    if taken:
        one = np.zeros_like(share)
        one[:, 0] = 1
        added += [~add(taken), one]  # which is the negative of what is taken
    return add(added)


def _mask(secret: bytes, label: bytes, shape: tuple[int, int]) -> Limbs:
    """Uniform limbs, a function of secret and label: the key stream of AES-256 in counter mode, its key by HKDF."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(hashes.SHA256(), 32, salt=None, info=b"fedlsa mask " + label).derive(secret)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(2 * shape[0] * shape[1])), "<i2").astype(np.int16).reshape(shape)


# What a site really sends of theta_hat - theta: shortened, rounded to a grid and noised, in this order.
#
# The site's control variate is corrected with what the server can read of it in the sum, never with what the site meant
# to send: so sum_c w_c xi_c = 0 stays exact under noise and rounding. What rounding took from the last averaged reply
# is added to the next, so that nothing is lost for good. With privacy noise the integers of the grid get discrete
# Gaussian noise (privacy.py): the promise is about integers, and no floating-point number stands between it and them.

MAX_THETA = 2.0**30  # of an entry, in the run's coordinates: a larger one would drown the sites' own parts
MAX_ENTRY = 2.0**60  # of a change: what exceeds it has left the range of sums (VECTORS)
GUARD_BITS = 8  # above a quantised number, for rounding and noise of all sites

Noise = Callable[[Fraction, int], Sequence[int]]  # (variance, how many) -> integers (privacy.discrete_gaussian)


class Coding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How sites write their uploads.

    clip : the longest theta_hat - theta that leaves a site; a longer one is shortened. None: as plain orders say
    noise : standard deviation of the privacy noise per coordinate, as a multiple of clip
    unit : what the noise hides (UNITS); row_clip : the longest step of a single row over eta, for the unit "record"
    quantise : 8 or 16 bits for a number, None for 64
    """

    clip: float | None = None
    noise: float | None = None
    unit: str = "site"
    row_clip: float | None = None
    quantise: int | None = None

    def __post_init__(self) -> None:
        if self.quantise not in (None, 8, 16):
            raise ArgumentError(f"quantise must be 8 or 16 bits; got {checks.show(self.quantise)}")
        checks.choice("unit", self.unit, UNITS)
        for name in ("clip", "noise", "row_clip"):
            if getattr(self, name) is not None:
                checks.real(name, getattr(self, name), above=0, at_most=MAX_ENTRY if name == "clip" else None)
        if self.quantise is not None and self.clip is None:
            raise ArgumentError(f"quantise must come with clip, which bounds what is sent; got {self.quantise}")
        if self.noise is not None and self.clip is None:
            raise ArgumentError(f"noise must come with clip, which bounds what one site can change; got {self.noise:g}")
        if self.noise is not None and self.unit == "record" and self.row_clip is None:
            raise ArgumentError("row_clip must come with the unit 'record', to bound what one row can change; got None")

    @property
    def grid(self) -> Grid:
        """The grid of what is sent."""
        bound = self.clip
        if self.quantise is None or bound is None:
            return VECTORS
        room = 6.0 * (self.noise or 0.0)  # standard deviations of noise beyond the clip
        limbs = -(-(self.quantise + GUARD_BITS) // LIMB_BITS)
        # what a site writes is its weight's part of this, so that sums, and no single number, use all bits of the limbs
        return Grid(bound * (1 + room) / 2 ** (LIMB_BITS * limbs - 3), limbs)

    def longest(self, bound: float, dim: int) -> float:
        """The longest mean of sites that keep to `bound`, noise included (six standard deviations); 0: any."""
        return bound + (self.noise or 0.0) * bound * (math.sqrt(dim) + 6) if bound else 0.0


class Upload(NamedTuple):
    """A coded change: integers that are summed, the vector (d,) they stand for, and what rounding took away (d,)."""

    integers: list[int]
    delta: Floats
    residual: Floats


def encode(
    delta: Floats, residual: Floats, weight: float, clip: float, coding: Coding, noise: Noise | None = None
) -> Upload:
    """Write weight * delta (d,) on the grid of the coding.

    residual : (d,), left over from before; clip : longest change, 0 for any; noise : the site's source of it
    """
    bound, grid = coding.clip if coding.clip is not None else clip, coding.grid
    wanted = np.nan_to_num(delta, nan=0.0, posinf=MAX_ENTRY, neginf=-MAX_ENTRY) + residual
    wanted = np.clip(wanted, -MAX_ENTRY, MAX_ENTRY)  # steps that diverged are not refused: that would tell of rows
    if bound:
        wanted = wanted * shortening(wanted, bound)
    integers = within(to_integers((weight * wanted).tolist(), grid.unit), grid.limbs)
    rounded = np.array(to_floats(integers, grid.unit)) / weight
    if coding.noise is not None:
        if noise is None:
            raise ArgumentError("noise must be a source of random integers where the run asks for noise; got None")
        deviation = Fraction(coding.noise) * Fraction(bound) * Fraction(weight) / Fraction(grid.unit)
        added = noise(deviation**2, len(integers))
        integers = within((n + e for n, e in zip(integers, added, strict=True)), grid.limbs)
    sent = np.array(to_floats(integers, grid.unit)) / weight
    carried = coding.quantise is not None and coding.noise is None  # what is carried has no noise: it would cost more
    return Upload(integers, sent, wanted - rounded if carried else np.zeros_like(wanted))


def shortening(delta: Floats, longest: float) -> float:
    """The factor, at most 1, that shortens a vector to a longest norm."""
    norm = float(np.linalg.norm(delta))
    return 1.0 if norm <= longest else longest / norm
