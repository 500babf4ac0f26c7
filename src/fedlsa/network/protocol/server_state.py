"""What the server must not forget: theta, what it averaged of whom, and the open round, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from ... import checks
from ...checks import Floats
from ...errors import MessageError
from .records import Flags, Integers, Stored, zeros
from .run_settings import RunSettings

DOWN_MESSAGES, DOWN_BYTES, UP_MESSAGES, UP_BYTES = range(4)  # columns of `traffic`

PerSite = Annotated[Floats, "N"]
Counts = Annotated[Integers, np.int64, "N"]
Chosen = Annotated[Flags, np.bool_, "N"]
Vectors = Annotated[Floats, "N", "d"]
Vector = Annotated[Floats, "d"]


@dataclass(frozen=True, eq=False)
class OpenRound(Stored):
    """The open round: who was invited, who is counted as missing without a reply, and what has come so far.

    delta : (N, d), what came; scale : by which each reply was shortened; mark : of each reply (coding.py)
    """

    round: int
    steps: int
    gain: float
    invited: Chosen
    expected: Chosen
    accepted: Chosen
    delta: Vectors
    scale: PerSite
    mark: Counts


@dataclass(frozen=True, eq=False)
class ServerState(Stored):
    """The state between two events; arrays are never changed in place. N sites in the order of settings.sites.

    opened : the last round ever opened; averages : how many were averaged (t); attempts : rounds in vain since the last
    acked, acked_mean, acked_gain, acked_scale, acked_mark : what was last averaged of each site
    xi : the sites' control variates as they follow from that, shift included
    shift : what each has been left by others since its generation began; lost : weighted, left to nobody
    generation, missed, step, refused : counts; step : observations behind averaged replies; gone : who
    traffic : (N, 4), messages and bytes down, messages and bytes up; movement : (averages,), ||theta_t - theta_{t-1}||
    """

    settings: RunSettings
    theta: Vector
    opened: int
    averages: int
    attempts: int
    acked: Counts
    acked_mean: Vectors
    acked_gain: PerSite
    acked_scale: PerSite
    acked_mark: Counts
    xi: Vectors
    shift: Vectors
    lost: Vector
    generation: Counts
    missed: Counts
    step: Counts
    refused: Counts
    gone: Chosen
    traffic: Annotated[Integers, np.int64, "N", "directions"]
    movement: Annotated[Floats, "averages"]
    pending: OpenRound | None = None

    @classmethod
    def start(cls, settings: RunSettings, dim: int) -> Self:
        """The state before the first round, at theta = 0 : (dim,)."""
        N, d = len(settings.sites), checks.integer("dim", dim, at_least=1)
        arrays = zeros(cls, {"N": N, "d": d, "directions": 4, "averages": 0}) | {"acked_scale": np.ones(N)}
        return cls(settings, opened=0, averages=0, attempts=0, **arrays)

    def check(self) -> None:
        if len(self.movement) != self.averages or len(self.gone) != len(self.settings.sites):
            raise MessageError("a movement per average, and a row per site")

    @property
    def dim(self) -> int:
        return len(self.theta)

    @property
    def present_weights(self) -> Floats:
        """(N,): the weights, 0 for those who are gone under the policy "spread"."""
        away = self.gone if self.settings.policy == "spread" else np.zeros_like(self.gone)
        return np.where(away, 0.0, self.settings.shares)

    def agent(self, site: object) -> int | None:
        """The number of a site; None where it is none of ours."""
        return self.settings.sites.index(site) if isinstance(site, str) and site in self.settings.sites else None
