"""A server with momentum."""

from dataclasses import dataclass

from ..value_objects import number
from .unequal_work import UnequalWork


@dataclass(frozen=True, repr=False)
class Momentum(UnequalWork):
    """FedAvgM (Hsu et al., 2019): a server that keeps a velocity v beside theta, from the agents' mean change.

        v <- momentum v + change,   theta <- theta + v.

    It moves as far as steps 1 / (1 - momentum) times as long. Fixed point: theta_star with control variates, without
    them that of FedLSA. Invariant: sum_c w_c xi_c = 0. momentum=0 is SCAFFLSA, or FedLSA.

    momentum : at least 0 and below 1

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> [len(fl.theory.exact(p, fl.Momentum(0.02, 10, m), rounds=9).mse) for m in (0, 0.9)]
    [10, 10]
    """

    momentum: float = number(0.9, at_least=0, below=1)
    supports = frozenset({"theory", "plan"})

    def server(self) -> tuple[tuple[tuple[float, ...], ...], tuple[float, ...]]:
        return ((1.0, self.momentum), (0.0, self.momentum)), (1.0, 1.0)
