"""What a run is: what its coordinator asks for, and the same with a plan, the sites and their weights."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from ... import checks
from ...algorithms import METHODS, Algorithm, FedLSA, supporting
from ...checks import Floats
from ...errors import ArgumentError, ArgumentTypeError, NetworkError
from ...fitting.tasks import SECURE_SITES, WEIGHTS
from ...theory.privacy import LOCAL
from ...value_objects import Checked, count, number
from .codec import Struct
from .ring import Coding

NONE = type(None)
LARGEST_COUNT = 2**31  # sites: only to check participation before their number is known
ABSENCE = ("restart", "freeze")
AGGREGATIONS = ("secure", "plain")


def plain_name(argument: str, value: Any) -> str:
    """A name that is safe in files, commands and certificates."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", value):
        rule = f"{argument} must be made of letters, digits and dashes (at most 63, no dash first)"
        raise ArgumentError(f"{rule}; got {checks.show(value)}")
    return value


@dataclass(frozen=True, kw_only=True)
class StartOptions(Checked):
    """What a run is asked for: fedlsa.network.coordinator.commands.run(folder, options).

    epsilon : the accuracy, from which a plan follows; or by hand step_size, local_steps and rounds (Scaffnew
        communicates with probability 1 / local_steps)
    local : a step uses rows at random, or the site's means
    weight : "samples", each row counts the same, or "sites", each site does; by default as in fl.fit, "samples" for a
        regression (pooled least squares) and "sites" for a value function
    max_weight : largest share of one site in the average, whatever it says of its rows; by default a half, of three
        sites or more. Where it binds, rows do not all count the same, and the run says so
    aggregation : "secure": the coordinator learns sums over at least three sites; "plain": every site's changes. By
        default secure where there are three sites or more
    min_sites : sites of a round; with fewer it changes nothing. By default all of them where masked sums have no noise,
        for sums over two groups of sites tell how they differ, and sites refuse a second group; else half of them
        (which sites whose own policy asks for no noise refuse too)
    deadline : seconds in which a round must be answered; grace : seconds for which it waits for a site that is away
    participation, participants : how many sites take part in a round, drawn as fl.simulate draws them, as a share or
        as a count; by default all that are present
    clip : longest theta_hat - theta that a site may send; a longer one is shortened by the site
    outlier : without clip, changes longer than so many times the running median are shortened or refused; 0: none
    trim : replies left out on each side, coordinate by coordinate; needs plain aggregation
    quantise : bits of a number sent, 8 or 16; noise : standard deviation in units of clip
    unit, row_clip : what the noise hides, all rows of a site or any one row (ring.py)
    patience : rounds missed in a row, of those that were averaged, after which a site counts as gone
    absence : "restart": when a site is gone, the others begin again at xi = 0, and it would too; "freeze": control
        variates are kept for the site's return, and the others' sum is not 0 until then
    strikes : answers against the protocol after which a site is put aside
    most_in_vain : rounds in vain, in a row, after which the run ends
    errors_of : coefficients that are to have standard errors where sites do not share scores (share_scores in their
        policies): each costs as many rounds again
    name : of the experiment; None has one made
    """

    method: str = "scafflsa"
    epsilon: float | None = number(None, NONE, above=0)
    step_size: float | None = number(None, NONE, above=0)
    local_steps: int | None = count(None, NONE, at_least=1)
    rounds: int | None = count(None, NONE, at_least=1)
    seed: int = count(0)
    local: str = "rows"
    weight: str | None = None
    max_weight: float | None = number(None, NONE, above=0, at_most=1)
    aggregation: str | None = None
    min_sites: int | None = count(None, NONE, at_least=1)
    deadline: float = number(120.0, above=0)
    grace: float = number(20.0, at_least=0)
    participation: float | None = None
    participants: int | None = None
    clip: float | None = None
    outlier: float = number(10.0, at_least=0)
    trim: int = count(0)
    quantise: int | None = None
    noise: float | None = None
    unit: str = "site"
    row_clip: float | None = None
    patience: int = count(3, at_least=1)
    absence: str = "restart"
    strikes: int = count(5, at_least=1)
    most_in_vain: int = count(20, at_least=1)
    errors_of: tuple[str, ...] = ()
    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in {
            "method": supporting("network"),
            "local": LOCAL,
            "weight": WEIGHTS,
            "absence": ABSENCE,
            "aggregation": AGGREGATIONS,
        }.items():
            if name not in ("aggregation", "weight") or getattr(self, name) is not None:
                checks.choice(name, getattr(self, name), allowed)
        given = [name for name in ("step_size", "local_steps", "rounds") if getattr(self, name) is not None]
        if (self.epsilon is None) == (not given) or len(given) not in (0, 3):
            got = (["epsilon"] if self.epsilon is not None else []) + given
            rule = "epsilon alone, or step_size, local_steps and rounds together, must be given"
            raise ArgumentError(f"{rule}; got {' and '.join(got) or 'none of them'}")
        self.coding  # noqa: B018  # checks what concerns uploads
        if self.trim and self.aggregation == "secure":
            rule = "trim must come with the aggregation 'plain', for sums hide single replies"
            raise ArgumentError(f"{rule}; got {self.trim}")
        object.__setattr__(self, "errors_of", tuple(self.errors_of or ()))
        if self.errors_of and (self.noise is not None or self.trim or self.method == "fedlsa"):
            wrong = "noise" if self.noise is not None else "trim" if self.trim else "the method 'fedlsa'"
            raise ArgumentError(f"errors_of must come without {wrong}; got {', '.join(self.errors_of)}")
        if self.name is not None:
            plain_name("name", self.name)
        self.taking_part(LARGEST_COUNT)

    def taking_part(self, sites: int) -> int | None:
        """How many sites take part in a round, by fl.simulate's rule; None is all that are present."""
        if self.participants is not None:
            checks.integer("participants", self.participants, at_least=1, at_most=sites)
        count = FedLSA(1.0, 1, participation=self.participation, participants=self.participants).taking_part(sites)
        return None if count == sites else count

    def secure(self, sites: int) -> bool:
        if self.aggregation is None:
            return sites >= SECURE_SITES and self.trim == 0
        return self.aggregation == "secure"

    def least(self, sites: int) -> int:
        """How many sites a round needs: enough that sums hide them, or that trimming leaves one.

        Exact sums over groups that differ tell the difference: without noise a masked run is over one group, all sites.
        """
        most = self.taking_part(sites) or sites
        floor = SECURE_SITES if self.secure(sites) else 2 * self.trim + 1
        exact = self.secure(sites) and self.noise is None
        out = (most if exact else max((most + 1) // 2, floor)) if self.min_sites is None else self.min_sites
        if not floor <= out <= most:
            plain = f"above twice trim ({2 * self.trim})"
            why = "at least three, for secure aggregation" if self.secure(sites) else plain
            raise ArgumentError(f"min_sites must be {why}, and at most the {most} sites of a round; got {out}")
        return out

    @property
    def coding(self) -> Coding:
        return Coding(self.clip, self.noise, self.unit, self.row_clip, self.quantise)

    @classmethod
    def from_entries(cls, entries: dict[str, Any]) -> Self:
        """What a file says."""
        try:
            return cls(**entries)
        except TypeError as error:
            if isinstance(error, ArgumentTypeError):
                raise
            raise NetworkError(f"these are not the options of a run of this version: {checks.show(entries)}") from None


@dataclass(frozen=True, kw_only=True)
class RunSettings(StartOptions):
    """A run across sites, with step size, local steps and rounds by hand or from a plan.

    sites : names, in the order of their agent numbers; weights : (N,), by default equal; they are scaled to sum to 1
    reach : about how far the solution may be, where it is known: no mean moves further than `outlier` times it
    """

    step_size: float = number(instead=NONE, above=0)
    local_steps: int = count(instead=NONE, at_least=1)
    rounds: int = count(instead=NONE, at_least=1)
    name: str = field()
    sites: tuple[str, ...]
    weights: tuple[float, ...] | None = None
    reach: float = 0.0

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
        if abs(weights.sum() - 1) > 1e-12:  # settings that are read again must not change in their last bits
            weights = weights / weights.sum()
        object.__setattr__(self, "weights", tuple(weights.tolist()))
        self.least(N)

    @property
    def algorithm(self) -> Algorithm:
        """The method as fl.simulate knows it."""
        return METHODS[self.method].with_steps(self.step_size, self.local_steps)

    @cached_property
    def shares(self) -> Floats:
        """The weights (N,), which sum to 1."""
        return np.array(self.weights)


class RunTerms(Struct, frozen=True, kw_only=True, eq=True):
    """What every site is told of a run before it says anything of its data (Describe), and holds the run to.

    task : as task_text writes it; token : tells the run from an earlier one of the same name
    sites, certificates : of the run, in one order; certificates (PEM, with secure aggregation) hold the mask keys
    rounds : the most that will be averaged, 0 where a plan decides later
    errors_of : coefficients whose standard errors are asked for by rounds of their own
    receipts : what the coordinator keeps of each site's ledger; program : version of the coordinator's fedlsa
    """

    task: str
    token: str
    method: str
    local: str
    aggregation: str
    coding: Coding
    sites: tuple[str, ...]
    certificates: tuple[str, ...] = ()
    rounds: int = 0
    errors_of: tuple[str, ...] = ()
    receipts: tuple[tuple[str, str], ...] = ()
    program: str = ""

    def check(self) -> None:
        for name, allowed in {"method": supporting("network"), "local": LOCAL, "aggregation": AGGREGATIONS}.items():
            checks.choice(name, getattr(self, name), allowed)
        for site in self.sites:
            plain_name("each of sites", site)
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise ArgumentError(f"sites must be different names, at least one; got {checks.show(self.sites)}")
        if self.aggregation == "secure" and len(self.certificates) != len(self.sites):
            rule = "certificates must be one per site with secure aggregation"
            raise ArgumentError(f"{rule}; got {len(self.certificates)}")

    @property
    def secure(self) -> bool:
        return self.aggregation == "secure"
