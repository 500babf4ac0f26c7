"""The compiled recursion: rounds of local steps, averages and corrections for all chains of a task.

Groups are independent within a round, and several threads may share them. The server's part is done once for all: it
adds the groups' sums, in their order. So neither threads nor groupings change a bit. engine/reference.py is the
readable twin; engine/cpu_record.py says what a task is made of.

Local steps run in the task's type. What lasts from round to round (theta, its mean, control variates) is float64 and is
moved by differences from where the agents started, so that sums that must be 0 stay 0 in single precision too.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float64, uint32

from .addresses import address, compiled, count_up, invoke, invoke_hook, look_at, pointer, stack, step_aside
from .compiled import SOURCES
from .cpu_record import DRAWN_AT_ONCE, LANES, MOVING, WORDS, task_at
from .memory import load, store
from .vectors import convert, fma, fold

W = 8  # numbers that the server works on together
PATIENCE = 4000  # looks at a counter before a thread that waits lets others have its core


@functools.cache
def driver() -> Any:
    """The kernel (record, t0, t1, member, members, waits): rounds t0, ..., t1 - 1, each member its groups.

    waits : for the others at the end of each round. A call of one round need not wait, if no other runs beside it.
    """
    sources, room = SOURCES, DRAWN_AT_ONCE * LANES

    def run(p, t0, t1, member, members, waits, _a, _b):
        sources  # noqa: B018  part of the key of the cache
        task = task_at(p, float64)
        begin, end = task.groups * member // members, task.groups * (member + 1) // members
        drawn = task.drawn if task.ahead else stack(uint32, room)
        low, high = task.marks[0], task.marks[1]
        for t in range(t0, t1):
            H = task.observations[t]
            if task.participants < task.agents:
                invoke(task.exchange, (p, t, begin, end, 1, 0, 0, 0))
            g = begin
            while g < end:
                last = end if task.ahead else g + 1
                done = 0
                while done < H:
                    if low == high:
                        low, high = 0, task.room if task.ahead else min(task.room, H - done)
                        invoke(task.draw, (p, t, g, last, address(drawn), high, 0, 0))
                    n = min(high - low, H - done)
                    invoke(task.step, (p, t, g, last, address(drawn), low, n, done))
                    done += n
                    low += n
                g = last
            if task.participants < task.agents:
                invoke(task.exchange, (p, t, begin, end, 0, 0, 0, 0))
            if members == 1 or count_up(task.counters, 0) == members * (t - t0 + 1) - 1:  # the last to be ready serves
                task.marks[0], task.marks[1] = low, high
                invoke(task.serve, (p, t, 0, 0, 0, 0, 0, 0))
                count_up(task.counters, 8)
            looks = 0
            while waits and look_at(task.counters, 8) <= t - t0:
                looks += 1
                if looks > PATIENCE:
                    step_aside()

    return compiled(run)


@functools.cache
def exchange() -> Any:
    """The kernel (record, t, g0, g1, taking): only some agents take part, with one seed.

    taking : lanes become the agents of round t, with all that is theirs; or give it back.
    """
    sources, words, moving = SOURCES, len(WORDS), len(MOVING)

    def move(p, t, g0, g1, taking, _a, _b, _c):
        sources  # noqa: B018
        task = task_at(p, float64)
        m, D, lanes = task.participants, task.D, task.groups * LANES
        for a in range(g0 * LANES, g1 * LANES):
            if a >= m:  # spare lanes idle
                break
            c = task.taking_part[t * m + a]
            for k in range(words if taking else moving):
                if taking:
                    task.lanes[k * lanes + a] = task.chains[k * task.agents + c]
                else:
                    task.chains[k * task.agents + c] = task.lanes[k * lanes + a]
            if taking:
                task.weights[a] = task.all_weights[c]
                for j in range(D):
                    task.variates[a * D + j] = task.all_variates[c * D + j] - task.shift_all[j]
            else:
                for j in range(D):
                    task.all_variates[c * D + j] = task.variates[a * D + j] + task.shift_all[j]

    return compiled(move)


@functools.cache
def server(real: Any) -> Any:
    """The kernel (record, t): average, shift the control variates, step, project, look, record.

    With change_c = theta_hat_c - theta, mean = theta + (N / m) sum_c w_c change_c over the m who took part, and
    xi_c <- xi_c - gain (change_c - sum_c' w_c' change_c') for all N, where the change of those who did not is 0.
    The groups have done xi_c - gain change_c. The rest is one shift for all agents.
    """
    sources = SOURCES

    def serve(p, t, _a, _b, _c, _d, _e, _f):
        sources  # noqa: B018
        task = task_at(p, real)
        R, D, dim, now, gain = task.seeds, task.D, task.dim, task.first + t + 1, task.gains[t]
        scale, partial = task.agents / task.participants, task.participants < task.agents
        rest = task.participants % LANES
        total = load(task.theta, 0, W)
        total = total - total
        for i in range(0, R * D, W):
            start = convert(load(task.sent, i, W), float64)
            moved = start - start
            for k in range(0, task.whole * D, R * D):
                moved = moved + load(task.partial, k + i, W)
            part = start - start
            for a in range(task.whole * LANES, task.whole * LANES + rest * R, R):
                change = convert(load(task.hat, a * D + i, W), float64) - start
                part = fma(task.weights[a], change, part)
            moved = moved + part
            shift = (-gain) * moved
            if partial:
                shift = fma(-gain, moved, load(task.shift_all, i, W))
            store(task.shift_all, i, shift)
            mean = fma(scale, moved, load(task.theta, i, W))
            store(task.mean, i, mean)
            if task.hook == 0:
                store(task.theta, i, mean)
                store(task.sent, i, mean)
            total = fma(mean, mean, total)
        square_sum = stack(float64, 1)
        store(square_sum, 0, fold(total, W))
        recording = task.recorded_rounds[task.marks[2]] == now
        if recording or task.hook or task.radius > 0 or task.average_after >= 0 or not np.isfinite(square_sum[0]):
            for r in range(R):
                at, square = r * D, 0.0
                if task.hook:
                    theta, mean_ = pointer(address(task.theta) + 8 * at, float64), address(task.mean) + 8 * at
                    raised = invoke_hook(
                        task.hook, theta, pointer(mean_, float64), task.parameters, dim, task.parameter_count
                    )
                    if raised and not task.failed[r]:
                        task.failed[r] = now
                for j in range(at, at + dim):
                    square += task.theta[j] * task.theta[j]
                if not np.isfinite(square) and task.diverged[r] < 0:
                    task.diverged[r] = now
                shrink = 1.0
                if task.radius > 0 and square > task.radius * task.radius:
                    shrink = task.radius / np.sqrt(square)
                averaging = 0 <= task.average_after <= now
                for j in range(at, at + dim):
                    best = task.theta[j] * shrink
                    task.theta[j] = best
                    task.sent[j] = best
                    if averaging:
                        best = task.running[j] + (best - task.running[j]) / (now - task.average_after + 1)
                        task.running[j] = best
                    if recording:
                        task.record[(r * task.records + task.marks[2]) * D + j - at] = best
            if recording:
                task.marks[2] += 1

    return compiled(serve)
