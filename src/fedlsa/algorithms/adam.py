"""A server that scales each coordinate by how much it moves: Adam."""

from dataclasses import dataclass
from math import sqrt

from ..checks import Floats
from ..value_objects import number
from .methods import ServerRule


def adam_step(server: Floats, means: Floats, t: int, parameters: Floats) -> None:
    """theta, first and second moment : the rows of server; Numba compiles it."""
    size, beta_1, beta_2, floor = parameters
    for i in range(server.shape[1]):  # number by number: what a GPU compiles too
        server[1, i] = beta_1 * server[1, i] + (1 - beta_1) * means[0, i]
        server[2, i] = beta_2 * server[2, i] + (1 - beta_2) * means[0, i] ** 2
        server[0, i] += size * server[1, i] / (sqrt(server[2, i]) + floor)


@dataclass(frozen=True, repr=False)
class Adam(ServerRule):
    """FedAdam (Reddi et al., 2021): theta moves by the mean change, divided by the size that it usually has.

    Fixed point: theta_star with control variates, without them that of FedLSA, if it comes to rest: the size of its
    steps does not look at the distance, so it hovers at about server_step_size. Not linear, so it has no exact theory.
    Invariant: sum_c w_c xi_c = 0.

    server_step_size : above 0; beta_1, beta_2 : how long moments remember, below 1; floor : of the divisor, above 0

    >>> run = fl.simulate(fl.problems.ring(agents=4), fl.Adam(0.1, 5), rounds=20, seeds=1, engine="reference")
    >>> float(run["squared_error"][0, -1]) < float(run["squared_error"][0, 0])
    True
    """

    server_step_size: float = number(0.1, above=0)
    beta_1: float = number(0.9, at_least=0, below=1)
    beta_2: float = number(0.99, at_least=0, below=1)
    floor: float = number(0.001, above=0)
    memory = ("first", "second")
    rule = staticmethod(adam_step)
