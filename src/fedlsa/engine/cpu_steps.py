"""What chains do on their own in the compiled engine: which outcome each sees next, and the local step on it.

Sixteen chains (lanes) draw together: random words come first, vectorised over lanes; outcomes are then picked from them
without a branch, since a coin cannot be predicted. i.i.d., along a trajectory, or from a log.

Then G chains at a time do theta_hat <- theta_hat - eta (A(z) theta_hat - b(z) - xi), in three shapes of the same line:
rank-one observations in registers; rank-one observations of long vectors, in pieces; dense observations. Sums are
folded in a fixed tree: the result depends neither on G nor on what else runs. Each function here makes a kernel.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import binding, ir
from numba import float64, int64, types, uint32
from numba.extending import intrinsic, register_jitable

from .random import KEY_STEPS, OBSERVATION, philox
from .task_struct import (
    AGENT,
    BLOCK,
    DRAWN_AT_ONCE,
    FETCHED_AHEAD,
    GROUP,
    KEY_HIGH,
    KEY_LOW,
    LENGTH,
    OFFSET,
    ROW,
    SHIFT,
    SLOT,
    address,
    compiled,
    invoke,
    pointer,
    stack,
    task_at,
)
from .vectors import (
    I32,
    I64,
    add_rows,
    align_stack,
    convert,
    fetch_ahead,
    first_lane,
    fma,
    fold,
    gather,
    integers,
    load,
    load_again,
    look_up,
    mix,
    operation,
    rows,
    rows_of_seeds,
    splat,
    spread,
    store,
)

# Products of 32-bit words: x86 multiplies the lower halves of 64-bit lanes in one instruction, Arm packed 32-bit lanes.
WIDE = "x86" in binding.get_process_triple()
KEY_WORDS = 2 * 11 * 16 * 2  # 32-bit words that the round keys of sixteen lanes take, at most


class WordVector:
    """A vector of the code under construction as a number: `philox` on it writes its instructions."""

    def __init__(self, builder: Any, value: Any, upper: Any = None) -> None:
        self.builder, self.value, self.upper = builder, value, upper

    def _with(self, name: str, other: Any) -> Any:
        if isinstance(other, RoundKey):
            return NotImplemented
        if not isinstance(other, WordVector):
            kind = self.value.type
            number = int(other) & (1 << kind.element.width) - 1
            other = WordVector(self.builder, ir.Constant(kind, [number] * kind.count))
        return WordVector(self.builder, getattr(self.builder, name)(self.value, other.value))

    def __add__(self, other: Any) -> WordVector:
        return self._with("add", other)

    def __and__(self, other: Any) -> WordVector:
        return self._with("and_", other)

    def __xor__(self, other: Any) -> WordVector:
        return self._with("xor", other)

    def __mul__(self, other: Any) -> WordVector:
        """On 32-bit lanes the upper half of the product is kept beside the lower one."""
        b, kind = self.builder, self.value.type
        if kind.element == I64:
            return self._with("mul", other)
        double = ir.VectorType(I64, kind.count)
        product = b.mul(b.zext(self.value, double), ir.Constant(double, [int(other)] * kind.count))
        halves = b.bitcast(product, ir.VectorType(I32, 2 * kind.count))  # LLVM undoes shifts and cuts badly
        low, high = (mix(b, halves, [2 * i + side for i in range(kind.count)]) for side in (0, 1))
        return WordVector(b, low, high)

    def __rshift__(self, other: Any) -> WordVector:
        return self._with("lshr", other) if self.upper is None else WordVector(self.builder, self.upper)


class RoundKey:
    """A key of `philox` whose sums were written down: adding to it goes on to the next of them."""

    def __init__(self, builder: Any, places: list[Any]) -> None:
        self.builder, self.places = builder, places

    def __add__(self, other: Any) -> RoundKey:
        return RoundKey(self.builder, self.places[1:])

    def __rxor__(self, other: WordVector) -> WordVector:
        return other ^ WordVector(self.builder, self.builder.load(self.places[0], align=64))


def _row(b: Any, p: Any, q: Any, n: Any, row: int) -> WordVector:
    """A row of words of the lanes q, ..., q + 15 of n."""
    place = b.gep(p, [b.add(q, b.mul(n, I64(row)))])
    x = b.load(b.bitcast(place, ir.VectorType(I32, 16).as_pointer()), align=4)
    return WordVector(b, b.zext(x, ir.VectorType(I64, 16)) if WIDE else x)


def _key_places(b: Any, keys: Any) -> list[list[Any]]:
    """Where the round keys are, for the lower and the upper half of the seed."""
    kind = ir.VectorType(I64 if WIDE else I32, 16)
    first = b.bitcast(keys, kind.as_pointer())
    return [[b.gep(first, [I64(11 * half + i)]) for i in range(11)] for half in range(2)]


@intrinsic
def round_keys(context: Any, keys: Any, state: Any, q: Any, n: Any) -> Any:
    """Write down what `philox` adds to its keys, round by round, for lanes q, ..., q + 15; keys : KEY_WORDS words."""

    def emit(b: Any, keys: Any, p: Any, q: Any, n: Any) -> None:
        for row, step, places in zip((KEY_LOW, KEY_HIGH), KEY_STEPS, _key_places(b, keys), strict=True):
            key = _row(b, p, q, n, row)
            for place in places:
                b.store(key.value, place, align=64)
                key = key + step

    return operation(types.void, (keys, state, types.int64, types.int64), emit)


@intrinsic
def random_words(context: Any, out: Any, keys: Any, state: Any, q: Any, n: Any, ahead: Any) -> Any:
    """out[64 ahead : 64 ahead + 64] = the four random words of the block `ahead` of each lane's present one.

    The lanes are q, ..., q + 15 of n; engine/task_struct.py says what they hold, engine/random.py what is drawn.
    """

    def emit(b: Any, out: Any, keys: Any, p: Any, q: Any, n: Any, ahead: Any) -> None:
        index = _row(b, p, q, n, BLOCK) + WordVector(b, splat(b, ahead if WIDE else b.trunc(ahead, I32), 16))
        zero = index ^ index
        low, high = (RoundKey(b, places) for places in _key_places(b, keys))
        words = philox(index, _row(b, p, q, n, AGENT), zero + OBSERVATION, zero, low, high)
        for i, x in enumerate(words):
            place = b.gep(out, [b.add(b.mul(ahead, I64(64)), I64(16 * i))])
            place = b.bitcast(place, ir.VectorType(I32, 16).as_pointer())
            b.store(b.trunc(x.value, ir.VectorType(I32, 16)) if WIDE else x.value, place, align=4)

    return operation(types.void, (out, keys, state, types.int64, types.int64, types.int64), emit)


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
        keep = b.icmp_unsigned("<", b.shl(w, bits), b.shl(e, bits))
        return b.lshr(b.select(keep, w, e), s)

    return operation(word, (word, entry, shift), emit)


@register_jitable
def own_count(task, t, c, count, done):
    """How many of the next `count` observations, after `done` others, are of agent c's own round t."""
    return max(0, min(count, int64(task.own_lengths[t * task.agents + c]) - done))


@functools.cache
def random_draws(moves: bool, differ: bool) -> Any:
    """The kernel (struct, t, g0, g1, out, count, done): i.i.d. draws, or trajectories where `moves`.

    out[i * stride + lane] = the outcome that the chain of a lane sees i steps from now, for i < count.
    differ : a lane receives no more than the observations of its own rounds, of which `done` came before.
    """
    room = (DRAWN_AT_ONCE + 8) * GROUP

    def draw(p, t, g0, g1, out, count, done, _a):
        task, words, drawn = task_at(p, float64), stack(uint32, room), pointer(out, uint32)
        keys = stack(uint32, KEY_WORDS)
        state, n = task.draw_state, task.groups * GROUP
        for q in range(g0 * GROUP, g1 * GROUP, GROUP):
            round_keys(keys, state, q, n)
            for i in range((count + 6) // 4):
                random_words(words, keys, state, q, n, i)
            offset = load(state, OFFSET * n + q, 16)
            at, to = state[OFFSET * n + q] * GROUP, q if task.ahead else 0
            if differ or task.participants < task.agents:
                at = 0  # lanes stand at different places in their blocks: to the front
                for i in range(0, count * GROUP, GROUP):
                    store(words, i, gather(words, columns(offset) + i))
            end = offset + count
            store(state, BLOCK * n + q, load(state, BLOCK * n + q, 16) + (end >> 2))
            store(state, OFFSET * n + q, end & 3)
            slot, row = load(state, SLOT * n + q, 16), load(state, ROW * n + q, 16)
            shift = load(state, SHIFT * n + q, 16)
            for _ in range(count):
                word = load(words, at, 16)
                outcome = row + pick(word, gather(task.slots, slot + (word >> shift)), shift)
                store(drawn, to, outcome)
                if moves:
                    slot = gather(task.successor, outcome)
                    row = slot
                at += GROUP
                to += task.stride
            if moves and not differ:
                store(state, SLOT * n + q, slot)
                store(state, ROW * n + q, slot)
            for lane in range(q, q + GROUP if differ else q):
                count_here = own_count(task, t, int64(state[AGENT * n + lane]), count, done)
                last = 4 * int64(state[BLOCK * n + lane]) + int64(state[OFFSET * n + lane]) - count + count_here
                state[BLOCK * n + lane], state[OFFSET * n + lane] = last >> 2, last & 3
                if moves and count_here > 0:
                    place = task.successor[int64(drawn[(count_here - 1) * GROUP + lane - q])]
                    state[SLOT * n + lane], state[ROW * n + lane] = place, place

    return compiled(draw)


@functools.cache
def log_draws(differ: bool, ordered: bool = False) -> Any:
    """The same for logs: observation k of a lane is row + k % length.

    ordered : each pass through the log has an order of its own, which a chain keeps until the next
    """

    def draw(p, t, g0, g1, out, count, done, _a):
        task, drawn = task_at(p, float64), pointer(out, uint32)
        state, n = task.draw_state, task.groups * GROUP
        for q in range(g0 * GROUP, g1 * GROUP):
            row, length = int64(state[ROW * n + q]), int64(state[LENGTH * n + q])
            first = 4 * int64(state[BLOCK * n + q]) + int64(state[OFFSET * n + q])
            end = first + count
            if differ:
                end = first + own_count(task, t, int64(state[AGENT * n + q]), count, done)
            state[BLOCK * n + q], state[OFFSET * n + q] = end >> 2, end & 3
            k = first % length
            at = q if task.ahead else q - g0 * GROUP
            number, c, chain = first // length, int64(state[AGENT * n + q]), q
            if task.participants < task.agents:  # lanes are agents of one seed
                chain = c if q < task.participants else task.agents + q % GROUP
            place = chain * task.longest
            for _ in range(count):
                if ordered and abs(task.orders[place]) != number + 1:
                    seed = int64(state[KEY_HIGH * n + q]) << 32 | int64(state[KEY_LOW * n + q])
                    invoke(task.order, (address(task.orders) + 8 * place, length, seed, c, number, 0, 0, 0))
                drawn[at] = row + (task.orders[place + 1 + k] if ordered else k)
                at += task.stride
                k += 1
                if k == length:
                    k = 0
                    number += 1

    return compiled(draw)


@functools.cache
def rank_one_steps(d: int, G: int, real: Any, ridged: bool, differences: bool) -> Any:
    """The kernel (struct, t, g0, g1, drawn, first, count, done): rows of d numbers in registers, G chains at once.

    Groups do the steps of round t on the outcomes first, ..., first + count - 1 of `drawn`, after `done` others.
    differences : the table holds features alone, and v = u - discount times the features that follow.
    """
    width, half = G * d, 64 // real.bitwidth
    wide = 2 * half

    def step(p, t, g0, g1, drawn, first, count, done):
        align_stack()
        task, outcomes = task_at(p, real), pointer(drawn, uint32)
        eta, gain, stride = task.step_sizes[t], task.gains[t], task.stride
        skipped = task.thin - 1 - done % task.thin  # the paper uses the observations thin, 2 thin, ...
        ending = done + count == task.observations[t]
        for q in range(g0 * GROUP, g1 * GROUP, G):
            full = q < task.full_groups * GROUP
            theta = convert(rows_of_seeds(task.theta, task.start, q, full, G, d), real)
            shift = rows_of_seeds(task.last_shift, task.start, q, full, G, d)
            theta_hat = load(task.hat, q * d, width) if done else theta
            xi = load(task.variates, q * d, width) - shift
            drift = eta * convert(xi, real)
            i = first * stride + (q if task.ahead else q % GROUP)
            stop = i + count * stride
            i += skipped * stride
            if task.ahead and i < stop:  # what other groups see next has long left the cache
                fetch_ahead(task.pair, outcomes, i + FETCHED_AHEAD, G, 4)
            while i < stop:
                k = integers(outcomes, i, G)
                v = rows(task.rows, look_up(task.pair, k, 4, 1), d)
                if differences:
                    v = fma(task.minus_discount[0], v, rows(task.rows, look_up(task.pair, k, 4, 0), d))
                error = fold(fma(v, theta_hat, first_lane(task.minus_y, k, wide, half, d)), d)  # v . theta_hat - y
                scale = spread((-eta) * error, d)
                if differences:
                    k = load_again(k)  # registers do not hold u so long
                u = rows(task.rows, look_up(task.pair, k, 4, 0), d)
                moved = theta_hat + drift
                if ridged:
                    moved = fma((-eta) * task.ridge[0], theta_hat, moved)
                theta_hat = fma(scale, u, moved)
                i += task.thin * stride
            if ending:
                change = convert(theta_hat, float64) - convert(theta, float64)
                store(task.variates, q * d, fma(-gain, change, xi))
                if full:
                    at = q // GROUP * d
                    total = load(task.partial, at, d)
                    if q % GROUP == 0:
                        total = total - total
                    store(task.partial, at, add_rows(total, task.weights, q, change))
                else:
                    store(task.partial, (q - (GROUP - 1) * task.full_groups) * d, change)
            else:
                store(task.hat, q * d, theta_hat)

    return compiled(step)


@functools.cache
def long_steps(piece: int, real: Any, ridged: bool, differences: bool, dense: bool, differ: bool, stream: bool) -> Any:
    """The same for rows of any length, in pieces, chain by chain; or for dense observations.

    differ : each agent has its own step size, gain and length of rounds; stream : outcomes are numbers of observations
    of a stream, which a function draws.
    """
    half = 64 // real.bitwidth

    def step(p, t, g0, g1, drawn, first, count, done):
        align_stack()
        task, outcomes = task_at(p, real), pointer(drawn, uint32)
        eta, gain, stride, D, hat, table = task.step_sizes[t], task.gains[t], task.stride, task.D, task.hat, task.rows
        chains = task.groups * GROUP
        skipped = task.thin - 1 - done % task.thin
        ending = done + count == task.observations[t]
        for q in range(g0 * GROUP, g1 * GROUP):
            s, here, left = task.start[q], q * D, count
            if differ:
                c = int64(task.draw_state[AGENT * chains + q])
                eta, gain = task.step_sizes[t * task.agents + c], task.gains[t * task.agents + c]
                left = own_count(task, t, c, count, done)
            for j in range(0, D, piece):
                if done == 0:
                    store(hat, here + j, convert(load(task.theta, s + j, piece), real))
                xi = load(task.variates, here + j, piece) - load(task.last_shift, s + j, piece)
                store(task.drift, here + j, eta * convert(xi, real))
            i = first * stride + (q if task.ahead else q % GROUP)
            stop = i + left * stride
            i += skipped * stride
            while i < stop:
                k = int64(outcomes[i])
                if dense:
                    for j in range(D):
                        task.before_step[here + j] = hat[here + j]
                    for i0 in range(0, D, piece):
                        total = load(task.minus_y, k * D + i0, piece)
                        for j in range(D):
                            total = fma(task.before_step[here + j], load(table, (k * D + j) * D + i0, piece), total)
                        moved = load(task.drift, here + i0, piece) + load(hat, here + i0, piece)
                        store(hat, here + i0, fma(-eta, total, moved))
                else:
                    if stream:
                        u = q // GROUP * 3 * D
                        v, y, agent = u + D, u + 2 * D, int64(task.draw_state[AGENT * chains + q])
                        low, high = task.draw_state[KEY_LOW * chains + q], task.draw_state[KEY_HIGH * chains + q]
                        seed = int64(high) << 32 | int64(low)
                        invoke(task.observe, (address(table) + 8 * u, D, seed, agent, k, 0, 0, 0))
                    else:
                        u, v, y = int64(task.pair[4 * k]), int64(task.pair[4 * k + 1]), (2 * k + 1) * half
                    total = load(task.zeros, 0, piece)
                    for j in range(0, D, piece):
                        right = load(table, v + j, piece)
                        if differences:
                            right = fma(task.minus_discount[0], right, load(table, u + j, piece))
                        total = fma(right, load(hat, here + j, piece), total)
                    scale = (-eta) * (fold(total, piece) + task.minus_y[y])
                    for j in range(0, D, piece):
                        old = load(hat, here + j, piece)
                        moved = old + load(task.drift, here + j, piece)
                        if ridged:
                            moved = fma((-eta) * task.ridge[0], old, moved)
                        store(hat, here + j, fma(spread(scale, piece), load(table, u + j, piece), moved))
                i += task.thin * stride
            full = q < task.full_groups * GROUP
            for j in range(0, D if ending else 0, piece):
                theta = convert(convert(load(task.theta, s + j, piece), real), float64)
                change = convert(load(hat, here + j, piece), float64) - theta
                xi = load(task.variates, here + j, piece) - load(task.last_shift, s + j, piece)
                store(task.variates, here + j, fma(-gain, change, xi))
                if full:
                    at = q // GROUP * D + j
                    total_change = load(task.partial, at, piece)
                    if q % GROUP == 0:
                        total_change = total_change - total_change
                    store(task.partial, at, fma(task.weights[q], change, total_change))
                else:
                    at = (q - (GROUP - 1) * task.full_groups) * D + j
                    store(task.partial, at, change)
                if differ:
                    before = load(task.partial_gained, at, piece)
                    if not full or q % GROUP == 0:
                        before = before - before
                    store(task.partial_gained, at, fma((task.weights[q] if full else 1.0) * gain, change, before))

    return compiled(step)
