"""From names of experiments to files: run what is missing, draw, tabulate, decide, and write the report."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import ResultFileError
from ..files import reason
from . import report
from .base import Experiment, Scale
from .catalogue import EXPERIMENTS
from .cells import Cell
from .outcome import Outcome, show
from .runner import Executor, Progress, Watch, run
from .store import Store
from .studio import Studio

FOLDERS = ("cells", "figures", "tables", "report")  # of `out`: all that is ever written


def reproduce(
    names: Sequence[str],
    scales: Sequence[Scale],
    out: Path,
    executor: Executor,
    watch: Watch | None = None,
    *,
    catalogue: Mapping[str, Experiment] = EXPERIMENTS,
    drawers: int = 0,
    clean: bool = False,
) -> tuple[list[Outcome], Progress]:
    """Everything of the named experiments at the given scales, under `out`: cells, figures, tables and the report.

    Stop it at any moment and call it again: cells that are stored are not computed twice, and what is there in the end
    has the bytes that a run in one go would have given. Cells that other code has computed are not used, and with
    `clean` removed. catalogue : where the names are looked up; drawers : processes that draw what is complete while the
    rest is computed (0: here, in the end; they know no catalogue but our own).
    """
    chosen = [(catalogue[name], scale) for name in names for scale in scales]
    parts = [experiment.groups(scale) for experiment, scale in chosen]
    groups: dict[str, list[Cell]] = {name: cells for part in parts for name, cells in part.items()}
    with alone(out), Studio(drawers, out) as studio:
        tidy(out)
        store = Store(out / "cells")
        for path in store.outdated() if clean else ():
            path.unlink(missing_ok=True)

        def looked(progress: Progress) -> None:
            for (experiment, scale), part in zip(chosen, parts, strict=True):
                if all(progress.groups[name][0] == progress.groups[name][1] for name in part):
                    studio.begin(experiment.name, scale)
            if watch is not None:
                watch(progress)

        progress = run(groups, store, executor, looked if drawers else watch)
        if drawers:
            for experiment, scale in chosen:
                studio.begin(experiment.name, scale)
        shown = [studio.drawn(e.name, scale) if drawers else show(e, scale, store, out) for e, scale in chosen]
        outcomes = [s.of(e, scale) for s, (e, scale) in zip(shown, chosen, strict=True)]
        report.write(outcomes, out)
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
    held = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultFileError(f"another run is at work in {out}: wait for it, or choose another folder") from None
        except OSError:
            pass  # a file system that knows no locks
        yield
    finally:
        os.close(held)


def tidy(out: Path) -> None:
    """Remove what an interrupted writer left behind."""
    for folder in FOLDERS:
        for part in (out / folder).rglob(".*.part"):
            part.unlink(missing_ok=True)
