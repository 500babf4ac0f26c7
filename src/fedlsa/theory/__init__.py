"""What must come out: the constants of the paper and the bias of FedLSA, computed from the tables of a problem."""

from .bias import bias, bias_at, bias_gap_bound, first_order_bias, round_bias, round_bias_bound
from .bounds import Bound, MarkovBlock, TDClaim, bound, markov_block, markov_bound, td_bound, td_claim
from .complexity import Complexity, complexity
from .constants import Constants, constants, stability
from .markov import MarkovConstants, markov_constants, mixing_times
from .virtual import VirtualMDP, virtual_mdp

__all__ = [
    "Bound",
    "Complexity",
    "Constants",
    "MarkovBlock",
    "MarkovConstants",
    "TDClaim",
    "VirtualMDP",
    "bias",
    "bias_at",
    "bias_gap_bound",
    "bound",
    "complexity",
    "constants",
    "first_order_bias",
    "markov_block",
    "markov_bound",
    "markov_constants",
    "mixing_times",
    "round_bias",
    "round_bias_bound",
    "stability",
    "td_bound",
    "td_claim",
    "virtual_mdp",
]
