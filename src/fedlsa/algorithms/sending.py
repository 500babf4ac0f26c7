"""What becomes of a message on its way to the server: fewer coordinates, fewer bits, noise.

A law that is linear in the message has exact theory: sent = Q message + noise, where neither looks at the message,

    E[sent] = mean message,   E[sent sent^T] = second * message message^T + noise I   (entry by entry).
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..checks import Floats
from ..errors import ArgumentError
from ..value_objects import Checked, count, number


class Law(NamedTuple):
    """mean : a number; second : (d, d); noise : the variance that is added to each coordinate."""

    mean: float
    second: Floats
    noise: float


@dataclass(frozen=True, repr=False)
class Sending(Checked):
    """What is sent of a vector of d numbers. Engines know each kind by its number."""

    kind: ClassVar[int] = 0

    @property
    def reach(self) -> float:
        """The largest number that is not cut off."""
        return math.inf

    def law(self, dim: int) -> Law:
        """The law of what arrives of dim numbers; messages that are not linear have none."""
        raise ArgumentError(
            f"send must have a linear law for theory; got {self!r}, whose error depends on what is sent"
        )

    def bits(self, dim: int) -> float:
        """How many bits are sent of a vector of dim numbers."""
        return 64.0 * dim

    def kept(self, dim: int) -> float:
        """The least share of the squared length of dim numbers that is sent, before it is scaled."""
        return 1.0

    @property
    def numbers(self) -> tuple[float, float]:
        """What engines need of its settings, which are at most two."""
        first, second, *_ = *map(float, astuple(self)), 0.0, 0.0
        return first, second


@dataclass(frozen=True, repr=False)
class Exactly(Sending):
    """All numbers as they are, eight bytes each."""

    def law(self, dim: int) -> Law:
        return Law(1.0, np.ones((dim, dim)), 0.0)


@dataclass(frozen=True, repr=False)
class RandK(Sending):
    """rand-k: so many coordinates, drawn without replacement by each agent; a seed says which, so only they are sent.

    coordinates : how many, at least 1
    scaled : whether they are multiplied by dim / coordinates, so that nothing is lost in the mean; with a memory of
        the error it is better not to

    >>> fl.RandK(2).bits(dim=8), fl.RandK(2).law(dim=8).mean, fl.RandK(2, scaled=False).law(dim=8).mean
    (128.0, 1.0, 0.25)
    """

    coordinates: int = count(at_least=1)
    scaled: bool = True
    kind = 1

    def law(self, dim: int) -> Law:
        k = min(self.coordinates, dim)
        times = dim / k if self.scaled else 1.0
        second = np.full((dim, dim), k * (k - 1) / (dim * max(dim - 1, 1)))
        np.fill_diagonal(second, k / dim)
        return Law(times * k / dim, times**2 * second, 0.0)

    def bits(self, dim: int) -> float:
        return 64.0 * min(self.coordinates, dim)

    def kept(self, dim: int) -> float:
        return min(self.coordinates, dim) / dim


@dataclass(frozen=True, repr=False)
class Rounding(Sending):
    """Stochastic rounding to a grid of 2^bits_each points from -radius to radius, a step of it apart.

    Agent and server share the seed of the dither, uniform over a step, which is added before and taken away after
    rounding: the error is then uniform over a step, whatever is sent, and theory exact, as long as no number of a
    message, with its dither, lies beyond the radius. Beyond it numbers are cut off. Theory warns where the radius is
    below four times a number's root mean square, which is enough for nearly normal ones; rows that are rare and large
    need more, which theory cannot see (`fl.simulate` cuts as it is).

    bits_each : of each number, at least 1 and at most 32
    radius : above the largest number of a message, above 0
    dither : whether the server takes the dither away; without, rounding is as unbiased, its error depends on what is
        sent (at most half of a step in standard deviation), and theory has no law

    >>> float(fl.Rounding(8, radius=1.0).step)
    0.00784313725490196
    """

    bits_each: int = count(at_least=1, at_most=32)
    radius: float = number(above=0)
    dither: bool = True
    kind = 2

    @property
    def reach(self) -> float:
        return self.radius

    @property
    def step(self) -> float:
        """Between two points of the grid."""
        return 2 * self.radius / (2**self.bits_each - 1)

    def law(self, dim: int) -> Law:
        if not self.dither:
            return super().law(dim)
        return Law(1.0, np.ones((dim, dim)), self.step**2 / 12)

    def bits(self, dim: int) -> float:
        return float(self.bits_each * dim)

    @property
    def numbers(self) -> tuple[float, float]:
        return self.step, self.radius if self.dither else -self.radius


@dataclass(frozen=True, repr=False)
class Noise(Sending):
    """Gaussian noise of this standard deviation, independent in each coordinate of each message: what privacy costs.

    deviation : at least 0

    >>> fl.Noise(0.1).law(dim=2).noise
    0.010000000000000002
    """

    deviation: float = number(at_least=0)
    kind = 3

    def law(self, dim: int) -> Law:
        return Law(1.0, np.ones((dim, dim)), self.deviation**2)


@dataclass(frozen=True, repr=False)
class TopK(Sending):
    """top-k: the coordinates that are largest in size, of equal ones the first. It has no linear law.

    coordinates : how many, at least 1

    >>> fl.TopK(2).bits(dim=8)  # which of them takes 3 bits
    134.0
    """

    coordinates: int = count(at_least=1)
    kind = 4

    def bits(self, dim: int) -> float:
        k = min(self.coordinates, dim)
        return k * (64.0 + math.ceil(math.log2(max(dim, 2))))

    def kept(self, dim: int) -> float:
        return min(self.coordinates, dim) / dim


@dataclass(frozen=True, repr=False)
class Sign(Sending):
    """The sign of each number, times the mean size of all of them: a bit each. It has no linear law.

    >>> fl.Sign().bits(dim=8)
    72.0
    """

    kind = 5

    def bits(self, dim: int) -> float:
        return 64.0 + dim

    def kept(self, dim: int) -> float:
        return 1 / dim
