"""How threads of a GPU talk to one another: in a warp, in a block, and from block to block of a seed.

Each exchange has a twin for Numba's CUDA simulator, which runs a kernel as Python, a thread of the system per thread of
the block and one block after the other, and knows no shuffles. There all blocks of a seed are one block.
"""

from __future__ import annotations

import sys

from numba import config, cuda, float64

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

    barrier = together

    def thread_place(parts):
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
    def thread_place(parts):
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
def halve(part, n, lane, mask):
    """part[:n] <- the half of part[: 2 n] that is this thread's, added to that of the thread across `mask`.

    The upper half goes to those whose number has the bit.
    """
    upper = lane & mask != 0
    for i in range(n):
        kept, given = (part[i + n], part[i]) if upper else (part[i], part[i + n])
        part[i] = kept + exchange(given, mask)


@device
def block_sum(part, warp_sums, turn, shape, tid, size):
    """part <- its sum over the agents of a block, for the E coordinates of this thread.

    warp_sums : (turns, warps, E threads) in shared memory, of which `turn` picks one that nobody reads any more: so one
    barrier is enough. shape : threads of an agent, which count as one, and E.
    """
    threads, E = shape
    lane, warp, warps = tid % WARP, tid // WARP, size // WARP
    if threads == 1 and E == 8:  # halve what a lane holds at each exchange: it ends with one coordinate
        halve(part, 4, lane, WARP // 2)
        halve(part, 2, lane, WARP // 4)
        halve(part, 1, lane, WARP // 8)
        c = part[0]
        if WARP == 32:
            c += exchange(c, 2)
            c += exchange(c, 1)
        coordinate = lane // (WARP // 8)
        if warps > 1:
            if lane % (WARP // 8) == 0:
                warp_sums[turn, warp, coordinate] = c
            barrier()
            c = (warp_sums[turn, 0, coordinate] + warp_sums[turn, 1, coordinate]) + (
                warp_sums[turn, 2, coordinate] + warp_sums[turn, 3, coordinate]
            )  # those of warps that are not there are 0
            for w in range(4, warps):
                c += warp_sums[turn, w, coordinate]
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
                warp_sums[turn, warp, i * threads + lane] = value
        if warps > 1:
            barrier()
            for i in range(E):
                value = warp_sums[turn, 0, i * threads + tid % threads]
                for w in range(1, warps):
                    value += warp_sums[turn, w, i * threads + tid % threads]
                part[i] = value
