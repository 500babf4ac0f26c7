"""The compiled recursion: rounds of local steps, averages and corrections for all chains of a task.

A task is one configuration with some of its seeds. Its chains are numbered q = agent * seeds + seed, and idle ones pad
them to whole groups of 16 lanes. Groups are independent within a round; the server's part is done once for all of them
and sums agents in their order, so that neither threads nor groupings change a bit. engine/reference.py is the readable
twin. All parameters are rows of D >= dim numbers, padded with zeros, in flat arrays.

Local steps run in the task's type. What lasts from round to round (theta, its mean, control variates) is float64 and is
moved by differences from where the agents started, so that sums that must be 0 stay 0 in single precision too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from ..checks import Floats
from .compiled import INLINED, SOURCES
from .cpu_steps import LANES, Drawn, LocalRows, advance, draw
from .memory import load_block, load_few, store
from .vectors import Shape, ShapeType, align_stack, fma, fold, widen

Array = NDArray[Any]
Integers = NDArray[np.int64]
DRAWN_AT_ONCE = 64  # observations that a group draws at once: their words stay in the first-level cache


class Task(NamedTuple):
    """What a task is made of and never changes: its code, by types; sizes; the chains; what the server knows."""

    shape: Shape  # rows of d lanes, and the G chains that step together
    one: Shape  # the same rows, one at a time
    sampler: Any
    tables: Any
    hook: Any  # the method's own server step
    dim: int
    D: int  # dim padded
    seeds: int
    agents: NDArray[np.uint32]  # (P,)
    keys: NDArray[np.uint32]  # (P, 2), flat: the seed of each chain, lower half first
    place: Integers  # (P,): where each chain's row begins in hat and xi
    start: Integers  # (P,): where the row of its seed begins in theta
    weights: Floats  # (N,)
    ahead: bool  # whether groups keep what they drew from round to round: pays when rounds are short
    stride: int  # of what they drew: from one step to the next
    has_hook: bool
    parameters: Floats  # what the hook receives
    radius: float  # of the projection; 0: none
    average_after: int  # -1: never
    recorded_rounds: Integers  # ending in -1, a round that never comes


class TaskState(NamedTuple):
    """Everything that changes from round to round."""

    theta: Floats  # (seeds, D): the shared parameter
    sent: Array  # (seeds, D): the same as agents receive it, in the type of their steps
    mean: Floats  # (seeds, D): the last average
    square: Floats  # (seeds,): its squared norm
    running: Floats  # (seeds, D): the average of iterates
    hat: Array  # (P, D): local parameters; when only some take part, of the a-th of them in row a
    xi: Array  # (P, D): control variates as the steps read them, in the same rows
    variates: Floats  # (N seeds, D): control variates of all agents, xi_c + shift
    shift: Floats  # (D,): sum_c w_c (xi_c + shift) when only some take part; empty, that is 0, otherwise
    steps: Integers  # (P,): observations that each chain has drawn
    drawn: NDArray[np.uint32]  # (room, stride) flat, when drawing ahead: the outcomes of all groups, step by step
    left: Integers  # (groups, 2): which of them are still to be used
    diverged: Integers  # (seeds,): first round whose theta is not finite, or -1
    failed: Integers  # (seeds,): first round whose hook raised, or 0
    record: Floats  # (seeds, records, D)
    recorded: Integers  # (1,): how many rounds are recorded


class Scratch(NamedTuple):
    """Working memory of one call: random words, outcomes, and what the 16 lanes of a group are."""

    words: NDArray[np.uint32]
    lanes: NDArray[np.uint32]
    drawn: NDArray[np.uint32]
    old: Array
    chains: Integers
    begin: Integers


class Span(NamedTuple):
    """Rounds t0, ..., t1 - 1 of a schedule for groups g0, ..., g1 - 1, and the server's part if `serving`."""

    t0: int
    t1: int
    g0: int
    g1: int
    serving: bool


def scratch(state: TaskState) -> Scratch:
    """Working memory for one call of `run`, which allocates nothing itself."""
    words, drawn = np.empty((DRAWN_AT_ONCE + 8) * LANES, np.uint32), np.empty(DRAWN_AT_ONCE * LANES, np.uint32)
    lanes, old = np.empty(4 * LANES, np.uint32), np.empty(state.record.shape[2], state.hat.dtype)
    return Scratch(words, lanes, drawn, old, *np.zeros((2, LANES), np.int64))


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def run(task, schedule, state, scratch, span, sources=SOURCES):
    """Bring a task some rounds further.

    schedule : of engine/schedule.py, with step sizes in the task's type; scratch : working memory of this call alone.
    """
    align_stack()
    for t in range(span.t0, span.t1):
        for g in range(span.g0, span.g1):
            if schedule.participants.shape[1]:
                take_up(task, schedule, state, scratch, t, g)
            local_steps(task, schedule, state, scratch, t, g)
        if span.serving:
            serve(task, schedule, state, t)


@njit(**INLINED)
def take_up(task, schedule, state, scratch, t, g):
    """Only some agents take part, with one seed: who the lanes of group g are, and their control variates."""
    m, one = schedule.participants.shape[1], task.one
    for lane in range(LANES):
        a = g * LANES + lane
        scratch.chains[lane] = schedule.participants[t, a] if a < m else len(task.weights) + lane  # spare lanes idle
        for j in range(0, task.D if a < m else 0, len(one)):
            at = scratch.chains[lane] * task.D + j
            xi = load_block(one, state.variates, at) - load_block(one, state.shift, j)
            store(state.xi, a * task.D + j, xi)


@njit(**INLINED)
def local_steps(task, schedule, state, scratch, t, g):
    """The 16 chains of group g do the local steps of round t."""
    H, eta, thin = schedule.observations[t], schedule.step_sizes[t], schedule.thin
    chains, partial, at = scratch.chains, schedule.participants.shape[1] > 0, g * LANES
    drawn, stride, at_lane, room = scratch.drawn, LANES, 0, DRAWN_AT_ONCE
    done, low, high = 0, 0, 0
    if task.ahead:
        drawn, stride, at_lane, room = state.drawn, task.stride, at, len(state.drawn) // task.stride
        low, high = state.left[g, 0], state.left[g, 1]
    while done < H:
        if low == high:
            low, high = 0, room if task.ahead else min(room, H - done)
            for lane in range(LANES):
                if not partial:
                    chains[lane] = g * LANES + lane
                scratch.begin[lane] = state.steps[chains[lane]]
                state.steps[chains[lane]] += high
            draw(task.sampler, task, scratch, high, drawn, at_lane, stride)
        n = min(high - low, H - done)
        source, start = (state.sent, task.start) if done == 0 else (state.hat, task.place)
        local = LocalRows(source, start, state.hat, state.xi, task.place, scratch.old)
        skipped = thin - 1 - done % thin if thin > 1 else 0  # the paper uses the observations thin, 2 thin, ...
        steps = Drawn(drawn, stride, low + skipped, low + n, thin)
        for lane in range(0, LANES, chains_at_once(task.shape)):
            advance(task.shape, task.tables, eta, task.D, local, at + lane, steps, at_lane + lane)
        done += n
        low += n
    if task.ahead:
        state.left[g, 0], state.left[g, 1] = low, high


def chains_at_once(shape: Any) -> int:
    """G, the chains that step together."""
    return int(shape.G)


@overload(chains_at_once)
def _chains_at_once(shape):
    if isinstance(shape, ShapeType):
        G = shape.G
        return lambda shape: G
    return None


@njit(**INLINED)
def serve(task, schedule, state, t):
    """The server's part of round t: average, correct the control variates, step, project, look, record."""
    R, G, now = task.seeds, chains_at_once(task.shape), schedule.first + t + 1
    r = 0
    while r + G <= R:  # the rows of neighbouring seeds stand side by side: G of them at a time, then one by one
        average(task.shape, task, schedule, state, t, r)
        r += G
    while r < R:
        average(task.one, task, schedule, state, t, r)
        r += 1
    recording = task.recorded_rounds[state.recorded[0]] == now
    plain = not (recording or task.has_hook or task.radius > 0 or task.average_after >= 0)
    for r in range(R):
        if not (plain and np.isfinite(state.square[r])):
            finish(task, state, r, now, recording)
    if recording:
        state.recorded[0] += 1


@njit(**INLINED)
def average(shape, task, schedule, state, t, r):
    """Average over agents, in their order, and correct, for seed r and the G - 1 seeds beside it.

    With change_c = theta_hat_c - theta, mean = theta + (N / m) sum_c w_c change_c over the m who took part, and
    xi_c <- xi_c - gain (change_c - sum_c' w_c' change_c') for all N, where the change of those who did not is 0.
    """
    m, N, stride, gain = schedule.participants.shape[1], len(task.weights), task.seeds * task.D, schedule.gains[t]
    count = m if m else N
    for j in range(r * task.D, (r + 1) * task.D, len(shape)):  # one piece, unless rows are long
        start = widen(load_block(shape, state.sent, j))
        moved = start - start
        for a in range(count):
            change = widen(load_block(shape, state.hat, a * stride + j)) - start
            moved = fma(task.weights[schedule.participants[t, a] if m else a], change, moved)
        if gain != 0:
            for a in range(count):
                change = widen(load_block(shape, state.hat, a * stride + j)) - start
                if m:
                    at = schedule.participants[t, a] * stride + j
                    store(state.variates, at, fma(-gain, change, load_block(shape, state.variates, at)))
                else:
                    at = a * stride + j
                    xi = fma(gain, moved - change, load_block(shape, state.variates, at))  # keeps sum_c w_c xi_c = 0
                    store(state.variates, at, xi)
                    round_off(state.xi, at, xi)
            if m:
                store(state.shift, j, fma(-gain, moved, load_block(shape, state.shift, j)))
        mean = fma(N / count, moved, load_block(shape, state.theta, j))
        store(state.mean, j, mean)
        if not task.has_hook:
            store(state.theta, j, mean)
            store(state.sent, j, mean)
        square = fold(shape, mean * mean)
        store(state.square, r, square if j == r * task.D else square + load_few(shape, state.square, r))


def round_off(xi: Array, at: int, v: Any) -> None:
    """xi[at : ...] = v in single precision; in double precision the two are the same memory."""
    raise NotImplementedError("round_off runs compiled")


@overload(round_off, jit_options=INLINED)
def _round_off(xi, at, v):
    if xi.dtype == types.float32:
        return lambda xi, at, v: store(xi, at, v)
    return lambda xi, at, v: None


@njit(**INLINED)
def finish(task, state, r, now, recording):
    """The rest of the server's part for seed r, where there is any: hook, projection, divergence, averaging, record."""
    theta = state.theta[r * task.D : r * task.D + task.dim]
    square = state.square[r]
    if task.has_hook:
        if task.hook(theta, state.mean[r * task.D : r * task.D + task.dim], task.parameters) and not state.failed[r]:
            state.failed[r] = now
        square = 0.0
        for x in theta:
            square += x * x
    if task.radius > 0 and square > task.radius * task.radius:
        for i in range(task.dim):
            theta[i] *= task.radius / np.sqrt(square)
    for i in range(task.dim):
        state.sent[r * task.D + i] = theta[i]
    if not np.isfinite(square) and state.diverged[r] < 0:
        state.diverged[r] = now
    best = theta
    if 0 <= task.average_after <= now:
        best = state.running[r * task.D : r * task.D + task.dim]
        n = now - task.average_after + 1
        for i in range(task.dim):
            best[i] += (theta[i] - best[i]) / n
    if recording:
        for i in range(task.dim):
            state.record[r, state.recorded[0], i] = best[i]
