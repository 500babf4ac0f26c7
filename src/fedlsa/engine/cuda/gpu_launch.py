"""Jobs from end to end on a GPU: in parts that fit into its memory, a launch for the blocks of each kind.

Of rounds of an exchange, a block of threads does a run, and they share each phase of a round.
"""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba import cuda
from numba.core.errors import NumbaError

from ...algorithms import Algorithm
from ...errors import ArgumentError
from ...kernel_cache import cached_on_gpu
from ...problems import Dense, Problem, Stream
from ...sampling import Markov
from ..exchange_kernel import (
    OF_AGENTS,
    Rounds,
    average,
    average_residuals,
    end_round,
    find_next,
    find_residuals,
    go_local,
    move_on,
)
from ..exchange_runs import ExchangeTask, RoundNumbers, observations_of
from ..hooks import RULE, cause, parameters, refuse_raising
from ..jobs import Integers, Job, JobOutcome, RunState
from ..outcome_tables import OutcomeTables, chain_positions, chain_states
from ..progress import Progress, notice
from ..random import OBSERVATION, block
from ..schedule import Schedule, schedule
from .blocks import BLOCK, Array, DeviceState, DeviceTables, Kind, device_tables, kind_of, rounds_vary
from .gpu_kernel import build
from .gpu_threads import SIMULATED, device

MOST_DIMENSIONS = 128  # that 16 threads share
SCHEDULE_BYTES = 2**27  # of what varies from round to round, per launch
EXPECTED_SPEED = 2e10  # agent updates per second, for the length of a launch
MEMORY_SHARE = 0.8  # of the free memory that is used
MOST_EXCHANGE_THREADS = 4 if SIMULATED else 256  # of a run
COMPILING = "fedlsa: compiling the engine for the GPU (once; the result is cached on disk)"


# seconds of the last call: "sending" tables and states, "compiling" and first launches, "kernels", "fetching"
last: dict[str, float] = defaultdict(float)
ONE_CALL = threading.Lock()  # blocks that wait for one another must all be on the device: one call at a time


@functools.cache
def device_hook(method: type[Algorithm]) -> Any:
    """A method's server_step for the kernel: one object per method, so that a kernel is compiled once."""
    return device(method.server_step)  # type: ignore[no-untyped-call]


class Group:
    """Jobs of one kind on one problem, those of most rounds first; `advance` brings all of them some rounds further."""

    def __init__(self, kind: Kind, jobs: list[Job]) -> None:
        self.kind, self.jobs, self.first, self.D = kind, jobs, jobs[0].start.first, kind.E * kind.L
        self.done = self.first
        self.members = [(job, int(seed)) for job in jobs for seed in job.seeds]
        self.begins = [job.start.of_seeds(slice(i, i + 1)) for job in jobs for i in range(len(job.seeds))]
        self.rounds = max(job.rounds for job in jobs)
        self.updates = sum(job.updates for job in jobs)  # in expectation
        self.blocks = np.zeros(len(self.members), BLOCK)
        given, tables = parameters(jobs[0].algorithm), device_tables(kind, jobs[0])
        self.blocks["row_count"] = len(tables.rows) // self.D
        self.tables = DeviceTables(*map(cuda.to_device, tables))
        self.state = DeviceState(*map(cuda.to_device, self._lay_out()))
        self.parameters = cuda.to_device(given if len(given) else np.zeros(1))
        self.stream = cuda.stream()
        self.kernel = build(kind, None if kind.method is None else device_hook(kind.method))

    def _lay_out(self) -> DeviceState:
        """Describe the blocks, and write the state in which they begin."""
        D, blocks = self.D, self.blocks
        chains = np.cumsum([0, *(job.problem.n_agents for job, _ in self.members)])
        outs = np.cumsum([0, *(len(job.recorded) for job, _ in self.members)])
        theta, running, shift, xi, out = (np.zeros((n, D)) for n in (*[len(blocks)] * 3, chains[-1], max(1, outs[-1])))
        memory = np.zeros((len(blocks), max(1, self.kind.blocks - 1), D))
        position, recorded = np.zeros(chains[-1], np.uint32), np.zeros(len(blocks), np.int64)
        for b, ((job, seed), begin) in enumerate(zip(self.members, self.begins, strict=True)):
            p, a, z, of_chains = job.problem, job.algorithm, job.problem.observations, slice(chains[b], chains[b + 1])
            first = self.next_rounds(b, 1)
            eta, gain = first.step_sizes.flat[0], first.gains.flat[0]
            values = {
                "key": seed, "agents": p.n_agents, "participants": job.participants, "thin": job.sampling.thin,
                "dim": p.dim, "rounds": job.rounds, "observations": first.observations.max(),
                "varying": rounds_vary(job),
                "average_after": -1 if a.average_after is None else a.average_after,
                "chains": chains[b], "records": outs[b] + b, "out": outs[b],
                "eta": eta, "gain": gain, "radius": a.projection or 0,
                "discount": 0 if isinstance(z, Dense) else z.discount, "ridge": 0 if isinstance(z, Dense) else z.ridge,
            }  # fmt: skip
            for name, value in values.items():
                blocks[name][b] = value
            theta[b, : p.dim], running[b, : p.dim] = begin.theta[0], begin.running[0]
            memory[b, : begin.memory.shape[1], : p.dim] = begin.memory[0]
            if not self.kind.scaled:
                xi[of_chains, : p.dim], shift[b, : p.dim] = begin.variates[0], begin.shift[0]
                if self.kind.stay:
                    xi[of_chains, : p.dim], shift[b] = begin.control_variates[0], 0
            elif begin.scale[0] == 1:
                blocks["before"][b] = eta
                xi[of_chains, : p.dim] = blocks["before"][b] * begin.control_variates[0]
            else:  # as such a kernel left it
                blocks["before"][b], xi[of_chains, : p.dim] = begin.scale[0], begin.xi[0]
            if isinstance(job.sampling, Markov):
                chain = to_block_start(p, job.outcomes, seed, begin.chain[0], begin.steps[0])
                position[of_chains] = chain_positions(p, job.outcomes, chain)
            if 0 in job.recorded[:1]:
                out[outs[b], : p.dim], recorded[b] = begin.theta[0], 1
        return DeviceState(
            steps=np.concatenate([begin.steps[0] for begin in self.begins]),
            position=position,
            xi=xi.ravel(),
            shift=shift.ravel(),
            theta=theta.ravel(),
            running=running.ravel(),
            memory=memory.ravel(),
            diverged=np.concatenate([begin.diverged_at for begin in self.begins]),
            recorded=recorded,
            record_rounds=np.concatenate([np.append(job.recorded, -1) for job, _ in self.members]),
            out=out.ravel(),
            sums=np.zeros(2 * self.kind.parts * theta.size),
            arrived=np.full(len(blocks), self.kind.parts * self.first, np.int64),
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
        each = varying["agents"] if self.kind.differ else 1
        wide = int(np.sum(3 * 8 * each + 8 * varying["participants"] * partial))
        if wide:
            rounds = min(rounds, max(1, SCHEDULE_BYTES // wide))
        return max(1, min(rounds, int(EXPECTED_SPEED / (self.updates / (self.rounds - self.first)))))

    def advance(self, rounds: int) -> None:
        """The next `rounds` rounds of every job, on the group's own stream."""
        kind, t0, size = self.kind, self.done, np.dtype(self.kind.dtype).itemsize
        plans = []
        at = part = 0
        for b in np.flatnonzero(self.blocks["varying"]):
            plan = self.next_rounds(int(b), rounds)
            self.blocks["schedule"][b], self.blocks["part"][b] = at, part
            if kind.differ:  # threads go as many steps as the longest round of anyone has
                self.blocks["observations"][b] = plan.observations.max(initial=1)
            plans.append(plan)
            at, part = at + plan.gains.size, part + plan.participants.size
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
        launch = self.kernel[(*shape, self.stream, memory)]
        launch(blocks, self.tables, self.state, varying, self.parameters, t0 + rounds, kind.parts)
        self.done += rounds
        if rounds:
            for i, (job, _) in enumerate(self.members):
                self.blocks["before"][i] = job.algorithm.eta(np.array([min(self.done, job.rounds) - 1]))[0]

    def collect(self) -> Iterator[JobOutcome]:
        """What has come of each job."""
        self.stream.synchronize()
        names = ("xi", "shift", "out", "theta", "running", "memory", "diverged", "steps", "position")
        host = {name: getattr(self.state, name).copy_to_host(stream=self.stream) for name in names}
        self.stream.synchronize()
        xi, shift, out, theta, running = (host[name].reshape(-1, self.D) for name in names[:5])
        memory, b = host["memory"].reshape(len(self.blocks), -1, self.D)[:, : max(0, self.kind.blocks - 1)], 0
        for job in self.jobs:
            S, R, N, d = len(job.seeds), len(job.recorded), job.problem.n_agents, job.problem.dim
            chain, record = self.blocks["chains"][b], self.blocks["out"][b]
            of_seeds, of_chains = slice(b, b + S), slice(chain, chain + S * N)
            received = np.stack([observations_received(job, i) for i in range(S)])
            steps = host["steps"][of_chains].reshape(S, N)
            state = RunState(
                theta=theta[of_seeds, :d],
                running=running[of_seeds, :d],
                memory=memory[of_seeds, :, :d],
                xi=xi[of_chains, :d].reshape(S, N, d),
                shift=shift[of_seeds, :d],
                scale=self.blocks["before"][of_seeds].copy() if self.kind.scaled else np.ones(S),
                steps=steps,
                chain=self._chains(job, host["position"][of_chains].reshape(S, N), steps),
                received=received[:, -1],
                rounds=np.full(S, job.rounds),
                diverged_at=host["diverged"][of_seeds],
            )
            iterates = out[record : record + S * R].reshape(S, R, -1)[..., :d]
            yield JobOutcome(iterates, received[:, :-1], state)
            b += S

    def _chains(self, job: Job, position: Array, steps: Array) -> Array:
        """The states of trajectories : (S, N), from where they stood at the last multiple of four of their steps."""
        if not isinstance(job.sampling, Markov):
            return np.zeros_like(steps)
        p, outcomes = job.problem, job.outcomes
        chain = chain_states(p, outcomes, position.astype(np.int64))
        agent, each = np.arange(p.n_agents), zip(job.seeds, chain, steps, strict=True)
        return np.stack([_follow(outcomes, p.assignment, int(seed), agent, *x) for seed, *x in each])


def _follow(
    outcomes: OutcomeTables, table: Integers, seed: int, agent: Integers, state: Integers, steps: Integers
) -> Integers:
    """The states of trajectories after so many `steps` that were in `state` at the multiple of four before."""
    row, shift = outcomes.row[table], outcomes.shift[table]
    position = row + (state << (32 - shift))
    drawn = block(seed, agent.astype(np.uint64), OBSERVATION, (steps // 4).astype(np.uint64))
    for i in range(3):
        k = position + outcomes.draw(drawn[i], position, shift)
        position = np.where(i < steps % 4, outcomes.successor[k].astype(np.int64), position)
    return np.asarray((position - row) >> (32 - shift))


def to_block_start(problem: Problem, outcomes: OutcomeTables, seed: int, chain: Integers, steps: Integers) -> Integers:
    """States from which the draws since the last multiple of four lead to those of now; all : (N,).

    Trajectories may meet, so they need not be the states that were: what comes from now on is the same.
    """
    states = outcomes.length[problem.assignment]
    agent = np.repeat(np.arange(problem.n_agents), states)
    state = np.arange(len(agent)) - np.repeat(np.cumsum(states) - states, states)
    leads = _follow(outcomes, problem.assignment[agent], seed, agent, state, steps[agent]) == chain[agent]
    out = np.empty_like(chain)
    out[agent[leads]] = state[leads]
    return out


def joined(parts: list[Array], dtype: Any) -> Array:
    """The parts one after the other; one number where there are none, since a device has no empty arrays."""
    all_parts = np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)
    return all_parts if len(all_parts) else np.zeros(1, dtype)


def observations_received(job: Job, i: int) -> Array:
    """Observations of an agent that takes part in all rounds, up to each recorded one and to the last : (R + 1,)."""
    first, seed, before = job.start.first, int(job.seeds[i]), job.start.received[i]
    rounds = np.append(job.recorded, job.rounds) - first
    N = job.problem.n_agents if job.agents_differ else None
    if N is None and not job.algorithm.random_lengths:
        return np.asarray(before + rounds * schedule(job.algorithm, job.sampling, seed, 1).observations[0])
    lengths = schedule(job.algorithm, job.sampling, seed, job.rounds - first, N, first).received
    return np.asarray(before + np.append(0, np.cumsum(lengths))[rounds])


def processors() -> int:
    """How many multiprocessors the device has: as many blocks of any size are on it at once."""
    return 1 if SIMULATED else int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def _free() -> int:
    """How many bytes of the device may be used."""
    return int(min(cuda.current_context().get_memory_info()[0] * MEMORY_SHARE, 2.0**62))  # the simulator's is infinite


def _bytes(job: Job) -> tuple[int, int]:
    """About how many bytes a job's tables and its state take on the device."""
    p, size = job.problem, np.dtype(job.dtype).itemsize
    D, vectors = p.dim, 1
    if job.exchange is None:
        kind = kind_of(job)
        D = kind.E * kind.L
    else:
        vectors = 2 * len(job.exchange.vectors)
    outcomes, rows = len(job.outcomes.order), len(job.outcomes.slots)
    tables = outcomes * (8 + size) + 8 * rows + 20 * p.n_agents
    tables += (
        outcomes * D * (D + 1) * size if isinstance(p.observations, Dense) else len(p.observations.rows) * D * size
    )
    return tables, len(job.seeds) * (p.n_agents * (8 * D * vectors + 12) + len(job.recorded) * 8 * D)


def parts(jobs: list[Job]) -> list[list[Job]]:
    """The jobs in their order, in parts that fit into the memory that is free; what cannot be run is an error."""
    for job in jobs:
        if isinstance(job.problem.observations, Stream):
            raise ArgumentError("engine must be 'cpu' or 'reference' for a stream; got 'cuda'")
        if job.exchange is not None:
            refuse_raising("rule", type(job.algorithm), job.exchange.rule)
        elif job.problem.dim > MOST_DIMENSIONS:
            raise ArgumentError(f"dim must be at most {MOST_DIMENSIONS} with engine='cuda'; got {job.problem.dim}")
        refuse_raising("server_step", type(job.algorithm), job.algorithm.server_step)
        if job.sampling.order is not None:
            rule = "sampling must have no order of its own with engine='cuda': use engine='cpu'"
            raise ArgumentError(f"{rule}; got {job.sampling}")
    free = _free()
    out, used, laid_out = [list[Job]()], 0, set[int]()
    for job in jobs:
        tables, state = _bytes(job)
        size = state + (0 if id(job.problem) in laid_out else tables)
        if state + tables > free:
            raise ArgumentError(
                f"a run must fit into the GPU's memory, {free / 2**30:.2g} GB free; got one of "
                f"{(state + tables) / 2**30:.2g} GB ({len(job.seeds)} seeds, {job.problem.n_agents} agents): "
                "use fewer seeds"
            )
        if out[-1] and (used + size > free or job.exchange is not None or out[-1][-1].exchange is not None):
            out.append([])
            used, laid_out, size = 0, set(), state + tables
        out[-1].append(job)
        laid_out.add(id(job.problem))
        used += size
    return out


def run_all(jobs: list[Job], report: Progress | None) -> list[JobOutcome]:
    """Bring all jobs to their end; jobs of one kind on one problem share a launch, and launches run side by side.

    What does not fit into the device's memory at once is done in parts, a job at least.
    """
    total, done = sum(job.updates for job in jobs), 0.0
    out: list[JobOutcome] = []
    with ONE_CALL, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*Grid size")  # few blocks are what was asked for
        last.clear()
        for part in parts(jobs):
            run = _run_at_once if part[0].exchange is None else _run_exchange
            out += run(part, lambda more, before=done: report and report(before + more, total))  # type: ignore[misc]
            done += sum(job.updates for job in part)
    return out


@contextmanager
def timed(phase: str) -> Iterator[None]:
    """Add the seconds of the body to a phase of `last`."""
    clock = time.perf_counter()
    yield
    last[phase] += time.perf_counter() - clock


@functools.cache
def build_exchange(rule: Any) -> Any:
    """The kernel of an exchange, with its rule in it; without one it is cached on disk."""
    hooked = int(rule is not None)
    apply: Any = device(rule) if hooked else None  # type: ignore[no-untyped-call]

    @cuda.jit
    def run(z, layout, rounds, runs):  # type: ignore[no-untyped-def]
        r, first, step = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
        shared, k, n, N = runs.shared[r], layout.server, layout.means, len(z.table)
        for s in range(rounds.table.shape[1]):
            place = layout, rounds, runs, r, s
            find_residuals(z, *place, first, step)
            cuda.syncthreads()
            average_residuals(z, *place, first, step)
            cuda.syncthreads()
            go_local(z, *place, first, step)
            cuda.syncthreads()
            average(*place, first, step)
            cuda.syncthreads()
            find_next(*place, first, step)
            cuda.syncthreads()
            move_on(*place, first, step)
            cuda.syncthreads()
            if first == 0:
                if hooked:
                    numbers = rounds.numbers[rounds.table[r % len(rounds.table), s]]
                    given = numbers[OF_AGENTS + N * (1 + layout.starts + n) :][: layout.parameters]
                    apply(shared[:k], shared[k : k + n], rounds.first + s + 1, given)
                end_round(*place)
            cuda.syncthreads()

    return run if SIMULATED or hooked else cached_on_gpu(run)


class GpuExchangeTask(ExchangeTask):
    """A job of a method that declares an exchange."""

    segment = 1e8

    def prepare(self, addresses: dict[str, int]) -> None:
        """Compile the kernel, and send what all rounds read."""
        self.kernel = build_exchange(self.numbers.exchange.rule)
        given = self.tables._replace(observe=0.0), self.numbers.layout, self.runs
        self.sent = [on_device(each) for each in given]
        self._run(self._next_rounds(1)._replace(table=np.zeros((1, 0), np.int64)))

    def _run(self, rounds: Rounds) -> None:
        tables, layout, runs = self.sent
        threads = min(MOST_EXCHANGE_THREADS, -(-max(self.job.problem.n_agents, self.job.problem.dim) // 32) * 32)
        try:
            self.kernel[len(self.job.seeds), threads](tables, layout, on_device(rounds), runs)
        except NumbaError as error:
            name, what = type(self.job.algorithm).__name__, f"{RULE} for engine='cuda', such as loops over numbers"
            raise ArgumentError(f"rule of {name} must be {what}; got from Numba: {cause(error)}") from error
        cuda.synchronize()
        if rounds.first + rounds.table.shape[1] == self.job.rounds and not SIMULATED:
            for host, there in zip(self.runs, runs, strict=True):
                if isinstance(host, np.ndarray) and host.flags.writeable:
                    there.copy_to_host(host)


def on_device(given: Any) -> Any:
    """The same numbers, with all arrays on the device."""
    if isinstance(given, tuple):
        return type(given)(*map(on_device, given))
    return cuda.to_device(given) if isinstance(given, np.ndarray) and not SIMULATED else given


def _run_exchange(jobs: list[Job], report: Callable[[float], None]) -> list[JobOutcome]:
    job = jobs[0]  # there is no other
    task = GpuExchangeTask(job, observations_of(job), RoundNumbers(job))
    with timed("compiling"), notice(COMPILING):
        task.prepare({})
    with timed("kernels"):
        while task.left:
            task.advance()
            report(job.updates - task.updates_left)
    return [task.outcome]


def _run_at_once(jobs: list[Job], report: Callable[[float], None]) -> list[JobOutcome]:
    members: dict[tuple[Kind, int, int, Any], list[int]] = defaultdict(list)
    most_blocks = max(1, processors() // sum(len(job.seeds) for job in jobs))  # so that all of them run at once
    for i in sorted(range(len(jobs)), key=lambda i: -jobs[i].rounds):  # what takes longest must begin first
        a, first = jobs[i].algorithm, jobs[i].start.first
        members[kind_of(jobs[i], most_blocks), id(jobs[i].problem), first, tuple(parameters(a))].append(i)
    with timed("sending"):
        groups = [Group(kind, [jobs[i] for i in which]) for (kind, *_), which in members.items()]
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
            report(sum(g.updates * min(1.0, (g.done - g.first) / (g.rounds - g.first)) for g in groups))
    with timed("fetching"):
        ended: dict[int, JobOutcome] = {}
        for g, which in zip(groups, members.values(), strict=True):
            ended.update(zip(which, g.collect(), strict=True))
    return [ended[i] for i in range(len(jobs))]
