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
from .steps import advance
from .vectors import ShapeType, align_stack, fma, load_block, store

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
    weights: Array  # (N,)
    ahead: bool  # whether groups keep what they drew from round to round: pays when rounds are short
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
    running: Array  # (seeds, D): the average of iterates
    hat: Array  # (P, D): local parameters
    xi: Array  # (P, D): control variates
    steps: Integers  # (P,): observations that each chain has drawn
    drawn: NDArray[np.uint32]  # (groups, ahead * 16) when drawing ahead: outcomes
    left: Integers  # (groups, 2): which of them are still to be used
    diverged: Integers  # (seeds,): first round whose theta is not finite, or -1
    record: Array  # (seeds, records, D)
    recorded: Integers  # (1,): how many rounds are recorded


@njit(cache=True, error_model="numpy", nogil=True)
def run(shape, one, sampler, tables, task, schedule, state, hook, t0, t1, g0, g1, serving):  # type: ignore[no-untyped-def]
    """Rounds t0, ..., t1 - 1 of the schedule for groups g0, ..., g1 - 1, and the server's part if `serving`.

    shape : rows of d lanes and the G chains that step together; one : the same rows, one at a time.
    """
    align_stack()
    for t in range(t0, t1):
        local_steps(shape, sampler, tables, task, schedule, state, t, g0, g1)
        if serving:
            serve(one, task, schedule, state, hook, t)


@njit(cache=True, error_model="numpy", nogil=True)
def local_steps(shape, sampler, tables, task, schedule, state, t, g0, g1):  # type: ignore[no-untyped-def]
    """Every chain of the groups g0, ..., g1 - 1 does the local steps of round t."""
    H, eta, thin, D = schedule.observations[t], schedule.eta[t], schedule.thin, task.D
    Q, m = len(task.weights) * task.seeds, schedule.active.shape[1]
    chains, begin = np.empty(LANES, np.int64), np.empty(LANES, np.int64)
    place, start = np.empty(LANES, np.int64), np.empty(LANES, np.int64)
    room = state.drawn.shape[1] // LANES if task.ahead else AT_ONCE
    scratch, buffer = np.empty((room + 8) * LANES, np.uint32), np.empty(0 if task.ahead else room * LANES, np.uint32)
    for g in range(g0, g1):
        drawn = state.drawn[g] if task.ahead else buffer
        for lane in range(LANES):
            q = g * LANES + lane
            if m:  # only some take part, and then there is one seed; lanes beyond them idle in the padding
                q = schedule.active[t, q] if q < m else Q + lane
            chains[lane], place[lane], start[lane] = q, q * D, (q % task.seeds) * D
        done, low, high = 0, 0, 0
        if task.ahead:
            low, high = state.left[g]
        while done < H:
            if low == high:
                low, high = 0, room if task.ahead else min(room, H - done)
                for lane in range(LANES):
                    begin[lane] = state.steps[chains[lane]]
                    state.steps[chains[lane]] += high
                draw(sampler, scratch, task.keys, task.agents, chains, begin, high, drawn)
            n = min(high - low, H - done)
            source, places = (state.theta, start) if done == 0 else (state.hat, place)
            first = low + thin - 1 - done % thin  # the paper skips observations that are not multiples of thin
            for lane in range(0, LANES, chains_at_once(shape)):
                advance(
                    shape, tables, eta, D, source, places, state.hat, state.xi, place, lane, drawn, first, low + n, thin
                )
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


@njit(cache=True, error_model="numpy", nogil=True)
def serve(one, task, schedule, state, hook, t):  # type: ignore[no-untyped-def]
    """The server's part of round t: average, correct the control variates, step, project, look, record."""
    D, R, W, m = task.D, task.seeds, len(one), schedule.active.shape[1]
    N, gain, now = len(task.weights), schedule.gain[t], schedule.first + t + 1
    count = m if m else N
    total = task.weights[0] * 0
    for a in range(count):
        total += task.weights[schedule.active[t, a] if m else a]
    recording = task.recorded_rounds[state.recorded[0]] == now
    for r in range(R):
        for j in range(r * D, r * D + D, W):
            c = schedule.active[t, 0] if m else 0
            mean = task.weights[c] * load_block(one, state.hat, c * R * D + j)
            for a in range(1, count):
                c = schedule.active[t, a] if m else a
                mean = fma(task.weights[c], load_block(one, state.hat, c * R * D + j), mean)
            if m:
                mean = mean * (1 / total)
            store(state.mean, j, mean)
            if gain != 0:
                for a in range(count):
                    c = (schedule.active[t, a] if m else a) * R * D + j
                    change = mean - load_block(one, state.hat, c)
                    store(state.xi, c, fma(gain, change, load_block(one, state.xi, c)))  # keeps sum_c w_c xi_c = 0
        theta, mean_r = state.theta[r * D : r * D + task.dim], state.mean[r * D : r * D + task.dim]
        if task.has_hook:
            hook(theta, mean_r, task.parameters)
        else:
            theta[:] = mean_r
        finish(task, state, theta, r, now, recording)
    if recording:
        state.recorded[0] += 1


@njit(cache=True, error_model="numpy", nogil=True)
def finish(task, state, theta, r, now, recording):  # type: ignore[no-untyped-def]
    """Project, notice divergence, average and record the theta of seed r after round `now`."""
    square = 0.0
    for x in theta:
        square += np.float64(x) * np.float64(x)
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
        state.record[r, state.recorded[0], : task.dim] = best
