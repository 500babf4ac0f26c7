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
from ..algorithms import Scaffnew
from ..errors import FedLSAWarning
from ..figures.labels import common_setting, method_name, names
from ..theory.planner import Plan
from ..theory.stationary import Stationary


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
    table = _table("communi-\ncations", "samples\nper agent", "final MSE ±\nstandard error", "predicted\n‖bias‖²")
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
    _print(table, common_setting(runs))


def print_exact(
    curves: Sequence[xr.Dataset], ends: Sequence[Stationary], limits: Sequence[float], steps: Sequence[float]
) -> None:
    """One row per method: its exact error at the last round and in the limit, and how far it is from unstable."""
    last = int(curves[0]["round"][-1])
    table = _table(
        f"exact MSE,\nround {last:,}", "stationary\nMSE", "squared\nbias", "variance", "mean-square\nradius",
        "unstable from\nstep size",
    )  # fmt: skip
    notes = []
    for c, end, limit, eta in zip(curves, ends, limits, steps, strict=True):
        name, stable = method_name(c), end.stable
        from_where = _number(limit)
        parts = [_number(end.mse), _number(float(end.bias @ end.bias)), _number(end.variance)] if stable else ["-"] * 3
        table.add_row(name, _number(float(c["mse"][-1])), *parts, f"{end.radius:.6g}", from_where)
        if not stable:
            notes.append(
                f"{name} is unstable with step size {eta:g}: its second moment grows without bound"
                f" (mean-square radius {end.radius:.4g}, not below 1)."
            )
    if any(math.isnan(limit) for limit in limits):
        notes.append("Step sizes that take minutes to find are left out; --limit finds them.")
    attrs = curves[0].attrs
    _print(table, f"N = {attrs['agents']},  d = {attrs['dim']},  i.i.d. sampling,  exact", notes)


def print_plans(plans: Sequence[Plan]) -> None:
    """One row per plan: how to run it, what it costs, and how close it gets."""
    table = _table(
        "step size",
        "local steps or\nprobability",
        "communi-\ncations",
        "samples\nper agent",
        "predicted\nRMSE",
        "bytes",
    )
    for p in plans:
        a = p.algorithm
        length = f"p = {a.probability:.4g}" if isinstance(a, Scaffnew) else f"{a.local_steps:,}"  # type: ignore[attr-defined]
        cells = [f"{a.step_size:.4g}", length, f"{p.rounds:,}", f"{p.samples:,.0f}", _number(p.rmse), f"{p.bytes:,}"]
        table.add_row(type(a).__name__, *cells)
    _print(table, f"by {', '.join(dict.fromkeys(p.basis for p in plans))},  i.i.d. sampling")


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("method")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _print(table: Table, heading: str, notes: Sequence[str] = ()) -> None:
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=120)  # a file has no right edge
    console.print(heading, style="dim", markup=False)
    console.print(table)
    for note in notes:
        console.print(note, markup=False)


def _number(value: float, digits: int = 3) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}g}"
