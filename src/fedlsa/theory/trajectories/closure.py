"""Moments of FedLSA along the trajectories of many agents (algo:fed-lsa-markov), closed over pairs of agents.

With v = (u, 1), what is kept at the end of a round is F = E[v v^T] and its correlations with chains,

    x_c(s) = E[v v^T (1{S_c = s} - p_c(s))],   x_ce(s, s') = E[v v^T (1{S_c = s} - p_c(s)) (1{S_e = s'} - p_e(s'))],

p_c the law of chain c, which theta does not influence. A round needs, for three and four agents, the same moments with
more factors; those are set to zero. As v v^T is a product of two agents' work, a third agent correlates with it only
through what its chain still remembers from the round before: its distance from stationarity after a round, epsilon.
What is set to zero is of order epsilon, and acts on what is kept with another factor epsilon.

The estimate of the error compares with the cruder closure in which an agent's chain forgets whole rounds (epsilon = 0)
wherever the agent's own work is not concerned: it is the sum of the absolute eigenvalues of the difference in
E[u u^T]. That difference is of order epsilon, one order above the error that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...checks import Floats
from ..symmetric import smat, svec, symkron
from .chains import Local
from .product import SETTLED

FORGOTTEN = 1e-13  # singular values of a chain's memory that are left out


@dataclass(frozen=True, eq=False)
class Agent:
    """A round of one agent of weight w, whose chain has the law p : (S,) before and `later` after it.

    M : (S n, S n), T : (S q, S q) as in chains.py; `mean` : (n, S, n) and `square` : (q, S, q) are their sums over the
    last state, m : (n, n) and `noise` : (q, q) their means, `noise` without m X m^T
    back, forth : (S, r), (r, S), K = back forth on what sums to zero over states; r = 0 where nothing is remembered
    """

    w: float
    p: Floats
    later: Floats
    M: Floats
    T: Floats
    mean: Floats
    square: Floats
    m: Floats
    noise: Floats
    back: Floats
    forth: Floats

    @staticmethod
    def of(local: Local, w: float, p: Floats) -> Agent:
        S, n = local.states, local.n
        q = n * (n + 1) // 2
        mean, square = local.M.reshape(S, n, S, n).sum(0), local.T.reshape(S, q, S, q).sum(0)
        m, later = np.tensordot(mean, p, (1, 0)), local.K @ p
        noise = np.tensordot(square, p, (1, 0)) - symkron(m)
        back, size, forth = np.linalg.svd(local.K - later[:, None])
        r = int((size > FORGOTTEN).sum())
        return Agent(w, p, later, local.M, local.T, mean, square, m, noise, back[:, :r] * size[:r], forth[:r])

    def worked(self, X: Floats) -> Floats:
        """M on the state and the left index of X : (S, n, ...)."""
        return (self.M @ X.reshape(len(self.M), -1)).reshape(X.shape)

    def squared(self, X: Floats) -> Floats:
        """T on the state and the matrix of X : (S, r, n, n)."""
        S, r, n, _ = X.shape
        flat = svec(X).transpose(0, 2, 1).reshape(len(self.T), r)
        return smat((self.T @ flat).reshape(S, -1, r).transpose(0, 2, 1), n)

    def squared_sum(self, X: Floats) -> Floats:
        """sum_s T on the matrix of X : (S, r, n, n) -> (r, n, n)."""
        q = len(self.square)
        flat = svec(X).transpose(1, 0, 2).reshape(X.shape[1], -1)
        return smat(flat @ self.square.reshape(q, -1).T, X.shape[-1])

    def summed(self, X: Floats) -> Floats:
        """sum_s M on the left index : (S, n, ...) -> (n, ...)."""
        n = X.shape[1]
        return (self.mean.reshape(n, -1) @ X.reshape(self.mean.shape[1] * n, -1)).reshape(X.shape[1:])

    def centred(self, X: Floats) -> Floats:
        """X : (S, ...), given with the indicators of states, with those less their probabilities."""
        return X - np.multiply.outer(self.later, X.sum(0))

    def remembered(self, X: Floats) -> Floats:
        """K on X : (S, ...), which sums to zero over states."""
        return np.tensordot(self.back, np.tensordot(self.forth, X, 1), 1)


@dataclass(frozen=True, eq=False)
class State:
    """F : (n, n); one[c] = x_c : (S, n, n); two[c, e] = x_ce : (S, S', n, n) for c < e."""

    F: Floats
    one: list[Floats]
    two: dict[tuple[int, int], Floats]

    def pair(self, c: int, e: int) -> Floats:
        """x_ce in either order."""
        return self.two[c, e] if c < e else self.two[e, c].transpose(1, 0, 2, 3)


def _t(X: Floats) -> Floats:
    return np.swapaxes(X, -1, -2)


def _both(X: Floats) -> Floats:
    return X + _t(X)


def _mapped(C: Floats, X: Floats) -> Floats:
    """The map C : (q, q) of symmetric matrices on X : (..., n, n)."""
    return smat(svec(X) @ C.T, X.shape[-1])


def advance(s: State, agents: Sequence[Agent], memory: bool) -> State:
    """The state one round later; without `memory`, chains forget whole rounds unless their own agent's work is meant.

    In the comments "hat" is v after an agent's own steps, so that v+ = sum_c w_c hat_c.
    """
    N, n = len(agents), len(s.F)
    everyone = range(N)
    all_m = sum((a.w * a.m for a in agents), np.zeros((n, n)))
    all_noise = sum((a.w**2 * a.noise for a in agents), np.zeros_like(agents[0].noise))
    with_own = [_t(a.summed(x)) for a, x in zip(agents, s.one, strict=True)]  # E[v hat_c^T], what its chain adds
    total_own = sum((a.w * r for a, r in zip(agents, with_own, strict=True)), np.zeros((n, n)))
    with_other = {}  # [c, e](s) = E[v hat_e^T (1{S_c = s} - p_c(s))], what chain e adds
    for c in everyone:
        for e in everyone:
            if e != c:
                hat = agents[e].summed(s.pair(e, c).transpose(0, 2, 1, 3))  # (n, S_c, n)
                with_other[c, e] = hat.transpose(1, 2, 0)
    others = [
        sum((agents[e].w * with_other[c, e] for e in everyone if e != c), np.zeros_like(s.one[c])) for c in everyone
    ]

    F, one = np.zeros((n, n)), []
    for g, a in enumerate(agents):
        x, rest = s.one[g], all_m - a.w * a.m
        whole = x + np.multiply.outer(a.p, s.F)
        alone = a.squared(whole[:, None])[:, 0]  # E[hat_g hat_g^T 1{S_g'}]
        with_rest = whole @ rest.T + np.multiply.outer(a.p, total_own - a.w * with_own[g]) + others[g]
        both = a.worked(with_rest)  # sum_{e != g} w_e E[hat_g hat_e^T 1{S_g'}]
        F += a.w**2 * alone.sum(0) + a.w * both.sum(0)
        new = a.centred(a.w**2 * alone + a.w * _both(both))
        if memory and len(a.forth):  # sum over c, e other than g of w_c w_e E[hat_c hat_e^T (1{S_g'} - p)]
            kept = rest @ x @ rest.T + _mapped(all_noise - a.w**2 * a.noise, x) + _both(rest @ others[g])
            for c, b in enumerate(agents):
                if c != g:
                    kept -= b.w**2 * _both(b.m @ with_other[g, c])
                    kept += b.w**2 * b.squared_sum(s.pair(c, g))
            new = new + a.remembered(kept)
        one.append(new)

    two = {}
    for g, h in s.two:
        two[g, h] = _joint_work(s, g, h, agents[g], agents[h])
    if memory:
        for g in everyone:
            for h, part in _one_remembers(s, g, agents, all_m, with_other, others):
                if g < h:
                    two[g, h] += part
                else:
                    two[h, g] += part.transpose(1, 0, 2, 3)
        for (g, h), x in s.two.items():
            a, b = agents[g], agents[h]
            if len(a.forth) and len(b.forth):  # both chains remember, and two others work
                rest, noise = all_m - a.w * a.m - b.w * b.m, all_noise - a.w**2 * a.noise - b.w**2 * b.noise
                y = np.einsum("as,bt,stij->abij", a.forth, b.forth, x, optimize=True)
                y = rest @ y @ rest.T + _mapped(noise, y)
                two[g, h] += np.einsum("sa,tb,abij->stij", a.back, b.back, y, optimize=True)
    return State((F + F.T) / 2, one, two)


def _joint_work(s: State, g: int, h: int, a: Agent, b: Agent) -> Floats:
    """w_g w_h E[hat_g hat_h^T ...] and its transpose, with the states of both chains."""
    n = len(s.F)
    x = s.two[g, h] + np.multiply.outer(a.p, s.one[h]) + np.multiply.outer(a.p, np.multiply.outer(b.p, s.F))
    x += np.multiply.outer(b.p, s.one[g]).transpose(1, 0, 2, 3)
    left = a.M @ x.transpose(0, 2, 1, 3).reshape(len(a.M), len(b.M))
    hats = (left @ b.M.T).reshape(len(a.p), n, len(b.p), n).transpose(0, 2, 1, 3)
    out = a.centred(a.w * b.w * _both(hats))
    return b.centred(out.transpose(1, 0, 2, 3)).transpose(1, 0, 2, 3)


def _one_remembers(
    s: State,
    g: int,
    agents: Sequence[Agent],
    all_m: Floats,
    with_other: dict[tuple[int, int], Floats],
    others: list[Floats],
) -> Iterator[tuple[int, Floats]]:
    """Agent g works, with itself or with a third, and chain h remembers: for each h what that adds to x_gh."""
    a, squares, lines, held = agents[g], [], [], []
    for h, b in enumerate(agents):
        if h != g and len(b.forth):
            x = s.pair(g, h) + np.multiply.outer(a.p, s.one[h])
            x = np.tensordot(x, b.forth, (1, 1)).transpose(0, 3, 1, 2)  # (S_g, r, n, n)
            third = np.tensordot(b.forth, others[h] - a.w * with_other[h, g], 1)
            squares.append(x)
            lines.append(x @ (all_m - a.w * a.m - b.w * b.m).T + np.multiply.outer(a.p, third))
            held.append(h)
    if not held:
        return
    line = a.worked(np.concatenate(lines, 1).transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    total = a.centred(a.w**2 * a.squared(np.concatenate(squares, 1)) + a.w * _both(line))
    ends = np.cumsum([x.shape[1] for x in squares])
    for h, part in zip(held, np.split(total, ends[:-1], axis=1), strict=True):
        yield h, np.tensordot(part, agents[h].back, (1, 1)).transpose(0, 3, 1, 2)


def curve(
    laws: Sequence[Floats],
    u: Floats,
    weights: Floats,
    maps: Callable[[int], Sequence[Local]],
    steady: bool,
    recorded: NDArray[np.int64],
) -> tuple[Floats, Floats, Floats]:
    """E[u] : (R, d), E||u||^2 : (R,) and the estimate of its error : (R,) at the recorded rounds, from known u.

    laws : of the first state of each chain; maps(t) : what each agent does in round t; steady : whether always the same
    """
    v, d, N = np.append(u, 1.0), len(u), len(laws)
    n = d + 1
    fine = State(
        np.outer(v, v),
        [np.zeros((len(p), n, n)) for p in laws],
        {(c, e): np.zeros((len(laws[c]), len(laws[e]), n, n)) for c in range(N) for e in range(c + 1, N)},
    )
    crude, agents = fine, list[Agent]()
    mean, mse, error = np.empty((len(recorded), d)), np.empty(len(recorded)), np.empty(len(recorded))
    i = 0
    for t in range(int(recorded[-1]) + 1):
        if t > 0:
            if not (steady and agents and all(np.array_equal(a.p, p) for a, p in zip(agents, laws, strict=True))):
                agents = [Agent.of(f, w, p) for f, w, p in zip(maps(t - 1), weights, laws, strict=True)]
            laws = [_next(a) for a in agents]
            before, fine, crude = fine, advance(fine, agents, True), advance(crude, agents, False)
            if steady and _still(before, fine):
                recorded = np.minimum(recorded, t)  # from here on nothing changes
        while i < len(recorded) and recorded[i] == t:
            mean[i], mse[i] = fine.F[:d, d], np.trace(fine.F[:d, :d])
            off = (fine.F - crude.F)[:d, :d]
            error[i] = np.abs(np.linalg.eigvalsh(off)).sum() if np.isfinite(off).all() else np.inf
            i += 1
        if i == len(recorded):
            break
    return mean, mse, error


def _next(a: Agent) -> Floats:
    """The law after a round; one that moves by no more than rounding stays, so that its maps can be kept."""
    return a.p if np.abs(a.later - a.p).max() < 1e-15 else a.later


def _still(before: State, after: State) -> bool:
    pairs = [(before.F, after.F), *zip(before.one, after.one, strict=True)]
    return all(bool(np.abs(x - y).max() <= SETTLED * np.abs(after.F).max()) for x, y in pairs)
