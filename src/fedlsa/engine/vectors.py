"""Wide vectors for Numba: a type over LLVM vectors, portable to any machine that LLVM splits them for.

Numba has no vector type and its loop vectoriser gives up on the folds of many short dot products. Here a vector of n
lanes is a value like any other; LLVM maps it to the registers at hand (zmm, ymm, neon). None of the operations reorders
floating-point sums: the same inputs give the same bits for any width. tests/engine/test_vectors.py holds each to its
NumPy meaning.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable
from numba.np.arrayobj import make_array

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
ELEMENT = {types.float64: ir.DoubleType(), types.float32: ir.FloatType(), types.int64: I64}
ELEMENT |= {types.uint64: I64, types.uint32: I32}
# code for a generic processor must not ask for what only this one has
FEATURES = {} if config.CPU_NAME == "generic" or config.CPU_FEATURES else binding.get_host_cpu_features()
AVX512 = "x86" in binding.get_process_triple() and bool(FEATURES.get("avx512f"))


class Vec(types.Type):
    """A vector of n lanes of one element type."""

    def __init__(self, element: types.Type, n: int) -> None:
        self.element, self.n = element, n
        self.ir = ir.VectorType(ELEMENT[element], n)
        super().__init__(name=f"Vec({element} x {n})")

    @property
    def is_float(self) -> bool:
        return isinstance(self.element, types.Float)


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Vec) -> None:
        super().__init__(dmm, fe_type, fe_type.ir)


# ---------------------------------------------------------------- how an intrinsic is written


def operation(result: types.Type, args: tuple[Any, ...], emit: Any) -> Any:
    """Typing and code of an intrinsic: emit gets a data pointer for an array and a list of values for a tuple."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        unpacked = []
        for kind, value in zip(signature.args, values, strict=True):
            if isinstance(kind, types.Array):
                value = make_array(kind)(context, builder, value).data
            elif isinstance(kind, types.BaseTuple):
                value = cgutils.unpack_tuple(builder, value)
            unpacked.append(value)
        out = emit(builder, *unpacked)
        return context.get_dummy_value() if out is None else out

    return result(*args), generate


def mix(b: Any, x: Any, mask: list[int]) -> Any:
    return b.shuffle_vector(x, x, ir.Constant(ir.VectorType(I32, len(mask)), mask))


def splat(b: Any, x: Any, n: int) -> Any:
    return mix(b, b.insert_element(ir.Constant(ir.VectorType(x.type, n), ir.Undefined), x, I32(0)), [0] * n)


def concat(b: Any, parts: list[Any]) -> Any:
    """Vectors of one length, one after the other; a power of two of them."""
    while len(parts) > 1:
        width = 2 * parts[0].type.count
        mask = ir.Constant(ir.VectorType(I32, width), list(range(width)))
        parts = [b.shuffle_vector(p, q, mask) for p, q in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def call(b: Any, name: str, result: Any, args: list[Any]) -> Any:
    signature = ir.FunctionType(result, [a.type for a in args])
    return b.call(cgutils.get_or_insert_function(b.module, signature, name), args)


# ---------------------------------------------------------------- arithmetic, lane by lane; a scalar goes to all lanes


def fit(b: Any, value: Any, vec: Vec) -> Any:
    """A scalar as a vector of vec's type: integers are cut or extended to the lane's width."""
    if isinstance(value.type, ir.VectorType):
        return value
    want = vec.ir.element
    if isinstance(want, ir.IntType) and value.type.width != want.width:
        value = b.trunc(value, want) if value.type.width > want.width else b.zext(value, want)
    return splat(b, value, vec.n)


def _binary(op: Any, float_instruction: str, integer_instruction: str) -> None:
    """Teach Numba an operator. Its code goes straight into the caller: an overload would be a function to compile."""

    @type_callable(op)
    def lanewise(context: Any) -> Any:
        def result(x: Any, y: Any) -> Any:
            v = x if isinstance(x, Vec) else y
            if not isinstance(v, Vec):
                return None
            fits = (t == v or (t == v.element if v.is_float else isinstance(t, types.Integer)) for t in (x, y))
            return v if all(fits) else None

        return result

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        v = signature.return_type
        name = float_instruction if v.is_float else integer_instruction
        return getattr(b, name)(*(fit(b, a, v) for a in args))

    for kinds in ((Vec, Vec), (Vec, types.Any), (types.Any, Vec)):
        lower_builtin(op, *kinds)(emit)


for _o, _f, _i in (
    (operator.add, "fadd", "add"),
    (operator.sub, "fsub", "sub"),
    (operator.mul, "fmul", "mul"),
    (operator.and_, "", "and_"),
    (operator.xor, "", "xor"),
    (operator.rshift, "", "lshr"),
):
    _binary(_o, _f, _i)


@intrinsic
def fma(context: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z with one rounding."""
    v = next(t for t in (x, y, z) if isinstance(t, Vec))
    suffix = "f64" if v.element == types.float64 else "f32"

    def emit(b: Any, *args: Any) -> Any:
        return call(b, f"llvm.fma.v{v.n}{suffix}", v.ir, [fit(b, a, v) for a in args])

    return operation(v, (x, y, z), emit)


@intrinsic
def convert(context: Any, v: Any, kind: Any) -> Any:
    """The same numbers as float64, exactly, or rounded to float32."""
    to = Vec(kind.dtype, v.n)

    def emit(b: Any, x: Any, _: Any) -> Any:
        if v == to:
            return x
        return b.fpext(x, to.ir) if to.element == types.float64 else b.fptrunc(x, to.ir)

    return operation(to, (v, kind), emit)


# ---------------------------------------------------------------- across lanes


@intrinsic(prefer_literal=True)
def fold(context: Any, v: Any, d: Any) -> Any:
    """The sum of each row of d lanes, as a halving tree: x[:h] + x[h:] with h = d/2, d/4, ..., 1."""
    length, G = d.literal_value, v.n // d.literal_value

    def emit(b: Any, x: Any, _: Any) -> Any:
        h = length // 2
        while h:
            low = [g * 2 * h + j for g in range(G) for j in range(h)]
            x = b.fadd(mix(b, x, low), mix(b, x, [i + h for i in low]))
            h //= 2
        return x

    return operation(Vec(v.element, G), (v, d), emit)


@intrinsic(prefer_literal=True)
def spread(context: Any, v: Any, d: Any) -> Any:
    """Each lane repeated d times."""
    mask = [g for g in range(v.n) for _ in range(d.literal_value)]
    return operation(Vec(v.element, len(mask)), (v, d), lambda b, x, _: mix(b, x, mask))


@intrinsic
def align_stack(context: Any) -> Any:
    """Align the stack frame to 64 bytes, so that spilled registers never straddle cache lines."""

    def emit(b: Any) -> None:
        p = cgutils.alloca_once(b, ir.VectorType(ir.DoubleType(), 8))
        p.align = 64
        b.asm(ir.FunctionType(ir.VoidType(), [p.type]), "", "r", [p], True)

    return operation(types.void, (), emit)


# ---------------------------------------------------------------- memory: whole rows at a time


def _pointer(b: Any, base: Any, index: Any, lanes: int | None = None, offset: int = 0) -> Any:
    """Pointer to base[index + offset], as one element or as a vector of `lanes` of them."""
    if offset:
        index = b.add(index, I64(offset))
    q = b.gep(base, [index])
    return q if lanes is None else b.bitcast(q, ir.VectorType(base.type.pointee, lanes).as_pointer())


def _align(vector: Any) -> int:
    return 8 if vector.element in (ir.DoubleType(), I64) else 4


@intrinsic(prefer_literal=True)
def load(context: Any, array: Any, offset: Any, n: Any) -> Any:
    """array[offset : offset + n]."""
    v = Vec(array.dtype, n.literal_value)
    return operation(v, (array, types.intp, n), lambda b, p, i, _: b.load(_pointer(b, p, i, v.n), align=_align(v.ir)))


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
def load_again(context: Any, k: Any) -> Any:
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
