"""Questions of the page, answered by a few processes: the newest wins, and nothing blocks.

Whoever asks says on which topic. A new question on a topic drops what is still open on it, running or waiting, so that
a slider that is being dragged costs one stale question at most. Some processes are kept for long work, so that curves
never wait for a plan.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from os import environ
from typing import Any

from . import worker

QUICK, LONG = "quick", "long"
SESSION = "session_id"  # marimo's name for an open page, in the address of its websocket
KEPT = 64  # answers that are remembered
HELPLESS = "no process can be started to compute this"
TRIES = 3  # processes that may end before they begin
THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True, eq=False)
class Answer:
    """index : of the question among those asked together; kind : "done", "failed", "progress",
    "pause" or "dropped"."""

    index: int
    kind: str
    value: Any


@dataclass(eq=False)
class _Question:
    number: int
    index: int
    topic: tuple[str, str]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    replies: queue.SimpleQueue[Answer]

    @property
    def key(self) -> Any:
        return self.function, self.arguments


class Desk:
    """Processes that answer; quick : how many for questions that must be answered at once, long : for the others."""

    def __init__(self, quick: int = 2, long: int = 1) -> None:
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._waiting: dict[str, list[_Question]] = {QUICK: [], LONG: []}
        self._memory: OrderedDict[Any, Any] = OrderedDict()
        self._closed, self._stillborn = False, 0
        self._here: dict[str, int] = {}  # how often somebody has come and not left; who never came may ask
        self._workers = [_Worker(self, QUICK) for _ in range(quick)] + [_Worker(self, LONG) for _ in range(long)]

    def ask(
        self,
        owner: str,
        topic: str,
        questions: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]],
        lane: str = QUICK,
        pause: float | None = None,
    ) -> Iterator[Answer]:
        """Answers as they come, until all are there or a newer question of this owner on this topic drops them.

        questions : functions of answers.py with their arguments. Asking happens now, not when the first is waited for.
        pause : seconds after which an answer "pause" comes once, if others are still missing
        """
        replies: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        with self._lock:
            self.drop(owner, topic)
            for i, (function, arguments) in enumerate(questions):
                made = _Question(next(self._numbers), i, (owner, topic), function, arguments, replies)
                if made.key in self._memory:
                    self._memory.move_to_end(made.key)
                    replies.put(Answer(i, "done", self._memory[made.key]))
                elif self._closed or not self._here.get(owner, 1):
                    replies.put(Answer(i, "dropped", None))
                elif not any(w.lane == lane for w in self._workers):
                    replies.put(Answer(i, "failed", HELPLESS))
                else:
                    self._waiting[lane].append(made)
            self._hand_out()
        return _until_all(replies, len(questions), pause)

    def drop(self, owner: str, topic: str) -> None:
        """Give up what is still open on a topic."""
        with self._lock:
            for lane, waiting in self._waiting.items():
                for q in waiting:
                    if q.topic == (owner, topic):
                        q.replies.put(Answer(q.index, "dropped", None))
                self._waiting[lane] = [q for q in waiting if q.topic != (owner, topic)]
            for w in self._workers:
                if w.question is not None and w.question.topic == (owner, topic):
                    w.question.replies.put(Answer(w.question.index, "dropped", None))
                    w.interrupt()

    def leave(self, owner: str) -> None:
        """Give up everything that somebody has asked for, and what is asked in this name until it comes back.

        A page that is loaded anew may come before it leaves, under the same name: it stays.
        """
        with self._lock:
            self._here[owner] = max(self._here.get(owner, 1) - 1, 0)
            if self._here[owner]:
                return
            open_ones = [q for lane in self._waiting.values() for q in lane]
            open_ones += [w.question for w in self._workers if w.question is not None]
            for _, topic in {q.topic for q in open_ones if q.topic[0] == owner}:
                self.drop(owner, topic)

    def come(self, owner: str) -> None:
        """Take questions of somebody, who may have left before."""
        with self._lock:
            self._here[owner] = self._here.get(owner, 0) + 1

    def close(self) -> None:
        """End all processes; whoever still waits for an answer waits no longer."""
        with self._lock:
            self._closed = True
            waiting = [q for lane in self._waiting.values() for q in lane]
            for q in [*waiting, *(w.question for w in self._workers if w.question is not None)]:
                q.replies.put(Answer(q.index, "dropped", None))
            for w in self._workers:
                w.process.kill()
            for w in self._workers:
                w.process.join()

    def _hand_out(self) -> None:
        for w in self._workers:
            if w.question is None and self._waiting[w.lane] and not self._closed:
                w.take(self._waiting[w.lane].pop(0))

    def heard(self, worker: _Worker, number: int, kind: str, value: Any) -> None:
        """A worker says something about the question at its hand."""
        with self._lock:
            q = worker.question
            if q is None or q.number != number:
                return
            q.replies.put(Answer(q.index, kind, value))
            if kind == "progress":
                return
            if kind == "done":
                self._memory[q.key] = value
                while len(self._memory) > KEPT:
                    self._memory.popitem(last=False)
            worker.question = None
            self._hand_out()

    def lost(self, worker: _Worker) -> None:
        """A worker has ended by itself: another takes its place."""
        with self._lock:
            if self._closed:
                return
            q, worker.question = worker.question, None
            if q is not None:
                text = "the computation ended unexpectedly, perhaps for want of memory"
                q.replies.put(Answer(q.index, "failed", text))
            if worker.began or self._stillborn < TRIES:
                self._stillborn += not worker.began
                self._workers[self._workers.index(worker)] = _Worker(self, worker.lane)
                self._hand_out()
                return
            self._workers.remove(worker)  # whatever keeps it from starting would keep the next from it too
            if not any(w.lane == worker.lane for w in self._workers):
                for q in self._waiting[worker.lane]:
                    q.replies.put(Answer(q.index, "failed", HELPLESS))
                self._waiting[worker.lane] = []


def _until_all(replies: queue.SimpleQueue[Answer], count: int, pause: float | None) -> Iterator[Answer]:
    left, due = count, None if pause is None else time.monotonic() + pause
    while left:
        try:
            answer = replies.get(timeout=None if due is None else max(due - time.monotonic(), 0.001))
        except queue.Empty:
            due = None
            yield Answer(0, "pause", None)
            continue
        left -= answer.kind != "progress"
        if answer.kind == "dropped":
            return
        yield answer


@dataclass(eq=False)
class _Worker:
    """One process and the thread that listens to it."""

    desk: Desk
    lane: str
    question: _Question | None = None
    began: bool = False
    process: BaseProcess = field(init=False)
    line: Connection = field(init=False)

    def __post_init__(self) -> None:
        context = get_context("spawn")
        self.line, end = context.Pipe()
        self.process = context.Process(target=worker.main, args=(end, self.lane == LONG), daemon=True)
        with _one_thread_each():
            self.process.start()
        end.close()  # it is the other side's: when that ends, this side hears of it
        threading.Thread(target=self._listen, daemon=True).start()

    def take(self, q: _Question) -> None:
        self.question = q
        self._say(("ask", q.number, q.function, q.arguments))

    def interrupt(self) -> None:
        assert self.question is not None
        self._say(("drop", self.question.number))

    def _say(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # it has just ended; `_listen` sees to that
            self.line.send(message)

    def _listen(self) -> None:
        while True:
            try:
                number, kind, value = self.line.recv()
            except (EOFError, OSError):
                self.line.close()
                self.desk.lost(self)
                return
            self.began = True
            self.desk.heard(self, number, kind, value)


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that start meanwhile compute with one thread: there are as many of them as is good for the machine."""
    before = {name: environ.get(name) for name in THREADS}
    environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del environ[name]
            else:
                environ[name] = value
