"""Jobs on a GPU: what they share is sent once, each (job, seed) becomes a block, and launches are cut into segments."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda

from ...algorithms import Algorithm
from ...problems import Dense
from ...sampling import Markov, Replay
from ..hooks import parameters, refuse_raising
from ..jobs import Job
from ..schedule import Schedule, schedule
from ..tables import first_states
from . import kernel as k
from .layout import Array, Shared, joined, row_table
from .steps import IID, MARKOV, PACKED, REPLAY, E
from .warp import MOST_THREADS, WARP, device

FEW_ROWS = 256  # whose numbers fit into a byte
SHARED = 40_000  # bytes of shared memory for rows: several blocks then fit on a multiprocessor
MOST_SHARED = 48 * 1024  # bytes of shared memory that a block may have without asking
BANKS = 128  # bytes that shared memory serves at once
SCHEDULE = 2**27  # bytes of what varies from round to round, per launch
SPEED = 2e10  # agent updates per second to expect, for the length of a launch


@dataclass(frozen=True)
class Kind:
    """What decides which kernel runs a job, and with how many threads."""

    L: int
    sampling: int
    differences: int
    ridged: int
    dense: int
    copies: int
    stay: int
    extras: int
    single: int
    threads: int
    dtype: str
    hook: Any


def kind_of(job: Job) -> Kind:
    """The kind of a job."""
    p, z = job.problem, job.problem.observations
    dense = isinstance(z, Dense)
    L = max(1, 1 << (-(-p.dim // E) - 1).bit_length())
    size = np.dtype(job.dtype).itemsize
    differences = not dense and z.following is not None  # type: ignore[union-attr]
    rows = 0 if dense else len(row_table(p))
    copies = 0 if dense else max(1, BANKS // size // L)
    room = MOST_SHARED - k.shared_bytes(L)  # for rows, or for what the threads of a dense step tell one another
    while copies and rows * E * L * copies * size + rows * size > min(SHARED, room):
        copies //= 2
    most = MOST_THREADS
    while dense and most * E * size > room:
        most //= 2
    active = job.algorithm.taking_part(p.n_agents)
    stay = active == p.n_agents and p.n_agents * L <= most
    threads = min(-(-active * L // WARP) * WARP, most)
    sampling = REPLAY if isinstance(job.sampling, Replay) else MARKOV if isinstance(job.sampling, Markov) else IID
    if sampling == IID and copies and rows <= FEW_ROWS:
        sampling = PACKED
    ridged = not dense and z.ridge != 0  # type: ignore[union-attr]
    a = job.algorithm
    extras = rounds_vary(job) or job.sampling.thin > 1 or a.projection is not None or a.average_after is not None
    single = not extras and int(a.observations(np.zeros(1), 1)[0]) == 1
    hook = None if job.algorithm.server_step is None else type(job.algorithm)
    return Kind(
        L, sampling, int(differences), int(ridged), int(dense), copies, int(stay), int(extras), int(single),
        threads, job.dtype, hook,
    )  # fmt: skip


def rounds_vary(job: Job) -> bool:
    """Whether rounds differ in length, in step size or in who takes part."""
    a, N = job.algorithm, job.problem.n_agents
    return a.random_lengths or not isinstance(a.step_size, float) or a.taking_part(N) < N


def observations_received(job: Job, seed: int) -> Array:
    """Observations up to each recorded round of an agent that takes part in all : (R,)."""
    if not job.algorithm.random_lengths:
        return np.asarray(job.recorded * schedule(job.algorithm, job.sampling, seed, 1).observations[0])
    lengths = schedule(job.algorithm, job.sampling, seed, job.rounds).observations
    return np.asarray(np.append(0, np.cumsum(lengths))[job.recorded])


@functools.cache
def device_hook(kind: type[Algorithm]) -> Any:
    """A method's server_step for the kernel: one object per method, so that a kernel is compiled once."""
    refuse_raising(kind)
    return device(kind.server_step)  # type: ignore[no-untyped-call]


class Group:
    """Jobs of one kind, laid out on the device; `advance` brings all of them some rounds further."""

    def __init__(self, kind: Kind, jobs: list[Job]) -> None:
        self.kind, self.jobs = kind, jobs
        # rounds cost more than steps, and what takes longest must begin first
        self.order = sorted(jobs, key=lambda job: -job.rounds)
        self.blocks = [(job, int(seed)) for job in self.order for seed in job.seeds]
        self.rounds = max(job.rounds for job in jobs)
        self.done, self.D = 0, E * kind.L
        self.varying = [rounds_vary(job) for job, _ in self.blocks]
        self._lay_out()
        self.stream = cuda.stream()
        self.kernel = k.build(
            kind.L,
            kind.sampling,
            kind.differences,
            kind.ridged,
            kind.dense,
            kind.copies,
            kind.stay,
            kind.extras,
            kind.single,
            int(kind.dtype == "float32"),
            None if kind.hook is None else device_hook(kind.hook),
        )

    @property
    def cost(self) -> float:
        """Agent updates in all, in expectation."""
        return sum(job.updates for job in self.jobs)

    def _lay_out(self) -> None:
        kind, D = self.kind, self.D
        shared = Shared(kind, D)
        ints = np.zeros((len(self.blocks), k.INTEGERS), np.int64)
        floats = np.zeros((len(self.blocks), k.NUMBERS))
        chains = np.cumsum([0, *(job.problem.n_agents for job, _ in self.blocks)])
        outs = np.cumsum([0, *(len(job.recorded) for job, _ in self.blocks)])
        marks = np.cumsum([0, *(len(job.recorded) + 1 for job, _ in self.blocks)])
        records = np.concatenate([np.append(job.recorded, -1) for job, _ in self.blocks])
        steps, position = np.zeros(chains[-1], np.int64), np.zeros(chains[-1], np.uint32)
        xi, theta = np.zeros((chains[-1], D)), np.zeros((len(self.blocks), D))
        recorded, out = np.zeros(len(self.blocks), np.int64), np.zeros((outs[-1], D))
        for b, (job, seed) in enumerate(self.blocks):
            p, a = job.problem, job.algorithm
            rows, own, count = shared.add(job)
            mine = slice(chains[b], chains[b + 1])
            first = self.next_rounds(b, 1)
            values = {
                k.AGENTS: p.n_agents, k.ACTIVE: a.taking_part(p.n_agents), k.THIN: job.sampling.thin,
                k.ROWS: rows, k.ROW_COUNT: count, k.CHAINS: chains[b], k.OWN: own,
                k.LENGTH: first.observations[0], k.RECORDS: marks[b], k.OUT: outs[b],
                k.AVERAGE: -1 if a.average_after is None else a.average_after, k.VARYING: self.varying[b],
                k.DIM: p.dim, k.ROUNDS: job.rounds,
            }  # fmt: skip
            for column, value in values.items():
                ints[b, column] = value
            floats[b, k.ETA], floats[b, k.GAIN] = first.step_sizes[0], first.gains[0]
            floats[b, k.RADIUS] = a.projection or 0
            z = p.observations
            if not isinstance(z, Dense):
                floats[b, k.DISCOUNT], floats[b, k.RIDGE] = z.discount, z.ridge
            theta[b, : p.dim] = job.theta_0
            if job.xi_0 is not None:
                xi[mine, : p.dim] = job.xi_0
            if isinstance(job.sampling, Markov):
                position[mine] = shared.positions(job, own, first_states(p, job.sampling, job.where, seed))
            if job.recorded[0] == 0:
                out[outs[b], : p.dim] = job.theta_0
                recorded[b] = 1
        self.ints, self.outs = ints, outs
        given = parameters(self.jobs[0].algorithm)
        if kind.hook is not None and len({job.algorithm.server_parameters() for job in self.jobs}) > 1:
            raise AssertionError("jobs with different parameters of a hook are different groups")
        diverged = np.full(len(self.blocks), -1, np.int64)
        state = (
            steps,
            position,
            xi.ravel(),
            np.zeros_like(theta).ravel(),
            theta.ravel(),
            theta.ravel().copy(),
            diverged,
            recorded,
            records,
            out.ravel(),
        )
        keys = np.array([seed for _, seed in self.blocks], np.uint64)
        self.on_device = [cuda.to_device(x) for x in (keys, floats, *shared.arrays(), *state)]
        self.parameters = cuda.to_device(given if len(given) else np.zeros(1))

    def next_rounds(self, b: int, rounds: int) -> Schedule:
        """The next `rounds` rounds of block b."""
        job, seed = self.blocks[b]
        return schedule(job.algorithm, job.sampling, seed, rounds, job.problem.n_agents, self.done)

    def segment(self) -> int:
        """How many rounds the next launch does: all, unless what varies would not fit or nobody would see it move."""
        left = self.rounds - self.done
        wide = sum(3 * 8 + 8 * int(self.ints[b, k.ACTIVE]) * (self.ints[b, k.ACTIVE] < self.ints[b, k.AGENTS])
                   for b in range(len(self.blocks)) if self.varying[b])  # fmt: skip
        if wide:
            left = min(left, max(1, SCHEDULE // wide))
        per_round = self.cost / self.rounds
        return max(1, min(left, int(SPEED / per_round)))

    def advance(self, rounds: int) -> None:
        """The next `rounds` rounds of every job, on the group's own stream."""
        dtype, t0 = self.kind.dtype, self.done
        etas, gains, lengths, active = [], [], [], []
        at = part = 0
        for b, (job, _) in enumerate(self.blocks):
            count = min(rounds, max(0, job.rounds - t0))
            if not self.varying[b] or count == 0:
                continue
            plan = self.next_rounds(b, count)
            self.ints[b, k.SCHEDULE], self.ints[b, k.PART] = at, part
            etas.append(plan.step_sizes)
            gains.append(plan.gains)
            lengths.append(plan.observations)
            active.append(plan.participants.ravel())
            part += plan.participants.size
            at += count
        varying = [joined(x, d) for x, d in ((etas, dtype), (gains, np.float64), (lengths, np.int64))]
        moving = [cuda.to_device(x, self.stream) for x in (*varying, joined(active, np.int64))]
        ints = cuda.to_device(self.ints, self.stream)
        kind = self.kind
        size = np.dtype(dtype).itemsize
        stride = self.D * kind.copies + (kind.L * kind.copies == 1)
        memory = int(self.ints[:, k.ROW_COUNT].max()) * stride * size if kind.copies else 0
        if kind.dense:
            memory = kind.threads * E * size
        launch = self.kernel[len(self.blocks), kind.threads, self.stream, memory]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"(?s).*Grid size")  # few blocks are what was asked for
            launch(ints, *self.on_device, *moving, self.parameters, t0, t0 + rounds)
        self.done += rounds

    def collect(self) -> list[tuple[Array, Array, Array, Array]]:
        """theta (S, R, d), observations (S, R), diverged_at (S,), xi (S, N, d) of each job."""
        self.stream.synchronize()
        xi, shift, diverged, out = (self.on_device[i].copy_to_host(stream=self.stream) for i in (-8, -7, -4, -1))
        self.stream.synchronize()
        xi, shift, out = (x.reshape(-1, self.D) for x in (xi, shift, out))
        results: dict[int, tuple[Array, Array, Array, Array]] = {}
        b = 0
        for job in self.order:
            theta, samples, variates, lost = [], [], [], []
            for _ in job.seeds:
                d, N, first = job.problem.dim, job.problem.n_agents, int(self.ints[b, k.CHAINS])
                theta.append(out[self.outs[b] : self.outs[b + 1], :d])
                samples.append(observations_received(job, self.blocks[b][1]))
                variates.append((xi[first : first + N] - shift[b])[:, :d])
                lost.append(diverged[b])
                b += 1
            results[id(job)] = (np.stack(theta), np.stack(samples), np.array(lost), np.stack(variates))
        return [results[id(job)] for job in self.jobs]
