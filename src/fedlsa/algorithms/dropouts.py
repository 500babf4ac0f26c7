"""Agents that do not answer: each drops out of a round with a probability of its own."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..errors import ArgumentError
from .exchanges import Exchange
from .unequal_work import UnequalWork


@dataclass(frozen=True, repr=False)
class Dropouts(UnequalWork):
    """Agent c drops out of each round with probability q_c; who answers counts with w_c / (1 - q_c).

    So the mean is the one of all agents in expectation. Fixed point and invariant: those of fl.UnequalWork, whatever
    the q_c: theta_star and sum_c w_c xi_c = 0 with control variates.

    dropout : q_c, (N,), or one for all, at least 0 and below 1

    >>> p = fl.problems.garnet(agents=3, seed=0)
    >>> method = fl.Dropouts(0.05, 10, dropout=(0.5, 0.1, 0), length_factors=(1, 1, 0.5))
    >>> float(np.abs(fl.theory.stationary(p, method).bias).max()) < 1e-10
    True
    """

    dropout: float | tuple[float, ...] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.participants is not None or self.participation is not None:
            raise ArgumentError(f"participation and participants must be None beside dropout; got {self!r}")
        one = checks.as_array("dropout", self.dropout).ndim == 0
        given = [self.dropout] if one else checks.entries("dropout", self.dropout, "a number, or one for each agent")
        q = [checks.real("dropout", x, at_least=0, below=1) for x in given]
        object.__setattr__(self, "dropout", q[0] if one else tuple(q))

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        q = self.dropout if isinstance(self.dropout, float) else checks.array("dropout", self.dropout, (agents,))
        presence = np.broadcast_to(1.0 - q, agents).copy()
        return self.declare(eta, updates, agents, share=presence, presence=presence)
