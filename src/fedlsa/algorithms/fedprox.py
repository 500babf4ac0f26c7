"""FedProx: local steps that are pulled back to where they began."""

from dataclasses import dataclass, field
from typing import Any

from ..value_objects import number
from .exchanges import Exchange
from .methods import ExchangeMethod


@dataclass(frozen=True, repr=False)
class FedProx(ExchangeMethod):
    """FedProx (Li et al., 2020): FedLSA whose local steps are pulled back to theta.

    The pull shortens the drift, and does not remove it. Fixed point: FedLSA's with A_bar_c + pull I in the local steps,

        sum_c w_c G_c (b_bar_c - A_bar_c theta) = 0,   G_c = sum_{h < H} (I - eta (A_bar_c + pull I))^h;

    theta_star if control variates are kept beside it (invariant: sum_c w_c xi_c = 0). pull=0 is FedLSA.

    pull : its strength (their mu), at least 0

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> [float(np.linalg.norm(fl.theory.stationary(p, fl.FedProx(0.1, 100, m)).bias).round(3)) for m in (0, 1)]
    [0.044, 0.009]
    """

    pull: float = number(1.0, at_least=0)
    corrected: bool = field(default=False, kw_only=True)

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        return self.declare(eta, updates, agents, pull=self.pull)
