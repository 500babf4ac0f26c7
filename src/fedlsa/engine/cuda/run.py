"""Jobs from end to end on a GPU: in parts that fit into its memory, with what each phase took."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from ...errors import ArgumentError
from ...problems import Dense
from ..jobs import Job
from ..progress import Progress, notice
from .host import Group, Kind, kind_of
from .layout import Array
from .steps import E
from .warp import SIMULATED

ROOM = 0.8  # of the free memory that is used
MOST_DIMENSIONS = 128
COMPILING = "fedlsa: compiling the engine for the GPU (once; the result is cached on disk)"


@dataclass
class Timing:
    """Seconds of the last call: sending tables and states, compiling and first launches, kernels, fetching."""

    sending: float = 0.0
    compiling: float = 0.0
    kernels: float = 0.0
    fetching: float = 0.0


last = Timing()


def run_all(jobs: list[Job], report: Progress | None) -> list[tuple[Array, Array, Array, Array]]:
    """Bring all jobs to their end; jobs of one kind share a launch, kinds run beside one another.

    What does not fit into the device's memory at once is done in parts, a job at least.
    """
    last.__init__()  # type: ignore[misc]
    for job in jobs:
        _check(job)
    total = sum(job.updates for job in jobs)
    out: list[Any] = []
    done = 0.0
    for part in _batches(jobs):
        out += _run_together(part, _further(report, done, total))
        done += sum(job.updates for job in part)
    return out


def _further(report: Progress | None, base: float, total: float) -> Callable[[float], None] | None:
    return None if report is None else lambda done: report(base + done, total)


def _run_together(jobs: list[Job], report: Callable[[float], None] | None) -> list[Any]:
    members: dict[tuple[Kind, Any], list[int]] = defaultdict(list)
    for i, job in enumerate(jobs):
        members[kind_of(job), job.algorithm.server_parameters() if job.algorithm.server_step else ()].append(i)
    clock = time.perf_counter()
    members = dict(sorted(members.items(), key=lambda m: -max(jobs[i].rounds for i in m[1])))  # longest first
    groups = [Group(kind, [jobs[i] for i in which]) for (kind, _), which in members.items()]
    cuda.synchronize()
    last.sending += time.perf_counter() - clock
    clock = time.perf_counter()
    with notice(COMPILING):
        for g in groups if not SIMULATED else ():
            g.advance(0)
        cuda.synchronize()
    last.compiling += time.perf_counter() - clock
    clock = time.perf_counter()
    while any(g.done < g.rounds for g in groups):
        for g in groups:
            if g.done < g.rounds:
                g.advance(g.segment())
        for g in groups:
            g.stream.synchronize()
        if report:
            report(sum(g.cost * min(1.0, g.done / g.rounds) for g in groups))
    last.kernels += time.perf_counter() - clock
    clock = time.perf_counter()
    out: list[Any] = [None] * len(jobs)
    for g, which in zip(groups, members.values(), strict=True):
        for i, result in zip(which, g.collect(), strict=True):
            out[i] = result
    last.fetching += time.perf_counter() - clock
    return out


def _check(job: Job) -> None:
    if job.problem.dim > MOST_DIMENSIONS:
        raise ArgumentError(f"dim must be at most {MOST_DIMENSIONS} with engine='cuda'; got {job.problem.dim}")


def _batches(jobs: list[Job]) -> list[list[Job]]:
    """The jobs in their order, in parts that fit into the memory that is free; one that does not fit is an error."""
    free = _free()
    out, used, seen = [list[Job]()], 0, set[int]()
    for job in jobs:
        tables, state = _bytes(job)
        size = state + (0 if id(job.problem) in seen else tables)
        if state + tables > free:
            raise ArgumentError(
                f"a run must fit into the GPU's memory, {free / 2**30:.2g} GB free; got one of "
                f"{(state + tables) / 2**30:.2g} GB ({len(job.seeds)} seeds, {job.problem.n_agents} agents): "
                "use fewer seeds"
            )
        if used + size > free:
            out.append([])
            used, seen, size = 0, set(), state + tables
        out[-1].append(job)
        seen.add(id(job.problem))
        used += size
    return out


def _free() -> int:
    """How many bytes of the device may be used."""
    return int(min(cuda.current_context().get_memory_info()[0] * ROOM, 2.0**62))  # the simulator's is infinite


def _bytes(job: Job) -> tuple[int, int]:
    """About how many bytes a job's tables and its state take on the device."""
    p, size = job.problem, np.dtype(job.dtype).itemsize
    D = E * kind_of(job).L
    outcomes, rows = len(job.where.order), len(job.where.slots)
    tables = outcomes * (8 + size) + 8 * rows + 20 * p.n_agents
    tables += (
        outcomes * D * (D + 1) * size if isinstance(p.observations, Dense) else len(p.observations.rows) * D * size
    )
    return tables, len(job.seeds) * (p.n_agents * (8 * D + 12) + len(job.recorded) * 8 * D)
