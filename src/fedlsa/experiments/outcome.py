"""What there is to show of an experiment, made from stored cells alone: figures and tables on disk, verdicts."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from ..figures import save
from ..files import replacing
from .base import Claim, Experiment, Lookup, Row, Scale, Table, Verdict
from .cells import Cell
from .store import Store


@dataclass(frozen=True)
class Outcome:
    """What there is to show of one experiment at one scale: files of figures and tables, rows, verdicts."""

    experiment: Experiment
    scale: Scale
    figures: dict[str, Path]  # by the name of the picture; the PNG, the PDF stands beside it
    tables: Mapping[str, Sequence[Row]]  # by the name of the table
    verdicts: Sequence[Verdict]


@dataclass(frozen=True)
class Shown:
    """The plain values of an outcome: what a process that draws sends back."""

    figures: dict[str, Path]
    tables: dict[str, list[dict[str, str | int | float]]]
    values: list[tuple[float, ...]]  # of the claims: here, and on other instances

    def of(self, experiment: Experiment, scale: Scale) -> Outcome:
        """With the experiment that it belongs to."""
        verdicts = [Verdict(c, scale, v[0], v[1:]) for c, v in zip(experiment.claims, self.values, strict=True)]
        return Outcome(experiment, scale, self.figures, self.tables, verdicts)


def show(experiment: Experiment, scale: Scale, store: Store, out: Path) -> Shown:
    """Draw, tabulate and decide from what is stored."""
    lookup = store.__getitem__
    figures, tables = {}, {}
    folder = out / "figures" / scale.preset
    folder.mkdir(parents=True, exist_ok=True)
    for picture in experiment.pictures:
        figure = picture.draw(picture.cells(scale), lookup, scale)
        for suffix in (".pdf", ".png"):
            save(figure, folder / f"{picture.name}{suffix}", command=command(experiment, scale))
        figures[picture.name] = folder / f"{picture.name}.png"
    for table in experiment.tables:
        rows = [dict(row) for row in table.rows(table.cells(scale), lookup, scale)]
        write_table(table, rows, out / "tables" / scale.preset, command(experiment, scale))
        tables[table.name] = rows
    return Shown(figures, tables, [measured(claim, lookup, scale) for claim in experiment.claims])


class Undecided(ArithmeticError):
    """A cell holds something that is no finite number: whatever follows from it decides nothing."""


def measured(claim: Claim, lookup: Lookup, scale: Scale) -> tuple[float, ...]:
    """The number of a claim, and then that on each of the other instances; NaN where a cell is not finite."""

    def finite(cell: Cell) -> xr.Dataset:
        held = lookup(cell)
        if not all(np.isfinite(v.values).all() for v in held.values() if v.dtype.kind == "f"):
            raise Undecided(cell.text)
        return held

    def value(scale: Scale) -> float:
        try:
            return float(claim.measure(claim.cells(scale), finite, scale))
        except Undecided:
            return math.nan

    return tuple(map(value, (scale, *claim.other_scales(scale))))


def command(experiment: Experiment, scale: Scale) -> str:
    """What a reader types to make one experiment alone."""
    quick = " --quick" if scale.quick else ""
    run = f"--seeds {scale.seeds} --instances {scale.instances}{quick}"
    return f"fedlsa reproduce {experiment.name} --preset {scale.preset} {run}"


def write_table(table: Table, rows: Sequence[Row], folder: Path, made_by: str) -> None:
    """A table as CSV, after a comment with the command that makes it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    text.write(f"# {made_by}\n")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with replacing(folder / f"{table.name}.csv", "the table") as part:
        part.write_text(text.getvalue(), encoding="utf-8")
