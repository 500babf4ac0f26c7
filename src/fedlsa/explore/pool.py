"""Questions of pages, answered by a pool of processes: the newest wins, and nothing blocks.

Whoever asks says for which page and on which topic. A newer question there drops the older one. A question that several
ask is computed once. What nobody wants any more is forgotten while it waits, and loses its process where it runs: at
once in the lane of long work, and after a moment in the quick one, where most questions are answered by then. Another
takes its place: on Linux it is forked, in a few milliseconds, from one that has loaded all and started no thread;
elsewhere a fork is not safe, and each process loads by itself, one after the other.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import connection, get_context, parent_process
from typing import Any

from ..errors import FedLSAError

GRACE = 0.5  # seconds in which a quick question that nobody wants any more may still end by itself
IDLE = 0.25  # seconds without an answer after which who asked can look whether anybody still listens
REMEMBERED = 64  # answers
MAX_STILLBORN = 3  # processes that may end before they begin
NO_PROCESS = "no process can be started to compute this"
ENDED = "the computation ended unexpectedly, perhaps for want of memory"
# processes compute with one thread each, of all libraries: there are as many as is good for the machine
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")

QUICK_LANE, LONG_LANE = "quick", "long"

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


@dataclass(eq=False)
class PoolJob:
    """A question and who waits for its answer, each under an index; nobody: it runs on although nobody wants it."""

    call: Computation
    waiting: list[tuple[Asking, int]]

    def reply(self, kind: str, value: Any) -> None:
        for asking, index in self.waiting:
            asking.replies.put(Progress(index, kind, value))

    def still_wanted(self, without: Asking) -> bool:
        """Whether anybody waits when this one has left."""
        self.waiting = [w for w in self.waiting if w[0] is not without]
        return bool(self.waiting)


Topic = tuple[str, str]  # of a page


class Asking:
    """Answers as they come, until all are there, or it is closed: by who asked, or by a newer question."""

    def __init__(self, pool: Pool, topic: Topic, number: int, count: int, pause: float | None) -> None:
        self._pool, self.topic, self.number, self._left = pool, topic, number, count
        self._due = None if pause is None else time.monotonic() + pause
        self.replies: queue.SimpleQueue[Progress] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[Progress]:
        while self._left:
            wait = IDLE if self._due is None else min(IDLE, max(self._due - time.monotonic(), 0.001))
            try:
                answer = self.replies.get(timeout=wait)
            except queue.Empty:
                paused = self._due is not None and time.monotonic() >= self._due
                self._due = None if paused else self._due
                answer = Progress(0, "pause" if paused else "idle", None)
            if answer.kind == "dropped":
                break
            self._left -= answer.kind in ("done", "failed")
            yield answer
        self.close()

    def close(self) -> None:
        """Give up what is still open."""
        self._left = 0
        self._pool.drop(self)


class Pool:
    """Processes that answer; quick : how many for questions that must be answered at once, long : for the others.

    modules : what a process loads before its first question
    """

    def __init__(self, quick: int = 2, long: int = 1, modules: Sequence[str] = ()) -> None:
        self._lock, self.modules = threading.RLock(), tuple(modules)
        self._waiting: dict[str, list[PoolJob]] = {QUICK_LANE: [], LONG_LANE: []}
        self._memory: dict[Computation, Any] = {}  # what was asked last comes last
        self._open: dict[Topic, Asking] = {}
        self._closed, self._stillborn = False, 0
        self._lanes = [QUICK_LANE] * quick + [LONG_LANE] * long  # of the processes that are still to be started
        load_ahead(modules)
        self.workers: list[PoolWorker] = []
        self.start_next()

    def ask(
        self,
        topic: Topic,
        questions: Sequence[Computation],
        lane: str = QUICK_LANE,
        pause: float | None = None,
        number: int = 0,
    ) -> Asking:
        """Ask now; the answers, as they come. "idle" comes while there are none.

        questions : functions of answers.py with their arguments
        pause : seconds after which an answer "pause" comes once, if others are still missing
        number : of the question on this topic; one with a larger number that is open wins, else this one does
        """
        asking = Asking(self, topic, number, len(questions), pause)
        with self._lock:
            older = self._open.get(topic)
            if self._closed or (older is not None and older.number > number):
                asking.replies.put(Progress(0, "dropped", None))
                return asking
            if older is not None:
                self.drop(older)
            self._open[topic] = asking
            before, fresh = self._waiting[lane], list[PoolJob]()
            open_jobs = [*before, *(w.job for w in self.workers if w.job is not None and w.lane == lane)]
            for i, call in enumerate(questions):
                if call in self._memory:
                    self._memory[call] = self._memory.pop(call)
                    asking.replies.put(Progress(i, "done", self._memory[call]))
                elif self._stillborn > MAX_STILLBORN:
                    asking.replies.put(Progress(i, "failed", NO_PROCESS))
                elif same := next((job for job in open_jobs if job.call == call), None):  # for somebody else
                    same.waiting.append((asking, i))
                else:
                    fresh.append(PoolJob(call, [(asking, i)]))
            self._waiting[lane] = fresh + before if lane == LONG_LANE else before + fresh  # long work: newest first
            self._hand_out()
        return asking

    def drop(self, asking: Asking) -> None:
        """Who asked wants no answers any more."""
        with self._lock:
            if self._open.get(asking.topic) is not asking:
                return
            del self._open[asking.topic]
            asking.replies.put(Progress(0, "dropped", None))
            for lane, jobs in self._waiting.items():
                self._waiting[lane] = [job for job in jobs if job.still_wanted(asking)]
            for w in list(self.workers):
                if w.job is not None and w.job.waiting and not w.job.still_wanted(asking):
                    threading.Timer(0 if w.lane == LONG_LANE else GRACE, self._give_up, (w, w.job)).start()

    def close(self) -> None:
        """End all processes; whoever still waits for an answer waits no longer."""
        with self._lock:
            self._closed = True
            for asking in list(self._open.values()):
                self.drop(asking)
            for w in self.workers:
                w.process.kill()
            for w in self.workers:
                w.process.join()

    def _hand_out(self) -> None:
        for w in self.workers:
            if w.job is None and self._waiting[w.lane] and not self._closed:
                w.take(self._waiting[w.lane].pop(0))

    def start_next(self) -> None:
        """One process after the other, so that the first can answer as soon as may be."""
        with self._lock:
            if self._lanes and not self._closed:
                self.workers.append(PoolWorker(self, self._lanes.pop(0)))
                self._hand_out()

    def _give_up(self, worker: PoolWorker, job: PoolJob) -> None:
        """Kill the process of a question that is still running although nobody wants its answer."""
        with self._lock:
            if worker.job is job and not job.waiting and worker in self.workers and not self._closed:
                self._replace(worker)
                worker.process.kill()

    def _replace(self, worker: PoolWorker) -> None:
        """Another process takes a worker's place."""
        self.workers[self.workers.index(worker)] = PoolWorker(self, worker.lane)
        self._hand_out()

    def heard(self, worker: PoolWorker, kind: str, value: Any) -> None:
        with self._lock:
            job = worker.job
            if job is None:
                return
            job.reply(kind, value)
            if kind == "progress":
                return
            if kind == "done" and not isinstance(value, Unfinished):
                self._memory[job.call] = value
                if len(self._memory) > REMEMBERED:
                    del self._memory[next(iter(self._memory))]
            worker.job = None
            self._hand_out()

    def lost(self, worker: PoolWorker) -> None:
        """A process has ended by itself: another takes its place, unless none can begin."""
        with self._lock:
            if self._closed or worker not in self.workers:
                return
            if worker.job is not None:
                worker.job.reply("failed", ENDED)
            self._stillborn += not worker.began
            if self._stillborn > MAX_STILLBORN:  # whatever keeps it from starting would keep the next from it too
                for job in [*self._waiting[QUICK_LANE], *self._waiting[LONG_LANE]]:
                    job.reply("failed", NO_PROCESS)
                self._waiting = {QUICK_LANE: [], LONG_LANE: []}
            else:
                self._replace(worker)


class PoolWorker:
    """One process and the thread that listens to it."""

    def __init__(self, pool: Pool, lane: str) -> None:
        self.pool, self.lane = pool, lane
        self.job: PoolJob | None = None
        self.began = False
        context: Any = get_context("forkserver" if sys.platform == "linux" else "spawn")
        self.line, end = context.Pipe()
        self.process = context.Process(target=_answer_all, args=(end, lane, pool.modules), daemon=True)
        self.process.start()
        end.close()  # it is the other side's: when that ends, this side hears of it
        threading.Thread(target=self._listen, daemon=True).start()

    def take(self, job: PoolJob) -> None:
        self.job = job
        with contextlib.suppress(OSError):  # it has just ended; `_listen` sees to that
            self.line.send(job.call)

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, value = self.line.recv()
                self.began = True
                if kind == "ready":
                    self.pool.start_next()
                else:
                    self.pool.heard(self, kind, value)
        self.line.close()
        self.pool.lost(self)


def load_ahead(modules: Sequence[str]) -> None:
    """Begin to load what processes will need, where they are forked from one that has it: the page loads meanwhile."""
    os.environ.update(ONE_THREAD)
    if sys.platform == "linux":
        from multiprocessing import forkserver, resource_tracker

        forkserver.set_forkserver_preload(list(modules))
        resource_tracker.ensure_running()  # it would let signals through again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is the page's to handle
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _answer_all(line: connection.Connection, lane: str, modules: Sequence[str]) -> None:
    """What a process does: answer one question at a time until the page's process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the page's to handle
    threading.Thread(target=_end_with_the_page, daemon=True).start()
    os.environ["FEDLSA_BLAS_THREADS"] = "keep"  # BLAS has one already
    for name in modules:
        import_module(name)
    if lane == LONG_LANE and hasattr(os, "nice"):
        os.nice(10)  # others, and the browser, go first
    with contextlib.suppress(EOFError, OSError):  # the page is gone
        line.send(("ready", None))
        while True:
            function, arguments = line.recv()
            told = {"progress": lambda *done: line.send(("progress", done))}
            try:
                named = function.__code__.co_varnames[: function.__code__.co_argcount]
                line.send(("done", function(*arguments, **(told if "progress" in named else {}))))
            except FedLSAError as error:
                line.send(("failed", _one_line(error)))
            except Exception as error:  # ours, or of an answer that cannot be sent: the page says so and lives on
                line.send(("failed", f"{type(error).__name__}: {_one_line(error)}"))


def _one_line(error: Exception) -> str:
    """What went wrong, on one line, and with letters that a browser can be sent: files may hold others."""
    return " ".join(str(error).encode("utf-8", "replace").decode().split())


def _end_with_the_page() -> None:
    """Whoever kills the page's process need not kill this one, however busy it is."""
    page = parent_process()
    if page is not None:
        connection.wait([page.sentinel])
        os._exit(0)
