"""Agents that start from an old theta: bounded random delays."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from .exchanges import Exchange
from .unequal_work import UnequalWork


@dataclass(frozen=True, repr=False)
class Delayed(UnequalWork):
    """Late agents: each starts a round from theta of tau rounds ago, and its change is added to the present theta.

    These are the stale updates of asynchronous methods with bounded delays (FedAsync, Xie et al., 2019). Fixed point:
    theta_star with control variates, without them that of FedLSA, whatever the delays; longer ones need shorter steps.
    Invariant: sum_c w_c xi_c = 0. delays=(1,) is SCAFFLSA, or FedLSA.

    delays : probabilities of tau = 0, 1, ..., that each agent draws from in each round; or (N, k), of each agent

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> late = fl.Delayed(0.05, 10, delays=(0.5, 0.3, 0.2))
    >>> float(np.abs(fl.theory.stationary(p, late).bias).max()) < 1e-10
    True
    """

    delays: tuple[Any, ...] = (0.5, 0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        each = checks.as_array("delays", self.delays).ndim > 1
        q = checks.probabilities("delays", self.delays, ("N", "k") if each else ("k",))
        object.__setattr__(self, "delays", tuple(map(tuple, q.tolist())) if each else tuple(q.tolist()))

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        q = np.array(self.delays).T  # (k,), or (k, N)
        past = [f"past_{k}" for k in range(1, len(q))]
        known = ["theta", *past]  # from the latest on
        return self.declare(
            eta,
            updates,
            agents,
            server=tuple(past),
            begin={name: {"theta": 1} for name in past},
            start=tuple((q, {name: 1}) for q, name in zip(q, known, strict=True)),
            then={name: {later: 1} for name, later in zip(past, known, strict=False)},
        )
