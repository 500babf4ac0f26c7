"""Runs the cells that are missing, and stores each as soon as it is done: kill it at any moment and start it again.

Cells are computed on this machine (`LocalExecutor`) or on a Ray cluster (`Cluster`), where each is a task, and one
whose worker or node dies is run again elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .. import checks, files
from ..engine.ray_tasks import LOCAL, OTHER_VERSION, RayTasks
from ..errors import ArgumentError, ClusterError, ResultFileError
from ..figures import save
from ..figures.chart_data import chart_data
from ..figures.matplotlib_figures import draw_charts
from ..threads import one_blas_thread_for_good
from . import report
from .catalogue import EXPERIMENTS
from .cells import Cell, Lookup, Store, compute, tabulate
from .computations import updates
from .experiment import Claim, Experiment, Outcome, Scale, command

UPDATES_PER_SECOND, AGENTS_PER_SECOND = 1e8, 100.0  # of a core: of simulations, and of exact moments
SECONDS_OF_PLANS = 0.015  # of Scaffnew's, times the accuracy
Tick = Callable[[Cell, float], None]  # told how far a cell is, as a share, where that is known
Done = tuple[Cell, xr.Dataset]


@dataclass
class RunProgress:
    """Where a run stands. groups : of cells, by name in their order, each with those done and those in all."""

    groups: dict[str, list[int]]
    waiting: dict[Cell, float]  # cells not yet stored, and the share of each that is made
    current: str = ""  # the group in work
    computed: int = 0  # cells that this run has finished
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


Watch = Callable[[RunProgress], None]
Executor = Callable[[Sequence[Cell], Tick], Iterator[Done]]  # computes cells in some order, and hands each over once


class LocalExecutor:
    """One cell after the other in this process; a simulation uses all threads. how : its engine and threads.

    pool : of `processes`, which compute side by side, the largest cells first; simulations that another engine than the
    CPU's may run stay here, for processes would fight over the device. None: all are computed here
    """

    def __init__(self, how: Mapping[str, Any] | None = None, pool: ProcessPoolExecutor | None = None) -> None:
        checks.instance("how", how, (Mapping, type(None)), "a mapping of simulate's engine and threads, or None")
        self.how, self.pool = dict(how or {}), pool

    def __call__(self, cells: Sequence[Cell], tick: Tick) -> Iterator[Done]:
        here, beside = list(cells), dict[Future[xr.Dataset], Cell]()
        if self.pool is not None:
            here = [cell for cell in cells if cell.kind == "simulate"] if self.how.get("engine", "cpu") != "cpu" else []
            others = sorted(set(cells).difference(here), key=_size, reverse=True)
            beside = {self.pool.submit(_task, cell.text, self.how): cell for cell in others}
        try:
            for cell in here:
                tick(cell, 0.0)
                how = {**self.how, "progress": lambda done, total, cell=cell: tick(cell, done / total)}
                yield cell, compute(cell, how)
                for future in [future for future in beside if future.done()]:
                    yield beside.pop(future), future.result()
            for future in as_completed(beside):
                tick(beside[future], 1.0)
                yield beside.pop(future), future.result()
        finally:
            for future in beside:
                future.cancel()


def _size(cell: Cell) -> tuple[float, int, str]:
    """What orders cells by how long they take: processor seconds, roughly; cells of one problem stand together."""
    agents = cell.columns.get("agents", 0)
    seconds = updates(cell) / UPDATES_PER_SECOND
    if cell.kind == "plan" and cell["method"] == "scaffnew":
        seconds = SECONDS_OF_PLANS / cell["epsilon"]
    elif cell.kind in ("law", "exact", "limit") and cell["method"] != "fedlsa":
        seconds = agents / AGENTS_PER_SECOND
    return seconds, agents, cell.text


@contextlib.contextmanager
def processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that compute and draw beside this one, and know the library's own cells and catalogue; each is started
    when it is first needed."""
    context = multiprocessing.get_context("spawn")  # a copy of this process would copy its locked locks
    pool = ProcessPoolExecutor(count, context, _prepare, (os.getpid(),))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare(parent: int) -> None:
    """Leave interruptions to the parent, and end when it has been killed; the other processes have the other cores."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    one_blas_thread_for_good()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run(
    groups: Mapping[str, Iterable[Cell]], store: Store, executor: Executor, watch: Watch | None = None
) -> RunProgress:
    """Compute every cell of every group that the store lacks, the same cell once; groups : names and their cells."""
    members = {name: dict.fromkeys(cells) for name, cells in groups.items()}
    cells = dict.fromkeys(itertools.chain(*members.values()))
    waiting = {cell: 0.0 for cell in cells if not store.has(cell)}
    stored = {name: sum(cell not in waiting for cell in group) for name, group in members.items()}
    progress = RunProgress({name: [stored[name], len(group)] for name, group in members.items()}, waiting)

    def tick(cell: Cell, share: float) -> None:
        progress.current = next(name for name, group in members.items() if cell in group)
        progress.waiting[cell] = share
        if watch is not None:
            watch(progress)

    for cell, result in executor(list(waiting), tick):
        store[cell] = result
        for name, group in members.items():
            progress.groups[name][0] += cell in group
        del progress.waiting[cell]
        progress.computed += 1
        if watch is not None:
            watch(progress)
    return progress


class Cluster:
    """Computes cells as tasks of a Ray cluster, and hands them over as they arrive.

    address : of the cluster, or "local" for one on this machine alone; how : engine and threads of a simulation (a task
    occupies as many cores as it has threads, by default one).
    """

    def __init__(self, address: str = LOCAL, how: Mapping[str, Any] | None = None) -> None:
        self.how = dict(how or {})
        self.how["threads"] = self.how.get("threads") or 1
        self.tasks = RayTasks(address, self.how["threads"])

    def __call__(self, cells: Sequence[Cell], tick: Tick) -> Iterator[Done]:
        calls = [(cell.text, self.how) for cell in cells]
        for i, result in self.tasks(_task, calls, lambda i: tick(cells[i], 0.0)):
            yield cells[i], result


def _task(text: str, how: Mapping[str, Any]) -> xr.Dataset:
    cell = Cell.from_text(text)
    if cell.text != text:
        raise ClusterError(OTHER_VERSION)
    return compute(cell, how)


# from names of experiments to files: run what is missing, draw, tabulate, decide, and write the report

# of an outcome, plain values: files of figures, charts for the report, tables, and the numbers of claims
Shown = tuple[dict[str, Path], dict[str, Any], dict[str, pd.DataFrame], list[tuple[float, ...]]]
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
    has the bytes that a run in one go would have given, but for the last bits of a picture's layout. Cells that other
    code has computed are not used, and with `clean` removed. catalogue : where the names are looked up; pool : of
    `processes`, which draw what is complete while the rest is computed (None: here, in the end; they know no catalogue
    but our own).
    """
    chosen = [(catalogue[name], scale) for name in names for scale in scales]
    parts = [experiment.groups(scale) for experiment, scale in chosen]
    groups: dict[str, list[Cell]] = {name: cells for part in parts for name, cells in part.items()}
    with only_writer(out):
        for part in itertools.chain(*((out / name).rglob(f".*.{files.HEX}{files.PART}") for name in FOLDERS)):
            part.unlink(missing_ok=True)  # what an interrupted writer left behind
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
        report.write(outcomes, out)
    return outcomes, progress


@contextlib.contextmanager
def only_writer(out: Path) -> Iterator[None]:
    """Hold the folder, so that two runs at once do not clear up after one another; the system lets go of the dead."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultFileError(f"cannot write to the folder {out}: {files.reason(error)}") from error
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


def show(experiment: Experiment, scale: Scale, store: Store, out: Path) -> Shown:
    """Draw, tabulate and decide from what is stored."""
    lookup, made_by = store.__getitem__, command(experiment, scale)
    figures, drawn, tables = {}, {}, {}
    folder = out / "figures" / scale.preset
    folder.mkdir(parents=True, exist_ok=True)
    for picture in experiment.pictures:
        charts = picture.draw(tabulate(picture.cells(scale), lookup), scale)
        titles = [" ".join(chart.title.split()) for row in charts.rows for chart in row]
        if titles != list(picture.panels(scale)):
            raise ArgumentError(f"panels of {picture.name} must be the titles of its charts ({titles})")
        figure = draw_charts(charts)
        drawn[picture.name] = chart_data(charts)
        for suffix in (".pdf", ".png"):
            save(figure, folder / f"{picture.name}{suffix}", command=made_by)
        figures[picture.name] = folder / f"{picture.name}.png"
    for table in experiment.tables:
        rows = table.rows(tabulate(table.cells(scale), lookup), scale)
        file = out / "tables" / scale.preset / f"{table.name}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        files.write(
            file, files.csv_bytes([rows.columns, *rows.itertuples(index=False, name=None)], made_by), "the table"
        )
        tables[table.name] = rows
    return figures, drawn, tables, [measured(claim, lookup, scale) for claim in experiment.claims]


def measured(claim: Claim, lookup: Lookup, scale: Scale) -> tuple[float, ...]:
    """The number of a claim, and then that on each of the other instances; NaN where a cell is not finite."""

    def value(scale: Scale) -> float:
        cells = list(claim.cells(scale))
        numbers = (v.values for cell in cells for v in lookup(cell).values() if v.dtype.kind == "f")
        finite = all(np.isfinite(v).all() for v in numbers)  # else whatever follows decides nothing
        return float(claim.measure(tabulate(cells, lookup))) if finite else math.nan

    return tuple(map(value, (scale, *claim.other_scales(scale))))


def _show(name: str, scale: Scale, out: Path) -> Shown:
    """One experiment of the catalogue, in a process that draws."""
    return show(EXPERIMENTS[name], scale, Store(out / "cells"), out)
