"""Scaffnew (appendix, algo:fed-lsa-controlvar-h1): control variates with rounds of random length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .. import checks
from ..checks import Floats
from .base import EVERYTHING, Algorithm, Lengths, PowerStep

LONGEST_ROUND = 2**62  # observations in a round, which an integer holds; no engine runs that many


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

    @classmethod
    def with_steps(cls, step_size: float | PowerStep, local_steps: int, **options: Any) -> Self:
        return cls(step_size, probability=1 / local_steps, **options)

    @property
    def mean_steps(self) -> float:
        return 1 / self.probability

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "probability", checks.real("probability", self.probability, above=0, at_most=1))

    def observations(self, uniform: Floats, thin: int) -> Lengths:
        p = self.probability
        if p == 1:
            return np.full(len(uniform), min(thin, LONGEST_ROUND))
        tails = np.floor(np.log1p(-uniform) / np.log1p(-p))  # P(tails >= k) = (1 - p)^k
        received = min(thin, LONGEST_ROUND) * (1 + tails)
        return np.minimum(received, LONGEST_ROUND).astype(np.int64)

    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        return self.probability / eta
