"""How threads of a GPU draw outcomes: random words, alias tables, the rows and values of what was drawn.

Random words and the choice of an outcome are those of engine/random.py.
"""

from __future__ import annotations

from numba import int32, uint32, uint64

from ..random import OBSERVATION, block, choose
from .gpu_threads import SIMULATED, WARP, ask, device

INDEPENDENT, TRAJECTORY, LOG, PACKED = range(4)  # ways to draw; packed : independent, with rows in the alias tables

if SIMULATED:

    def random_block(key, agent, index):
        """The four random words of a block of observations."""
        return block(key, agent, OBSERVATION, index)

else:
    from numba.cuda.libdevice import umulhi

    @device
    def random_block(key, agent, index):
        """What engine/random.py gives for a block of observations, on 32-bit words, which are quicker here."""
        c0, c1, c2, c3 = uint32(index), uint32(agent), uint32(OBSERVATION), uint32(0)
        k0, k1 = uint32(key), uint32(key >> uint64(32))
        for _ in range(10):
            high0, low0 = uint32(umulhi(c0, uint32(0xD2511F53))), uint32(c0 * uint32(0xD2511F53))
            high1, low1 = uint32(umulhi(c2, uint32(0xCD9E8D57))), uint32(c2 * uint32(0xCD9E8D57))
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
            k0, k1 = uint32(k0 + uint32(0x9E3779B9)), uint32(k1 + uint32(0xBB67AE85))
        return c0, c1, c2, c3


@device
def agent_entries(tables, i):
    """Where the alias table and the outcomes of agent entry i begin, 32 - bits of the table, how many outcomes."""
    return tables.agent_slot[i], tables.agent_row[i], tables.agent_shift[i], tables.agent_length[i]


@device
def pick(word, slots, table, shift):
    """The outcome, counted from the table's first, that a random word picks in the alias table at `table`."""
    word = uint32(word)
    return uint32(choose(word, slots[uint32(table + uint32(word >> shift))], shift))


@device
def draw(kind, key, agent, index, tables, entries, position):
    """The outcomes of the steps 4 index, ..., 4 index + 3, and where a trajectory stands after them."""
    slots, successor = tables.slots, tables.successor
    slot, row, shift, length = entries
    if kind == LOG:
        n = 4 * index
        k0, k1 = row + uint32(n % length), row + uint32((n + 1) % length)
        return k0, k1, row + uint32((n + 2) % length), row + uint32((n + 3) % length), position
    x = random_block(key, agent, index)
    if kind == TRAJECTORY:
        k0 = position + pick(x[0], slots, position, shift)
        position = successor[uint32(k0)]
        k1 = position + pick(x[1], slots, position, shift)
        position = successor[uint32(k1)]
        k2 = position + pick(x[2], slots, position, shift)
        position = successor[uint32(k2)]
        k3 = position + pick(x[3], slots, position, shift)
        return k0, k1, k2, k3, successor[uint32(k3)]
    k0, k1 = row + pick(x[0], slots, slot, shift), row + pick(x[1], slots, slot, shift)
    return k0, k1, row + pick(x[2], slots, slot, shift), row + pick(x[3], slots, slot, shift), position


@device
def packed(word, slots, table, shift):
    """The same with the outcome's pair of rows, in a table of 64-bit slots: entry, its own pair, its alias's pair."""
    word = uint32(word)
    outcome = uint32(word >> shift)
    slot = slots[uint32(table + outcome)]
    k = uint32(choose(word, uint32(slot), shift))
    return k, int32((slot >> uint64(32)) & uint64(0xFFFF)) if k == outcome else int32(slot >> uint64(48))


@device
def outcomes_of(kind, key, agent, index, tables, entries, position):
    """The pairs of rows and -y of the steps 4 index, ..., 4 index + 3, and where a trajectory stands after them.

    entries : of the agent, from `agent_entries`
    """
    pair, minus_y = tables.pair, tables.minus_y
    if kind == PACKED:
        slots, (slot, row, shift, _) = tables.slots, entries
        x = random_block(key, agent, index)
        k0, a0 = packed(x[0], slots, slot, shift)
        k1, a1 = packed(x[1], slots, slot, shift)
        k2, a2 = packed(x[2], slots, slot, shift)
        k3, a3 = packed(x[3], slots, slot, shift)
        y0, y1 = minus_y[uint32(row + k0)], minus_y[uint32(row + k1)]
        return a0, a1, a2, a3, y0, y1, minus_y[uint32(row + k2)], minus_y[uint32(row + k3)], position
    k0, k1, k2, k3, position = draw(kind, key, agent, index, tables, entries, position)
    y0, y1, y2, y3 = minus_y[uint32(k0)], minus_y[uint32(k1)], minus_y[uint32(k2)], minus_y[uint32(k3)]
    return pair[uint32(k0)], pair[uint32(k1)], pair[uint32(k2)], pair[uint32(k3)], y0, y1, y2, y3, position


@device
def draw_into_memory(kind, key, agent, index, tables, entries, stored):
    """Four threads of an agent draw the four blocks around `index`, one each: `stored` is what this one has drawn."""
    pairs, minus_y, tid = stored
    block_drawn = uint32((index & 0xFFFFFFFC) + (tid & 3))
    pairs[0], pairs[1], pairs[2], pairs[3], minus_y[0], minus_y[1], minus_y[2], minus_y[3], _ = outcomes_of(
        kind, key, agent, block_drawn, tables, entries, uint32(0)
    )


@device
def next_block(drawing, key, agent, index, tables, entries, position, stored):
    """`outcomes_of` a block; drawing : how, and whether the threads of an agent split the work (all agents at once)."""
    kind, split = drawing
    if not split:
        return outcomes_of(kind, key, agent, index, tables, entries, position)
    pairs, minus_y, tid = stored
    if index & 3 == 0:
        draw_into_memory(kind, key, agent, index, tables, entries, stored)
    whom = (tid & (WARP - 4)) + (index & 3)
    a0, a1, a2, a3 = ask(pairs[0], whom), ask(pairs[1], whom), ask(pairs[2], whom), ask(pairs[3], whom)
    y0, y1, y2, y3 = ask(minus_y[0], whom), ask(minus_y[1], whom), ask(minus_y[2], whom), ask(minus_y[3], whom)
    return a0, a1, a2, a3, y0, y1, y2, y3, position
