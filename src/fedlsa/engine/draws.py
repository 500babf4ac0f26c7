"""Which outcome each chain sees next, for 16 chains (lanes) at a time: i.i.d., along a trajectory, or from a log.

A chain is an (agent, seed) pair. What it needs to draw stands in per-chain arrays; a sampler carries them, and its type
selects the code. Random words come first, vectorised over lanes; outcomes are
then picked from them without a branch, since a coin cannot be predicted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from .memory import gather, load, load_words, store
from .random import OBSERVATION, philox
from .vectors import INLINED

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


def draw(
    sampler: Any, words: Any, lanes: Any, keys: Any, agents: Any, chains: Any, start: Any, count: int,
    out: Any, at: int, stride: int,
) -> None:  # fmt: skip
    """out[at + i * stride + lane] = the outcome that chains[lane] sees at its step start[lane] + i, for i < count.

    chains, start : (16,); words, lanes : scratch as in fill_words.
    """
    raise NotImplementedError("draw runs compiled; engine/reference.py says what it means")


@overload(draw, jit_options=INLINED)
def _draw(sampler, words, lanes, keys, agents, chains, start, count, out, at, stride):
    kind = getattr(sampler, "instance_class", None)
    if kind is IIDSampler:
        return _independent
    if kind is MarkovSampler:
        return _trajectory
    if kind is ReplaySampler:
        return _log
    return None


def _independent(sampler, words, lanes, keys, agents, chains, start, count, out, at, stride):
    o = fill_words(words, lanes, keys, agents, chains, start, count)
    for lane in range(LANES):
        q = chains[lane]
        lanes[lane], lanes[16 + lane], lanes[32 + lane] = sampler.slot[q], sampler.row[q], sampler.shift[q]
        lanes[48 + lane] = (1 << np.int64(sampler.shift[q])) - 1
    slot, row, shift, low = load(lanes, 0, 16), load(lanes, 16, 16), load(lanes, 32, 16), load(lanes, 48, 16)
    for i in range(count):
        word = load(words, (o + i) * LANES, 16)
        entry = gather(sampler.slots, slot + (word >> shift))
        store(out, at + i * stride, row + pick(word, entry, shift, low))


def _trajectory(sampler, words, lanes, keys, agents, chains, start, count, out, at, stride):
    o = fill_words(words, lanes, keys, agents, chains, start, count)
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


def _log(sampler, words, lanes, keys, agents, chains, start, count, out, at, stride):
    for lane in range(LANES):
        q = chains[lane]
        row, length = sampler.row[q], np.int64(sampler.length[q])
        n = start[lane] % length
        for i in range(count):
            out[at + i * stride + lane] = row + n
            n += 1
            if n == length:
                n = 0
