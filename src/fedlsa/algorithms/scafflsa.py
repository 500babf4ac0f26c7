"""SCAFFLSA (Algorithm 2, algo:fed-lsa-controlvar-h2): FedLSA with control variates."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import Floats
from .base import EVERYTHING, FixedRounds
from .stages import Lengths


@dataclass(frozen=True, repr=False)
class SCAFFLSA(FixedRounds):
    """SCAFFLSA: FedLSA in which every agent also learns, and subtracts, how far it drifts from the others.

    Free of bias for any number of local steps, and keeps the linear speed-up. It is Algorithm 2 (with TD observations
    algo:scafflsa-td); the correction of agent c, its control variate xi_c, tends to A_bar_c theta_star - b_bar_c.

    local_steps : observations that each agent receives between two communications (the paper's H), at least 1

    >>> p = fl.problems.garnet(agents=10, seed=0)
    >>> method = fl.SCAFFLSA(step_size=0.01, local_steps=100)
    >>> float(np.abs(fl.theory.stationary(p, method).bias).max()) < 1e-12  # control variates remove the drift
    True
    """

    name = "scafflsa"
    supports = EVERYTHING

    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        return 1 / (eta * updates)
