"""Questions of pages, answered by a pool of processes: the newest wins, and nothing blocks.

Whoever asks says for which page and on which topic. A newer question there drops the older one. A question that several
ask is computed once. What nobody wants any more is forgotten while it waits, and loses its process where it runs: at
once in the lane of long work, and after a moment in the quick one, where most questions are answered by then. A spare
process stands by to take the place of one that was killed. Processes load what they need while no quick question is
open.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .pool_worker import LOADING, LONG_LANE, QUICK_LANE, Computation, PoolJob, PoolWorker, Progress, Unfinished, Waiting

GRACE = 0.5  # seconds in which a quick question that nobody wants any more may still end by itself
IDLE = 0.25  # seconds without an answer after which who asked can look whether anybody still listens
REMEMBERED = 64  # answers
MAX_STILLBORN = 3  # processes that may end before they begin
NO_PROCESS = "no process can be started to compute this"
ENDED = "the computation ended unexpectedly, perhaps for want of memory"
THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")

Topic = tuple[str, str]  # of a page


class Asking:
    """Answers as they come, until all are there, or it is closed: by who asked, or by a newer question."""

    def __init__(self, pool: Pool, topic: Topic, number: int, count: int, pause: float | None) -> None:
        self._pool, self.topic, self.number, self._left = pool, topic, number, count
        self._due = None if pause is None else time.monotonic() + pause
        self.replies: queue.SimpleQueue[Progress] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[Progress]:
        return self

    def __next__(self) -> Progress:
        if not self._left:
            self.close()
            raise StopIteration
        wait = IDLE if self._due is None else min(IDLE, max(self._due - time.monotonic(), 0.001))
        try:
            answer = self.replies.get(timeout=wait)
        except queue.Empty:
            paused = self._due is not None and time.monotonic() >= self._due
            self._due = None if paused else self._due
            return Progress(0, "pause" if paused else "idle", None)
        if answer.kind == "dropped":
            self._left = 0
            return next(self)
        self._left -= answer.kind != "progress"
        return answer

    def close(self) -> None:
        """Give up what is still open."""
        self._left = 0
        self._pool.drop(self)


class Pool:
    """Processes that answer; quick : how many for questions that must be answered at once, long : for the others.

    warm : what a process does before its first question
    """

    def __init__(self, quick: int = 2, long: int = 1, warm: Callable[[], None] | None = None) -> None:
        self._lock, self._warm = threading.RLock(), warm
        self._waiting: dict[str, list[PoolJob]] = {QUICK_LANE: [], LONG_LANE: []}
        self._memory: OrderedDict[Computation, Any] = OrderedDict()
        self._open: dict[Topic, Asking] = {}
        self._closed, self._stillborn = False, 0
        for name in THREADS:  # processes compute with one thread each: there are as many as is good for the machine
            os.environ.setdefault(name, "1")
        self.workers = [PoolWorker(self, lane) for lane in [QUICK_LANE] * quick + [LONG_LANE] * long]
        self.spare = PoolWorker(self, QUICK_LANE)
        self.load_next()

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
            fresh = []
            for i, call in enumerate(questions):
                waiting = Waiting(i, asking, asking.replies)
                if call in self._memory:
                    self._memory.move_to_end(call)
                    waiting.reply("done", self._memory[call])
                elif self._stillborn > MAX_STILLBORN:
                    waiting.reply("failed", NO_PROCESS)
                elif (same := self._job(lane, call)) is not None:
                    same.waiting.append(waiting)
                else:
                    fresh.append(PoolJob(call, [waiting]))
            before = self._waiting[lane]
            self._waiting[lane] = fresh + before if lane == LONG_LANE else before + fresh  # long work: newest first
            self._hand_out()
        return asking

    def _job(self, lane: str, call: Computation) -> PoolJob | None:
        """What waits or runs already, for somebody else."""
        running = [w.job for w in self.workers if w.job is not None and w.lane == lane]
        return next((job for job in [*self._waiting[lane], *running] if job.call == call), None)

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
            for w in [*self.workers, self.spare]:
                w.process.kill()
            for w in [*self.workers, self.spare]:
                w.process.join()

    def _hand_out(self) -> None:
        for w in self.workers:
            if w.job is None and self._waiting[w.lane] and not self._closed:
                w.take(self._waiting[w.lane].pop(0))

    def load_next(self) -> None:
        """Processes for quick questions load at once, the others one by one while no quick question is open."""
        with self._lock:
            quick = [w for w in self.workers if w.lane == QUICK_LANE]
            if self._closed or self._waiting[QUICK_LANE] or any(w.job for w in quick):
                return
            for w in [*self.workers, self.spare]:
                loading = any(not other.cold and not other.began for other in [*self.workers, self.spare])
                if w.cold and (w in quick or not loading):
                    w.send(LOADING, self._warm, ())

    def _give_up(self, worker: PoolWorker, job: PoolJob) -> None:
        """Kill the process of a question that is still running although nobody wants its answer."""
        with self._lock:
            if worker.job is job and not job.waiting and worker in self.workers and not self._closed:
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
            job = worker.job
            if job is None:
                return
            for waiting in job.waiting:
                waiting.reply(kind, value)
            if kind == "progress":
                return
            if kind == "done" and not isinstance(value, Unfinished):
                self._memory[job.call] = value
                while len(self._memory) > REMEMBERED:
                    self._memory.popitem(last=False)
            worker.job = None
            self._hand_out()
            self.load_next()

    def lost(self, worker: PoolWorker) -> None:
        """A process has ended by itself: another takes its place, unless none can begin."""
        with self._lock:
            if self._closed or (worker not in self.workers and worker is not self.spare):
                return
            for waiting in [] if worker.job is None else worker.job.waiting:
                waiting.reply("failed", ENDED)
            self._stillborn += not worker.began
            if self._stillborn > MAX_STILLBORN:  # whatever keeps it from starting would keep the next from it too
                for job in [*self._waiting[QUICK_LANE], *self._waiting[LONG_LANE]]:
                    for waiting in job.waiting:
                        waiting.reply("failed", NO_PROCESS)
                self._waiting = {QUICK_LANE: [], LONG_LANE: []}
            elif worker is self.spare:
                self.spare = PoolWorker(self, QUICK_LANE)
            else:
                self._replace(worker)
