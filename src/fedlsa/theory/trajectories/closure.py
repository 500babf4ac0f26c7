"""Moments of FedLSA along the trajectories of many agents (algo:fed-lsa-markov), closed over pairs of agents.

With m = E[u] and z = (u - m, 1), what is kept at the end of a round is m, V = Cov(u) and, of each chain c with law p_c,

    mu_c(s) = E[(u - m) i_c(s)],   W_c(s) = E[(u - m)(u - m)^T i_c(s)],   i_c(s) = 1{S_c = s} - p_c(s).

A round needs the same with factors i_c i_e of two chains. u is nearly a sum of what agents did, each part of which
depends on one chain alone, so that E[(u - m)(u - m)^T i_c i_e] is nearly mu_c mu_e^T + mu_e mu_c^T and
E[(u - m) i_c i_e] nearly 0. What this leaves out is work of one agent on that of another whose chain still remembers
it: it is of the order of w_c w_e epsilon, the share of a chain's distance from stationarity that a round leaves, and
acts on what is kept with a factor of the step size. Agents who are alike in everything are one group.

The estimate of the error compares with the cruder closure in which a chain forgets whole rounds (epsilon = 0) unless
its own agent's work is meant; both are followed, along the first axis of all arrays. The estimate is the sum of the
absolute eigenvalues of their difference in E[u u^T], divided by 1 - epsilon (the largest of all agents) for the orders
beyond: an order above the error that it stands for, and infinite for chains that never forget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...checks import Floats
from ..linear import at_rounds, smat, svec, symkron, triangle, within
from .chains import ChainMap, gram, relative, until_still

REMEMBERED = np.array([1.0, 0.0])[:, None, None]  # of what chains remember: all, and nothing for comparison


@dataclass(frozen=True, eq=False)
class Closed:
    """m : (2, d), V : (2, d, d); of each group p : (S,), mu : (2, S, d), W : (2, S, d, d). epsilon : see above."""

    m: Floats
    V: Floats
    p: list[Floats]
    mu: list[Floats]
    W: list[Floats]
    epsilon: float = 0.0


@dataclass(frozen=True, eq=False)
class AgentWork:
    """What one agent does in a round, hat being its u at the end, s the first and t the last state of its chain.

    shift : (2, d), E[hat - u]; L : (2, T, S, d, n), E[hat | s, t] - E[hat] as a map of z
    R : (2, d, d), L averaged over states; C : (2, d, d) and P : (2, d, d, d), Cov(hat - R u, u) and
        E[(L - R)_ij (u - m)_k], what its chain has to do with u
    mean : (2, T, d), second : (2, T, d, d), E[(hat - E[hat]) 1{t}] and that of its square
    on_W, on_mu : (2, e, e), (2, e, d), Cov(hat) of W and mu of another chain, beyond products of R and P
    """

    shift: Floats
    L: Floats
    R: Floats
    C: Floats
    P: Floats
    mean: Floats
    second: Floats
    on_W: Floats
    on_mu: Floats


def _T(X: Floats) -> Floats:
    return np.swapaxes(X, -1, -2)


def _both(X: Floats) -> Floats:
    return X + _T(X)


def _congruent(R: Floats, V: Floats) -> Floats:
    return np.asarray(R @ V @ _T(R), np.float64)


def _pairs(R: Floats, C: Floats, P: Floats, V: Floats) -> Floats:
    """Cov(hat, hat') of two agents, summed over all pairs of those whose R, C and P are summed : (2, d, d)."""
    return _congruent(R, V) + _both(C @ _T(R)) + np.einsum("xikl,xjlk->xij", P, P)


def _crossed(P: Floats, R: Floats) -> Floats:
    """(2, e, d): mu -> svec of both(sum_k P_jki mu_k R^T)."""
    return _T(svec(_both(np.einsum("xjki,xli->xkjl", P, R))))


def work(s: Closed, k: int, a: ChainMap) -> AgentWork:
    """A round of one agent of group k, whose observations are `a`."""
    m, p, mu, W = s.m, s.p[k], s.mu[k], s.W[k]
    (_, S, d), n, eye = mu.shape, a.d + 1, np.eye(a.d)
    J = np.tile(np.eye(n), (2, 1, 1))  # (u, 1) = J z
    J[:, :d, d] = m
    G = np.empty((2, S, n, n))  # E[z z^T 1{s}]
    G[..., :d, :d] = W + p[:, None, None] * s.V[:, None]
    G[..., :d, d], G[..., d, :d], G[..., d, d] = mu, mu, p
    change = a.Y.sum(0) @ J[:, None]  # (2, S, d, n), E[hat - u | s] of z
    shift = np.einsum("xsij,xsj->xi", change, G[..., d])
    L = np.empty((2, S, S, d, n))
    L[..., :d] = a.X[..., :d] + eye
    L[..., d] = np.moveaxis(a.X[..., :d] @ m.T, -1, 0) + a.X[..., d] - shift[:, None, None]
    known = change + np.concatenate([np.tile(eye, (2, 1, 1)), -shift[:, :, None]], axis=2)[:, None]  # E[L | s]
    A, B = change[..., :d], known[..., :d]
    R, P = np.einsum("s,xsij->xij", p, B), np.einsum("xsij,xsk->xijk", A, mu)
    C = np.einsum("xsi,xsj->xij", change[..., d], mu) + np.einsum("xsij,xsjk->xik", A, W)
    second = a.covariance(svec(_congruent(J[:, None], G)).swapaxes(0, 1)).swapaxes(0, 1)
    second += np.stack([a.carried(L[x], G[x][:, None])[:, 0] for x in range(2)])
    # Cov(hat) as a map of E[z z^T], given the law of s; and of mu where s goes with mu
    mean = np.tensordot(p, a.noise, 1) @ symkron(J) + gram(np.sqrt(p)[:, None, None] * known)
    (i, j), inner, with_one = triangle(d), within(d, n), np.flatnonzero(triangle(n)[1] == d)[:d]
    pair = eye[i] * mu[..., j, None] + eye[j] * mu[..., i, None]  # (2, S, e, d), svec both(. mu^T)
    on_mu = mean[..., with_one] + np.tensordot(a.noise[..., inner], pair, ([0, 2], [1, 2])).swapaxes(0, 1)
    on_mu += _T(svec(_both(np.einsum("xsik,xsjl,xsl->xkij", B, B, mu, optimize=True)))) - _crossed(P, R)
    ends = np.einsum("ts,xtsij,xsj->xti", a.K, L, G[..., d], optimize=True)
    return AgentWork(shift, L, R, C, P, ends, second, mean[..., inner] - symkron(R), on_mu)


def advance(s: Closed, w: Floats, counts: Floats, agents: Sequence[ChainMap]) -> Closed:
    """One round later: agents work, the server averages, and chains remember what happened before."""
    works, d, V = [work(s, k, a) for k, a in enumerate(agents)], s.m.shape[1], s.V

    def total(name: str, weight: Floats) -> Floats:
        return np.asarray(sum(x * getattr(one, name) for x, one in zip(weight, works, strict=True)), np.float64)

    R, C, P = (total(name, counts * w) for name in "RCP")
    on_W, on_mu = (total(name, counts * w**2) for name in ("on_W", "on_mu"))
    after = Closed(s.m + total("shift", counts * w), _pairs(R, C, P, V), [], [], [], max(a.memory for a in agents))
    for w_c, count_c, a, one, p, mu, W in zip(w, counts, agents, works, s.p, s.mu, s.W, strict=True):
        own = one.second.sum(1) - _pairs(one.R, one.C, one.P, V)  # an agent and itself are no pair
        after.V[:] += count_c * w_c**2 * _both(own) / 2
        R_o, C_o, P_o = R - w_c * one.R, C - w_c * one.C, P - w_c * one.P  # of all others together
        law, others = a.K @ p, np.empty((*W.shape[:2], d + 1, d))  # E[z 1{s} hat_o^T]
        others[:, :, :d] = (W + p[:, None, None] * V[:, None]) @ _T(R_o)[:, None] + p[:, None, None] * _T(C_o)[:, None]
        others[:, :, :d] += np.einsum("xjki,xsk->xsij", P_o, mu)
        others[:, :, d] = mu @ _T(R_o)
        cross = np.einsum("ts,xtsij,xsjk->xtik", a.K, one.L, others, optimize=True)
        worked = w_c**2 * one.second + w_c * _both(cross)
        memory = REMEMBERED * (a.K - law[:, None])
        from_mu = on_mu - w_c**2 * one.on_mu + _crossed(P_o, R_o)
        kept = _congruent(R_o[:, None], W) + smat(svec(W) @ _T(on_W - w_c**2 * one.on_W) + mu @ _T(from_mu), d)
        after.p.append(law)
        after.mu.append(w_c * one.mean + memory @ others[:, :, d])
        worked -= law[:, None, None] * worked.sum(1)[:, None]
        after.W.append(worked + np.einsum("xts,xsij->xtij", memory, kept))
    return after


def curve(
    laws: list[Floats],
    weights: Floats,
    counts: Floats,
    u: Floats,
    maps: Callable[[int], Sequence[ChainMap]],
    steady: bool,
    recorded: NDArray[np.int64],
) -> tuple[Floats, Floats, Floats]:
    """E[u] : (R, d), E||u - E[u]||^2 : (R,) and the error of both together : (R,) at the recorded rounds, from known u.

    Of each group of agents who are alike: laws of the first state of a chain, the weight of one agent, how many there
    are, and maps(t), what one does in round t; steady : whether always the same
    """

    sizes = [(2, len(law), len(u)) for law in laws]
    nothing = [np.zeros(size) for size in sizes], [np.zeros((*size, len(u))) for size in sizes]
    start = Closed(np.tile(u, (2, 1)), np.zeros((2, len(u), len(u))), laws, *nothing)
    states = until_still(start, lambda t, now: advance(now, weights, counts, maps(t)), _change, steady)
    mean, variance, error = at_rounds(states, recorded, lambda s: (s.m[0], float(np.trace(s.V[0])), _estimate(s)))
    return mean, variance, error


def _estimate(s: Closed) -> float:
    D = s.V[0] - s.V[1] + _both(np.multiply.outer(s.m[0] - s.m[1], s.m.sum(0)) / 2)
    if not np.isfinite(D).all() or s.epsilon > 1 - 1e-12:
        return np.inf
    return float(np.abs(np.linalg.eigvalsh(D)).sum()) / (1 - s.epsilon)


def _change(before: Closed, after: Closed) -> float:
    """The largest change of all that is followed, each relative to its own size."""
    size = np.sqrt(np.maximum(np.diagonal(after.V, axis1=1, axis2=2), 0))
    scale = size[:, :, None] * size[:, None]
    changes = [relative(after.m - before.m, np.abs(after.m) + size), relative(after.V - before.V, scale)]
    for k, p in enumerate(after.p):
        changes += [float(np.abs(p - before.p[k]).max()), relative(after.mu[k] - before.mu[k], size[:, None])]
        changes.append(relative(after.W[k] - before.W[k], scale[:, None]))
    return max(changes)
