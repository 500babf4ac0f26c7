"""How commands show things: bars on standard error, warnings as single lines, tables and numbers on standard output."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..errors import FedLSAWarning

FILE_WIDTH = 120  # letters: a file has no right edge


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
    last = [Speed()] if updates else []
    with _bar(text, *last, TimeRemainingColumn(elapsed_when_finished=True), shown=shown) as show:
        yield None if show is None else lambda done, total: show(text, done, total)


@contextmanager
def stages(*, shown: bool = True) -> Iterator[Callable[[str, float, float], None] | None]:
    """A callback for `fl.fit` that shows what is being done, on standard error; None unless that is a terminal."""
    with _bar("", TimeElapsedColumn(), shown=shown, transient=True) as show:
        yield show


@contextmanager
def _bar(text: str, *more: ProgressColumn, shown: bool, transient: bool = False) -> Iterator[Any]:
    """A function of (what, done, in all) that draws a bar; None unless somebody sees it."""
    console = Console(file=sys.stderr)
    if not shown or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description:<10}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"), *more)
    with Progress(*columns, console=console, transient=transient) as bar:
        task = bar.add_task(text, total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total or None)


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


def print_all(*parts: str | Table, heading: str = "", width: int = FILE_WIDTH) -> None:
    """Lines and tables on standard output, after a faint heading."""
    console = Console(file=sys.stdout, highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, markup=False, width=width)
    if heading:
        console.print(heading, style="dim")
    for part in parts:
        console.print(part)


def print_json(**content: Any) -> None:
    """One JSON object and nothing else on standard output: numbers in full, NaN as null, infinity as "inf"."""
    print(json.dumps(_as_json(content), indent=1, ensure_ascii=False, allow_nan=False))


def _as_json(value: Any) -> Any:
    if is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _as_json(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(entry) for entry in value]
    if hasattr(value, "tolist"):  # of NumPy
        return _as_json(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def table(first: str, *headings: str, rows: Sequence[Sequence[str]] = ()) -> Table:
    """A table whose first column is words and whose others are numbers."""
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    out.add_column(first)
    for heading in headings:
        out.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        out.add_row(*row)
    return out


def number(value: float, digits: int = 3) -> str:
    """A number to so many digits; a dash for none."""
    return "-" if math.isnan(value) else f"{value:.{digits}g}"
