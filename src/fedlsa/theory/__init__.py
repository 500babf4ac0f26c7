"""What must come out: the constants of the paper and the bias of FedLSA, computed from the tables of a problem."""

from .bias import bias, round_bias
from .bounds import TDClaim, td_claim
from .constants import Constants, constants, stability

__all__ = ["Constants", "TDClaim", "bias", "constants", "round_bias", "stability", "td_claim"]
