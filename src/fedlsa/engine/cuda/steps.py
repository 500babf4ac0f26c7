"""What a thread does on its own: draw outcomes, look rows up, take a local step. E = 8 coordinates are its share."""

from __future__ import annotations

from numba import int32, uint32, uint64

from ..random import OBSERVATION, block, choose
from .warp import device, fold, together

E = 8
IID, MARKOV, REPLAY, PACKED = 0, 1, 2, 3  # packed : i.i.d., with the rows of outcomes in the alias tables


@device
def pick(word, slots, table, shift):
    """The outcome, counted from the table's first, that a random word picks in the alias table at `table`."""
    word = uint32(word)
    return uint32(choose(word, slots[uint32(table + uint32(word >> shift))], shift))


@device
def draw(kind, key, agent, index, slots, successor, slot, row, shift, length, position):
    """The outcomes of the steps 4 index, ..., 4 index + 3, and where a trajectory stands after them."""
    if kind == REPLAY:
        n = 4 * index
        k0, k1 = row + uint32(n % length), row + uint32((n + 1) % length)
        return k0, k1, row + uint32((n + 2) % length), row + uint32((n + 3) % length), position
    x = block(key, agent, OBSERVATION, index)
    if kind == MARKOV:
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
    own = uint32(word >> shift)
    slot = slots[uint32(table + own)]
    k = uint32(choose(word, uint32(slot), shift))
    return k, int32((slot >> uint64(32)) & uint64(0xFFFF)) if k == own else int32(slot >> uint64(48))


@device
def next_block(
    kind, key, agent, index, slots, successor, pair, minus_y, slot, row, shift, length, position
):  # fmt: skip
    """The pairs of rows and -y of the steps 4 index, ..., 4 index + 3, and where a trajectory stands after them."""
    if kind == PACKED:
        x = block(key, agent, OBSERVATION, index)
        k0, a0 = packed(x[0], slots, slot, shift)
        k1, a1 = packed(x[1], slots, slot, shift)
        k2, a2 = packed(x[2], slots, slot, shift)
        k3, a3 = packed(x[3], slots, slot, shift)
        y0, y1 = minus_y[uint32(row + k0)], minus_y[uint32(row + k1)]
        return a0, a1, a2, a3, y0, y1, minus_y[uint32(row + k2)], minus_y[uint32(row + k3)], position
    k0, k1, k2, k3, position = draw(kind, key, agent, index, slots, successor, slot, row, shift, length, position)
    y0, y1, y2, y3 = minus_y[uint32(k0)], minus_y[uint32(k1)], minus_y[uint32(k2)], minus_y[uint32(k3)]
    return pair[uint32(k0)], pair[uint32(k1)], pair[uint32(k2)], pair[uint32(k3)], y0, y1, y2, y3, position


@device
def look_up(theta, drift, u, part, pair, minus_y, how, threads, copies, half, differences, ridged):
    """theta <- theta + drift - eta (u (v . theta - y) + ridge theta), the rows of u and v in the halves of `pair`.

    differences : v is u - discount times the second row (temporal differences), so that features alone are looked up.
    half : the bits of its lower half; copies : of the rows in shared memory, 0 if they are elsewhere; coordinate i of
    the thread stands i * threads * copies numbers after its first. u, part : (E,), scratch.
    """
    table, begin, eta, discount, decay = how
    wide = threads * max(copies, 1)
    if copies:  # few rows, in shared memory
        stride = uint32(E * wide + (wide == 1))
        first, second = uint32((pair >> half) * stride + begin), uint32((pair & ((1 << half) - 1)) * stride + begin)
    else:
        first, second = uint64((pair >> 32) * E * threads + begin), uint64((pair & 0xFFFFFFFF) * E * threads + begin)
    for i in range(E):
        u[i] = table[first + uint32(i * wide)]
        v = table[second + uint32(i * wide)]
        if differences:
            v = u[i] - discount * v
        part[i] = v * theta[i]
    error = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]))
    pull = -eta * (fold(error, threads) + minus_y)
    for i in range(E):
        here = theta[i]
        if ridged:
            here -= decay * here
        theta[i] = here + (pull * u[i] + drift[i])


@device
def dense(theta, drift, columns, minus_b, k, at, eta, share, place, threads):
    """theta <- theta + drift - eta (A theta - b) of outcome k, A by columns; share : where the agent's threads meet."""
    D = E * threads
    for i in range(E):
        share[place + i * threads + at] = theta[i]
    together()
    for i in range(E):
        row = i * threads + at
        total = minus_b[k * D + row]
        for j in range(D):
            total += columns[(k * D + j) * D + row] * share[place + j]
        theta[i] += drift[i] - eta * total
    together()
