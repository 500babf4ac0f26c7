"""What must come out: constants, bias, bounds, complexities, and exact error curves, from the tables of a problem."""

from .bias import bias, bias_at, bias_gap_bound, first_order_bias, round_bias, round_bias_bound
from .bounds import Bound, MarkovBlock, TDClaim, bound, markov_block, markov_bound, td_bound, td_claim
from .bounds.parts import FedLSAParts, SCAFFLSAParts, fedlsa_parts, scafflsa_parts
from .complexity import Complexity, complexity
from .constants import Constants, constants, stability
from .exact import exact
from .iterations import exact_iterations
from .markov import MarkovConstants, markov_constants, mixing_times
from .moments import Moments, moments
from .planner import Plan, plan, synchronous_plan, trade_off
from .stationary import Stationary, radius, stability_limit, stationary
from .values import stationary_law, value_error, value_functions
from .virtual import VirtualMDP, virtual_mdp

__all__ = [
    "Bound",
    "Complexity",
    "Constants",
    "FedLSAParts",
    "MarkovBlock",
    "MarkovConstants",
    "Moments",
    "Plan",
    "SCAFFLSAParts",
    "Stationary",
    "TDClaim",
    "VirtualMDP",
    "bias",
    "bias_at",
    "bias_gap_bound",
    "bound",
    "complexity",
    "constants",
    "exact",
    "exact_iterations",
    "fedlsa_parts",
    "first_order_bias",
    "markov_block",
    "markov_bound",
    "markov_constants",
    "mixing_times",
    "moments",
    "plan",
    "radius",
    "round_bias",
    "round_bias_bound",
    "scafflsa_parts",
    "stability",
    "stability_limit",
    "stationary",
    "stationary_law",
    "synchronous_plan",
    "td_bound",
    "td_claim",
    "trade_off",
    "value_error",
    "value_functions",
    "virtual_mdp",
]
