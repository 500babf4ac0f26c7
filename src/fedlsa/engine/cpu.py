"""Jobs on the processor: cut into tasks, laid out for the compiled kernel, run by threads segment by segment."""

from __future__ import annotations

import functools
import itertools
import threading
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import numpy as np
from llvmlite import binding
from numba import typeof, types
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Dense, Problem
from ..sampling import Markov, Replay
from . import cpu_kernel as kernel
from .compiled import SOURCES
from .cpu_steps import LANES, DenseTables, IIDSampler, MarkovSampler, RankOneTables, ReplaySampler, RidgeTables
from .hooks import apply_server_step, compiled_hook, failure, parameters
from .jobs import Job, JobOutcome, join
from .outcome_tables import OutcomeTables, first_states
from .progress import Progress, notice
from .schedule import Schedule, schedule
from .vectors import Shape

Integers = NDArray[np.int64]
MOST_CHAINS = 2048  # agents times seeds in a task: their parameters then stay in the second-level cache
LONGEST_ROW_IN_REGISTERS = 32  # longer parameters do not fit and are worked through in pieces of 16
SEGMENT_WORK = 1.5e8  # multiply-adds between two looks at the clock: about a tenth of a second
SHARED_ROUND_WORK = 4e6  # multiply-adds in a round that are worth sharing among threads
MOST_NUMBERS = 2**32  # in the table of rows: its places are 32-bit words
MOST_DRAWN_AHEAD = 16  # observations: rounds of at most so many on average draw those of later rounds too
MOST_PARTICIPANTS = 4_000_000  # entries of who takes part in a segment: they stay in memory
COMPILING = "fedlsa: compiling the engine for parameters of {D} numbers (once; the result is cached on disk)"


@functools.cache
def register_lanes() -> int:
    """How many float64 lanes this processor's vector registers hold together."""
    features = binding.get_host_cpu_features()
    return 256 if features.get("avx512f") else 64


def shapes(problem: Problem, dtype: str) -> tuple[Shape, Shape, int]:
    """Rows and the chains that step together, one row alone, and the padded dimension."""
    d = max(2, 1 << (problem.dim - 1).bit_length())
    if isinstance(problem.observations, Dense) or d > LONGEST_ROW_IN_REGISTERS:
        piece = min(d, 16)
        D = -(-problem.dim // piece) * piece
        return Shape(piece, 1, True), Shape(piece, 1, True), D
    lanes = register_lanes() * (2 if dtype == "float32" else 1)
    G = max(1, min(LANES, lanes // (2 * d)))  # half the registers hold theta_hat, half the rest
    return Shape(d, G), Shape(d, 1), d


def padded(rows: Floats, D: int, dtype: str) -> NDArray[Any]:
    """Rows of D numbers, with zeros at their ends."""
    out = np.zeros((*rows.shape[:-1], D), dtype)
    out[..., : rows.shape[-1]] = rows
    return out


def dense_columns(z: Dense, outcomes: OutcomeTables, D: int, dtype: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Dense observations by columns, padded : (K D D,), and -b : (K D,), in the order of the outcomes."""
    columns, d = np.zeros((len(outcomes.order), D, D), dtype), z.b.shape[1]
    columns[:, :d, :d] = z.A[outcomes.order].transpose(0, 2, 1)
    return columns.ravel(), padded(-z.b[outcomes.order], D, dtype).ravel()


def observation_tables(job: Job) -> RankOneTables | RidgeTables | DenseTables:
    """The observations as the kernel reads them, in the order of the outcomes."""
    z, dtype, order, D = job.problem.observations, job.dtype, job.outcomes.order, shapes(job.problem, job.dtype)[2]
    if isinstance(z, Dense):
        return DenseTables(*dense_columns(z, job.outcomes, D, dtype))
    if len(z.rows) * D >= MOST_NUMBERS:
        rule = f"below {MOST_NUMBERS} numbers in the rows of its observations"
        raise ArgumentError(f"problem must have {rule}; got {len(z.rows)} rows of {D}")
    rows = padded(z.rows, D, dtype).ravel()
    pair = np.stack([z.left[order], z.right[order]], 1).ravel() * np.uint32(D)
    minus_y = (-z.y[order]).astype(dtype)
    if z.ridge:
        return RidgeTables(rows, pair, minus_y, np.dtype(dtype).type(z.ridge))
    return RankOneTables(rows, pair, minus_y)


def _sampler(job: Job, agent: Integers) -> IIDSampler | MarkovSampler | ReplaySampler:
    """What each chain needs to draw; agent : (P,)."""
    outcomes, R, table = job.outcomes, len(job.seeds), job.problem.assignment[agent]
    row, shift = outcomes.row[table].astype(np.uint32), outcomes.shift[table].astype(np.uint32)
    if isinstance(job.sampling, Replay):
        return ReplaySampler(row, outcomes.length[table].astype(np.uint32))
    if not isinstance(job.sampling, Markov):
        return IIDSampler(outcomes.slots, outcomes.slot[table].astype(np.uint32), row, shift)
    starts = np.stack([first_states(job.problem, job.sampling, outcomes, int(s)) for s in job.seeds], 1)
    state = starts[agent, np.arange(len(agent)) % R]
    position = (row + (state << (32 - shift.astype(np.int64)))).astype(np.uint32)
    return MarkovSampler(outcomes.slots, outcomes.successor, position, shift)


class CpuTask:
    """A job, or some seeds of one, ready to go: `advance` does the next segment of rounds."""

    def __init__(self, job: Job, tables: Any) -> None:
        p, a, R, dtype = job.problem, job.algorithm, len(job.seeds), job.dtype
        N, dim, m = p.n_agents, p.dim, job.participants
        shape, one, D = shapes(p, dtype)
        self.job, self.done, self.received = job, 0, 0
        self.observed = np.zeros(len(job.recorded), np.int64)
        self.groups = -(-(N * R if m == N else m) // LANES)
        self.updates_per_round = job.updates_per_round
        chains = -(-N * R // LANES) * LANES + LANES  # whole groups, and a group of idle lanes for partial participation
        agent = np.minimum(np.arange(chains) // R, N - 1)
        seed = job.seeds[np.arange(chains) % R]
        keys = np.stack([seed & np.uint64(0xFFFFFFFF), seed >> np.uint64(32)], 1).astype(np.uint32).ravel()
        ahead = m == N and self.updates_per_round <= MOST_DRAWN_AHEAD * N * R
        self.task = kernel.Task(
            shape=shape,
            one=one,
            sampler=_sampler(job, agent),
            tables=tables,
            hook=compiled_hook(type(a)),
            dim=dim,
            D=D,
            seeds=R,
            agents=agent.astype(np.uint32),
            keys=keys,
            place=np.arange(chains) * D,
            start=np.arange(chains) % R * D,
            weights=p.weights,
            ahead=ahead,
            stride=(self.groups + 1) * LANES,  # one more, so that steps do not stand at multiples of a page
            has_hook=a.server_step is not None,
            parameters=parameters(a),
            radius=float(a.projection or 0),
            average_after=-1 if a.average_after is None else a.average_after,
            recorded_rounds=np.append(job.recorded, -1),
        )
        theta = np.tile(padded(job.theta_0, D, "float64"), R)
        variates = np.zeros((chains, D))
        if job.xi_0 is not None:
            variates[: N * R, :dim] = np.repeat(job.xi_0, R, axis=0)
        xi = np.zeros(chains * D, dtype) if m < N else variates.ravel().astype(dtype, copy=False)
        room = int(np.clip(131072 // chains, 16, kernel.DRAWN_AT_ONCE)) if ahead else 0
        self.state = kernel.TaskState(
            theta=theta,
            sent=theta.astype(dtype),
            mean=np.zeros_like(theta),
            square=np.zeros(R),
            running=theta.copy(),
            hat=np.zeros(chains * D, dtype),
            xi=xi,
            variates=variates.ravel(),
            shift=np.zeros(D if m < N else 0),
            steps=np.zeros(chains, np.int64),
            drawn=np.empty(room * self.task.stride, np.uint32),
            left=np.zeros((self.groups if ahead else 0, 2), np.int64),
            diverged=np.full(R, -1),
            failed=np.zeros(R, np.int64),
            record=np.zeros((R, len(job.recorded), D)),
            recorded=np.zeros(1, np.int64),
        )
        if job.recorded[0] == 0:
            self.state.record[:, 0, :dim] = job.theta_0
            self.state.recorded[0] = 1

    @property
    def outcome(self) -> JobOutcome:
        """What has come of it."""
        (N, R), state, D, dim = (self.job.problem.n_agents, self.task.seeds), self.state, self.task.D, self.task.dim
        xi = state.variates.reshape(-1, D)[: N * R].reshape(N, R, D)
        xi = (xi - state.shift if len(state.shift) else xi)[..., :dim]
        observed = np.tile(self.observed, (R, 1))
        return JobOutcome(state.record[:, :, :dim], observed, state.diverged, xi.transpose(1, 0, 2))

    def next_rounds(self, rounds: int) -> Schedule:
        """The next `rounds` rounds as data: the same for all seeds, or there is only one."""
        job = self.job
        plan = schedule(job.algorithm, job.sampling, int(job.seeds[0]), rounds, job.problem.n_agents, self.done)
        return plan._replace(step_sizes=plan.step_sizes.astype(job.dtype))

    def arguments(self, plan: Schedule, *span: Any) -> tuple[Any, ...]:
        """What the kernel takes."""
        return self.task, plan, self.state, kernel.scratch(self.state), kernel.Span(*span)

    def advance(self, pool: Executor | None = None, threads: int = 1) -> None:
        """Do the next segment of rounds; with a pool, `threads` share the work inside each round where that pays."""
        D, m = self.task.D, self.job.participants
        work = self.updates_per_round * (D * D if isinstance(self.job.problem.observations, Dense) else D)
        rounds = int(max(1, min(self.job.rounds - self.done, SEGMENT_WORK // work)))
        if m < self.job.problem.n_agents:
            rounds = min(rounds, max(1, MOST_PARTICIPANTS // m))
        plan = self.next_rounds(rounds)
        if work > SEGMENT_WORK or (pool is not None and work > SHARED_ROUND_WORK):
            pieces = min(self.groups, max(threads, int(work // SEGMENT_WORK) + 1))
            edges = np.unique(np.linspace(0, self.groups, pieces + 1).astype(int)).tolist()
            for t in range(rounds):  # groups of chains are independent within a round

                def piece(groups: tuple[int, int], t: int = t) -> None:
                    kernel.run(*self.arguments(plan, t, t + 1, *groups, False))

                list((pool.map if pool else map)(piece, itertools.pairwise(edges)))
                kernel.run(*self.arguments(plan, t, t + 1, 0, 0, True))
        else:
            kernel.run(*self.arguments(plan, 0, rounds, 0, self.groups, True))
        if self.state.failed.any():
            self._report_failure()
        self._count(plan.observations)

    def _report_failure(self) -> None:
        """Raise what the server's step raised first."""
        t = int(self.state.failed[self.state.failed > 0].min())
        row = slice(int(np.argmax(self.state.failed == t)) * self.task.D, None)
        theta, mean = (x[row][: self.task.dim].copy() for x in (self.state.theta, self.state.mean))
        apply_server_step(self.job.algorithm, theta, mean, t)
        raise failure(self.job.algorithm, t, "an exception in compiled code")

    def _count(self, observations: Integers) -> None:
        """Note the observations received up to each recorded round of the segment that was just done."""
        recorded, total = self.job.recorded, self.received + np.cumsum(observations)
        low, high = np.searchsorted(recorded, [self.done + 1, self.done + len(observations) + 1])
        self.observed[low:high] = total[recorded[low:high] - self.done - 1]
        self.received = int(total[-1])
        self.done += len(observations)


def compile_for(task: CpuTask) -> None:
    """Have the kernel for this kind of task ready, from the disk cache or by compiling it."""
    given = tuple(typeof(a) for a in task.arguments(task.next_rounds(1), 0, 0, 0, 0, True))
    signature = (*given, types.Omitted(SOURCES))
    if signature not in kernel.run.overloads:
        with notice(COMPILING.format(D=task.task.D)):
            kernel.run.compile(signature)


def run_all(jobs: list[Job], threads: int, report: Progress | None) -> list[JobOutcome]:
    """Bring all jobs to their end; seeds of a job share a task unless each has rounds of its own."""
    tables, tasks = {}, []
    for job in jobs:
        if id(job.problem) not in tables:
            tables[id(job.problem)] = observation_tables(job)
        alone = job.algorithm.random_lengths or job.participants < job.problem.n_agents
        wanted = max(-(-threads // len(jobs)), job.problem.n_agents * len(job.seeds) // MOST_CHAINS)
        parts = np.array_split(job.seeds, len(job.seeds) if alone else min(len(job.seeds), wanted))
        tasks.append([CpuTask(replace(job, seeds=part), tables[id(job.problem)]) for part in parts])
    for of_job in {(id(group[0].job.problem), id(group[0].job.algorithm)): group for group in tasks}.values():
        compile_for(of_job[0])  # seeds do not change a kernel
    _finish([task for group in tasks for task in group], threads, report)
    return [join(task.outcome for task in group) for group in tasks]


def _finish(tasks: list[CpuTask], threads: int, report: Progress | None) -> None:
    """Let threads take tasks, longest first. An interruption lets the segments under way finish and then goes up."""
    total = sum(task.job.updates for task in tasks)
    stop = threading.Event()

    def work(task: CpuTask, pool: ThreadPoolExecutor | None, share: int) -> None:
        while task.done < task.job.rounds and not stop.is_set():
            task.advance(pool, share)

    def report_progress() -> None:
        if report:
            report(sum(task.updates_per_round * task.done for task in tasks), total)

    report_progress()
    if threads == 1:
        for task in tasks:
            while task.done < task.job.rounds:
                task.advance()
                report_progress()
        return
    share = max(1, threads // len(tasks))  # threads that one task may use inside its rounds
    with ThreadPoolExecutor(threads) as pool, ThreadPoolExecutor(threads) as inner:
        futures: list[Future[None]] = []
        try:  # around the first submission too: an interruption may come at once
            for task in sorted(tasks, key=lambda task: -task.job.updates):
                futures.append(pool.submit(work, task, inner if share > 1 else None, share))
            while True:
                done, pending = wait(futures, timeout=0.05, return_when=FIRST_EXCEPTION)
                report_progress()
                for future in done:
                    future.result()
                if not pending:
                    return
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise
