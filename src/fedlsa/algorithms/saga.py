"""Local steps that remember what each observation last gave: SAGA."""

from dataclasses import dataclass
from typing import Any

from .exchanges import Exchange
from .methods import ExchangeMethod


@dataclass(frozen=True, repr=False)
class SAGA(ExchangeMethod):
    """SAGA: what a row of the table last gave is subtracted from what it gives now, and the mean of all added.

    Defazio, Bach and Lacoste-Julien (2014), as local steps; with one agent it is theirs. Agents keep their memories
    between rounds: one number for each row of their table, or d where observations are dense, and no round needs a pass
    over the table. Of rows (A(z), b(z)) with probabilities p, g_z is what row z last gave, 0 before it is first drawn:

        theta_hat <- theta_hat - eta (A(z) theta_hat - b(z) - g_z + sum_j p_j g_j - xi_c).

    Fixed point: theta_star with control variates, where no noise is left: the error falls to 0. Without them it is
    that of FedLSA, with the noise of rows that were last drawn elsewhere. Invariant: sum_c w_c xi_c = 0. Exact theory
    takes the law of what all rows last gave along: it is for small tables, 1,700 numbers of all agents together.

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> run = fl.simulate(p, fl.SAGA(0.1, 100), rounds=3000, seeds=1)
    >>> float(run["squared_error"][0, -1]) < 1e-9
    True
    """

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        return self.declare(eta, updates, agents, agent=("row_mean",), table="row_mean")
