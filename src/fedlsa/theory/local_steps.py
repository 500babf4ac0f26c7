"""What one agent does between two communications, in expectation: exact first and second moments of its local steps.

Coordinates are centred: u = theta - theta_star, x = xi - xi_star, and a local step is

    u' = (I - eta A(z)) u + eta x - eta omega(z).

With the lifted state w = (u, x, 1), M the mean map of w, G the map E[(I - eta A) X (I - eta A)^T] on svec and D_h the
map from svec(w w^T) to the covariance of u after h steps given w, steps compose as (a first, then b)

    M_{a+b} = M_b M_a,   G_{a+b} = G_b G_a,   D_{a+b} = G_b D_a + D_b symkron(M_a),

so H steps cost O(log H) products, and only positive terms are ever added. Each row of D is kept as a symmetric matrix,
for which composing with symkron(M) means M^T D M.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import Floats
from . import tuning
from .moments import Moments, check_size
from .recursions import repeat
from .symmetric import functionals, rows_of, symkron
from .threads import cores, share


@dataclass(frozen=True, eq=False)
class LocalSteps:
    """Some number of local steps of every table: M : (M, n, n), G : (M, s, s), D : (M, s, n, n), n the size of w."""

    M: Floats
    G: Floats
    D: Floats

    def then(self, later: LocalSteps) -> LocalSteps:
        """These steps, and then those."""
        tables, s, n = self.D.shape[:3]
        D = (later.G @ self.D.reshape(tables, s, n * n)).reshape(self.D.shape)
        D += _pulled(later.D, self.M)
        return LocalSteps(later.M @ self.M, later.G @ self.G, D)

    def noise(self) -> Floats:
        """D as a matrix on svec(w w^T) : (M, s, S)."""
        return rows_of(self.D)


def _pulled(D: Floats, M: Floats) -> Floats:
    """M^T D M for each row of D, which is symmetric: both products in the one form that is a few large ones."""
    (tables, s, n, _), new = D.shape, M.shape[2]
    half = (D.reshape(tables, s * n, n) @ M).reshape(tables, s, n, new)
    return (half.transpose(0, 1, 3, 2).reshape(tables, s * new, n) @ M).reshape(tables, s, new, new)


def one_step(moments: Moments, eta: float, frozen: Floats | None = None) -> LocalSteps:
    """A single local step, w = (u, x, 1).

    frozen : (M, d), control variates x that never change; they go into the constant, and w = (u, 1)
    """
    check_size(moments.noise.shape)  # which may be a zero that takes no memory itself
    d, tables = moments.dim, len(moments.A_bar)
    n = 2 * d + 1 if frozen is None else d + 1
    M = np.tile(np.eye(n), (tables, 1, 1))
    M[:, :d, :d] -= eta * moments.A_bar
    M[:, :d, d:] += eta * (np.eye(d, d + 1) if frozen is None else frozen[:, :, None])
    place = np.zeros((d + 1, n))  # v = (theta - centre, 1) in terms of w
    place[:d, :d], place[:d, -1], place[d, -1] = np.eye(d), moments.offset, 1
    D = eta**2 * _pulled(functionals(moments.noise, d + 1), place[None])
    return LocalSteps(M, symkron(M[:, :d, :d]) + rows_of(D[..., :d, :d]), D)


def repeated(step: LocalSteps, H: int) -> LocalSteps:
    """H times the same step, in O(log H) products; threads share the tables, a few at a time to stay in the cache."""
    tables = len(step.M)
    if step.D.size < tuning.THREADS_FROM or H == 1:
        return repeat(step, H, LocalSteps.then)
    out = LocalSteps(*(np.empty_like(a) for a in (step.M, step.G, step.D)))

    def work(begin: int, end: int) -> None:
        for a in range(begin, end, tuning.TABLES_AT_ONCE):
            b = min(a + tuning.TABLES_AT_ONCE, end)
            some = repeat(LocalSteps(step.M[a:b], step.G[a:b], step.D[a:b]), H, LocalSteps.then)
            out.M[a:b], out.G[a:b], out.D[a:b] = some.M, some.G, some.D

    parts = min(cores(), tables)
    share(work, [tables * i // parts for i in range(parts + 1)])  # products of arrays let go of the lock
    return out
