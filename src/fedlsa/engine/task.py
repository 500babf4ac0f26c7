"""Tasks: one configuration and some of its seeds, laid out for the compiled kernel and run segment by segment."""

from __future__ import annotations

import functools
import itertools
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import binding
from numpy.typing import NDArray

from ..algorithms import Algorithm
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Dense, Problem
from ..sampling import Markov, Replay, Sampling
from . import kernel
from .draws import LANES, IIDSampler, MarkovSampler, ReplaySampler
from .hooks import apply_server_step, compiled_hook, failure, parameters
from .schedule import Schedule, expected_updates, schedule
from .steps import DenseTables, RankOneTables, RidgeTables
from .tables import Layout, first_states
from .vectors import Shape

Integers = NDArray[np.int64]
LONGEST_ROW = 32  # longer parameters do not fit in registers and are worked through in pieces of 16
SEGMENT = 1.5e8  # multiply-adds between two looks at the clock: about a tenth of a second
SHARED = 4e6  # multiply-adds in a round that are worth sharing among threads
MOST_NUMBERS = 2**32  # in the table of rows: its places are 32-bit words
SHORT = 16  # rounds of at most this many observations draw ahead


@functools.cache
def register_lanes() -> int:
    """How many float64 lanes this processor's vector registers hold together."""
    features = binding.get_host_cpu_features()
    return 256 if features.get("avx512f") else 64


def shapes(problem: Problem, dtype: str) -> tuple[Shape, Shape, int]:
    """Rows and the chains that step together, one row alone, and the padded dimension."""
    d = max(2, 1 << (problem.dim - 1).bit_length())
    if isinstance(problem.observations, Dense) or d > LONGEST_ROW:
        piece = min(d, 16)
        D = -(-problem.dim // piece) * piece
        return Shape(piece, 1, True), Shape(piece, 1, True), D
    lanes = register_lanes() * (2 if dtype == "float32" else 1)
    G = max(1, min(LANES, lanes // (2 * d)))  # half the registers hold theta_hat, half the rest
    return Shape(d, G), Shape(d, 1), d


def _padded(rows: Floats, D: int, dtype: str) -> NDArray[Any]:
    out = np.zeros((*rows.shape[:-1], D), dtype)
    out[..., : rows.shape[-1]] = rows
    return out


def observation_tables(
    problem: Problem, where: Layout, D: int, dtype: str
) -> RankOneTables | RidgeTables | DenseTables:
    """The observations as the kernel reads them, in the layout's order."""
    z = problem.observations
    if isinstance(z, Dense):
        columns = np.zeros((len(where.order), D, D), dtype)
        columns[:, : problem.dim, : problem.dim] = z.A[where.order].transpose(0, 2, 1)
        return DenseTables(columns.ravel(), _padded(-z.b[where.order], D, dtype).ravel())
    if len(z.rows) * D >= MOST_NUMBERS:
        rule = f"below {MOST_NUMBERS} numbers in the rows of its observations"
        raise ArgumentError(f"problem must have {rule}; got {len(z.rows)} rows of {D}")
    rows = _padded(z.rows, D, dtype).ravel()
    pair = np.stack([z.left[where.order], z.right[where.order]], 1).ravel() * np.uint32(D)
    minus_y = (-z.y[where.order]).astype(dtype)
    if z.ridge:
        return RidgeTables(rows, pair, minus_y, np.dtype(dtype).type(z.ridge))
    return RankOneTables(rows, pair, minus_y)


@dataclass(eq=False)
class Run:
    """One configuration with some of its seeds, ready to go: `advance` does the next segment of rounds."""

    problem: Problem
    algorithm: Algorithm
    sampling: Sampling
    where: Layout
    tables: Any
    seeds: NDArray[np.uint64]
    rounds: int
    recorded: Integers
    theta_0: Floats
    xi_0: Floats | None
    dtype: str

    def __post_init__(self) -> None:
        N, R, dim = self.problem.n_agents, len(self.seeds), self.problem.dim
        self.shape, self.one, D = shapes(self.problem, self.dtype)
        self.active = self.algorithm.taking_part(N)
        self.done = 0
        self.observed = np.zeros(len(self.recorded), np.int64)  # received by an agent that always takes part
        self.received = 0
        chains = -(-N * R // LANES) * LANES + LANES  # whole groups, and a group of idle lanes for partial participation
        agent = np.minimum(np.arange(chains) // R, N - 1)
        seed = self.seeds[np.arange(chains) % R]
        keys = np.stack([seed & np.uint64(0xFFFFFFFF), seed >> np.uint64(32)], 1).astype(np.uint32).ravel()
        self.groups = -(-(N * R if self.active == N else self.active) // LANES)
        self.sampler = self._sampler(agent)
        per_seed = expected_updates(self.algorithm, self.sampling, N)
        ahead = self.active == N and per_seed <= SHORT * N
        self.updates_per_round = R * per_seed
        self.task = kernel.Task(
            dim=dim,
            D=D,
            seeds=R,
            agents=agent.astype(np.uint32),
            keys=keys,
            place=np.arange(chains) * D,
            start=np.arange(chains) % R * D,
            weights=self.problem.weights,
            ahead=ahead,
            stride=(self.groups + 1) * LANES,  # one more, so that steps do not stand at multiples of a page
            has_hook=self.algorithm.server_step is not None,
            parameters=parameters(self.algorithm),
            radius=float(self.algorithm.projection or 0),
            average_after=-1 if self.algorithm.average_after is None else self.algorithm.average_after,
            recorded_rounds=np.append(self.recorded, -1),
        )
        theta = np.tile(_padded(self.theta_0, D, "float64"), R)
        held = np.zeros((chains, D))
        if self.xi_0 is not None:
            held[: N * R, :dim] = np.repeat(self.xi_0, R, axis=0)
        partial = self.active < N
        xi = np.zeros(chains * D, self.dtype) if partial else held.ravel().astype(self.dtype, copy=False)
        room = int(np.clip(131072 // chains, 16, kernel.AT_ONCE)) if ahead else 0
        self.state = kernel.State(
            theta=theta,
            sent=theta.astype(self.dtype),
            mean=np.zeros_like(theta),
            square=np.zeros(R),
            running=theta.copy(),
            hat=np.zeros(chains * D, self.dtype),
            xi=xi,
            held=held.ravel(),
            shift=np.zeros(D if partial else 0),
            steps=np.zeros(chains, np.int64),
            drawn=np.empty(room * self.task.stride, np.uint32),
            left=np.zeros((self.groups if ahead else 0, 2), np.int64),
            diverged=np.full(R, -1),
            failed=np.zeros(R, np.int64),
            record=np.zeros((R, len(self.recorded), D)),
            recorded=np.zeros(1, np.int64),
        )
        if self.recorded[0] == 0:
            self.state.record[:, 0, :dim] = self.theta_0
            self.state.recorded[0] = 1
        self.hook = compiled_hook(type(self.algorithm))

    def _sampler(self, agent: Integers) -> IIDSampler | MarkovSampler | ReplaySampler:
        where, R = self.where, len(self.seeds)
        table = self.problem.assignment[agent]
        row, shift = where.row[table].astype(np.uint32), where.shift[table].astype(np.uint32)
        if isinstance(self.sampling, Replay):
            return ReplaySampler(row, where.length[table].astype(np.uint32))
        if not isinstance(self.sampling, Markov):
            return IIDSampler(where.slots, where.slot[table].astype(np.uint32), row, shift)
        starts = np.stack([first_states(self.problem, self.sampling, where, int(s)) for s in self.seeds], 1)
        state = starts[agent, np.arange(len(agent)) % R]
        position = (row + (state << (32 - shift.astype(np.int64)))).astype(np.uint32)
        return MarkovSampler(where.slots, where.successor, position, shift)

    @property
    def xi(self) -> Floats:
        """(N, seeds, d): the control variates."""
        N, R, D = self.problem.n_agents, len(self.seeds), self.task.D
        held = self.state.held.reshape(-1, D)[: N * R].reshape(N, R, D)
        return (held - self.state.shift if len(self.state.shift) else held)[..., : self.problem.dim]

    @property
    def cost(self) -> float:
        """Agent updates in the whole run, in expectation."""
        return self.updates_per_round * self.rounds

    @property
    def progress(self) -> float:
        """Agent updates done, in expectation."""
        return self.updates_per_round * self.done

    def next_rounds(self, rounds: int) -> Schedule:
        """The next `rounds` rounds as data: the same for all seeds, or there is only one."""
        N, seed = self.problem.n_agents, int(self.seeds[0])
        plan = schedule(self.algorithm, self.sampling, seed, rounds, N, self.done)
        return plan._replace(step_sizes=plan.step_sizes.astype(self.dtype))

    def arguments(self, plan: Schedule) -> tuple[Any, ...]:
        """What the kernel takes, less the range of rounds and groups."""
        fixed = (self.shape, self.one, self.sampler, self.tables, self.task)
        return (*fixed, plan, self.state, self.hook, kernel.scratch(self.state))

    def advance(self, pool: Executor | None = None, threads: int = 1) -> None:
        """Do the next segment of rounds; with a pool, `threads` share the work inside each round where that pays."""
        D = self.task.D
        work = self.updates_per_round * (D * D if isinstance(self.problem.observations, Dense) else D)
        rounds = int(max(1, min(self.rounds - self.done, SEGMENT // work)))
        if self.active < self.problem.n_agents:
            rounds = min(rounds, max(1, 4_000_000 // self.active))
        plan = self.next_rounds(rounds)
        if work > SEGMENT or (pool is not None and work > SHARED):
            pieces = min(self.groups, max(threads, int(work // SEGMENT) + 1))
            edges = np.unique(np.linspace(0, self.groups, pieces + 1).astype(int)).tolist()
            for t in range(rounds):  # groups of chains are independent within a round

                def piece(span: tuple[int, int], t: int = t) -> None:
                    kernel.run(*self.arguments(plan), t, t + 1, *span, False)

                list((pool.map if pool else map)(piece, itertools.pairwise(edges)))
                kernel.run(*self.arguments(plan), t, t + 1, 0, 0, True)
        else:
            kernel.run(*self.arguments(plan), 0, rounds, 0, self.groups, True)
        if self.state.failed.any():
            self._report_failure()
        self._count(plan.observations)

    def _report_failure(self) -> None:
        """Raise what the server's step raised first."""
        t = int(self.state.failed[self.state.failed > 0].min())
        row = slice(int(np.argmax(self.state.failed == t)) * self.task.D, None)
        theta, mean = (x[row][: self.task.dim].copy() for x in (self.state.theta, self.state.mean))
        apply_server_step(self.algorithm, theta, mean, t)
        raise failure(self.algorithm, t, "an exception in compiled code")

    def _count(self, observations: Integers) -> None:
        """Note the observations received up to each recorded round of the segment that was just done."""
        total = self.received + np.cumsum(observations)
        low, high = np.searchsorted(self.recorded, [self.done + 1, self.done + len(observations) + 1])
        self.observed[low:high] = total[self.recorded[low:high] - self.done - 1]
        self.received = int(total[-1])
        self.done += len(observations)
