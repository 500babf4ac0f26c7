"""A server that extrapolates from its last rounds: Anderson acceleration."""

from dataclasses import dataclass

from ..checks import Floats
from ..value_objects import count, number
from .methods import ServerRule


def anderson_step(server: Floats, means: Floats, t: int, parameters: Floats) -> None:
    """theta, then points and changes of the last two rounds : the rows of server; Numba compiles it."""
    aa, ab, bb, x, y, u, v = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(server.shape[1]):  # number by number: what a GPU compiles too
        a, b = means[0, i] - server[2, i], server[2, i] - server[4, i]  # how the change changed
        if t < 3 or parameters[0] < 2:
            b = 0.0
        aa, ab, bb, x, y = aa + a * a, ab + a * b, bb + b * b, x + a * means[0, i], y + b * means[0, i]
    ridge = parameters[1] * (aa + bb)
    det = (aa + ridge) * (bb + ridge) - ab * ab
    if t > 1 and det > 0:
        u, v = ((bb + ridge) * x - ab * y) / det, ((aa + ridge) * y - ab * x) / det
    for i in range(server.shape[1]):
        point = server[0, i] + means[0, i]
        server[0, i] = point - u * (point - server[1, i]) - v * (server[1, i] - server[3, i])
        server[3, i], server[4, i] = server[1, i], server[2, i]
        server[1, i], server[2, i] = point, means[0, i]


@dataclass(frozen=True, repr=False)
class Anderson(ServerRule):
    """Anderson acceleration (Anderson, 1965) of the server: the step that would undo the change, were it linear.

    From the last one or two rounds it fits, by least squares, how the change depends on theta. Fixed point: theta_star
    with control variates, without them that of FedLSA. Not linear, so it has no exact theory. Invariant:
    sum_c w_c xi_c = 0.

    depth : rounds that it looks back, 1 or 2; ridge : of the least squares, relative, above 0: more where noise is

    >>> run = fl.simulate(fl.problems.ring(agents=4), fl.Anderson(0.1, 5), rounds=20, seeds=1, engine="reference")
    >>> float(run["squared_error"][0, -1]) < float(run["squared_error"][0, 0])
    True
    """

    depth: int = count(1, at_least=1, at_most=2)
    ridge: float = number(0.01, above=0)
    memory = ("point", "change_1", "point_2", "change_2")
    rule = staticmethod(anderson_step)
