"""How threads of a block talk: exchanges within a warp, with a twin over shared memory for Numba's CUDA simulator.

The simulator runs a kernel as Python, a thread of the system per thread of the block, and knows no shuffles.
"""

from __future__ import annotations

import sys

from numba import config, cuda, float64

SIMULATED = bool(config.ENABLE_CUDASIM)
MOST_THREADS = 512  # of a block: their registers fill a multiprocessor
WARP = 32

if SIMULATED:
    kernel = cuda.jit

    def device(function):
        """A function that kernels call: here a plain one."""
        return function

    def _simulator():
        """Numba lends its simulated `cuda` to the module of the kernel that runs, and to no other."""
        return sys.modules[f"{__package__}.kernel"].cuda

    def _told(value, whom):
        here = _simulator()
        buffer = here.shared.array(MOST_THREADS, float64)
        here.syncthreads()
        buffer[here.threadIdx.x] = value
        here.syncthreads()
        return type(value)(buffer[whom(here.threadIdx.x)])

    def exchange(value, mask):
        """The value of the thread whose number differs in the bits of `mask`; all threads of the block take part."""
        return _told(value, lambda tid: tid ^ mask)

    def ask(value, lane):
        """The value of lane number `lane` of one's own warp; all threads of the block take part."""
        return _told(value, lambda tid: tid // WARP * WARP + lane)

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
