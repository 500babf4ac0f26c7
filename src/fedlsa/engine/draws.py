"""Which outcome each chain sees next, for 16 chains (lanes) at a time: i.i.d., along a trajectory, or from a log.

A chain is an (agent, seed) pair. What it needs to draw stands in per-chain arrays; a sampler carries them, and its type
selects the code. Random words come first, vectorised over lanes; outcomes are then picked from them without a branch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from .random import OBSERVATION, choose, philox
from .vectors import load, store

Words = NDArray[np.uint32]
LANES = 16  # chains that draw together; a multiple of every number of chains that step together


class IIDSampler(NamedTuple):
    """Independent draws: the alias table of chain q begins at slots[slot[q]], its outcomes at row[q]."""

    slots: Words
    slot: Words  # (P,)
    row: Words  # (P,)
    shift: Words  # (P,): 32 - bits of the chain's alias tables


class MarkovSampler(NamedTuple):
    """Trajectories: every state has an alias table; outcome k of the laid-out tables leads to the table at successor[k].

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


@njit(cache=True, error_model="numpy")
def fill_words(out, keys, agents, chains, start, count):  # type: ignore[no-untyped-def]
    """out[i * 16 + lane] = random word 4 (start[lane] // 4) + i of chains[lane]'s agent, for the first `count` i at least.

    out : (words, 16) flat; keys : (P, 2) flat; agents : (P,); start : (16,), the lanes' own step counters.
    """
    agent, key0, key1, counter = np.empty(64, np.uint32), np.empty(16, np.uint32), np.empty(16, np.uint32), start >> 2
    c0 = np.empty(16, np.uint32)
    for lane in range(LANES):
        q = chains[lane]
        agent[lane], key0[lane], key1[lane], c0[lane] = agents[q], keys[2 * q], keys[2 * q + 1], counter[lane]
    c1, k0, k1 = load(agent, 0, 16), load(key0, 0, 16), load(key1, 0, 16)
    c, zero = load(c0, 0, 16), load(agent, 0, 16) ^ load(agent, 0, 16)
    for i in range((count + 3) // 4):
        x = philox(c + np.uint32(i), c1, zero + np.uint32(OBSERVATION), zero, k0, k1)
        store(out, 64 * i, x[0])
        store(out, 64 * i + 16, x[1])
        store(out, 64 * i + 32, x[2])
        store(out, 64 * i + 48, x[3])


def draw(sampler: Any, scratch: Any, keys: Any, agents: Any, chains: Any, start: Any, count: int, out: Any) -> None:
    """out[i * 16 + lane] = the outcome that chains[lane] sees at its step start[lane] + i, for i < count.

    chains, start : (16,); scratch : room for (count + 6) * 16 words; out : (count, 16) flat.
    """
    raise NotImplementedError("draw runs compiled; engine/reference.py says what it means")


@overload(draw, jit_options={"error_model": "numpy"})
def _draw(sampler, scratch, keys, agents, chains, start, count, out):
    kind = getattr(sampler, "instance_class", None)
    if kind is IIDSampler:
        return _independent
    if kind is MarkovSampler:
        return _trajectory
    if kind is ReplaySampler:
        return _log
    return None


def _independent(sampler, scratch, keys, agents, chains, start, count, out):  # type: ignore[no-untyped-def]
    fill_words(scratch, keys, agents, chains, start, count + 3)
    for lane in range(LANES):
        q = chains[lane]
        slot, row, shift = sampler.slot[q], sampler.row[q], np.uint64(sampler.shift[q])
        o = (start[lane] & 3) * LANES + lane
        for i in range(count):
            word = np.uint64(scratch[o + i * LANES])
            entry = np.uint64(sampler.slots[slot + (word >> shift)])
            out[i * LANES + lane] = row + choose(word, entry, shift)


def _trajectory(sampler, scratch, keys, agents, chains, start, count, out):  # type: ignore[no-untyped-def]
    fill_words(scratch, keys, agents, chains, start, count + 3)
    position, shift, o = np.empty(LANES, np.uint32), np.empty(LANES, np.uint32), np.empty(LANES, np.int64)
    for lane in range(LANES):
        q = chains[lane]
        position[lane], shift[lane], o[lane] = sampler.position[q], sampler.shift[q], (start[lane] & 3) * LANES + lane
    for i in range(count):
        for lane in range(LANES):  # lanes inside: a state depends on the one before, so only lanes can overlap
            word, s = np.uint64(scratch[o[lane] + i * LANES]), np.uint64(shift[lane])
            entry = np.uint64(sampler.slots[position[lane] + (word >> s)])
            k = position[lane] + choose(word, entry, s)
            out[i * LANES + lane] = k
            position[lane] = sampler.successor[k]
    for lane in range(LANES):
        sampler.position[chains[lane]] = position[lane]


def _log(sampler, scratch, keys, agents, chains, start, count, out):  # type: ignore[no-untyped-def]
    for lane in range(LANES):
        q = chains[lane]
        row, length = sampler.row[q], np.int64(sampler.length[q])
        at = start[lane] % length
        for i in range(count):
            out[i * LANES + lane] = row + at
            at += 1
            if at == length:
                at = 0
