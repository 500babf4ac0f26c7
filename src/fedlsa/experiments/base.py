"""What an experiment is: data. The figures with their cells, the tables, and the claims they decide.

    Experiment("fig1", "FedLSA stalls, SCAFFLSA does not", ("fig:show-bias",), pictures=(...), claims=(...))

Cells follow from a scale; drawing, tabulating and deciding look results up and never compute.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xarray as xr

from .cells import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Lookup = Callable[[Cell], xr.Dataset]  # what is stored for a cell
Panels = Mapping[str, Mapping[str, Cell]]  # panels by name, each with its cells by role
Row = Mapping[str, str | int | float]  # of a table: cells by the heading of their column


@dataclass(frozen=True)
class Scale:
    """How much of the paper is run: which instance, how many seeds, and whether only to see that all of it works."""

    preset: str = "paper"
    seeds: int = 10
    quick: bool = False

    def garnet(self, agents: int, heterogeneous: bool) -> dict[str, Any]:
        """The arguments of the paper's Garnet problem (sec:appendix_numerics)."""
        return {"agents": agents, "heterogeneous": heterogeneous, "preset": self.preset}


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


@dataclass(frozen=True)
class Claim:
    """Something that the paper says, as a number that can be wrong.

    text : the claim in words; source : where the paper says it; statistic : its number, in words
    at_least, at_most : where the number must lie for the claim to hold
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


@dataclass(frozen=True)
class Verdict:
    """A claim with its number. holds : whether that lies where the claim says; ok : whether so it was expected."""

    claim: Claim
    scale: Scale
    value: float

    @property
    def holds(self) -> bool:
        return self.claim.at_least <= self.value <= self.claim.at_most

    @property
    def ok(self) -> bool:
        return self.holds == self.claim.expected


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
        return out
