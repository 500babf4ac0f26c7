"""Wide vectors and memory: loads, stores, look-ups and gathers, whole rows at a time."""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import I1, I32, I64, Vec, call, concat, mix, operation, splat

# code for a generic processor must not ask for what only this one has
FEATURES = {} if config.CPU_NAME == "generic" or config.CPU_FEATURES else binding.get_host_cpu_features()
AVX512 = "x86" in binding.get_process_triple() and bool(FEATURES.get("avx512f"))


def _pointer(b: Any, base: Any, index: Any, lanes: int | None = None, offset: int = 0) -> Any:
    """Pointer to base[index + offset], as one element or as a vector of `lanes` of them."""
    if offset:
        index = b.add(index, I64(offset))
    q = b.gep(base, [index])
    return q if lanes is None else b.bitcast(q, ir.VectorType(base.type.pointee, lanes).as_pointer())


def _align(vector: Any) -> int:
    return 8 if vector.element in (ir.DoubleType(), I64) else 4


def _load(b: Any, v: Vec, p: Any, i: Any) -> Any:
    return b.load(_pointer(b, p, i, v.n), align=_align(v.ir))


@intrinsic(prefer_literal=True)
def load(context: Any, array: Any, offset: Any, n: Any) -> Any:
    """array[offset : offset + n]."""
    v = Vec(array.dtype, n.literal_value)
    return operation(v, (array, types.intp, n), lambda b, p, i, _: _load(b, v, p, i))


@intrinsic
def store(context: Any, array: Any, offset: Any, v: Any) -> Any:
    """array[offset : offset + n] = v; 64-bit lanes are cut, or rounded, when the array holds 32-bit numbers."""

    def emit(b: Any, p: Any, i: Any, x: Any) -> None:
        element = p.type.pointee
        if element != x.type.element:
            x = (b.fptrunc if v.is_float else b.trunc)(x, ir.VectorType(element, v.n))
        b.store(x, _pointer(b, p, i, v.n), align=_align(x.type))

    return operation(types.void, (array, types.intp, v), emit)


@intrinsic
def gather(context: Any, table: Any, index: Any) -> Any:
    """table[index], lane by lane; index on 32-bit lanes, below 2^31; table of 32-bit integers."""

    def emit(b: Any, p: Any, i: Any) -> Any:
        if index.n == 16 and AVX512:  # LLVM, which knows no bound of the indices, would make them 64 bits wide
            place, all_lanes = b.bitcast(p, ir.IntType(8).as_pointer()), ir.Constant(ir.VectorType(I1, 16), [1] * 16)
            zero = ir.Constant(index.ir, [0] * 16)
            return call(b, "llvm.x86.avx512.mask.gather.dpi.512", index.ir, [zero, place, i, all_lanes, I32(4)])
        n, wide = index.n, ir.VectorType(I64, index.n)
        start = splat(b, b.ptrtoint(p, I64), n)
        address = b.add(start, b.shl(b.zext(i, wide), ir.Constant(wide, [2] * n)))
        pointers = b.inttoptr(address, ir.VectorType(p.type, n))
        args = [pointers, I32(4), ir.Constant(ir.VectorType(I1, n), [1] * n), ir.Constant(index.ir, ir.Undefined)]
        return call(b, f"llvm.masked.gather.v{n}i32.v{n}p0", index.ir, args)

    return operation(index, (table, index), emit)


@intrinsic(prefer_literal=True)
def integers(context: Any, array: Any, offset: Any, G: Any) -> Any:
    """The tuple of G integers array[offset : offset + G]."""
    n = G.literal_value

    def emit(b: Any, p: Any, i: Any, _: Any) -> Any:
        return cgutils.pack_array(b, [b.zext(b.load(_pointer(b, p, i, offset=g)), I64) for g in range(n)])

    return operation(types.UniTuple(types.intp, n), (array, types.intp, G), emit)


@intrinsic
def anew(context: Any, k: Any) -> Any:
    """The same integers, of which LLVM does not know that they are: what they point to is loaded again, not kept."""
    kind = ir.FunctionType(I64, [I64])
    return operation(k, (k,), lambda b, x: cgutils.pack_array(b, [b.asm(kind, "", "=r,0", [i], False) for i in x]))


@intrinsic(prefer_literal=True)
def look_up(context: Any, table: Any, index: Any, width: Any, column: Any) -> Any:
    """The tuple of integers table[index[g] * width + column]."""
    w, c = width.literal_value, column.literal_value

    def emit(b: Any, p: Any, k: Any, *_: Any) -> Any:
        return cgutils.pack_array(b, [b.zext(b.load(_pointer(b, p, b.mul(i, I64(w)), offset=c)), I64) for i in k])

    return operation(index, (table, index, width, column), emit)


@intrinsic(prefer_literal=True)
def fetch_ahead(context: Any, table: Any, index: Any, offset: Any, G: Any, width: Any) -> Any:
    """Ask for the cache lines of table[index[offset + g] * width], g < G, which will be read soon."""
    w, byte = width.literal_value, ir.IntType(8).as_pointer()

    def emit(b: Any, p: Any, k: Any, i: Any, *_: Any) -> None:
        for g in range(G.literal_value):
            place = _pointer(b, p, b.mul(b.zext(b.load(_pointer(b, k, i, offset=g)), I64), I64(w)))
            kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
            function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
            b.call(function, [b.bitcast(place, byte), I32(0), I32(3), I32(1)])

    return operation(types.void, (table, index, types.intp, G, width), emit)


@intrinsic(prefer_literal=True)
def rows(context: Any, table: Any, index: Any, d: Any) -> Any:
    """The rows table[index[g] : index[g] + d], one after the other: G d lanes."""
    n = d.literal_value
    v = Vec(table.dtype, n * len(index))

    def emit(b: Any, p: Any, k: Any, _: Any) -> Any:
        return concat(b, [b.load(_pointer(b, p, i, n), align=_align(v.ir)) for i in k])

    return operation(v, (table, index, d), emit)


@intrinsic(prefer_literal=True)
def first_lane(context: Any, table: Any, index: Any, width: Any, column: Any, d: Any) -> Any:
    """Rows (table[index[g] * width + column], 0, ..., 0): adding y to a dot product before its fold costs nothing."""
    n, w, c = d.literal_value, width.literal_value, column.literal_value
    v = Vec(table.dtype, n * len(index))

    def emit(b: Any, p: Any, k: Any, *_: Any) -> Any:
        zero = ir.Constant(ir.VectorType(v.ir.element, n), [0.0] * n)
        found = (b.load(_pointer(b, p, b.mul(i, I64(w)), offset=c)) for i in k)
        return concat(b, [b.insert_element(zero, x, I32(0)) for x in found])

    return operation(v, (table, index, width, column, d), emit)


@intrinsic
def add_rows(context: Any, total: Any, weights: Any, offset: Any, v: Any) -> Any:
    """total + sum_g weights[offset + g] v[g], in the order of the rows v[g], which are as long as total."""
    d = total.n

    def emit(b: Any, s: Any, p: Any, i: Any, x: Any) -> Any:
        for g in range(v.n // d):
            w = splat(b, b.load(_pointer(b, p, i, offset=g)), d)
            s = call(b, f"llvm.fma.v{d}f64", total.ir, [w, mix(b, x, list(range(g * d, (g + 1) * d))), s])
        return s

    return operation(total, (total, weights, types.intp, v), emit)


@intrinsic(prefer_literal=True)
def rows_of_seeds(context: Any, array: Any, start: Any, q: Any, same: Any, G: Any, d: Any) -> Any:
    """The rows array[s : s + d] with s = start[q + g] for g < G; where `same`, all of them are start[q]."""
    n, count = d.literal_value, G.literal_value
    v = Vec(array.dtype, n * count)

    def emit(b: Any, p: Any, s: Any, i: Any, alike: Any, *_: Any) -> Any:
        def row(g: int) -> Any:
            return b.load(_pointer(b, p, b.load(_pointer(b, s, i, offset=g)), n), align=_align(v.ir))

        with b.if_else(alike) as (then, otherwise):
            with then:
                one, first = mix(b, row(0), list(range(n)) * count), b.block
            with otherwise:
                each, second = concat(b, [row(g) for g in range(count)]), b.block
        out = b.phi(v.ir)
        out.add_incoming(one, first)
        out.add_incoming(each, second)
        return out

    return operation(v, (array, start, types.intp, types.boolean, G, d), emit)
