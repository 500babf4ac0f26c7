"""The passes of pair_kernels.py over few pairs, in NumPy: they are done long before a kernel could be compiled.

`passes` chooses by size alone, so that a problem gets the same bits every time. What each pass does stands in
pair_kernels.py; rows begin ... end are always all of them here, for so few pairs are not shared among threads.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from . import tuning
from .symmetric import smat, svec, triangle

Complex = NDArray[np.complex128]
Counts = NDArray[Any]


def passes(K: int, d: int) -> ModuleType:
    """The module with the passes over pairs of K groups in d dimensions."""
    if K * (K + 1) // 2 * d * d <= tuning.COMPILED_FROM:
        return sys.modules[__name__]
    from . import pair_kernels

    return pair_kernels


def _pairs(count: Counts) -> tuple[Counts, Counts, NDArray[np.bool_]]:
    """The groups of each pair, and which pairs exist."""
    k, n = triangle(len(count))
    return k, n, (k < n) | (count[k] > 1)


def pairs(W: Floats, mixed: Any, form: Any, count: Counts, times: float, begin: int, end: int, out: Floats) -> None:
    """Add `times` (F_k W_kl F_l^T + R_k B_l^T + B_k R_l^T)."""
    (R, R_t), (F, F_t, B, B_t) = mixed, form
    k, n, exist = _pairs(count)
    out[exist] += times * (F[k] @ W @ F_t[n] + R[k] @ B_t[n] + B[k] @ R_t[n])[exist]


def sums(W: Floats, V: Floats, weight: Floats, count: Counts, begin: int, end: int, out: Floats) -> None:
    """Add to out_l E[y_bar y^T] for an agent of group l."""
    out += weight[:, None, None] * smat(V, out.shape[1])
    k, n, _ = _pairs(count)
    np.add.at(out, n, (weight[k] * (count[k] - (k == n)))[:, None, None] * W)
    np.add.at(out, k, (weight[n] * count[n] * (k < n))[:, None, None] * W.transpose(0, 2, 1))


def alone(V: Floats, R: Floats, F: Floats, B: Floats, begin: int, end: int, out: Floats) -> None:
    """svec(F_k V_k F_k^T + R_k B_k^T + B_k R_k^T)."""
    crossed = R @ B.transpose(0, 2, 1)
    out[:] = svec(F @ smat(V, F.shape[1]) @ F.transpose(0, 2, 1) + crossed + crossed.transpose(0, 2, 1))


def noise(parts: Any, own: Floats, begin: int, end: int, out: Floats) -> None:
    """Add own_k svec E[w w^T], w = (u, y_k, 1), but for 1 with itself."""
    y, V, u, U, uy = parts
    K, d = y.shape
    square = np.zeros((K, 2 * d + 1, 2 * d + 1))  # its upper triangle
    square[:, :d, :d], square[:, :d, d:-1], square[:, :d, -1] = U, uy, u
    square[:, d:-1, d:-1], square[:, d:-1, -1] = smat(V, d), y
    out += (own @ svec(square)[..., None])[..., 0]


def stationary(maps: Any, weight: Floats, count: Counts, out: Complex, tiles: Floats) -> None:
    """Solve W_kl = F_k W_kl F_l^T + R_k B_l^T + B_k R_l^T with F = Z T Z^H as stein_kernel.py does, column by column
    from the last; maps : T, Z, R, B, (K, d, d) each."""
    T, Z, R, B = maps
    k, n, exist = _pairs(count)
    k, n = k[exist], n[exist]
    conjugate = T[n].conj()
    G = R[k] @ B[n].conj().transpose(0, 2, 1) + B[k] @ R[n].conj().transpose(0, 2, 1)
    X = np.zeros_like(G)
    for j in range(T.shape[1] - 1, -1, -1):
        later = T[k] @ (X @ conjugate[:, j, :, None])  # of the columns after j, for X is 0 before them
        left = np.eye(T.shape[1]) - conjugate[:, j, j, None, None] * T[k]
        X[:, :, j] = np.linalg.solve(left, G[:, :, j, None] + later)[..., 0]
    turned = Z[k] @ X
    np.add.at(out, n, (weight[k] * (count[k] - (k == n)))[:, None, None] * turned)
    np.add.at(out, k, (weight[n] * count[n] * (k < n))[:, None, None] * (Z[n] @ X.conj().transpose(0, 2, 1)))
    if len(tiles):
        tiles[exist] = (turned @ Z[n].conj().transpose(0, 2, 1)).real
