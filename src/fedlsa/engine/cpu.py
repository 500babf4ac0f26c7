"""Jobs on the processor: cut into tasks, each a struct for the compiled kernels, brought on segment by segment.

Each thread takes a task; where there are fewer tasks than threads, several share a task's rounds.
"""

from __future__ import annotations

import heapq
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..problems import Stream
from ..sampling import Markov
from .cpu_kernel import chain_order, chain_words, driver, kernels, observation_tables, shapes
from .exchange_runs import ExchangeTask, exchange_tasks
from .hooks import apply_server_step, bad_order, check_draws, compiled_hook, compiled_order, failure, parameters
from .jobs import Job, JobOutcome, RunState, join
from .outcome_tables import chain_states, step_work
from .progress import Progress, notice
from .schedule import Schedule, schedule
from .task_struct import BLOCK, DRAWN_AT_ONCE, FETCHED_AHEAD, FIELDS, GROUP, MEMBER, OFFSET, SLOT, YIELDS, TaskStruct

Integers = NDArray[np.int64]
MOST_CHAINS = 2048  # agents times seeds in a task: their parameters then stay in the second-level cache
SEGMENT_WORK = 1.5e8  # multiply-adds between two looks at the clock: about a tenth of a second
WAITING = 600.0  # multiply-adds in the time that each of the threads that share a round adds to its end
MOST_DRAWN_AHEAD = 16  # observations: rounds of at most so many on average draw those of later rounds too
MOST_PARTICIPANTS = 4_000_000  # entries of who takes part in a segment: they stay in memory
COMPILING = "fedlsa: compiling the engine (once; the result is cached on disk)"
ABANDONED = 2**62  # rounds: who waits for them to be served waits no longer


class CpuTask:
    """A job, or some seeds of one, ready to go: `advance` does the next segment of rounds."""

    struct: TaskStruct

    def __init__(self, job: Job, tables: dict[str, Any], like: CpuTask | None = None) -> None:
        """like : a task of as many other seeds of the same job, from which it takes what does not depend on them."""
        if like is None:
            self._lay_out(job, tables)
        else:
            vars(self).update(vars(like))
            self.struct = like.struct.copy()
        R, D, struct = len(job.seeds), self.D, self.struct
        self.job, self.done, self.received = job, job.start.first, int(job.start.received[0])
        self.observed = np.zeros(len(job.recorded), np.int64)
        words = chain_words(job, *self.chain_order_padded)
        # copies, since rounds write into them: `put` keeps a large array that happens to be aligned as it is
        struct.put(draw_state=words[:, : self.chains].copy(), all_draw_state=words[:, : job.problem.n_agents].copy())
        struct.put(weights=self.weights.copy())
        if isinstance(job.problem.observations, Stream):
            struct.put(rows=np.zeros(3 * self.groups * D))
            struct.share("minus_y", "rows")
        if job.sampling.order is not None:  # idle lanes have rows of their own
            rows, longest = max(self.chains, job.problem.n_agents + GROUP), int(job.outcomes.length.max()) + 1
            struct.put(longest=longest, orders=np.zeros((rows, longest), np.int64))
        struct.put(drawn=np.zeros(self.drawn, np.uint32), recorded=np.zeros(len(job.recorded) * R * D + GROUP))
        self._put_parameters()
        struct.put(
            cursors=np.zeros(3, np.int64),
            counters=np.zeros(MEMBER * (self.groups + 2), np.int64),
            diverged=job.start.diverged_at.copy(),
            failed=np.zeros(R, np.int64),
            squares=np.zeros(R),
        )
        if 0 in job.recorded[:1]:
            struct.arrays["recorded"][: R * D] = struct.arrays["theta"][: R * D]
            struct.arrays["cursors"][2] = 1

    def _lay_out(self, job: Job, tables: dict[str, Any]) -> None:
        """What is the same for all tasks of a job that have as many seeds."""
        p, a, R = job.problem, job.algorithm, len(job.seeds)
        N, m = p.n_agents, job.participants
        _, self.G, self.D = shapes(job)
        self.updates_per_round = job.updates_per_round
        self.groups, self.work = round_work(job, R)
        self.most_members = most_members(self.groups, self.work)
        self.chains = chains = self.groups * GROUP
        self.agent, self.seed = chain_order(N, R)
        idle = (0, max(0, chains - N * R))  # idle chains
        agent, seed = self.chain_order_padded = np.pad(self.agent, idle, constant_values=N - 1), np.pad(self.seed, idle)
        ahead = m == N and self.updates_per_round <= MOST_DRAWN_AHEAD * N * R and not job.agents_differ
        stride = chains + GROUP if ahead else GROUP  # one more, so that steps do not stand at multiples of a page
        room = int(np.clip(131072 // chains, 16, DRAWN_AT_ONCE)) if ahead else DRAWN_AT_ONCE
        self.drawn = room * stride * ahead + FETCHED_AHEAD
        struct = self.struct = TaskStruct(FIELDS)
        struct.put(**tables, slots=job.outcomes.slots, successor=job.outcomes.successor)
        struct.put(dim=p.dim, D=self.D, seeds=R, agents=N, participants=m)
        struct.put(groups=self.groups, full_groups=m // GROUP * R)
        struct.put(ahead=int(ahead), room=room, stride=stride, radius=float(a.projection or 0))
        struct.put(average_after=-1 if a.average_after is None else a.average_after)
        struct.put(parameters=parameters(a), parameter_count=len(parameters(a)), blocks=len(job.server.change))
        struct.put(recorded_rounds=np.append(job.recorded, -1), start=seed[:chains] * self.D)
        self.weights = np.append(p.weights[agent[: N * R]], np.zeros(chains))[:chains]
        if m < N:
            struct.put(all_weights=p.weights)

    def _put_parameters(self) -> None:
        """Rows of parameters, with room at their ends for vectors that begin in the last row."""
        job, struct, D, chains = self.job, self.struct, self.D, self.chains
        (N, dim), R, dtype = (job.problem.n_agents, job.problem.dim), len(job.seeds), job.dtype

        def rows(n: int, kind: str = "float64") -> NDArray[Any]:
            return np.zeros(n * D + GROUP, kind)

        partial, begin = job.participants < N, job.start
        theta, running, shift, variates = rows(R), rows(R), rows(R), rows(max(chains, N * R))
        for out, values in ((theta, begin.theta), (running, begin.running), (shift, begin.shift)):
            out[: R * D].reshape(R, D)[:, :dim] = values
        xi = begin.variates if partial else begin.control_variates  # those of all are shifted anew in every round
        variates[: N * R * D].reshape(-1, D)[:, :dim] = xi[self.seed, self.agent]
        left = chains - (GROUP - 1) * (job.participants // GROUP * R)  # a row for each full group and each other chain
        put = {"theta": theta, "mean": theta.copy(), "running": running, "shift_all": shift if partial else rows(R)}
        put |= {"hat": rows(chains, dtype), "variates": rows(chains) if partial else variates, "partial": rows(left)}
        if partial:
            put |= {"last_shift": rows(R), "all_variates": variates}
        wide, K = -(-R * D // GROUP) * GROUP, begin.memory.shape[1]
        memory = np.zeros((2 * K, wide))
        memory[:K, : R * D].reshape(K, R, D)[..., :dim] = begin.memory.swapaxes(0, 1)
        put |= {"memory": memory, "partial_gained": rows(left if job.agents_differ else 0)}
        if not self.G:
            put |= {"drift": rows(chains, dtype), "before_step": rows(chains, dtype)}
        struct.put(**put)
        if not partial:
            struct.share("last_shift", "shift_all")

    @property
    def outcome(self) -> JobOutcome:
        """What has come of it."""
        arrays, job, R = self.struct.arrays, self.job, len(self.job.seeds)
        (N, dim), D = (job.problem.n_agents, job.problem.dim), self.D
        recorded = arrays["recorded"][:-GROUP].reshape(-1, R, D).transpose(1, 0, 2)[:, :, :dim].copy()
        theta, running, shift = (arrays[k][: R * D].reshape(R, D)[:, :dim] for k in ("theta", "running", "shift_all"))
        rows = arrays.get("all_variates", arrays["variates"])[: N * R * D].reshape(-1, D)[:, :dim]
        if "all_variates" not in arrays:  # what the next round would subtract
            rows, shift = rows - shift[self.seed], np.zeros((R, dim))
        xi, chains = np.empty((R, N, dim)), np.empty((2, R, N), np.int64)
        xi[self.seed, self.agent], chains[:, self.seed, self.agent] = rows, self._positions()
        state = RunState(
            theta=theta.copy(),
            running=running.copy(),
            memory=arrays["memory"][: len(arrays["memory"]) // 2, : R * D].reshape(-1, R, D)[..., :dim].swapaxes(0, 1),
            xi=xi,
            shift=shift.copy(),
            scale=np.ones(R),
            steps=chains[0],
            chain=chain_states(job.problem, job.outcomes, chains[1]),
            received=np.full(R, self.received),
            rounds=np.full(R, self.done),
            diverged_at=arrays["diverged"].copy(),
        )
        return JobOutcome(recorded, np.tile(self.observed, (R, 1)), state)

    def _positions(self) -> tuple[Integers, Integers]:
        """Observations that each chain has received, and where its trajectory stands; not what was drawn ahead."""
        arrays, P = self.struct.arrays, len(self.agent)
        words = arrays["all_draw_state" if self.job.participants < self.job.problem.n_agents else "draw_state"][:, :P]
        low, high = arrays["cursors"][:2].tolist()
        steps, positions = 4 * words[BLOCK].astype(np.int64) + words[OFFSET] - (high - low), words[SLOT]
        if not isinstance(self.job.sampling, Markov):
            positions = self.job.outcomes.row[self.job.problem.assignment[self.agent]]
        elif low < high:
            last = (low - 1) * int(self.struct.words[self.struct.place["stride"]])
            positions = arrays["successor"][arrays["drawn"][last : last + P]]
        return steps, positions.astype(np.int64)

    @property
    def updates_left(self) -> float:
        """Observations that are still to be received."""
        return self.updates_per_round * (self.job.rounds - self.done)

    @property
    def left(self) -> float:
        """Multiply-adds that are still to be done."""
        return self.work * (self.job.rounds - self.done)

    def next_rounds(self, rounds: int) -> Schedule:
        """The next `rounds` rounds as data: the same for all seeds, or there is only one."""
        job = self.job
        return schedule(job.algorithm, job.sampling, int(job.seeds[0]), rounds, job.problem.n_agents, self.done)

    def begin(self, members: int) -> None:
        """Lay out the next segment, for some threads that share its rounds."""
        N, m, differ = self.job.problem.n_agents, self.job.participants, self.job.agents_differ
        rounds = int(max(1, min(self.job.rounds - self.done, members * SEGMENT_WORK // self.work)))
        if m < N or differ:
            rounds = min(rounds, max(1, MOST_PARTICIPANTS // (N if differ else m)))
        self.plan = plan = self.next_rounds(rounds)
        lengths = plan.observations
        if differ:
            self.struct.put(own_lengths=lengths.astype(np.uint32))
            lengths = lengths.max(1)
        self.struct.put(
            first=plan.first,
            thin=plan.thin,
            observations=lengths,
            gains=plan.gains,
            step_sizes=plan.step_sizes.astype(self.job.dtype),
            taking_part=plan.participants,
        )
        self.struct.arrays["counters"][:] = 0

    def run(self, member: int, members: int) -> None:
        """A member's part of the segment, until all are done."""
        driver().ctypes(self.struct.address, 0, len(self.plan.gains), member, members, 1, 0, 0)

    def abandon(self) -> None:
        """Let nobody wait for a member that does not come."""
        self.struct.arrays["counters"][MEMBER:] = ABANDONED

    def end(self) -> None:
        """Look at what came of the segment."""
        if self.struct.arrays["failed"].any():
            self._report_failure()
        if (self.struct.arrays.get("orders", np.zeros((1, 1)))[:, 0] < 0).any():
            raise bad_order(self.job.sampling, f"a pass before round {self.done + len(self.plan.gains) + 1}")
        check_draws(self.job.problem.observations)
        self._count(self.plan.received)

    def prepare(self, addresses: dict[str, int]) -> None:
        """Take the kernels that were compiled for it."""
        self.struct.put(**addresses)

    def advance(self) -> None:
        """Do the next segment of rounds, alone."""
        self.begin(1)
        pieces = min(self.groups, int(self.work // SEGMENT_WORK) + 1)
        if pieces == 1:
            self.run(0, 1)
        else:  # a round that takes long, cut into groups of chains, so that it can be interrupted
            for piece in range(pieces):
                driver().ctypes(self.struct.address, 0, 1, piece, pieces, 0, 0, 0)
        self.end()

    def _report_failure(self) -> None:
        """Raise what the server's step raised first."""
        failed, dim, D = self.struct.arrays["failed"], self.job.problem.dim, self.D
        t = int(failed[failed > 0].min())
        row = slice(int(np.argmax(failed == t)) * D, None)
        theta, mean = (self.struct.arrays[name][row][:dim].copy() for name in ("theta", "mean"))
        apply_server_step(self.job.algorithm, theta, mean, t)
        raise failure("server_step", self.job.algorithm, t, "an exception in compiled code")

    def _count(self, observations: Integers) -> None:
        """Note the observations received up to each recorded round of the segment that was just done."""
        recorded, total = self.job.recorded, self.received + np.cumsum(observations)
        low, high = np.searchsorted(recorded, [self.done + 1, self.done + len(observations) + 1])
        self.observed[low:high] = total[recorded[low:high] - self.done - 1]
        self.received = int(total[-1])
        self.done += len(observations)


def round_work(job: Job, seeds: int) -> tuple[int, float]:
    """Groups of chains of so many seeds, and multiply-adds of their round, which begins and ends as two steps do."""
    groups, D = -(-job.participants * seeds // GROUP), shapes(job)[2]
    steps = job.updates_per_round / (job.participants * len(job.seeds)) + 2
    return groups, groups * GROUP * steps * step_work(job.problem.observations, D)


def most_members(groups: int, work: float) -> int:
    """How many threads may share a round, so that they wait a fifth of the time at most."""
    return int(max(1, min(groups, sqrt(work / (4 * WAITING))))) if YIELDS else 1


def task_count(job: Job, threads: int) -> int:
    """How many tasks the seeds of a job make, so that a round of all of them ends soonest."""
    S, n = len(job.seeds), job.problem.n_agents * len(job.seeds) // MOST_CHAINS
    if job.algorithm.random_lengths or job.participants < job.problem.n_agents:
        return S  # each has rounds of its own

    def end(tasks: int) -> float:
        groups, work = round_work(job, -(-S // tasks))
        most = most_members(groups, work)
        members = min(most, max(1.0, threads / tasks))
        shared, alone = (work / m + WAITING * m * (m > 1) for m in (members, most))
        return max(tasks * members * shared / threads, alone)

    least = min(S, max(1, n))
    return min(range(least, min(S, 2 * max(least, threads)) + 1), key=end)


def compile_for(job: Job) -> dict[str, int]:
    """The addresses of the kernels for this kind of job, from the disk cache or compiled."""
    driver()
    own = {"hook": compiled_hook(type(job.algorithm)), "order": compiled_order(job.sampling.order)}
    addresses = {name: k.address if k else 0 for name, k in own.items()}
    return addresses | {name: k.address for name, k in kernels(job).items()}


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Ctrl-C is raised by the function that this gives, and nowhere else within.

    Raised amid the locks of a pool it could leave one locked, for which a worker and then all would wait for ever.
    """
    received: list[Any] = []

    def raise_interrupt() -> None:
        if received:
            raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield raise_interrupt  # interrupts are another's
        return
    signal.signal(signal.SIGINT, lambda *_: received.append(True))
    try:
        yield raise_interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    raise_interrupt()


def finish(tasks: Sequence[CpuTask | ExchangeTask], threads: int, report: Progress | None) -> None:
    """Bring tasks to their end, segment by segment, the longest first.

    An interruption lets the segments under way finish and then goes up.
    """
    total = sum(task.updates_left for task in tasks)

    def report_progress() -> None:
        if report:
            report(total - sum(task.updates_left for task in tasks), total)

    report_progress()
    if threads == 1:
        for task in tasks:
            while task.left:
                task.advance()
                report_progress()
        return
    waiting = [(-task.left, i) for i, task in enumerate(tasks)]
    heapq.heapify(waiting)
    with deferred_interrupts() as raise_interrupt, ThreadPoolExecutor(threads) as pool:
        under_way: dict[Future[None], int] = {}
        shared: dict[int, CpuTask] = {}
        try:
            while waiting or under_way:
                while waiting and len(under_way) < threads:
                    i, free = waiting[0][1], threads - len(under_way)
                    unfinished = len(waiting) + len(set(under_way.values()))
                    members = min(tasks[i].most_members, -(-threads // unfinished))
                    if under_way and 2 * free <= members:
                        break  # others are nearly done, and this one has most to do
                    heapq.heappop(waiting)
                    members, task = min(free, members), tasks[i]
                    if members == 1 or isinstance(task, ExchangeTask):
                        under_way[pool.submit(task.advance)] = i
                        continue
                    shared[i] = task
                    task.begin(members)
                    try:  # an interruption may come before all of them are there
                        for member in range(members):
                            under_way[pool.submit(task.run, member, members)] = i
                    except BaseException:
                        task.abandon()
                        raise
                done = wait(under_way, 0.05, FIRST_COMPLETED).done
                raise_interrupt()
                for future in done:
                    i = under_way.pop(future)
                    future.result()
                    if i not in under_way.values():
                        if i in shared:
                            shared.pop(i).end()
                        if tasks[i].left:
                            heapq.heappush(waiting, (-tasks[i].left, i))
                report_progress()
        except BaseException:
            for future in under_way:
                future.cancel()  # its fellows would wait for it
            for task in shared.values():
                task.abandon()
            raise


def run_all(jobs: list[Job], threads: int, report: Progress | None) -> list[JobOutcome]:
    """Bring all jobs to their end; seeds of a job share a task unless each has rounds of its own."""
    tables: dict[int, dict[str, Any]] = {}
    tasks: list[Sequence[CpuTask | ExchangeTask]] = []
    for job in jobs:
        if job.exchange is not None:
            tasks.append(exchange_tasks(job, threads))
            continue
        if id(job.problem) not in tables:
            tables[id(job.problem)] = observation_tables(job)
        S, n = len(job.seeds), task_count(job, -(-threads // len(jobs)))
        by_size: dict[int, CpuTask] = {}  # by the number of seeds
        group: list[CpuTask] = []
        for i in range(n):
            some = job.of_seeds(slice(S * i // n, S * (i + 1) // n))
            R = len(some.seeds)
            by_size[R] = CpuTask(some, tables[id(job.problem)], by_size.get(R))
            group.append(by_size[R])
        tasks.append(group)
    with notice(COMPILING):
        for job, each in zip(jobs, tasks, strict=True):
            addresses = compile_for(job) if job.exchange is None else {}
            for task in each:
                task.prepare(addresses)
    finish([task for each in tasks for task in each], threads, report)
    return [join(task.outcome for task in each) for each in tasks]
