"""A server that does not wait for all: it averages as soon as some have answered."""

from dataclasses import dataclass
from typing import Any

from .exchanges import Exchange
from .unequal_work import UnequalWork


@dataclass(frozen=True, repr=False)
class Buffered(UnequalWork):
    """Buffered aggregation (FedBuff, Nguyen et al., 2022): the server averages when `participants` have answered.

    Who has answered takes theta as it is before the average, and works on that copy until it answers again; all agents
    are equally quick. Fixed point: theta_star with control variates, without them that of FedLSA. Invariant:
    sum_c w_c xi_c = 0. With all participants it is fl.Delayed with a delay of one round.

    >>> fl.Buffered(0.05, 10, participants=3).exchange(0.05, 10, agents=10, dim=4).agent
    ('copy',)
    """

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        now = {"copy": {"theta": 1}}
        return self.declare(eta, updates, agents, agent=("copy",), begin=now, start={"copy": 1}, then=now)
