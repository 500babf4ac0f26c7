"""What must come out: the constants of the paper and the bias of FedLSA, computed from the tables of a problem."""

from .bias import bias, round_bias
from .constants import Constants, constants, stability

__all__ = ["Constants", "bias", "constants", "round_bias", "stability"]
