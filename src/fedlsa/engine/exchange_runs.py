"""Runs of methods that declare an exchange, on the processor: a task is some seeds of a job."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import typeof
from numpy.typing import NDArray

from .. import checks
from ..errors import ArgumentError
from ..problems import Dense
from ..sampling import Markov, Replay
from .exchange_kernel import IID, MARKOV, REPLAY, Observations, Rounds, Runs, count_answers, read_only, run_all
from .exchange_tables import RoundNumbers
from .hooks import compiled_rule, rule_failure
from .jobs import Job, JobOutcome, RunState
from .outcome_tables import chain_positions, chain_states
from .schedule import schedule

Integers = NDArray[np.int64]
TASKS_PER_THREAD = 4  # of a job: threads end at about the same time
SEGMENT_UPDATES = 1e7  # numbers that local steps change between two looks at the clock: about a tenth of a second
SEGMENT_ROUNDS = 4_000_000  # entries of what differs from round to round, in a segment


class ExchangeTask:
    """Some seeds of a job; `advance` does the next segment of rounds."""

    most_members = 1  # threads that share its rounds

    def __init__(self, job: Job, tables: Observations, numbers: RoundNumbers) -> None:
        p, start, R = job.problem, job.start, len(job.seeds)
        self.job, self.tables, self.numbers, self.done = job, tables, numbers, start.first
        self.own_rounds = job.algorithm.random_lengths or job.participants < p.n_agents
        N, d, layout = p.n_agents, p.dim, numbers.layout
        k, last = layout.server, len(job.exchange.vectors) if job.exchange else 0
        shared = np.zeros((R, 2 * k + layout.means + 1, d))
        own = np.zeros((R, N, last - k - layout.means - 1 + 2 + layout.agent, d))
        shared[:, 0], shared[:, 1:k], own[:, :, 0] = start.theta, start.memory[:, : k - 1], start.control_variates
        own[:, :, 1 : layout.agent] = start.memory[:, k - 1 :].reshape(R, N, layout.agent - 1, d)
        moves = isinstance(job.sampling, Markov)
        position = chain_positions(p, job.outcomes, start.chain) if moves else np.zeros((R, N), np.int64)
        self.runs = Runs(
            seeds=read_only(job.seeds, np.uint64),
            shared=shared,
            own=own,
            running=start.running.copy(),
            steps=start.steps.copy(),
            position=position.copy(),
            answers=np.ones((R, N), np.uint8),
            diverged=start.diverged_at.copy(),
            failed=np.zeros(R, np.int64),
            theta=np.zeros((R, len(job.recorded), d)),
            received=np.zeros((R, len(job.recorded)), np.int64),
            records=np.zeros(R, np.int64),
        )
        if 0 in job.recorded[:1]:
            self.runs.theta[:, 0], self.runs.records[:] = start.theta, 1
        rule = job.exchange.rule if job.exchange else None
        self.rule = 0 if rule is None else compiled_rule(rule).address
        work = job.updates_per_round + 4 * N * R
        self.work = work * (d * d if isinstance(p.observations, Dense) else d)

    @property
    def updates_left(self) -> float:
        """Observations that are still to be received, in expectation."""
        return self.job.updates_per_round * (self.job.rounds - self.done)

    @property
    def left(self) -> float:
        """How much is still to be done."""
        return self.work * (self.job.rounds - self.done)

    def prepare(self, addresses: dict[str, int]) -> None:
        """Compile what it needs."""
        if not run_all.signatures:
            given = self.tables, self.numbers.layout, self._next_rounds(1), self.runs
            run_all.compile(tuple(map(typeof, given)))

    def _next_rounds(self, rounds: int) -> Rounds:
        job, a, N = self.job, self.job.algorithm, self.job.problem.n_agents
        seeds = job.seeds if self.own_rounds else job.seeds[:1]
        plans = [schedule(a, job.sampling, int(seed), rounds, N, self.done) for seed in seeds]
        numbers, table = self.numbers.of(plans)
        shape = len(plans), rounds, -1
        answering = np.zeros((len(plans), rounds, N if job.participants < N else 0), np.uint8)
        if answering.size:
            np.put_along_axis(answering, np.array([plan.participants for plan in plans]), 1, 2)
        return Rounds(
            first=self.done,
            lengths=read_only(np.array([plan.observations for plan in plans]).reshape(shape), np.int64),
            step_sizes=read_only(np.array([plan.step_sizes for plan in plans]).reshape(shape)),
            answering=read_only(answering, np.uint8),
            numbers=read_only(numbers),
            table=read_only(table, np.int64),
            recorded=read_only(np.append(job.recorded, -1), np.int64),
            radius=float(a.projection or 0),
            average_after=-1 if a.average_after is None else a.average_after,
            rule=self.rule,
        )

    def begin(self, members: int) -> None:
        """Lay out the next segment."""
        job, each = self.job, self.job.problem.n_agents * (len(self.job.seeds) if self.own_rounds else 1)
        most = min(SEGMENT_UPDATES / self.work, SEGMENT_ROUNDS / each, SEGMENT_ROUNDS / self.numbers.size)
        self.rounds = self._next_rounds(int(max(1, min(job.rounds - self.done, most))))

    def run(self, member: int, members: int) -> None:
        """Do it."""
        if member == 0:
            run_all(self.tables, self.numbers.layout, self.rounds, self.runs)

    def abandon(self) -> None:
        """Nobody waits."""

    def end(self) -> None:
        """Look at what came of it."""
        failed = self.runs.failed
        if failed.any():
            what = "an exception in compiled code: engine='reference' says which"
            raise rule_failure(self.job.algorithm, int(failed[failed > 0].min()), what)
        self.done += self.rounds.table.shape[1]

    def advance(self) -> None:
        """Do the next segment of rounds."""
        self.begin(1)
        self.run(0, 1)
        self.end()

    @property
    def outcome(self) -> JobOutcome:
        """What has come of it."""
        job, runs, layout, R = self.job, self.runs, self.numbers.layout, len(self.job.seeds)
        N, d = job.problem.n_agents, job.problem.dim
        of_agents = runs.own[:, :, 1 : layout.agent].reshape(R, -1, d)
        moves = isinstance(job.sampling, Markov)
        state = RunState(
            theta=runs.shared[:, 0].copy(),
            running=runs.running,
            memory=np.concatenate([runs.shared[:, 1 : layout.server], of_agents], 1),
            xi=runs.own[:, :, 0].copy(),
            shift=np.zeros((R, d)),
            scale=np.ones(R),
            steps=runs.steps,
            chain=chain_states(job.problem, job.outcomes, runs.position) if moves else np.zeros((R, N), np.int64),
            received=runs.steps.sum(1),
            rounds=np.full(R, self.done),
            diverged_at=runs.diverged,
        )
        return JobOutcome(runs.theta, runs.received, state)


def exchange_tasks(job: Job, threads: int) -> list[ExchangeTask]:
    """The tasks of a job; what they compute does not depend on how many there are."""
    assert job.exchange is not None
    if job.sampling.order is not None:
        rule = f"sampling must have no order of its own for {type(job.algorithm).__name__}, which declares an exchange"
        raise ArgumentError(f"{rule}, but with engine='reference'; got {job.sampling}")
    S, tables, p = len(job.seeds), observations_of(job), job.problem
    checks.memory("seeds", S, 8 * p.n_agents * p.dim * (len(job.exchange.vectors) + 3), "the vectors of all agents")
    numbers = RoundNumbers(job.algorithm, p, job.exchange)
    n = min(S, max(TASKS_PER_THREAD * threads, int(job.updates_per_round * job.problem.dim // SEGMENT_UPDATES)))
    parts = [job.of_seeds(slice(S * i // n, S * (i + 1) // n)) for i in range(n)]
    return [ExchangeTask(part, tables, numbers) for part in parts]


def observations_of(job: Job) -> Observations:
    """A job's problem as the kernel reads it."""
    p, o, z = job.problem, job.outcomes, job.problem.observations
    kinds: dict[type, int] = {Markov: MARKOV, Replay: REPLAY}

    def part(name: str, shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
        return read_only(getattr(z, name, np.empty(shape)), dtype)

    return Observations(
        sampling=kinds.get(type(job.sampling), IID),
        thin=job.sampling.thin,
        table=read_only(p.assignment, np.int64),
        order=read_only(o.order, np.int64),
        row=read_only(o.row, np.int64),
        length=read_only(o.length, np.int64),
        slots=read_only(o.slots, np.uint32),
        slot=read_only(o.slot, np.int64),
        shift=read_only(o.shift, np.int64),
        successor=read_only(o.successor, np.uint32),
        dense=int(isinstance(z, Dense)),
        rows=part("rows", (0, 0)),
        left=part("left", (0,), np.uint32),
        right=part("right", (0,), np.uint32),
        y=part("y", (0,)),
        ridge=0.0 if isinstance(z, Dense) else float(z.ridge),
        A=part("A", (0, 0, 0)),
        b=part("b", (0, 0)),
        A_bar=read_only(p.table_A_bar),
        b_bar=read_only(p.table_b_bar),
        weights=read_only(p.weights),
    )


def uploads(job: Job) -> Integers | None:
    """(S, R): answers up to each recorded round, where each agent answers with a probability; else None."""
    if job.exchange is None or job.exchange.presence is None:
        return None
    out = np.zeros((len(job.seeds), len(job.recorded)), np.int64)
    if out.size:
        presence = job.exchange.answering(job.problem.n_agents, job.problem.n_agents)[0]
        count_answers(read_only(job.seeds, np.uint64), read_only(presence), read_only(job.recorded, np.int64), out)
    return out
