"""Means and covariances of methods with control variates, for all pairs of agents, one round after the other.

Where controlled.py speaks of (u, x_1, ..., x_N) with sum_c w_c x_c = 0, this keeps y_c = x_c - gain u alone, for then
nothing is conserved: u = -y_bar / gain and y_c+ = y_c - (N / m) 1{c in S} gain delta_c, which in the mean is

    y_c+ = F_c y_c + B_c u,   F = I - gain Q, B = gain (F - P).

The vector of a state is E[y_k], svec Cov(y) of one agent per group, and Cov(y, y') of two different agents for groups
k <= l, as tiles (pair_kernels.py). Covariances are carried on by the mean map, and a round adds what fluctuates: a
linear function of second moments, covariance and square of the mean together. A variance is never a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from . import tuning
from .linear import check_accuracy, functionals, rows_of, smat, squares, svec, symkron, triangle
from .problem_moments import Moments
from .threads import cores, share

# Passes over pairs of groups in NumPy: those over few pairs, done long before a kernel is compiled, and over groups.
#
# `compiled` chooses by size alone, so that a problem gets the same bits every time. Pairs k <= l stand one after the
# other, row by row, as tiles of d x d numbers; pair_kernels.py has the passes over many of them.

Counts = NDArray[Any]


class Parts(NamedTuple):
    """E[y] : (K, d); second moments, or covariances, of y and of u = -y_bar / gain: V : (K, s), W : (pairs, d, d), U :
    (d, d), uy : (K, d, d); E[u] : (d,)."""

    y: Floats
    V: Floats
    W: Floats
    u: Floats
    U: Floats
    uy: Floats


class Form(NamedTuple):
    """The map (y, u) -> F y + B u of each group, as passes over tiles read it."""

    F: Floats
    F_t: Floats
    B: Floats
    B_t: Floats


def turned(F: Floats) -> Floats:
    """The transpose of each, stored as such."""
    return np.ascontiguousarray(F.swapaxes(-1, -2))


def form_of(F: Floats, B: Floats) -> Form:
    """F and B as passes read them."""
    F, B = np.ascontiguousarray(F), np.ascontiguousarray(B)
    return Form(F, turned(F), B, turned(B))


def compiled(K: int, d: int) -> bool:
    """Whether there are so many pairs of K groups in d dimensions that their passes are compiled."""
    return K * (K + 1) // 2 * d**4 > tuning.COMPILED_FROM


def existing(count: Counts) -> NDArray[np.bool_]:
    """Which pairs exist: an agent alone in its group has no other there."""
    k, n = triangle(len(count))
    return (k < n) | (count[k] > 1)


def pairs(W: Floats, mixed: Any, form: Any, count: Counts, times: float, out: Floats) -> None:
    """Add `times` (F_k W_kl F_l^T + R_k B_l^T + B_k R_l^T)."""
    (R, R_t), (F, F_t, B, B_t) = mixed, form
    k, n = triangle(len(count))
    both = np.concatenate([R, B], axis=2)[k] @ np.concatenate([B_t, R_t], axis=1)[n]
    np.add(out, times * (F[k] @ W @ F_t[n] + both), out=out, where=existing(count)[:, None, None])


def doubled(X: Floats, powers: Floats, powers_t: Floats, count: Counts, out: Floats) -> None:
    """Add Y_kl = sum_j B_k^j X_kl B_l^jT, by Y += Q_j Y Q_j^T with powers Q_j = B^(2^j) : (J, K, d, d)."""
    k, n = triangle(len(count))
    for Q, Q_t in zip(powers, powers_t, strict=True):
        X = X + Q[k] @ X @ Q_t[n]
    np.add(out, X, out=out, where=existing(count)[:, None, None])


def sums(W: Floats, weight: Floats, count: Counts) -> Floats:
    """(K, d, d): of all others, the sum of their weights and E[y' y^T], for an agent of each group."""
    k, n = triangle(len(count))
    joint = np.empty((len(count), len(count), *W.shape[1:]))
    joint[n, k], joint[k, n] = W.transpose(0, 2, 1), W
    return np.asarray(np.tensordot(weight * count, joint, 1) - weight[:, None, None] * W[k == n])


def stein_inverses(F: Floats, count: Counts) -> Floats:
    """(tiles that exist, d^2, d^2): the inverse of W -> W - F_k W F_l^T, rows of W one after the other."""
    k, n = (side[existing(count)] for side in triangle(len(count)))
    d = F.shape[1]
    maps = np.einsum("pij,pkl->pikjl", F[k], F[n]).reshape(-1, d * d, d * d)
    return np.asarray(np.linalg.inv(np.eye(d * d) - maps), np.float64)


def stationary(inverses: Floats, F: Floats, R: Floats, B: Floats, count: Counts) -> Floats:
    """The W with W_kl = F_k W_kl F_l^T + R_k B_l^T + B_k R_l^T, refined once; 0 where a pair does not exist."""
    exist = existing(count)
    k, n = (side[exist] for side in triangle(len(count)))
    F_t, B_t, R_t = (M.transpose(0, 2, 1) for M in (F, B, R))
    source = R[k] @ B_t[n] + B[k] @ R_t[n]
    W, left = np.zeros_like(source), source
    for _ in range(2):
        W = W + (inverses @ left.reshape(*inverses.shape[:2], 1)).reshape(W.shape)
        left = source - (W - F[k] @ W @ F_t[n])
    out = np.zeros((len(exist), *W.shape[1:]))
    out[exist] = W
    return out


def alone(V: Floats, R: Floats, F: Floats, B: Floats) -> Floats:
    """svec(F_k V_k F_k^T + R_k B_k^T + B_k R_k^T) of all groups; V : (K, s)."""
    crossed = R @ B.transpose(0, 2, 1)
    return svec(F @ smat(V, F.shape[1]) @ F.transpose(0, 2, 1) + crossed + crossed.transpose(0, 2, 1))


def noise(parts: Any, own: Floats) -> Floats:
    """own_k svec E[w w^T], w = (u, y_k, 1), but for 1 with itself, of all groups.

    parts : E[y], svec E[y y^T], E[u], E[u u^T] and E[u y^T]
    """
    y, V, u, U, uy = parts
    K, d = y.shape
    square = np.zeros((K, 2 * d + 1, 2 * d + 1))  # its upper triangle
    square[:, :d, :d], square[:, :d, d:-1], square[:, :d, -1] = U, uy, u
    square[:, d:-1, d:-1], square[:, d:-1, -1] = smat(V, d), y
    return np.asarray((own @ svec(square)[..., None])[..., 0])


@dataclass(frozen=True, eq=False)
class PairMap:
    """A round on vectors of length `length`, of agents who in the mean end their local steps at u_hat = P u + Q x.

    gain : m / N times that of the method; P, Q : (K, d, d)
    local_noise : (K, s, S), svec E[w w^T] of one agent, w = (u, x, 1), to svec Cov(u_hat) given w
    participants : m; lengths : source and powers of a common random length (controlled.py), None where it is known
    """

    moments: Moments
    gain: float
    P: Floats
    Q: Floats
    local_noise: Floats
    participants: int
    lengths: tuple[Floats, Floats] | None = None

    @property
    def sampled(self) -> tuple[float, float]:
        """By how much E[1_c 1_e] N^2 / m^2 exceeds one, for c = e and for two different agents."""
        N, m = self.moments.n_agents, self.participants
        return (N - m) / m, -(N - m) / (m * (N - 1)) if N > 1 else 0.0

    @cached_property
    def F(self) -> Floats:
        """(K, d, d): y to y+, in the mean."""
        return np.eye(self.moments.dim) - self.gain * self.Q

    @cached_property
    def B(self) -> Floats:
        """(K, d, d): u to y+, in the mean."""
        return self.gain * (self.F - self.P)

    @cached_property
    def noise(self) -> Floats:
        """(K, s, S): svec E[w w^T], w = (u, y, 1), to what fluctuates in y+ of one agent."""
        k, d, own = self.gain, self.moments.dim, self.sampled[0]
        D = functionals((1 + own) * k**2 * self.local_noise, 2 * d + 1)  # now x = y + gain u in each row
        x = slice(d, 2 * d)
        D[..., :d, :] += k * D[..., x, :]
        D[..., :, :d] += k * D[..., :, x]
        noise = np.ascontiguousarray(rows_of(D))  # which every round reads
        if own:
            noise += own * symkron(np.concatenate([-self.B, np.eye(d) - self.F, np.zeros((len(D), d, 1))], axis=2))
        return noise

    @property
    def shape(self) -> tuple[int, int]:
        """Number of groups and dimension."""
        return int(self.P.shape[0]), int(self.P.shape[1])

    @property
    def length(self) -> int:
        """How many numbers a state has."""
        K, d = self.shape
        return K * d + K * d * (d + 1) // 2 + K * (K + 1) // 2 * d * d

    def parts(self, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """Views of E[y] : (K, d), svec Cov(y) : (K, s) and the tiles : (K (K + 1) / 2, d, d)."""
        K, d = self.shape
        a, b = K * d, K * d + K * d * (d + 1) // 2
        return vector[:a].reshape(K, d), vector[a:b].reshape(K, -1), vector[b:].reshape(-1, d, d)

    def cuts(self, numbers: int) -> list[int]:
        """Rows of pairs for each thread, with about as many tiles each."""
        K = self.shape[0]
        n = min(cores(), K) if numbers > tuning.THREADS_FROM else 1
        return [0, *(round(K * (1 - np.sqrt(1 - i / n))) for i in range(1, n)), K]

    @cached_property
    def weights(self) -> tuple[Floats, Floats, Floats]:
        """Those of groups in y_bar, and those of each agent's and of each tile's trace in E||y_bar||^2."""
        m = self.moments
        total, (i, j) = m.count * m.weight, triangle(self.shape[0])
        pairs = np.where(i == j, (total - m.weight)[i] * total[i], 2 * total[i] * total[j])
        return total, total * m.weight, pairs

    @cached_property
    def own(self) -> Floats:
        """(K, s, S): svec E[w w^T], w = (u, y, 1), to svec E[y+ y+^T] of one agent."""
        return self.noise + symkron(np.concatenate([self.B, self.F, np.zeros((*self.F.shape[:2], 1))], axis=2))

    @cached_property
    def _carried(self) -> Form:
        return form_of(self.F, self.B)

    @cached_property
    def _moved(self) -> Form:
        """What a round changes in y, with the opposite sign: gain delta."""
        return form_of(np.eye(self.shape[1]) - self.F, -self.B)

    @cached_property
    def _length(self) -> tuple[Form, Floats, Floats] | None:
        """A common length's source, of y and u, and its powers."""
        m, k = self.moments, self.gain
        if self.lengths is None or not self.lengths[0].any():
            return None
        source, powers = k * self.lengths[0], np.ascontiguousarray(self.lengths[1])
        return form_of(source, source @ (k * np.eye(m.dim) - m.A_bar[m.table])), powers, turned(powers)

    def second(self, vector: Floats) -> Parts:
        """All parts of a vector, where `u` and `u y^T` are -y_bar / gain and what comes of it."""
        m, k, (K, d) = self.moments, self.gain, self.shape
        y, V, W = self.parts(vector)
        weights = self.weights[0]
        uy = (self.sums(W) + m.weight[:, None, None] * smat(V, d)) / -k
        U = (weights @ uy.reshape(K, d * d)).reshape(d, d) / -k
        return Parts(y, V, W, weights @ y / -k, (U + U.T) / 2, uy)

    def sums(self, W: Floats) -> Floats:
        """(K, d, d): of all others, the sum of their weights and E[y' y^T], for an agent of each group."""
        m, (K, d) = self.moments, self.shape
        if not compiled(K, d):
            return sums(W, m.weight, m.count)
        from . import pair_kernels

        cuts = self.cuts(W.size)
        found = np.zeros((len(cuts) - 1, K, d, d))
        share(lambda a, b: pair_kernels.sums(W, m.weight, m.count, a, b, found[cuts.index(a)]), cuts)
        return np.asarray(found.sum(0))

    def common(self, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """E[u] : (d,), Cov(u) : (d, d) and Cov(u, y) : (K, d, d) of one agent per group."""
        return self.second(vector)[3:]

    def server(self, y: Floats) -> Floats:
        """u : (d,) of y : (K, d)."""
        return np.asarray(self.weights[0] @ y / -self.gain, np.float64)

    def mean(self, y: Floats) -> Floats:
        """E[y] : (K, d) one round later."""
        return (self.F @ y[..., None])[..., 0] + self.B @ self.server(y)

    def carry(self, p: Parts) -> Floats:
        """The vector of the image of y under the mean of a round."""
        out = np.zeros(self.length)
        y, V, W = self.parts(out)
        y[:] = self.mean(p.y)
        F, R = self._carried, self._mixed(self._carried, p)
        V[:] = alone(p.V, R[0], F.F, F.B)
        self._add(W, p.W, F, R, 1.0)
        return out

    def fluctuate(self, p: Parts, out: Floats, source: Floats | None = None) -> None:
        """Add to a vector what a round adds to covariances for given second moments, which is linear in them.

        source : (K (K + 1) / 2, d, d), what a common length multiplies besides theirs; it is overwritten
        """
        _, V, W = self.parts(out)
        V += noise((p.y, p.V, p.u, p.U, p.uy), self.noise)
        pair = self.sampled[1]
        if pair:
            self._add(W, p.W, self._moved, self._mixed(self._moved, p), pair)
        if self._length:
            form, powers, powers_t = self._length
            X = np.zeros_like(W) if source is None else source
            self._add(X, p.W, form, self._mixed(form, p), 1 + pair)
            self._pass(doubled, 4 * len(powers) * X.size, (X, powers, powers_t, self.moments.count), W)

    def _fluctuate_around(self, y: Floats, constant: float, out: Floats) -> Floats | None:
        """The same for y that are known, without what a common length multiplies, which is returned.

        A step goes by x and u themselves, of which y may be a large multiple.
        """
        _, V, W = self.parts(out)
        m, k, (own, pair) = self.moments, self.gain, self.sampled
        u = self.server(y)
        x, moved = y + k * u, y - self.mean(y)
        w = np.concatenate([np.broadcast_to(u, x.shape), x, np.full((len(x), 1), constant)], axis=1)
        V += (1 + own) * k**2 * (self.local_noise @ squares(w)[..., None])[..., 0] + own * squares(moved)
        if not (pair or self._length):
            return None
        i, j = triangle(len(y))
        exist = existing(m.count)
        W += (pair * exist)[:, None, None] * moved[i, :, None] * moved[j, None, :]
        if self.lengths is None or not self._length:
            return None
        r = k * (self.lengths[0] @ (x - m.A_bar[m.table] @ u)[..., None])[..., 0]
        return np.asarray((1 + pair) * r[i, :, None] * r[j, None, :], np.float64)

    def _mixed(self, form: Form, p: Parts) -> tuple[Floats, Floats]:
        """R = F y u^T + B u u^T / 2 and R^T: for z = F y + B u, E[z z'^T] is F W F'^T + R B'^T + B R'^T."""
        R = form.F @ p.uy.transpose(0, 2, 1) + form.B @ p.U / 2
        return R, turned(R)

    def _add(self, out: Floats, W: Floats, form: Form, R: tuple[Floats, Floats], times: float) -> None:
        self._pass(pairs, W.size, (W, R, tuple(form), self.moments.count, times), out)

    def _pass(self, function: Callable[..., None], numbers: int, arguments: tuple[Any, ...], out: Floats) -> None:
        """A pass over all pairs, compiled and shared among threads where there are many."""
        if not compiled(*self.shape):
            function(*arguments, out)
            return
        from . import pair_kernels

        kernel = getattr(pair_kernels, function.__name__)
        share(lambda a, b: kernel(*arguments, a, b, out), self.cuts(numbers))

    def advance(self, vector: Floats, constant: float = 1.0) -> Floats:
        """The vector one round later; constant = 0 leaves the noise out, which makes the map linear where E[y] = 0."""
        now = self.second(vector)
        out = self.carry(now)
        known = constant or now.y.any()  # else there is nothing around which it fluctuates
        source = self._fluctuate_around(now.y, constant, out) if known else None
        self.fluctuate(now._replace(y=np.zeros_like(now.y), u=np.zeros_like(now.u)), out, source)
        return out

    def advance_mean(self, vector: Floats) -> Floats:
        """The same vector with means one round later, and second moments as they are: once these have overflowed."""
        y = self.parts(vector)[0]
        y[:] = self.mean(y)
        return vector

    def look(self, vectors: Floats) -> Floats:
        """(u, ||u||^2, sum_c w_c ||x_c||^2) : (..., d + 2) of means and covariances; vectors : (..., length).

        Since y_bar = -gain u, the last is sum_c w_c ||y_c||^2 - ||y_bar||^2.
        """
        k, (K, d), (total, one, two), lead = self.gain, self.shape, self.weights, vectors.shape[:-1]
        a, b = K * d, K * d + K * d * (d + 1) // 2
        y = total @ vectors[..., :a].reshape(*lead, K, d)
        diagonal = np.flatnonzero(np.equal(*triangle(d)))
        V = vectors[..., a:b].reshape(*lead, K, -1)[..., diagonal].sum(-1)
        W = np.trace(vectors[..., b:].reshape(*lead, -1, d, d), axis1=-2, axis2=-1)
        square = V @ one + W @ two  # of y_bar
        return np.concatenate([y / -k, np.stack([square / k**2, V @ total - square], -1)], -1)

    def seen(self, vector: Floats) -> Floats:
        """(E[u], E||u - E[u]||^2, sum_c w_c E||x_c||^2) : (d + 2,), the squares of means included in the last alone."""
        found, y = self.look(vector), self.parts(vector)[0]
        x = y + self.gain * found[: self.shape[1]]
        found[-1] += self.weights[0] @ np.sum(x**2, axis=1)
        return found

    def error(self, vector: Floats) -> float:
        """E||u||^2."""
        d, shown = self.shape[1], self.look(vector)
        return float(shown[:d] @ shown[:d] + shown[d])

    def start(self, u: Floats, x: Floats) -> Floats:
        """The vector of known u : (d,) and x : (K, d); refused where y = x - gain u has lost too many digits of u."""
        m, far = self.moments, float(np.abs(x).max())
        size = np.abs(u).max() + np.abs(m.theta_star).max() + far / max(np.abs(m.A_bar).max(), 1e-300)
        lost = np.finfo(np.float64).eps * far / (self.gain * size) if far else 0.0
        check_accuracy(float(lost), f"runs with eta H = {1 / self.gain:.1e}")
        out = np.zeros(self.length)
        self.parts(out)[0][:] = x - self.gain * u
        return out

    def regauged(self, vector: Floats, gain: float) -> Floats:
        """The vector for this round of a state whose y was taken with another gain: y + (other - own) u."""
        p, out, change = replace(self, gain=gain).second(vector), np.zeros(self.length), gain - self.gain
        y, V, W = self.parts(out)
        y[:] = p.y + change * p.u
        one = np.broadcast_to(np.eye(self.shape[1]), self.F.shape)
        form = form_of(one, change * one)
        R = self._mixed(form, p)
        V[:] = alone(p.V, R[0], form.F, form.B)
        self._add(W, p.W, form, R, 1.0)
        return out
