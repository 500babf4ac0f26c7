"""What one agent does in a round along its trajectory (algo:fed-lsa-markov): moments indexed by the state of its chain.

With w = (u, x, 1) as in local_steps.py, or w = (u, 1) where the control variates never change, an observation that is
used takes state s to s' and w to B(z) w. What follows one from the other, linearly, is

    P(S = s),   E[w 1{S = s}],   svec E[w w^T 1{S = s}];

an observation that is dropped moves the state alone. Maps of several observations are products of these matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ...checks import Floats
from ...problems import Problem
from .. import tuning
from ..linear import Index, at_rounds, repeat, smat, svec, symkron, within


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


# Exact moments of trajectories (algo:fed-lsa-markov) on the product of the agents' chains.
#
# The state is E[y y^T 1{S_1 = s_1, ..., S_N = s_N}] with y = (u_hat_1, ..., u_hat_N, x_1, ..., x_N, 1), without the x
# where control variates never change. Given where a round begins agents are independent, so their local steps may be
# taken one agent after the other; the server's average and the correction of the x are one matrix on y.


@dataclass(frozen=True, eq=False)
class JointLayout:
    """Where things stand in y: N agents of dimension d, with or without control variates that change."""

    N: int
    d: int
    controlled: bool

    @property
    def size(self) -> int:
        return self.N * self.d * (2 if self.controlled else 1) + 1

    def hat(self, c: int) -> list[int]:
        """The entries of u_hat_c."""
        return list(range(c * self.d, (c + 1) * self.d))

    def x(self, c: int) -> list[int]:
        """The entries of x_c."""
        return self.hat(self.N + c)

    def own(self, c: int) -> list[int]:
        """The entries of w_c = (u_hat_c, x_c, 1)."""
        return self.hat(c) + (self.x(c) if self.controlled else []) + [self.size - 1]

    def server(self, weights: Floats, gain: float) -> Floats:
        """The end of a round on y: every u_hat becomes their mean, x_c moves by gain (mean - u_hat_c)."""
        out, eye = np.eye(self.size), np.eye(self.d)
        mean = np.kron(weights, eye)  # (d, N d)
        hats = slice(0, self.N * self.d)
        for c in range(self.N):
            out[self.hat(c), hats] = mean
            if self.controlled:
                out[self.x(c), hats] = gain * mean
                out[np.ix_(self.x(c), self.hat(c))] -= gain * eye
        return out


class Stillness:
    """Whether a recursion has reached its limit: then nothing more needs to be computed.

    A change that has fallen to what it is in k rounds goes on to fall like that, so that k times it is still to come;
    a slow mode moves little in a round, and far in many.
    """

    def __init__(self) -> None:
        self.rounds = 0

    def reached(self, change: float, size: float) -> bool:
        """change : of a round, in a state of the given size."""
        self.rounds = self.rounds + 1 if change <= tuning.SETTLING * size else 0
        return self.rounds > 0 and change * self.rounds <= tuning.SETTLED * size


def local_steps(Y: Floats, layout: JointLayout, agents: Sequence[ChainMap]) -> Floats:
    """The moments after each agent has taken its observations; Y : (S_1, ..., S_N, size, size)."""
    for c, local in enumerate(agents):
        hat, own, d = layout.hat(c), layout.own(c), layout.d
        rest = [i for i in range(layout.size) if i not in hat]
        moved = np.moveaxis(Y, c, 0)
        before = moved.reshape(local.states, -1, layout.size, layout.size)
        after = np.tensordot(local.K, before, 1)
        cross = np.tensordot(local.mean, before[:, :, own][..., rest], ([2, 3], [0, 2])).transpose(0, 2, 1, 3)
        after[:, :, np.array(hat)[:, None], rest] = cross
        after[:, :, np.array(rest)[:, None], hat] = cross.transpose(0, 1, 3, 2)
        alone = svec(before[:, :, np.array(own)[:, None], own])
        alone = np.tensordot(local.second, alone, ([2, 3], [0, 2])).transpose(0, 2, 1)
        after[:, :, np.array(hat)[:, None], hat] = smat(alone, d)
        Y = np.moveaxis(after.reshape(moved.shape), 0, c)
    return Y


def random_steps(Y: Floats, layout: JointLayout, agents: Sequence[ChainMap], p: float) -> Floats:
    """The same for a Geometric(p) number of updates, the same for all agents: the sum over that number, term by term.

    `agents` is one update. The sum is infinite where the moments grow faster than long rounds become rare.
    """
    Y = local_steps(Y, layout, agents)
    total, share = p * Y, p
    for _ in range(tuning.MAX_SERIES_TERMS):
        share *= 1 - p
        if share == 0:
            return total
        Y = local_steps(Y, layout, agents)
        total += share * Y
        if share * np.abs(Y).max() <= tuning.SERIES_TAIL * p * np.abs(total).max():
            return total
    return np.full_like(Y, np.inf)


def curve(
    layout: JointLayout,
    laws: Sequence[Floats],
    u: Floats,
    x: Floats,
    weights: Floats,
    advance: Callable[[int, Floats], tuple[Floats, float]],
    steady: bool,
    recorded: NDArray[np.int64],
) -> tuple[Floats, Floats, Floats]:
    """E[u] : (R, d), E||u||^2 and sum_c w_c E||x_c||^2 : (R,) at the recorded rounds, from known u and x : (N, d).

    laws : of the first state of each chain; advance(t, Y) : the moments after the local steps of round t, and its gain
    steady : whether all rounds are alike, so that a state which no longer changes is the last
    """
    chains, d = tuple(range(layout.N)), layout.d

    def states() -> Iterator[Floats]:
        y = np.append(np.tile(u, layout.N), np.append(x.ravel(), 1.0) if layout.controlled else 1.0)
        Y, still = np.outer(y, y), Stillness()
        for law in reversed(laws):
            Y = np.multiply.outer(law, Y)
        for t in count():
            yield Y
            before, (Y, gain) = Y, advance(t, Y)
            end = layout.server(weights, gain)
            Y = end @ Y @ end.T
            if steady and still.reached(float(np.abs(Y - before).max()), float(np.abs(Y).max())):
                yield Y  # from here on nothing changes
                return

    def show(Y: Floats) -> tuple[Floats, float, float]:
        full = Y.sum(axis=chains)
        spread = np.sum(x**2, axis=1) @ weights
        if layout.controlled:
            spread = sum(weights[c] * np.diag(full)[layout.x(c)].sum() for c in chains)
        return full[:d, -1], float(np.trace(full[:d, :d])), float(spread)

    mean, mse, spread = at_rounds(states(), recorded, show)
    return mean, mse, spread
