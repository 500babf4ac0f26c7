"""The recursion on a GPU: one or several blocks per (configuration, seed), L threads per agent, round after round.

A thread holds E coordinates of its agent's theta_hat and of eta xi in registers; L = D / E threads share an agent.
Local steps run in the job's type; what lasts from round to round (theta, its mean, control variates) is float64 and is
moved by differences from where the agents started. Agents without threads of their own keep xi_c + shift, where shift
is one vector of the server, sum_c w_c (xi_c + shift): a round then writes nothing of agents that do not take part.
Outcomes do not depend on theta, so they are drawn one block of four random words ahead of their use, and four steps at
a time are written out so that drawing and stepping interleave. Rows of features stand in shared memory, in as many
copies as fit, so that threads which look up different rows do not meet in one bank. Rounds of one step look the next
round's rows up before they wait. Few agents have a warp each (gpu_steps.py). Where a seed has several blocks,
each leaves its sum over agents in memory, waits for the others and adds all sums in one order, whichever came first.
engine/reference.py is the readable twin.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32, float64, int32, int64, uint32

from ...kernel_cache import cached_on_gpu
from .blocks import Kind
from .gpu_steps import (
    PACKED,
    agent_entries,
    dense,
    draw_into_memory,
    fetch,
    four_steps,
    move,
    next_block,
    prepare,
    segments,
    step,
)
from .gpu_threads import MOST_WARPS, ROOMS, SIMULATED, barrier, block_sum, blocks_meet, fold, tally, thread_place


@functools.cache
def build(kind: Kind, hook: Any = None) -> Any:
    """The kernel for a kind of job; without a hook it depends on small integers alone and is cached on disk."""
    L, E, copies, draws, narrow = kind.L, kind.E, kind.copies, kind.draws, int(kind.dtype == "float32")
    team, segmented = kind.team, int(kind.team > kind.L)
    is_dense, stay, extras, single = (int(x) for x in (kind.is_dense, kind.stay, kind.extras, kind.single))
    spread, ahead, split, registers = int(kind.parts > 1), int(kind.ahead), int(kind.split), kind.registers
    D, halves, pairs = E * L, 2 * ROOMS, int32 if copies else int64
    scaled = int(kind.scaled)
    stride = D * copies + (L * copies == 1)
    differ, K = int(kind.differ), kind.blocks
    rows, kept_rows = max(1, K), max(1, K - 1)  # of the server's memory, and without theta: sizes are constants
    hooked, number = 0 if hook is None else 1, float32 if narrow else float64
    half = 8 if draws == PACKED else 16  # bits of a row's number in a pair, where rows are in shared memory
    shape, static = (L, E), (L, E, copies, half, int(kind.differences), int(kind.ridged))

    @(cuda.jit if SIMULATED else cuda.jit(max_registers=registers))
    def run(blocks, tables, state, schedule, parameters, t1, blocks_each):
        constants = registers  # noqa: F841  caches know kernels by their constants
        parts = int32(blocks_each if spread else 1)
        b, part, tid, size = thread_place(parts)
        block, xi, steps, position, t0 = blocks[b], state.xi, state.steps, state.position, schedule.first
        at, nth, places, room = tid % L, tid // L, size // L, part if SIMULATED else 0
        teams = size // team
        first = part == 0 and nth == 0  # threads that keep what is the seed's
        N, m, last = int32(block.agents), int32(block.participants), int32(min(t1, block.rounds))
        thin, varying = int32(block.thin), block.varying != 0
        key, chains, records = block.key, block.chains, block.records
        varying_at, average_after = block.schedule - t0, int32(block.average_after)
        discount, ridge, radius = number(block.discount), number(block.ridge), block.radius
        memory = cuda.shared.array(0, number)
        meet = cuda.shared.array((halves, MOST_WARPS, D), float64)
        asked = cuda.shared.array((halves, D), float64)
        if copies:
            for i in range(tid, block.row_count * D * copies, size):
                place = i // copies
                memory[place // D * stride + place % D * copies + i % copies] = tables.rows[place]
            table, begin = memory, int64(at * copies + nth % copies)
        else:
            table, begin = tables.rows, int64(at)
        for i in range(tid, 2 * MOST_WARPS * D, size):
            meet[2 * room + i // (MOST_WARPS * D), i // D % MOST_WARPS, i % D] = 0.0
        cuda.syncthreads()
        theta, moved = cuda.local.array(E, float64), cuda.local.array(E, float64)
        change_c = cuda.local.array(E, float64)
        hat, drift = cuda.local.array(E, number), cuda.local.array(E, number)
        u0, u1, u2 = cuda.local.array(E, number), cuda.local.array(E, number), cuda.local.array(E, number)
        u3, v, scratch = cuda.local.array(E, number), cuda.local.array(E, number), cuda.local.array(E, number)
        vectors, products = (u0, u1, u2, u3, v, scratch), cuda.local.array(10, number)
        linear = (u2, u3, cuda.local.array(E, number), cuda.local.array(E, number))  # of segments
        full = cuda.local.array(E if narrow and stay else 1, float64)  # xi, of which drift is a rounded multiple
        stored, drawing = (cuda.local.array(4, pairs), cuda.local.array(4, number), tid), (draws, split)
        common = cuda.local.array(1 if stay else E, float64)
        kept = cuda.local.array(E if differ else 1, number)  # hat, before a step that may be none
        gained = cuda.local.array(E if differ else 1, float64)  # the sum of w_c gain_c change_c
        remembered = cuda.local.array((kept_rows, E), float64)  # of the server, beside theta
        fresh = cuda.local.array(rows, float64)
        for i in range(E):
            theta[i] = state.theta[b * D + i * L + at]
            if not stay:
                common[i] = state.shift[b * D + i * L + at]
            for k in range(K - 1):
                remembered[k, i] = state.memory[(b * (K - 1) + k) * D + i * L + at]
        eta, gain, H = number(block.eta), block.gain, int32(1 if single else block.observations)
        agent_steps = H
        partial, turns = not stay and m < N, 1 if stay else (m + teams * parts - 1) // (teams * parts)
        agent, live, q, before = int32(0), False, int64(0), eta
        recorded, lost, square, scale = int32(state.recorded[b]), int32(state.diverged[b]), 0.0, N / m
        next_record = int32(state.record_rounds[records + recorded]) if part == 0 else int32(-1)
        for t in range(int32(t0), last):
            if extras and varying and not differ:
                eta, gain = schedule.step_sizes[varying_at + t], schedule.gains[varying_at + t]
                H = int32(schedule.observations[varying_at + t])
            for i in range(E):
                moved[i] = 0.0
                if differ:
                    gained[i] = 0.0
            for turn in range(turns):
                if not stay or t == t0:  # take an agent up; threads without one follow another's and count for nothing
                    agent_index = (turn * parts + part) * teams + tid // team
                    live = agent_index < m and tid % team < L
                    agent = int32(min(agent_index, m - 1))
                    if partial:
                        agent = int32(schedule.participants[block.part + (t - t0) * m + agent])
                    if differ:
                        of_agent = block.schedule + (t - t0) * N + agent
                        eta, gain = schedule.step_sizes[of_agent], schedule.gains[of_agent]
                        agent_steps = int32(schedule.observations[of_agent])
                    q, before = chains + agent, number(block.before) if scaled else eta
                    weight = tables.weights[agent] if live else 0.0
                    source = agent_entries(tables, agent)
                    index, phase, p0 = uint32(steps[q] >> 2), int32(steps[q] & 3), position[q]
                    for i in range(E):
                        value = xi[q * D + i * L + at]
                        if not stay:
                            value -= common[i]
                        if narrow and stay:
                            full[i] = value
                        drift[i] = value if scaled else eta * value
                    if split:
                        draw_into_memory(draws, key, agent, index, tables, source, stored)
                    a0, a1, a2, a3, y0, y1, y2, y3, p1 = next_block(
                        drawing, key, agent, index, tables, source, p0, stored
                    )
                    for _ in range(phase):  # those of the block that were used before
                        a0, a1, a2, y0, y1, y2 = a1, a2, a3, y1, y2, y3
                    b0, b1, b2, b3, z0, z1, z2, z3, p2 = next_block(
                        drawing, key, agent, uint32(index + 1), tables, source, p1, stored
                    )
                    if single and not is_dense:
                        fetch(u0, v, a0, (table, begin, eta, discount, eta * ridge), static)
                if extras and before != eta:
                    for i in range(E):
                        drift[i] = eta * full[i] if narrow and stay else drift[i] * (eta / before)
                    before = eta
                for i in range(E):
                    hat[i] = theta[i]
                h, wait, decay = int32(0), int32(0), eta * ridge
                how = (table, begin, eta, discount, decay)
                if segmented:
                    drawn = (draws, key, agent, index, tables, source, tid)
                    segments(change_c, theta, drift, (vectors, linear, products), (phase, H), drawn, how, static)
                    index, phase = uint32(index + uint32((phase + H) >> 2)), int32((phase + H) & 3)
                while not segmented and h < (int32(1) if single else H):
                    if (
                        phase == 0
                        and not single
                        and not differ
                        and H - h >= 4
                        and (not extras or thin == 1)
                        and not partial
                        and not is_dense
                    ):
                        fours = int32((H - h) >> 2)
                        h = int32(h + 4 * fours)
                        if ahead:
                            prepare(hat, drift, vectors, products, (a0, a1, a2, a3), how, static)
                        for _ in range(fours):  # no branch within, so that drawing and stepping interleave
                            if ahead:
                                four_steps(hat, drift, vectors, products, (y0, y1, y2, y3), how, static)
                                prepare(hat, drift, vectors, products, (b0, b1, b2, b3), how, static)
                            else:
                                step(hat, drift, vectors, a0, y0, how, static)
                                step(hat, drift, vectors, a1, y1, how, static)
                                step(hat, drift, vectors, a2, y2, how, static)
                                step(hat, drift, vectors, a3, y3, how, static)
                            index = uint32(index + uint32(1))
                            a0, a1, a2, a3, y0, y1, y2, y3, p0, p1 = b0, b1, b2, b3, z0, z1, z2, z3, p1, p2
                            b0, b1, b2, b3, z0, z1, z2, z3, p2 = next_block(
                                drawing, key, agent, uint32(index + 1), tables, source, p1, stored
                            )
                    else:
                        h, wait = int32(h + 1), int32(wait + 1)
                        if differ:
                            for i in range(E):
                                kept[i] = hat[i]
                        if not extras or wait == thin:  # one in `thin` is used; counting costs less than dividing
                            wait = int32(0)
                            if single and not is_dense:
                                move(change_c, hat, drift, vectors, y0, how, static)
                            elif is_dense:
                                dense(hat, drift, tables, a0, at, eta, (memory, (room * places + nth) * D), shape)
                            else:
                                step(hat, drift, vectors, a0, y0, how, static)
                        if differ and h > agent_steps:  # all threads of a warp step together; this one's round is over
                            for i in range(E):
                                hat[i] = kept[i]
                        a0, a1, a2, y0, y1, y2, phase = a1, a2, a3, y1, y2, y3, int32(phase + 1)
                        if phase == 4:
                            index, phase = uint32(index + uint32(1)), int32(0)
                            a0, a1, a2, a3, y0, y1, y2, y3, p0, p1 = b0, b1, b2, b3, z0, z1, z2, z3, p1, p2
                            b0, b1, b2, b3, z0, z1, z2, z3, p2 = next_block(
                                drawing, key, agent, uint32(index + 1), tables, source, p1, stored
                            )
                        if differ and h == agent_steps:
                            end, end_position = 4 * int64(index) + phase, p0
                        if single and stay and not is_dense:  # rows of the next round, before its barrier
                            fetch(u0, v, a0, how, static)
                for i in range(E):
                    if not segmented and (is_dense or not single):
                        change_c[i] = float64(hat[i]) - float64(number(theta[i]))
                    moved[i] += weight * change_c[i]
                    if differ:
                        gained[i] += weight * gain * change_c[i]
                    if not stay and live and gain != 0:
                        xi[q * D + i * L + at] -= gain * change_c[i]
                if not differ:
                    end, end_position = 4 * int64(index) + phase, p0
                if not stay and live and at == 0:
                    steps[q], position[q] = end, end_position
            if lost < 0 and not square < float("inf"):  # of the round before: by now it is known
                lost = int32(t)
            if not stay:
                barrier()  # in the next round another thread may take up what this one has just left
            block_sum(moved, meet, 2 * room + (0 if spread else t & 1), shape, tid, size)
            if spread:  # sums of odd and of even rounds have places of their own: nobody overwrites what others read
                sums = (2 * int64(b) + (t & 1)) * parts
                for i in range(E):
                    if nth == 0:
                        state.sums[(sums + part) * D + i * L + at] = moved[i]
                    moved[i] = 0.0
                blocks_meet(state.arrived, b, int64(parts) * (t + 1), tid)
                for k in range(nth, parts, places):
                    for i in range(E):
                        moved[i] += state.sums[(sums + k) * D + i * L + at]
                block_sum(moved, meet, 2 * room + 1, shape, tid, size)
            if differ:
                block_sum(gained, meet, 2 * room + ((t + 1) & 1), shape, tid, size)
                for i in range(E):
                    common[i] -= gained[i]
            elif gain != 0:
                pull = eta * gain
                for i in range(E):
                    if not stay:
                        common[i] -= gain * moved[i]
                    else:  # keeps sum_c w_c xi_c = 0
                        change = moved[i] - change_c[i]
                        if narrow:
                            full[i] += gain * change
                            drift[i] = eta * full[i]
                        else:
                            drift[i] += pull * change
            if hooked:
                for i in range(E):
                    if nth == 0:
                        asked[2 * room, i * L + at] = theta[i]
                        asked[2 * room + 1, i * L + at] = theta[i] + scale * moved[i]
                cuda.syncthreads()
                if tid == 0:
                    hook(asked[2 * room, : block.dim], asked[2 * room + 1, : block.dim], parameters)
                cuda.syncthreads()
            for i in range(E):
                if K:  # row k of the server, and its share of the agents' change
                    for k in range(K):
                        fresh[k] = parameters[K * K + k] * scale * moved[i]
                        for j in range(1, K):
                            fresh[k] += parameters[K * k + j] * remembered[j - 1, i]
                    theta[i] += fresh[0]
                    for k in range(K - 1):
                        remembered[k, i] = fresh[k + 1]
                else:
                    theta[i] = asked[2 * room, i * L + at] if hooked else theta[i] + scale * moved[i]
                moved[i] = theta[i] * theta[i]
            square = fold(tally(moved, E), L)
            if extras and radius > 0 and square > radius * radius:
                for i in range(E):
                    theta[i] *= radius / square**0.5
            if extras and 0 <= average_after <= t + 1 and first:
                for i in range(E):
                    j = b * D + i * L + at
                    state.running[j] += (theta[i] - state.running[j]) / (t + 2 - average_after)
            if next_record == t + 1:
                if nth == 0:
                    for i in range(E):
                        j = i * L + at
                        best = state.running[b * D + j] if extras and 0 <= average_after <= t + 1 else theta[i]
                        state.out[(block.out + recorded) * D + j] = best
                recorded += int32(1)
                next_record = int32(state.record_rounds[records + recorded])
        if stay and live and t0 < block.rounds:  # leave everything as the next launch takes it up
            for i in range(E):
                xi[q * D + i * L + at] = full[i] if narrow else drift[i]
            if at == 0:
                steps[q], position[q] = 4 * int64(index) + phase, p0
        if first and t0 < block.rounds:
            for i in range(E):
                state.theta[b * D + i * L + at] = theta[i]
                if not stay:
                    state.shift[b * D + i * L + at] = common[i]
                for k in range(K - 1):
                    state.memory[(b * (K - 1) + k) * D + i * L + at] = remembered[k, i]
        if lost < 0 and not square < float("inf"):
            lost = last
        if first and at == 0:
            state.recorded[b], state.diverged[b] = recorded, lost

    return run if SIMULATED else cached_on_gpu(run)
