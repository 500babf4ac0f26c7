"""The struct that compiled kernels work on: numbers and addresses, which Python fills and kernels read.

A function that calls another is compiled together with it, once for every kind of either. Here each is compiled, cached
and loaded on its own: what they work on is a struct, and they call what stands at an address.

A task is one configuration with some of its seeds. A chain is an (agent, seed) pair; sixteen of them make a group,
a lane each. Chains stand in the order (chunk of 16 agents, seed, agent), so that a group holds sixteen agents of one
seed. The N % 16 agents that are left follow in the order (agent, seed), and idle lanes fill their last group. When only
some agents take part, in tasks of one seed, lane a is the a-th of them. All parameters are rows of D >= dim numbers,
padded with zeros, in flat arrays; R seeds, P chains.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float64, int64, types, uint32
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model
from numpy.typing import NDArray

from ..kernel_cache import cached
from .vectors import ELEMENT, I32, I64, operation

LINE = 64  # bytes of a cache line: vectors that straddle two cost two loads
COPIED_BYTES = 4096  # of an array, at most: it is sooner copied than asked where it stands
KERNEL = types.void(*[types.int64] * 8)
YIELDS = hasattr(os, "sched_yield")  # else a thread that waits would hold its core
PATIENCE = 4000  # tries at a counter before a thread that waits lets others have its core
REAL = "real"  # a field's kind: the type of the local steps


def compiled(function: Callable[..., None]) -> Any:
    """A kernel, compiled or from the disk cache; others call its `address`."""
    collecting = gc.isenabled()
    gc.disable()  # a compiler makes many objects and little garbage: looking for it takes a tenth of the time
    try:
        options = {"error_model": "numpy", "_nrt": False}
        kernel = cached(CFunc(function, (KERNEL.args, KERNEL.return_type), {}, options), function)
        kernel.compile()
        return kernel
    finally:
        if collecting:
            gc.enable()


# ---------------------------------------------------------------- structs


class StructType(types.Type):
    """A task, with local steps of type `real`: fields of kind int64 and float64 are numbers, the others arrays."""

    def __init__(self, real: types.Type) -> None:
        arrays = {name: kind[0] for name, kind in FIELDS.items() if isinstance(kind, tuple)}
        pointers = {name: types.CPointer(real if kind is REAL else kind) for name, kind in arrays.items()}
        self.fields, self.place = FIELDS | pointers, {name: 8 * i for i, name in enumerate(FIELDS)}
        super().__init__(name=f"TaskStruct({real})")


@register_model(StructType)
class _StructModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: StructType) -> None:
        super().__init__(dmm, fe_type, I64)  # its address


@infer_getattr
class _StructFields(AttributeTemplate):
    key = StructType

    def generic_resolve(self, struct: StructType, name: str) -> Any:
        return struct.fields.get(name)


@lower_getattr_generic(StructType)
def _load_field(context: Any, b: Any, struct: StructType, at: Any, name: str) -> Any:
    kind = context.get_value_type(struct.fields[name])
    out = b.load(b.inttoptr(b.add(at, I64(struct.place[name])), kind.as_pointer()))
    out.set_metadata("invariant.load", b.module.add_metadata([]))  # no kernel changes a field
    return out


@intrinsic
def task_at(context: Any, address: Any, real: Any) -> Any:
    """The task at an address, with local steps of this type."""
    return operation(StructType(real.dtype), (types.int64, real), lambda b, at, _: at)


class TaskStruct:
    """The Python side of a struct: numbers, and arrays, (kind,), that it keeps alive, each from a cache line on."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.place = {name: i for i, name in enumerate(fields)}
        self.floats = {name for name, kind in fields.items() if kind == types.float64}
        self.words = np.zeros(len(fields), np.int64)
        self.arrays: dict[str, NDArray[Any]] = {}
        self.address = self.words.ctypes.data

    def copy(self) -> TaskStruct:
        """Another with the same numbers and the same arrays, until others are put in their place."""
        out = copy(self)
        out.words, out.arrays = self.words.copy(), self.arrays.copy()
        out.address = out.words.ctypes.data
        return out

    def put(self, **values: Any) -> None:
        """Set fields; small arrays are copied, side by side, and so are larger ones that are not aligned."""
        small, room = {}, LINE
        for name, value in values.items():
            if not isinstance(value, np.ndarray):
                words = self.words.view(np.float64) if name in self.floats else self.words
                words[self.place[name]] = value
            elif value.nbytes <= COPIED_BYTES:
                small[name] = value
                room += -(-value.nbytes // LINE) * LINE
            else:
                self.arrays[name] = value = align(value)
                self.words[self.place[name]] = value.ctypes.data
        if not small:
            return
        store = np.empty(room, np.uint8)
        begin = store.ctypes.data
        at = -begin % LINE
        for name, value in small.items():
            self.arrays[name] = out = np.ndarray(value.shape, value.dtype, store, at)
            out[...] = value
            self.words[self.place[name]] = begin + at
            at += -(-value.nbytes // LINE) * LINE

    def share(self, name: str, other: str) -> None:
        """Let two fields be one array."""
        self.arrays[name], self.words[self.place[name]] = self.arrays[other], self.words[self.place[other]]


def align(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, contiguous, from the beginning of a cache line on."""
    if array.flags.c_contiguous and array.ctypes.data % LINE == 0:
        return array
    room = np.empty(array.nbytes + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    out = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


# ---------------------------------------------------------------- the fields of a task


DRAWN_AT_ONCE = 64  # observations that a group draws at once: their words stay in the first-level cache
FETCHED_AHEAD = 64  # lanes: how far ahead short rounds ask for the outcomes that they will read
MEMBER = 8  # counters stand so far apart: each has a cache line of its own
GROUP = 16  # chains that draw together; a multiple of every number of chains that step together

# What a chain needs to draw, as rows of words. It has drawn 4 block + offset observations. slot : where its alias table
# begins; row : where its outcomes begin; for trajectories both are where the table of the present state begins.
# shift : 32 - bits of its tables; length : of its log
MOVING = ("block", "offset", "slot", "row")
WORDS = (*MOVING, "agent", "key_low", "key_high", "shift", "length")
BLOCK, OFFSET, SLOT, ROW, AGENT, KEY_LOW, KEY_HIGH, SHIFT, LENGTH = range(len(WORDS))

FIELDS = {
    "draw": int64,  # addresses of kernels
    "step": int64,
    "serve": int64,
    "exchange": int64,
    "apply_hook": int64,
    "estimate": int64,  # 0: theta itself is what the method gives
    "hook": int64,  # address of the method's own server step; 0: none
    "dim": int64,
    "D": int64,  # dim padded
    "seeds": int64,
    "agents": int64,  # N
    "participants": int64,  # m; N where all take part
    "groups": int64,
    "full_groups": int64,  # groups of sixteen agents of one seed, which stand first
    "ahead": int64,  # whether groups keep what they drew from round to round: pays when rounds are short
    "room": int64,  # observations drawn at once
    "stride": int64,  # of what is drawn: from one step to the next
    "radius": float64,  # of the projection; 0: none
    "average_after": int64,  # -1: never
    "parameter_count": int64,
    "parameters": (float64,),  # what the hook receives; or server, then change, of a linear server
    "blocks": int64,  # of which its memory is made: theta and what it remembers beside it
    "memory": (float64,),  # (2 (blocks - 1), R D padded to eights): that, and room for what follows
    # rounds, of engine/schedule.py
    "first": int64,
    "thin": int64,
    "observations": (int64,),  # (T,): of the longest round
    "step_sizes": (REAL,),  # (T,), or (T, N) where agents differ
    "gains": (float64,),
    "taking_part": (int64,),  # (T, m)
    "own_lengths": (uint32,),  # (T, N): observations of a round, where agents differ
    # observations
    "observe": int64,  # address of the function of a stream, engine/hooks.py
    "draw_state": (uint32,),  # (WORDS, P): what each chain needs to draw
    "all_draw_state": (uint32,),  # (WORDS, N): the same of all agents, when only some take part
    "slots": (uint32,),
    "successor": (uint32,),
    "rows": (REAL,),  # of a stream (groups, 3, D), shared: u, v and -y of what is drawn
    "pair": (uint32,),  # engine/cpu_kernel.py says how outcomes are laid out
    "minus_y": (REAL,),
    "ridge": (REAL,),  # (1,)
    "minus_discount": (REAL,),  # (1,)
    "zeros": (REAL,),  # (PIECE,)
    "drawn": (uint32,),  # (room, stride), when drawing ahead: the outcomes of all groups, step by step
    "cursors": (int64,),  # (3,): which of them are left, from and up to; how many rounds are recorded
    # chains
    "start": (int64,),  # (P,): where the row of its seed begins in theta
    "weights": (float64,),  # (P,)
    "hat": (REAL,),  # (P, D): local parameters
    "drift": (REAL,),  # (P, D): step size times control variate, of long rows
    "before_step": (REAL,),  # (P, D): local parameters before a dense step
    "variates": (float64,),  # (P, D): control variates + shift of their seed
    "last_shift": (float64,),  # (R, D): that shift; 0 when only some take part
    # (full_groups, D): sums over the agents of a group of w_c (theta_hat_c - theta), then the differences of the chains
    "partial": (float64,),  # that are left, (P - 16 full_groups, D)
    "partial_gained": (float64,),  # the same, each times its gain, where agents differ
    # the server
    "theta": (float64,),  # (R, D): the shared parameter
    "mean": (float64,),  # (R, D): the last average
    "shift_all": (float64,),  # (R, D): `last_shift`; when only some take part, sum_c w_c (xi_c + shift)
    "all_variates": (float64,),  # (N, D): xi_c + shift, when only some take part
    "all_weights": (float64,),  # (N,)
    "squares": (float64,),  # (R,): ||theta||^2, where somebody wants to know
    "running": (float64,),  # (R, D): the average of iterates
    "diverged": (int64,),  # (R,): first round whose theta is not finite, or -1
    "failed": (int64,),  # (R,): first round whose hook raised, or 0
    "recorded_rounds": (int64,),  # ending in -1, a round that never comes
    "recorded": (float64,),  # (records, R, D)
    # [0] members that have done their share, [MEMBER] rounds that are served, [MEMBER (m + 2)] rounds in which member m
    # has begun the group that the next one ends
    "counters": (int64,),
    # a sampling's own order
    "order": int64,  # address of its kernel, engine/hooks.py
    "longest": int64,  # of the passes of an order: rows of the longest table + 1
    "orders": (int64,),  # (chains, longest): the number of each chain's pass + 1, below 0 where it failed, and its rows
}

# ---------------------------------------------------------------- pointers and calls


@intrinsic
def pointer(context: Any, address: Any, kind: Any) -> Any:
    """What stands at an address, as numbers of a kind: p[i] is the i-th."""
    to = types.CPointer(kind.dtype)
    return operation(to, (types.int64, kind), lambda b, a, _: b.inttoptr(a, ELEMENT[kind.dtype].as_pointer()))


@intrinsic(prefer_literal=True)
def stack(context: Any, kind: Any, n: Any) -> Any:
    """Room for n numbers of a kind, as long as the function runs."""

    def emit(b: Any, *_: Any) -> Any:
        room = cgutils.alloca_once(b, ir.ArrayType(ELEMENT[kind.dtype], n.literal_value))
        room.align = LINE
        return b.bitcast(room, ELEMENT[kind.dtype].as_pointer())

    return operation(types.CPointer(kind.dtype), (kind, n), emit)


@intrinsic
def address(context: Any, p: Any) -> Any:
    """Where a pointer points to."""
    return operation(types.int64, (p,), lambda b, x: b.ptrtoint(x, I64))


@intrinsic
def invoke(context: Any, function: Any, eight: Any) -> Any:
    """Call the kernel at an address with eight integers."""
    kind = ir.FunctionType(ir.VoidType(), [I64] * 8).as_pointer()
    return operation(types.void, (types.int64, eight), lambda b, p, args: b.call(b.inttoptr(p, kind), args) and None)


# ---------------------------------------------------------------- threads that wait for one another


@intrinsic
def count_up(context: Any, counters: Any, i: Any) -> Any:
    """Add one to counters[i], for all threads in one order; what it was before."""

    def emit(b: Any, p: Any, i: Any) -> Any:
        return b.atomic_rmw("add", b.gep(p, [i]), I64(1), "seq_cst")

    return operation(types.int64, (counters, types.int64), emit)


@intrinsic
def wait_for(context: Any, counters: Any, i: Any, least: Any) -> Any:
    """Until counters[i] is at least so much: then all is seen that others did before they added to it."""

    def emit(b: Any, p: Any, i: Any, least: Any) -> None:
        tries = cgutils.alloca_once(b, I64)
        b.store(I64(0), tries)
        test, again, done = (b.append_basic_block(name) for name in ("test", "again", "done"))
        b.branch(test)
        b.position_at_end(test)
        b.cbranch(b.icmp_signed("<", b.load_atomic(b.gep(p, [i]), "acquire", 8), least), again, done)
        b.position_at_end(again)
        count = b.add(b.load(tries), I64(1))
        b.store(count, tries)
        if YIELDS:
            with b.if_then(b.icmp_signed(">", count, I64(PATIENCE))):
                b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(I32, []), "sched_yield"), [])
        b.branch(test)
        b.position_at_end(done)

    return operation(types.void, (counters, types.int64, types.int64), emit)
