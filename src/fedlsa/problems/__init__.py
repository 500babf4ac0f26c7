"""What is to be solved: observations per agent, the systems they average to, and ways to make them.

>>> p = fl.problems.regression([(np.eye(2), [1.0, 2.0]), (np.eye(2), [3.0, 2.0])])
>>> p.theta_star, p.theta_star_local.tolist()
(array([2., 2.]), [[1.0, 2.0], [3.0, 2.0]])
"""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from . import features as features
    from .data import Log as Log
    from .data import from_logs as from_logs
    from .data import from_observations as from_observations
    from .data import from_transitions as from_transitions
    from .data import regression as regression
    from .environments import from_gymnasium as from_gymnasium
    from .environments import from_minari as from_minari
    from .environments import rollout as rollout
    from .families import CONSTRUCTORS as CONSTRUCTORS
    from .families import FAMILIES as FAMILIES
    from .families import cartpoles as cartpoles
    from .families import from_recipe as from_recipe
    from .families import lakes as lakes
    from .families import make as make
    from .families import ring as ring
    from .garnets import garnet as garnet
    from .mdp import average_reward as average_reward
    from .mdp import from_chains as from_chains
    from .mdp import from_mdps as from_mdps
    from .mdp import gradient_td as gradient_td
    from .streams import Stream as Stream
    from .streams import stream as stream
    from .streams import to_normals as to_normals
    from .system import DATA as DATA
    from .system import Chain as Chain
    from .system import Dense as Dense
    from .system import Problem as Problem
    from .system import RankOne as RankOne

_load_lazily(__name__)
