"""Moments along trajectories (algo:fed-lsa-markov), exactly: one agent's, then many agents' on the product of chains.

With w = (u, x, 1), or w = (u, 1) where the control variates never change, an observation that is used takes state s to
s' and u to u + X(z) w; one that is dropped moves the state alone. Several of them, from s to s', have

    K(s', s) = P(s' | s),   X(s', s) = E[X | s, s'],   D(s', s) : svec(w w^T) -> P(s' | s) svec Cov(X w | s, s').

X is small with the step size and is carried without the identity; D is a sum of covariances and never a difference of
second moments. So variances keep their digits however small they are beside the squares of means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import count
from typing import TypeVar

import numpy as np

from ...checks import Floats
from ...problems import Problem
from .. import tuning
from ..linear import folded, repeat, smat, svec, symkron, within

T = TypeVar("T")


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
        apart = (self.X - self.Y.sum(0)) * np.sqrt(self.K)[..., None, None]
        return self.D.sum(0).swapaxes(0, 1) + gram(apart.swapaxes(0, 1))

    @cached_property
    def memory(self) -> float:
        """The factor by which, in the long run, the distance of the chain from stationarity shrinks."""
        return float(np.sort(np.abs(np.linalg.eigvals(self.K)))[:-1].max(initial=0.0))

    def covariance(self, second: Floats) -> Floats:
        """(S', b, d, d): what observations add by chance, from svec E[w w^T 1{s}] : (S, b, q)."""
        S, b, q = second.shape
        added = self.D.reshape(-1, S * q) @ second.swapaxes(1, 2).reshape(S * q, b)
        return smat(added.reshape(S, -1, b).swapaxes(1, 2), self.d)

    def carried(self, L: Floats, G: Floats) -> Floats:
        """(S', b, d, d): sum_s K L G L^T for L : (S', S, d, n) and G : (S, b, n, n)."""
        to_each = zip(self.K[..., None, None, None], L, strict=True)
        return np.stack([np.tensordot(K * (L[:, None] @ G), L, ([0, 3], [0, 2])) for K, L in to_each])


def used(problem: Problem, table: int, eta: float, xi: Floats | None) -> ChainMap:
    """One observation that makes an update; xi : (d,) for control variates that never change, then w = (u, 1)."""
    chain, d, span = problem.chain, problem.dim, slice(*problem.first[table : table + 2].tolist())
    assert chain is not None
    S, n = int(np.diff(chain.first_state)[table]), d + 1 if xi is not None else 2 * d + 1
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


def whole_round(problem: Problem, table: int, eta: float, H: int, thin: int, xi: Floats | None) -> ChainMap:
    """H observations, of which every `thin`-th makes an update; the last H mod thin are dropped too."""
    one = used(problem, table, eta, xi)

    def drop(count: int) -> ChainMap:
        return dropped(np.linalg.matrix_power(one.K, count), *one.Y.shape[2:])

    update, n = one if thin == 1 else drop(thin - 1).then(one), H // thin
    few = n * np.count_nonzero(update.K) <= update.K.size * math.log2(n)  # of so few successors one by one is less work
    out = reduce(ChainMap.then, [update] * n) if few else repeat(update, n, ChainMap.then)
    return out if H % thin == 0 else out.then(drop(H % thin))


class Stillness:
    """Whether a recursion has reached its limit: then nothing more needs to be computed.

    Once a round changes less than SETTLING, relative, the rate at which changes fall from there on says how far it is
    still to go; a slow mode moves little in a round, and far in many.
    """

    def __init__(self) -> None:
        self.first, self.rounds = 0.0, 0

    def reached(self, change: float) -> bool:
        """change : of a round, relative."""
        if not 0 < change < self.first:
            self.first, self.rounds = change if change <= tuning.SETTLING else 0.0, 0
            return change == 0
        self.rounds += 1
        return change <= -tuning.SETTLED * math.expm1(math.log(change / self.first) / self.rounds)


def relative(change: Floats, scale: Floats) -> float:
    """The largest of some changes, each relative to its own scale."""
    ratio = np.divide(np.abs(change), scale, out=np.where(change == 0, 0.0, np.inf), where=scale > 0)
    return float(ratio.max())


def until_still(now: T, advance: Callable[[int, T], T], change: Callable[[T, T], float], steady: bool) -> Iterator[T]:
    """The states after 0, 1, 2, ... rounds; where all rounds are alike, up to one from which nothing changes."""
    still = Stillness()
    for t in count():
        yield now
        before, now = now, advance(t, now)
        if steady and still.reached(change(before, now)):
            yield now
            return


# The product of the agents' chains. y = (u, delta_1, ..., delta_N, x_1, ..., x_N), without the x where control variates
# never change; delta_c is what agent c has added to u since the round began. What evolves is E[y] and, with
# z = (y - E[y], 1), E[z z^T 1{S_1 = s_1, ...}]. Given where a round begins agents are independent, so their local steps
# may be taken one agent after the other; the server's average and the correction of the x are one matrix on y.

State = tuple[Floats, Floats]  # (E[y], 1) : (size,) and E[z z^T 1{S_1, ..., S_N}] : (S_1, ..., S_N, size, size)


class JointLayout:
    """Where things stand in (y, 1): N agents of dimension d, with or without control variates that change.

    delta, x : the entries of delta_c and x_c; own : those of (u, delta_c, x_c, 1)
    local : what makes w_c = (u + delta_c, x_c, 1) of those
    """

    def __init__(self, N: int, d: int, controlled: bool) -> None:
        blocks = [slice(k * d, (k + 1) * d) for k in range(1 + N + controlled * N)]
        self.d, self.size, self.delta, self.x = d, len(blocks) * d + 1, blocks[1 : 1 + N], blocks[1 + N :]
        self.own = [np.r_[blocks[0], *blocks[1 + c :: N], self.size - 1] for c in range(N)]
        rows = np.eye(len(self.own[0]))
        rows[:d] += rows[d : 2 * d]
        self.local = np.delete(rows, blocks[1], axis=0)

    def server(self, weights: Floats, gain: float) -> Floats:
        """The end of a round: u moves by the mean of all delta, x_c by gain (mean - delta_c), and delta_c is 0."""
        out, mean = np.eye(self.size), np.kron(weights, np.eye(self.d))
        deltas = slice(self.d, self.delta[-1].stop)
        out[: self.d, deltas], out[deltas] = mean, 0
        for x, delta in zip(self.x, self.delta, strict=False):
            out[x, deltas] = gain * mean
            out[x, delta] -= gain * np.eye(self.d)
        return out


def local_steps(state: State, layout: JointLayout, agents: Sequence[ChainMap]) -> State:
    """The moments after each agent has taken its observations."""
    (mean, second), d, local = state, layout.d, layout.local
    mean = mean.copy()
    for c, agent in enumerate(agents):
        own, delta = layout.own[c], layout.delta[c]
        moved = np.moveaxis(second, c, 0)
        before = moved.reshape(len(agent.K), -1, layout.size, layout.size)
        J = local.copy()  # w = J z
        J[:, -1] = local @ mean[own]
        shift = np.einsum("xsij,sj->i", agent.Y, before[:, :, own, -1].sum(1) @ J.T)
        L = agent.X @ J  # delta - E[delta], afterwards, is L z and what observations add by chance
        L[..., d : 2 * d] += np.eye(d)
        L[..., -1] -= shift
        after = np.tensordot(agent.K, before, 1)
        cross = np.tensordot(agent.K[..., None, None] * L, before[:, :, own], ([1, 3], [0, 2]))
        after[:, :, delta] = cross.swapaxes(1, 2)
        after[..., delta] = cross.transpose(0, 2, 3, 1)
        G = before[:, :, own[:, None], own]
        after[:, :, delta, delta] = agent.covariance(svec(J @ G @ J.T)) + agent.carried(L, G)
        second = np.moveaxis(after.reshape(moved.shape), 0, c)
        mean[delta] += shift
    return mean, second


def random_steps(state: State, layout: JointLayout, agents: Sequence[ChainMap], p: float) -> State:
    """The same for a Geometric(p) number of updates, the same for all agents: the sum over that number, term by term.

    `agents` is one update. Two terms are added about their common mean. The sum is infinite where the moments grow
    faster than long rounds become rare.
    """
    now = local_steps(state, layout, agents)
    (mean, second), share = (now[0], p * now[1]), p
    for _ in range(tuning.MAX_SERIES_TERMS):
        share *= 1 - p
        if share == 0:
            return mean, second
        now = local_steps(now, layout, agents)
        apart, part = now[0] - mean, share / second[..., -1, -1].sum()
        part /= 1 + part
        added = share * _about(now[1], (1 - part) * apart)
        mean, second = mean + part * apart, _about(second, -part * apart) + added
        if relative(added, _scale(second)) <= tuning.SERIES_TAIL * p:
            return mean, second
    return mean, np.full_like(second, np.inf)


def _about(second: Floats, apart: Floats) -> Floats:
    """E[z z^T ...] with `apart`, which ends in 0, added to z."""
    shift = np.eye(len(apart))
    shift[:, -1] += apart
    return np.asarray(shift @ second @ shift.T, np.float64)


def _scale(second: Floats) -> Floats:
    """The size of each entry of E[z z^T], by its standard deviations."""
    size = np.sqrt(np.diagonal(second.sum(axis=tuple(range(second.ndim - 2)))))
    return np.multiply.outer(size, size)


def change(before: State, after: State) -> float:
    """The largest change in a round, each entry relative to its own size."""
    scale = _scale(after[1])
    return max(relative(after[0] - before[0], np.abs(after[0]) + scale[-1]), relative(after[1] - before[1], scale))
