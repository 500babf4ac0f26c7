"""What carries records between coordinator and sites, as a run sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ...errors import MessageError
from ..protocol.records import Record
from .runs import Run

WAIT = 1.0  # seconds between looks for sites that are not there


class Post(Protocol):
    """What carries records (over Flower: flower/server_app.py)."""

    def present(self) -> tuple[str, ...]:
        """The sites that can be reached."""
        ...

    def ask(self, orders: Mapping[str, Record], deadline: float) -> Iterator[tuple[str, Record | MessageError]]:
        """Send orders; what comes back within `deadline` seconds, once per site."""
        ...


def wait_for(run: Run, whom: str, here: Sequence[str]) -> None:
    """Wait a little for sites, and say so once."""
    last = [event for _, event in run.events()][-1:]
    text = f"waiting for {whom}; present: {', '.join(here) or 'none'}"
    if not last or last[0].get("text") != text:
        run.note("waiting", text=text, present=len(here))
    time.sleep(WAIT)
