"""The methods of the paper: FedLSA (Algorithm 1, algo:fed-lsa), SCAFFLSA (Algorithm 2, algo:fed-lsa-controlvar-h2),
with control variates, and Scaffnew (appendix, algo:fed-lsa-controlvar-h1), whose rounds have random lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import checks
from ..checks import Floats
from .base import EVERYTHING, Algorithm
from .stages import Lengths


@dataclass(frozen=True, repr=False)
class FixedRounds(Algorithm):
    """Methods whose rounds all have the same length.

    local_steps : observations that each agent receives between two communications (the paper's H), at least 1
    """

    local_steps: int
    length = "local_steps"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "local_steps", checks.integer("local_steps", self.local_steps, at_least=1))


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


@dataclass(frozen=True, repr=False)
class Scaffnew(Algorithm):
    """Scaffnew: as SCAFFLSA, but after each update one coin decides whether all agents communicate.

    Seen from communication to communication, a round has Geometric(probability) updates. It is the appendix's
    algo:fed-lsa-controlvar-h1.

    probability : that a communication follows an update (the paper's p), above 0 and at most 1; rounds have
        1/probability updates in the mean

    >>> fl.Scaffnew(step_size=0.1, probability=0.1).mean_steps
    10.0
    """

    probability: float
    name = "scaffnew"
    supports = EVERYTHING
    length = "probability"
    random_lengths = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "probability", checks.real("probability", self.probability, above=0, at_most=1))

    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        return self.probability / eta
