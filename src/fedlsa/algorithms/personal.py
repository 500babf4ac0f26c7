"""Shared and own coordinates: what is averaged, and what never leaves an agent."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..errors import ArgumentError
from .exchanges import Exchange
from .methods import ExchangeMethod


@dataclass(frozen=True, repr=False)
class Personal(ExchangeMethod):
    """Partial personalisation (FedPer, Arivazhagan et al., 2019): some coordinates are shared, the others stay.

    Site intercepts and personal heads: o, the own coordinates, are never sent; theta is 0 there. So errors, which are
    distances from theta_star, do not fall to 0, and there are no plans. `fl.theory.stationary(problem, method, joint=
    True).joint` holds where theta and, after each xi_c, the agents' own coordinates end. Fixed point with control
    variates: theta_s and each agent's theta_c,o solve one joint system,

        sum_c w_c (A_bar_c (theta_s, theta_c,o) - b_bar_c)_s = 0,   (A_bar_c (theta_s, theta_c,o) - b_bar_c)_o = 0,

    without them the same of G_c A_bar_c and G_c b_bar_c, G_c = sum_{h < H} (I - eta A_bar_c)^h. Invariant, in s alone:
    sum_c w_c xi_c = 0. own=() is SCAFFLSA, or FedLSA.

    own : coordinates that stay with the agent, indices from 0 on

    >>> fl.Personal(0.1, 10, own=(3,)).exchange(0.1, 10, agents=5, dim=4).messages["change"]["theta_hat"]
    array([1., 1., 1., 0.])
    """

    own: tuple[int, ...] = ()
    supports = frozenset({"theory"})

    def __post_init__(self) -> None:
        super().__post_init__()
        own = {checks.integer("entry of own", i) for i in checks.entries("own", self.own, "indices")}
        object.__setattr__(self, "own", tuple(sorted(own)))

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        if self.own and self.own[-1] >= dim:
            raise ArgumentError(f"own must be of indices below the dimension, {dim}; got {self.own[-1]}")
        own = np.isin(np.arange(dim), self.own).astype(float)
        rows: Any = {"agent": ("kept",), "begin": {"kept": {"theta": own}}, "start": {"theta": 1 - own, "kept": own}}
        rows["messages"] = {"change": {"theta_hat": 1 - own, "start": own - 1}}
        rows["then"] = {"theta": {"theta": 1 - own, "mean": 1}, "kept": {"theta_hat": own}}
        return self.declare(eta, updates, agents, **rows)
