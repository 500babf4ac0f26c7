"""Local steps that follow one another, for many tables at once: how M, G and D of theory/local_steps.py compose.

Steps a and then steps b are M = M_b M_a, G = G_b G_a and D = G_b D_a + D_b symkron(M_a). What is kept is laid out for
few products of matrices that are as large as they can be, so all of them are transposed: the entries of svec Cov(u)
come last, and G^T and D^T are rows of one matrix, which one product carries on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ..checks import Floats
from .symmetric import Index, smat, symkron, triangle


@dataclass(frozen=True, eq=False)
class LocalSteps:
    """Some number of local steps of every table on w = (u, z), z = (x, 1), which does not change; M : (M, n, n).

    rows : (M, s + d n + q q, s), q = d + 1: G^T, then D^T of all u_k w_l, then D^T of all z_k z_l. Composing D with
    symkron(M_a) is a product for one index, a copy in whole rows that exchanges the two, and another product.
    """

    M: Floats
    rows: Floats

    @staticmethod
    def of(M: Floats, G: Floats, noise: Floats) -> LocalSteps:
        """From G : (M, s, s) and noise : (M, s, S), of the entries of svec(v v^T), v = (u, 1)."""
        (tables, n, _), s = M.shape, len(G[0])
        d, D, (k, j) = n // 2, np.zeros((tables, n, n, s)), triangle(n // 2 + 1)
        by_rows = np.multiply(np.where(k == j, 1.0, 0.5)[:, None], noise.swapaxes(1, 2), order="C")
        at = np.append(np.arange(d), n - 1)
        D[:, at[:, None], at] = by_rows[:, smat(np.arange(len(k), dtype=np.float64), d + 1).astype(np.intp)]
        uw, zz = D[:, :d].reshape(tables, d * n, s), D[:, d:, d:].reshape(tables, (n - d) ** 2, s)
        return LocalSteps(M, np.concatenate([G.swapaxes(1, 2), uw, zz], axis=1))

    @property
    def noise(self) -> Floats:
        """D as a matrix on svec(w w^T) : (M, s, S)."""
        place, times = _places(self.M.shape[1])
        return (times[:, None] * self.rows[:, self.rows.shape[2] + place]).swapaxes(1, 2)

    def then(self, later: LocalSteps) -> LocalSteps:
        """These steps, and then those."""
        (tables, n, _), s = self.M.shape, self.rows.shape[2]
        d, q, before = n // 2, n - n // 2, self.M[:, : n // 2].swapaxes(1, 2)
        end, rows = s + d * n, self.rows @ later.rows[:, :s]
        uw = later.rows[:, s:end].reshape(tables, d, n * s)
        uz = uw.reshape(tables, d, n, s)[:, :, d:]
        met = np.empty((tables, d, n, s))  # (D_uu, D_uz) once the second of its indices has gone through M_a
        met[:] = (before @ uw[:, :, : d * s]).reshape(tables, n, d, s).swapaxes(1, 2)
        met[:, :, d:] += uz
        half = (before[:, d:] @ ((met[:, :, d:] + uz) / 2).reshape(tables, d, q * s)).reshape(tables, q, q, s)
        rows[:, s:end] += (before[:, :d] @ met.reshape(tables, d, n * s)).reshape(tables, d * n, s)
        rows[:, end:] += later.rows[:, end:]
        rows[:, end:] += (half + half.swapaxes(1, 2)).reshape(tables, q * q, s)
        return LocalSteps(later.M @ self.M, rows)


@cache
def _places(n: int) -> tuple[Index, Floats]:
    """Where the entries of svec(w w^T) stand among the rows of D^T, and how often each of them counts."""
    d, (k, j) = n // 2, triangle(n)
    return np.where(k < d, k * n + j, d * n + (k - d) * (n - d) + j - d), np.where(k == j, 1.0, 2.0)


@dataclass(frozen=True, eq=False)
class FrozenSteps:
    """The same where control variates never change, on v = (u, 1) : M : (M, d + 1, d + 1).

    rows : (M, s + S, s + S), the transpose of the map of (svec Cov(u), svec E[v] E[v]^T): G^T and 0, and below
    D^T and symkron(M)^T. Steps compose as these matrices multiply.
    """

    M: Floats
    rows: Floats

    @staticmethod
    def of(M: Floats, G: Floats, noise: Floats) -> FrozenSteps:
        """From G : (M, s, s) and noise : (M, s, S), of the entries of svec(v v^T)."""
        s, S = noise.shape[1:]
        rows = np.empty((len(M), s + S, s + S))
        rows[:, :s, s:] = 0
        rows[:, :s, :s], rows[:, s:, :s] = G.swapaxes(1, 2), noise.swapaxes(1, 2)
        rows[:, s:, s:] = symkron(M).swapaxes(1, 2)
        return FrozenSteps(M, rows)

    @property
    def noise(self) -> Floats:
        """D as a matrix on svec(v v^T) : (M, s, S)."""
        s = _size(self.M)
        return self.rows[:, s:, :s].swapaxes(1, 2)

    def then(self, later: FrozenSteps) -> FrozenSteps:
        """These steps, and then those."""
        s, a, b = _size(self.M), self.rows, later.rows
        rows = np.empty_like(a)
        rows[:, :s, s:] = 0
        np.matmul(a[:, :s, :s], b[:, :s, :s], out=rows[:, :s, :s])
        np.matmul(a[:, s:], b[:, :, :s], out=rows[:, s:, :s])
        np.matmul(a[:, s:, s:], b[:, s:, s:], out=rows[:, s:, s:])
        return FrozenSteps(later.M @ self.M, rows)


def _size(M: Floats) -> int:
    """s for the M of frozen steps."""
    n = M.shape[1]
    return n * (n - 1) // 2
