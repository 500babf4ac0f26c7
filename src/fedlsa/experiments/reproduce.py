"""From names of experiments to files: run what is missing, draw, tabulate, decide."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..figures import save
from ..files import replacing
from .base import Experiment, Row, Scale, Table, Verdict
from .catalogue import EXPERIMENTS
from .runner import Executor, Progress, Watch, run
from .store import Store


@dataclass(frozen=True)
class Outcome:
    """What there is to show of one experiment at one scale: files of figures and tables, rows, verdicts."""

    experiment: Experiment
    scale: Scale
    figures: dict[str, Path]  # by the name of the picture; the PNG, the PDF stands beside it
    tables: Mapping[str, Sequence[Row]]
    verdicts: Sequence[Verdict]


def reproduce(
    names: Sequence[str],
    scales: Sequence[Scale],
    out: Path,
    executor: Executor,
    watch: Watch | None = None,
) -> tuple[list[Outcome], Progress]:
    """Everything of the named experiments at the given scales, under `out`: cells, figures, tables.

    Stop it at any moment and call it again: cells that are stored are not computed twice.
    """
    chosen = [(EXPERIMENTS[name], scale) for scale in scales for name in names]
    store = Store(out / "cells")
    groups = {k: v for experiment, scale in chosen for k, v in experiment.groups(scale).items()}
    progress = run(groups, store, executor, watch)
    return [show(experiment, scale, store, out) for experiment, scale in chosen], progress


def show(experiment: Experiment, scale: Scale, store: Store, out: Path) -> Outcome:
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
        rows = list(table.rows(table.cells(scale), lookup, scale))
        write_table(table, rows, out / "tables" / scale.preset, command(experiment, scale))
        tables[table.name] = rows
    verdicts = [
        Verdict(claim, scale, float(claim.measure(claim.cells(scale), lookup, scale))) for claim in experiment.claims
    ]
    return Outcome(experiment, scale, figures, tables, verdicts)


def command(experiment: Experiment, scale: Scale) -> str:
    """What a reader types to make one experiment alone."""
    quick = " --quick" if scale.quick else ""
    return f"fedlsa reproduce {experiment.name} --preset {scale.preset} --seeds {scale.seeds}{quick}"


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
