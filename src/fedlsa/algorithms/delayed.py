"""Agents that start from an old theta: bounded random delays."""

from dataclasses import dataclass
from typing import Any

from .. import checks
from .exchanges import Exchange
from .methods import ExchangeMethod


@dataclass(frozen=True, repr=False)
class Delayed(ExchangeMethod):
    """Late agents: each starts a round from theta of tau rounds ago, and its change is added to the present theta.

    These are the stale updates of asynchronous methods with bounded delays (FedAsync, Xie et al., 2019). Fixed point:
    theta_star with control variates, without them that of FedLSA, whatever the delays; longer ones need shorter steps.
    Invariant: sum_c w_c xi_c = 0. delays=(1,) is SCAFFLSA, or FedLSA.

    delays : probabilities of tau = 0, 1, ..., that each agent draws from in each round

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> late = fl.Delayed(0.05, 10, delays=(0.5, 0.3, 0.2))
    >>> float(np.abs(fl.theory.stationary(p, late).bias).max()) < 1e-10
    True
    """

    delays: tuple[float, ...] = (0.5, 0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "delays", tuple(checks.probabilities("delays", self.delays, ("k",)).tolist()))

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        past = [f"past_{k}" for k in range(1, len(self.delays))]
        known = ["theta", *past]  # from the latest on
        return self.declare(
            eta,
            updates,
            agents,
            server=tuple(past),
            begin={name: {"theta": 1} for name in past},
            start=tuple((q, {name: 1}) for q, name in zip(self.delays, known, strict=True)),
            then={name: {later: 1} for name, later in zip(past, known, strict=False)},
        )
