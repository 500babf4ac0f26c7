"""Compiled functions that find one another, and what they work on, by address.

A function that calls another is compiled together with it, once for every kind of either. Here each is compiled, cached
and loaded on its own: what they work on is a record of numbers and addresses, and they call what stands at an address.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
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
HOOK = types.int32(*[types.CPointer(types.float64)] * 3, types.int64, types.int64)
YIELDS = hasattr(os, "sched_yield")  # else a thread that waits would hold its core
PATIENCE = 4000  # looks at a counter before a thread that waits lets others have its core
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


# ---------------------------------------------------------------- records


class RecordType(types.Type):
    """A record with fields of kinds: int64 and float64 are numbers, pointers to a kind are arrays of it."""

    def __init__(self, fields: dict[str, types.Type]) -> None:
        self.fields, self.place = fields, {name: 8 * i for i, name in enumerate(fields)}
        super().__init__(name=f"Record{tuple(fields.items())}")


@register_model(RecordType)
class _RecordModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: RecordType) -> None:
        super().__init__(dmm, fe_type, I64)  # its address


@infer_getattr
class _RecordFields(AttributeTemplate):
    key = RecordType

    def generic_resolve(self, record: RecordType, name: str) -> Any:
        return record.fields.get(name)


@lower_getattr_generic(RecordType)
def _load_field(context: Any, b: Any, record: RecordType, at: Any, name: str) -> Any:
    kind = context.get_value_type(record.fields[name])
    out = b.load(b.inttoptr(b.add(at, I64(record.place[name])), kind.as_pointer()))
    out.set_metadata("invariant.load", b.module.add_metadata([]))  # no kernel changes a field
    return out


def record_reader(fields: Mapping[str, Any]) -> Any:
    """The intrinsic (address, real) -> record of these fields; {name: kind}, arrays as (kind,)."""

    @intrinsic
    def read(context: Any, address: Any, real: Any) -> Any:
        def of(kind: Any) -> Any:
            if isinstance(kind, tuple):
                return types.CPointer(real.dtype if kind[0] is REAL else kind[0])
            return kind

        record = RecordType({name: of(kind) for name, kind in fields.items()})
        return operation(record, (types.int64, real), lambda b, at, _: at)

    return read


class FieldRecord:
    """The Python side of a record: numbers, and arrays that it keeps alive, each beginning at a cache line."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.place = {name: i for i, name in enumerate(fields)}
        self.floats = {name for name, kind in fields.items() if kind == types.float64}
        self.words = np.zeros(len(fields), np.int64)
        self.arrays: dict[str, NDArray[Any]] = {}
        self.address = self.words.ctypes.data

    def copy(self) -> FieldRecord:
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


@intrinsic
def invoke_hook(context: Any, function: Any, theta: Any, mean: Any, parameters: Any, n: Any, m: Any) -> Any:
    """Call the server step at an address: 0, or 1 where it raised; theta, mean : (n,), parameters : (m,)."""
    numbers = ELEMENT[types.float64].as_pointer()
    kind = ir.FunctionType(I32, [numbers] * 3 + [I64] * 2).as_pointer()

    def emit(b: Any, p: Any, *args: Any) -> Any:
        return b.call(b.inttoptr(p, kind), args)

    return operation(types.int32, (types.int64, theta, mean, parameters, types.int64, types.int64), emit)


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
        looks = cgutils.alloca_once(b, I64)
        b.store(I64(0), looks)
        look, again, done = (b.append_basic_block(name) for name in ("look", "again", "done"))
        b.branch(look)
        b.position_at_end(look)
        b.cbranch(b.icmp_signed("<", b.load_atomic(b.gep(p, [i]), "acquire", 8), least), again, done)
        b.position_at_end(again)
        count = b.add(b.load(looks), I64(1))
        b.store(count, looks)
        if YIELDS:
            with b.if_then(b.icmp_signed(">", count, I64(PATIENCE))):
                b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(I32, []), "sched_yield"), [])
        b.branch(look)
        b.position_at_end(done)

    return operation(types.void, (counters, types.int64, types.int64), emit)
