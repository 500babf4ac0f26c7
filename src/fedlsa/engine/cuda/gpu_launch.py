"""Jobs from end to end on a GPU: in parts that fit into its memory, a launch for the blocks of each kind."""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from ...algorithms import Algorithm
from ...errors import ArgumentError
from ...problems import Dense
from ...sampling import Markov
from ..hooks import parameters, refuse_raising
from ..jobs import Job, JobOutcome
from ..outcome_tables import first_states
from ..progress import Progress, notice
from ..schedule import Schedule, schedule
from .blocks import BLOCK, Array, DeviceState, DeviceTables, Kind, SharedTables, kind_of, rounds_vary
from .gpu_kernel import build
from .gpu_threads import SIMULATED, device

MEMORY_SHARE = 0.8  # of the free memory that is used
MOST_DIMENSIONS = 128  # that 16 threads share
SCHEDULE_BYTES = 2**27  # of what varies from round to round, per launch
EXPECTED_SPEED = 2e10  # agent updates per second, for the length of a launch
COMPILING = "fedlsa: compiling the engine for the GPU (once; the result is cached on disk)"


@dataclass
class Timing:
    """Seconds of the last call: sending tables and states, compiling and first launches, kernels, fetching."""

    sending: float = 0.0
    compiling: float = 0.0
    kernels: float = 0.0
    fetching: float = 0.0


last = Timing()
ALONE = threading.Lock()  # blocks that wait for one another must all be on the device: one call at a time


@functools.cache
def device_hook(method: type[Algorithm]) -> Any:
    """A method's server_step for the kernel: one object per method, so that a kernel is compiled once."""
    refuse_raising(method)
    return device(method.server_step)  # type: ignore[no-untyped-call]


class Group:
    """Jobs of one kind, those of most rounds first, on the device; `advance` brings all of them some rounds further."""

    def __init__(self, kind: Kind, jobs: list[Job]) -> None:
        self.kind, self.jobs, self.done, self.D = kind, jobs, 0, kind.E * kind.L
        self.members = [(job, int(seed)) for job in jobs for seed in job.seeds]
        self.rounds = max(job.rounds for job in jobs)
        self.updates = sum(job.updates for job in jobs)  # in expectation
        shared = SharedTables(kind)
        self.blocks = np.zeros(len(self.members), BLOCK)
        state = self._lay_out(shared)
        given = parameters(jobs[0].algorithm)
        self.tables = DeviceTables(*map(cuda.to_device, shared.arrays()))
        self.state = DeviceState(*map(cuda.to_device, state))
        self.parameters = cuda.to_device(given if len(given) else np.zeros(1))
        self.stream = cuda.stream()
        self.kernel = build(kind, None if kind.method is None else device_hook(kind.method))

    def _lay_out(self, shared: SharedTables) -> DeviceState:
        """Describe the blocks, add what they share, and write the state in which they begin."""
        D, blocks = self.D, self.blocks
        chains = np.cumsum([0, *(job.problem.n_agents for job, _ in self.members)])
        outs = np.cumsum([0, *(len(job.recorded) for job, _ in self.members)])
        theta, xi, out = (np.zeros((n, D)) for n in (len(blocks), chains[-1], outs[-1]))
        position, recorded = np.zeros(chains[-1], np.uint32), np.zeros(len(blocks), np.int64)
        for b, (job, seed) in enumerate(self.members):
            p, a, z, own = job.problem, job.algorithm, job.problem.observations, slice(chains[b], chains[b + 1])
            place, first = shared.place(job), self.next_rounds(b, 1)
            values = {
                "key": seed, "agents": p.n_agents, "participants": job.participants, "thin": job.sampling.thin,
                "dim": p.dim, "rounds": job.rounds, "observations": first.observations[0], "varying": rounds_vary(job),
                "average_after": -1 if a.average_after is None else a.average_after, "row_count": place.row_count,
                "rows": place.rows, "own": place.own, "chains": chains[b], "records": outs[b] + b, "out": outs[b],
                "eta": first.step_sizes[0], "gain": first.gains[0], "radius": a.projection or 0,
                "discount": 0 if isinstance(z, Dense) else z.discount, "ridge": 0 if isinstance(z, Dense) else z.ridge,
            }  # fmt: skip
            for name, value in values.items():
                blocks[name][b] = value
            theta[b, : p.dim] = job.theta_0
            if job.xi_0 is not None:
                xi[own, : p.dim] = job.xi_0
            if isinstance(job.sampling, Markov):
                rows, shift = job.outcomes.row[p.assignment] + place.first, job.outcomes.shift[p.assignment]
                position[own] = rows + (first_states(p, job.sampling, job.outcomes, seed) << (32 - shift))
            if job.recorded[0] == 0:
                out[outs[b], : p.dim], recorded[b] = job.theta_0, 1
        return DeviceState(
            steps=np.zeros(chains[-1], np.int64),
            position=position,
            xi=xi.ravel(),
            shift=np.zeros(theta.size),
            theta=theta.ravel(),
            running=theta.ravel().copy(),
            diverged=np.full(len(blocks), -1, np.int64),
            recorded=recorded,
            record_rounds=np.concatenate([np.append(job.recorded, -1) for job, _ in self.members]),
            out=out.ravel(),
            sums=np.zeros(2 * self.kind.parts * theta.size),
            arrived=np.zeros(len(blocks), np.int64),
        )

    def next_rounds(self, b: int, rounds: int) -> Schedule:
        """The next `rounds` rounds of block b, or as many as are left."""
        job, seed = self.members[b]
        rounds = min(rounds, max(0, job.rounds - self.done))
        return schedule(job.algorithm, job.sampling, seed, rounds, job.problem.n_agents, self.done)

    def segment(self) -> int:
        """How many rounds the next launch does: all, unless what varies would not fit or nobody would see it move."""
        rounds, varying = self.rounds - self.done, self.blocks[self.blocks["varying"] != 0]
        partial = varying["participants"] < varying["agents"]
        wide = int(np.sum(3 * 8 + 8 * varying["participants"] * partial))
        if wide:
            rounds = min(rounds, max(1, SCHEDULE_BYTES // wide))
        return max(1, min(rounds, int(EXPECTED_SPEED / (self.updates / self.rounds))))

    def advance(self, rounds: int) -> None:
        """The next `rounds` rounds of every job, on the group's own stream."""
        kind, t0, size = self.kind, self.done, np.dtype(self.kind.dtype).itemsize
        plans = []
        at = part = 0
        for b in np.flatnonzero(self.blocks["varying"]):
            plan = self.next_rounds(int(b), rounds)
            self.blocks["schedule"][b], self.blocks["part"][b] = at, part
            plans.append(plan)
            at, part = at + len(plan.gains), part + plan.participants.size
        kinds = {"observations": np.int64, "step_sizes": kind.dtype, "gains": np.float64, "participants": np.int64}
        arrays = (joined([getattr(p, name).ravel() for p in plans], dtype) for name, dtype in kinds.items())
        varying = Schedule(t0, 0, 0, *(cuda.to_device(x, self.stream) for x in arrays))  # of all blocks, one by one
        blocks = cuda.to_device(self.blocks, self.stream)
        stride = self.D * kind.copies + (kind.L * kind.copies == 1)
        memory = int(self.blocks["row_count"].max()) * stride * size if kind.copies else 0
        if kind.is_dense:
            memory = kind.threads * kind.E * size * (kind.parts if SIMULATED else 1)
        shape = len(self.blocks) * kind.parts, kind.threads
        if SIMULATED:  # all blocks of a seed as one
            shape = len(self.blocks), kind.parts * kind.threads
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"(?s).*Grid size")  # few blocks are what was asked for
            launch = self.kernel[(*shape, self.stream, memory)]
            launch(blocks, self.tables, self.state, varying, self.parameters, t0 + rounds, kind.parts)
        self.done += rounds

    def collect(self) -> Iterator[JobOutcome]:
        """What has come of each job."""
        self.stream.synchronize()
        names = ("xi", "shift", "out", "diverged")
        host = {name: getattr(self.state, name).copy_to_host(stream=self.stream) for name in names}
        self.stream.synchronize()
        xi, shift, out = (host[name].reshape(-1, self.D) for name in names[:3])
        b = 0
        for job in self.jobs:
            S, R, N, d = len(job.seeds), len(job.recorded), job.problem.n_agents, job.problem.dim
            chain, record = self.blocks["chains"][b], self.blocks["out"][b]
            theta = out[record : record + S * R].reshape(S, R, -1)[..., :d]
            variates = xi[chain : chain + S * N].reshape(S, N, -1) - shift[b : b + S, None]
            observed = np.stack([observations_received(job, int(seed)) for seed in job.seeds])
            yield JobOutcome(theta, observed, host["diverged"][b : b + S], variates[..., :d])
            b += S


def joined(parts: list[Array], dtype: Any) -> Array:
    """The parts one after the other; one number where there are none, since a device has no empty arrays."""
    whole = np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)
    return whole if len(whole) else np.zeros(1, dtype)


def observations_received(job: Job, seed: int) -> Array:
    """Observations up to each recorded round of an agent that takes part in all : (R,)."""
    if not job.algorithm.random_lengths:
        return np.asarray(job.recorded * schedule(job.algorithm, job.sampling, seed, 1).observations[0])
    lengths = schedule(job.algorithm, job.sampling, seed, job.rounds).observations
    return np.asarray(np.append(0, np.cumsum(lengths))[job.recorded])


def run_all(jobs: list[Job], report: Progress | None) -> list[JobOutcome]:
    """Bring all jobs to their end; jobs of one kind share a launch, kinds run beside one another.

    What does not fit into the device's memory at once is done in parts, a job at least.
    """
    for job in jobs:
        if job.problem.dim > MOST_DIMENSIONS:
            raise ArgumentError(f"dim must be at most {MOST_DIMENSIONS} with engine='cuda'; got {job.problem.dim}")
    total, done = sum(job.updates for job in jobs), 0.0
    out: list[JobOutcome] = []
    with ALONE:
        last.__init__()  # type: ignore[misc]
        for part in _batches(jobs):
            out += _run_together(part, lambda more, before=done: report and report(before + more, total))  # type: ignore[misc]
            done += sum(job.updates for job in part)
    return out


@contextmanager
def timed(phase: str) -> Iterator[None]:
    """Add the seconds of the body to a phase of `last`."""
    clock = time.perf_counter()
    yield
    setattr(last, phase, getattr(last, phase) + time.perf_counter() - clock)


def _run_together(jobs: list[Job], report: Callable[[float], None]) -> list[JobOutcome]:
    members: dict[tuple[Kind, Any], list[int]] = defaultdict(list)
    most_blocks = max(1, processors() // sum(len(job.seeds) for job in jobs))  # so that all of them run at once
    for i in sorted(range(len(jobs)), key=lambda i: -jobs[i].rounds):  # what takes longest must begin first
        a = jobs[i].algorithm
        members[kind_of(jobs[i], most_blocks), a.server_parameters() if a.server_step else ()].append(i)
    with timed("sending"):
        groups = [Group(kind, [jobs[i] for i in which]) for (kind, _), which in members.items()]
        cuda.synchronize()
    with timed("compiling"), notice(COMPILING):
        for g in groups if not SIMULATED else ():
            g.advance(0)
        cuda.synchronize()
    with timed("kernels"):
        while any(g.done < g.rounds for g in groups):
            with cuda.defer_cleanup():  # to free memory is to wait for all kernels
                for g in groups:
                    if g.done < g.rounds:
                        g.advance(g.segment())
                for g in groups:
                    g.stream.synchronize()
            report(sum(g.updates * min(1.0, g.done / g.rounds) for g in groups))
    with timed("fetching"):
        ended: dict[int, JobOutcome] = {}
        for g, which in zip(groups, members.values(), strict=True):
            ended.update(zip(which, g.collect(), strict=True))
    return [ended[i] for i in range(len(jobs))]


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
