"""What threads of a GPU do: talk to one another, draw outcomes, look rows up, take a local step.

Exchanges within a warp have a twin over shared memory for Numba's CUDA simulator, which runs a kernel as Python, a
thread of the system per thread of the block, and knows no shuffles.
"""

from __future__ import annotations

import sys

from numba import config, cuda, float64, int32, uint32, uint64

from ..random import OBSERVATION, block, choose

INDEPENDENT, TRAJECTORY, LOG, PACKED = range(4)  # ways to draw; packed : independent, with rows in the alias tables
SIMULATED = bool(config.ENABLE_CUDASIM)
MOST_THREADS = 512  # of a block: their registers fill a multiprocessor
WARP = 8 if SIMULATED else 32  # simulated threads are dear, and nothing below needs more of them
MOST_WARPS = MOST_THREADS // 32
ROOMS = 4 if SIMULATED else 1  # blocks that share memory: on the simulator, which runs all blocks of a seed as one

if SIMULATED:

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

    def seat(parts):
        """The seed, which of its blocks, the number of a thread in it, and how many threads it has."""
        here = _simulator()
        size = here.blockDim.x // parts
        return here.blockIdx.x, here.threadIdx.x // size, here.threadIdx.x % size, size

    def blocks_meet(arrived, seed, count, tid):
        """The blocks of a seed wait for one another."""
        _simulator().syncthreads()

else:
    device = cuda.jit(device=True, forceinline=True)

    @device
    def together():
        """Threads of a warp wait for one another."""
        cuda.syncwarp()

    @device
    def barrier():
        """Threads of a block wait for one another."""
        cuda.syncthreads()

    @device
    def seat(parts):
        """The seed, which of its blocks, the number of a thread in it, and how many threads it has."""
        b = cuda.blockIdx.x // parts
        return b, cuda.blockIdx.x - b * parts, cuda.threadIdx.x, cuda.blockDim.x

    @device
    def blocks_meet(arrived, seed, count, tid):
        """The blocks of a seed, all of them on the device at once, wait for one another: until `count` have come."""
        cuda.syncthreads()
        if tid == 0:
            cuda.threadfence()
            cuda.atomic.add(arrived, seed, 1)
            while cuda.atomic.add(arrived, seed, 0) < count:
                pass
            cuda.threadfence()
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
    """The sum of a value over the `threads` neighbours (1, 2, 4, ... 32) that share an agent; all of them get it."""
    if threads > 1:
        value += exchange(value, 1)
    if threads > 2:
        value += exchange(value, 2)
    if threads > 4:
        value += exchange(value, 4)
    if threads > 8:
        value += exchange(value, 8)
    if threads > 16:
        value += exchange(value, 16)
    return value


@device
def tally(part, E):
    """The sum of part : (E,), which is used up; E is 1, 2, 4 or 8."""
    if E > 4:
        for i in range(4):
            part[i] += part[i + 4]
    if E > 2:
        for i in range(2):
            part[i] += part[i + 2]
    return part[0] + part[1] if E > 1 else part[0]


@device
def block_sum(part, meet, turn, shape, tid, size):
    """part <- its sum over the agents of a block, for the E coordinates of this thread.

    meet : (turns, warps, E threads) in shared memory, of which `turn` picks one that nobody reads any more: so one
    barrier is enough. shape : threads of an agent, which count as one, and E.
    """
    threads, E = shape
    lane, warp, warps = tid % WARP, tid // WARP, size // WARP
    if threads == 1 and E == 8:  # halve what a lane holds at each exchange: it ends with one coordinate
        upper = lane & (WARP // 2) != 0
        a0, s0 = (part[4], part[0]) if upper else (part[0], part[4])
        a1, s1 = (part[5], part[1]) if upper else (part[1], part[5])
        a2, s2 = (part[6], part[2]) if upper else (part[2], part[6])
        a3, s3 = (part[7], part[3]) if upper else (part[3], part[7])
        a0 += exchange(s0, WARP // 2)
        a1 += exchange(s1, WARP // 2)
        a2 += exchange(s2, WARP // 2)
        a3 += exchange(s3, WARP // 2)
        upper = lane & (WARP // 4) != 0
        b0, s0 = (a2, a0) if upper else (a0, a2)
        b1, s1 = (a3, a1) if upper else (a1, a3)
        b0 += exchange(s0, WARP // 4)
        b1 += exchange(s1, WARP // 4)
        upper = lane & (WARP // 8) != 0
        c, s0 = (b1, b0) if upper else (b0, b1)
        c += exchange(s0, WARP // 8)
        if WARP == 32:
            c += exchange(c, 2)
            c += exchange(c, 1)
        held = lane // (WARP // 8)
        if warps > 1:
            if lane % (WARP // 8) == 0:
                meet[turn, warp, held] = c
            barrier()
            c = (meet[turn, 0, held] + meet[turn, 1, held]) + (
                meet[turn, 2, held] + meet[turn, 3, held]
            )  # those of warps that are not there are 0
            for w in range(4, warps):
                c += meet[turn, w, held]
        for i in range(8):
            part[i] = ask(c, WARP // 8 * i)
    else:
        for i in range(E):
            value = part[i]
            if threads <= 16 < WARP:
                value += exchange(value, 16)
            if threads <= 8 < WARP:
                value += exchange(value, 8)
            if threads <= 4 < WARP:
                value += exchange(value, 4)
            if threads <= 2:
                value += exchange(value, 2)
            if threads <= 1:
                value += exchange(value, 1)
            part[i] = value
            if warps > 1 and lane < threads:
                meet[turn, warp, i * threads + lane] = value
        if warps > 1:
            barrier()
            for i in range(E):
                value = meet[turn, 0, i * threads + tid % threads]
                for w in range(1, warps):
                    value += meet[turn, w, i * threads + tid % threads]
                part[i] = value


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
def fetch(u, v, pair, how, static):
    """u, v : (E,) <- a thread's share of the two vectors of an outcome, their rows in the halves of `pair`.

    differences : v is u - discount times the second row (temporal differences), so that features alone are looked up.
    half : the bits of its lower half; copies : of the rows in shared memory, 0 if they are elsewhere; coordinate i of
    the thread stands i * threads * copies numbers after its first.
    """
    table, begin, discount = how[0], how[1], how[3]
    threads, E, copies, half, differences = static[0], static[1], static[2], static[3], static[4]
    wide = threads * max(copies, 1)
    if copies:  # few rows, in shared memory
        stride = uint32(E * wide + (wide == 1))
        first, second = uint32((pair >> half) * stride + begin), uint32((pair & ((1 << half) - 1)) * stride + begin)
    else:
        first, second = uint64((pair >> 32) * E * threads + begin), uint64((pair & 0xFFFFFFFF) * E * threads + begin)
    for i in range(E):
        u[i] = table[first + uint32(i * wide)]
        v[i] = table[second + uint32(i * wide)]
        if differences:
            v[i] = u[i] - discount * v[i]


@device
def inner(v, w, scratch, static):
    """The inner product of two vectors that an agent's threads share."""
    threads, E = static[0], static[1]
    for i in range(E):
        scratch[i] = v[i] * w[i]
    return fold(tally(scratch, E), threads)


@device
def step(theta, drift, vectors, pair, minus_y, how, static):
    """theta <- theta + drift - eta (u (v . theta - y) + ridge theta); vectors : six of (E,) to work with."""
    eta, decay, E, ridged = how[2], how[4], static[1], static[5]
    u, v, scratch = vectors[0], vectors[4], vectors[5]
    fetch(u, v, pair, how, static)
    length = -eta * (inner(v, theta, scratch, static) + minus_y)
    for i in range(E):
        here = theta[i]
        if ridged:
            here -= decay * here
        theta[i] = here + (length * u[i] + drift[i])


@device
def four_steps(theta, drift, vectors, pairs, minus_y, how, static):
    """Four such steps without a ridge, whose inner products with theta need not wait for one another.

    With s_k the length of step k along u_k, v_k . theta_k = v_k . (theta_0 + k drift) + sum_{j < k} (v_k . u_j) s_j: all
    but the s_j is known beforehand, so that one multiply-add per step is left for which the next step must wait.
    """
    eta, E = how[2], static[1]
    u0, u1, u2, u3, v, scratch = vectors
    fetch(u0, v, pairs[0], how, static)
    s0 = -eta * (inner(v, theta, scratch, static) + minus_y[0])
    for i in range(E):
        theta[i] += drift[i]
    fetch(u1, v, pairs[1], how, static)
    s1 = -eta * (inner(v, theta, scratch, static) + minus_y[1])
    g10 = -eta * inner(v, u0, scratch, static)
    for i in range(E):
        theta[i] += drift[i]
    fetch(u2, v, pairs[2], how, static)
    s2 = -eta * (inner(v, theta, scratch, static) + minus_y[2])
    g20, g21 = -eta * inner(v, u0, scratch, static), -eta * inner(v, u1, scratch, static)
    for i in range(E):
        theta[i] += drift[i]
    fetch(u3, v, pairs[3], how, static)
    s3 = -eta * (inner(v, theta, scratch, static) + minus_y[3])
    g30, g31 = -eta * inner(v, u0, scratch, static), -eta * inner(v, u1, scratch, static)
    g32 = -eta * inner(v, u2, scratch, static)
    s1 += g10 * s0
    s2 = (s2 + g20 * s0) + g21 * s1
    s3 = ((s3 + g30 * s0) + g31 * s1) + g32 * s2
    for i in range(E):
        theta[i] = (((theta[i] + drift[i]) + s0 * u0[i]) + s1 * u1[i]) + s2 * u2[i] + s3 * u3[i]


@device
def dense(theta, drift, tables, k, at, eta, meeting, shape):
    """theta <- theta + drift - eta (A theta - b) of outcome k, A by columns.

    meeting : memory that the agent's threads share, and where their part of it begins; shape : threads and E
    """
    columns, minus_b, (share, place), (threads, E) = tables.columns, tables.minus_b, meeting, shape
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
