"""FedLSA (Algorithm 1, algo:fed-lsa): average the result of H local steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import Floats
from .base import EVERYTHING, FixedRounds, Lengths


@dataclass(frozen=True)
class FedLSA(FixedRounds):
    """FedLSA (Algorithm 1; with TD observations algo:fed-lsa-td; with Markov sampling algo:fed-lsa-markov).

    Fast, with linear speed-up in the number of agents, but biased when agents differ and local_steps > 1.
    """

    name = "fedlsa"
    supports = EVERYTHING

    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        return np.zeros_like(eta)  # no control variates
