"""SCAFFOLD, with both of its control variates."""

from dataclasses import dataclass
from typing import Any

from ..checks import Floats
from ..value_objects import count, number
from .exchanges import Exchange
from .methods import FixedRounds


@dataclass(frozen=True, repr=False)
class Scaffold(FixedRounds):
    """SCAFFOLD (Karimireddy et al., 2020): control variates of agents, c_c = xi_c, and one of the server, their mean.

    Who answers renews its own: option 1 by the exact A_bar_c theta - b_bar_c of its whole table, option 2 by the mean
    of the round's steps, c_c - c - change_c / (eta H). Fixed point: theta_star. Invariant: c = sum_c w_c xi_c.
    Option 2, where all take part and server_step_size is 1, is SCAFFLSA; of two who do not answer in SCAFFLSA the
    control variates move alike, here they stay.

    option : 1 or 2
    server_step_size : how far theta moves along the mean change, above 0

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> float(np.abs(fl.theory.stationary(p, fl.Scaffold(0.05, 10, participants=3)).bias).max()) < 1e-10
    True
    """

    option: int = count(2, at_least=1, at_most=2)
    server_step_size: float = number(1.0, above=0)

    def gain(self, eta: Floats, updates: Any) -> Floats:
        return 1 / (eta * updates)

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        walked = {"theta_hat": -self.gain(eta, updates), "start": self.gain(eta, updates)}
        renewed = {"residual": -1} if self.option == 1 else {"xi": 1, "shared": -1, **walked}
        news = {"residual": -1, "xi": -1} if self.option == 1 else {"shared": -1, **walked}  # renewed minus xi
        return Exchange(
            server=("shared",),
            correction={"xi": 1, "shared": -1},
            messages={"change": {"theta_hat": 1, "start": -1}, "news": news},
            downloads=2,
            means={"mean": ("change", 1), "mean_news": ("news", self.taking_part(agents) / agents)},
            then={
                "theta": {"theta": 1, "mean": self.server_step_size},
                "shared": {"shared": 1, "mean_news": 1},
                "xi": renewed,
            },
        )
