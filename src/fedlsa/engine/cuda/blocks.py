"""What jobs are on a GPU: blocks per (job, seed), of a kind that decides their kernel, and tables of their problem."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms import Linear
from ...problems import Dense, RankOne
from ...sampling import IID, Markov, Replay
from ..cpu_kernel import dense_columns, padded, row_table
from ..jobs import Job
from ..outcome_tables import OutcomeTables
from .gpu_steps import COORDINATES, INDEPENDENT, LOG, PACKED, TRAJECTORY
from .gpu_threads import MOST_THREADS, MOST_WARPS, WARP

Array = NDArray[Any]
MOST_PACKED_ROWS = 256  # whose numbers fit into a byte
ROW_BYTES = 40_000  # of shared memory for rows: several blocks then fit on a multiprocessor
SHARED_BYTES = 48 * 1024  # of shared memory that a block may have without asking
BANK_BYTES = 128  # that shared memory serves at once
MOST_COORDINATES = 8  # of a thread
MOST_TEAMS = 8  # warps of a block that run an agent's segments each: two on each of a multiprocessor's schedulers
SPREAD_STEPS = 64  # of a thread in a round: shorter rounds are not worth a wait of blocks for one another

# What describes a block. before : the step size of the last round, of which the kept xi are multiples where `scaled`
# chains, records, out, schedule, part : where its entries begin in other arrays
BLOCK = np.dtype(
    [("key", np.uint64)]
    + [(name, np.int64) for name in (
        "agents", "participants", "thin", "dim", "rounds", "observations", "varying", "average_after", "row_count",
        "chains", "records", "out", "schedule", "part",
    )]
    + [(name, np.float64) for name in ("eta", "before", "gain", "radius", "discount", "ridge")],
    align=True,  # else a GPU reads it byte by byte
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """What decides which kernel runs a job, and with how many threads.

    L : threads of an agent; E : coordinates of each; draws : how outcomes are drawn
    differences, ridged, is_dense : of observations
    copies : of the rows in shared memory, 0 if they are elsewhere
    stay : whether every agent has its own threads for the whole run
    extras : whether steps vary, observations are skipped, or iterates are projected or averaged
    single : whether all rounds have one step, which is then known when compiling
    method : whose server step runs, if it has one; blocks : of a linear server's memory, 0 where it takes the mean
    differ : whether agents have step sizes and lengths of their own
    threads : of a block; parts : blocks of a (job, seed)
    team : threads that serve an agent, L or a whole warp, which then runs segments of a round at the same time
    """

    L: int
    E: int
    draws: int
    differences: bool
    ridged: bool
    is_dense: bool
    copies: int
    stay: bool
    extras: bool
    single: bool
    dtype: str
    method: Any
    blocks: int
    differ: bool
    threads: int
    parts: int
    team: int

    @property
    def scaled(self) -> bool:
        """Whether threads keep eta xi from round to round, and leave it so at the end of a launch."""
        return self.stay and self.dtype == "float64"

    @property
    def ahead(self) -> bool:
        """Whether four steps are taken together, for which threads with many coordinates lack the registers."""
        return self.E < MOST_COORDINATES and not self.ridged and not self.is_dense

    @property
    def split(self) -> bool:
        """Whether the threads of an agent draw one block of four outcomes each, where draws do not depend on draws."""
        return self.ahead and self.L >= 4 and self.stay and self.draws in (INDEPENDENT, PACKED)

    @property
    def registers(self) -> int:
        """How many a thread may have, so that a block fits, or several where jobs are many."""
        if self.threads > MOST_THREADS // 4:
            return 128 if self.parts == 1 or self.threads > MOST_THREADS // 2 else 255
        if self.parts > 1 or self.team > self.L:
            return 255
        return 168 if self.single else 144


# What jobs on a problem share; agent_* and weights : one per agent
DeviceTables = namedtuple(
    "DeviceTables",
    "rows, pair, minus_y, columns, minus_b, slots, successor,agent_row, agent_slot, agent_shift, agent_length, weights",
)
# What changes, for all chains (steps, position, xi) or for all blocks; record_rounds end in -1 in each block
DeviceState = namedtuple(
    "DeviceState",
    "steps, position, xi, shift, theta, running, memory, diverged, recorded, record_rounds, out, sums, arrived",
)


def shared_bytes(D: int) -> int:
    """How much shared memory a kernel has for sums and hooks."""
    return 8 * (2 * MOST_WARPS + 2) * D


def shares(job: Job, most_blocks: int) -> tuple[int, int, int, int]:
    """L, E, the threads that serve an agent, and the blocks of a (job, seed) that may have `most_blocks`.

    Agents are spread over blocks if a round is long beside the wait for one another. Few agents then have more threads
    each: while a warp has one of a multiprocessor's four schedulers for itself, or shares it with one other, what takes
    longest is what a thread does one thing after the other.
    """
    m, d, z = job.participants, job.problem.dim, job.problem.observations

    def threads(E: int) -> int:
        return max(1, 1 << (-(-d // E) - 1).bit_length())

    E = MOST_COORDINATES
    turns = -(-m * threads(E) // MOST_THREADS)
    if job.agents_differ or turns * job.updates_per_round / (len(job.seeds) * m) < SPREAD_STEPS:
        most_blocks = 1
    if most_blocks > 1 and not isinstance(z, Dense):
        independent = isinstance(job.sampling, IID) and m == job.problem.n_agents
        if independent and d <= COORDINATES and m <= MOST_TEAMS * most_blocks:
            return 1, COORDINATES, WARP, min(most_blocks, -(-m // (MOST_TEAMS // 2)))
        warps = {2: 4, 4: 8}  # of a block, at most
        E = next((e for e in warps if threads(e) <= WARP and m * threads(e) <= warps[e] * WARP * most_blocks), E)
    return threads(E), E, threads(E), min(most_blocks, -(-m * threads(E) // WARP))


def rounds_vary(job: Job) -> bool:
    """Whether rounds, or agents, differ in length or in step size, or rounds in who takes part."""
    a, partial = job.algorithm, job.participants < job.problem.n_agents
    return a.random_lengths or not a.steady or partial or job.agents_differ


def kind_of(job: Job, most_blocks: int = 1) -> Kind:
    """The kind of a job each of whose seeds may have `most_blocks` blocks."""
    p, a, z, m = job.problem, job.algorithm, job.problem.observations, job.participants
    L, E, team, parts = shares(job, most_blocks)
    size = np.dtype(job.dtype).itemsize
    room = SHARED_BYTES - shared_bytes(E * L)  # for rows, or for what the threads of a dense step tell one another
    rows = copies = 0
    most, differences, ridged = MOST_THREADS, False, False
    if isinstance(z, Dense):
        while most * E * size > room:
            most //= 2
    else:
        rows, copies = len(row_table(z, features=True)[0]), max(1, BANK_BYTES // size // L)
        while copies and rows * E * L * copies * size + rows * size > min(ROW_BYTES, room):
            copies //= 2
        differences, ridged = z.following is not None, z.ridge != 0
    draws = LOG if isinstance(job.sampling, Replay) else TRAJECTORY if isinstance(job.sampling, Markov) else INDEPENDENT
    if draws == INDEPENDENT and copies and rows <= MOST_PACKED_ROWS:
        draws = PACKED
    extras = rounds_vary(job) or job.sampling.thin > 1 or a.projection is not None or a.average_after is not None
    return Kind(
        L=L,
        E=E,
        draws=draws,
        differences=differences,
        ridged=ridged,
        is_dense=isinstance(z, Dense),
        copies=copies,
        stay=m == p.n_agents and -(-m // parts) * team <= most and not job.agents_differ,
        extras=extras,
        single=not extras and int(a.observations(np.zeros(1), 1)[0]) == 1,
        dtype=job.dtype,
        method=None if a.server_step is None else type(a),
        blocks=0 if job.server == Linear() else len(job.server.change),
        differ=job.agents_differ,
        threads=min(-(-(-(-m // parts) * team) // WARP) * WARP, most),
        parts=parts,
        team=team,
    )


def outcome_pairs(z: RankOne, half: int) -> NDArray[np.int64]:
    """The two rows of each outcome, the first above the lower `half` bits of a word."""
    return (z.left.astype(np.int64) << half) | row_table(z, features=True)[1].astype(np.int64)


def packed_slots(z: RankOne, outcomes: OutcomeTables) -> NDArray[np.uint64]:
    """Alias tables of i.i.d. draws with the rows at hand: entry, then the pairs of its own outcome and of its alias."""
    size = np.int64(1) << (32 - outcomes.shift.astype(np.int64))
    table = np.repeat(np.arange(len(size)), size)
    entry = outcomes.slots.astype(np.int64)
    outcome = np.arange(len(entry)) - outcomes.slot[table]
    alias = entry >> outcomes.shift[table].astype(np.int64)
    pair = outcome_pairs(z, 8)[outcomes.order]
    first, last = outcomes.row[table], outcomes.length[table] - 1  # slots beyond the outcomes never choose themselves
    words = entry, pair[first + np.minimum(outcome, last)], pair[first + np.minimum(alias, last)]
    entry_, first_pair, alias_pair = (w.astype(np.uint64) for w in words)
    return entry_ | (first_pair << np.uint64(32)) | (alias_pair << np.uint64(48))


def device_tables(kind: Kind, job: Job) -> DeviceTables:
    """What the blocks of a job, and of all others on its problem, read; what there is not has one number."""
    p, outcomes, D, dtype = job.problem, job.outcomes, kind.E * kind.L, kind.dtype
    z, m, order = p.observations, p.assignment, outcomes.order
    rows = columns = minus_b = np.zeros(1, dtype)
    slots: Array = outcomes.slots.copy()
    if isinstance(z, Dense):
        columns, minus_b = dense_columns(z, outcomes, D, dtype)
        pair, minus_y = np.arange(len(order)), np.zeros(len(order))
    else:
        rows = padded(row_table(z, features=True)[0], D, dtype).ravel()
        pair, minus_y = outcome_pairs(z, 16 if kind.copies else 32)[order], -z.y[order]
        slots = packed_slots(z, outcomes) if kind.draws == PACKED else slots
    agent_slot = outcomes.slot[m] if kind.draws in (INDEPENDENT, PACKED) else np.zeros(len(m))
    return DeviceTables(
        rows=rows,
        pair=pair.astype(np.int32 if kind.copies else np.int64),
        minus_y=minus_y.astype(dtype),
        columns=columns,
        minus_b=minus_b,
        slots=slots,
        successor=outcomes.successor.copy(),
        agent_row=outcomes.row[m].astype(np.uint32),
        agent_slot=agent_slot.astype(np.uint32),
        agent_shift=outcomes.shift[m].astype(np.uint32),
        agent_length=outcomes.length[m].astype(np.uint32),
        weights=p.weights.copy(),
    )
