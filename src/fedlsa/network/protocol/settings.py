"""What the coordinator decides before a run: the method, who takes part, when to wait and when to stop."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Self

import numpy as np

from ... import checks
from ...algorithms import METHODS, Algorithm
from ...checks import Floats
from ...errors import ArgumentError, ArgumentTypeError, MessageError

POLICIES = ("spread", "freeze")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A run across sites.

    method : "fedlsa", "scafflsa" (with local_steps) or "scaffnew" (with probability)
    rounds : averages to be made at most; stop : end sooner, when the estimated error (server.py) is at most this
    sites : names, in the order of their agent numbers; weights : (N,), by default equal; they are scaled to sum to 1
    participation : how many sites are asked in a round, drawn as fl.simulate draws them; None: all that are present
    min_sites : replies below which a round changes nothing
    clip : the longest theta_hat - theta that is averaged; a longer one is shortened to it, and its site told so
    trim : how many of the largest and of the smallest values the server leaves out of each coordinate's average
    patience : rounds missed in a row, of those that were averaged, after which a site counts as gone
    policy : "spread": the control variate of a site that is gone is spread over those who stay; it would begin afresh;
        "freeze": it is kept for the site's return, and the others' sum is not 0 until then
    """

    experiment: str
    method: str
    step_size: float
    local_steps: int | None = None
    probability: float | None = None
    rounds: int
    seed: int = 0
    sites: tuple[str, ...]
    weights: tuple[float, ...] | None = None
    participation: int | None = None
    min_sites: int = 1
    clip: float | None = None
    trim: int = 0
    patience: int = 10
    policy: str = "spread"
    stop: float | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not isinstance(self.experiment, str) or not self.experiment or len(self.experiment) > 200:
            raise ArgumentError(f"experiment must be a short text; got {checks.show(self.experiment)}")
        checks.choice("method", self.method, METHODS)
        put(self, "step_size", checks.real("step_size", self.step_size, above=0))
        needed, other = ("probability", "local_steps") if self.method == "scaffnew" else ("local_steps", "probability")
        if getattr(self, needed) is None or getattr(self, other) is not None:
            raise ArgumentError(
                f"{self.method} must have {needed} and no {other}; "
                f"got {needed}={getattr(self, needed)}, {other}={getattr(self, other)}"
            )
        put(self, "rounds", checks.integer("rounds", self.rounds, at_least=1))
        put(self, "seed", checks.integer("seed", self.seed, at_most=2**63 - 1))
        self._check_sites()
        N = len(self.sites)
        if self.participation is not None:
            put(self, "participation", checks.integer("participation", self.participation, at_least=1, at_most=N))
        most = self.participation or N
        put(self, "trim", checks.integer("trim", self.trim))
        put(self, "min_sites", checks.integer("min_sites", self.min_sites, at_least=1, at_most=most))
        if self.trim and self.min_sites <= 2 * self.trim:
            raise ArgumentError(
                f"min_sites must be above 2 trim = {2 * self.trim}, or nothing is left to average; got {self.min_sites}"
            )
        put(self, "patience", checks.integer("patience", self.patience, at_least=1))
        checks.choice("policy", self.policy, POLICIES)
        for name in ("clip", "stop"):
            if getattr(self, name) is not None:
                put(self, name, checks.real(name, getattr(self, name), above=0))
        _ = self.algorithm  # checks local_steps and probability

    def _check_sites(self) -> None:
        if not checks.is_sequence(self.sites):
            raise ArgumentTypeError(f"sites must be names; got {checks.show(self.sites)}")
        sites = tuple(self.sites)
        if not sites or any(not isinstance(s, str) or not s for s in sites) or len(set(sites)) < len(sites):
            raise ArgumentError(f"sites must be different names, at least one; got {checks.show(sites)}")
        N = len(sites)
        weights = checks.array("weights", (1.0,) * N if self.weights is None else self.weights, (N,))
        if (weights <= 0).any():
            raise ArgumentError(f"weights must be above 0; got {weights.min():g}")
        object.__setattr__(self, "sites", sites)
        object.__setattr__(self, "weights", tuple((weights / weights.sum()).tolist()))

    @property
    def algorithm(self) -> Algorithm:
        """The method as fl.simulate knows it."""
        length = {"probability": self.probability} if self.method == "scaffnew" else {"local_steps": self.local_steps}
        return METHODS[self.method](self.step_size, **length)

    @cached_property
    def shares(self) -> Floats:
        """The weights (N,), which sum to 1."""
        return np.array(self.weights)

    def text(self) -> str:
        """The settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The settings that `text` wrote."""
        try:
            values = json.loads(text)
            return cls(**values)
        except (ValueError, TypeError) as error:
            if isinstance(error, (ArgumentError, ArgumentTypeError)):
                raise
            raise MessageError(f"settings must be a JSON object with the fields of Settings; got {error}") from None
