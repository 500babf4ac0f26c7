"""Compiled passes over pairs of groups: the one place of theory/ where loops are written out.

Pairs k <= l stand one after the other, row by row, as tiles of d x d numbers: pair (k, l) is tile first(k) + l - k,
first(k) = k (2 K - k + 1) / 2. Each pass reads and writes the tiles once and lets go of the interpreter's lock, so
plain threads share the rows. Entries are copied one by one: slices would take seconds to compile.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..kernel_cache import kernel

OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}


@kernel(**OPTIONS)
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


@kernel(**OPTIONS)
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


@kernel(**OPTIONS)
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


# The compiled pass over pairs of groups that solves their Stein equations, many pairs side by side.
#
# Pairs (k, l) of one k are solved in lanes, one lane per l. Products of small matrices are one product of large ones
# for all lanes; loops over lanes are the innermost ones, on real and imaginary parts apart, and become vectors.
# tests/theory/test_stationary_pairs.py holds it to a readable twin.

Complexes = NDArray[np.complex128]

LANES = 32  # pairs side by side: what they need stays in the cache next to the core


def in_lanes(maps: Complexes) -> Floats:
    """(K, d, d) complex to (blocks, 2, d, d, LANES), real and imaginary parts; zeros beyond the last agent."""
    K, d, _ = maps.shape
    out = np.zeros((-(-K // LANES) * LANES, 2, d, d))
    out[:K, 0], out[:K, 1] = maps.real, maps.imag
    return np.ascontiguousarray(out.reshape(-1, LANES, 2, d, d).transpose(0, 2, 3, 4, 1))


def from_lanes(values: Floats, K: int) -> Complexes:
    """The inverse of `in_lanes` for K agents."""
    d = values.shape[2]
    out = values.transpose(0, 4, 1, 2, 3).reshape(-1, 2, d, d)[:K]
    return np.asarray(out[:, 0] + 1j * out[:, 1])


def maps_in_lanes(T: Floats, Z: Floats, R: Complexes, B: Complexes) -> tuple[Floats, ...]:
    """T, Z, R, B in lanes, and B and R by rows (map, part, m) and columns (j, lane).

    T, Z : in lanes already; R, B : (K, d, d), multiplied by Z^H from the left
    """
    both = in_lanes(R), in_lanes(B)
    columns = np.concatenate([both[1].transpose(0, 1, 3, 2, 4), both[0].transpose(0, 1, 3, 2, 4)], axis=1)
    return T, Z, *both, columns.reshape(len(T), 4 * T.shape[2], -1)


@kernel(**OPTIONS)
def solve_pairs(maps, weight, count, begin, end, out, tiles):
    """Solve W_kl = F_k W_kl F_l^T + R_k B_l^T + B_k R_l^T for the rows begin <= k < end, F = Z T Z^H, T triangular.

    maps : from `maps_in_lanes`; weight, count : (K,).
    out : in lanes, gains E[y_bar y^T] Z of an agent of each group, as far as these rows know it, without what is its
    own. tiles : (pairs, d, d), the W_kl, real, or empty if not wanted.
    """
    T, Z, R, B, columns = maps
    K, blocks, d = len(weight), len(T), T.shape[2]
    left, turn = np.empty((2 * d, 4 * d)), np.empty((2 * d, 2 * d))  # R and B of agent k; its Z
    # X = Z_k^H W Z_l, the right-hand side G of its equation, Z_k X: rows (part, i), columns (j, lane)
    X, G, ZX = np.empty((2 * d, d * LANES)), np.empty((2 * d, d * LANES)), np.empty((2 * d, d * LANES))
    X4, G4, ZX4 = X.reshape(2, d, d, LANES), G.reshape(2, d, d, LANES), ZX.reshape(2, d, d, LANES)
    rest, whole = np.empty((2, d, LANES)), np.empty((2, d, LANES))  # a column of X T_l^H, first without its own part
    own, sums = np.empty((2 * d, 2 * d)), np.empty((2 * d, 2 * d))
    mine, other, exists = np.empty(LANES), np.empty(LANES), np.empty(LANES, np.bool_)
    for k in range(begin, end):
        h, y, first = k // LANES, k % LANES, k * (2 * K - k + 1) // 2
        for i in range(d):
            for m in range(d):
                r, q, t, s = R[h, 0, i, m, y], R[h, 1, i, m, y], B[h, 0, i, m, y], B[h, 1, i, m, y]
                left[i, m], left[i, d + m], left[i, 2 * d + m], left[i, 3 * d + m] = r, q, t, s
                left[d + i, m], left[d + i, d + m], left[d + i, 2 * d + m], left[d + i, 3 * d + m] = q, -r, s, -t
                p, q = Z[h, 0, i, m, y], Z[h, 1, i, m, y]
                turn[i, m], turn[i, d + m], turn[d + i, m], turn[d + i, d + m] = p, -q, q, p
        for i in range(2 * d):
            for j in range(2 * d):
                sums[i, j] = 0.0
        for b in range(h, blocks):
            for x in range(LANES):
                n = b * LANES + x
                mine[x], other[x], exists[x] = 0.0, 0.0, k < n < K or (n == k and count[k] > 1)
                if exists[x]:
                    mine[x] = weight[k] * (count[k] - (n == k))
                    other[x] = weight[n] * count[n] * (n > k)
            np.dot(left, columns[b], G)
            for j in range(d - 1, -1, -1):
                for i in range(d):
                    for x in range(LANES):
                        rest[0, i, x] = rest[1, i, x] = 0.0
                for m in range(j + 1, d):
                    for i in range(d):
                        for x in range(LANES):
                            rest[0, i, x] += T[b, 0, j, m, x] * X4[0, i, m, x] + T[b, 1, j, m, x] * X4[1, i, m, x]
                            rest[1, i, x] += T[b, 0, j, m, x] * X4[1, i, m, x] - T[b, 1, j, m, x] * X4[0, i, m, x]
                for i in range(d - 1, -1, -1):
                    t, s = T[h, 0, i, i, y], T[h, 1, i, i, y]
                    for x in range(LANES):
                        G4[0, i, j, x] += t * rest[0, i, x] - s * rest[1, i, x]
                        G4[1, i, j, x] += t * rest[1, i, x] + s * rest[0, i, x]
                    for m in range(i + 1, d):
                        p, q = T[h, 0, i, m, y], T[h, 1, i, m, y]
                        for x in range(LANES):
                            G4[0, i, j, x] += p * whole[0, m, x] - q * whole[1, m, x]
                            G4[1, i, j, x] += p * whole[1, m, x] + q * whole[0, m, x]
                    for x in range(LANES):
                        c, e = T[b, 0, j, j, x], T[b, 1, j, j, x]
                        p, q = 1.0 - (c * t + e * s), e * t - c * s  # divide by 1 - conj(T_l,jj) T_k,ii
                        size = p * p + q * q
                        u, v = G4[0, i, j, x], G4[1, i, j, x]
                        f, g = (u * p + v * q) / size, (v * p - u * q) / size
                        f, g = f if exists[x] else 0.0, g if exists[x] else 0.0
                        X4[0, i, j, x], X4[1, i, j, x] = f, g
                        whole[0, i, x] = rest[0, i, x] + c * f + e * g
                        whole[1, i, x] = rest[1, i, x] + c * g - e * f
            np.dot(turn, X, ZX)
            for part in range(2):
                for i in range(d):
                    for j in range(d):
                        for x in range(LANES):
                            out[b, part, i, j, x] += mine[x] * ZX4[part, i, j, x]
                            X4[part, i, j, x] *= other[x]
            np.dot(Z[b].reshape(2 * d, d * LANES), X.T, own)
            for i in range(2 * d):
                for j in range(2 * d):
                    sums[i, j] += own[i, j]
            if len(tiles):
                for x in range(LANES):
                    if exists[x]:
                        for i in range(d):
                            for j in range(d):
                                total = 0.0
                                for m in range(d):
                                    total += ZX4[0, i, m, x] * Z[b, 0, j, m, x] + ZX4[1, i, m, x] * Z[b, 1, j, m, x]
                                tiles[first + b * LANES + x - k, i, j] = total
        for i in range(d):
            for j in range(d):
                out[h, 0, i, j, y] += sums[i, j] + sums[d + i, d + j]
                out[h, 1, i, j, y] += sums[d + i, j] - sums[i, d + j]
