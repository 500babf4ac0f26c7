"""Wide vectors for Numba: a type over LLVM vectors, portable to any machine that LLVM splits them for.

Numba has no vector type and its loop vectoriser gives up on the folds of many short dot products. Here a vector of n
lanes is a value like any other; LLVM maps it to the registers at hand (zmm, ymm, neon). These operations and those of
engine/memory.py are all that the kernel needs. None of them reorders floating-point sums: the same inputs give the same
bits for any width. tests/engine/test_vectors.py holds each to its NumPy meaning.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable
from numba.np.arrayobj import make_array

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
ELEMENT = {types.float64: ir.DoubleType(), types.float32: ir.FloatType(), types.int64: I64}
ELEMENT |= {types.uint64: I64, types.uint32: I32}


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
