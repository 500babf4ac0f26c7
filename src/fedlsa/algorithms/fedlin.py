"""FedLin: the drift is measured at the beginning of each round, at the price of a second exchange."""

from dataclasses import dataclass
from typing import Any

from .exchanges import Exchange
from .methods import FixedRounds


@dataclass(frozen=True, repr=False)
class FedLin(FixedRounds):
    """FedLin (Mitra et al., 2021): local steps corrected by how far the own residual at theta is from the mean's.

    Residuals b_bar_c - A_bar_c theta are exact, of the whole table, and averaged over all before local steps begin: a
    round sends and receives two vectors, one after the other. Fixed point: theta_star, for every agent then moves by
    G_c mean_residual. It remembers nothing, so no invariant is needed, nor is any agent that does not answer.

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> float(np.abs(fl.theory.stationary(p, fl.FedLin(0.05, 10)).bias).max()) < 1e-10
    True
    """

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        return Exchange(
            correction={"mean_residual": 1, "residual": -1},
            messages={"change": {"theta_hat": 1, "start": -1}, "reported": {"residual": 1}},
            downloads=2,
        )
