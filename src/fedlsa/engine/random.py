"""Random numbers as a function of (seed, agent, step): Philox4x32-10, alias tables, who takes part, lengths of rounds.

A counter-based generator has no state to carry. The random word of an agent's step is word step % 4 of the Philox block
with key = seed and counter = (step // 4, agent, stream, 0), whatever the engine, the threads or the grouping of seeds.
Every function here works on Python integers and NumPy scalars as well as compiled, so that all engines share it.
"""

from __future__ import annotations

import numba  # noqa: F401  whole before a part: threads may ask for both at once
import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError
from ..kernel_cache import kernel

Words = NDArray[np.uint64]
Slots = NDArray[np.uint32]
Integers = NDArray[np.int64]
CACHED = 4096  # random blocks that NumPy makes at once: they stay in the cache
# what a random word is for; PRESENCE and MESSAGE are those of exchanges, and know their rounds, UNIFORM its observation
OBSERVATION, START, PARTICIPATION, LENGTH, PRESENCE, MESSAGE, UNIFORM = 0, 1, 2, 3, 4, 5, 6

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
KEY_STEPS = _W0, _W1
_LOW, _WORD_BITS = np.uint64(0xFFFFFFFF), np.uint64(32)


@register_jitable
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10 on 64-bit integers, of which the lower 32 bits count, of results too (engine/cpu_steps.py)."""
    for _ in range(10):
        p0, p1 = (c0 & _LOW) * _M0, (c2 & _LOW) * _M1
        c0, c1, c2, c3 = (p1 >> _WORD_BITS) ^ c1 ^ k0, p1, (p0 >> _WORD_BITS) ^ c3 ^ k1, p0
        k0, k1 = k0 + _W0, k1 + _W1
    return c0, c1, c2, c3


@register_jitable
def block(seed, agent, stream, index):
    """The four 32-bit words of block `index` of a stream, as 64-bit integers; arrays give arrays."""
    key, zero = np.uint64(seed), np.uint64(0)
    x = philox(np.uint64(index), np.uint64(agent), np.uint64(stream), zero, key & _LOW, key >> _WORD_BITS)
    return x[0] & _LOW, x[1] & _LOW, x[2] & _LOW, x[3] & _LOW


@register_jitable
def two_uniforms(seed, agent, stream, t, index):
    """Two numbers in [0, 1) with 53 random bits, of an agent in round t; arrays give arrays."""
    key, five, six = np.uint64(seed), np.uint64(5), np.uint64(6)
    place = np.uint64(index), np.uint64(agent), np.uint64(stream), np.uint64(t)
    a, b, c, d = philox(*place, key & _LOW, key >> _WORD_BITS)
    one = (((a & _LOW) >> five) * 67108864.0 + ((b & _LOW) >> six)) / 9007199254740992.0
    return one, (((c & _LOW) >> five) * 67108864.0 + ((d & _LOW) >> six)) / 9007199254740992.0


@register_jitable
def fill_uniforms(seed, agent, number, out):
    """out[i] = a number in (0, 1), 0 and 1 excluded, of an agent's observation `number`, which is below 2^32."""
    for i in range(0, len(out), 2):
        pair = two_uniforms(seed, agent, UNIFORM, number, i)
        for j in range(i, min(i + 2, len(out))):
            out[j] = max(pair[j - i], 2.0**-54)


def words(seed: int, agent: int, stream: int, first: int, count: int) -> Words:
    """The random words `first`, ..., `first + count - 1` of a stream : (count,) uint64 below 2^32."""
    blocks = np.arange(first // 4, (first + count + 3) // 4, dtype=np.uint64)
    return np.stack(block(seed, agent, stream, blocks), 1).ravel()[first % 4 :][:count]


def uniforms(seed: int, first: int, count: int) -> Floats:
    """One number in [0, 1) with 53 random bits for each of `count` rounds from round `first` on."""
    out = np.empty(count)
    for i in range(0, count, CACHED):
        part = out[i : i + CACHED]
        x = block(seed, 0, LENGTH, np.arange(first + i, first + i + len(part), dtype=np.uint64))
        part[:] = ((x[0] >> np.uint64(5)) * 67108864.0 + (x[1] >> np.uint64(6))) / 9007199254740992.0
    return out


@kernel(error_model="numpy")
def participants(seed, first, agents, out):
    """out[i] = the sorted agents that take part in round first + i, drawn without replacement; out : (rounds, m)."""
    order, chosen = np.arange(agents), np.zeros(agents, np.bool_)
    rounds, m = out.shape
    for i in range(rounds):
        for j in range(m):
            word = block(seed, first + i, PARTICIPATION, j // 4)[j % 4]
            k = j + np.int64((word * np.uint64(agents - j)) >> _WORD_BITS)
            order[j], order[k] = order[k], order[j]
        for j in range(m):
            chosen[order[j]] = True
        n = 0
        for c in range(agents):
            if chosen[c]:
                out[i, n], chosen[c] = c, False
                order[c] = c  # back to the identity: besides the first m places only these have moved
                n += 1
        for j in range(m):
            order[j] = j


def alias_bits(outcomes: int) -> int:
    """The number of bits b, at least 1, for which 2^b slots hold `outcomes` outcomes."""
    return max(1, int(outcomes - 1).bit_length())


def alias_tables(prob: Floats, first: Integers, length: Integers, bits: Integers) -> tuple[Slots, Integers]:
    """The alias tables of many laws, one after the other, and where each begins.

    `choose` draws outcome k of law m, which has prob[first[m] : first[m] + length[m]], with its probability, rounded to
    a multiple of 2^-32. A slot holds alias << (32 - bits) | threshold; a full slot has threshold 0 and itself as alias.
    """
    ends = np.cumsum(1 << bits)
    if ends[-1] >= 2**32 or len(prob) >= 2**32:
        raise ArgumentError(f"a problem must have fewer than 2**32 outcomes; got {len(prob)}")
    slots, slot = np.empty(int(ends[-1]), np.uint32), ends - (1 << bits)
    laws = (np.ascontiguousarray(x, np.int64) for x in (first, length, bits, slot))
    _fill_slots(np.ascontiguousarray(prob, np.float64), *laws, slots, np.empty((3, 1 << int(bits.max())), np.int64))
    return slots, slot


@kernel(error_model="numpy")
def _fill_slots(prob, first, length, bits, slot, slots, scratch):
    """What `alias_tables` says; scratch : three rows of numbers to work with."""
    shares, smalls, larges = scratch
    for m in range(len(first)):
        size, shift = 1 << bits[m], 32 - bits[m]
        unit, out, n_small, n_large, total, before = 1 << shift, slot[m], 0, 0, 0.0, 0
        for k in range(size):
            share = 0  # in units of 2^-32, exact integers; all of them together are 2^32
            if k < length[m]:
                total += prob[first[m] + k]
                edge = 1 << 32
                if k < length[m] - 1 and total < 1.0:
                    edge = int(total * 4294967296.0 + 0.5)
                share, before = edge - before, edge
            shares[k] = share
            slots[out + k] = k << shift
            if share < unit:
                smalls[n_small] = k
                n_small += 1
            else:
                larges[n_large] = k
                n_large += 1
        while n_small:
            n_small -= 1
            s, g = smalls[n_small], larges[n_large - 1]
            slots[out + s] = g << shift | shares[s]
            shares[g] -= unit - shares[s]
            if shares[g] < unit:
                n_large -= 1
                smalls[n_small] = g
                n_small += 1


@register_jitable
def choose(word, entry, shift):
    """The outcome that a random word picks in an alias table, given the entry of its slot, word >> shift.

    The lower bits of the word are the coin: below the threshold it is the slot's own outcome, else the alias.
    """
    low = (1 << shift) - 1
    return word >> shift if word & low < entry & low else entry >> shift
