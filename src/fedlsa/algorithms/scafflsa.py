"""SCAFFLSA (Algorithm 2, algo:fed-lsa-controlvar-h2): FedLSA with control variates."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import Floats
from .base import Algorithm, Lengths, fixed_lengths, local_steps


@dataclass(frozen=True)
class SCAFFLSA(Algorithm):
    """SCAFFLSA (Algorithm 2; with TD observations algo:scafflsa-td): xi_c tends to A_bar_c theta_star - b_bar_c.

    Free of bias for any number of local steps, and keeps the linear speed-up.
    """

    local_steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "local_steps", local_steps(self.local_steps))

    def observations(self, uniform: Floats, thin: int) -> Lengths:
        return fixed_lengths(self.local_steps, uniform, thin)

    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        return 1 / (eta * updates)
