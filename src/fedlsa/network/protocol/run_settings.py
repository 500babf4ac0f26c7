"""What a run is: what its coordinator asks for, and the same with a plan, the sites and their weights."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from ... import checks
from ...algorithms import METHODS, Algorithm, FedLSA, supporting
from ...checks import Floats
from ...errors import ArgumentError, ArgumentTypeError, NetworkError
from .coding import Coding

LARGEST_COUNT = 2**31  # sites: only to check participation before their number is known
POLICIES, LOCAL, WEIGHTS = ("spread", "freeze"), ("rows", "means"), ("sites", "samples")


def plain_name(argument: str, value: Any) -> str:
    """A name that is safe in files, commands and certificates."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", value):
        raise ArgumentError(
            f"{argument} must be made of letters, digits and dashes (at most 63, no dash first); "
            f"got {checks.show(value)}"
        )
    return value


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """What a run is asked for: fedlsa.network.coordinator.commands.start(folder, options, detach=False).

    epsilon : the accuracy, from which a plan follows; or by hand step_size, local_steps and rounds (Scaffnew
        communicates with probability 1 / local_steps)
    local : a step uses rows at random, or the site's means; weight : each site counts the same, or each row
    min_sites : replies that close a round at its deadline (seconds), by default half of the sites, rounded up; with
        fewer a round changes nothing
    participation, participants : how many sites take part in a round, drawn as fl.simulate draws them, as a share or
        as a count; by default all that are present
    clip : longest theta_hat - theta that a site may send; a longer one is shortened to it, and its site told so
    trim : replies left out on each side, coordinate by coordinate
    quantise : bits of a number sent, 8 or 16; noise : standard deviation in units of clip
    patience : rounds missed in a row, of those that were averaged, after which a site counts as gone
    policy : "spread": the control variate of a site that is gone is spread over those who stay; it would begin afresh;
        "freeze": it is kept for the site's return, and the others' sum is not 0 until then
    name : of the experiment; None has one made
    """

    method: str = "scafflsa"
    epsilon: float | None = None
    step_size: float | None = None
    local_steps: int | None = None
    rounds: int | None = None
    seed: int = 0
    local: str = "rows"
    weight: str = "sites"
    min_sites: int | None = None
    deadline: float = 120.0
    participation: float | None = None
    participants: int | None = None
    clip: float | None = None
    trim: int = 0
    quantise: int | None = None
    noise: float | None = None
    patience: int = 5
    policy: str = "spread"
    name: str | None = None

    def __post_init__(self) -> None:
        for name, allowed in {
            "method": supporting("network"),
            "local": LOCAL,
            "weight": WEIGHTS,
            "policy": POLICIES,
        }.items():
            checks.choice(name, getattr(self, name), allowed)
        given = [name for name in ("step_size", "local_steps", "rounds") if getattr(self, name) is not None]
        if (self.epsilon is None) == (not given) or len(given) not in (0, 3):
            got = (["epsilon"] if self.epsilon is not None else []) + given
            raise ArgumentError(
                "epsilon alone, or step_size, local_steps and rounds together, must be given; "
                f"got {' and '.join(got) or 'none of them'}"
            )
        for name in ("epsilon", "step_size", "clip", "noise", "deadline"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checks.real(name, getattr(self, name), above=0))
        for name in ("local_steps", "rounds", "min_sites", "patience"):
            if getattr(self, name) is not None:
                checks.integer(name, getattr(self, name), at_least=1)
        checks.integer("seed", self.seed)
        checks.integer("trim", self.trim)
        if self.quantise not in (None, 8, 16):
            raise ArgumentError(f"quantise must be 8 or 16 bits; got {checks.show(self.quantise)}")
        if self.noise is not None and self.clip is None:
            raise ArgumentError(f"noise must come with clip, which bounds what one site can change; got {self.noise:g}")
        if self.name is not None:
            plain_name("name", self.name)
        self.taking_part(LARGEST_COUNT)

    def taking_part(self, sites: int) -> int | None:
        """How many sites take part in a round, by fl.simulate's rule; None is all that are present."""
        if self.participants is not None:
            checks.integer("participants", self.participants, at_least=1, at_most=sites)
        count = FedLSA(1.0, 1, participation=self.participation, participants=self.participants).taking_part(sites)
        return None if count == sites else count

    def least(self, sites: int) -> int:
        """How many replies close a round at its deadline; enough that trimming leaves one."""
        most = self.taking_part(sites) or sites
        out = max((most + 1) // 2, 2 * self.trim + 1) if self.min_sites is None else self.min_sites
        if not 2 * self.trim < out <= most:
            raise ArgumentError(
                f"min_sites must be above twice trim ({2 * self.trim}) and at most the {most} sites of a round; "
                f"got {out}"
            )
        return out

    @property
    def coding(self) -> Coding:
        """How sites write their uploads."""
        return Coding(self.quantise, self.clip, self.noise)

    def text(self) -> str:
        """JSON, for a file."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """What `text` wrote."""
        try:
            return cls(**json.loads(text))
        except (TypeError, json.JSONDecodeError) as error:
            if isinstance(error, ArgumentTypeError):
                raise
            raise NetworkError(f"these are not the options of a run of this version: {checks.show(text)}") from None


@dataclass(frozen=True, kw_only=True)
class RunSettings(StartOptions):
    """A run across sites, with step size, local steps and rounds by hand or from a plan.

    sites : names, in the order of their agent numbers; weights : (N,), by default equal; they are scaled to sum to 1
    """

    step_size: float = field()
    local_steps: int = field()
    rounds: int = field()
    name: str = field()
    sites: tuple[str, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
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
        self.least(N)

    @property
    def algorithm(self) -> Algorithm:
        """The method as fl.simulate knows it."""
        return METHODS[self.method].with_steps(self.step_size, self.local_steps)

    @cached_property
    def shares(self) -> Floats:
        """The weights (N,), which sum to 1."""
        return np.array(self.weights)

    @property
    def server_clip(self) -> float | None:
        """The longest change that is averaged; noise makes honest replies longer than the clip."""
        return None if self.noise is not None else self.clip
