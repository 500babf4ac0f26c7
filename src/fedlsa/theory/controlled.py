"""Exact moments of methods with control variates (SCAFFLSA, Scaffnew), group by group.

In centred coordinates a round takes (u, x_1, ..., x_N) to u+ = sum_c w_c u_hat_c and x_c+ = x_c + gain (u+ - u_hat_c).
Agents of a group are exchangeable, so what evolves is small: E[u], E[x_k]; U = E[u u^T]; per group X_k = E[u x^T] and
V_k = E[x x^T] of one agent; per pair of groups W_kl = E[x y^T] of two different agents. Given (u, x) agents are
independent, except that all of them share the length of the round, which Scaffnew draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..checks import Floats
from .local import Steps, one_step, repeated
from .moments import Moments
from .symmetric import rows_of, smat, svec, symkron, triangle


@dataclass(frozen=True, eq=False)
class State:
    """Moments of the centred (u, x): u (d,), x (K, d), U (d, d), X, V (K, d, d), W (K, d, K, d), as above."""

    u: Floats
    x: Floats
    U: Floats
    X: Floats
    V: Floats
    W: Floats

    def flat(self) -> Floats:
        """All numbers in one vector."""
        return np.concatenate([a.ravel() for a in (self.u, self.x, self.U, self.X, self.V, self.W)])


@dataclass(frozen=True, eq=False)
class SharedLength:
    """A round of Geometric(p) steps, the same number for all agents, in the eigenbases of their matrices.

    kept : (K, d), eigenvalues of I - eta A; basis, inverse : (K, d, d), eigenvectors and the inverse of their matrix
    """

    p: float
    eta: float
    kept: Floats
    basis: Floats
    inverse: Floats

    def __call__(self, U: Floats, X: Floats, W: Floats) -> Floats:
        """E[u_hat u_hat'^T] of two different agents : (K, d, K, d)."""
        p, q, eta, E, F = self.p, 1 - self.p, self.eta, self.basis, self.inverse
        a, b = self.kept[:, :, None, None], self.kept[None, None]
        both = 1 - q * a * b
        uu, uk = p * a * b / both, eta * p * a / ((1 - q * a) * both)
        ku, kk = eta * p * b / ((1 - q * b) * both), eta**2 * (1 - q**2 * a * b) / ((1 - q * a) * (1 - q * b) * both)
        FX = F @ X.transpose(0, 2, 1)  # x in its own basis, u in the common one
        total = uu * _outer(F @ U, F) + uk * _outer(F, FX) + ku * _outer(FX, F) + kk * _columns(_rows(F, W), F)
        return _columns(_rows(E, total), E).real


@dataclass(frozen=True, eq=False)
class Round:
    """What a round does to an agent of each group. u_hat = P u + Q x in the mean (over the length of the round too).

    P, Q : (K, d, d); noise : (K, s, S), svec E[w w^T] of one agent, w = (u, x, 1), to svec Cov(u_hat) given w
    cross : what makes u_hat of two agents dependent given (u, x); None when the length of the round is known
    """

    moments: Moments
    gain: float
    P: Floats
    Q: Floats
    noise: Floats
    cross: SharedLength | None = None

    @cached_property
    def second(self) -> Floats:
        """(K, s, S), svec E[w w^T] of one agent to svec E[u_hat u_hat^T]."""
        return _squared(self.P, self.Q) + self.noise


def _squared(P: Floats, Q: Floats) -> Floats:
    """svec E[w w^T] to svec E[z z^T] for z = P u + Q x."""
    return symkron(np.concatenate([P, Q, np.zeros((*P.shape[:2], 1))], axis=2))


def start(u: Floats, x: Floats) -> State:
    """The state of known (u, x_k): x : (K, d)."""
    own = x[:, :, None] * x[:, None, :]
    return State(u, x, np.outer(u, u), u[:, None] * x[:, None, :], own, np.multiply.outer(x, x))


def unflatten(flat: Floats, K: int, d: int) -> State:
    """The inverse of `State.flat`."""
    shapes = [(d,), (K, d), (d, d), (K, d, d), (K, d, d), (K, d, K, d)]
    ends = np.cumsum([int(np.prod(s)) for s in shapes])
    return State(*(part.reshape(s) for part, s in zip(np.split(flat, ends[:-1]), shapes, strict=True)))


def _rows(F: Floats, W: Floats) -> Floats:
    """F_k W_kl for all pairs : (K, d, d), (K, d, K, d) -> (K, d, K, d)."""
    K, d = W.shape[:2]
    return (F @ W.reshape(K, d, K * d)).reshape(W.shape)


def _columns(W: Floats, F: Floats) -> Floats:
    """W_kl F_l^T for all pairs."""
    K, d = W.shape[:2]
    return (W.reshape(K * d, K, d).transpose(1, 0, 2) @ F.transpose(0, 2, 1)).transpose(1, 0, 2).reshape(W.shape)


def _outer(F: Floats, G: Floats) -> Floats:
    """F_k G_l^T for all pairs : (K, d, d), (K, d, d) -> (K, d, K, d)."""
    K, d, r = F.shape
    return (F.reshape(K * d, r) @ G.reshape(K * d, r).T).reshape(K, d, K, d)


def fixed_round(moments: Moments, eta: float, H: int, gain: float) -> Round:
    """A round of H local steps (SCAFFLSA)."""
    steps = repeated(one_step(moments, eta), H)
    d = moments.dim
    P, Q = steps.M[moments.table, :d, :d], steps.M[moments.table, :d, d : 2 * d]
    return Round(moments, gain, P, Q, steps.noise()[moments.table])


def geometric_round(moments: Moments, eta: float, p: float, gain: float) -> Round:
    """A round of Geometric(p) local steps, the same number for all agents (Scaffnew).

    One agent: the second moments of w obey a linear recursion, summed over the length (`_summed`). Two agents share
    the length L: in the eigenbases of their matrices, with l, l' the eigenvalues of I - eta A and q = 1 - p,

        E[l^L l'^L] = p l l' / (1 - q l l'),   E[l^L kappa'] = eta p l / ((1 - q l)(1 - q l l')),
        E[kappa kappa'] = eta^2 (1 - q^2 l l') / ((1 - q l)(1 - q l')(1 - q l l')),   kappa = eta sum_{h < L} l^h.
    """
    d, n, q, t = moments.dim, 2 * moments.dim + 1, 1 - p, moments.table
    one = one_step(moments, eta)
    second = _summed(one, eta, p)
    mean = np.asarray(p * np.linalg.solve(np.eye(n) - q * one.M, one.M), np.float64)
    value, basis = np.linalg.eig(moments.A_bar)
    shared = SharedLength(p, eta, 1 - eta * value[t], basis[t], np.linalg.inv(basis)[t])
    P, Q = mean[t, :d, :d], mean[t, :d, d : 2 * d]
    return Round(moments, gain, P, Q, second[t] - _squared(P, Q), shared)


def _summed(one: Steps, eta: float, p: float) -> Floats:
    """svec E[w w^T] to svec E[u u^T] after Geometric(p) steps : (M, s, S); infinite where it diverges, for any length.

    With R its rows and T those of one step, R = p T + q R T. In w = (u, z) the moments of z = (x, 1) stay, and those of
    u and z meet no noise: blocks of R follow one from another.
    """
    q, n, d = 1 - p, one.M.shape[-1], (one.M.shape[-1] - 1) // 2
    T = symkron(one.M[:, :d]) + one.noise()
    i, j = triangle(n)
    uu, uz, zz = np.flatnonzero(j < d), np.flatnonzero((i < d) & (j >= d)), np.flatnonzero(i >= d)
    R = np.full_like(T, np.inf)
    try:
        own = p * _over(one.G, np.eye(len(uu)) - q * one.G)
    except np.linalg.LinAlgError:
        return R
    eye = svec(np.eye(d))
    if not np.linalg.eigvalsh(smat(p * eye + q * own @ eye, d)).min() > 0:  # a sum of positive maps is positive
        return R
    R[..., uu] = own
    known = p * T[..., uz] + q * own @ T[..., uz]
    turned = known.reshape(*known.shape[:2], d, n - d).transpose(0, 1, 3, 2).reshape(len(T), -1, d)
    mixed = _over(turned, np.eye(d) - q * one.M[:, :d, :d]).reshape(len(T), -1, n - d, d).transpose(0, 1, 3, 2)
    R[..., uz] = mixed.reshape(known.shape)
    fed = np.zeros((len(T), len(uu), n, n))  # E[u z^T] gains eta E[x z^T] in a step
    fed[..., d : 2 * d, d:] = eta / 2 * mixed
    R[..., zz] = T[..., zz] + q / p * (own @ T[..., zz] + rows_of(fed + fed.swapaxes(-1, -2))[..., zz])
    return R


def _over(B: Floats, K: Floats) -> Floats:
    """B K^-1 for each table."""
    return np.asarray(np.linalg.solve(K.transpose(0, 2, 1), B.transpose(0, 2, 1)).transpose(0, 2, 1), np.float64)


def advance(step: Round, s: State, constant: float = 1.0) -> State:
    """The state one round later; constant = 0 leaves the noise out, which makes the map of second moments linear."""
    m, k, P, Q = step.moments, step.gain, step.P, step.Q
    share = m.count * m.weight
    K, d = s.x.shape
    own = np.empty((K, 2 * d + 1, 2 * d + 1))
    own[:, :d, :d], own[:, d : 2 * d, d : 2 * d] = s.U, s.V
    own[:, :d, d : 2 * d] = s.X
    own[:, d : 2 * d, :d] = s.X.transpose(0, 2, 1)
    own[:, :d, -1] = own[:, -1, :d] = s.u
    own[:, d : 2 * d, -1] = own[:, -1, d : 2 * d] = s.x
    own[:, -1, -1] = constant
    alone = smat((step.second @ svec(own)[..., None])[..., 0], d)  # E[u_hat u_hat^T]
    hat_x = P @ s.X + Q @ s.V  # E[u_hat x^T] of one agent
    hat_y = _rows(Q, s.W) + _outer(P, s.X.transpose(0, 2, 1))  # E[u_hat y^T] of two
    Z = _with_mean(m, hat_x, *_summary(m, hat_y))  # E[u+ x^T]
    if step.cross is None:  # E[u_hat u_hat'^T] = hat_u P'^T + hat_y Q'^T is never written out
        hat_u = P @ s.U + Q @ s.X.transpose(0, 2, 1)  # E[u_hat u^T]
        total, own_pair = _summary(m, hat_y)
        total = total @ Q.transpose(0, 2, 1) + np.tensordot(share, hat_u, 1) @ P.transpose(0, 2, 1)
        own_pair = own_pair @ Q.transpose(0, 2, 1) + hat_u @ P.transpose(0, 2, 1)
        Y = _with_mean(m, alone, total, own_pair)
        W = s.W + _columns(hat_y, k**2 * Q - 2 * k * np.eye(d)) + _outer(k**2 * hat_u, P)
    else:
        pair = step.cross(s.U, s.X, s.W)
        Y = _with_mean(m, alone, *_summary(m, pair))
        W = s.W + k**2 * pair - 2 * k * hat_y
    U = np.tensordot(share, Y, 1)  # Y is E[u+ u_hat^T]
    U = (U + U.T) / 2
    W += (2 * k * Z - 2 * k**2 * Y + k**2 * U).transpose(1, 0, 2)
    hat = (P @ s.u) + (Q @ s.x[..., None])[..., 0]
    u = share @ hat
    moved = k * (Z - hat_x)
    V = s.V + moved + moved.transpose(0, 2, 1) + k**2 * (U - Y - Y.transpose(0, 2, 1) + alone)
    return conserve(m, State(u, s.x + k * (u - hat), U, Z + k * (U - Y), V, W))


def _summary(m: Moments, two: Floats) -> tuple[Floats, Floats]:
    """Of E[f g^T] of two different agents, (K, d, K, d): its sum over f with the groups' shares, and its diagonal."""
    same = np.arange(len(two))
    return np.tensordot(m.count * m.weight, two, 1).transpose(1, 0, 2), two[same, :, same]


def _with_mean(m: Moments, one: Floats, total: Floats, own: Floats) -> Floats:
    """E[f_bar g^T], f_bar = sum_c w_c f_c : (K, d, d), from E[f g^T] of one agent and what `_summary` says of two."""
    return total + m.weight[:, None, None] * (one - own)


def conserve(m: Moments, s: State) -> State:
    """Undo what rounding does to two facts: x_bar = sum_c w_c x_c is 0, and second moments are symmetric.

    The map of a round keeps both, but damps neither kind of error.
    """
    share, (K, d) = m.count * m.weight, s.x.shape
    flat = s.W.reshape(K * d, K * d)
    W = ((flat + flat.T) / 2).reshape(K, d, K, d)
    V = (s.V + s.V.transpose(0, 2, 1)) / 2
    ux, mixed = np.tensordot(share, s.X, 1), _with_mean(m, V, *_summary(m, W))  # E[u x_bar^T], E[x_bar x^T]
    bar = np.tensordot(share, mixed, 1)
    V = V - mixed - mixed.transpose(0, 2, 1) + bar
    W -= mixed.transpose(1, 0, 2)
    W -= (mixed.transpose(0, 2, 1) - bar.T)[:, :, None, :]
    return State(s.u, s.x - share @ s.x, s.U, s.X - ux, V, W)
