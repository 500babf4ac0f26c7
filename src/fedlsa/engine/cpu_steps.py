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

from numba import float64, int64, uint32

from .addresses import compiled, pointer, stack
from .cpu_record import AGENT, BLOCK, DRAWN_AT_ONCE, FETCHED_AHEAD, LANES, LENGTH, OFFSET, ROW, SHIFT, SLOT, task_at
from .lanes import KEY_WORDS, columns, pick, random_words, round_keys
from .vectors import (
    add_rows,
    align_stack,
    anew,
    convert,
    fetch_ahead,
    first_lane,
    fma,
    fold,
    gather,
    integers,
    load,
    look_up,
    rows,
    rows_of_seeds,
    spread,
    store,
)


@functools.cache
def random_draws(moves: bool, differ: bool) -> Any:
    """The kernel (record, t, g0, g1, out, count, done): i.i.d. draws, or trajectories where `moves`.

    out[i * stride + lane] = the outcome that the chain of a lane sees i steps from now, for i < count.
    differ : a lane receives no more than the observations of its own rounds, of which `done` came before.
    """
    room = (DRAWN_AT_ONCE + 8) * LANES

    def draw(p, t, g0, g1, out, count, done, _a):
        task, words, drawn = task_at(p, float64), stack(uint32, room), pointer(out, uint32)
        keys = stack(uint32, KEY_WORDS)
        lanes, n = task.lanes, task.groups * LANES
        for q in range(g0 * LANES, g1 * LANES, LANES):
            round_keys(keys, lanes, q, n)
            for i in range((count + 6) // 4):
                random_words(words, keys, lanes, q, n, i)
            offset = load(lanes, OFFSET * n + q, 16)
            at, to = lanes[OFFSET * n + q] * LANES, q if task.ahead else 0
            if differ or task.participants < task.agents:
                at = 0  # lanes stand at different places in their blocks: to the front
                for i in range(0, count * LANES, LANES):
                    store(words, i, gather(words, columns(offset) + i))
            end = offset + count
            store(lanes, BLOCK * n + q, load(lanes, BLOCK * n + q, 16) + (end >> 2))
            store(lanes, OFFSET * n + q, end & 3)
            slot, row = load(lanes, SLOT * n + q, 16), load(lanes, ROW * n + q, 16)
            shift = load(lanes, SHIFT * n + q, 16)
            for _ in range(count):
                word = load(words, at, 16)
                outcome = row + pick(word, gather(task.slots, slot + (word >> shift)), shift)
                store(drawn, to, outcome)
                if moves:
                    slot = gather(task.successor, outcome)
                    row = slot
                at += LANES
                to += task.stride
            if moves and not differ:
                store(lanes, SLOT * n + q, slot)
                store(lanes, ROW * n + q, slot)
            for lane in range(q, q + LANES if differ else q):
                own = max(0, min(count, int64(task.own_lengths[int64(lanes[AGENT * n + lane])]) - done))
                last = 4 * int64(lanes[BLOCK * n + lane]) + int64(lanes[OFFSET * n + lane]) - count + own
                lanes[BLOCK * n + lane], lanes[OFFSET * n + lane] = last >> 2, last & 3
                if moves and own > 0:
                    place = task.successor[int64(drawn[(own - 1) * LANES + lane - q])]
                    lanes[SLOT * n + lane], lanes[ROW * n + lane] = place, place

    return compiled(draw)


@functools.cache
def log_draws(differ: bool) -> Any:
    """The same for logs: observation k of a lane is row + k % length."""

    def draw(p, t, g0, g1, out, count, done, _a):
        task, drawn = task_at(p, float64), pointer(out, uint32)
        lanes, n = task.lanes, task.groups * LANES
        for q in range(g0 * LANES, g1 * LANES):
            row, length = int64(lanes[ROW * n + q]), int64(lanes[LENGTH * n + q])
            first = 4 * int64(lanes[BLOCK * n + q]) + int64(lanes[OFFSET * n + q])
            end = first + count
            if differ:
                end = first + max(0, min(count, int64(task.own_lengths[int64(lanes[AGENT * n + q])]) - done))
            lanes[BLOCK * n + q], lanes[OFFSET * n + q] = end >> 2, end & 3
            k = first % length
            at = q if task.ahead else q - g0 * LANES
            for _ in range(count):
                drawn[at] = row + k
                at += task.stride
                k += 1
                if k == length:
                    k = 0

    return compiled(draw)


@functools.cache
def rank_one_steps(d: int, G: int, real: Any, ridged: bool, differences: bool) -> Any:
    """The kernel (record, t, g0, g1, drawn, first, count, done): rows of d numbers in registers, G chains at once.

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
        for q in range(g0 * LANES, g1 * LANES, G):
            whole = q < task.whole * LANES
            theta = convert(rows_of_seeds(task.theta, task.start, q, whole, G, d), real)
            shift = rows_of_seeds(task.pending, task.start, q, whole, G, d)
            theta_hat = load(task.hat, q * d, width) if done else theta
            xi = load(task.variates, q * d, width) - shift
            drift = eta * convert(xi, real)
            i = first * stride + (q if task.ahead else q % LANES)
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
                    k = anew(k)  # registers do not hold u so long
                u = rows(task.rows, look_up(task.pair, k, 4, 0), d)
                moved = theta_hat + drift
                if ridged:
                    moved = fma((-eta) * task.ridge[0], theta_hat, moved)
                theta_hat = fma(scale, u, moved)
                i += task.thin * stride
            if ending:
                change = convert(theta_hat, float64) - convert(theta, float64)
                store(task.variates, q * d, fma(-gain, change, xi))
                if whole:
                    at = q // LANES * d
                    total = load(task.partial, at, d)
                    if q % LANES == 0:
                        total = total - total
                    store(task.partial, at, add_rows(total, task.weights, q, change))
                else:
                    store(task.partial, (q - (LANES - 1) * task.whole) * d, change)
            else:
                store(task.hat, q * d, theta_hat)

    return compiled(step)


@functools.cache
def long_steps(piece: int, real: Any, ridged: bool, differences: bool, dense: bool, differ: bool) -> Any:
    """The same for rows of any length, in pieces, chain by chain; or for dense observations.

    differ : each agent has its own step size, gain and length of rounds.
    """
    half = 64 // real.bitwidth

    def step(p, t, g0, g1, drawn, first, count, done):
        align_stack()
        task, outcomes = task_at(p, real), pointer(drawn, uint32)
        eta, gain, stride, D, hat, table = task.step_sizes[t], task.gains[t], task.stride, task.D, task.hat, task.rows
        lanes = task.groups * LANES
        skipped = task.thin - 1 - done % task.thin
        ending = done + count == task.observations[t]
        for q in range(g0 * LANES, g1 * LANES):
            s, here, left = task.start[q], q * D, count
            if differ:
                c = int64(task.lanes[AGENT * lanes + q])
                eta, gain = task.step_sizes[t * task.agents + c], task.gains[t * task.agents + c]
                left = max(0, min(count, int64(task.own_lengths[c]) - done))
            for j in range(0, D, piece):
                if done == 0:
                    store(hat, here + j, convert(load(task.theta, s + j, piece), real))
                xi = load(task.variates, here + j, piece) - load(task.pending, s + j, piece)
                store(task.drift, here + j, eta * convert(xi, real))
            i = first * stride + (q if task.ahead else q % LANES)
            stop = i + left * stride
            i += skipped * stride
            while i < stop:
                k = int64(outcomes[i])
                if dense:
                    for j in range(D):
                        task.spare[here + j] = hat[here + j]
                    for i0 in range(0, D, piece):
                        total = load(task.minus_y, k * D + i0, piece)
                        for j in range(D):
                            total = fma(task.spare[here + j], load(table, (k * D + j) * D + i0, piece), total)
                        moved = load(task.drift, here + i0, piece) + load(hat, here + i0, piece)
                        store(hat, here + i0, fma(-eta, total, moved))
                else:
                    u, v = int64(task.pair[4 * k]), int64(task.pair[4 * k + 1])
                    total = load(task.zeros, 0, piece)
                    for j in range(0, D, piece):
                        right = load(table, v + j, piece)
                        if differences:
                            right = fma(task.minus_discount[0], right, load(table, u + j, piece))
                        total = fma(right, load(hat, here + j, piece), total)
                    scale = (-eta) * (fold(total, piece) + task.minus_y[(2 * k + 1) * half])
                    for j in range(0, D, piece):
                        old = load(hat, here + j, piece)
                        moved = old + load(task.drift, here + j, piece)
                        if ridged:
                            moved = fma((-eta) * task.ridge[0], old, moved)
                        store(hat, here + j, fma(spread(scale, piece), load(table, u + j, piece), moved))
                i += task.thin * stride
            whole = q < task.whole * LANES
            for j in range(0, D if ending else 0, piece):
                theta = convert(convert(load(task.theta, s + j, piece), real), float64)
                change = convert(load(hat, here + j, piece), float64) - theta
                xi = load(task.variates, here + j, piece) - load(task.pending, s + j, piece)
                store(task.variates, here + j, fma(-gain, change, xi))
                if whole:
                    at = q // LANES * D + j
                    total_change = load(task.partial, at, piece)
                    if q % LANES == 0:
                        total_change = total_change - total_change
                    store(task.partial, at, fma(task.weights[q], change, total_change))
                else:
                    at = (q - (LANES - 1) * task.whole) * D + j
                    store(task.partial, at, change)
                if differ:
                    before = load(task.pulled, at, piece)
                    if not whole or q % LANES == 0:
                        before = before - before
                    store(task.pulled, at, fma((task.weights[q] if whole else 1.0) * gain, change, before))

    return compiled(step)
