"""What an experiment is: data. The figures with their cells, the tables, and the claims they decide.

    Experiment("fig1", "FedLSA stalls, SCAFFLSA does not", ("fig:show-bias",), pictures=(...), claims=(...))

Cells follow from a scale; drawing, tabulating and deciding look results up and never compute.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import xarray as xr

from .. import checks
from ..errors import ArgumentError
from .cells import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Lookup = Callable[[Cell], xr.Dataset]  # what is stored for a cell
Panels = Mapping[str, Mapping[str, Cell]]  # panels by name, each with its cells by role
Row = Mapping[str, str | int | float]  # of a table: cells by the heading of their column
EXACT = ("exact", "limit", "plan", "promise", "markov-exact", "values")  # kinds of cells without random numbers


@dataclass(frozen=True)
class Scale:
    """How much of the paper is run: which instance, how many seeds, and whether only to see that all of it works.

    instances : on how many other instances (quick ones) claims without simulations are decided, too
    garnet_seed : of such an instance; None: the preset's own
    """

    preset: str = "paper"
    seeds: int = 10
    quick: bool = False
    instances: int = 0
    garnet_seed: int | None = None

    def garnet(self, agents: int, heterogeneous: bool) -> dict[str, Any]:
        """The arguments of the paper's Garnet problem (sec:appendix_numerics)."""
        own = {} if self.garnet_seed is None else {"seed": self.garnet_seed}
        return {"agents": agents, "heterogeneous": heterogeneous, "preset": self.preset, **own}

    def others(self) -> list[Scale]:
        """The other instances: Garnet problems with the seeds 1, 2, ..."""
        seeds = range(1, self.instances + 1)
        return [replace(self, quick=True, instances=0, garnet_seed=seed) for seed in seeds]


def grid(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the axes' values, the last axis fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


@dataclass(frozen=True)
class Picture:
    """A figure. caption : what a reader sees; {preset} and {seeds} stand for the run's."""

    name: str
    caption: str
    cells: Callable[[Scale], Panels]
    draw: Callable[[Panels, Lookup, Scale], Figure]


@dataclass(frozen=True)
class Table:
    """A table, in the report and as CSV. rows : from what is stored; all rows have the same columns."""

    name: str
    caption: str
    cells: Callable[[Scale], Panels]
    rows: Callable[[Panels, Lookup, Scale], Sequence[Row]]


KINDS = {
    "paper": "of the paper",  # a sentence, a theorem or a table of the paper says it
    "check": "of the library itself",  # two ways to one number agree
    "beyond": "beyond the paper",
}


@dataclass(frozen=True)
class Claim:
    """Something that is said, as a number that can be wrong.

    text : the claim in words; source : its label in the paper; statistic : its number, in words
    cells : those that decide it and no others; at_least, at_most : where the number must lie for the claim to hold
    kind : who says it, one of `KINDS`; quote : the paper's own words, for a claim of the paper
    expected : False for a claim that is not true as the paper states it: the report says so, with the number
    """

    name: str
    text: str
    source: str
    statistic: str
    cells: Callable[[Scale], Panels]
    measure: Callable[[Panels, Lookup, Scale], float]
    at_least: float = -math.inf
    at_most: float = math.inf
    expected: bool = True
    kind: str = "beyond"
    quote: str = ""

    def __post_init__(self) -> None:
        checks.choice("kind", self.kind, tuple(KINDS))
        if (self.kind == "paper") != bool(self.quote):
            raise ArgumentError(f"quote must hold the paper's words if kind is 'paper', and nothing else; got {self}")
        if not self.at_least > -math.inf and not self.at_most < math.inf:
            raise ArgumentError(f"at_least or at_most must be finite, or the claim could not fail; got {self}")

    def other_scales(self, scale: Scale) -> list[Scale]:
        """The other instances on which it is decided: none if its cells are random, or the same on all of them."""
        here = [cell for held in self.cells(replace(scale, quick=True)).values() for cell in held.values()]
        if not all(cell.kind in EXACT and "problem" in cell.settings for cell in here):
            return []
        return scale.others()


@dataclass(frozen=True)
class Verdict:
    """A claim with its number. holds : whether that lies where the claim says; ok : whether so it was expected.

    others : the number on other instances; what is expected of the preset's own is not expected of all of them.
    What is no finite number decides nothing, and is not ok whatever was expected.
    """

    claim: Claim
    scale: Scale
    value: float
    others: tuple[float, ...] = ()

    @property
    def holds(self) -> bool:
        return self._holds(self.value)

    @property
    def ok(self) -> bool:
        return all(map(math.isfinite, (self.value, *self.others))) and self.holds == self.claim.expected

    @property
    def held(self) -> int:
        """On how many of the other instances the claim holds."""
        return sum(map(self._holds, self.others))

    def _holds(self, value: float) -> bool:
        return math.isfinite(value) and self.claim.at_least <= value <= self.claim.at_most


@dataclass(frozen=True)
class Experiment:
    """name : what `fedlsa reproduce` is given; labels : what of the paper it reproduces."""

    name: str
    title: str
    labels: tuple[str, ...]
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    claims: tuple[Claim, ...] = ()

    def groups(self, scale: Scale) -> dict[str, list[Cell]]:
        """All its cells, by the names of panels that a display shows."""
        out: dict[str, list[Cell]] = {}
        parts: tuple[Picture | Table | Claim, ...] = (*self.pictures, *self.tables, *self.claims)
        for part in parts:
            for panel, cells in part.cells(scale).items():
                out.setdefault(f"{self.name}, {scale.preset}: {panel}", []).extend(cells.values())
        for claim in self.claims:
            for other in claim.other_scales(scale):
                held = [cell for cells in claim.cells(other).values() for cell in cells.values()]
                out.setdefault(f"{self.name}, {scale.preset}: {scale.instances} other instances", []).extend(held)
        return out
