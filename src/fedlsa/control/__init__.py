"""Control: agents that act by the values they learn, in worlds of their own (FedSARSA, arXiv 2512.17688).

>>> worlds = fl.control.garnet(agents=4)
>>> problem, _ = fl.control.solve(worlds, temperature=2)
>>> drift = fl.sarsa(worlds, fl.FedLSA(0.05, 2000), 50, temperature=2, theta_star=problem.theta_star)["squared_error"]
>>> left = fl.sarsa(worlds, fl.SCAFFLSA(0.05, 2000), 50, temperature=2, theta_star=problem.theta_star)["squared_error"]
>>> bool(drift[:, 25:].mean() > 3 * left[:, 25:].mean())
True
"""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from .on_policy import arguments as arguments
    from .on_policy import sarsa as sarsa
    from .worlds import Worlds as Worlds
    from .worlds import garnet as garnet
    from .worlds import solve as solve

_load_lazily(__name__)
