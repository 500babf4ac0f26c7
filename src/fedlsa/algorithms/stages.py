"""What a round is made of: a method declares its stages, engines run them, theory computes on them.

`Algorithm.stages` lists them in the order in which they are drawn or run; none of them knows the name of its method.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..value_objects import ReadOnly

Lengths = NDArray[np.int64]
LONGEST_ROUND = 2**62  # observations in a round, which an integer holds; no engine runs that many


@dataclass(frozen=True)
class Geometric:
    """The law of a number of local steps: after each of them a coin ends the round with this probability."""

    probability: float

    @property
    def mean(self) -> float:
        """Local steps in the mean."""
        return 1 / self.probability

    def draw(self, uniform: Floats) -> Floats:
        """Whole numbers of this law, from numbers that are uniform in [0, 1)."""
        if self.probability == 1:
            return np.ones(len(uniform))
        tails = np.floor(np.log1p(-uniform) / np.log1p(-self.probability))  # P(tails >= k) = (1 - p)^k
        return np.asarray(1 + tails)


@dataclass(frozen=True)
class Sample:
    """The law of who takes part: so many `participants` of all `agents`, drawn without replacement."""

    participants: int
    agents: int


@dataclass(frozen=True)
class Shared:
    """What is drawn once in a round and seen by all: its length, or who takes part."""

    law: Geometric | Sample


@dataclass(frozen=True, eq=False)
class Local(ReadOnly):
    """Local steps of each agent alone from theta on, theta_hat <- theta_hat - step_size (A(z) theta_hat - b(z) - xi_c).

    step_size : of all agents, or (N,), each its own; steps : how many, or (N,), or the law of the length that all share
    """

    step_size: float | Floats
    steps: int | Lengths | Geometric


@dataclass(frozen=True)
class Private:
    """What each agent adds alone to what it uploads: independent noise of this standard deviation per coordinate."""

    deviation: float


@dataclass(frozen=True, eq=False)
class Linear(ReadOnly):
    """What the server and the agents make of change_c = theta_hat_c - theta of those who took part, S, m of N agents.

    The server's memory is (theta, v_1, ..., v_{k-1}), of d numbers each, v = 0 at the start. With
    Delta = (N / m) sum_{c in S} w_c change_c,

        memory_i <- sum_j server[i][j] memory_j + change[i] Delta,
        xi_c <- xi_c - gain_c 1{c in S} change_c + sum_{e in S} w_e gain_e change_e.

    server : k rows of k numbers, whose first column is 1, 0, ..., 0: theta stays where nothing moves it
    change : k numbers; gain : of all agents, or (N,)
    """

    server: tuple[tuple[float, ...], ...] = ((1.0,),)
    change: tuple[float, ...] = (1.0,)
    gain: float | Floats = 0.0

    def __post_init__(self) -> None:
        server = checks.array("server", self.server, ("k", "k"))
        change = checks.array("change", self.change, server.shape[:1])
        if (server[:, :1] != np.eye(len(server), 1)).any() or not len(server):
            rule = "server must have the first column 1, 0, ..., 0: theta stays where nothing moves it"
            raise ArgumentError(f"{rule}; got {checks.show(server[:, :1].ravel().tolist())}")
        object.__setattr__(self, "server", tuple(map(tuple, server.tolist())))
        object.__setattr__(self, "change", tuple(change.tolist()))
        super().__post_init__()


Stage = Shared | Local | Private | Linear
