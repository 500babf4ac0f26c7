"""What one agent does between two communications, in expectation: local steps, and how they compose.

Coordinates are centred: u = theta - theta_star, x = xi - xi_star, and a local step is

    u' = (I - eta A(z)) u + eta x - eta omega(z).

With the lifted state w = (u, x, 1), M the mean map of w, G the map E[(I - eta A) X (I - eta A)^T] on svec and D_h the
map from svec(w w^T) to the covariance of u after h steps given w, steps compose as (a first, then b)

    M_{a+b} = M_b M_a,   G_{a+b} = G_b G_a,   D_{a+b} = G_b D_a + D_b symkron(M_a),

so H steps cost O(log H) products, and only positive terms are ever added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm
from ..checks import Floats
from ..threads import cores, share
from . import tuning
from .linear import Index, check_accuracy, functionals, repeat, rows_of, smat, svec, symkron, triangle, within
from .problem_moments import Moments, check_size

# M, G and D of many tables are laid out for few products of matrices that are as large as they can be, so all of them
# are transposed: the entries of svec Cov(u) come last, and G^T and D^T are rows of one matrix, which one product
# carries on.


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


Kept = TypeVar("Kept")


@dataclass(frozen=True, eq=False)
class Kinds:
    """What differs between agents in their local steps: J kinds of them, and which each of K groups is of.

    table : (J,); eta : (J,), step sizes; steps : (J,), how many; kind : (K,), of each group
    x : (J, d), control variates that never change, or None
    """

    table: Index
    eta: Floats
    steps: NDArray[np.int64]
    x: Floats | None
    kind: Index

    @staticmethod
    def of(table: Index, eta: Floats, steps: NDArray[np.int64], x: Floats | None = None) -> Kinds:
        """From those of all groups."""
        rows = np.column_stack([table, eta, steps, *(() if x is None else (x,))])
        _, first, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return Kinds(table[first], eta[first], steps[first], None if x is None else x[first], kind.ravel())

    def step(self, m: Moments, some: Index) -> LocalSteps | FrozenSteps:
        """A single local step of some kinds, on w = (u, x, 1), or on v = (u, 1) where x never changes."""
        d, eta = m.dim, self.eta[some, None, None]
        check_size((len(self.table), *m.noise.shape[1:]))  # which may be a zero that takes no memory itself
        A, place = m.A_bar[self.table[some]], np.eye(d + 1)  # (theta - centre, 1) in terms of v
        place[:d, d] = m.offset
        noise = eta**2 * (m.noise[self.table[some]] @ symkron(place))
        G = symkron(np.eye(d) - eta * A) + noise[..., within(d, d + 1)]
        M = np.tile(np.eye(d + 1 if self.x is not None else 2 * d + 1), (len(some), 1, 1))
        M[:, :d, :d] -= eta * A
        if self.x is not None:
            M[:, :d, d] = eta[..., 0] * self.x[some]
            return FrozenSteps.of(M, G, noise)
        M[:, :d, d:] += eta * np.eye(d, d + 1)
        return LocalSteps.of(M, G, noise)

    def repeated(self, m: Moments, keep: Callable[[Index, Any], Kept]) -> tuple[list[Kept], Index]:
        """What `keep` says of all steps of some kinds, in O(log steps) products, for one part of them after the other.

        A part stays in the cache. Threads share the parts, and there are as many for any number of threads. Beside it
        where the kind of each group stands among them : (K,).
        """
        parts = list[tuple[int, Index]]()
        for H in np.unique(self.steps).tolist():
            same = np.flatnonzero(self.steps == H)
            many = same.size * math.prod(m.noise.shape[1:]) > tuning.THREADS_FROM and H > 1
            count = 2 * math.ceil(len(same) / tuning.TABLES_AT_ONCE / 2) if many else 1
            parts += [(H, some) for some in np.array_split(same, count)]
        found: list[Any] = [None] * len(parts)

        def work(begin: int, end: int) -> None:
            for i in range(begin, end):
                H, some = parts[i]
                one = self.step(m, some)
                found[i] = keep(some, repeat(one, H, lambda a, b: a.then(b)))  # type: ignore[arg-type]

        threads = min(cores(), len(parts))
        share(work, [len(parts) * i // threads for i in range(threads + 1)])  # products of arrays let go of the lock
        return found, np.argsort(np.concatenate([some for _, some in parts]))[self.kind]

    def maps(self, m: Moments) -> tuple[Floats, Floats]:
        """M : (K, n, n) and the noise : (K, s, S) of all steps of each group."""
        found, at = self.repeated(m, lambda _, steps: (steps.M, steps.noise))
        M, noise = (np.concatenate(each) for each in zip(*found, strict=True))
        return (M, noise) if np.array_equal(at, np.arange(len(M))) else (M[at], noise[at])


# --- rounds of L local steps, the same for all agents, P(L = l) = p (1 - p)^(l - 1) -----------------------------------


def random_steps(one: LocalSteps, Z: Floats, p: float) -> tuple[Floats, Floats]:
    """E[kappa] / eta : (M, d, d) and svec E[w w^T] to the mean over lengths of svec Cov(u_hat | L) : (M, s, S).

    Z : (M, d, d), eta A_bar. With D the noise of one step, R = p (I - q G)^-1 D + q R symkron(M). In w = (u, z) the
    mean of a step is u' = B u + C z and z' = z, so that the blocks of R, rows of which are symmetric matrices, follow
    one from another. It is infinite where it diverges.
    """
    q, n, d = 1 - p, one.M.shape[-1], (one.M.shape[-1] - 1) // 2
    tables, s = len(one.M), d * (d + 1) // 2
    K, covariance = one_less(Z, p)
    Q, none = np.asarray(np.linalg.inv(K), np.float64), np.full((tables, s, n * (n + 1) // 2), np.inf)
    B, C = one.M[:, None, :d, :d], one.M[:, None, :d, d:]
    if not np.isfinite(one.rows).all():
        return Q, none
    D = functionals(one.noise, n)
    system = covariance - q * rows_of(D[..., :d, :d])  # I - q G
    try:
        sums = np.linalg.inv(system)
    except np.linalg.LinAlgError:
        sums = np.full_like(system, np.inf)
    condition = np.linalg.norm(system, axis=(1, 2)) * np.linalg.norm(sums, axis=(1, 2))
    check_accuracy(float(np.finfo(np.float64).eps * condition.max()), f"rounds of {1 / p:.0e} steps in the mean")
    if not np.linalg.eigvalsh(smat(sums @ svec(np.eye(d)), d)).min() > 0:  # a sum of positive maps is positive
        return Q, none
    E = p * (sums @ D.reshape(tables, s, n * n)).reshape(D.shape)
    uu, B_t = functionals(over(rows_of(E[..., :d, :d]), covariance), d), B.swapaxes(-1, -2)
    uz = np.linalg.solve(K.swapaxes(-1, -2)[:, None], E[..., :d, d:] + q * B_t @ uu @ C)
    half = C.swapaxes(-1, -2) @ (uu @ C / 2 + uz)
    R = np.empty_like(D)
    R[..., :d, :d], R[..., :d, d:], R[..., d:, :d] = uu, uz, uz.swapaxes(-1, -2)
    R[..., d:, d:] = (E[..., d:, d:] + q * (half + half.swapaxes(-1, -2))) / p
    return Q, rows_of(R)


def one_less(Z: Floats, p: float) -> tuple[Floats, Floats]:
    """I - q B and I - q symkron(B) for B = I - Z, Z : (M, d, d), where neither p nor Z is rounded beside 1."""
    one, size = np.eye(Z.shape[-1]), max(float(np.abs(Z).max()), 1e-300)
    linear = size / 2 * (symkron(one + Z / size) - symkron(one - Z / size))
    s = linear.shape[-1]
    return p * one + (1 - p) * Z, np.asarray(p * np.eye(s) + (1 - p) * (linear - symkron(Z)), np.float64)


def shared_length(Z: Floats, p: float) -> tuple[Floats, Floats] | None:
    """What a common length L adds to the covariance of two agents' u_hat; None if it diverges.

    With B = I - Z, Z = eta A_bar, an agent's mean path is u_hat = u + eta sum_{h < L} B^h q:

        Cov_L(u_hat, u_hat') = Y = sum_j C^j X C'^jT,   C = (1 - p)^(1/2) B,
        X = eta^2 p (1 - p) Psi q q'^T Psi'^T,   Psi = B (I - (1 - p) B)^-1.

    Nothing is subtracted, and no eigenvectors are needed: 2^j terms are had from the half of them, Y += Q_j Y Q_j'^T.
    The equation Y = C Y C'^T + X stays the same for any |c| < 1 when C becomes (C - c) (I - c C)^-1 and X goes through
    (1 - c^2)^(1/2) (I - c C)^-1 on both sides: with c amid the eigenvalues of C the sum has far fewer terms. They are
    spread by (1 - C) (1 + C)^-1, on which c acts as a factor. As each product is rounded, terms are digits lost.

    Returns that factor : (M, d, d) and powers : (J, M, d, d), those of the new C to 2^j. E = I - C and g = 1 - c are
    not rounded beside 1.
    """
    one, q = np.eye(Z.shape[-1]), 1 - p
    least = p / (1 + np.sqrt(q))  # of E where Z is 0
    E = least * one + np.sqrt(q) * Z
    try:
        largest = float(np.linalg.norm(np.linalg.solve(2 * one - E, E), 2, axis=(1, 2)).max())
        middle = min(1.0, np.sqrt(least / (2 - least) * largest))
        g = 2 * middle / (1 + middle)
        factor = np.linalg.inv(g * one + (1 - g) * E)
    except np.linalg.LinAlgError:  # an eigenvalue -1 or 1 / c of C, or no numbers
        return None
    powers = [(g * one - E) @ factor]
    for doublings in range(tuning.MAX_DOUBLINGS):
        size = np.linalg.norm(powers[-1], axis=(1, 2)).max()
        if size**2 < tuning.LENGTHS_TAIL:  # then all that this power would add is left out
            error = np.finfo(np.float64).eps * 2.0**doublings / tuning.LENGTHS_TERMS
            check_accuracy(float(error), f"rounds of {1 / p:.0e} steps in the mean")
            return np.sqrt(g * (2 - g)) * factor, np.stack(powers[: max(1, len(powers) - 1)])
        powers.append(powers[-1] @ powers[-1])
    return None


def over(B: Floats, K: Floats) -> Floats:
    """B K^-1 for each table."""
    return np.asarray(np.linalg.solve(K.swapaxes(-1, -2), B.swapaxes(-1, -2)).swapaxes(-1, -2), np.float64)


def round_length(a: Algorithm, rounds: int = 1) -> float:
    """The largest eta H of so many rounds, which the first or the last has; Scaffnew's H is its mean."""
    ends = np.array([0, rounds - 1])
    return float(np.max(a.eta(ends) * a.steps_in(ends)))
