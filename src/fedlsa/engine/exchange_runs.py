"""Runs of methods that declare an exchange: a task is some seeds of a job, as arrays that compiled code reads."""

from __future__ import annotations

import functools

import numpy as np
from numba import typeof
from numpy.typing import NDArray

from .. import checks
from ..algorithms import Exchange
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Dense, Problem, Stream
from ..sampling import Markov, Replay
from .exchange_kernel import (
    DRAWN,
    IID,
    MARKOV,
    REPLAY,
    ExchangeLayout,
    Observations,
    Rounds,
    Runs,
    count_answers,
    run_all,
)
from .hooks import check_draws, compiled_draw, compiled_rule, failure, rows_remembered
from .jobs import Job, JobOutcome, RunState
from .outcome_tables import chain_positions, chain_states, read_only, step_work
from .schedule import Schedule, schedule

Integers = NDArray[np.int64]
TASKS_PER_THREAD = 4  # of a job: threads end at about the same time
SEGMENT_UPDATES = 1e7  # numbers that local steps change between two looks at the clock: about a tenth of a second
SEGMENT_ROUNDS = 4_000_000  # entries of what differs from round to round, in a segment


def flatten(x: Exchange, problem: Problem, participants: int) -> tuple[ExchangeLayout, Floats]:
    """The layout of a round, and its numbers."""
    N, split, first, terms = problem.n_agents, len(x.server) + len(x.means) + 2, [0], []
    index = {name: i - split if i >= split else -1 - i for i, name in enumerate(x.vectors)}
    answering = x.answering(N, participants)[0]
    means = [problem.weights * np.broadcast_to(factor, N) / answering for _, factor in x.means.values()]
    given = [x.pull, x.send.numbers, answering, np.cumsum(x.probabilities(N), 0), means, x.parameters]
    numbers = [np.ravel(np.asarray(each, np.float64)) for each in given]
    place = sum(map(len, numbers))
    for row in x.rows:
        for name, factor in row.items():
            n, m = np.atleast_2d(factor).shape
            terms.append((index[name], place, m if n > 1 else 0, int(m > 1)))
            numbers.append(np.ravel(np.asarray(factor, np.float64)))
            place += n * m
        first.append(len(terms))
    layout = ExchangeLayout(
        server=1 + len(x.server),
        agent=1 + len(x.agent),
        starts=len(x.starts),
        messages=len(x.messages),
        means=len(x.means),
        parameters=len(x.parameters),
        sending=x.send.kind,
        anchored=int(x.anchored),
        table=0 if x.table is None else 1 + x.agent.index(x.table),
        residual=int(x.uses("residual") or x.uses("mean_residual")),
        presence=int(x.presence is not None),
        first=np.array(first),
        terms=np.array(terms, np.int64).reshape(-1, 4),
        of_mean=np.array([list(x.messages).index(message) for message, _ in x.means.values()], np.int64),
    )
    return layout, np.concatenate(numbers)


class RoundNumbers:
    """The numbers of all rounds of a job, made once for each step size and length that its rounds have."""

    def __init__(self, job: Job) -> None:
        assert job.exchange is not None
        self.job, self.exchange = job, job.exchange
        self.layout, first = flatten(job.exchange, job.problem, job.participants)
        self.size = len(first)
        self._make = functools.lru_cache(max(1, MOST_NUMBERS // self.size))(self._flatten)

    def of(self, plans: list[Schedule]) -> tuple[Floats, Integers]:
        """Numbers : (tables, size), and which of them each round takes : (schedules, T)."""
        etas, updates = (np.array([getattr(plan, name) for plan in plans]) for name in ("step_sizes", "updates"))
        shape = *etas.shape[:2], -1
        rounds = np.concatenate([etas.reshape(shape), updates.reshape(shape)], 2)
        each, table = np.unique(rounds.reshape(-1, rounds.shape[2]), axis=0, return_inverse=True)
        return np.array([self._make(*one) for one in each.tolist()]), table.reshape(shape[:2])

    def _flatten(self, *given: float) -> Floats:
        job, (eta, updates) = self.job, np.array(given).reshape(2, -1)
        one = () if not job.agents_differ else len(eta)
        sizes = job.problem.n_agents, job.problem.dim
        x = job.algorithm.checked_exchange(eta.reshape(one), updates.astype(np.int64).reshape(one), *sizes)
        layout, numbers = flatten(x, job.problem, job.participants)
        alike = all(np.array_equal(np.array(a), np.array(b)) for a, b in zip(layout, self.layout, strict=True))
        alike = alike and x.rule is self.exchange.rule
        if not alike or x.bytes(job.problem.dim) != self.exchange.bytes(job.problem.dim):
            rule = "must have the same vectors, rows, shapes of factors, sending and rule in all rounds"
            got = f"others in one with step size {eta[0]:g} and {updates[0]:g} local steps"
            raise ArgumentError(f"exchange of {type(job.algorithm).__name__} {rule}; got {got}")
        return numbers


MOST_NUMBERS = 4_000_000  # that are remembered: 32 MB


class ExchangeTask:
    """Some seeds of a job; `advance` does the next segment of rounds."""

    most_members = 1  # threads that share its rounds
    segment = SEGMENT_UPDATES
    rule = 0  # its address

    def __init__(self, job: Job, tables: Observations, numbers: RoundNumbers) -> None:
        p, start, R, layout = job.problem, job.start, len(job.seeds), numbers.layout
        self.job, self.tables, self.numbers, self.done = job, tables, numbers, start.first
        self.own_rounds = job.algorithm.random_lengths or job.participants < p.n_agents
        N, d, k = p.n_agents, p.dim, layout.server
        shared = np.zeros((R, 2 * k + layout.means + 1, d))
        own = np.zeros((R, N, 2 * layout.agent + 2 * layout.messages + 5 + isinstance(p.observations, Stream), d))
        shared[:, 0], shared[:, 1:k], own[:, :, 0] = start.theta, start.memory[:, : k - 1], start.control_variates
        of_agents, given = np.split(start.memory[:, k - 1 :], [N * (layout.agent - 1)], 1)
        own[:, :, 1 : layout.agent] = of_agents.reshape(R, N, -1, d)
        self.runs = Runs(
            seeds=read_only(job.seeds, np.uint64),
            shared=shared,
            own=own,
            given=given.reshape(R, -1).copy(),
            running=start.running.copy(),
            steps=start.steps.copy(),
            position=chain_positions(p, job.outcomes, start.chain),
            answers=np.ones((R, N), np.uint8),
            diverged=start.diverged_at.copy(),
            failed=np.zeros(R, np.int64),
            theta=np.zeros((R, len(job.recorded), d)),
            received=np.zeros((R, len(job.recorded)), np.int64),
            records=np.zeros(R, np.int64),
        )
        if 0 in job.recorded[:1]:
            self.runs.theta[:, 0], self.runs.records[:] = start.theta, 1
        self.work = (job.updates_per_round + 4 * N * R) * step_work(p.observations, d)

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
        if self.numbers.exchange.rule is not None:
            self.rule = compiled_rule(self.numbers.exchange.rule).address
        if not run_all.signatures:
            run_all.compile(tuple(map(typeof, (self.tables, self.numbers.layout, self._next_rounds(1), self.runs))))

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
            step_sizes=read_only(np.array([plan.step_sizes for plan in plans]).reshape(shape), np.float64),
            answering=read_only(answering),
            numbers=read_only(numbers),
            table=read_only(table, np.int64),
            recorded=read_only(np.append(job.recorded, -1), np.int64),
            radius=float(a.projection or 0),
            average_after=-1 if a.average_after is None else a.average_after,
            rule=self.rule,
        )

    def _run(self, rounds: Rounds) -> None:
        run_all(self.tables, self.numbers.layout, rounds, self.runs)

    def advance(self) -> None:
        """Do the next segment of rounds."""
        job, each = self.job, self.job.problem.n_agents * (len(self.job.seeds) if self.own_rounds else 1)
        most = min(self.segment / self.work, SEGMENT_ROUNDS / each, SEGMENT_ROUNDS / self.numbers.size)
        rounds = int(max(1, min(job.rounds - self.done, most)))
        self._run(self._next_rounds(rounds))
        check_draws(job.problem.observations)
        failed = self.runs.failed
        if failed.any():
            what = "an exception in compiled code: engine='reference' says which"
            raise failure("rule", job.algorithm, int(failed[failed > 0].min()), what)
        self.done += rounds

    @property
    def outcome(self) -> JobOutcome:
        """What has come of it."""
        job, runs, layout, R = self.job, self.runs, self.numbers.layout, len(self.job.seeds)
        d = job.problem.dim
        of_agents, given = runs.own[:, :, 1 : layout.agent].reshape(R, -1, d), runs.given.reshape(R, -1, d)
        state = RunState(
            theta=runs.shared[:, 0].copy(),
            running=runs.running,
            memory=np.concatenate([runs.shared[:, 1 : layout.server], of_agents, given], 1),
            xi=runs.own[:, :, 0].copy(),
            shift=np.zeros((R, d)),
            scale=np.ones(R),
            steps=runs.steps,
            chain=chain_states(job.problem, job.outcomes, runs.position),
            received=runs.steps.sum(1),
            rounds=np.full(R, self.done),
            diverged_at=runs.diverged,
        )
        return JobOutcome(runs.theta, runs.received, state)


def exchange_tasks(job: Job, threads: int) -> list[ExchangeTask]:
    """The tasks of a job; what they compute does not depend on how many there are."""
    if job.sampling.order is not None:
        rule = f"sampling must have no order of its own for {type(job.algorithm).__name__}, which declares an exchange"
        raise ArgumentError(f"{rule}, but with engine='reference'; got {job.sampling}")
    S, p, numbers = len(job.seeds), job.problem, RoundNumbers(job)
    vectors = len(numbers.exchange.vectors) + 3
    checks.memory("seeds", S, 8 * p.n_agents * p.dim * vectors, "the vectors of all agents")
    n = min(S, max(TASKS_PER_THREAD * threads, int(job.updates_per_round * p.dim // SEGMENT_UPDATES)))
    tables = observations_of(job)
    parts = [job.of_seeds(slice(S * i // n, S * (i + 1) // n)) for i in range(n)]
    return [ExchangeTask(part, tables, numbers) for part in parts]


def observations_of(job: Job) -> Observations:
    """A job's problem as the kernel reads it."""
    p, z, none, kinds = job.problem, job.problem.observations, np.empty(0, np.uint32), {Markov: MARKOV, Replay: REPLAY}
    drawn, way = isinstance(z, Stream), next((kinds[k] for k in kinds if isinstance(job.sampling, k)), IID)
    if isinstance(z, Dense):
        rows, left, right, y, ridge = z.A.reshape(-1, p.dim), none, none, z.b.ravel(), 0.0
    else:
        rows, left, right, y, ridge = z.rows, z.left, z.right, z.y, float(z.ridge)
    return Observations(
        sampling=DRAWN if drawn else way,
        thin=job.sampling.thin,
        outcomes=job.outcomes,
        table=read_only(p.assignment, np.int64),
        dense=int(isinstance(z, Dense) and not drawn),
        rows=read_only(rows, np.float64),
        left=read_only(left, np.uint32),
        right=read_only(right, np.uint32),
        y=read_only(y, np.float64),
        ridge=ridge,
        A_bar=read_only(p.table_A_bar, np.float64),
        b_bar=read_only(p.table_b_bar, np.float64),
        weights=read_only(p.weights, np.float64),
        prob=read_only(p.prob, np.float64),
        place=read_only(rows_remembered(p)[0], np.int64),
        observe=compiled_draw(z).address if isinstance(z, Stream) else 0,
    )


def uploads(job: Job) -> Integers | None:
    """(S, R): answers up to each recorded round, where each agent answers with a probability; else None."""
    if job.exchange is None or job.exchange.presence is None:
        return None
    out = np.zeros((len(job.seeds), len(job.recorded)), np.int64)
    if out.size:
        presence = job.exchange.answering(job.problem.n_agents, job.problem.n_agents)[0]
        count_answers(read_only(job.seeds), read_only(presence, np.float64), read_only(job.recorded, np.int64), out)
    return out
