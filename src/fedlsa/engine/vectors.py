"""Wide vectors for Numba: a type over LLVM vectors, portable to any machine that LLVM splits them for.

Numba has no vector type and its loop vectoriser gives up on the folds of many short dot products. Here a vector of n
lanes is a value like any other; LLVM maps it to the registers at hand (zmm, ymm, neon). The few operations below are all
that the kernel needs. None of them reorders floating-point sums: the same inputs give the same bits for any width.
tests/engine/test_vectors.py holds each to its NumPy meaning.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, overload, register_model, typeof_impl, unbox
from numba.np.arrayobj import make_array

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
ELEMENT = {types.float64: ir.DoubleType(), types.float32: ir.FloatType(), types.uint64: I64, types.uint32: I32}


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
class _VecModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Vec) -> None:
        super().__init__(dmm, fe_type, fe_type.ir)


class Shape:
    """Compile-time sizes, carried by a type: rows of d lanes, the parameters of G chains side by side in one vector.

    `pieces` says that d lanes are only a piece of a row, which is worked through piece by piece.
    """

    def __init__(self, d: int, G: int, pieces: bool = False) -> None:
        self.d, self.G, self.pieces = d, G, pieces


class ShapeType(types.Opaque):  # type: ignore[misc]
    def __init__(self, d: int, G: int, pieces: bool) -> None:
        self.d, self.G, self.pieces = d, G, pieces
        super().__init__(name=f"Shape({d}, {G}, {pieces})")


register_model(ShapeType)(models.OpaqueModel)


@typeof_impl.register(Shape)
def _typeof_shape(value: Shape, context: Any) -> ShapeType:
    return ShapeType(value.d, value.G, value.pieces)


@unbox(ShapeType)
def _unbox_shape(typ: ShapeType, obj: Any, c: Any) -> Any:
    return NativeValue(c.context.get_dummy_value())


# ---------------------------------------------------------------- how an intrinsic is written


def _op(result: types.Type, args: tuple[Any, ...], emit: Any) -> Any:
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


def _mix(b: Any, x: Any, mask: list[int]) -> Any:
    return b.shuffle_vector(x, x, ir.Constant(ir.VectorType(I32, len(mask)), mask))


def _splat(b: Any, x: Any, n: int) -> Any:
    return _mix(b, b.insert_element(ir.Constant(ir.VectorType(x.type, n), ir.Undefined), x, I32(0)), [0] * n)


def _concat(b: Any, parts: list[Any]) -> Any:
    while len(parts) > 1:
        width = 2 * parts[0].type.count
        mask = ir.Constant(ir.VectorType(I32, width), list(range(width)))
        parts = [b.shuffle_vector(p, q, mask) for p, q in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _pointer(b: Any, base: Any, index: Any, lanes: int | None = None, offset: int = 0) -> Any:
    """Pointer to base[index + offset], as one element or as a vector of `lanes` of them."""
    if offset:
        index = b.add(index, I64(offset))
    q = b.gep(base, [index])
    return q if lanes is None else b.bitcast(q, ir.VectorType(base.type.pointee, lanes).as_pointer())


def _align(vector: Any) -> int:
    return 8 if vector.element in (ir.DoubleType(), I64) else 4


def _call(b: Any, name: str, result: Any, args: list[Any]) -> Any:
    signature = ir.FunctionType(result, [a.type for a in args])
    return b.call(cgutils.get_or_insert_function(b.module, signature, name), args)


# ---------------------------------------------------------------- arithmetic, lane by lane; a scalar goes to all lanes


def _fit(b: Any, value: Any, vec: Vec) -> Any:
    """A scalar as a vector of vec's type: integers are cut or extended to the lane's width."""
    if isinstance(value.type, ir.VectorType):
        return value
    want = vec.ir.element
    if isinstance(want, ir.IntType) and value.type.width != want.width:
        value = b.trunc(value, want) if value.type.width > want.width else b.zext(value, want)
    return _splat(b, value, vec.n)


def _binary(op: Any, float_instruction: str, integer_instruction: str) -> None:
    @intrinsic
    def lanewise(context: Any, x: Any, y: Any) -> Any:
        v = x if isinstance(x, Vec) else y
        name = float_instruction if v.is_float else integer_instruction
        return _op(v, (x, y), lambda b, p, q: getattr(b, name)(_fit(b, p, v), _fit(b, q, v)))

    @overload(op)
    def choose(x, y):  # Numba compares signatures, so no annotations here
        v = x if isinstance(x, Vec) else y
        if not isinstance(v, Vec):
            return None
        scalar = types.Integer if not v.is_float else v.element
        for t in (x, y):
            if t != v and not (t == scalar if v.is_float else isinstance(t, types.Integer)):
                return None
        return lambda x, y: lanewise(x, y)


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
        return _call(b, f"llvm.fma.v{v.n}{suffix}", v.ir, [_fit(b, a, v) for a in args])

    return _op(v, (x, y, z), emit)


@intrinsic
def wide_product(context: Any, x: Any, m: Any) -> Any:
    """The upper and lower halves of x * m on 32-bit lanes."""

    def emit(b: Any, p: Any, q: Any) -> Any:
        double = ir.VectorType(I64, x.n)
        product = b.mul(b.zext(p, double), b.zext(_fit(b, q, x), double))
        halves = b.bitcast(product, ir.VectorType(I32, 2 * x.n))  # shuffles, since LLVM undoes shifts and cuts badly
        return cgutils.pack_array(b, [_mix(b, halves, [2 * i + side for i in range(x.n)]) for side in (1, 0)])

    return _op(types.UniTuple(x, 2), (x, m), emit)


# ---------------------------------------------------------------- memory


@intrinsic(prefer_literal=True)
def load(context: Any, array: Any, offset: Any, n: Any) -> Any:
    """array[offset : offset + n]."""
    v = Vec(array.dtype, n.literal_value)
    return _op(v, (array, types.intp, n), lambda b, p, i, _: b.load(_pointer(b, p, i, v.n), align=_align(v.ir)))


@intrinsic
def load_block(context: Any, shape: Any, array: Any, offset: Any) -> Any:
    """array[offset : offset + G d]: the parameters of G chains that stand one after the other."""
    v = Vec(array.dtype, shape.G * shape.d)
    emit = lambda b, _, p, i: b.load(_pointer(b, p, i, v.n), align=_align(v.ir))  # noqa: E731
    return _op(v, (shape, array, types.intp), emit)


@intrinsic
def load_few(context: Any, shape: Any, array: Any, offset: Any) -> Any:
    """array[offset : offset + G]: one number for each of G chains."""
    v = Vec(array.dtype, shape.G)
    emit = lambda b, _, p, i: b.load(_pointer(b, p, i, v.n), align=_align(v.ir))  # noqa: E731
    return _op(v, (shape, array, types.intp), emit)


@intrinsic(prefer_literal=True)
def load_wide(context: Any, array: Any, offset: Any, n: Any) -> Any:
    """array[offset : offset + n] of 32-bit integers, on 64-bit lanes."""
    v = Vec(types.uint64, n.literal_value)
    emit = lambda b, p, i, _: b.zext(b.load(_pointer(b, p, i, v.n), align=4), v.ir)  # noqa: E731
    return _op(v, (array, types.intp, n), emit)


# Products of 32-bit words: x86 multiplies the lower halves of 64-bit lanes in one instruction, Arm packed 32-bit lanes.
load_words = load_wide if "x86" in binding.get_process_triple() else load


@intrinsic
def store(context: Any, array: Any, offset: Any, v: Any) -> Any:
    """array[offset : offset + n] = v; 64-bit lanes are cut when the array holds 32-bit integers."""

    def emit(b: Any, p: Any, i: Any, x: Any) -> None:
        element = p.type.pointee
        x = x if element == x.type.element else b.trunc(x, ir.VectorType(element, v.n))
        b.store(x, _pointer(b, p, i, v.n), align=_align(x.type))

    return _op(types.void, (array, types.intp, v), emit)


@intrinsic
def gather(context: Any, table: Any, index: Any) -> Any:
    """table[index], lane by lane; index on 32-bit lanes, table of 32-bit integers."""

    def emit(b: Any, p: Any, i: Any) -> Any:
        n, wide = index.n, ir.VectorType(I64, index.n)
        start = _splat(b, b.ptrtoint(p, I64), n)
        address = b.add(start, b.shl(b.zext(i, wide), ir.Constant(wide, [2] * n)))
        pointers = b.inttoptr(address, ir.VectorType(p.type, n))
        args = [pointers, I32(4), ir.Constant(ir.VectorType(I1, n), [1] * n), ir.Constant(index.ir, ir.Undefined)]
        return _call(b, f"llvm.masked.gather.v{n}i32.v{n}p0", index.ir, args)

    return _op(index, (table, index), emit)


@intrinsic
def integers(context: Any, shape: Any, array: Any, offset: Any, stride: Any) -> Any:
    """The tuple of G integers array[offset + g * stride], g = 0 ... G - 1."""

    def emit(b: Any, _: Any, p: Any, i: Any, s: Any) -> Any:
        values = []
        for _g in range(shape.G):
            values.append(b.zext(b.load(_pointer(b, p, i)), I64))
            i = b.add(i, s)
        return cgutils.pack_array(b, values)

    return _op(types.UniTuple(types.intp, shape.G), (shape, array, types.intp, types.intp), emit)


@intrinsic(prefer_literal=True)
def look_up(context: Any, table: Any, index: Any, width: Any, column: Any) -> Any:
    """The tuple of integers table[index[g] * width + column]."""
    w, c = width.literal_value, column.literal_value

    def emit(b: Any, p: Any, k: Any, *_: Any) -> Any:
        return cgutils.pack_array(b, [b.zext(b.load(_pointer(b, p, b.mul(i, I64(w)), offset=c)), I64) for i in k])

    return _op(index, (table, index, width, column), emit)


@intrinsic
def rows(context: Any, shape: Any, table: Any, index: Any) -> Any:
    """The rows table[index[g] : index[g] + d], one after the other: G d lanes."""
    v = Vec(table.dtype, shape.d * len(index))

    def emit(b: Any, _: Any, p: Any, k: Any) -> Any:
        return _concat(b, [b.load(_pointer(b, p, i, shape.d), align=_align(v.ir)) for i in k])

    return _op(v, (shape, table, index), emit)


@intrinsic
def store_rows(context: Any, shape: Any, table: Any, index: Any, v: Any) -> Any:
    """table[index[g] : index[g] + d] = the g-th row of v."""

    def emit(b: Any, _: Any, p: Any, k: Any, x: Any) -> None:
        for g, i in enumerate(k):
            row = _mix(b, x, list(range(g * shape.d, (g + 1) * shape.d)))
            b.store(row, _pointer(b, p, i, shape.d), align=_align(v.ir))

    return _op(types.void, (shape, table, index, v), emit)


@intrinsic
def first_lane(context: Any, shape: Any, table: Any, index: Any) -> Any:
    """Rows (table[index[g]], 0, ..., 0): adding y to a dot product before its fold costs nothing."""
    v = Vec(table.dtype, shape.d * len(index))

    def emit(b: Any, _: Any, p: Any, k: Any) -> Any:
        zero = ir.Constant(ir.VectorType(v.ir.element, shape.d), [0.0] * shape.d)
        return _concat(b, [b.insert_element(zero, b.load(_pointer(b, p, i)), I32(0)) for i in k])

    return _op(v, (shape, table, index), emit)


# ---------------------------------------------------------------- across lanes


@intrinsic
def fold(context: Any, shape: Any, v: Any) -> Any:
    """The sum of each row of d lanes, as a halving tree: x[:h] + x[h:] with h = d/2, d/4, ..., 1."""
    d, G = shape.d, v.n // shape.d

    def emit(b: Any, _: Any, x: Any) -> Any:
        h = d // 2
        while h:
            low = [g * 2 * h + j for g in range(G) for j in range(h)]
            x = b.fadd(_mix(b, x, low), _mix(b, x, [i + h for i in low]))
            h //= 2
        return x

    return _op(Vec(v.element, G), (shape, v), emit)


@intrinsic
def spread(context: Any, shape: Any, v: Any) -> Any:
    """Each lane repeated d times."""
    mask = [g for g in range(v.n) for _ in range(shape.d)]
    return _op(Vec(v.element, len(mask)), (shape, v), lambda b, _, x: _mix(b, x, mask))


@intrinsic
def align_stack(context: Any) -> Any:
    """Align the stack frame to 64 bytes, so that spilled registers never straddle cache lines."""

    def emit(b: Any) -> None:
        p = cgutils.alloca_once(b, ir.VectorType(ir.DoubleType(), 8))
        p.align = 64
        b.asm(ir.FunctionType(ir.VoidType(), [p.type]), "", "r", [p], True)

    return _op(types.void, (), emit)



@overload(len)
def _shape_length(shape):
    """len(shape) is d, the lanes of one row."""
    if isinstance(shape, ShapeType):
        d = shape.d
        return lambda shape: d
    return None
