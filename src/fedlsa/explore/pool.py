"""Questions of the page, answered by a pool of processes: the newest wins, and nothing blocks.

Whoever asks says on which topic. A new question on a topic drops what is still open on it: what waits is forgotten, and
what runs loses its process, at once in the lane of long work and after a moment in the quick one, where most questions
are answered by then. A spare process stands by to take the place of one that was killed. Processes load what they need
while no quick question is open.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .pool_worker import LOADING, LONG_LANE, QUICK_LANE, Asked, Computation, PoolWorker, Progress, Unfinished

SESSION = "session_id"  # marimo's name for an open page, in the address of its websocket
GRACE = 0.5  # seconds in which a quick question that nobody wants any more may still end by itself
REMEMBERED = 64  # answers
MAX_STILLBORN = 3  # processes that may end before they begin
NO_PROCESS = "no process can be started to compute this"
ENDED = "the computation ended unexpectedly, perhaps for want of memory"
THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


class Pool:
    """Processes that answer; quick : how many for questions that must be answered at once, long : for the others.

    warm : what a process does before its first question
    """

    def __init__(self, quick: int = 2, long: int = 1, warm: Callable[[], None] | None = None) -> None:
        self._lock, self._warm = threading.RLock(), warm
        self._waiting: dict[str, list[Asked]] = {QUICK_LANE: [], LONG_LANE: []}
        self._memory: OrderedDict[Computation, Any] = OrderedDict()
        self._sessions: dict[str, int] = {}  # pages open in a name; who never connected may ask
        self._closed, self._stillborn = False, 0
        for name in THREADS:  # processes compute with one thread each: there are as many as is good for the machine
            os.environ.setdefault(name, "1")
        self.workers = [PoolWorker(self, lane) for lane in [QUICK_LANE] * quick + [LONG_LANE] * long]
        self.spare = PoolWorker(self, QUICK_LANE)
        self.load_next()

    def ask(
        self,
        session: str,
        topic: str,
        questions: Sequence[Computation],
        lane: str = QUICK_LANE,
        pause: float | None = None,
    ) -> Iterator[Progress]:
        """Answers as they come, until all are there or a newer question of this session on this topic drops them.

        questions : functions of answers.py with their arguments. Asking happens now, not when the first is waited for.
        pause : seconds after which an answer "pause" comes once, if others are still missing
        """
        replies: queue.SimpleQueue[Progress] = queue.SimpleQueue()
        with self._lock:
            self.drop(session, topic)
            fresh: list[Asked] = []
            for i, call in enumerate(questions):
                asked = Asked(i, (session, topic), call, replies)
                if call in self._memory:
                    self._memory.move_to_end(call)
                    asked.reply("done", self._memory[call])
                elif self._closed or not self._sessions.get(session, 1):
                    asked.reply("dropped")
                elif self._stillborn > MAX_STILLBORN:
                    asked.reply("failed", NO_PROCESS)
                else:
                    fresh.append(asked)
            before = self._waiting[lane]
            self._waiting[lane] = fresh + before if lane == LONG_LANE else before + fresh  # long work: newest first
            self._hand_out()
        return _until_all(replies, len(questions), pause)

    def drop(self, session: str, topic: str | None = None) -> None:
        """Give up what a session has still open on a topic, or on all of them."""

        def meant(asked: Asked) -> bool:
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
            while w.asked is None and self._waiting[w.lane] and not self._closed:
                asked = self._waiting[w.lane].pop(0)
                if asked.call in self._memory:  # by now: it was running for somebody else
                    asked.reply("done", self._memory[asked.call])
                else:
                    w.take(asked)

    def load_next(self) -> None:
        """Have processes for quick questions load what they need, then the others one by one: cores are few."""
        with self._lock:
            quick = [w for w in self.workers if w.lane == QUICK_LANE]
            if self._closed or self._waiting[QUICK_LANE] or any(w.asked for w in quick):
                return
            for w in [*self.workers, self.spare]:
                loading = any(not other.cold and not other.began for other in [*self.workers, self.spare])
                if w.cold and (w in quick or not loading):
                    w.send(LOADING, self._warm, ())

    def _give_up(self, worker: PoolWorker, asked: Asked) -> None:
        """Kill the process of a question that is still running although nobody wants its answer."""
        with self._lock:
            if worker.asked is asked and worker in self.workers and not self._closed:
                self._replace(worker)
                worker.process.kill()

    def _replace(self, worker: PoolWorker) -> None:
        """The spare takes a worker's place; another spare starts."""
        self.spare.lane = worker.lane
        self.workers[self.workers.index(worker)] = self.spare
        self.spare = PoolWorker(self, QUICK_LANE)
        self._hand_out()

    def heard(self, worker: PoolWorker, kind: str, value: Any) -> None:
        """A worker says something about its question."""
        with self._lock:
            asked, unwanted = worker.asked, worker.unwanted
            if asked is None:
                return
            if not unwanted:
                asked.reply(kind, value)
            if kind == "progress":
                return
            if kind == "done" and not isinstance(value, Unfinished):
                self._memory[asked.call] = value
                while len(self._memory) > REMEMBERED:
                    self._memory.popitem(last=False)
            worker.asked, worker.unwanted = None, False
            self._hand_out()
            self.load_next()

    def lost(self, worker: PoolWorker) -> None:
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
                self.spare = PoolWorker(self, QUICK_LANE)
            else:
                self._replace(worker)


def _until_all(replies: queue.SimpleQueue[Progress], count: int, pause: float | None) -> Iterator[Progress]:
    left, due = count, None if pause is None else time.monotonic() + pause
    while left:
        try:
            answer = replies.get(timeout=None if due is None else max(due - time.monotonic(), 0.001))
        except queue.Empty:
            due = None
            yield Progress(0, "pause", None)
            continue
        left -= answer.kind != "progress"
        if answer.kind == "dropped":
            return
        yield answer
