"""The right-hand sides of the paper's theorems, with explicit constants."""

from .base import Bound
from .dispatch import bound, td_bound
from .td import TDClaim, td_claim

__all__ = ["Bound", "TDClaim", "bound", "td_bound", "td_claim"]
