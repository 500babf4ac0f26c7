"""What fits on a GPU: jobs in parts, by the memory that is free, and how many blocks run at once."""

from __future__ import annotations

import numpy as np
from numba import cuda

from ...errors import ArgumentError
from ...problems import Dense
from ..jobs import Job
from .blocks import kind_of
from .gpu_threads import SIMULATED

MEMORY_SHARE = 0.8  # of the free memory that is used


def batches(jobs: list[Job]) -> list[list[Job]]:
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


def processors() -> int:
    """How many multiprocessors the device has: as many blocks of any size are on it at once."""
    return 1 if SIMULATED else int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def _free() -> int:
    """How many bytes of the device may be used."""
    return int(min(cuda.current_context().get_memory_info()[0] * MEMORY_SHARE, 2.0**62))  # the simulator's is infinite


def _bytes(job: Job) -> tuple[int, int]:
    """About how many bytes a job's tables and its state take on the device."""
    p, size = job.problem, np.dtype(job.dtype).itemsize
    kind = kind_of(job)
    D = kind.E * kind.L
    outcomes, rows = len(job.outcomes.order), len(job.outcomes.slots)
    tables = outcomes * (8 + size) + 8 * rows + 20 * p.n_agents
    tables += (
        outcomes * D * (D + 1) * size if isinstance(p.observations, Dense) else len(p.observations.rows) * D * size
    )
    return tables, len(job.seeds) * (p.n_agents * (8 * D + 12) + len(job.recorded) * 8 * D)
