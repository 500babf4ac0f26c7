"""Random numbers of sixteen chains at once: what engine/random.py says, written into the kernel lane by lane."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .random import OBSERVATION, philox
from .vectors import I32, I64, mix, operation


class Lanes:
    """A vector of the code under construction as a number: `philox` on it writes its instructions."""

    def __init__(self, builder: Any, value: Any, upper: Any = None) -> None:
        self.builder, self.value, self.upper = builder, value, upper

    def _with(self, name: str, other: Any) -> Lanes:
        if not isinstance(other, Lanes):
            kind = self.value.type
            other = Lanes(self.builder, ir.Constant(kind, [int(other) & (1 << kind.element.width) - 1] * kind.count))
        return Lanes(self.builder, getattr(self.builder, name)(self.value, other.value))

    def __add__(self, other: Any) -> Lanes:
        return self._with("add", other)

    def __and__(self, other: Any) -> Lanes:
        return self._with("and_", other)

    def __xor__(self, other: Any) -> Lanes:
        return self._with("xor", other)

    def __mul__(self, other: Any) -> Lanes:
        """On 32-bit lanes the upper half of the product is kept beside the lower one."""
        b, kind = self.builder, self.value.type
        if kind.element == I64:
            return self._with("mul", other)
        double = ir.VectorType(I64, kind.count)
        product = b.mul(b.zext(self.value, double), ir.Constant(double, [int(other)] * kind.count))
        halves = b.bitcast(product, ir.VectorType(I32, 2 * kind.count))  # LLVM undoes shifts and cuts badly
        low, high = (mix(b, halves, [2 * i + side for i in range(kind.count)]) for side in (0, 1))
        return Lanes(b, low, high)

    def __rshift__(self, other: Any) -> Lanes:
        return self._with("lshr", other) if self.upper is None else Lanes(self.builder, self.upper)


@intrinsic
def random_words(context: Any, index: Any, agent: Any, key_low: Any, key_high: Any) -> Any:
    """The four random words of block `index` of each lane's observations; see engine/random.py."""

    def emit(b: Any, *args: Any) -> Any:
        c0, c1, k0, k1 = (Lanes(b, x) for x in args)
        zero = c0 ^ c0
        words = philox(c0, c1, zero + OBSERVATION, zero, k0, k1)
        return cgutils.pack_array(b, [w.value for w in words])

    return operation(types.UniTuple(index, 4), (index, agent, key_low, key_high), emit)


@intrinsic
def pick(context: Any, word: Any, entry: Any, shift: Any, low: Any) -> Any:
    """`choose` of engine/random.py: the slot's own outcome if the coin is below its threshold, else the alias."""

    def emit(b: Any, w: Any, e: Any, s: Any, mask: Any) -> Any:
        own = b.icmp_unsigned("<", b.and_(w, mask), b.and_(e, mask))
        return b.lshr(b.select(own, w, e), s)

    return operation(word, (word, entry, shift, low), emit)
