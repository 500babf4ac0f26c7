"""Local steps: theta_hat <- theta_hat - eta (A(z) theta_hat - b(z) - xi) for the outcomes that were drawn.

Three shapes of the same line, chosen by the types of `shape` and `tables`: rank-one observations in registers, G chains
at a time; rank-one observations of long vectors, in pieces; dense observations. Sums are folded in a fixed tree, so the
result depends neither on G nor on what else runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from .memory import first_lane, integers, load_block, look_up, rows, store, store_rows
from .vectors import INLINED, fma, fold, spread


class RankOneTables(NamedTuple):
    """u = rows[pair[2k]], v = rows[pair[2k + 1]] (offsets of padded rows), y negated: a step folds v . theta - y."""

    rows: NDArray[Any]
    pair: NDArray[np.uint32]
    minus_y: NDArray[Any]


class RidgeTables(NamedTuple):
    """Rank-one tables whose matrices have ridge I added."""

    rows: NDArray[Any]
    pair: NDArray[np.uint32]
    minus_y: NDArray[Any]
    ridge: float


class DenseTables(NamedTuple):
    """A(z) by columns, padded: columns[(k d + j) d + i] = A[k, i, j]; minus_b[k d + i] = -b[k, i]."""

    columns: NDArray[Any]
    minus_b: NDArray[Any]


def advance(
    shape: Any, tables: Any, eta: Any, d: int, theta: Any, start: Any, hat: Any, xi: Any, place: Any,
    at: int, drawn: Any, lane: int, stride: int, first: int, last: int, thin: int, old: Any,
) -> None:  # fmt: skip
    """Let G chains do the steps i = first, first + thin, ... < last, of outcomes drawn[i * stride + lane + g].

    place[at], ..., place[at + G - 1] : offsets of their rows in hat and xi; start[at], ... : of where they start in
    theta, which is the shared theta at the beginning of a round and hat later on;
    old : (d,), scratch.
    """
    raise NotImplementedError("advance runs compiled; engine/reference.py says what it means")


@overload(advance, jit_options=INLINED)
def _advance(shape, tables, eta, d, theta, start, hat, xi, place, at, drawn, lane, stride, first, last, thin, old):
    if tables.instance_class is DenseTables:
        return _dense
    return _in_pieces if shape.pieces else _in_registers


def decay(tables: Any, eta: Any, theta_hat: Any, drift: Any) -> Any:
    """theta_hat (1 - eta ridge) + drift; without a ridge an addition is all that is left."""
    raise NotImplementedError("decay runs compiled")


@overload(decay, jit_options=INLINED)
def _decay(tables, eta, theta_hat, drift):
    if tables.instance_class is RidgeTables:
        return lambda tables, eta, theta_hat, drift: fma((-eta) * tables.ridge, theta_hat, theta_hat + drift)
    return lambda tables, eta, theta_hat, drift: theta_hat + drift


def _in_registers(shape, tables, eta, d, theta, start, hat, xi, place, at, drawn, lane, stride, first, last, thin, old):
    here = integers(shape, place, at, 1)
    theta_hat = rows(shape, theta, integers(shape, start, at, 1))
    drift = eta * rows(shape, xi, here)
    i = first
    while i < last:  # not a range: its length would cost a division
        k = integers(shape, drawn, i * stride + lane, 1)
        u = rows(shape, tables.rows, look_up(tables.pair, k, 2, 0))
        v = rows(shape, tables.rows, look_up(tables.pair, k, 2, 1))
        error = fold(shape, fma(v, theta_hat, first_lane(shape, tables.minus_y, k)))  # v . theta_hat - y
        theta_hat = fma(spread(shape, (-eta) * error), u, decay(tables, eta, theta_hat, drift))
        i += thin
    store_rows(shape, hat, here, theta_hat)


def _in_pieces(shape, tables, eta, d, theta, start, hat, xi, place, at, drawn, lane, stride, first, last, thin, old):
    W, here, s = len(shape), place[at], start[at]
    for j in range(0, d, W):
        store(hat, here + j, load_block(shape, theta, s + j))
    i = first
    while i < last:  # not a range: its length would cost a division
        k = np.int64(drawn[i * stride + lane])
        u, v = np.int64(tables.pair[2 * k]), np.int64(tables.pair[2 * k + 1])
        total = load_block(shape, tables.rows, v) * load_block(shape, hat, here)
        for j in range(W, d, W):
            total = fma(load_block(shape, tables.rows, v + j), load_block(shape, hat, here + j), total)
        step = spread(shape, (-eta) * (fold(shape, total) + tables.minus_y[k]))
        for j in range(0, d, W):
            moved = decay(tables, eta, load_block(shape, hat, here + j), eta * load_block(shape, xi, here + j))
            store(hat, here + j, fma(step, load_block(shape, tables.rows, u + j), moved))
        i += thin


def _dense(shape, tables, eta, d, theta, start, hat, xi, place, at, drawn, lane, stride, first, last, thin, old):
    W, here, s = len(shape), place[at], start[at]
    for j in range(0, d, W):
        store(hat, here + j, load_block(shape, theta, s + j))
    i = first
    while i < last:  # not a range: its length would cost a division
        k = np.int64(drawn[i * stride + lane])
        for j in range(d):
            old[j] = hat[here + j]
        for i0 in range(0, d, W):
            total = load_block(shape, tables.minus_b, k * d + i0)
            for j in range(d):
                total = fma(old[j], load_block(shape, tables.columns, (k * d + j) * d + i0), total)
            moved = fma(eta, load_block(shape, xi, here + i0), load_block(shape, hat, here + i0))
            store(hat, here + i0, fma(-eta, total, moved))
        i += thin
