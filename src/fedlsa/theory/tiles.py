"""Compiled passes over pairs of groups: the one place of theory/ where loops are written out.

Pairs k <= l stand one after the other, row by row, as tiles of d x d numbers: pair (k, l) is tile first(k) + l - k,
first(k) = k (2 K - k + 1) / 2. Each pass reads and writes the tiles once and lets go of the interpreter's lock, so
plain threads share the rows. theory/controlled.py says the same with whole arrays and is what the tests compare with.
"""

from __future__ import annotations

import numpy as np
from numba import njit

OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}


@njit(**OPTIONS)
def fixed(W, F, F_t, R, R_t, B, B_t, count, begin, end, out):
    """F_k W_kl F_l^T + R_k B_l^T + B_k R_l^T for the rows begin <= k < end; X_t holds transposes of X : (K, d, d)."""
    K, d = F.shape[0], F.shape[1]
    half = np.empty(d)
    for k in range(begin, end):
        first = k * (2 * K - k + 1) // 2
        for n in range(k, K):
            w, o = W[first + n - k], out[first + n - k]
            if n == k and count[k] == 1:  # a pair that does not exist
                o[:] = 0.0
                continue
            for i in range(d):
                for j in range(d):
                    half[j] = 0.0
                    o[i, j] = 0.0
                for m in range(d):
                    f = F[k, i, m]
                    for j in range(d):
                        half[j] += f * w[m, j]
                for m in range(d):
                    h, r, b = half[m], R[k, i, m], B[k, i, m]
                    for j in range(d):
                        o[i, j] += h * F_t[n, m, j] + r * B_t[n, m, j] + b * R_t[n, m, j]


@njit(**OPTIONS)
def geometric(W, E_t, V, V_t, S, S_t, U, kept, p, eta, gain, count, begin, end, out):
    """The same where agents share a length drawn from Geometric(p), elementwise in their eigenbases.

    E_t : (2, K, d, d), real and imaginary parts of the eigenvectors, as rows; V : their inverse; S = V E[y u^T];
    U = V E[u u^T]; kept : (K, d), eigenvalues of I - eta A. With kappa = eta sum_{h < L} l^h and lambda = l^L,
    y+ = f y + b u for f = 1 - gain kappa, b = gain (f - lambda).
    """
    K, d, q = kept.shape[0], kept.shape[1], 1 - p
    kappa, lam = eta / (1 - q * kept), p * kept / (1 - q * kept)  # means over the length
    half, re, im, turned = np.empty((2, d)), np.empty((4, d)), np.empty((4, d)), np.empty((2, d))
    for k in range(begin, end):
        first = k * (2 * K - k + 1) // 2
        for n in range(k, K):
            w, o = W[first + n - k], out[first + n - k]
            o[:] = 0.0
            if n == k and count[k] == 1:
                continue
            for i in range(d):
                a = kept[k, i]
                if a.imag < 0:  # its conjugate counts for both
                    continue
                re[:], im[:], turned[:] = 0.0, 0.0, 0.0
                for part in range(1 if a.imag == 0 else 2):
                    half[part] = 0.0
                    for m in range(d):
                        e = V[part, k, i, m]
                        for j in range(d):
                            half[part, j] += e * w[m, j]
                for m in range(d):
                    h, s, e, v = half[0, m], S[0, k, i, m], V[0, k, i, m], U[0, k, i, m]
                    for j in range(d):
                        re[0, j] += h * V_t[0, n, m, j]
                        im[0, j] += h * V_t[1, n, m, j]
                        re[1, j] += s * V_t[0, n, m, j]
                        im[1, j] += s * V_t[1, n, m, j]
                        re[2, j] += e * S_t[0, n, m, j]
                        im[2, j] += e * S_t[1, n, m, j]
                        re[3, j] += v * V_t[0, n, m, j]
                        im[3, j] += v * V_t[1, n, m, j]
                if a.imag > 0:
                    for m in range(d):
                        h, s, e, v = half[1, m], S[1, k, i, m], V[1, k, i, m], U[1, k, i, m]
                        for j in range(d):
                            re[0, j] -= h * V_t[1, n, m, j]
                            im[0, j] += h * V_t[0, n, m, j]
                            re[1, j] -= s * V_t[1, n, m, j]
                            im[1, j] += s * V_t[0, n, m, j]
                            re[2, j] -= e * S_t[1, n, m, j]
                            im[2, j] += e * S_t[0, n, m, j]
                            re[3, j] -= v * V_t[1, n, m, j]
                            im[3, j] += v * V_t[0, n, m, j]
                ka, la = kappa[k, i], lam[k, i]
                for m in range(d):
                    b, kb, lb = kept[n, m], kappa[n, m], lam[n, m]
                    below = 1 - q * a * b
                    c = complex(below.real, -below.imag) * (p / (below.real**2 + below.imag**2))
                    ff = 1 - gain * (ka + kb) + gain**2 * ka * kb * (c + q)
                    fl, lf = lb - gain * b * kb * c, la - gain * a * ka * c
                    h = ff * complex(re[0, m], im[0, m]) + gain * (ff - fl) * complex(re[1, m], im[1, m])
                    h += gain * (ff - lf) * complex(re[2, m], im[2, m])
                    h += gain**2 * (ff - fl - lf + a * b * c) * complex(re[3, m], im[3, m])
                    for j in range(d):
                        turned[0, j] += h.real * E_t[0, n, m, j] - h.imag * E_t[1, n, m, j]
                        turned[1, j] += h.real * E_t[1, n, m, j] + h.imag * E_t[0, n, m, j]
                twice = 1.0 if a.imag == 0 else 2.0
                for m in range(d):
                    e, f = twice * E_t[0, k, i, m], twice * E_t[1, k, i, m]
                    for j in range(d):
                        o[m, j] += e * turned[0, j] - f * turned[1, j]


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
def alone(y, V, u, U, uy, own, constant, begin, end, out):
    """own_k svec E[w w^T] with w = (u, y_k, 1) for the groups begin <= k < end; V : (K, s), svec E[y y^T]."""
    d, w = len(u), np.empty(own.shape[2])
    for k in range(begin, end):
        at, first = 0, 0
        for i in range(d):
            w[at : at + d - i] = U[i, i:]
            w[at + d - i : at + 2 * d - i] = uy[k, i]
            w[at + 2 * d - i] = u[i]
            at += 2 * d - i + 1
        for i in range(d):
            w[at : at + d - i] = V[k, first : first + d - i]
            w[at + d - i] = y[k, i]
            at, first = at + d - i + 1, first + d - i
        w[at] = constant
        for row in range(own.shape[1]):
            total = 0.0
            for column in range(len(w)):
                total += own[k, row, column] * w[column]
            out[k, row] = total


@njit(**OPTIONS)
def subtract(basis, along, begin, end, image):
    """image -= along @ basis on the entries begin <= i < end, a piece that stays in the cache at a time."""
    n = len(along)
    for at in range(begin, end, 1024):
        stop = min(at + 1024, end)
        for j in range(0, n - 3, 4):  # four rows at a time: the image is read and written a quarter as often
            a, b, c, d = along[j], along[j + 1], along[j + 2], along[j + 3]
            for i in range(at, stop):
                image[i] -= a * basis[j, i] + b * basis[j + 1, i] + c * basis[j + 2, i] + d * basis[j + 3, i]
        for j in range(n - n % 4, n):
            a = along[j]
            for i in range(at, stop):
                image[i] -= a * basis[j, i]


@njit(**OPTIONS)
def stationary(T, Z, R, B, weight, count, begin, end, out, tiles):
    """Solve W_kl = F_k W_kl F_l^T + R_k B_l^T + B_k R_l^T for the rows begin <= k < end, F = Z T Z^H, T triangular.

    All arrays : (K, d, d), complex; R and B are multiplied by Z^H from the left. out_l gains E[y_bar y^T] Z of an agent
    of group l, as far as these rows know it, without what is its own. tiles : the W_kl, real, or empty if not wanted.
    """
    K, d = T.shape[0], T.shape[1]
    X, G, acc = np.empty((d, d), T.dtype), np.empty((d, d), T.dtype), np.empty(d, T.dtype)
    for k in range(begin, end):
        first = k * (2 * K - k + 1) // 2
        for n in range(k, K):
            if n == k and count[k] == 1:  # a pair that does not exist
                continue
            for j in range(d):  # X[j] and G[j] are column j
                for i in range(d):
                    G[j, i] = 0.0
                for m in range(d):
                    b, r = np.conj(B[n, j, m]), np.conj(R[n, j, m])
                    for i in range(d):
                        G[j, i] += R[k, i, m] * b + B[k, i, m] * r
            for j in range(d - 1, -1, -1):
                c = np.conj(T[n, j, j])
                for i in range(d):
                    acc[i] = 0.0
                for m in range(j + 1, d):
                    t = np.conj(T[n, j, m])
                    for i in range(d):
                        acc[i] += t * X[m, i]
                for i in range(d - 1, -1, -1):
                    total = G[j, i] + T[k, i, i] * acc[i]
                    for m in range(i + 1, d):
                        total += T[k, i, m] * (acc[m] + c * X[j, m])
                    X[j, i] = total / (1.0 - c * T[k, i, i])
            mine, other = weight[k] * (count[k] - (n == k)), weight[n] * count[n]
            for i in range(d):
                for j in range(d):
                    total = 0.0 * c
                    for m in range(d):
                        total += Z[k, i, m] * X[j, m]
                    out[n, i, j] += mine * total
                    G[i, j] = total
            if n > k:
                for i in range(d):
                    for m in range(d):
                        z = other * Z[n, i, m]
                        for j in range(d):
                            out[k, i, j] += z * np.conj(X[m, j])
            if len(tiles):
                for i in range(d):
                    for j in range(d):
                        total = 0.0 * c
                        for m in range(d):
                            total += G[i, m] * np.conj(Z[n, j, m])
                        tiles[first + n - k, i, j] = total.real
