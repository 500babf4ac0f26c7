"""Questions of the page, answered by a pool of processes: the newest wins, and nothing blocks.

Whoever asks says on which topic. A new question on a topic drops what is still open on it: what waits is forgotten, and
what runs loses its process, at once in the lane of long work and after a moment in the quick one, where most questions
are answered by then. A spare process, warm, stands by to take the place of one that was killed.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from typing import Any

from ..errors import FedLSAError

QUICK_LANE, LONG_LANE = "quick", "long"
SESSION = "session_id"  # marimo's name for an open page, in the address of its websocket
GRACE = 0.5  # seconds in which a quick question that nobody wants any more may still end by itself
REMEMBERED = 64  # answers
MAX_STILLBORN = 3  # processes that may end before they begin
NO_PROCESS = "no process can be started to compute this"
ENDED = "the computation ended unexpectedly, perhaps for want of memory"
THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")

Computation = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Answer:
    """index : of the question among those asked together; kind : "done", "failed", "progress",
    "pause" or "dropped"."""

    index: int
    kind: str
    value: Any


@dataclass(frozen=True, eq=False)
class _Asked:
    index: int
    topic: tuple[str, str]
    call: Computation
    replies: queue.SimpleQueue[Answer]

    def reply(self, kind: str, value: Any = None) -> None:
        self.replies.put(Answer(self.index, kind, value))


class Pool:
    """Processes that answer; quick : how many for questions that must be answered at once, long : for the others.

    warm : what a process does before its first question
    """

    def __init__(self, quick: int = 2, long: int = 1, warm: Callable[[], None] | None = None) -> None:
        self._lock, self._warm = threading.RLock(), warm
        self._waiting: dict[str, list[_Asked]] = {QUICK_LANE: [], LONG_LANE: []}
        self._memory: OrderedDict[Computation, Any] = OrderedDict()
        self._sessions: dict[str, int] = {}  # pages open in a name; who never connected may ask
        self._closed, self._stillborn = False, 0
        for name in THREADS:  # processes compute with one thread each: there are as many as is good for the machine
            os.environ.setdefault(name, "1")
        self.workers = [_Worker(self, lane) for lane in [QUICK_LANE] * quick + [LONG_LANE] * long]
        self.spare = _Worker(self, QUICK_LANE)

    def ask(
        self,
        session: str,
        topic: str,
        questions: Sequence[Computation],
        lane: str = QUICK_LANE,
        pause: float | None = None,
    ) -> Iterator[Answer]:
        """Answers as they come, until all are there or a newer question of this session on this topic drops them.

        questions : functions of answers.py with their arguments. Asking happens now, not when the first is waited for.
        pause : seconds after which an answer "pause" comes once, if others are still missing
        """
        replies: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        with self._lock:
            self.drop(session, topic)
            for i, call in enumerate(questions):
                asked = _Asked(i, (session, topic), call, replies)
                if call in self._memory:
                    self._memory.move_to_end(call)
                    asked.reply("done", self._memory[call])
                elif self._closed or not self._sessions.get(session, 1):
                    asked.reply("dropped")
                elif self._stillborn > MAX_STILLBORN:
                    asked.reply("failed", NO_PROCESS)
                else:
                    self._waiting[lane].append(asked)
            self._hand_out()
        return _until_all(replies, len(questions), pause)

    def drop(self, session: str, topic: str | None = None) -> None:
        """Give up what a session has still open on a topic, or on all of them."""

        def meant(asked: _Asked) -> bool:
            return asked.topic == (session, topic) or (topic is None and asked.topic[0] == session)

        with self._lock:
            for lane, waiting in self._waiting.items():
                for asked in filter(meant, waiting):
                    asked.reply("dropped")
                self._waiting[lane] = [asked for asked in waiting if not meant(asked)]
            for w in list(self.workers):
                if w.asked is not None and not w.unwanted and meant(w.asked):
                    w.asked.reply("dropped")
                    w.unwanted = True
                    threading.Timer(0 if w.lane == LONG_LANE else GRACE, self._give_up, (w, w.asked)).start()

    def connect(self, session: str) -> None:
        """A page is open in this name."""
        with self._lock:
            self._sessions[session] = self._sessions.get(session, 0) + 1

    def disconnect(self, session: str) -> None:
        """A page is closed. The last one of its name gives up everything; until it is back nothing is answered.

        A page that is loaded anew may connect before it disconnects, under the same name: it stays.
        """
        with self._lock:
            self._sessions[session] = max(self._sessions.get(session, 1) - 1, 0)
            if not self._sessions[session]:
                self.drop(session)

    def close(self) -> None:
        """End all processes; whoever still waits for an answer waits no longer."""
        with self._lock:
            self._closed = True
            running = [w.asked for w in self.workers if w.asked is not None]
            for asked in [*self._waiting[QUICK_LANE], *self._waiting[LONG_LANE], *running]:
                asked.reply("dropped")
            for w in [*self.workers, self.spare]:
                w.process.kill()
            for w in [*self.workers, self.spare]:
                w.process.join()

    def _hand_out(self) -> None:
        for w in self.workers:
            if w.asked is None and self._waiting[w.lane] and not self._closed:
                w.take(self._waiting[w.lane].pop(0))

    def _give_up(self, worker: _Worker, asked: _Asked) -> None:
        """Kill the process of a question that is still running although nobody wants its answer."""
        with self._lock:
            if worker.asked is asked and worker in self.workers and not self._closed:
                self._replace(worker)
                worker.process.kill()

    def _replace(self, worker: _Worker) -> None:
        """The spare takes a worker's place; another spare starts."""
        self.spare.lane = worker.lane
        self.workers[self.workers.index(worker)] = self.spare
        self.spare = _Worker(self, QUICK_LANE)
        self._hand_out()

    def heard(self, worker: _Worker, kind: str, value: Any) -> None:
        """A worker says something about its question."""
        with self._lock:
            asked, unwanted = worker.asked, worker.unwanted
            if asked is None:
                return
            if not unwanted:
                asked.reply(kind, value)
            if kind == "progress":
                return
            if kind == "done":
                self._memory[asked.call] = value
                while len(self._memory) > REMEMBERED:
                    self._memory.popitem(last=False)
            worker.asked, worker.unwanted = None, False
            self._hand_out()

    def lost(self, worker: _Worker) -> None:
        """A process has ended by itself: another takes its place, unless none can begin."""
        with self._lock:
            if self._closed or (worker not in self.workers and worker is not self.spare):
                return
            if worker.asked is not None and not worker.unwanted:
                worker.asked.reply("failed", ENDED)
            self._stillborn += not worker.began
            if self._stillborn > MAX_STILLBORN:  # whatever keeps it from starting would keep the next from it too
                for asked in [*self._waiting[QUICK_LANE], *self._waiting[LONG_LANE]]:
                    asked.reply("failed", NO_PROCESS)
                self._waiting = {QUICK_LANE: [], LONG_LANE: []}
            elif worker is self.spare:
                self.spare = _Worker(self, QUICK_LANE)
            else:
                self._replace(worker)


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


class _Worker:
    """One process and the thread that listens to it."""

    def __init__(self, pool: Pool, lane: str) -> None:
        self.pool, self.lane = pool, lane
        self.asked: _Asked | None = None
        self.unwanted = self.began = False
        context = get_context("spawn")
        self.line, end = context.Pipe()
        self.process = context.Process(target=_answer_all, args=(end, pool._warm), daemon=True)
        self.process.start()
        end.close()  # it is the other side's: when that ends, this side hears of it
        threading.Thread(target=self._listen, daemon=True).start()

    def take(self, asked: _Asked) -> None:
        self.asked = asked
        with contextlib.suppress(OSError):  # it has just ended; `_listen` sees to that
            self.line.send((self.lane, *asked.call))

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, value = self.line.recv()
                self.began = True
                if kind != "ready":
                    self.pool.heard(self, kind, value)
        self.line.close()
        self.pool.lost(self)


def _answer_all(line: connection.Connection, warm: Callable[[], None] | None) -> None:
    """What a process does: answer one question at a time until the page's process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the page's to handle
    threading.Thread(target=_end_with_the_page, daemon=True).start()
    if warm is not None:
        warm()
    line.send(("ready", None))
    yielding = False
    while True:
        lane, function, arguments = line.recv()
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
