"""Long rounds of few agents on a GPU: the steps of a round are cut into segments, which run at the same time.

A step is an affine map of theta_hat, and which one is drawn does not depend on theta_hat. Where a segment begins is not
known before those ahead of it have ended, so each begins at the server's theta, ends at some f, and carries the linear
part P of its steps along, P = I at first. Begun at theta + delta it would have ended at f + P delta. So
delta <- f - theta + P delta, segment after segment, gives what the agent's steps add to theta: the same numbers up to
rounding, which is amplified by the same products of steps.

Two threads run a segment. Each carries f and four columns of P, and draws every other block of four outcomes.
"""

from __future__ import annotations

from numba import int32, uint32

from .gpu_draws import outcomes_of
from .gpu_steps import fetch, inner
from .gpu_threads import WARP, ask, device, halve

THREADS = 2  # of a segment
COLUMNS = 4  # of the linear part, for each thread
COORDINATES = THREADS * COLUMNS  # of theta_hat, at most
SEGMENTS = WARP // THREADS


@device
def step_all(f, linear, drift, vectors, outcome, how, static):
    """A step of f and of the linear part's columns; outcome : rows, -y, and 1, or 0 for a step beyond the round."""
    pair, minus_y, made = outcome
    eta, decay, E, ridged = -how[2] * made, how[4] * made, static[1], static[5]
    u, v, scratch = vectors[0], vectors[4], vectors[5]
    fetch(u, v, pair, how, static)
    length = eta * (inner(v, f, scratch, static) + minus_y)
    for i in range(E):
        if ridged:
            f[i] -= decay * f[i]
        f[i] = length * u[i] + (made * drift[i] + f[i])
    for c in range(COLUMNS):
        length = eta * inner(v, linear[c], scratch, static)
        for i in range(E):
            if ridged:
                linear[c][i] -= decay * linear[c][i]
            linear[c][i] += length * u[i]


@device
def segments(moved, theta, drift, work, when, drawn, how, static):
    """moved <- what the steps of a round add to theta, by the threads of one warp.

    work : six vectors, the columns, and some numbers; when : words of the first block that were used before, and the
    steps of the round; drawn : how outcomes are drawn, key, agent, number of the first block, tables, the agent's
    entries in them, and the number of the thread
    """
    (vectors, linear, delta), (phase, H), (kind, key, agent, index, tables, own, tid) = work, when, drawn
    u, f, scratch, E = vectors[0], vectors[1], vectors[5], static[1]
    lane, nth = int32(tid % WARP), int32(tid % THREADS)
    first = int32(lane - nth)
    times = ((phase + H + 3) // 4 + WARP - 1) // WARP  # that each thread of a segment draws a block
    begin = int32(first * times)
    for i in range(E):
        f[i] = theta[i]
        for c in range(COLUMNS):
            linear[c][i] = i == COLUMNS * nth + c
    n, block, none = int32(4 * begin - phase), uint32(index + uint32(begin + nth)), uint32(0)
    b0, b1, b2, b3, z0, z1, z2, z3, _ = outcomes_of(kind, key, agent, block, tables, own, none)
    for k in range(THREADS * times):
        if k % THREADS == 0:  # the next blocks are drawn while these are stepped through
            a0, a1, a2, a3, y0, y1, y2, y3 = b0, b1, b2, b3, z0, z1, z2, z3
            block = uint32(block + uint32(THREADS))
            b0, b1, b2, b3, z0, z1, z2, z3, _ = outcomes_of(kind, key, agent, block, tables, own, none)
        whom = first + k % THREADS
        for j in range(4):
            delta[j] = 0 <= n + j < H
        step_all(f, linear, drift, vectors, (ask(a0, whom), ask(y0, whom), delta[0]), how, static)
        step_all(f, linear, drift, vectors, (ask(a1, whom), ask(y1, whom), delta[1]), how, static)
        step_all(f, linear, drift, vectors, (ask(a2, whom), ask(y2, whom), delta[2]), how, static)
        step_all(f, linear, drift, vectors, (ask(a3, whom), ask(y3, whom), delta[3]), how, static)
        n = int32(n + 4)
    for i in range(E):
        u[i] = theta[i]
        f[i] = f[i] - u[i] if nth == 0 else 0 * u[i]
    for c in range(COLUMNS):
        delta[c] = 0  # coordinates of delta, those of the thread's columns
    for s in range(SEGMENTS):
        for i in range(E):
            scratch[i] = f[i]
            for c in range(COLUMNS):
                scratch[i] += linear[c][i] * delta[c]
        halve(scratch, COLUMNS, lane, 1)
        for c in range(COLUMNS):
            delta[c] = ask(scratch[c], THREADS * s + nth)
    for i in range(E):
        moved[i] = ask(delta[i % COLUMNS], i // COLUMNS)
