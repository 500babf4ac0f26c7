"""Compiled passes over pairs of groups: the one place of theory/ where loops are written out.

Pairs k <= l stand one after the other, row by row, as tiles of d x d numbers: pair (k, l) is tile first(k) + l - k,
first(k) = k (2 K - k + 1) / 2. Each pass reads and writes the tiles once and lets go of the interpreter's lock, so
plain threads share the rows. Entries are copied one by one: slices would take seconds to compile.
"""

from __future__ import annotations

import numpy as np
from numba import njit

OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}


@njit(**OPTIONS)
def pairs(W, mixed, form, count, times, begin, end, out):
    """Add `times` (F_k W_kl F_l^T + R_k B_l^T + B_k R_l^T) for the rows begin <= k < end.

    mixed : R and its transposes; form : F and B, each with its transposes
    """
    (R, R_t), (F, F_t, B, B_t) = mixed, form
    K, d = F.shape[0], F.shape[1]
    half = np.empty(d)
    for k in range(begin, end):
        first = k * (2 * K - k + 1) // 2
        for n in range(k, K):
            if n == k and count[k] == 1:  # a pair that does not exist
                continue
            w, o = W[first + n - k], out[first + n - k]
            for i in range(d):
                half[:] = 0.0
                for m in range(d):
                    f = F[k, i, m]
                    for j in range(d):
                        half[j] += f * w[m, j]
                for m in range(d):
                    h, r, b = times * half[m], times * R[k, i, m], times * B[k, i, m]
                    for j in range(d):
                        o[i, j] += h * F_t[n, m, j] + r * B_t[n, m, j] + b * R_t[n, m, j]


@njit(**OPTIONS)
def doubled(X, powers, powers_t, count, begin, end, out):
    """Add Y_kl = sum_j B_k^j X_kl B_l^jT, by Y += Q_j Y Q_j^T with powers Q_j = B^(2^j) : (J, K, d, d)."""
    J, K, d = powers.shape[0], powers.shape[1], powers.shape[2]
    Y, half = np.empty((d, d)), np.empty((d, d))
    for k in range(begin, end):
        first = k * (2 * K - k + 1) // 2
        for n in range(k, K):
            if n == k and count[k] == 1:
                continue
            for i in range(d):
                for j in range(d):
                    Y[i, j] = X[first + n - k, i, j]
            for q in range(J):
                half[:] = 0.0
                for i in range(d):
                    for m in range(d):
                        f = powers[q, k, i, m]
                        for j in range(d):
                            half[i, j] += f * Y[m, j]
                for i in range(d):
                    for m in range(d):
                        h = half[i, m]
                        for j in range(d):
                            Y[i, j] += h * powers_t[q, n, m, j]
            for i in range(d):
                for j in range(d):
                    out[first + n - k, i, j] += Y[i, j]


@njit(**OPTIONS)
def sums(W, V, weight, count, begin, end, out):
    """Add to out_l : (K, d, d) E[y_bar y^T] for an agent of group l, as far as rows begin <= k < end know it.

    weight : (K,), of each of the `count` agents; V : (K, s), svec E[y y^T] of one of them.
    """
    K, d = out.shape[0], out.shape[1]
    for k in range(begin, end):
        first, at = k * (2 * K - k + 1) // 2, 0
        for i in range(d):
            for j in range(i, d):
                out[k, i, j] += weight[k] * V[k, at]
                if j > i:
                    out[k, j, i] += weight[k] * V[k, at]
                at += 1
        for n in range(k, K):
            w = W[first + n - k]
            mine, other = weight[k] * (count[k] - (n == k)), weight[n] * count[n]
            for i in range(d):
                for j in range(d):
                    out[n, i, j] += mine * w[i, j]
                    if n > k:
                        out[k, j, i] += other * w[i, j]


@njit(**OPTIONS)
def alone(V, R, F, B, begin, end, out):
    """svec(F_k V_k F_k^T + R_k B_k^T + B_k R_k^T) for the groups begin <= k < end; V, out : (K, s)."""
    d = F.shape[1]
    full, half = np.empty((d, d)), np.empty(d)
    for k in range(begin, end):
        at = 0
        for i in range(d):
            for j in range(i, d):
                full[i, j] = full[j, i] = V[k, at]
                at += 1
        at = 0
        for i in range(d):
            half[:] = 0.0
            for m in range(d):
                f = F[k, i, m]
                for j in range(d):
                    half[j] += f * full[m, j]
            for j in range(i, d):
                total = 0.0
                for m in range(d):
                    total += half[m] * F[k, j, m] + R[k, i, m] * B[k, j, m] + B[k, i, m] * R[k, j, m]
                out[k, at] = total
                at += 1


@njit(**OPTIONS)
def noise(parts, own, begin, end, out):
    """Add own_k svec E[w w^T], w = (u, y_k, 1), but for 1 with itself; groups begin <= k < end.

    parts : E[y], svec E[y y^T], E[u], E[u u^T] and E[u y^T], a plain tuple, which is passed on quickly
    """
    y, V, u, U, uy = parts
    d, w = len(u), np.empty(own.shape[2])
    for k in range(begin, end):
        at, first = 0, 0
        for i in range(d):
            for j in range(i, d):
                w[at + j - i] = U[i, j]
            for j in range(d):
                w[at + d - i + j] = uy[k, i, j]
            w[at + 2 * d - i] = u[i]
            at += 2 * d - i + 1
        for i in range(d):
            for j in range(d - i):
                w[at + j] = V[k, first + j]
            w[at + d - i] = y[k, i]
            at, first = at + d - i + 1, first + d - i
        w[at] = 0.0
        for row in range(own.shape[1]):
            total = 0.0
            for column in range(len(w)):
                total += own[k, row, column] * w[column]
            out[k, row] += total
