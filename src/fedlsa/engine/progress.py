"""Progress of a long run: a function of (done, in all), or a bar on the terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

from .. import checks

Progress = Callable[[float, float], None]


class Bar:
    """A bar on standard error with updates per second and the time that is left; redrawn at most ten times a second."""

    def __init__(self) -> None:
        self.start, self.last = time.monotonic(), 0.0

    def __call__(self, done: float, total: float) -> None:
        now = time.monotonic()
        if done < total and now - self.last < 0.1:
            return
        self.last, share, spent = now, min(1.0, done / total), now - self.start
        bar = "█" * round(30 * share) + "·" * (30 - round(30 * share))
        left = f"{spent * (1 - share) / share:.0f} s left" if 0 < share < 1 else f"{spent:.1f} s"
        rate = done / spent / 1e6 if spent > 0 else 0.0
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\r{bar} {100 * share:3.0f}%  {rate:6.1f} M updates/s  {left:<12}{end}")
        sys.stderr.flush()


def reporter(progress: Any) -> Progress | None:
    """The function that `simulate` calls as work gets done, or None."""
    if progress is None or progress is False:
        return None
    if progress is True:
        return Bar()
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
