"""From names of experiments to files: run what is missing, draw, tabulate, decide, and write the report."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ..errors import ResultFileError
from ..figures import save
from ..figures.matplotlib_figures import draw_charts
from ..figures.svg_charts import SvgSheet, sheet
from ..files import reason
from . import report_page
from .catalogue import EXPERIMENTS
from .cells import Cell, Lookup, Results, Store
from .executor import Executor, RunProgress, Watch, run
from .experiment import Claim, Experiment, Outcome, Scale, command

# of an outcome, plain values: files of figures, charts for the report, tables, and the numbers of claims
Shown = tuple[dict[str, Path], dict[str, SvgSheet], dict[str, list[dict[str, Any]]], list[tuple[float, ...]]]
FOLDERS = ("cells", "figures", "tables", "report")  # of `out`: all that is ever written


def reproduce(
    names: Sequence[str],
    scales: Sequence[Scale],
    out: Path,
    executor: Executor,
    watch: Watch | None = None,
    *,
    catalogue: Mapping[str, Experiment] = EXPERIMENTS,
    pool: ProcessPoolExecutor | None = None,
    clean: bool = False,
) -> tuple[list[Outcome], RunProgress]:
    """Everything of the named experiments at the given scales, under `out`: cells, figures, tables and the report.

    Stop it at any moment and call it again: cells that are stored are not computed twice, and what is there in the end
    has the bytes that a run in one go would have given. Cells that other code has computed are not used, and with
    `clean` removed. catalogue : where the names are looked up; pool : of `processes`, which draw what is complete while
    the rest is computed (None: here, in the end; they know no catalogue but our own).
    """
    chosen = [(catalogue[name], scale) for name in names for scale in scales]
    parts = [experiment.groups(scale) for experiment, scale in chosen]
    groups: dict[str, list[Cell]] = {name: cells for part in parts for name, cells in part.items()}
    with alone(out):
        remove_partial_files(out)
        store = Store(out / "cells")
        for path in store.outdated() if clean else ():
            path.unlink(missing_ok=True)

        @functools.cache  # asked a second time, it is not drawn again
        def draw(name: str, scale: Scale) -> Future[Shown]:
            assert pool is not None
            return pool.submit(_show, name, scale, out)

        def draw_what_is_complete(progress: RunProgress) -> None:
            for (experiment, scale), part in zip(chosen, parts, strict=True):
                if all(progress.groups[name][0] == progress.groups[name][1] for name in part):
                    draw(experiment.name, scale)
            if watch is not None:
                watch(progress)

        progress = run(groups, store, executor, watch if pool is None else draw_what_is_complete)
        if pool is not None:
            shown = [job.result() for job in [draw(e.name, scale) for e, scale in chosen]]
        else:
            shown = [show(e, scale, store, out) for e, scale in chosen]
        outcomes = [Outcome(e, scale, *made) for (e, scale), made in zip(chosen, shown, strict=True)]
        report_page.write(outcomes, out)
    return outcomes, progress


@contextlib.contextmanager
def alone(out: Path) -> Iterator[None]:
    """Hold the folder, so that two runs at once do not clear up after one another; the system lets go of the dead."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultFileError(f"cannot write to the folder {out}: {reason(error)}") from error
    try:
        import fcntl
    except ImportError:  # Windows: no such lock
        yield
        return
    descriptor = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultFileError(f"another run is at work in {out}: wait for it, or choose another folder") from None
        except OSError:
            pass  # a file system that knows no locks
        yield
    finally:
        os.close(descriptor)


def remove_partial_files(out: Path) -> None:
    """Remove what an interrupted writer left behind."""
    for folder in FOLDERS:
        for part in (out / folder).rglob(".*.part"):
            part.unlink(missing_ok=True)


def show(experiment: Experiment, scale: Scale, store: Store, out: Path) -> Shown:
    """Draw, tabulate and decide from what is stored."""
    lookup, made_by = store.__getitem__, command(experiment, scale)
    figures, sheets, tables = {}, {}, {}
    folder = out / "figures" / scale.preset
    folder.mkdir(parents=True, exist_ok=True)
    for picture in experiment.pictures:
        charts = picture.draw(Results(picture.cells(scale), lookup), scale)
        figure = draw_charts(charts.rows, notes=charts.notes, panel=charts.panel, share=charts.share)
        sheets[picture.name] = sheet(charts)
        for suffix in (".pdf", ".png"):
            save(figure, folder / f"{picture.name}{suffix}", command=made_by)
        figures[picture.name] = folder / f"{picture.name}.png"
    for table in experiment.tables:
        rows = [dict(row) for row in table.rows(Results(table.cells(scale), lookup), scale)]
        text = f"# {made_by}\n" + report_page.csv_text(rows[0], [list(row.values()) for row in rows])
        report_page.write_text(out / "tables" / scale.preset / f"{table.name}.csv", text, "the table")
        tables[table.name] = rows
    return figures, sheets, tables, [measured(claim, lookup, scale) for claim in experiment.claims]


class Undecided(ArithmeticError):
    """A cell holds something that is no finite number: whatever follows from it decides nothing."""


def measured(claim: Claim, lookup: Lookup, scale: Scale) -> tuple[float, ...]:
    """The number of a claim, and then that on each of the other instances; NaN where a cell is not finite."""

    def finite(cell: Cell) -> xr.Dataset:
        result = lookup(cell)
        if not all(np.isfinite(v.values).all() for v in result.values() if v.dtype.kind == "f"):
            raise Undecided(cell.text)
        return result

    def value(scale: Scale) -> float:
        try:
            return float(claim.measure(Results(claim.cells(scale), finite)))
        except Undecided:
            return math.nan

    return tuple(map(value, (scale, *claim.other_scales(scale))))


def _show(name: str, scale: Scale, out: Path) -> Shown:
    """One experiment of the catalogue, in a process that draws."""
    return show(EXPERIMENTS[name], scale, Store(out / "cells"), out)
