"""Many tasks on few threads: compile first, then let threads take tasks, longest first, segment by segment."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from numba import typeof, types

from . import kernel
from .progress import Progress, notice
from .sources import SOURCES
from .task import Run

COMPILING = "fedlsa: compiling the engine for parameters of {D} numbers (once; the result is cached on disk)"


def compile_for(run: Run) -> None:
    """Have the kernel for this kind of task ready, from the disk cache or by compiling it."""
    given = tuple(typeof(a) for a in (*run.arguments(run.next_rounds(1)), 0, 0, 0, 0, True))
    signature = (*given, types.Omitted(SOURCES))
    if signature not in kernel.run.overloads:
        with notice(COMPILING.format(D=run.task.D)):
            kernel.run.compile(signature)


def run_all(runs: list[Run], threads: int, report: Progress | None) -> None:
    """Bring all tasks to their end. An interruption lets the segments under way finish and then goes up."""
    for run in {(id(run.problem), id(run.algorithm)): run for run in runs}.values():  # seeds do not change a kernel
        compile_for(run)
    total = sum(run.cost for run in runs)
    stop = threading.Event()

    def work(run: Run, pool: ThreadPoolExecutor | None, share: int) -> None:
        while run.done < run.rounds and not stop.is_set():
            run.advance(pool, share)

    def tell() -> None:
        if report:
            report(sum(run.progress for run in runs), total)

    tell()
    if threads == 1:
        for run in runs:
            while run.done < run.rounds:
                run.advance()
                tell()
        return
    share = max(1, threads // len(runs))  # threads that one task may use inside its rounds
    with ThreadPoolExecutor(threads) as pool, ThreadPoolExecutor(threads) as inner:
        futures: list[Future[None]] = []
        try:  # around the first submission too: an interruption may come at once
            for run in sorted(runs, key=lambda run: -run.cost):
                futures.append(pool.submit(work, run, inner if share > 1 else None, share))
            while True:
                done, pending = wait(futures, timeout=0.05, return_when=FIRST_EXCEPTION)
                tell()
                for future in done:
                    future.result()
                if not pending:
                    return
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise
