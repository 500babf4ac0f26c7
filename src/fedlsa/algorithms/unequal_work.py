"""Agents that are not alike: each has its own step size and makes its own number of local steps in a round."""

from dataclasses import dataclass, field

import numpy as np

from .. import checks
from ..checks import Floats
from .methods import ExchangeMethod


@dataclass(frozen=True, repr=False)
class UnequalWork(ExchangeMethod):
    """SCAFFLSA or FedLSA where agent c has its own step size eta_c and its own length H_c of rounds.

    Control variates move by -gain_c change_c + sum_e w_e gain_e change_e with gain_c = 1 / (eta_c H_c). Invariant:
    sum_c w_c xi_c = 0, with the fixed point theta_star. The other natural correction, gain_c (mean - change_c) of each
    agent alone, keeps sum_c w_c eta_c H_c xi_c = 0 instead, and ends in the solution of the system with the weights
    w_c eta_c H_c. To first order FedLSA (corrected=False) ends there too; exactly, its fixed point solves

        sum_c w_c eta_c G_c (b_bar_c - A_bar_c theta) = 0,   G_c = sum_{h < H_c} (I - eta_c A_bar_c)^h.

    step_factors, length_factors : (N,), eta_c and H_c as multiples of step_size and local_steps; by default all alike

    >>> p = fl.problems.garnet(agents=2, seed=0)
    >>> slow = fl.UnequalWork(0.05, 20, length_factors=(0.2, 1), corrected=False)
    >>> [f"{np.linalg.norm(fl.theory.stationary(p, m).bias):.2g}" for m in (slow, fl.FedLSA(0.05, 20))]
    ['0.77', '0.0044']
    """

    step_factors: tuple[float, ...] = field(default=(), kw_only=True)
    length_factors: tuple[float, ...] = field(default=(), kw_only=True)
    supports = frozenset({"theory", "plan"})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("step_factors", "length_factors"):
            given = checks.entries(name, getattr(self, name), "numbers, one for each agent")
            object.__setattr__(self, name, tuple(checks.array(name, given, ("N",)).tolist()))

    def agent_factors(self, agents: int) -> tuple[Floats, Floats] | None:
        given = {"step_factors": self.step_factors, "length_factors": self.length_factors}
        if not any(given.values()):
            return None
        steps, lengths = (checks.array(name, x, (agents,)) if x else np.ones(agents) for name, x in given.items())
        return steps, lengths
