"""Passes over pairs of groups in NumPy: those over few pairs, done long before a kernel is compiled, and over groups.

`compiled` chooses by size alone, so that a problem gets the same bits every time. Pairs k <= l stand one after the
other, row by row, as tiles of d x d numbers; pair_kernels.py and stein_kernel.py have the passes over many of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from . import tuning
from .symmetric import smat, svec, triangle

Counts = NDArray[Any]


class Parts(NamedTuple):
    """E[y] : (K, d); second moments, or covariances, of y and of u = -y_bar / gain: V : (K, s), W : (pairs, d, d), U :
    (d, d), uy : (K, d, d); E[u] : (d,)."""

    y: Floats
    V: Floats
    W: Floats
    u: Floats
    U: Floats
    uy: Floats


class Form(NamedTuple):
    """The map (y, u) -> F y + B u of each group, as passes over tiles read it."""

    F: Floats
    F_t: Floats
    B: Floats
    B_t: Floats


def turned(F: Floats) -> Floats:
    """The transpose of each, stored as such."""
    return np.ascontiguousarray(F.swapaxes(-1, -2))


def form_of(F: Floats, B: Floats) -> Form:
    """F and B as passes read them."""
    F, B = np.ascontiguousarray(F), np.ascontiguousarray(B)
    return Form(F, turned(F), B, turned(B))


def compiled(K: int, d: int) -> bool:
    """Whether there are so many pairs of K groups in d dimensions that their passes are compiled."""
    return K * (K + 1) // 2 * d**4 > tuning.COMPILED_FROM


def existing(count: Counts) -> NDArray[np.bool_]:
    """Which pairs exist: an agent alone in its group has no other there."""
    k, n = triangle(len(count))
    return (k < n) | (count[k] > 1)


def pairs(W: Floats, mixed: Any, form: Any, count: Counts, times: float, out: Floats) -> None:
    """Add `times` (F_k W_kl F_l^T + R_k B_l^T + B_k R_l^T)."""
    (R, R_t), (F, F_t, B, B_t) = mixed, form
    k, n = triangle(len(count))
    both = np.concatenate([R, B], axis=2)[k] @ np.concatenate([B_t, R_t], axis=1)[n]
    np.add(out, times * (F[k] @ W @ F_t[n] + both), out=out, where=existing(count)[:, None, None])


def doubled(X: Floats, powers: Floats, powers_t: Floats, count: Counts, out: Floats) -> None:
    """Add Y_kl = sum_j B_k^j X_kl B_l^jT, by Y += Q_j Y Q_j^T with powers Q_j = B^(2^j) : (J, K, d, d)."""
    k, n = triangle(len(count))
    for Q, Q_t in zip(powers, powers_t, strict=True):
        X = X + Q[k] @ X @ Q_t[n]
    np.add(out, X, out=out, where=existing(count)[:, None, None])


def sums(W: Floats, weight: Floats, count: Counts) -> Floats:
    """(K, d, d): of all others, the sum of their weights and E[y' y^T], for an agent of each group."""
    k, n = triangle(len(count))
    joint = np.empty((len(count), len(count), *W.shape[1:]))
    joint[n, k], joint[k, n] = W.transpose(0, 2, 1), W
    return np.asarray(np.tensordot(weight * count, joint, 1) - weight[:, None, None] * W[k == n])


def stein_inverses(F: Floats, count: Counts) -> Floats:
    """(tiles that exist, d^2, d^2): the inverse of W -> W - F_k W F_l^T, rows of W one after the other."""
    k, n = (side[existing(count)] for side in triangle(len(count)))
    d = F.shape[1]
    maps = np.einsum("pij,pkl->pikjl", F[k], F[n]).reshape(-1, d * d, d * d)
    return np.asarray(np.linalg.inv(np.eye(d * d) - maps), np.float64)


def stationary(inverses: Floats, F: Floats, R: Floats, B: Floats, count: Counts) -> Floats:
    """The W with W_kl = F_k W_kl F_l^T + R_k B_l^T + B_k R_l^T, refined once; 0 where a pair does not exist."""
    exist = existing(count)
    k, n = (side[exist] for side in triangle(len(count)))
    F_t, B_t, R_t = (M.transpose(0, 2, 1) for M in (F, B, R))
    source = R[k] @ B_t[n] + B[k] @ R_t[n]
    W, left = np.zeros_like(source), source
    for _ in range(2):
        W = W + (inverses @ left.reshape(*inverses.shape[:2], 1)).reshape(W.shape)
        left = source - (W - F[k] @ W @ F_t[n])
    out = np.zeros((len(exist), *W.shape[1:]))
    out[exist] = W
    return out


def alone(V: Floats, R: Floats, F: Floats, B: Floats) -> Floats:
    """svec(F_k V_k F_k^T + R_k B_k^T + B_k R_k^T) of all groups; V : (K, s)."""
    crossed = R @ B.transpose(0, 2, 1)
    return svec(F @ smat(V, F.shape[1]) @ F.transpose(0, 2, 1) + crossed + crossed.transpose(0, 2, 1))


def noise(parts: Any, own: Floats) -> Floats:
    """own_k svec E[w w^T], w = (u, y_k, 1), but for 1 with itself, of all groups.

    parts : E[y], svec E[y y^T], E[u], E[u u^T] and E[u y^T]
    """
    y, V, u, U, uy = parts
    K, d = y.shape
    square = np.zeros((K, 2 * d + 1, 2 * d + 1))  # its upper triangle
    square[:, :d, :d], square[:, :d, d:-1], square[:, :d, -1] = U, uy, u
    square[:, d:-1, d:-1], square[:, d:-1, -1] = smat(V, d), y
    return np.asarray((own @ svec(square)[..., None])[..., 0])
