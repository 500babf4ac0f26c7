"""Messages of fewer coordinates, fewer bits, or with noise, with or without a memory of what was lost."""

from dataclasses import dataclass
from typing import Any

from .. import checks
from ..errors import ArgumentError
from .exchanges import Exchange
from .sending import RandK, Sending
from .unequal_work import UnequalWork


@dataclass(frozen=True, repr=False)
class Compressed(UnequalWork):
    """FedLSA or SCAFFLSA whose agents send less of their change, sent_c; each may remember its error.

    With memory (error feedback, Seide et al., 2014) sent_c is what is left of change_c + error_c, and error_c <- what
    was lost of it. Control variates learn from sent_c. Where it is scaled up, or holds what was lost in rounds before,
    a gain of 1 / (eta H) overshoots and diverges; so it is times the share of a message that is sent (DIANA, Mishchenko
    et al., 2019). Invariant: sum_c w_c xi_c = 0. Fixed point: theta_star, where nothing is left to send; without
    control variates that of FedLSA. (Were control variates to learn from change_c itself, sum_c w_c (xi_c + gain
    error_c) = 0 would keep theta_star too, but undo what the memory is for.)

    send : fl.RandK, fl.Rounding, fl.Noise; or fl.TopK, fl.Sign, which have no exact theory
    memory : whether agents remember what was lost; then with fl.RandK(k, scaled=False)

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> few = fl.Compressed(0.05, 10, fl.RandK(2))
    >>> few.send.bits(8) / 64, float(np.abs(fl.theory.stationary(p, few).bias).max()) < 1e-10
    (2.0, True)
    """

    send: Sending = RandK(1)  # noqa: RUF009  immutable
    memory: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.instance("send", self.send, Sending, "what is sent, such as fl.RandK(...)")
        if self.memory and getattr(self.send, "scaled", False):
            raise ArgumentError(f"send must not be scaled beside memory, as fl.RandK(k, scaled=False); got {self.send}")

    def exchange(self, eta: Any, updates: Any, agents: int, dim: int) -> Exchange:
        scaled = getattr(self.send, "scaled", False)
        rows: Any = {"gain": self.gain(eta, updates) * (self.send.kept(dim) if scaled or self.memory else 1)}
        if self.memory:
            rows["agent"], rows["then"] = ("error",), {"error": {"change": 1, "sent_change": -1}}
            rows["messages"] = {"change": {"theta_hat": 1, "start": -1, "error": 1}}
        return self.declare(eta, updates, agents, send=self.send, **rows)
