"""What threads of a GPU do: talk to one another, draw outcomes, look rows up, take a local step.

Exchanges within a warp have a twin over shared memory for Numba's CUDA simulator, which runs a kernel as Python, a
thread of the system per thread of the block, and knows no shuffles.
"""

from __future__ import annotations

import sys

from numba import config, cuda, float64, int32, uint32, uint64

from ..random import OBSERVATION, block, choose

E = 8  # coordinates of a parameter that are a thread's share
INDEPENDENT, TRAJECTORY, LOG, PACKED = range(4)  # ways to draw; packed : independent, with rows in the alias tables
SIMULATED = bool(config.ENABLE_CUDASIM)
MOST_THREADS = 512  # of a block: their registers fill a multiprocessor
WARP = 32
MOST_WARPS = MOST_THREADS // WARP

if SIMULATED:
    kernel = cuda.jit

    def device(function):
        """A function that kernels call: here a plain one."""
        return function

    def _simulator():
        """Numba lends its simulated `cuda` to the module of the kernel that runs, and to no other."""
        return sys.modules[f"{__package__}.gpu_kernel"].cuda

    def _exchanged(value, whom):
        here = _simulator()
        buffer = here.shared.array(MOST_THREADS, float64)
        here.syncthreads()
        buffer[here.threadIdx.x] = value
        here.syncthreads()
        return type(value)(buffer[whom(here.threadIdx.x)])

    def exchange(value, mask):
        """The value of the thread whose number differs in the bits of `mask`; all threads of the block take part."""
        return _exchanged(value, lambda tid: tid ^ mask)

    def ask(value, lane):
        """The value of lane number `lane` of one's own warp; all threads of the block take part."""
        return _exchanged(value, lambda tid: tid // WARP * WARP + lane)

    def together():
        """Threads of a warp wait for one another."""
        _simulator().syncthreads()

    def barrier():
        """Threads of a block wait for one another."""
        _simulator().syncthreads()

else:
    device = cuda.jit(device=True, forceinline=True)
    kernel = cuda.jit(cache=True, max_registers=128)  # so that a block of MOST_THREADS fits

    @device
    def together():
        """Threads of a warp wait for one another."""
        cuda.syncwarp()

    @device
    def barrier():
        """Threads of a block wait for one another."""
        cuda.syncthreads()

    @device
    def exchange(value, mask):
        """The value of the thread whose number differs in the bits of `mask`, all of them below 32."""
        return cuda.shfl_xor_sync(0xFFFFFFFF, value, mask)

    @device
    def ask(value, lane):
        """The value of lane number `lane` of one's own warp."""
        return cuda.shfl_sync(0xFFFFFFFF, value, lane)


@device
def fold(value, threads):
    """The sum of a value over the `threads` neighbours (1, 2, 4, 8 or 16) that share an agent; all of them get it."""
    if threads > 1:
        value += exchange(value, 1)
    if threads > 2:
        value += exchange(value, 2)
    if threads > 4:
        value += exchange(value, 4)
    if threads > 8:
        value += exchange(value, 8)
    return value


@device
def block_sum(part, total, meet, turn, threads, tid, size):
    """total : the sum of part over the agents of a block, for the E = 8 coordinates of this thread; may be part itself.

    meet : (2, warps, 8 threads) in shared memory, of which `turn` picks the half that nobody reads any more: so one
    barrier is enough. Threads of one agent count as one.
    """
    lane, warp, warps = tid % WARP, tid // WARP, size // WARP
    if threads == 1:  # halve what a lane holds at each exchange: lane l ends with coordinate l // 4
        upper = lane & 16 != 0
        a0, s0 = (part[4], part[0]) if upper else (part[0], part[4])
        a1, s1 = (part[5], part[1]) if upper else (part[1], part[5])
        a2, s2 = (part[6], part[2]) if upper else (part[2], part[6])
        a3, s3 = (part[7], part[3]) if upper else (part[3], part[7])
        a0 += exchange(s0, 16)
        a1 += exchange(s1, 16)
        a2 += exchange(s2, 16)
        a3 += exchange(s3, 16)
        upper = lane & 8 != 0
        b0, s0 = (a2, a0) if upper else (a0, a2)
        b1, s1 = (a3, a1) if upper else (a1, a3)
        b0 += exchange(s0, 8)
        b1 += exchange(s1, 8)
        upper = lane & 4 != 0
        c, s0 = (b1, b0) if upper else (b0, b1)
        c += exchange(s0, 4)
        c += exchange(c, 2)
        c += exchange(c, 1)
        if warps > 1:
            if lane & 3 == 0:
                meet[turn, warp, lane >> 2] = c
            barrier()
            c = (meet[turn, 0, lane >> 2] + meet[turn, 1, lane >> 2]) + (
                meet[turn, 2, lane >> 2] + meet[turn, 3, lane >> 2]
            )  # those of warps that are not there are 0
            for w in range(4, warps):
                c += meet[turn, w, lane >> 2]
        for i in range(8):
            total[i] = ask(c, 4 * i)
    else:
        for i in range(8):
            value = part[i]
            value += exchange(value, 16)
            if threads < 16:
                value += exchange(value, 8)
            if threads < 8:
                value += exchange(value, 4)
            if threads < 4:
                value += exchange(value, 2)
            if lane < threads:
                meet[turn, warp, i * threads + lane] = value
        barrier()
        for i in range(8):
            value = meet[turn, 0, i * threads + tid % threads]
            for w in range(1, warps):
                value += meet[turn, w, i * threads + tid % threads]
            total[i] = value


@device
def own_entries(tables, i):
    """Where the alias table and the outcomes of agent entry i begin, 32 - bits of the table, how many outcomes."""
    return tables.own_slot[i], tables.own_row[i], tables.own_shift[i], tables.own_length[i]


@device
def pick(word, slots, table, shift):
    """The outcome, counted from the table's first, that a random word picks in the alias table at `table`."""
    word = uint32(word)
    return uint32(choose(word, slots[uint32(table + uint32(word >> shift))], shift))


@device
def draw(kind, key, agent, index, tables, own, position):
    """The outcomes of the steps 4 index, ..., 4 index + 3, and where a trajectory stands after them."""
    slots, successor = tables.slots, tables.successor
    slot, row, shift, length = own
    if kind == LOG:
        n = 4 * index
        k0, k1 = row + uint32(n % length), row + uint32((n + 1) % length)
        return k0, k1, row + uint32((n + 2) % length), row + uint32((n + 3) % length), position
    x = block(key, agent, OBSERVATION, index)
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
    own = uint32(word >> shift)
    slot = slots[uint32(table + own)]
    k = uint32(choose(word, uint32(slot), shift))
    return k, int32((slot >> uint64(32)) & uint64(0xFFFF)) if k == own else int32(slot >> uint64(48))


@device
def next_block(kind, key, agent, index, tables, own, position):
    """The pairs of rows and -y of the steps 4 index, ..., 4 index + 3, and where a trajectory stands after them.

    own : of the agent, from `own_entries`
    """
    pair, minus_y = tables.pair, tables.minus_y
    if kind == PACKED:
        slots, (slot, row, shift, _) = tables.slots, own
        x = block(key, agent, OBSERVATION, index)
        k0, a0 = packed(x[0], slots, slot, shift)
        k1, a1 = packed(x[1], slots, slot, shift)
        k2, a2 = packed(x[2], slots, slot, shift)
        k3, a3 = packed(x[3], slots, slot, shift)
        y0, y1 = minus_y[uint32(row + k0)], minus_y[uint32(row + k1)]
        return a0, a1, a2, a3, y0, y1, minus_y[uint32(row + k2)], minus_y[uint32(row + k3)], position
    k0, k1, k2, k3, position = draw(kind, key, agent, index, tables, own, position)
    y0, y1, y2, y3 = minus_y[uint32(k0)], minus_y[uint32(k1)], minus_y[uint32(k2)], minus_y[uint32(k3)]
    return pair[uint32(k0)], pair[uint32(k1)], pair[uint32(k2)], pair[uint32(k3)], y0, y1, y2, y3, position


@device
def look_up(theta, drift, scratch, pair, minus_y, how, static):
    """theta <- theta + drift - eta (u (v . theta - y) + ridge theta), the rows of u and v in the halves of `pair`.

    differences : v is u - discount times the second row (temporal differences), so that features alone are looked up.
    half : the bits of its lower half; copies : of the rows in shared memory, 0 if they are elsewhere; coordinate i of
    the thread stands i * threads * copies numbers after its first. scratch : two of (E,).
    """
    table, begin, eta, discount, decay = how
    threads, copies, half, differences, ridged = static
    u, part = scratch
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
    step = -eta * (fold(error, threads) + minus_y)
    for i in range(E):
        here = theta[i]
        if ridged:
            here -= decay * here
        theta[i] = here + (step * u[i] + drift[i])


@device
def dense(theta, drift, tables, k, at, eta, meeting, threads):
    """theta <- theta + drift - eta (A theta - b) of outcome k, A by columns.

    meeting : memory that the agent's threads share, and where their part of it begins
    """
    columns, minus_b, (share, place), D = tables.columns, tables.minus_b, meeting, E * threads
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
