"""Progress of a long run: a function of (done, in all), or bars of rich's on the terminal, the only ones there are."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from .. import checks

Progress = Callable[[float, float], None]
SECONDS_BETWEEN_LINES = 10.0


class Bars:
    """Bars of rich's on standard error, one for each row; without rich a line now and then.

    transient : whether they vanish in the end; updates : whether what is counted are agent updates, with their speed
    lines : whether there are lines, too, where standard error is no terminal; else the bars as they are in the end
    close : draws them once more, and leaves the terminal to others
    """

    def __init__(self, *, transient: bool = False, updates: bool = False, lines: bool = False) -> None:
        self.rows: dict[str, Any] = {}
        self.last, self.live = time.monotonic(), None
        self.close: Callable[[], object] = lambda: None
        with suppress(ImportError):
            bars = _rich_progress(transient, updates)
            if bars.console.is_terminal or not lines:
                bars.start()
                self.live, self.close = bars, weakref.finalize(self, bars.stop)  # also where an error ends the work

    def show(self, what: str, done: float, total: float, row: str = "") -> None:
        """How far a row is, and what it is at."""
        if self.live is None:
            if time.monotonic() - self.last >= SECONDS_BETWEEN_LINES:
                self.last = time.monotonic()
                print(f"{what} {done / total:.0%}".strip(), file=sys.stderr, flush=True)
            return
        if row not in self.rows:
            self.rows[row] = self.live.add_task(what, total=None)
        self.live.update(self.rows[row], description=what, completed=done, total=total or None)

    def __call__(self, done: float, total: float) -> None:
        """As `simulate` calls it."""
        self.show("", done, total)
        if done >= total:
            self.close()


def _rich_progress(transient: bool, updates: bool) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class Speed(ProgressColumn):
        """Agent updates per second, averaged over the last half minute."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed or (task.elapsed and task.completed / task.elapsed)
            return Text("" if speed is None else f"{speed / 1e6:,.1f} M updates/s", style="progress.data.speed")

    columns = (TextColumn("{task.description:<10}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"))
    more = (*((Speed(),) if updates else ()), TimeRemainingColumn(elapsed_when_finished=True))
    return RichProgress(*columns, *more, console=Console(file=sys.stderr), transient=transient)


@contextmanager
def progress_bars(*, shown: bool = True, updates: bool = False, transient: bool = False) -> Iterator[Bars | None]:
    """Bars while the body runs; None unless standard error is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    made = Bars(transient=transient, updates=updates)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def live_bar(text: str, *, shown: bool = True, updates: bool = True) -> Iterator[Progress | None]:
    """A callback for `simulate` that draws a bar; None unless standard error is a terminal."""
    with progress_bars(shown=shown, updates=updates) as made:
        yield None if made is None else lambda done, total: made.show(text, done, total)


def reporter(progress: Any) -> Progress | None:
    """The function that `simulate` calls as work gets done, or None."""
    if progress is None or progress is False:
        return None
    if progress is True:
        return Bars(updates=True)
    checks.callback("progress", progress)
    return cast(Progress, progress)


@contextmanager
def notice(text: str, after: float = 0.5) -> Iterator[None]:
    """Say `text` on standard error if the body takes longer than `after` seconds."""
    timer = threading.Timer(after, lambda: print(text, file=sys.stderr, flush=True))
    timer.daemon = True
    with suppress(RuntimeError):  # no more threads may be started
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
