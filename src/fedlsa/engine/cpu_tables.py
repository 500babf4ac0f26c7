"""A job's observations, chains and kernels as the struct of the compiled engine holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, float64
from numpy.typing import NDArray

from ..algorithms import Linear
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Dense, RankOne, Stream
from ..sampling import Markov, Replay
from . import cpu_kernel, cpu_steps
from .hooks import compiled_draw
from .jobs import Job
from .outcome_tables import OutcomeTables, chain_positions
from .task_struct import GROUP, align
from .vectors import AVX512

Array = NDArray[Any]
Integers = NDArray[np.int64]
LONGEST_ROW_IN_REGISTERS = 128  # longer parameters do not fit and are worked through in pieces
REGISTER_NUMBERS = 256 if AVX512 else 64  # float64 numbers that this processor's vector registers hold together
PIECE = 16  # numbers of them that are worked on together
CACHED_ROWS = 2**21  # bytes of rows that stay in the second-level cache
REAL_TYPE = {"float64": float64, "float32": float32}
MOST_SLOTS = 2**31  # of alias tables: they are looked up by signed 32-bit words
MOST_NUMBERS = 2**32  # in the table of rows: its places are 32-bit words


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
    out = {"draw": draw, "step": step, "serve": cpu_kernel.server(job.server != Linear(), differ)}
    if isinstance(z, Stream):
        out["observe"] = compiled_draw(z)
    if job.participants < job.problem.n_agents:
        out["exchange"] = cpu_kernel.exchange()
    if job.algorithm.server_step is not None:
        out["apply_hook"] = cpu_kernel.hook_calls()
    if job.algorithm.server_step is not None or job.algorithm.projection or job.algorithm.average_after is not None:
        out["estimate"] = cpu_kernel.estimates()
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
