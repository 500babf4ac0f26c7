"""The compiled recursion: rounds of local steps, averages and corrections for all chains of a task.

A task is one configuration with some of its seeds. Its chains are numbered q = agent * seeds + seed, and idle ones pad
them to whole groups of 16 lanes. Groups are independent within a round; the server's part is done once for all of them
and sums agents in their order, so that neither threads nor groupings change a bit. engine/reference.py is the readable
twin. All parameters are rows of D >= dim numbers, padded with zeros, in flat arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from ..checks import Floats
from .draws import LANES, draw
from .memory import load_block, load_few, store
from .steps import advance
from .vectors import INLINED, ShapeType, align_stack, fma, fold

Array = NDArray[Any]
Integers = NDArray[np.int64]
AT_ONCE = 64  # observations that a group draws at once when it does not draw ahead


class Task(NamedTuple):
    """What a task is made of: sizes, the chains' agents and keys, and what the server knows."""

    dim: int
    D: int  # dim padded
    seeds: int
    agents: NDArray[np.uint32]  # (P,)
    keys: NDArray[np.uint32]  # (P, 2), flat: the seed of each chain, lower half first
    place: Integers  # (P,): where each chain's row begins in hat and xi
    start: Integers  # (P,): where the row of its seed begins in theta
    weights: Array  # (N,)
    ahead: bool  # whether groups keep what they drew from round to round: pays when rounds are short
    stride: int  # of what they drew: from one step to the next
    has_hook: bool
    parameters: Floats  # what the server's hook receives
    radius: float  # of the projection; 0: none
    average_after: int  # -1: never
    recorded_rounds: Integers  # ending in -1, a round that never comes


class Schedule(NamedTuple):
    """What the next rounds do, the first of them being round `first`; the other fields have one entry per round."""

    first: int
    thin: int
    observations: Integers
    eta: Array
    gain: Array
    active: NDArray[np.int64]  # (rounds, m) agents that take part; m = 0: all of them


class State(NamedTuple):
    """Everything that changes from round to round."""

    theta: Array  # (seeds, D): the shared parameter
    mean: Array  # (seeds, D): the last average
    square: Array  # (seeds,): its squared norm
    running: Array  # (seeds, D): the average of iterates
    hat: Array  # (P, D): local parameters
    xi: Array  # (P, D): control variates
    steps: Integers  # (P,): observations that each chain has drawn
    drawn: NDArray[np.uint32]  # (room, stride) flat, when drawing ahead: the outcomes of all groups, step by step
    left: Integers  # (groups, 2): which of them are still to be used
    diverged: Integers  # (seeds,): first round whose theta is not finite, or -1
    record: Array  # (seeds, records, D)
    recorded: Integers  # (1,): how many rounds are recorded


class Scratch(NamedTuple):
    """Working memory of one call: random words, outcomes, and what the 16 lanes of a group are."""

    words: NDArray[np.uint32]
    lanes: NDArray[np.uint32]
    drawn: NDArray[np.uint32]
    old: Array
    chains: Integers
    begin: Integers
    place: Integers
    start: Integers


def scratch(state: State) -> Scratch:
    """Working memory for one call of `run`, which allocates nothing itself."""
    words, drawn = np.empty((AT_ONCE + 8) * LANES, np.uint32), np.empty(AT_ONCE * LANES, np.uint32)
    lanes, old = np.empty(4 * LANES, np.uint32), np.empty(state.record.shape[2], state.record.dtype)
    return Scratch(words, lanes, drawn, old, *np.zeros((4, LANES), np.int64))


@njit(cache=True, error_model="numpy", nogil=True, _nrt=False)
def run(shape, one, sampler, tables, task, schedule, state, hook, scratch, t0, t1, g0, g1, serving):
    """Rounds t0, ..., t1 - 1 of the schedule for groups g0, ..., g1 - 1, and the server's part if `serving`.

    shape : rows of d lanes and the G chains that step together; one : the same rows, one at a time;
    scratch : working memory of this call alone.
    """
    align_stack()
    m = schedule.active.shape[1]
    place, start = (scratch.place, scratch.start) if m else (task.place, task.start)
    for t in range(t0, t1):
        for g in range(g0, g1):
            for lane in range(LANES if m else 0):  # only some take part; there is one seed, and spare lanes idle
                a = g * LANES + lane
                scratch.chains[lane] = schedule.active[t, a] if a < m else len(task.weights) + lane
                place[lane] = scratch.chains[lane] * task.D
            at = 0 if m else g * LANES
            local_steps(shape, sampler, tables, task, schedule, state, scratch, t, g, at, place, start)
        if serving:
            serve(shape, one, task, schedule, state, hook, t)


@njit(**INLINED)
def local_steps(shape, sampler, tables, task, schedule, state, scratch, t, g, at, place, start):
    """The 16 chains of group g do the local steps of round t; at : where their offsets begin in place and start."""
    H, eta, thin = schedule.observations[t], schedule.eta[t], schedule.thin
    chains, begin, partial = scratch.chains, scratch.begin, schedule.active.shape[1] > 0
    drawn, stride, at_lane, room = scratch.drawn, LANES, 0, AT_ONCE
    done, low, high = 0, 0, 0
    if task.ahead:
        drawn, stride, at_lane, room = state.drawn, task.stride, g * LANES, len(state.drawn) // task.stride
        low, high = state.left[g, 0], state.left[g, 1]
    while done < H:
        if low == high:
            low, high = 0, room if task.ahead else min(room, H - done)
            for lane in range(LANES):
                if not partial:
                    chains[lane] = g * LANES + lane
                begin[lane] = state.steps[chains[lane]]
                state.steps[chains[lane]] += high
            draw(
                sampler,
                scratch.words,
                scratch.lanes,
                task.keys,
                task.agents,
                chains,
                begin,
                high,
                drawn,
                at_lane,
                stride,
            )
        n = min(high - low, H - done)
        source, places = (state.theta, start) if done == 0 else (state.hat, place)
        first = low + (
            thin - 1 - done % thin if thin > 1 else 0
        )  # the paper skips observations that are not multiples of thin
        for lane in range(0, LANES, chains_at_once(shape)):
            advance(
                shape, tables, eta, task.D, source, places, state.hat, state.xi, place, at + lane,
                drawn, at_lane + lane, stride, first, low + n, thin, scratch.old,
            )  # fmt: skip
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
def serve(shape, one, task, schedule, state, hook, t):
    """The server's part of round t: average, correct the control variates, step, project, look, record."""
    R, G, now = task.seeds, chains_at_once(shape), schedule.first + t + 1
    r = 0
    while r + G <= R:  # the rows of neighbouring seeds stand side by side: G of them at a time, then one by one
        average(shape, task, schedule, state, t, r)
        r += G
    while r < R:
        average(one, task, schedule, state, t, r)
        r += 1
    recording = task.recorded_rounds[state.recorded[0]] == now
    plain = not (recording or task.has_hook or task.radius > 0 or task.average_after >= 0)
    for r in range(R):
        if not (plain and np.isfinite(state.square[r])):
            finish(task, state, hook, r, now, recording)
    if recording:
        state.recorded[0] += 1


@njit(**INLINED)
def average(shape, task, schedule, state, t, r):
    """Average over agents, in their order, and correct, for seed r and the G - 1 seeds beside it."""
    m, N, stride, gain = schedule.active.shape[1], len(task.weights), task.seeds * task.D, schedule.gain[t]
    for j in range(r * task.D, (r + 1) * task.D, len(shape)):  # one piece, unless rows are long
        if m:
            total = task.weights[schedule.active[t, 0]]
            mean = total * load_block(shape, state.hat, schedule.active[t, 0] * stride + j)
            for a in range(1, m):
                c = schedule.active[t, a]
                total += task.weights[c]
                mean = fma(task.weights[c], load_block(shape, state.hat, c * stride + j), mean)
            mean = mean * (task.weights.dtype.type(1) / total)  # weights renormalised over those who took part
            for a in range(m):
                correct(shape, state, gain, mean, schedule.active[t, a] * stride + j)
        else:
            mean = task.weights[0] * load_block(shape, state.hat, j)
            for c in range(1, N):
                mean = fma(task.weights[c], load_block(shape, state.hat, c * stride + j), mean)
            if gain != 0:
                for c in range(N):
                    correct(shape, state, gain, mean, c * stride + j)
        store(state.mean, j, mean)
        if not task.has_hook:
            store(state.theta, j, mean)
        square = fold(shape, mean * mean)
        store(state.square, r, square if j == r * task.D else square + load_few(shape, state.square, r))


@njit(**INLINED)
def correct(shape, state, gain, mean, at):
    """xi <- xi + gain (mean - theta_hat), which keeps sum_c w_c xi_c = 0."""
    change = mean - load_block(shape, state.hat, at)
    store(state.xi, at, fma(gain, change, load_block(shape, state.xi, at)))


@njit(**INLINED)
def finish(task, state, hook, r, now, recording):
    """The rest of the server's part for seed r, where there is any: hook, projection, divergence, averaging, record."""
    theta = state.theta[r * task.D : r * task.D + task.dim]
    square = state.square[r]
    if task.has_hook:
        hook(theta, state.mean[r * task.D : r * task.D + task.dim], task.parameters)
        square *= 0
        for x in theta:
            square += x * x
    if task.radius > 0 and square > task.radius * task.radius:
        for i in range(task.dim):
            theta[i] *= task.radius / np.sqrt(square)
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
