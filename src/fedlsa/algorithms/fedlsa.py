"""FedLSA (Algorithm 1, algo:fed-lsa): average the result of H local steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import Floats
from .base import Algorithm, Lengths, fixed_lengths, local_steps


@dataclass(frozen=True)
class FedLSA(Algorithm):
    """FedLSA (Algorithm 1; with TD observations algo:fed-lsa-td; with Markov sampling algo:fed-lsa-markov).

    Fast, with linear speed-up in the number of agents, but biased when agents differ and local_steps > 1.
    """

    local_steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "local_steps", local_steps(self.local_steps))

    def observations(self, uniform: Floats, thin: int) -> Lengths:
        return fixed_lengths(self.local_steps, uniform, thin)

    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        return np.zeros_like(eta)  # no control variates
