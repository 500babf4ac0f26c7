"""The run of a method for up to 64 reweighted copies of the data at once, compiled.

Replicas share every draw, so a step reads its rows once and works through the replicas 16 lanes at a time: a replica
costs two passes over its d numbers and nothing else. Parameters stand replica by replica within coordinate,
theta[i * W + b]; d is a number like any other here, so nothing is compiled per dimension. `bootstrap.reweighted` is the
readable twin: replica b is the plain run on that problem.
"""

# Numba infers the types of these functions itself.
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False, disallow-untyped-calls=False
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..checks import Floats
from ..engine.compiled import INLINED, SOURCES
from ..engine.memory import load, store
from ..engine.random import OBSERVATION, block, choose, participants
from ..engine.vectors import fma

WEIGHT = 4  # the first stream of random words after those of the engine; replicas 64 i ... 64 i + 63 read WEIGHT + i
LANES = 16
AHEAD = 256  # observations of an agent that are drawn before its replicas use them


class Data(NamedTuple):
    """The rows of all tables and how agents draw from them; see RankOne and OutcomeTables."""

    rows: Floats  # (n, d)
    left: NDArray[np.uint32]  # (K,)
    right: NDArray[np.uint32]  # (K,)
    y: Floats  # (K,)
    ridge: float
    slots: NDArray[np.uint32]
    slot: NDArray[np.int64]  # (M,)
    first: NDArray[np.int64]  # (M,)
    shift: NDArray[np.int64]  # (M,)
    assignment: NDArray[np.int64]  # (N,)
    shares: Floats  # (N,)


class Method(NamedTuple):
    """What the method does in each round, the seed of the run, and its options: 0 participants stand for all agents."""

    seed: np.uint64
    lengths: NDArray[np.int64]  # (T,)
    etas: Floats  # (T,)
    gains: Floats  # (T,)
    participants: int
    radius: float  # inf without projection
    average_after: int  # beyond the last round without averaging


class Weights(NamedTuple):
    """Bit b of bits[first_block[m] + k // rows_per_block] says whether row k of table m counts in replica b."""

    bits: NDArray[np.uint64]
    first_block: NDArray[np.int64]  # (M,)
    rows_per_block: int
    scale: Floats  # (M, W): the factor of a row that counts; 0 in lanes without a replica


class State(NamedTuple):
    """Where the replicas stand: flat arrays over (coordinate, replica), and per agent in xi and hat."""

    theta: Floats  # (d W,)
    best: Floats  # (d W,): theta, or its running mean
    xi: Floats  # (N, d W)
    hat: Floats  # (N, d W)
    received: NDArray[np.int64]  # (N,)


@njit(cache=True, error_model="numpy", nogil=True)
def weight_bits(seed, group, first_block, out, sources=SOURCES):
    """Fill out with 64 random bits for each block of rows; first_block : (M + 1,)."""
    for m in range(len(first_block) - 1):
        for j in range(first_block[m], first_block[m + 1]):
            x = block(seed, m, WEIGHT + group, j - first_block[m])
            out[j] = x[0] | (x[1] << np.uint64(32))


@njit(cache=True, error_model="numpy", nogil=True)
def mean_weights(bits, first_block, rows_per_block, prob, first, out):
    """out[m, b] = sum_k p_k W_b(m, k): the mean weight of each table in each replica, out : (M, W)."""
    out[:] = 0
    for m in range(out.shape[0]):
        for k in range(first[m], first[m + 1]):
            word = bits[first_block[m] + (k - first[m]) // rows_per_block]
            for b in range(out.shape[1]):
                out[m, b] += 2 * prob[k] * np.float64((word >> np.uint64(b)) & np.uint64(1))


@njit(cache=True, error_model="numpy", nogil=True)
def advance(data, method, weights, state, begin, end, sources=SOURCES):
    """Rounds begin, ..., end - 1 of all replicas."""
    N, dW, W = len(data.assignment), len(state.theta), weights.scale.shape[1]
    drawn, drift, full, factor = np.empty(AHEAD, np.int64), np.empty(dW), np.empty(W), np.empty(W)
    moved, active = np.empty(dW), np.arange(N)
    chosen = np.empty((1, max(method.participants, 1)), np.int64)
    for t in range(begin, end):
        eta = method.etas[t]
        if method.participants:
            participants(method.seed, t, N, chosen)
            active = chosen[0]
        for c in active:
            m, hat, xi = data.assignment[c], state.hat[c], state.xi[c]
            for i in range(dW):
                hat[i], drift[i] = state.theta[i], eta * xi[i]
            for b in range(W):
                full[b] = -eta * weights.scale[m, b]
            left = method.lengths[t]
            while left > 0:
                count = min(left, AHEAD)
                _draw(data, method.seed, c, state.received[c], drawn[:count])
                for i in range(count):
                    k = drawn[i]
                    word = weights.bits[weights.first_block[m] + k // weights.rows_per_block]
                    for b in range(W):
                        factor[b] = full[b] * np.float64((word >> np.uint64(b)) & np.uint64(1))
                    z = data.first[m] + k
                    _step(data.rows[data.left[z]], data.rows[data.right[z]], data.y[z], data.ridge, factor, drift, hat)
                state.received[c] += count
                left -= count
        for i in range(dW):
            moved[i] = 0.0
        for c in active:
            share, hat = data.shares[c], state.hat[c]
            for i in range(dW):
                moved[i] += share * (hat[i] - state.theta[i])
        if method.gains[t] != 0:
            for c in active:
                xi, hat = state.xi[c], state.hat[c]
                for i in range(dW):
                    xi[i] -= method.gains[t] * (hat[i] - state.theta[i])
            for xi in state.xi:
                for i in range(dW):
                    xi[i] += method.gains[t] * moved[i]  # of all agents, and keeps sum_c w_c xi_c = 0
        for i in range(dW):
            state.theta[i] += N / len(active) * moved[i]
        if method.radius < np.inf:
            _project(state.theta, W, method.radius)
        for i in range(dW):
            if t + 1 >= method.average_after:
                state.best[i] += (state.theta[i] - state.best[i]) / (t + 2 - method.average_after)
            elif method.average_after > len(method.etas):
                state.best[i] = state.theta[i]


@njit(**INLINED)
def _draw(data, seed, agent, first, out):
    """The rows, counted within the agent's table, of its observations `first`, first + 1, ...: those of the engines."""
    m = data.assignment[agent]
    shift, slot = data.shift[m], data.slot[m]
    x = block(seed, agent, OBSERVATION, first // 4)
    for i in range(len(out)):
        if i and (first + i) % 4 == 0:
            x = block(seed, agent, OBSERVATION, (first + i) // 4)
        word = np.int64(x[(first + i) % 4])
        out[i] = choose(word, np.int64(data.slots[slot + (word >> shift)]), shift)


@njit(**INLINED)
def _step(u, v, y, ridge, factor, drift, hat):
    """theta_hat += factor (A(z) theta_hat - b(z)) + drift in every replica, with factor = -eta w / w_bar."""
    W, d = len(factor), len(u)
    for j in range(0, W, LANES):
        error = load(hat, j, LANES) * v[0] - y
        for i in range(1, d):
            error = fma(load(hat, i * W + j, LANES), v[i], error)  # v . theta_hat - y
        f = load(factor, j, LANES)
        step = f * error
        if ridge == 0:
            for i in range(d):
                at = i * W + j
                store(hat, at, fma(step, u[i], load(hat, at, LANES) + load(drift, at, LANES)))
        else:
            shrink = f * ridge
            for i in range(d):
                at = i * W + j
                here = load(hat, at, LANES)
                store(hat, at, fma(step, u[i], fma(shrink, here, here + load(drift, at, LANES))))


@njit(**INLINED)
def _project(theta, W, radius):
    """Each replica back onto the ball around 0."""
    for b in range(W):
        square = 0.0
        for i in range(b, len(theta), W):
            square += theta[i] * theta[i]
        if square > radius * radius:
            for i in range(b, len(theta), W):
                theta[i] *= radius / np.sqrt(square)
