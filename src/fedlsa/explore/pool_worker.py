"""One process of the pool: what it does, and the thread that listens to it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from typing import Any, Protocol

from ..errors import FedLSAError
from ..threads import one_blas_thread_for_good

QUICK_LANE, LONG_LANE, LOADING = "quick", "long", "loading"

Computation = tuple[Callable[..., Any], tuple[Any, ...]]


class Unfinished(tuple[Any, ...]):
    """An answer with gaps, where the work was given up: it is shown, and not remembered."""


@dataclass(frozen=True, eq=False)
class Progress:
    """index : of the question among those asked together; kind : "done", "failed", "progress", "pause", "idle" or,
    within the pool, "dropped"."""

    index: int
    kind: str
    value: Any


@dataclass(frozen=True, eq=False)
class Waiting:
    """Who waits for the answer to a question, under which index, and where it goes."""

    index: int
    asking: object
    replies: queue.SimpleQueue[Progress]

    def reply(self, kind: str, value: Any = None) -> None:
        self.replies.put(Progress(self.index, kind, value))


@dataclass(eq=False)
class PoolJob:
    """A question and all who wait for its answer; nobody: it runs on although it is not wanted any more."""

    call: Computation
    waiting: list[Waiting]

    def still_wanted(self, without: object) -> bool:
        """Whether anybody waits when this one has left."""
        self.waiting = [w for w in self.waiting if w.asking is not without]
        return bool(self.waiting)


class Listener(Protocol):
    """What hears from processes: the pool."""

    def heard(self, worker: PoolWorker, kind: str, value: Any) -> None: ...
    def lost(self, worker: PoolWorker) -> None: ...
    def load_next(self) -> None: ...


class PoolWorker:
    """One process and the thread that listens to it."""

    def __init__(self, pool: Listener, lane: str) -> None:
        self.pool, self.lane = pool, lane
        self.job: PoolJob | None = None
        self.began = False
        self.cold = True  # it has been sent nothing yet
        context = get_context("spawn")
        self.line, end = context.Pipe()
        self.process = context.Process(target=_answer_all, args=(end,), daemon=True)
        self.process.start()
        end.close()  # it is the other side's: when that ends, this side hears of it
        threading.Thread(target=self._listen, daemon=True).start()

    def take(self, job: PoolJob) -> None:
        self.job = job
        self.send(self.lane, *job.call)

    def send(self, lane: str, function: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> None:
        self.cold = False
        with contextlib.suppress(OSError):  # it has just ended; `_listen` sees to that
            self.line.send((lane, function, arguments))

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, value = self.line.recv()
                self.began = True
                if kind == "ready":
                    self.pool.load_next()
                else:
                    self.pool.heard(self, kind, value)
        self.line.close()
        self.pool.lost(self)


def _answer_all(line: connection.Connection) -> None:
    """What a process does: answer one question at a time until the page's process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the page's to handle
    threading.Thread(target=_end_with_the_page, daemon=True).start()
    one_blas_thread_for_good()  # several of these processes share the machine
    yielding = False
    while True:
        lane, function, arguments = line.recv()
        if lane == LOADING:
            if function is not None:
                function()
            line.send(("ready", None))
            continue
        if lane == LONG_LANE and not yielding and hasattr(os, "nice"):
            yielding = bool(os.nice(10))  # others, and the browser, go first
        kind, value = _answer(line, function, arguments)
        try:
            line.send((kind, value))
        except Exception as error:  # an answer that cannot be sent must not keep the page waiting
            line.send(("failed", f"{type(error).__name__}: {_one_line(error)}"))


def _answer(line: connection.Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    def report_progress(done: float, total: float) -> None:
        line.send(("progress", (done, total)))

    try:
        wants = "progress" in function.__code__.co_varnames[: function.__code__.co_argcount]
        return "done", function(*arguments, progress=report_progress) if wants else function(*arguments)
    except FedLSAError as error:
        return "failed", _one_line(error)
    except Exception as error:  # a fault of ours: the page says so and lives on
        return "failed", f"{type(error).__name__}: {_one_line(error)}"


def _one_line(error: Exception) -> str:
    """What went wrong, on one line, and with letters that a browser can be sent: files may hold others."""
    return " ".join(str(error).encode("utf-8", "replace").decode().split())


def _end_with_the_page() -> None:
    """Whoever kills the page's process need not kill this one, however busy it is."""
    page = parent_process()
    if page is not None:
        connection.wait([page.sentinel])
        os._exit(0)
