"""What is seen while the paper is reproduced: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..experiments.executor import RunProgress, Watch

EVERY = 10.0  # seconds between two lines where there is no terminal
PANELS = 10  # of the experiment in work, at most so many are shown at once


@contextmanager
def display() -> Iterator[Watch]:
    """A function that shows the progress it is given, on standard error."""
    console = Console(file=sys.stderr, highlight=False)
    if not console.is_terminal:
        yield Lines()
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        last = 0.0

        def watch(progress: RunProgress) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last > 0.2:
                last = now
                live.update(view(progress, console.height), refresh=True)

        yield watch


class Lines:
    """A line every ten seconds."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, progress: RunProgress) -> None:
        now = time.monotonic()
        if now - self.last >= EVERY:
            self.last = now
            print(f"{progress.current}: {line(progress)}", file=sys.stderr, flush=True)


def line(progress: RunProgress) -> str:
    """All of it in a line: cells, updates per second, time left."""
    panels = progress.groups.values()
    full = sum(done == total for done, total in panels)
    parts = [f"{full} of {len(panels)} panels", f"{progress.computed} cells computed, {len(progress.waiting)} to go"]
    if not math.isnan(progress.speed):
        parts.append(f"{progress.speed / 1e6:,.0f} M updates/s")
    if not math.isnan(progress.seconds_left):
        parts.append(f"{duration(progress.seconds_left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Minutes and seconds."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def view(progress: RunProgress, height: int) -> Group:
    """A row per experiment; under the one in work, a row for each of its panels, as many as there is room for."""
    experiments: dict[str, list[tuple[str, int, int]]] = {}
    for name, (done, total) in progress.groups.items():
        experiment, _, panel = name.partition(": ")
        experiments.setdefault(experiment, []).append((panel, done, total))
    at_work, _, panel_at_work = progress.current.partition(": ")
    room = min(PANELS, max(0, height - len(experiments) - 2))
    table = Table(box=None, pad_edge=False, show_header=False)
    for experiment, panels in experiments.items():
        done, total = sum(p[1] for p in panels), sum(p[2] for p in panels)
        style = "bold" if experiment == at_work else "dim" if done == total else ""
        _row(table, Text(experiment, style), done, total)
        if experiment == at_work:
            for panel, d, t in _window(panels, panel_at_work, room):
                _row(table, Text(f"  {panel}", "bold" if panel == panel_at_work else ""), d, t)
    return Group(table, Text(line(progress)))


def _row(table: Table, name: Text, done: int, total: int) -> None:
    table.add_row(name, ProgressBar(total=max(total, 1), completed=done, width=24), Text(f"{done}/{total}"))


def _window(panels: list[tuple[str, int, int]], at_work: str, room: int) -> list[tuple[str, int, int]]:
    """The panels round the one in work."""
    names = [p[0] for p in panels]
    here = names.index(at_work) if at_work in names else 0
    first = max(0, min(here - room // 2, len(panels) - room))
    return panels[first : first + room]
