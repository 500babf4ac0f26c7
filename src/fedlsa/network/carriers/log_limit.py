"""A log that nobody can fill: so many lines a minute about each subject, and then how many were left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_LINES = 20  # about one subject, in a minute
WINDOW_SECONDS = 60.0


@dataclass
class LimitedLog:
    """Passes lines on to `write`; subjects are few: names of sites, and one for all strangers."""

    write: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _windows: dict[str, tuple[float, int]] = field(default_factory=dict)  # subject -> (its beginning, lines in it)

    def say(self, subject: str, text: str) -> None:
        """Write a line, unless too many were written about this subject."""
        now = self.clock()
        began, count = self._windows.get(subject, (now, 0))
        if now - began >= WINDOW_SECONDS:
            if count > MAX_LINES:
                self.write(f"{subject}: {count - MAX_LINES} more lines within a minute were left out")
            began, count = now, 0
        self._windows[subject] = began, count + 1
        if count < MAX_LINES:
            self.write(text)
