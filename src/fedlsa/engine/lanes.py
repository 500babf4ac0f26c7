"""Random numbers of sixteen chains at once: what engine/random.py says, written into the kernel lane by lane."""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from .cpu_record import AGENT, BLOCK, KEY_HIGH, KEY_LOW
from .random import KEY_STEPS, OBSERVATION, philox
from .vectors import I32, I64, mix, operation, splat

# Products of 32-bit words: x86 multiplies the lower halves of 64-bit lanes in one instruction, Arm packed 32-bit lanes.
WIDE = "x86" in binding.get_process_triple()
KEY_WORDS = 2 * 11 * 16 * 2  # 32-bit words that the round keys of sixteen lanes take, at most


class Lanes:
    """A vector of the code under construction as a number: `philox` on it writes its instructions."""

    def __init__(self, builder: Any, value: Any, upper: Any = None) -> None:
        self.builder, self.value, self.upper = builder, value, upper

    def _with(self, name: str, other: Any) -> Any:
        if isinstance(other, RoundKey):
            return NotImplemented
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


class RoundKey:
    """A key of `philox` whose sums were written down: adding to it goes on to the next of them."""

    def __init__(self, builder: Any, places: list[Any]) -> None:
        self.builder, self.places = builder, places

    def __add__(self, other: Any) -> RoundKey:
        return RoundKey(self.builder, self.places[1:])

    def __rxor__(self, other: Lanes) -> Lanes:
        return other ^ Lanes(self.builder, self.builder.load(self.places[0], align=64))


def _row(b: Any, p: Any, q: Any, n: Any, row: int) -> Lanes:
    """A row of words of the lanes q, ..., q + 15 of n."""
    place = b.gep(p, [b.add(q, b.mul(n, I64(row)))])
    x = b.load(b.bitcast(place, ir.VectorType(I32, 16).as_pointer()), align=4)
    return Lanes(b, b.zext(x, ir.VectorType(I64, 16)) if WIDE else x)


def _key_places(b: Any, keys: Any) -> list[list[Any]]:
    """Where the round keys are, for the lower and the upper half of the seed."""
    kind = ir.VectorType(I64 if WIDE else I32, 16)
    first = b.bitcast(keys, kind.as_pointer())
    return [[b.gep(first, [I64(11 * half + i)]) for i in range(11)] for half in range(2)]


@intrinsic
def round_keys(context: Any, keys: Any, lanes: Any, q: Any, n: Any) -> Any:
    """Write down what `philox` adds to its keys, round by round, for lanes q, ..., q + 15; keys : KEY_WORDS words."""

    def emit(b: Any, keys: Any, p: Any, q: Any, n: Any) -> None:
        for row, step, places in zip((KEY_LOW, KEY_HIGH), KEY_STEPS, _key_places(b, keys), strict=True):
            key = _row(b, p, q, n, row)
            for place in places:
                b.store(key.value, place, align=64)
                key = key + step

    return operation(types.void, (keys, lanes, types.int64, types.int64), emit)


@intrinsic
def random_words(context: Any, out: Any, keys: Any, lanes: Any, q: Any, n: Any, ahead: Any) -> Any:
    """out[64 ahead : 64 ahead + 64] = the four random words of the block `ahead` of each lane's present one.

    The lanes are q, ..., q + 15 of n; engine/cpu_record.py says what they hold, engine/random.py what is drawn.
    """

    def emit(b: Any, out: Any, keys: Any, p: Any, q: Any, n: Any, ahead: Any) -> None:
        index = _row(b, p, q, n, BLOCK) + Lanes(b, splat(b, ahead if WIDE else b.trunc(ahead, I32), 16))
        zero = index ^ index
        low, high = (RoundKey(b, places) for places in _key_places(b, keys))
        words = philox(index, _row(b, p, q, n, AGENT), zero + OBSERVATION, zero, low, high)
        for i, x in enumerate(words):
            place = b.gep(out, [b.add(b.mul(ahead, I64(64)), I64(16 * i))])
            place = b.bitcast(place, ir.VectorType(I32, 16).as_pointer())
            b.store(b.trunc(x.value, ir.VectorType(I32, 16)) if WIDE else x.value, place, align=4)

    return operation(types.void, (out, keys, lanes, types.int64, types.int64, types.int64), emit)


@intrinsic
def columns(context: Any, offset: Any) -> Any:
    """16 offset + lane, for each of sixteen lanes."""
    lane = ir.Constant(offset.ir, list(range(16)))
    return operation(offset, (offset,), lambda b, x: b.add(b.shl(x, ir.Constant(offset.ir, [4] * 16)), lane))


@intrinsic
def pick(context: Any, word: Any, entry: Any, shift: Any) -> Any:
    """`choose` of engine/random.py: the slot's own outcome if the coin is below its threshold, else the alias."""

    def emit(b: Any, w: Any, e: Any, s: Any) -> Any:
        bits = b.sub(ir.Constant(s.type, [32] * s.type.count), s)
        own = b.icmp_unsigned("<", b.shl(w, bits), b.shl(e, bits))
        return b.lshr(b.select(own, w, e), s)

    return operation(word, (word, entry, shift), emit)
