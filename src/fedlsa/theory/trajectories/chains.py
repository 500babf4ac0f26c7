"""What one agent does in a round along its trajectory (algo:fed-lsa-markov): moments indexed by the state of its chain.

With w = (u, x, 1) as in local_steps.py, or w = (u, 1) where the control variates never change, an observation that is
used takes state s to s' and w to B(z) w. What follows one from the other, linearly, is

    P(S = s),   E[w 1{S = s}],   svec E[w w^T 1{S = s}];

an observation that is dropped moves the state alone. Maps of several observations are products of these matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...checks import Floats
from ...problems import Problem
from .. import tuning
from ..recursions import repeat
from ..symmetric import Index, symkron, within


@dataclass(frozen=True, eq=False)
class ChainMap:
    """Some observations of one agent: K : (S, S) and M : (S n, S n), from columns to rows; entry (s, i) is at s n + i.

    Of the second moments u u^T depends on all, the others (u, x and 1 with x and 1) only on one another, so that their
    map is G : (S e, S e), R : (S e, S f) above 0, Z : (S f, S f); e = d (d + 1) / 2 and e + f = n (n + 1) / 2.
    """

    K: Floats
    M: Floats
    G: Floats
    R: Floats
    Z: Floats
    d: int

    @property
    def states(self) -> int:
        return len(self.K)

    @property
    def n(self) -> int:
        return len(self.M) // len(self.K)

    def then(self, later: ChainMap) -> ChainMap:
        """These observations, and then those."""
        R = later.G @ self.R + later.R @ self.Z
        return ChainMap(later.K @ self.K, later.M @ self.M, later.G @ self.G, R, later.Z @ self.Z, self.d)

    @cached_property
    def T(self) -> Floats:
        """The map of svec E[w w^T 1{S = s}], entry (s, i) at s q + i : (S q, S q)."""
        S, n = self.states, self.n
        u, other = _parts(self.d, n)
        T = np.zeros((S, n * (n + 1) // 2, S, n * (n + 1) // 2))
        T[:, u[:, None], :, u] = self.G.reshape(S, len(u), S, len(u)).transpose(1, 3, 0, 2)
        T[:, u[:, None], :, other] = self.R.reshape(S, len(u), S, len(other)).transpose(1, 3, 0, 2)
        T[:, other[:, None], :, other] = self.Z.reshape(S, len(other), S, len(other)).transpose(1, 3, 0, 2)
        return T.reshape(S * T.shape[1], -1)

    @cached_property
    def mean(self) -> Floats:
        """M with its axes apart and only what becomes of u : (S, d, S, n)."""
        S, n = self.states, self.n
        return np.ascontiguousarray(self.M.reshape(S, n, S, n)[:, : self.d])

    @cached_property
    def second(self) -> Floats:
        """T with its axes apart and only what becomes of u u^T : (S, d (d + 1) / 2, S, q)."""
        S, n = self.states, self.n
        q = n * (n + 1) // 2
        return np.ascontiguousarray(self.T.reshape(S, q, S, q)[:, within(self.d, n)])


def _parts(d: int, n: int) -> tuple[Index, Index]:
    """Where in svec of dimension n the entries of u u^T stand, and where the others."""
    u = within(d, n)
    return u, np.setdiff1d(np.arange(n * (n + 1) // 2), u)


def used(problem: Problem, table: int, eta: float, xi: Floats | None) -> ChainMap:
    """One observation that makes an update; xi : (d,) for control variates that never change, then w = (u, 1)."""
    chain, d = problem.chain, problem.dim
    assert chain is not None
    span = slice(int(problem.first[table]), int(problem.first[table + 1]))
    S = int(chain.first_state[table + 1] - chain.first_state[table])
    n = d + 1 if xi is not None else 2 * d + 1
    pulled = problem.table_xi_star[table] if xi is None else xi
    q = n * (n + 1) // 2
    K, M, T = np.zeros((S, S)), np.zeros((S, S, n, n)), np.zeros((S, S, q, q))
    step = max(1, tuning.OUTCOMES_AT_ONCE // q**2)
    for first in range(span.start, span.stop, step):
        part = slice(first, min(span.stop, first + step))
        A, b = problem.observations.matrices(part)
        B = np.tile(np.eye(n), (len(b), 1, 1))
        B[:, :d, :d] -= eta * A
        B[:, :d, -1] = -eta * (A @ problem.theta_star - b - pulled)
        if xi is None:
            B[:, :d, d : 2 * d] = eta * np.eye(d)
        p, where = chain.conditional[part], (chain.successor[part], chain.origin[part])
        np.add.at(K, where, p)
        np.add.at(M, where, p[:, None, None] * B)
        np.add.at(T, where, p[:, None, None] * symkron(B))
    u, other = _parts(d, n)
    blocks = (M, *(T[:, :, i[:, None], j] for i, j in ((u, u), (u, other), (other, other))))
    mean, G, R, Z = (x.transpose(0, 2, 1, 3).reshape(S * x.shape[2], -1) for x in blocks)
    return ChainMap(K, mean, G, R, Z, d)


def dropped(like: ChainMap, count: int) -> ChainMap:
    """Observations that are received and dropped: the chain moves, w does not."""
    S, K = like.states, np.linalg.matrix_power(like.K, count)
    e, f = len(like.G) // S, len(like.Z) // S
    M, G, Z = (np.kron(K, np.eye(size)) for size in (like.n, e, f))
    return ChainMap(K, M, G, np.zeros((S * e, S * f)), Z, like.d)


def whole_round(problem: Problem, table: int, eta: float, H: int, thin: int, xi: Floats | None) -> ChainMap:
    """H observations, of which every `thin`-th makes an update; the last H mod thin are dropped too."""
    one = used(problem, table, eta, xi)
    update = one if thin == 1 else dropped(one, thin - 1).then(one)
    out = repeat(update, H // thin, ChainMap.then)
    return out if H % thin == 0 else out.then(dropped(one, H % thin))


def first_law(problem: Problem, agent: int, start: tuple[int, ...] | None) -> Floats:
    """(S,): the law of the state in which an agent's trajectory starts."""
    chain, m = problem.chain, int(problem.assignment[agent])
    assert chain is not None
    law = chain.stationary[chain.first_state[m] : chain.first_state[m + 1]]
    if start is None:
        return law
    out = np.zeros(len(law))
    out[start[agent]] = 1
    return out
