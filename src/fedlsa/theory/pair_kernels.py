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
def sums(W, weight, count, begin, end, out):
    """Add to out_l : (K, d, d), for an agent of group l, the sum of all others' weights and E[y' y^T], as far as rows
    begin <= k < end know it; weight : (K,), of each of the `count` agents.
    """
    K, d = out.shape[0], out.shape[1]
    for k in range(begin, end):
        first = k * (2 * K - k + 1) // 2
        for n in range(k, K):
            w = W[first + n - k]
            mine, other = weight[k] * (count[k] - (n == k)), weight[n] * count[n]
            for i in range(d):
                for j in range(d):
                    out[n, i, j] += mine * w[i, j]
                    if n > k:
                        out[k, j, i] += other * w[i, j]
