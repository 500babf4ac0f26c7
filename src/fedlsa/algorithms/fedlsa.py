"""FedLSA (Algorithm 1, algo:fed-lsa): average the result of H local steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import Floats
from .base import EVERYTHING, FixedRounds
from .stages import Lengths


@dataclass(frozen=True, repr=False)
class FedLSA(FixedRounds):
    """FedLSA: every agent makes some steps of its own, then the server averages where they got to.

    Fast, with linear speed-up in the number of agents, but biased when agents differ and local_steps > 1: each drifts
    towards its own solution. It is Algorithm 1 (with TD observations algo:fed-lsa-td; on trajectories
    algo:fed-lsa-markov).

    local_steps : observations that each agent receives between two communications (the paper's H), at least 1

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> [float(np.linalg.norm(fl.theory.stationary(p, fl.FedLSA(0.1, H)).bias).round(3)) for H in (1, 10, 100)]  # drift
    [0.0, 0.004, 0.044]
    """

    name = "fedlsa"
    supports = EVERYTHING

    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        return np.zeros_like(eta)  # no control variates
