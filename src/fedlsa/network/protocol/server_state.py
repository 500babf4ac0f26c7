"""What the server must not forget: theta, what it averaged of whom, and the open round, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from ... import checks
from ...checks import Floats
from ...errors import MessageError
from .records import Flags, Integers, Stored, zeros
from .ring import Limbs
from .run_settings import RunSettings

DOWN_MESSAGES, DOWN_BYTES, UP_MESSAGES, UP_BYTES = range(4)  # columns of `traffic`
REMEMBERED = 5  # rounds whose median sizes bound the next one

PerSite = Annotated[Floats, "N"]
Counts = Annotated[Integers, np.int64, "N"]
Chosen = Annotated[Flags, np.bool_, "N"]
Vectors = Annotated[Floats, "N", "d"]
Vector = Annotated[Floats, "d"]


@dataclass(frozen=True, eq=False)
class OpenRound(Stored):
    """The open round: who was invited, who is counted as missing without a reply, and what has come so far.

    order : the digest of its orders; clip : as they say (messages.Work)
    shares : (N, d, limbs), what came; sizes : lengths of single changes, where they can be seen; marks : of each reply
    """

    round: int
    order: str
    steps: int
    gain: float
    clip: float
    invited: Chosen
    expected: Chosen
    accepted: Chosen
    sizes: PerSite
    marks: Counts
    shares: Annotated[Limbs, np.int16, "N", "d", "limbs"]


@dataclass(frozen=True, eq=False)
class ServerState(Stored):
    """The state between two events; arrays are never changed in place. N sites in the order of settings.sites.

    opened : the last round ever opened; averages : how many were averaged (t); attempts : rounds in vain since the last
    generation : of all control variates; acked, acked_mean, acked_mark : what was last averaged of each site in it
    missed, refused, strikes : counts of rounds missed in a row, answers not taken, answers against the protocol
    gone, aside : sites that are away for good until they return, and those that are asked no more
    typical : (at most REMEMBERED,), of the last rounds of this generation, per local step: the median length of single
        changes, or of masked ones the length of their mean
    traffic : (N, 4), messages and bytes down, messages and bytes up; movement : (averages,), ||theta_t - theta_{t-1}||
    """

    settings: RunSettings
    theta: Vector
    opened: int
    averages: int
    attempts: int
    generation: int
    acked: Counts
    acked_mean: Vectors
    acked_mark: Counts
    missed: Counts
    refused: Counts
    strikes: Counts
    gone: Chosen
    aside: Chosen
    typical: Annotated[Floats, "remembered"]
    traffic: Annotated[Integers, np.int64, "N", "directions"]
    movement: Annotated[Floats, "averages"]
    pending: OpenRound | None = None

    @classmethod
    def start(cls, settings: RunSettings, dim: int) -> Self:
        """The state before the first round, at theta = 0 : (dim,)."""
        N, d = len(settings.sites), checks.integer("dim", dim, at_least=1)
        arrays = zeros(cls, {"N": N, "d": d, "directions": 4, "averages": 0, "remembered": 0})
        return cls(settings, opened=0, averages=0, attempts=0, generation=0, **arrays)

    def check(self) -> None:
        if len(self.movement) != self.averages or len(self.gone) != len(self.settings.sites):
            raise MessageError("a movement per average, and a row per site")

    @property
    def dim(self) -> int:
        return len(self.theta)

    def bound(self, steps: int) -> float:
        """The longest change after so many local steps, or of masked ones the longest mean; 0: not known yet."""
        s = self.settings
        if s.clip is not None:
            return s.clip
        usual, most = s.outlier * float(self.typical.max(initial=0.0)) * steps, s.outlier * s.reach
        return min(usual, most) if usual and most else usual or most

    @property
    def secure(self) -> bool:
        """Whether single changes are hidden in sums."""
        return self.settings.secure(len(self.settings.sites))

    def agent(self, site: object) -> int | None:
        """The number of a site; None where it is none of ours."""
        return self.settings.sites.index(site) if isinstance(site, str) and site in self.settings.sites else None
