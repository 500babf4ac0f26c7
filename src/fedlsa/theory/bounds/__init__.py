"""The right-hand sides of the paper's theorems, with explicit constants."""

from .base import Bound
from .dispatch import bound, markov_bound, td_bound
from .markov import MarkovBlock, markov_block
from .td import TDClaim, td_claim

__all__ = ["Bound", "MarkovBlock", "TDClaim", "bound", "markov_block", "markov_bound", "td_bound", "td_claim"]
