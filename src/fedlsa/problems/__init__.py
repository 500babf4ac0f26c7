"""What is to be solved: observations per agent, the systems they average to, and ways to make them.

>>> p = fl.problems.regression([(np.eye(2), [1.0, 2.0]), (np.eye(2), [3.0, 2.0])])
>>> p.theta_star, p.theta_star_local.tolist()
(array([2., 2.]), [[1.0, 2.0], [3.0, 2.0]])
"""

from . import features
from .environments import from_minari, rollout
from .families import cartpoles, lakes, ring
from .garnet import garnet
from .gymnasium import from_gymnasium
from .mdp import from_chains, from_mdps
from .observations import from_observations, regression
from .registry import CONSTRUCTORS, FAMILIES, from_recipe, make
from .system import DATA, Chain, Dense, Problem, RankOne
from .transitions import Log, from_logs, from_transitions

__all__ = [
    "CONSTRUCTORS",
    "DATA",
    "FAMILIES",
    "Chain",
    "Dense",
    "Log",
    "Problem",
    "RankOne",
    "cartpoles",
    "features",
    "from_chains",
    "from_gymnasium",
    "from_logs",
    "from_mdps",
    "from_minari",
    "from_observations",
    "from_recipe",
    "from_transitions",
    "garnet",
    "lakes",
    "make",
    "regression",
    "ring",
    "rollout",
]


def __dir__() -> list[str]:
    return __all__
