"""Processes that draw experiments whose cells are complete, while others are still computed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from types import TracebackType

from .base import Scale
from .outcome import Shown, show
from .store import Store


class Studio:
    """A pool of processes, begun with the first experiment that is ready; size 0 has none."""

    def __init__(self, size: int, out: Path) -> None:
        self.size, self.out = size, out
        self._pool: ProcessPoolExecutor | None = None
        self._jobs: dict[tuple[str, Scale], Future[Shown]] = {}

    def begin(self, name: str, scale: Scale) -> None:
        """Draw an experiment of the catalogue; asked a second time, it is not drawn again."""
        if (name, scale) in self._jobs:
            return
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # a copy of this process would copy its locked locks
            self._pool = ProcessPoolExecutor(self.size, context, _prepare, (os.getpid(),))
        self._jobs[name, scale] = self._pool.submit(draw, name, scale, self.out)

    def drawn(self, name: str, scale: Scale) -> Shown:
        """What was drawn, once it is."""
        self.begin(name, scale)
        return self._jobs[name, scale].result()

    def __enter__(self) -> Studio:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def draw(name: str, scale: Scale, out: Path) -> Shown:
    """One experiment of the catalogue, from what is stored under `out`."""
    from .catalogue import EXPERIMENTS

    return show(EXPERIMENTS[name], scale, Store(out / "cells"), out)


def _prepare(parent: int) -> None:
    """Leave interruptions to the parent, give way to its computations, and end when it has been killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(AttributeError, OSError):
        os.nice(5)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
