"""The compiled recursion: rounds of local steps, averages and corrections for all chains of a task.

Groups are independent within a round, and several threads may share them. The server's part is done once for all: it
adds the groups' sums, in their order. So neither threads nor groupings change a bit. engine/reference.py is the
readable twin; engine/task_struct.py says what a task is made of.

Local steps run in the task's type. What lasts from round to round (theta, its mean, control variates) is float64 and is
moved by differences from where the agents started, so that sums that must be 0 stay 0 in single precision too.
"""

from __future__ import annotations

import functools
from math import isfinite
from typing import Any

import numpy as np
from numba import float64, uint32

from .task_struct import (
    DRAWN_AT_ONCE,
    GROUP,
    MEMBER,
    MOVING,
    WORDS,
    address,
    compiled,
    count_up,
    invoke,
    stack,
    task_at,
    wait_for,
)
from .vectors import fma, fold, load, store

W = 8  # numbers that the server works on together


@functools.cache
def driver() -> Any:
    """The kernel (struct, t0, t1, member, members, waits): rounds t0, ..., t1 - 1, each member its share of the steps.

    Shares are equal, so that a group may be divided: a member first begins the group that the next one ends, then does
    its own, and last ends the one that the member before it began long ago.
    waits : for the others at the end of each round. A call of one round need not wait, if no other runs beside it.
    """
    room, mask = DRAWN_AT_ONCE * GROUP, -DRAWN_AT_ONCE  # a power of two: x & mask is a multiple

    def run(p, t0, t1, member, members, waits, _a, _b):
        task = task_at(p, float64)
        begin, end = task.groups * member // members, task.groups * (member + 1) // members
        leftover, next_leftover = task.groups * member - begin * members, task.groups * (member + 1) - end * members
        if task.ahead or task.participants < task.agents:  # groups draw, or are exchanged, together
            leftover, next_leftover = 0, 0
        drawn = task.drawn if task.ahead else stack(uint32, room)
        low, high = task.cursors[0], task.cursors[1]
        for t in range(t0, t1):
            H = task.observations[t]
            before, after = H * leftover // members & mask, H * next_leftover // members & mask
            if task.participants < task.agents:
                invoke(task.exchange, (p, t, begin, end, 1, 0, 0, 0))
            for part in range(3):
                g, stop, until = end, end + (after > 0), after
                if part == 1:
                    count_up(task.counters, MEMBER * (member + 2))
                    g, stop, until = begin + (before > 0), end, H
                elif part == 2:
                    g, stop, until = begin, begin + (before > 0), H
                while g < stop:
                    if part == 2:
                        wait_for(task.counters, MEMBER * (member + 1), t - t0 + 1)
                    beyond = stop if task.ahead else g + 1
                    done = before if part == 2 else 0
                    while done < until:
                        if low == high:
                            low, high = 0, task.room if task.ahead else min(task.room, until - done)
                            invoke(task.draw, (p, t, g, beyond, address(drawn), high, done, 0))
                        n = min(high - low, until - done)
                        invoke(task.step, (p, t, g, beyond, address(drawn), low, n, done))
                        done += n
                        low += n
                    g = beyond
            if task.participants < task.agents:
                invoke(task.exchange, (p, t, begin, end, 0, 0, 0, 0))
            if members == 1 or count_up(task.counters, 0) == members * (t - t0 + 1) - 1:  # the last to be ready serves
                task.cursors[0], task.cursors[1] = low, high
                invoke(task.serve, (p, t, 0, 0, 0, 0, 0, 0))
                count_up(task.counters, MEMBER)
            if waits:
                wait_for(task.counters, MEMBER, t - t0 + 1)

    return compiled(run)


@functools.cache
def exchange() -> Any:
    """The kernel (struct, t, g0, g1, taking): only some agents take part, with one seed.

    taking : lanes become the agents of round t, with all that is theirs; or give it back.
    """
    words, moving = len(WORDS), len(MOVING)

    def move(p, t, g0, g1, taking, _a, _b, _c):
        task = task_at(p, float64)
        m, D, chains = task.participants, task.D, task.groups * GROUP
        for a in range(g0 * GROUP, g1 * GROUP):
            if a >= m:  # idle lanes
                break
            c = task.taking_part[t * m + a]
            for k in range(words if taking else moving):
                if taking:
                    task.draw_state[k * chains + a] = task.all_draw_state[k * task.agents + c]
                else:
                    task.all_draw_state[k * task.agents + c] = task.draw_state[k * chains + a]
            if taking:
                task.weights[a] = task.all_weights[c]
                for j in range(D):
                    task.variates[a * D + j] = task.all_variates[c * D + j] - task.shift_all[j]
            else:
                for j in range(D):
                    task.all_variates[c * D + j] = task.variates[a * D + j] + task.shift_all[j]

    return compiled(move)


@functools.cache
def server(linear: bool, differ: bool) -> Any:
    """The kernel (struct, t): average, shift the control variates, look, record.

    With change_c = theta_hat_c - theta, mean = theta + (N / m) sum_c w_c change_c over the m who took part, and
    xi_c <- xi_c - gain (change_c - sum_c' w_c' change_c') for all N, where the change of those who did not is 0.
    The groups have done xi_c - gain change_c. The rest is one shift for all agents.
    linear : the server has a memory, or a share of its own; differ : agents have gains of their own.
    What few methods want stands in kernels of its own, which are compiled when they are wanted.
    """

    def serve(p, t, _a, _b, _c, _d, _e, _f):
        task = task_at(p, float64)
        R, D, now, gain = task.seeds, task.D, task.first + t + 1, 1.0 if differ else task.gains[t]
        scale, partial = task.agents / task.participants, task.participants < task.agents
        n, chunks, leftover = R * D, task.participants // GROUP, task.participants % GROUP
        position = task.cursors[2] * n if task.recorded_rounds[task.cursors[2]] == now else -1
        total = load(task.theta, 0, W)
        total = total - total
        K, wide = task.blocks, (n + W - 1) // W * W
        singles = task.full_groups * GROUP  # where chains in no full group begin
        share = K * K  # where in the parameters of a linear server it begins
        for i in range(0, n, W):
            theta = load(task.theta, i, W)
            moved = theta - theta
            part = moved
            for k in range(chunks):
                moved = moved + load(task.partial, k * n + i, W)
            for a in range(leftover):
                part = fma(task.weights[singles + a * R], load(task.partial, (chunks + a) * n + i, W), part)
            moved = moved + part
            gained = moved
            if differ:
                gained = part - part
                for k in range(chunks):
                    gained = gained + load(task.partial_gained, k * n + i, W)
                for a in range(leftover):
                    weight = task.weights[singles + a * R]
                    gained = fma(weight, load(task.partial_gained, (chunks + a) * n + i, W), gained)
            shift = (-gain) * gained
            if partial:
                shift = fma(-gain, gained, load(task.shift_all, i, W))
            store(task.shift_all, i, shift)
            if linear:
                mean = fma(scale * task.parameters[share], moved, theta)
                for j in range(1, K):
                    mean = fma(task.parameters[j], load(task.memory, (j - 1) * wide + i, W), mean)
                for a in range(1, K):
                    kept = (scale * task.parameters[share + a]) * moved
                    for j in range(1, K):
                        kept = fma(task.parameters[K * a + j], load(task.memory, (j - 1) * wide + i, W), kept)
                    store(task.memory, (K + a - 2) * wide + i, kept)
                for a in range(K - 1):
                    store(task.memory, a * wide + i, load(task.memory, (K - 1 + a) * wide + i, W))
            else:
                mean = fma(scale, moved, theta)
            store(task.mean, i, mean)
            if task.hook == 0:
                store(task.theta, i, mean)
            total = fma(mean, mean, total)
        if task.hook:
            invoke(task.apply_hook, (p, now, 0, 0, 0, 0, 0, 0))
        square_sum = stack(float64, 1)
        store(square_sum, 0, fold(total, W))
        if task.estimate or not isfinite(square_sum[0]):
            for r in range(R):
                square = 0.0
                for j in range(r * D, r * D + task.dim):
                    square += task.theta[j] * task.theta[j]
                task.squares[r] = square
                if task.diverged[r] < 0 and not isfinite(square):
                    task.diverged[r] = now
        if task.estimate:
            invoke(task.estimate, (p, now, position, 0, 0, 0, 0, 0))
        if position >= 0:
            task.cursors[2] += 1
            for i in range(0, 0 if task.estimate else n, W):
                store(task.recorded, position + i, load(task.theta, i, W))

    return compiled(serve)


@functools.cache
def hook_calls() -> Any:
    """The kernel (struct, now): the method's own server step in round `now`, seed by seed."""

    def apply(p, now, _a, _b, _c, _d, _e, _f):
        task = task_at(p, float64)
        for r in range(task.seeds):
            theta, mean = address(task.theta) + 8 * r * task.D, address(task.mean) + 8 * r * task.D
            places = theta, mean, address(task.parameters), address(task.failed) + 8 * r
            invoke(task.hook, (*places, now, task.dim, task.parameter_count, 0))

    return compiled(apply)


@functools.cache
def estimates() -> Any:
    """The kernel (struct, now, at): project, average iterates, record what the method gives; at : where, if not -1."""

    def estimate(p, now, at, _a, _b, _c, _d, _e):
        task = task_at(p, float64)
        averaging = 0 <= task.average_after <= now
        for r in range(task.seeds):
            square, shrink = task.squares[r], 1.0
            if task.radius > 0 and square > task.radius * task.radius:
                shrink = task.radius / np.sqrt(square)
            for j in range(r * task.D, r * task.D + task.dim):
                best = task.theta[j] * shrink
                task.theta[j] = best
                if averaging:
                    best = task.running[j] + (best - task.running[j]) / (now - task.average_after + 1)
                    task.running[j] = best
                if at >= 0:
                    task.recorded[at + j] = best

    return compiled(estimate)
