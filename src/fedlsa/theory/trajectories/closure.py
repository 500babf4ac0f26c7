"""Moments of FedLSA along the trajectories of many agents (algo:fed-lsa-markov), closed over pairs of agents.

With v = (u, 1), what is kept at the end of a round is F = E[v v^T] and its correlations with chains,

    x_c(s) = E[v v^T (1{S_c = s} - p_c(s))],   x_ce(s, s') = E[v v^T (1{S_c = s} - p_c(s)) (1{S_e = s'} - p_e(s'))],

p_c the law of chain c, which theta does not influence. A round needs, for three and four agents, the same moments with
more factors; those are set to zero. As v v^T is a product of two agents' work, a third agent correlates with it only
through what its chain still remembers from the round before: its distance from stationarity after a round, epsilon.
What is set to zero is of order epsilon, and acts on what is kept with another factor epsilon.

The estimate of the error compares with the cruder closure in which a chain forgets whole rounds (epsilon = 0) unless
its own agent's work is meant. The difference D obeys the same linear recursion, driven by what is remembered; of its
pair terms only the newest are followed, the older ones being smaller by the square of the step size. The estimate is
the sum of the absolute eigenvalues of D in E[u u^T], divided by 1 - epsilon (the largest of all agents) for the orders
beyond: of order epsilon, one order above the error that it stands for, and infinite for chains that never forget.

Of a chain's memory, singular values far below the largest are left out. Agent c then misses at most 2 S^(1/2) sigma of
F in a round, sigma the largest of them; what is missed goes on by the round's own map, and is added to the estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ...checks import Floats
from .. import tuning
from ..linear import at_rounds, smat, svec, symkron
from .chains import ChainMap, Stillness


@dataclass(frozen=True, eq=False)
class Agent:
    """A round of one agent of weight w, whose chain has the law p : (S,) before and `later` after it.

    M : (S n, S n), T : (S q, S q) as in chains.py, but for the last state's indicator less its probability
    M_p : (S n, n), the mean of M over p; mean : (n, S n) and square : (q, S q), sums over the last state of M and T as
    they are; m : (n, n), the mean of `mean`; noise : (q, q), that of `square` less the map X -> m X m^T
    back, forth : (S, r), (r, S), K = back forth on what sums to zero over states; r = 0 where nothing is remembered
    epsilon : the factor by which a round shrinks, in the long run, the distance of the chain from stationarity
    missed : 2 S^(1/2) times the largest singular value that is left out of K
    """

    w: float
    p: Floats
    later: Floats
    M: Floats
    M_p: Floats
    T: Floats
    mean: Floats
    square: Floats
    m: Floats
    noise: Floats
    back: Floats
    forth: Floats
    epsilon: float
    missed: float

    @staticmethod
    def of(local: ChainMap, w: float, p: Floats, forgotten: float) -> Agent:
        """A round as chains.py gives it; singular values of K below the share `forgotten` are left out."""
        S, n = local.states, local.n
        q, later = n * (n + 1) // 2, local.K @ p
        mean, square = local.M.reshape(S, -1).sum(0).reshape(n, -1), local.T.reshape(S, -1).sum(0).reshape(q, -1)
        m = np.tensordot(mean.reshape(n, S, n), p, (1, 0))
        noise = np.tensordot(square.reshape(q, S, q), p, (1, 0)) - symkron(m)
        M, T = local.M - np.kron(later[:, None], mean), local.T - np.kron(later[:, None], square)
        M_p = np.tensordot(M.reshape(S * n, S, n), p, (1, 0))
        back, size, forth = np.linalg.svd(local.K - later[:, None])
        r = int((size > max(tuning.MEMORY_ROUNDING, forgotten * size[0])).sum())
        epsilon = float(np.abs(np.linalg.eigvals(local.K - later[:, None])).max())
        missed = 2 * float(np.sqrt(S) * size[r]) if r < S else 0.0
        return Agent(w, p, later, M, M_p, T, mean, square, m, noise, back[:, :r] * size[:r], forth[:r], epsilon, missed)


@dataclass(frozen=True, eq=False)
class Correlations:
    """F : (n, n); one[c] = x_c : (S, n, n); two[c, e] = x_ce for c < e : (S n, S' n), row s n + i, column s' n + j."""

    F: Floats
    one: list[Floats]
    two: dict[tuple[int, int], Floats]

    def pair(self, c: int, e: int) -> Floats:
        """x_ce in either order."""
        return self.two[c, e] if c < e else self.two[e, c].T


Closed = tuple[Correlations, Correlations, Floats, float]  # what is kept, its difference D, what is missed, epsilon


def _both(X: Floats) -> Floats:
    return X + np.swapaxes(X, -1, -2)


def _apart(X: Floats, n: int) -> Floats:
    """(S n, S' n) -> (S, S', n, n)."""
    return X.reshape(len(X) // n, n, -1, n).transpose(0, 2, 1, 3)


def _joined(X: Floats) -> Floats:
    """The inverse of `_apart`."""
    S, other, n, _ = X.shape
    return X.transpose(0, 2, 1, 3).reshape(S * n, other * n)


def _mapped(C: Floats, X: Floats) -> Floats:
    """The map C : (q, q) of symmetric matrices on X : (..., n, n)."""
    return smat(svec(X) @ C.T, X.shape[-1])


@dataclass(frozen=True, eq=False)
class AgentSums:
    """Sums over agents that many terms share; "hat" is v after an agent's own steps, so that v+ = sum_c w_c hat_c.

    m : (n, n), noise : (q, q) of all agents, with their weights and squared weights
    with_other[c, e](s) = E[v hat_e^T (1{S_c = s} - p_c(s))] : (S, n, n), what chain e adds; others[c] = sum_e w_e of it
    """

    m: Floats
    noise: Floats
    with_other: dict[tuple[int, int], Floats]
    others: list[Floats]


def _sums(s: Correlations, agents: Sequence[Agent]) -> AgentSums:
    n, everyone = len(s.F), range(len(agents))
    with_other = {
        (c, e): (s.pair(c, e) @ agents[e].mean.T).reshape(-1, n, n) for c in everyone for e in everyone if c != e
    }
    return AgentSums(
        sum((a.w * a.m for a in agents), np.zeros((n, n))),
        sum((a.w**2 * a.noise for a in agents), np.zeros_like(agents[0].noise)),
        with_other,
        [sum((agents[e].w * with_other[c, e] for e in everyone if e != c), 0 * s.one[c]) for c in everyone],
    )


def work(s: Correlations, agents: Sequence[Agent], sums: AgentSums) -> Correlations:
    """F and `one` a round later where chains forget whole rounds unless their own agent's work is meant."""
    n = len(s.F)
    # E[v hat_c^T], its chain's part
    with_own = [x.reshape(-1, n).T @ a.mean.T for a, x in zip(agents, s.one, strict=True)]
    total_own = sum((a.w * x for a, x in zip(agents, with_own, strict=True)), np.zeros((n, n)))
    F, one = np.zeros((n, n)), []
    for g, a in enumerate(agents):
        whole = s.one[g] + np.multiply.outer(a.p, s.F)
        rest = whole @ (sums.m - a.w * a.m).T + np.multiply.outer(a.p, total_own - a.w * with_own[g]) + sums.others[g]
        own, rest = svec(whole).ravel(), rest.reshape(-1, n)  # E[v hat_e^T 1{S_g = s}], summed over the others e
        F += a.w**2 * smat(a.square @ own, n) + a.w * (a.mean @ rest)
        alone = smat((a.T @ own).reshape(len(a.p), -1), n)
        one.append(a.w**2 * alone + a.w * _both((a.M @ rest).reshape(-1, n, n)))
    return Correlations((F + F.T) / 2, one, {})


def joint_work(s: Correlations, g: int, h: int, a: Agent, b: Agent) -> Floats:
    """w_g w_h E[hat_g hat_h^T ...] and its transpose, with the states of both chains : (S_g n, S_h n)."""
    n = len(s.F)
    x_g, x_h = s.one[g].reshape(-1, n), s.one[h].reshape(-1, n)
    hats = a.M @ (s.two[g, h] @ b.M.T) + (a.M @ x_g) @ b.M_p.T + a.M_p @ ((b.M @ x_h).T + s.F @ b.M_p.T)
    hats *= a.w * b.w
    return _joined(_both(_apart(hats, n)))


def memory(s: Correlations, agents: Sequence[Agent], sums: AgentSums) -> Correlations:
    """What chains still remember after a round adds to `one` and to `two`; nothing to F."""
    n, everyone = len(s.F), range(len(agents))
    remembering = any(len(a.forth) for a in agents)
    pairs = [(g, h) for g in everyone for h in everyone if g != h and remembering]
    lists = {(g, h): svec(_apart(s.pair(g, h), n)) for g, h in pairs}  # (S_g, S_h, q)
    one, two = [np.zeros_like(x) for x in s.one], {k: np.zeros_like(x) for k, x in s.two.items()}
    for g, a in enumerate(agents):
        if len(a.forth):
            rest = sums.m - a.w * a.m
            kept = rest @ s.one[g] @ rest.T + _mapped(sums.noise - a.w**2 * a.noise, s.one[g])
            kept += _both(rest @ sums.others[g])
            for c, b in enumerate(agents):
                if c != g:  # hat_c with itself, less what the line above says of it
                    kept += smat(lists[g, c].reshape(len(a.p), -1) @ (b.w**2 * b.square.T), n)
                    kept -= b.w**2 * _both(b.m @ sums.with_other[g, c])
            one[g] = np.tensordot(a.back, np.tensordot(a.forth, kept, 1), 1)
        for h, part in _one_remembers(s, g, agents, sums, lists):
            two[min(g, h), max(g, h)] += part if g < h else part.T
    for g, h in s.two:
        a, b = agents[g], agents[h]
        if len(a.forth) and len(b.forth):  # both chains remember, and others work
            C = symkron(sums.m - a.w * a.m - b.w * b.m) + sums.noise - a.w**2 * a.noise - b.w**2 * b.noise
            y = b.back @ (np.tensordot(a.forth, b.forth @ lists[g, h], 1) @ C.T)
            two[g, h] += _joined(smat(np.tensordot(a.back, y, 1), n))
    return Correlations(np.zeros((n, n)), one, two)


def advance(s: Correlations, off: Correlations, agents: Sequence[Agent]) -> tuple[Correlations, Correlations]:
    """The state one round later, and its difference D from that of the closure that forgets."""
    sums = _sums(s, agents)
    worked, kept, carried = work(s, agents, sums), memory(s, agents, sums), work(off, agents, _sums(off, agents))
    pairs = {(g, h): joint_work(s, g, h, agents[g], agents[h]) + kept.two[g, h] for g, h in s.two}
    return (
        Correlations(worked.F, [x + y for x, y in zip(worked.one, kept.one, strict=True)], pairs),
        Correlations(carried.F, [x + y for x, y in zip(carried.one, kept.one, strict=True)], kept.two),
    )


def _one_remembers(
    s: Correlations, g: int, agents: Sequence[Agent], sums: AgentSums, lists: dict[tuple[int, int], Floats]
) -> Iterator[tuple[int, Floats]]:
    """Agent g works, with itself or with a third, and chain h remembers: for each h what that adds to x_gh."""
    n, a = len(s.F), agents[g]
    squares, lines, held = [], [], []
    for h, b in enumerate(agents):
        if h != g and len(b.forth):
            x = b.forth @ (lists[g, h] + np.multiply.outer(a.p, svec(s.one[h])))  # (S_g, r, q)
            third = np.tensordot(b.forth, sums.others[h] - a.w * sums.with_other[h, g], 1)
            line = smat(x, n) @ (sums.m - a.w * a.m - b.w * b.m).T + np.multiply.outer(a.p, third)
            squares.append(x.transpose(0, 2, 1).reshape(len(a.T), -1))
            lines.append(_joined(line))
            held.append(h)
    if not held:
        return
    square, line = a.w**2 * (a.T @ np.hstack(squares)), a.w * (a.M @ np.hstack(lines))
    ends = np.cumsum([len(agents[h].forth) for h in held])[:-1]
    for h, x, y in zip(held, np.split(square, ends, 1), np.split(line, ends * n, 1), strict=True):
        part = smat(x.reshape(len(a.p), -1, x.shape[1]).transpose(0, 2, 1), n) + _both(_apart(y, n))
        yield h, _joined(np.tensordot(part, agents[h].back, (1, 1)).transpose(0, 3, 1, 2))


def curve(
    laws: Sequence[Floats],
    u: Floats,
    weights: Floats,
    maps: Callable[[int], Sequence[ChainMap]],
    steady: bool,
    recorded: NDArray[np.int64],
) -> tuple[Floats, Floats, Floats]:
    """E[u] : (R, d), E||u||^2 : (R,) and the estimate of its error : (R,) at the recorded rounds, from known u.

    laws : of the first state of each chain; maps(t) : what each agent does in round t; steady : whether always the same
    """
    d, N = len(u), len(laws)
    forgotten = 0.0 if N == 2 else tuning.MEMORY_SHARE  # two agents are closed without error

    def states() -> Iterator[Closed]:
        n, v, p = d + 1, np.append(u, 1.0), laws
        one = [np.zeros((len(law), n, n)) for law in p]
        two = {(c, e): np.zeros((len(p[c]) * n, len(p[e]) * n)) for c in range(N) for e in range(c + 1, N)}
        nothing, agents, still = np.zeros((n, n)), list[Agent](), Stillness()
        now: Closed = Correlations(np.outer(v, v), one, two), Correlations(nothing, one, two), nothing, 0.0
        for t in count():
            yield now
            if not (steady and agents and all(np.array_equal(a.p, law) for a, law in zip(agents, p, strict=True))):
                agents = [Agent.of(f, w, law, forgotten) for f, w, law in zip(maps(t), weights, p, strict=True)]
            p = [_next(a) for a in agents]
            before, (fine, off) = now, advance(*now[:2], agents)
            now = fine, off, _miss(now[2], fine.F, agents), max(a.epsilon for a in agents)
            if steady and still.reached(_change(before, now), float(np.abs(fine.F).max())):
                yield now  # from here on nothing changes
                return

    def show(state: Closed) -> tuple[Floats, float, float]:
        fine, off, lost, epsilon = state
        error = _estimate(off.F[:d, :d], epsilon) + np.trace(lost)
        return fine.F[:d, d], float(np.trace(fine.F[:d, :d])), float(error)

    mean, mse, error = at_rounds(states(), recorded, show)
    return mean, mse, error


def _estimate(D: Floats, epsilon: float) -> float:
    if not np.isfinite(D).all() or epsilon > 1 - 1e-12:
        return np.inf
    return float(np.abs(np.linalg.eigvalsh(D)).sum()) / (1 - epsilon)


def _next(a: Agent) -> Floats:
    """The law after a round; one that moves by no more than rounding stays, so that its maps can be kept."""
    return a.p if np.abs(a.later - a.p).max() < 1e-12 else a.later


def _miss(lost: Floats, F: Floats, agents: Sequence[Agent]) -> Floats:
    """What leaving out parts of memories may have cost in E[u u^T], one round later : (n, n), nothing for constants."""
    m = sum((a.w * a.m for a in agents), np.zeros_like(F))
    out = m @ lost @ m.T + _mapped(sum((a.w**2 * a.noise for a in agents), np.zeros_like(agents[0].noise)), lost)
    out += sum(a.w * a.missed for a in agents) * F
    out[-1], out[:, -1] = 0, 0
    return np.asarray(out, np.float64)


def _change(before: Closed, after: Closed) -> float:
    """The largest change of any moment that is followed, estimates of errors included."""
    old, new = ([x for c in s[:2] for x in (c.F, *c.one, *c.two.values())] + [s[2]] for s in (before, after))
    return max(float(np.abs(x - y).max()) for x, y in zip(old, new, strict=True))
