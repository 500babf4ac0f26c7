"""What a site really sends of theta_hat - theta: shortened, rounded to a grid and noised, in this order.

The site's control variate is corrected with what the server can read of it in the sum, never with what the site meant
to send: so sum_c w_c xi_c = 0 stays exact under noise and rounding. What rounding took from the last averaged reply is
added to the next, so that nothing is lost for good. With privacy noise the integers of the grid get discrete Gaussian
noise (privacy.py): the promise is about integers, and no floating-point number stands between it and the wire.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError
from .privacy import UNITS
from .ring import LIMB_BITS, VECTORS, Grid, to_floats, to_integers, within

MAX_THETA = 2.0**30  # of an entry, in the run's coordinates: a larger one would drown the sites' own parts
MAX_ENTRY = 2.0**60  # of a change: what exceeds it has left the range of sums (ring.VECTORS)
GUARD_BITS = 8  # above a quantised number, for rounding and noise of all sites

Noise = Callable[[Fraction, int], Sequence[int]]  # (variance, how many) -> integers (privacy.discrete_gaussian)


@dataclass(frozen=True)
class Coding:
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
                most = MAX_ENTRY if name == "clip" else None
                object.__setattr__(self, name, checks.real(name, getattr(self, name), above=0, at_most=most))
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


@dataclass(frozen=True, eq=False)
class Upload:
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
