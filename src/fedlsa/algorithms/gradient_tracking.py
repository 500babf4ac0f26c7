"""Gradient tracking with local steps: the mean residual is followed by what changed since each agent's last report."""

from dataclasses import dataclass
from typing import Any

from .exchanges import Exchange
from .methods import FixedRounds


@dataclass(frozen=True, repr=False)
class GradientTracking(FixedRounds):
    """Gradient tracking (Nedic, Olshevsky and Shi, 2017) with a server, and with local steps between communications.

    It is FedLin in one exchange: each agent corrects by its exact residual of now, and by the server's track of the
    mean, which is as old as the last reports: track <- track + sum_{c in S} w_c (residual_c - reported_c). Fixed point:
    theta_star. Invariant: track = sum_c w_c reported_c, where reported_c is kept as -xi_c.

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> float(np.abs(fl.theory.stationary(p, fl.GradientTracking(0.05, 10)).bias).max()) < 1e-10
    True
    """

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        return Exchange(
            server=("track",),
            correction={"track": 1, "residual": -1},
            messages={"change": {"theta_hat": 1, "start": -1}, "news": {"residual": 1, "xi": 1}},
            downloads=2,
            means={"mean": ("change", 1), "mean_news": ("news", self.taking_part(agents) / agents)},
            then={
                "theta": {"theta": 1, "mean": 1},
                "track": {"track": 1, "mean_news": 1},
                "xi": {"residual": -1},
            },
        )
