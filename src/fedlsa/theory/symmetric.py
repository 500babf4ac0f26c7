"""Symmetric matrices as vectors: svec is the upper triangle, symkron(M) the map svec(X) -> svec(M X M^T)."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats

Index = NDArray[np.intp]


@functools.cache
def triangle(n: int) -> tuple[Index, Index]:
    """Row and column of each entry of svec in dimension n; there are n (n + 1) / 2."""
    return np.triu_indices(n)


def svec(X: Floats) -> Floats:
    """The upper triangle of each symmetric matrix : (..., n, n) -> (..., n (n + 1) / 2)."""
    i, j = triangle(X.shape[-1])
    return X[..., i, j]


def squares(w: Floats) -> Floats:
    """svec(w w^T) of each vector : (..., n) -> (..., n (n + 1) / 2)."""
    i, j = triangle(w.shape[-1])
    return w[..., i] * w[..., j]


def smat(x: Floats, n: int) -> Floats:
    """The inverse of `svec`."""
    i, j = triangle(n)
    out = np.empty((*x.shape[:-1], n, n), x.dtype)
    out[..., i, j] = x
    out[..., j, i] = x
    return out


def symkron(M: Floats) -> Floats:
    """The matrix of X -> M X M^T on svec, for each M : (..., m, n) -> (..., m (m + 1) / 2, n (n + 1) / 2)."""
    (i, j), (k, q) = triangle(M.shape[-2]), triangle(M.shape[-1])
    first, second = M[..., k], M[..., q]  # columns of the small matrices; what follows copies whole rows
    out = first[..., i, :] * second[..., j, :]
    out += np.where(k == q, 0.0, second)[..., i, :] * first[..., j, :]
    return out


def folded(T: Floats) -> Floats:
    """The matrix on svec of X -> sum_kl T[i, k, j, l] X[k, l], for a T that keeps symmetry; T : (..., m, n, m, n)."""
    m, n = T.shape[-4], T.shape[-3]
    i, j = triangle(m)
    k, q = triangle(n)
    direct = T[..., i[:, None], k, j[:, None], q]
    crossed = T[..., i[:, None], q, j[:, None], k]
    return np.where(k == q, direct, direct + crossed)


def functionals(C: Floats, n: int) -> Floats:
    """Rows of a matrix on svec as symmetric matrices: C svec(X) = sum_kl T[..., k, l] X[k, l], T : (..., n, n)."""
    k, q = triangle(n)
    return smat(np.where(k == q, C, C / 2), n)


def rows_of(T: Floats) -> Floats:
    """The inverse of `functionals`."""
    k, q = triangle(T.shape[-1])
    return np.where(k == q, 1.0, 2.0) * svec(T)


def within(inner: int, outer: int) -> Index:
    """Where the entries of the leading inner x inner block stand in svec of dimension `outer`."""
    _, j = triangle(outer)
    return np.flatnonzero(j < inner)
