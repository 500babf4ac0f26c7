"""Threads that share tasks: each takes one; where there are fewer tasks than threads, several share a task's rounds."""

from __future__ import annotations

import heapq
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Protocol

from .addresses import YIELDS
from .jobs import Job
from .progress import Progress


class SharedTask(Protocol):
    """What threads bring to its end, segment by segment: one of them, or several as the members of a team."""

    job: Job
    done: int  # rounds
    updates_per_round: float

    @property
    def left(self) -> float:
        """What is still to be done; 0 at the end."""

    def most_members(self) -> int:
        """How many threads a round is worth."""

    def advance(self) -> None:
        """Do the next segment alone."""

    def begin(self, members: int) -> None:
        """Lay out the next segment."""

    def run(self, member: int, members: int) -> None:
        """Do a member's part of it."""

    def end(self) -> None:
        """Look at what came of it."""

    def abandon(self) -> None:
        """Let nobody wait for a member that does not come."""


@contextmanager
def held_interrupts() -> Iterator[Callable[[], None]]:
    """Ctrl-C is raised by the function that this gives, and nowhere else within.

    Raised amid the locks of a pool it could leave one locked, for which a worker and then all would wait for ever.
    """
    seen: list[Any] = []

    def look() -> None:
        if seen:
            raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield look  # interrupts are another's
        return
    signal.signal(signal.SIGINT, lambda *_: seen.append(True))
    try:
        yield look
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    look()


def finish(tasks: Sequence[SharedTask], threads: int, report: Progress | None) -> None:
    """Bring tasks to their end, segment by segment, the longest first.

    An interruption lets the segments under way finish and then goes up.
    """
    total = sum(task.job.updates for task in tasks)

    def report_progress() -> None:
        if report:
            report(total - sum(task.updates_per_round * (task.job.rounds - task.done) for task in tasks), total)

    report_progress()
    if threads == 1:
        for task in tasks:
            while task.left:
                task.advance()
                report_progress()
        return
    waiting = [(-task.left, i) for i, task in enumerate(tasks)]
    heapq.heapify(waiting)
    with held_interrupts() as look_for_interrupt, ThreadPoolExecutor(threads) as pool:
        under_way: dict[Future[None], int] = {}
        shared: set[int] = set()
        try:
            while waiting or under_way:
                while waiting and len(under_way) < threads:
                    i = heapq.heappop(waiting)[1]
                    free = (threads - len(under_way)) // (len(waiting) + 1)
                    members = max(1, min(free, tasks[i].most_members())) if YIELDS else 1
                    if members == 1:
                        under_way[pool.submit(tasks[i].advance)] = i
                        continue
                    shared.add(i)
                    tasks[i].begin(members)
                    try:  # an interruption may come before all of them are there
                        for member in range(members):
                            under_way[pool.submit(tasks[i].run, member, members)] = i
                    except BaseException:
                        tasks[i].abandon()
                        raise
                done = wait(under_way, 0.05, FIRST_COMPLETED).done
                look_for_interrupt()
                for future in done:
                    i = under_way.pop(future)
                    future.result()
                    if i not in under_way.values():
                        if i in shared:
                            shared.remove(i)
                            tasks[i].end()
                        if tasks[i].left:
                            heapq.heappush(waiting, (-tasks[i].left, i))
                report_progress()
        except BaseException:
            for future in under_way:
                future.cancel()  # its fellows would wait for it
            for i in under_way.values():
                tasks[i].abandon()
            raise
