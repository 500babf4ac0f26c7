"""One agent along its trajectory (algo:fed-lsa-markov): some observations as a map of moments, by states of its chain.

With w = (u, x, 1), or w = (u, 1) where the control variates never change, an observation that is used takes state s to
s' and u to u + X(z) w; one that is dropped moves the state alone. Several of them, from s to s', have

    K(s', s) = P(s' | s),   X(s', s) = E[X | s, s'],   D(s', s) : svec(w w^T) -> P(s' | s) svec Cov(X w | s, s').

X is small with the step size and is carried without the identity; D is a sum of covariances and never a difference of
second moments. So variances keep their digits however small they are beside the squares of means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from ..checks import Floats
from ..problems import Problem
from .linear import folded, repeat, smat, svec, symkron, within


def gram(X: Floats) -> Floats:
    """(..., e, q): svec(w w^T) -> sum_p svec(X_p w (X_p w)^T) for X : (..., P, d, n)."""
    *batch, P, d, n = X.shape
    flat = X.reshape(*batch, P, d * n)
    return folded((np.swapaxes(flat, -1, -2) @ flat).reshape(*batch, d, n, d, n))


@dataclass(frozen=True, eq=False)
class ChainMap:
    """Some observations of one agent.

    K : (S', S); Y = K X : (S', S, d, n); D : (S', e, S, q) with e = d (d + 1) / 2 and q = n (n + 1) / 2
    """

    K: Floats
    Y: Floats
    D: Floats

    @property
    def d(self) -> int:
        return self.Y.shape[2]

    @cached_property
    def X(self) -> Floats:
        """(S', S, d, n), 0 where s' cannot be reached."""
        return self.Y / np.where(self.K > 0, self.K, 1.0)[..., None, None]

    @cached_property
    def lifted(self) -> Floats:
        """(S', S, n, n): E[w | s, s'] as a map of the first w."""
        out = np.zeros((*self.X.shape[:2], self.X.shape[3], self.X.shape[3]))
        out[..., : self.d, :] = self.X
        return out + np.eye(self.X.shape[3])

    @cached_property
    def grown(self) -> Floats:
        """(S', e, S, e): what becomes of covariances of the first u."""
        mean = self.K[..., None, None] * symkron(self.lifted[..., : self.d, : self.d])
        return self.D[..., within(self.d, self.X.shape[3])] + mean.swapaxes(1, 2)

    def then(self, later: ChainMap) -> ChainMap:
        """These observations, and then those: covariances of the first go on, those of the second are added.

        So is that between the ways from s to s'' over all the states s' in between.
        """
        (S, e, _, q), d = self.D.shape, self.d
        K = later.K @ self.K
        Y, D = np.empty_like(self.Y), np.empty_like(self.D)
        random = np.asarray(later.D.any((1, 3)))  # (S'', S')
        states = np.flatnonzero(random.any(0))  # from which they are, given where they lead
        second = np.empty((S, q, S, q))
        second[states] = (self.K[states, :, None, None] * symkron(self.lifted[states])).swapaxes(1, 2)
        for s in range(S):
            over = np.flatnonzero(later.K[s])
            via = slice(None) if len(over) == S else over
            after = later.X[s, via][:, None]
            X = self.X[via] + after + after[..., :d] @ self.X[via]  # (S', S, d, n)
            chance = later.K[s, via][:, None] * self.K[via]
            Y[s] = np.einsum("ps,psij->sij", chance, X)
            X -= Y[s] / np.where(K[s] > 0, K[s], 1.0)[:, None, None]
            X *= np.sqrt(chance)[..., None, None]
            D[s] = gram(X.swapaxes(0, 1)).swapaxes(0, 1)
            D[s] += (later.grown[s][:, via].reshape(e, -1) @ self.D[via].reshape(-1, S * q)).reshape(e, S, q)
            over = np.flatnonzero(random[s])
            D[s] += (later.D[s][:, over].reshape(e, -1) @ second[over].reshape(-1, S * q)).reshape(e, S, q)
        total = np.where(K.any(0), K.sum(0), 1.0)  # 1, but for rounding, which would add up over rounds
        D /= total[:, None]
        return ChainMap(K / total, Y / total[:, None, None], D)

    @cached_property
    def noise(self) -> Floats:
        """(S, e, q): svec(w w^T) -> svec Cov(X w | s), the last state unknown."""
        deviation = (self.X - self.Y.sum(0)) * np.sqrt(self.K)[..., None, None]
        return self.D.sum(0).swapaxes(0, 1) + gram(deviation.swapaxes(0, 1))

    @cached_property
    def memory(self) -> float:
        """The factor by which, in the long run, the distance of the chain from stationarity shrinks."""
        return float(np.sort(np.abs(np.linalg.eigvals(self.K)))[:-1].max(initial=0.0))

    def passed(self, J: Floats, E: Floats, Z: Floats) -> Floats:
        """(S', b, d, c): E[(X w + E z) y^T 1{s'}] from Z = E[z y^T 1{s}] : (S, b, k, c), w = J z."""
        moved = np.tensordot(self.Y, J @ Z, ([1, 3], [0, 2])).swapaxes(1, 2)
        return moved + np.tensordot(self.K, E @ Z, 1)

    def second(self, J: Floats, E: Floats, G: Floats) -> Floats:
        """(S', b, d, d): E[(X w + E z) (X w + E z)^T 1{s'}], X its mean and chance, from G = E[z z^T 1{s}]."""
        (S, e, _, q), b = self.D.shape, G.shape[1]
        added = self.D.reshape(S * e, S * q) @ svec(J @ G @ np.swapaxes(J, -1, -2)).swapaxes(1, 2).reshape(S * q, b)
        out = smat(added.reshape(S, e, b).swapaxes(1, 2), self.d)
        for t, K in enumerate(self.K):
            L = self.X[t, :, None] @ J + E  # (S, b or 1, d, k)
            out[t] += np.tensordot(K, L @ G @ np.swapaxes(L, -1, -2), 1)
        return out


def used(problem: Problem, table: int, eta: float, S: int, xi: Floats | None) -> ChainMap:
    """One observation that makes an update; xi : (d,) for control variates that never change, then w = (u, 1).

    S : number of states, of which the chain may have fewer
    """
    chain, d, span = problem.chain, problem.dim, slice(*problem.first[table : table + 2].tolist())
    assert chain is not None
    n = d + 1 if xi is not None else 2 * d + 1
    p, to, origin = chain.conditional[span, None, None], chain.successor[span], chain.origin[span]
    A, b = problem.observations.matrices(span)
    X = np.zeros((len(b), d, n))
    X[..., :d] = -eta * A
    X[..., d:-1] = eta * np.eye(d)[:, : n - d - 1]
    X[..., -1] = eta * (b - A @ problem.theta_star + (problem.table_xi_star[table] if xi is None else xi))
    out, ways = dropped(np.zeros((S, S)), d, n), np.zeros((S, S), np.int64)
    np.add.at(ways, (to, origin), 1)
    np.add.at(out.K, (to, origin), p[:, 0, 0])
    np.add.at(out.Y, (to, origin), p * X)
    X -= out.X[to, origin]
    for s in range(S):
        here = (origin == s) & (ways[to, origin] > 1)  # the only way to a state has no chance in it
        np.add.at(out.D[:, :, s], to[here], p[here] * symkron(X[here]))
    return out


def dropped(K: Floats, d: int, n: int) -> ChainMap:
    """Observations that are received and dropped: the chain moves, u does not."""
    S, e, q = len(K), d * (d + 1) // 2, n * (n + 1) // 2
    return ChainMap(K, np.zeros((S, S, d, n)), np.zeros((S, e, S, q)))


def whole_round(one: ChainMap, H: int, thin: int) -> ChainMap:
    """H observations, of which every `thin`-th makes an update; the last H mod thin are dropped too."""

    def drop(count: int) -> ChainMap:
        return dropped(np.linalg.matrix_power(one.K, count), *one.Y.shape[2:])

    update, n = one if thin == 1 else drop(thin - 1).then(one), H // thin
    few = float(n) * np.count_nonzero(update.K) <= update.K.size * math.log2(n)  # one by one is less work
    out = reduce(ChainMap.then, [update] * n) if few else repeat(update, n, ChainMap.then)
    return out if H % thin == 0 else out.then(drop(H % thin))
