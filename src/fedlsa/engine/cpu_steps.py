"""What chains do on their own in the compiled engine: which outcome each sees next, and the local step on it.

A chain is an (agent, seed) pair. Sixteen of them (lanes) draw together: random words come first, vectorised over lanes;
outcomes are then picked from them without a branch, since a coin cannot be predicted. i.i.d., along a trajectory, or
from a log: the type of the sampler, which carries what each chain needs, selects the code.

Then G chains at a time do theta_hat <- theta_hat - eta (A(z) theta_hat - b(z) - xi), in three shapes of the same line,
chosen by the types of `shape` and `tables`: rank-one observations in registers; rank-one observations of long vectors,
in pieces; dense observations. Sums are folded in a fixed tree: the result depends neither on G nor on what else runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from .compiled import INLINED
from .memory import first_lane, gather, integers, load, load_block, load_words, look_up, rows, store, store_rows
from .random import OBSERVATION, philox
from .vectors import fma, fold, spread

Array = NDArray[Any]
Words = NDArray[np.uint32]
LANES = 16  # chains that draw together; a multiple of every number of chains that step together


class IIDSampler(NamedTuple):
    """Independent draws: the alias table of chain q begins at slots[slot[q]], its outcomes at row[q]."""

    slots: Words
    slot: Words  # (P,)
    row: Words  # (P,)
    shift: Words  # (P,): 32 - bits of the chain's alias tables


class MarkovSampler(NamedTuple):
    """Trajectories: every state has an alias table; outcome k leads to the state whose table begins at successor[k].

    Tables of all states have 2^bits slots and outcomes stand at their slots, so one number is both.
    """

    slots: Words
    successor: Words
    position: Words  # (P,): where the table of each chain's present state begins; moves on
    shift: Words  # (P,)


class ReplaySampler(NamedTuple):
    """Logs in their order: observation n of chain q is row[q] + n % length[q]."""

    row: Words  # (P,)
    length: Words  # (P,)


@njit(**INLINED)
def fill_words(words, lanes, keys, agents, chains, start, count):
    """words[(o + i) * 16 + lane] = the random word of chains[lane] at step start[lane] + i, for i < count; returns o.

    words : (count + 8, 16) flat; lanes : (4, 16) flat, scratch; keys : (P, 2) flat; agents : (P,);
    chains, start : (16,).
    """
    together = True
    for lane in range(LANES):
        q = chains[lane]
        lanes[lane], lanes[16 + lane] = start[lane] >> 2, agents[q]
        lanes[32 + lane], lanes[48 + lane] = keys[2 * q], keys[2 * q + 1]
        together = together and start[lane] & 3 == start[0] & 3
    c0, c1 = load_words(lanes, 0, 16), load_words(lanes, 16, 16)
    k0, k1 = load_words(lanes, 32, 16), load_words(lanes, 48, 16)
    zero = c0 ^ c0
    for i in range((count + 6) // 4):
        x = philox(c0 + np.uint64(i), c1, zero + np.uint64(OBSERVATION), zero, k0, k1)
        store(words, 64 * i, x[0])
        store(words, 64 * i + 16, x[1])
        store(words, 64 * i + 32, x[2])
        store(words, 64 * i + 48, x[3])
    if together:
        return start[0] & 3
    for lane in range(LANES):  # lanes that stand at different places in their blocks: bring each to the front
        o = (start[lane] & 3) * LANES
        for i in range(lane, lane + count * LANES, LANES):
            words[i] = words[i + o]
    return 0


@njit(**INLINED)
def pick(word, entry, shift, low):
    """`choose` of engine/random.py on lanes: the slot's own outcome if the coin is below its threshold."""
    own = (word ^ word) - (((word & low) - (entry & low)) >> np.uint32(31))  # all ones or 0
    return (entry ^ ((entry ^ word) & own)) >> shift


def draw(sampler: Any, task: Any, scratch: Any, count: int, out: Any, at: int, stride: int) -> None:
    """out[at + i * stride + lane] = the outcome that chains[lane] sees at its step begin[lane] + i, for i < count.

    task : keys, agents; scratch : chains, begin : (16,), and words, lanes as in fill_words.
    """
    raise NotImplementedError("draw runs compiled; engine/reference.py says what it means")


@overload(draw, jit_options=INLINED)
def _draw(sampler, task, scratch, count, out, at, stride):
    kind = getattr(sampler, "instance_class", None)
    if kind is IIDSampler:
        return _independent
    if kind is MarkovSampler:
        return _trajectory
    if kind is ReplaySampler:
        return _log
    return None


def _independent(sampler, task, scratch, count, out, at, stride):
    words, lanes, chains = scratch.words, scratch.lanes, scratch.chains
    o = fill_words(words, lanes, task.keys, task.agents, chains, scratch.begin, count)
    for lane in range(LANES):
        q = chains[lane]
        lanes[lane], lanes[16 + lane], lanes[32 + lane] = sampler.slot[q], sampler.row[q], sampler.shift[q]
        lanes[48 + lane] = (1 << np.int64(sampler.shift[q])) - 1
    slot, row, shift, low = load(lanes, 0, 16), load(lanes, 16, 16), load(lanes, 32, 16), load(lanes, 48, 16)
    for i in range(count):
        word = load(words, (o + i) * LANES, 16)
        entry = gather(sampler.slots, slot + (word >> shift))
        store(out, at + i * stride, row + pick(word, entry, shift, low))


def _trajectory(sampler, task, scratch, count, out, at, stride):
    words, lanes, chains = scratch.words, scratch.lanes, scratch.chains
    o = fill_words(words, lanes, task.keys, task.agents, chains, scratch.begin, count)
    for lane in range(LANES):
        q = chains[lane]
        lanes[lane], lanes[16 + lane] = sampler.position[q], sampler.shift[q]
        lanes[32 + lane] = (1 << np.int64(sampler.shift[q])) - 1
    position, shift, low = load(lanes, 0, 16), load(lanes, 16, 16), load(lanes, 32, 16)
    for i in range(count):
        word = load(words, (o + i) * LANES, 16)
        entry = gather(sampler.slots, position + (word >> shift))
        outcome = position + pick(word, entry, shift, low)
        store(out, at + i * stride, outcome)
        position = gather(sampler.successor, outcome)
    store(lanes, 0, position)
    for lane in range(LANES):
        sampler.position[chains[lane]] = lanes[lane]


def _log(sampler, task, scratch, count, out, at, stride):
    for lane in range(LANES):
        q = scratch.chains[lane]
        row, length = sampler.row[q], np.int64(sampler.length[q])
        n = scratch.begin[lane] % length
        for i in range(count):
            out[at + i * stride + lane] = row + n
            n += 1
            if n == length:
                n = 0


class RankOneTables(NamedTuple):
    """u = rows[pair[2k]], v = rows[pair[2k + 1]] (offsets of padded rows), y negated: a step folds v . theta - y."""

    rows: Array
    pair: NDArray[np.uint32]
    minus_y: Array


class RidgeTables(NamedTuple):
    """Rank-one tables whose matrices have ridge I added."""

    rows: Array
    pair: NDArray[np.uint32]
    minus_y: Array
    ridge: float


class DenseTables(NamedTuple):
    """A(z) by columns, padded: columns[(k d + j) d + i] = A[k, i, j]; minus_b[k d + i] = -b[k, i]."""

    columns: Array
    minus_b: Array


class LocalRows(NamedTuple):
    """Where the chains of a group find their parameters: offsets of rows, at place[a] in hat and xi for chain a.

    start : where chain a begins in theta, which is the shared theta at the beginning of a round and hat later on
    """

    theta: Array
    start: Array
    hat: Array
    xi: Array
    place: Array
    old: Array  # (d,), scratch


class Drawn(NamedTuple):
    """Outcomes to step on: of lane l those at i * stride + l for i = first, first + thin, ... < last."""

    outcomes: Array
    stride: int
    first: int
    last: int
    thin: int


def advance(shape: Any, tables: Any, eta: Any, d: int, local: Any, at: int, drawn: Any, lane: int) -> None:
    """Let the G chains at, ..., at + G - 1 of `local` do their local steps on what lanes lane, ... have drawn."""
    raise NotImplementedError("advance runs compiled; engine/reference.py says what it means")


@overload(advance, jit_options=INLINED)
def _advance(shape, tables, eta, d, local, at, drawn, lane):
    if tables.instance_class is DenseTables:
        return _dense
    return _in_pieces if shape.pieces else _in_registers


def decay(tables: Any, eta: Any, theta_hat: Any, drift: Any) -> Any:
    """theta_hat (1 - eta ridge) + drift; without a ridge an addition is all that is left."""
    raise NotImplementedError("decay runs compiled")


@overload(decay, jit_options=INLINED)
def _decay(tables, eta, theta_hat, drift):
    if tables.instance_class is RidgeTables:
        return lambda tables, eta, theta_hat, drift: fma((-eta) * tables.ridge, theta_hat, theta_hat + drift)
    return lambda tables, eta, theta_hat, drift: theta_hat + drift


def _in_registers(shape, tables, eta, d, local, at, drawn, lane):
    here = integers(shape, local.place, at)
    theta_hat = rows(shape, local.theta, integers(shape, local.start, at))
    drift = eta * rows(shape, local.xi, here)
    i = drawn.first
    while i < drawn.last:  # not a range: its length would cost a division
        k = integers(shape, drawn.outcomes, i * drawn.stride + lane)
        u = rows(shape, tables.rows, look_up(tables.pair, k, 2, 0))
        v = rows(shape, tables.rows, look_up(tables.pair, k, 2, 1))
        error = fold(shape, fma(v, theta_hat, first_lane(shape, tables.minus_y, k)))  # v . theta_hat - y
        theta_hat = fma(spread(shape, (-eta) * error), u, decay(tables, eta, theta_hat, drift))
        i += drawn.thin
    store_rows(shape, local.hat, here, theta_hat)


def _in_pieces(shape, tables, eta, d, local, at, drawn, lane):
    W, here, s, hat, xi = len(shape), local.place[at], local.start[at], local.hat, local.xi
    for j in range(0, d, W):
        store(hat, here + j, load_block(shape, local.theta, s + j))
    i = drawn.first
    while i < drawn.last:  # not a range: its length would cost a division
        k = np.int64(drawn.outcomes[i * drawn.stride + lane])
        u, v = np.int64(tables.pair[2 * k]), np.int64(tables.pair[2 * k + 1])
        total = load_block(shape, tables.rows, v) * load_block(shape, hat, here)
        for j in range(W, d, W):
            total = fma(load_block(shape, tables.rows, v + j), load_block(shape, hat, here + j), total)
        step = spread(shape, (-eta) * (fold(shape, total) + tables.minus_y[k]))
        for j in range(0, d, W):
            moved = decay(tables, eta, load_block(shape, hat, here + j), eta * load_block(shape, xi, here + j))
            store(hat, here + j, fma(step, load_block(shape, tables.rows, u + j), moved))
        i += drawn.thin


def _dense(shape, tables, eta, d, local, at, drawn, lane):
    W, here, s, hat, xi = len(shape), local.place[at], local.start[at], local.hat, local.xi
    for j in range(0, d, W):
        store(hat, here + j, load_block(shape, local.theta, s + j))
    i = drawn.first
    while i < drawn.last:  # not a range: its length would cost a division
        k = np.int64(drawn.outcomes[i * drawn.stride + lane])
        for j in range(d):
            local.old[j] = hat[here + j]
        for i0 in range(0, d, W):
            total = load_block(shape, tables.minus_b, k * d + i0)
            for j in range(d):
                total = fma(local.old[j], load_block(shape, tables.columns, (k * d + j) * d + i0), total)
            moved = fma(eta, load_block(shape, xi, here + i0), load_block(shape, hat, here + i0))
            store(hat, here + i0, fma(-eta, total, moved))
        i += drawn.thin
