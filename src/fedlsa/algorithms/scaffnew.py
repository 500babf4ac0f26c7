"""Scaffnew (appendix, algo:fed-lsa-controlvar-h1): control variates with rounds of random length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from .. import checks
from ..checks import Floats
from .base import EVERYTHING, Algorithm, PowerStep
from .stages import Geometric, Lengths


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

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "probability", checks.real("probability", self.probability, above=0, at_most=1))

    def round_steps(self) -> Geometric:
        return Geometric(self.probability)

    def gain(self, eta: Floats, updates: Lengths) -> Floats:
        return self.probability / eta
