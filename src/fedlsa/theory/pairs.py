"""Means and covariances of methods with control variates, for all pairs of agents, one round after the other.

Where controlled.py speaks of (u, x_1, ..., x_N) with sum_c w_c x_c = 0, this keeps y_c = x_c - gain u alone, for then
nothing is conserved: u = -y_bar / gain and y_c+ = y_c - (N / m) 1{c in S} gain delta_c, which in the mean is

    y_c+ = F_c y_c + B_c u,   F = I - gain Q, B = gain (F - P).

The vector of a state is E[y_k], svec Cov(y) of one agent per group, and Cov(y, y') of two different agents for groups
k <= l, as tiles (pair_kernels.py). Covariances are carried on by the mean map, and a round adds what fluctuates: a
linear function of second moments, covariance and square of the mean together. A variance is never a difference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import Floats
from . import pair_passes, tuning
from .linear import check_accuracy
from .moments import Moments
from .pair_passes import Form, Parts, form_of, turned
from .symmetric import functionals, rows_of, smat, squares, symkron, triangle
from .threads import cores, share


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
        if not pair_passes.compiled(K, d):
            return pair_passes.sums(W, m.weight, m.count)
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
        V[:] = pair_passes.alone(p.V, R[0], F.F, F.B)
        self._add(W, p.W, F, R, 1.0)
        return out

    def fluctuate(self, p: Parts, out: Floats, source: Floats | None = None) -> None:
        """Add to a vector what a round adds to covariances for given second moments, which is linear in them.

        source : (K (K + 1) / 2, d, d), what a common length multiplies besides theirs; it is overwritten
        """
        _, V, W = self.parts(out)
        V += pair_passes.noise((p.y, p.V, p.u, p.U, p.uy), self.noise)
        pair = self.sampled[1]
        if pair:
            self._add(W, p.W, self._moved, self._mixed(self._moved, p), pair)
        if self._length:
            form, powers, powers_t = self._length
            X = np.zeros_like(W) if source is None else source
            self._add(X, p.W, form, self._mixed(form, p), 1 + pair)
            self._pass("doubled", 4 * len(powers) * X.size, (X, powers, powers_t, self.moments.count), W)

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
        exist = pair_passes.existing(m.count)
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
        self._pass("pairs", W.size, (W, R, tuple(form), self.moments.count, times), out)

    def _pass(self, name: str, numbers: int, arguments: tuple[Any, ...], out: Floats) -> None:
        """A pass over all pairs, compiled and shared among threads where there are many."""
        if not pair_passes.compiled(*self.shape):
            getattr(pair_passes, name)(*arguments, out)
            return
        from . import pair_kernels

        kernel = getattr(pair_kernels, name)
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
        V[:] = pair_passes.alone(p.V, R[0], form.F, form.B)
        self._add(W, p.W, form, R, 1.0)
        return out
