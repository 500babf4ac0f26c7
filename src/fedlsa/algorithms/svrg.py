"""Local steps without the noise that every observation brings: SVRG."""

from dataclasses import dataclass
from typing import Any

from .exchanges import Exchange
from .methods import ExchangeMethod


@dataclass(frozen=True, repr=False)
class SVRG(ExchangeMethod):
    """SVRG: local steps see the exact residual of their start, and noise only in how far they went from it.

    Stochastic variance reduced gradient (Johnson and Zhang, 2013), as local steps; with one agent it is theirs, with
    as many steps as a round has. In a round each agent passes once over its own table for b_bar_c - A_bar_c theta.
    Fixed point: theta_star with control variates, where no noise is left: the error falls to 0. Without them it is
    that of FedLSA. Invariant: sum_c w_c xi_c = 0.

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> float(fl.theory.stationary(p, fl.SVRG(0.05, 10)).mse) < 1e-12
    True
    """

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        return self.declare(eta, updates, agents, anchored=True)
