"""What the command shows: a live bar on standard error, one line per warning, and a table."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import xarray as xr
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from .. import results
from ..errors import FedLSAWarning
from ..figures.labels import common_setting, names


class Speed(ProgressColumn):
    """Agent updates per second, averaged over the last half minute."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed / 1e6:,.1f} M updates/s", style="progress.data.speed")


@contextmanager
def live_bar(text: str, *, shown: bool = True, updates: bool = True) -> Iterator[Callable[[float, float], None] | None]:
    """A callback for `simulate` that draws a bar on standard error; None unless that is a terminal.

    updates : whether what is counted are agent updates, whose speed means something
    """
    console = Console(file=sys.stderr)
    if not shown or not console.is_terminal:
        yield None
        return
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
    ]
    columns += [Speed()] if updates else []
    columns += [TimeRemainingColumn(elapsed_when_finished=True)]
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Each warning of fedlsa as one line on standard error; those of others as they come."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", FedLSAWarning)
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, FedLSAWarning):
                print(f"fedlsa: warning: {' '.join(str(message).split())}", file=sys.stderr)
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        yield


def print_table(runs: Sequence[xr.Dataset], bias: Sequence[float]) -> None:
    """One row per result: what it cost, its final error with a standard error, and what theory predicts for FedLSA."""
    rows = results.summary(runs)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("method")
    for heading in ("communi-\ncations", "samples\nper agent", "final MSE ±\nstandard error", "predicted\n‖bias‖²"):
        table.add_column(heading, justify="right", no_wrap=True)
    lost = any(row["diverged"] for row in rows)
    if lost:
        table.add_column("seeds that\ndiverged", justify="right", no_wrap=True)
    for name, row, level in zip(names(runs), rows, bias, strict=True):
        cells = [
            name,
            f"{row['communications']:,}",
            f"{row['samples']:,.0f}",
            _number(row["mse"]) + ("" if math.isnan(row["mse"]) else f" ± {_number(row['standard_error'], 2)}"),
            _number(level),
        ]
        table.add_row(*cells, *([f"{row['diverged']} of {row['seeds']}"] if lost else []))
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=120)  # a file has no right edge
    console.print(common_setting(runs), style="dim", markup=False)
    console.print(table)


def _number(value: float, digits: int = 3) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}g}"
