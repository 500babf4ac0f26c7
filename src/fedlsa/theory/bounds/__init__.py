"""The right-hand sides of the paper's theorems, with explicit constants."""

from .td import TDClaim, td_claim

__all__ = ["TDClaim", "td_claim"]
