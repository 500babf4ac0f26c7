"""What must come out: constants, bias, bounds, complexities, and exact error curves, from the tables of a problem.

>>> p, method = fl.problems.garnet(agents=4, states=5, features=2, seed=1), fl.FedLSA(0.1, 10)
>>> curve = fl.theory.exact(p, method, rounds=100)
>>> limit = fl.theory.stationary(p, method)
>>> limit.stable, bool(curve["mse"][-1] < 1.1 * limit.mse)
(True, True)
"""

from typing import TYPE_CHECKING

from ..lazy_names import load_lazily as _load_lazily

if TYPE_CHECKING:
    from .bias_terms import FedLSAParts as FedLSAParts
    from .bias_terms import SCAFFLSAParts as SCAFFLSAParts
    from .bias_terms import bias as bias
    from .bias_terms import bias_at as bias_at
    from .bias_terms import bias_gap_bound as bias_gap_bound
    from .bias_terms import fedlsa_parts as fedlsa_parts
    from .bias_terms import first_order_bias as first_order_bias
    from .bias_terms import round_bias as round_bias
    from .bias_terms import round_bias_bound as round_bias_bound
    from .bias_terms import scafflsa_parts as scafflsa_parts
    from .bounds import Bound as Bound
    from .bounds import MarkovBlock as MarkovBlock
    from .bounds import bound as bound
    from .bounds import markov_block as markov_block
    from .bounds import markov_bound as markov_bound
    from .bounds import td_bound as td_bound
    from .complexities import Complexity as Complexity
    from .complexities import complexity as complexity
    from .decision_processes import VirtualMDP as VirtualMDP
    from .decision_processes import stationary_law as stationary_law
    from .decision_processes import value_error as value_error
    from .decision_processes import value_functions as value_functions
    from .decision_processes import virtual_mdp as virtual_mdp
    from .exact_curves import exact as exact
    from .inference import CentralLimit as CentralLimit
    from .inference import central_limit as central_limit
    from .inference import confidence as confidence
    from .inference import normal_distance as normal_distance
    from .iterations import exact_iterations as exact_iterations
    from .joint_laws import JointLaw as JointLaw
    from .planner import Plan as Plan
    from .planner import plan as plan
    from .planner import synchronous_plan as synchronous_plan
    from .planner import trade_off as trade_off
    from .problem_constants import Constants as Constants
    from .problem_constants import MarkovConstants as MarkovConstants
    from .problem_constants import TDClaim as TDClaim
    from .problem_constants import constants as constants
    from .problem_constants import markov_constants as markov_constants
    from .problem_constants import mixing_times as mixing_times
    from .problem_constants import stability as stability
    from .problem_constants import td_claim as td_claim
    from .problem_moments import Moments as Moments
    from .problem_moments import moments as moments
    from .stationarity import Stationary as Stationary
    from .stationarity import radius as radius
    from .stationarity import stability_limit as stability_limit
    from .stationarity import stationary as stationary

_load_lazily(__name__)
