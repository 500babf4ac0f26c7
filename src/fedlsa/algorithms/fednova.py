"""FedNova: agents count by how much the data say, not by how far they walk."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .exchanges import Exchange
from .unequal_work import UnequalWork


@dataclass(frozen=True, repr=False)
class FedNova(UnequalWork):
    """FedNova (Wang et al., 2020): changes are divided by eta_c H_c before they are averaged.

    The server multiplies their mean by the agents' mean eta_c H_c. Fixed point: sum_c w_c G_c / H_c (b_bar_c - A_bar_c
    theta) = 0 with G_c of fl.UnequalWork: unequal work biases nothing to first order in the step size, FedLSA's drift
    remains; theta_star if control variates are kept (invariant: sum_c w_c xi_c = 0). Of agents alike it is FedLSA.

    >>> p = fl.problems.garnet(agents=2, seed=0)
    >>> fair = fl.FedNova(0.05, 20, length_factors=(0.2, 1))
    >>> f"{np.linalg.norm(fl.theory.stationary(p, fair).bias):.2g}"
    '0.0062'
    """

    corrected: bool = field(default=False, kw_only=True)

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        walk = np.broadcast_to(np.ravel(eta * updates), agents)
        return self.declare(eta, updates, agents, means={"mean": ("change", walk.mean() / walk)})
