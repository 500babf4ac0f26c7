"""The compiled recursion: rounds of local steps, averages and corrections for all chains of a task.

Groups are independent within a round, and several threads may share them. The server's part is done once for all: it
adds the groups' sums, in their order. So neither threads nor groupings change a bit. engine/reference.py is the
readable twin; engine/task_struct.py says what a task is made of.

Local steps run in the task's type. What lasts from round to round (theta, its mean, control variates) is float64 and is
moved by differences from where the agents started, so that sums that must be 0 stay 0 in single precision too.
Below them stand a job's observations, chains and kernels as the struct holds them.
"""

from __future__ import annotations

import functools
from math import isfinite
from typing import Any

import numpy as np
from numba import float32, float64, uint32
from numpy.typing import NDArray

from ..algorithms import Linear
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Dense, RankOne, Stream
from ..sampling import Markov, Replay
from . import cpu_steps
from .hooks import compiled_draw
from .jobs import Job
from .outcome_tables import OutcomeTables, chain_positions
from .task_struct import (
    DRAWN_AT_ONCE,
    GROUP,
    MEMBER,
    MOVING,
    WORDS,
    address,
    align,
    compiled,
    count_up,
    invoke,
    stack,
    task_at,
    wait_for,
)
from .vectors import AVX512, fma, fold, load, store

Array = NDArray[Any]
Integers = NDArray[np.int64]
LONGEST_ROW_IN_REGISTERS = 128  # longer parameters do not fit and are worked through in pieces
REGISTER_NUMBERS = 256 if AVX512 else 64  # float64 numbers that this processor's vector registers hold together
PIECE = 16  # numbers of them that are worked on together
CACHED_ROWS = 2**21  # bytes of rows that stay in the second-level cache
REAL_TYPE = {"float64": float64, "float32": float32}
MOST_SLOTS = 2**31  # of alias tables: they are looked up by signed 32-bit words
MOST_NUMBERS = 2**32  # in the table of rows: its places are 32-bit words
W = 8  # numbers that the server works on together


@functools.cache
def driver() -> Any:
    """The kernel (struct, t0, t1, member, members, waits): rounds t0, ..., t1 - 1, each member its share of the steps.

    Shares are equal, so that a group may be divided: a member first begins the group that the next one ends, then does
    its own, and last ends the one that the member before it began long ago.
    waits : for the others at the end of each round. A call of one round need not wait, if no other runs beside it.
    """
    room, mask = DRAWN_AT_ONCE * GROUP, -DRAWN_AT_ONCE  # a power of two: x & mask is a multiple

    def run(p, t0, t1, member, members, waits, _a, _b):
        task = task_at(p, float64)
        begin, end = task.groups * member // members, task.groups * (member + 1) // members
        leftover, next_leftover = task.groups * member - begin * members, task.groups * (member + 1) - end * members
        if task.ahead or task.participants < task.agents:  # groups draw, or are exchanged, together
            leftover, next_leftover = 0, 0
        drawn = task.drawn if task.ahead else stack(uint32, room)
        low, high = task.cursors[0], task.cursors[1]
        for t in range(t0, t1):
            H = task.observations[t]
            before, after = H * leftover // members & mask, H * next_leftover // members & mask
            if task.participants < task.agents:
                invoke(task.exchange, (p, t, begin, end, 1, 0, 0, 0))
            for part in range(3):
                g, stop, until = end, end + (after > 0), after
                if part == 1:
                    count_up(task.counters, MEMBER * (member + 2))
                    g, stop, until = begin + (before > 0), end, H
                elif part == 2:
                    g, stop, until = begin, begin + (before > 0), H
                while g < stop:
                    if part == 2:
                        wait_for(task.counters, MEMBER * (member + 1), t - t0 + 1)
                    beyond = stop if task.ahead else g + 1
                    done = before if part == 2 else 0
                    while done < until:
                        if low == high:
                            low, high = 0, task.room if task.ahead else min(task.room, until - done)
                            invoke(task.draw, (p, t, g, beyond, address(drawn), high, done, 0))
                        n = min(high - low, until - done)
                        invoke(task.step, (p, t, g, beyond, address(drawn), low, n, done))
                        done += n
                        low += n
                    g = beyond
            if task.participants < task.agents:
                invoke(task.exchange, (p, t, begin, end, 0, 0, 0, 0))
            if members == 1 or count_up(task.counters, 0) == members * (t - t0 + 1) - 1:  # the last to be ready serves
                task.cursors[0], task.cursors[1] = low, high
                invoke(task.serve, (p, t, 0, 0, 0, 0, 0, 0))
                count_up(task.counters, MEMBER)
            if waits:
                wait_for(task.counters, MEMBER, t - t0 + 1)

    return compiled(run)


@functools.cache
def exchange() -> Any:
    """The kernel (struct, t, g0, g1, taking): only some agents take part, with one seed.

    taking : lanes become the agents of round t, with all that is theirs; or give it back.
    """
    words, moving = len(WORDS), len(MOVING)

    def move(p, t, g0, g1, taking, _a, _b, _c):
        task = task_at(p, float64)
        m, D, chains = task.participants, task.D, task.groups * GROUP
        for a in range(g0 * GROUP, g1 * GROUP):
            if a >= m:  # idle lanes
                break
            c = task.taking_part[t * m + a]
            for k in range(words if taking else moving):
                if taking:
                    task.draw_state[k * chains + a] = task.all_draw_state[k * task.agents + c]
                else:
                    task.all_draw_state[k * task.agents + c] = task.draw_state[k * chains + a]
            if taking:
                task.weights[a] = task.all_weights[c]
                for j in range(D):
                    task.variates[a * D + j] = task.all_variates[c * D + j] - task.shift_all[j]
            else:
                for j in range(D):
                    task.all_variates[c * D + j] = task.variates[a * D + j] + task.shift_all[j]

    return compiled(move)


@functools.cache
def server(linear: bool, differ: bool) -> Any:
    """The kernel (struct, t): average, shift the control variates, look, record.

    With change_c = theta_hat_c - theta, mean = theta + (N / m) sum_c w_c change_c over the m who took part, and
    xi_c <- xi_c - gain (change_c - sum_c' w_c' change_c') for all N, where the change of those who did not is 0.
    The groups have done xi_c - gain change_c. The rest is one shift for all agents.
    linear : the server has a memory, or a share of its own; differ : agents have gains of their own.
    What few methods want stands in kernels of its own, which are compiled when they are wanted.
    """

    def serve(p, t, _a, _b, _c, _d, _e, _f):
        task = task_at(p, float64)
        R, D, now, gain = task.seeds, task.D, task.first + t + 1, 1.0 if differ else task.gains[t]
        scale, partial = task.agents / task.participants, task.participants < task.agents
        n, chunks, leftover = R * D, task.participants // GROUP, task.participants % GROUP
        position = task.cursors[2] * n if task.recorded_rounds[task.cursors[2]] == now else -1
        total = load(task.theta, 0, W)
        total = total - total
        K, wide = task.blocks, (n + W - 1) // W * W
        singles = task.full_groups * GROUP  # where chains in no full group begin
        share = K * K  # where in the parameters of a linear server it begins
        for i in range(0, n, W):
            theta = load(task.theta, i, W)
            moved = theta - theta
            part = moved
            for k in range(chunks):
                moved = moved + load(task.partial, k * n + i, W)
            for a in range(leftover):
                part = fma(task.weights[singles + a * R], load(task.partial, (chunks + a) * n + i, W), part)
            moved = moved + part
            gained = moved
            if differ:
                gained = part - part
                for k in range(chunks):
                    gained = gained + load(task.partial_gained, k * n + i, W)
                for a in range(leftover):
                    weight = task.weights[singles + a * R]
                    gained = fma(weight, load(task.partial_gained, (chunks + a) * n + i, W), gained)
            shift = (-gain) * gained
            if partial:
                shift = fma(-gain, gained, load(task.shift_all, i, W))
            store(task.shift_all, i, shift)
            if linear:
                mean = fma(scale * task.parameters[share], moved, theta)
                for j in range(1, K):
                    mean = fma(task.parameters[j], load(task.memory, (j - 1) * wide + i, W), mean)
                for a in range(1, K):
                    kept = (scale * task.parameters[share + a]) * moved
                    for j in range(1, K):
                        kept = fma(task.parameters[K * a + j], load(task.memory, (j - 1) * wide + i, W), kept)
                    store(task.memory, (K + a - 2) * wide + i, kept)
                for a in range(K - 1):
                    store(task.memory, a * wide + i, load(task.memory, (K - 1 + a) * wide + i, W))
            else:
                mean = fma(scale, moved, theta)
            store(task.mean, i, mean)
            if task.hook == 0:
                store(task.theta, i, mean)
            total = fma(mean, mean, total)
        if task.hook:
            invoke(task.apply_hook, (p, now, 0, 0, 0, 0, 0, 0))
        square_sum = stack(float64, 1)
        store(square_sum, 0, fold(total, W))
        if task.estimate or not isfinite(square_sum[0]):
            for r in range(R):
                square = 0.0
                for j in range(r * D, r * D + task.dim):
                    square += task.theta[j] * task.theta[j]
                task.squares[r] = square
                if task.diverged[r] < 0 and not isfinite(square):
                    task.diverged[r] = now
        if task.estimate:
            invoke(task.estimate, (p, now, position, 0, 0, 0, 0, 0))
        if position >= 0:
            task.cursors[2] += 1
            for i in range(0, 0 if task.estimate else n, W):
                store(task.recorded, position + i, load(task.theta, i, W))

    return compiled(serve)


@functools.cache
def hook_calls() -> Any:
    """The kernel (struct, now): the method's own server step in round `now`, seed by seed."""

    def apply(p, now, _a, _b, _c, _d, _e, _f):
        task = task_at(p, float64)
        for r in range(task.seeds):
            theta, mean = address(task.theta) + 8 * r * task.D, address(task.mean) + 8 * r * task.D
            places = theta, mean, address(task.parameters), address(task.failed) + 8 * r
            invoke(task.hook, (*places, now, task.dim, task.parameter_count, 0))

    return compiled(apply)


@functools.cache
def estimates() -> Any:
    """The kernel (struct, now, at): project, average iterates, record what the method gives; at : where, if not -1."""

    def estimate(p, now, at, _a, _b, _c, _d, _e):
        task = task_at(p, float64)
        averaging = 0 <= task.average_after <= now
        for r in range(task.seeds):
            square, shrink = task.squares[r], 1.0
            if task.radius > 0 and square > task.radius * task.radius:
                shrink = task.radius / np.sqrt(square)
            for j in range(r * task.D, r * task.D + task.dim):
                best = task.theta[j] * shrink
                task.theta[j] = best
                if averaging:
                    best = task.running[j] + (best - task.running[j]) / (now - task.average_after + 1)
                    task.running[j] = best
                if at >= 0:
                    task.recorded[at + j] = best

    return compiled(estimate)


# --- a job as its struct holds it -------------------------------------------------------------------------------------


def shapes(job: Job) -> tuple[int, int, int]:
    """Numbers that are worked on together, chains that step together (0: in pieces, one by one), and dim padded."""
    dim = job.problem.dim
    d = max(2, 1 << (dim - 1).bit_length())
    piece = min(d, PIECE)
    if isinstance(job.problem.observations, Dense) or d > LONGEST_ROW_IN_REGISTERS:
        return piece, 0, -(-dim // piece) * piece
    if job.agents_differ:
        return piece, 0, d
    numbers = REGISTER_NUMBERS * (2 if job.dtype == "float32" else 1)
    return d, max(1, min(GROUP, numbers // (2 * d))), d  # half the registers hold theta_hat, half the rest


def from_features(job: Job) -> bool:
    """Whether steps read features instead of v, which takes one more multiplication and far less memory."""
    z = job.problem.observations
    if isinstance(z, Dense) or z.following is None:
        return False
    return z.rows.size * np.dtype(job.dtype).itemsize > CACHED_ROWS


def kernels(job: Job) -> dict[str, Any]:
    """The compiled functions for a kind of job, by their fields in the struct."""
    z, (d, G, _), real, differ = job.problem.observations, shapes(job), REAL_TYPE[job.dtype], job.agents_differ
    drawn, differences = isinstance(z, Stream), from_features(job)
    dense = isinstance(z, Dense) and not drawn
    ridged = not isinstance(z, Dense) and z.ridge != 0
    if G:
        step = cpu_steps.rank_one_steps(d, G, real, ridged, differences)
    else:
        step = cpu_steps.long_steps(d, real, ridged, differences, dense, differ, drawn)
    if drawn or isinstance(job.sampling, Replay) or job.sampling.order is not None:
        draw = cpu_steps.log_draws(differ, job.sampling.order is not None)
    else:
        draw = cpu_steps.random_draws(isinstance(job.sampling, Markov), differ)
    out = {"draw": draw, "step": step, "serve": server(job.server != Linear(), differ)}
    if isinstance(z, Stream):
        out["observe"] = compiled_draw(z)
    if job.participants < job.problem.n_agents:
        out["exchange"] = exchange()
    if job.algorithm.server_step is not None:
        out["apply_hook"] = hook_calls()
    if job.algorithm.server_step is not None or job.algorithm.projection or job.algorithm.average_after is not None:
        out["estimate"] = estimates()
    return out


def row_table(z: RankOne, features: bool) -> tuple[Array, NDArray[np.uint32]]:
    """The rows that steps look up, and where in them the second of each outcome stands.

    features : of temporal differences those and a row of zeros alone, the second is what follows; else u and v
    """
    if z.following is None or not features:
        return z.rows, z.right
    return np.vstack([z.rows[: z.features], np.zeros((1, z.dim))]), z.following


def padded(rows: Floats, D: int, dtype: str) -> Array:
    """Rows of D numbers, with zeros at their ends."""
    out = np.zeros((*rows.shape[:-1], D), dtype)
    out[..., : rows.shape[-1]] = rows
    return out


def dense_columns(z: Dense, outcomes: OutcomeTables, D: int, dtype: str) -> tuple[Array, Array]:
    """Dense observations by columns, padded : (K D D,), and -b : (K D,), in the order of the outcomes."""
    columns, d = np.zeros((len(outcomes.order), D, D), dtype), z.b.shape[1]
    columns[:, :d, :d] = z.A[outcomes.order].transpose(0, 2, 1)
    return columns.ravel(), padded(-z.b[outcomes.order], D, dtype).ravel()


def observation_tables(job: Job) -> dict[str, Array]:
    """The observations as the kernel reads them, in the order of the outcomes.

    Rank-one: an outcome is 16 bytes, all in one cache line: the places of u and v in rows and, behind them, -y.
    Rows that do not stay in the cache: those of u and a row of zeros alone; the place of v is that of what follows.
    Dense: A(z) by columns, padded: rows[(k D + j) D + i] = A[k, i, j]; minus_y[k D + i] = -b[k, i].
    """
    z, dtype, order, D = job.problem.observations, job.dtype, job.outcomes.order, shapes(job)[2]
    if len(job.outcomes.slots) >= MOST_SLOTS:
        raise ArgumentError(f"problem must have below {MOST_SLOTS} slots to draw from; got {len(job.outcomes.slots)}")
    if isinstance(z, Stream):
        return {"zeros": np.zeros(PIECE, dtype)}
    if isinstance(z, Dense):
        rows, minus_y = dense_columns(z, job.outcomes, D, dtype)
        return {"rows": rows, "minus_y": minus_y}
    numbers, second = row_table(z, from_features(job))
    if len(numbers) * D >= MOST_NUMBERS:
        rule = f"below {MOST_NUMBERS} numbers in the rows of its observations"
        raise ArgumentError(f"problem must have {rule}; got {len(numbers)} rows of {D}")
    y_field = ("minus_y", dtype, 8 // np.dtype(dtype).itemsize)
    pairs = np.zeros(len(order), [("u", np.uint32), ("v", np.uint32), y_field])
    pairs["u"], pairs["v"] = z.left[order] * np.uint32(D), second[order] * np.uint32(D)
    pairs["minus_y"].reshape(len(order), -1)[:, 0] = -z.y[order]
    pair, ridge, minus_discount = align(pairs), np.array([z.ridge], dtype), np.array([-z.discount], dtype)
    constants = {"ridge": ridge, "minus_discount": minus_discount, "zeros": np.zeros(PIECE, dtype)}
    return {"rows": align(padded(numbers, D, dtype)), "pair": pair, "minus_y": pair, **constants}


def chain_order(N: int, R: int) -> tuple[Integers, Integers]:
    """The agent and the seed of each chain; engine/task_struct.py says in which order."""
    chunks, leftover = N // GROUP, N % GROUP
    agent = np.arange(chunks * GROUP).reshape(chunks, 1, GROUP) + np.zeros((1, R, 1), np.int64)
    seed = np.arange(R).reshape(1, R, 1) + np.zeros((chunks, 1, GROUP), np.int64)
    last = np.repeat(np.arange(N - leftover, N), R)
    return np.append(agent, last), np.append(seed, np.tile(np.arange(R), leftover))


def chain_words(job: Job, agent: Integers, seed: Integers) -> NDArray[np.uint32]:
    """(WORDS, P): what each chain needs to draw; agent, seed : (P,)."""
    outcomes, table, key = job.outcomes, job.problem.assignment[agent], job.seeds[seed]
    row, slot, shift = outcomes.row[table], outcomes.slot[table], outcomes.shift[table]
    if isinstance(job.sampling, Markov):
        slot = row = chain_positions(job.problem, outcomes, job.start.chain)[seed, agent]
    steps, low, high = job.start.steps[seed, agent], key & np.uint64(0xFFFFFFFF), key >> np.uint64(32)
    words: tuple[Array, ...] = steps >> 2, steps & 3, slot, row, agent, low, high, shift, outcomes.length[table]
    return np.stack([w.astype(np.uint32) for w in words])
