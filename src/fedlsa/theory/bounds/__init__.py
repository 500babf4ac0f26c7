"""The right-hand sides of the paper's theorems, with explicit constants."""

from .base import Bound
from .dispatch import bound, markov_bound, td_bound
from .markov import MarkovBlock, markov_block
from .parts import FedLSAParts, SCAFFLSAParts, fedlsa_parts, scafflsa_parts
from .td import TDClaim, td_claim

__all__ = [
    "Bound",
    "FedLSAParts",
    "MarkovBlock",
    "SCAFFLSAParts",
    "TDClaim",
    "bound",
    "fedlsa_parts",
    "markov_block",
    "markov_bound",
    "scafflsa_parts",
    "td_bound",
    "td_claim",
]
