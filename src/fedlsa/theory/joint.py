"""Means and covariances of all agents together, one round after the other: the readable form, in real numbers.

Agents keep y_c, the server keeps z; both read r = (sigma, z), where sigma_j = sum_c rho_jc y_c are sums over agents.
All of these are blocks of d numbers, and what is read of them has one factor for each block:

    u = sum_j alpha_j r_j,   x_c = y_c + sum_j chi_j r_j.

Local steps end at u + delta_c, in the mean delta_c = kappa_c q_c with q_c = x_c - A_c u. kappa_c is a function of A_c,
and random where the length of a round is (rounds.py). gain_c is m / N times that of the method. Then

    y_c+ = y_c + sum_j eta_j r_j - (N / m) 1{c in S} gain_c delta_c,   z+ = Z r + X sigma+,

so that in the mean y_c+ = F_c y_c + B_c r, F = I - gain Q, Q = E[kappa], B = eta - gain Q (chi - alpha A). Groups of
identical agents are kept as the mean of the group, and an agent's deviation from it. Covariances go on by the mean map,
which is two products, and a round adds what fluctuates: a linear function of second moments, of covariances and squares
of means alike. So a variance is a sum of positive terms, never a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from .linear import check_accuracy, smat, svec
from .rounds import AgentRound


class Covariances(NamedTuple):
    """Views of one vector.

    whole : (n + l, n + l), of (y, z), n = K d numbers of group means and the l of z
    deviations : (K, d, d), of an agent's deviation from its group
    """

    whole: Floats
    deviations: Floats


class Joint:
    """A round on vectors of covariances of length `length`, and on means, one vector (y_1, ..., y_K, z)."""

    def __init__(self, step: AgentRound) -> None:
        self.step, c = step, step.coordinates
        (K, d), size = step.shape, len(c.Z) * step.shape[1]
        self.K, self.d, self.n, self.l = K, d, K * d, size
        one = np.eye(d)
        self.rho = np.kron(c.rho, one)  # (s, n): sigma of group means
        self.alpha, self.chi, self.eta = (np.kron(a, one) for a in (c.alpha, c.chi, c.eta))  # (d, k d)
        self.Z, self.X = np.kron(c.Z, one), np.kron(c.X, one)
        self.C = self.chi - step.A @ self.alpha  # q = y + C r
        moved = step.gain[:, None, None] * step.Q
        self.moved, self.F, self.B = moved, one - moved, self.eta - moved @ self.C
        self.count = step.moments.count[:, None, None]
        at = np.arange(self.n).reshape(K, d)
        self.blocks = at[:, :, None], at[:, None, :]

    @property
    def length(self) -> int:
        return (self.n + self.l) ** 2 + self.n * self.d

    @cached_property
    def share(self) -> Floats:
        """(K,), of each group in averages over agents."""
        return self.step.moments.count * self.step.moments.weight

    @cached_property
    def u_norm(self) -> float:
        """How long u is, at most, for means of length 1."""
        of_sums = float(np.linalg.norm(self.alpha[:, : len(self.rho)] @ self.rho, 2))
        return max(of_sums, float(self.l > 0))

    def parts(self, vector: Floats) -> Covariances:
        """Its views."""
        size = self.n + self.l
        return Covariances(vector[: size**2].reshape(size, size), vector[size**2 :].reshape(-1, self.d, self.d))

    # --- means ------------------------------------------------------------------------------------------------------

    def start(self, u: Floats, x: Floats) -> Floats:
        """The means (y, z) of known u : (d,) and x : (K, d); refused where changes of x have too few digits of u."""
        m, far, gain = self.step.moments, float(np.abs(x).max()), float(self.step.gain.min())
        size = np.abs(u).max() + np.abs(m.theta_star).max() + far / max(np.abs(m.A_bar).max(), 1e-300)
        lost = np.finfo(np.float64).eps * far / (gain * size) if far else 0.0
        check_accuracy(float(lost), f"runs with eta H = {1 / gain:.1e}")
        if not self.l:
            return (x - self.step.coordinates.chi[0] * u).ravel()
        return np.concatenate([x.ravel(), u, np.zeros(self.l - self.d)])

    def taken_over(self, before: Joint, means: Floats) -> Floats:
        """Means of another round, which have the same coordinates where rounds differ."""
        return means

    def read(self, means: Floats) -> tuple[Floats, Floats, Floats]:
        """y : (K, d, ...), u : (d, ...) and x : (K, d, ...) of means : (n + l, ...)."""
        y = means[: self.n].reshape(self.K, self.d, *means.shape[1:])
        r = self.common(means)
        return y, self.alpha @ r, y + self.chi @ r

    def common(self, means: Floats) -> Floats:
        """r : (k d, ...)."""
        return np.concatenate([self.rho @ means[: self.n], means[self.n :]])

    def mean(self, means: Floats) -> Floats:
        """The means one round later."""
        return self._carry(means[:, None], self.common(means)[:, None])[:, 0]

    def _carry(self, s: Floats, r: Floats) -> Floats:
        """Rows of (y, z) one round later, from theirs and those of r."""
        y = self._left(self.F, s[: self.n]) + self._left(self.B, r)
        return np.concatenate([y, self.Z @ r + self.X @ (self.rho @ y)]) if self.l else y

    # --- covariances ------------------------------------------------------------------------------------------------

    def advance(self, vector: Floats) -> Floats:
        """L C: what a round makes of covariances alone, of which it is a linear function."""
        return self.advance_with_covariances(vector)[0]

    def advance_with_covariances(self, vector: Floats) -> tuple[Floats, Floats]:
        """The same, and what `covariances` shows of the covariances before it."""
        (whole, own), out = self._symmetric(self.parts(vector)), np.empty(self.length)
        r = self.common(whole)  # Cov(r, (y, z))
        rr, half, across = self.common(r.T), self._carry(whole, r), self._carry(r.T, self.common(r.T))
        whole_out, own_out = self.parts(out)
        whole_out[:] = self._carry(half.T, across.T)  # of Cov((y, z), (y, z)+) and Cov(r, (y, z)+)
        own_out[:] = self.F @ own @ self.F.swapaxes(1, 2)
        agent_moments = self._second(rr, self._with_agents(r), self.diagonal(whole) + own)
        self._fluctuate(agent_moments, self._of_q(whole, r, rr) if self.step.random else None, own, whole_out, own_out)
        return out, self._covariances(agent_moments)

    def _with_agents(self, r: Floats) -> Floats:
        """Cov(r, y_k) : (K, k d, d), from Cov(r, (y, z))."""
        return r[:, : self.n].reshape(len(r), self.K, self.d).transpose(1, 0, 2)

    def _symmetric(self, c: Covariances) -> Covariances:
        """Without what rounding makes and may grow: asymmetry, and deviations from a group of one."""
        deviations = np.where(self.count > 1, (c.deviations + c.deviations.swapaxes(1, 2)) / 2, 0.0)
        return Covariances((c.whole + c.whole.T) / 2, deviations)

    def force(self, means: Floats) -> Callable[..., Floats]:
        """What a round adds around E[(y, z)] = means s, whose square is means S means^T; means : (n + l, r).

        Returns a function of s, S and the constant, which is 1; 0 leaves out noise that does not depend on means.
        """
        second = self._of_means(means)
        q = (self.read(means)[0] + self.C @ self.common(means)).reshape(self.n, -1)

        def force(s: Floats, S: Floats, constant: float = 1.0) -> Floats:
            out = np.zeros(self.length)
            whole, deviations = self.parts(out)
            of_q = q @ S @ q.T if self.step.random else None
            self._fluctuate(second(s, S, constant), of_q, np.zeros_like(deviations), whole, deviations)
            return out

        return force

    def _of_means(self, means: Floats) -> Callable[[Floats, Floats, float], Floats]:
        """Squares of the means of (u, x_c, 1), as a function of s, S and the constant : (K, 2 d + 1, 2 d + 1)."""
        _, u, x = self.read(means)
        w = np.concatenate([np.broadcast_to(u, x.shape), x], axis=1)  # (K, 2 d, r)

        def second(s: Floats, S: Floats, constant: float) -> Floats:
            out = np.zeros((self.K, 2 * self.d + 1, 2 * self.d + 1))
            out[:, :-1, :-1] = w @ S @ w.swapaxes(1, 2)
            out[:, :-1, -1], out[:, -1, -1] = w @ s, constant
            return out

        return second

    def _left(self, M: NDArray[Any], X: NDArray[Any]) -> NDArray[Any]:
        """M_k X_k of the rows of each group; where M is (K, d, m), X may have m rows for all groups."""
        if len(X) == self.n and M.shape[2] == self.d:
            X = X.reshape(self.K, self.d, -1)
        out: NDArray[Any] = M @ X
        return out.reshape(self.n, -1)

    def diagonal(self, whole: Floats) -> Floats:
        """Those of each group mean : (K, d, d)."""
        return whole[self.blocks]

    def _second(self, rr: Floats, cross: Floats, V: Floats) -> Floats:
        """(K, 2 d + 1, 2 d + 1), of (u, x_c, 1) for an agent of each group; cross : Cov(r, y_k) : (K, k d, d)."""
        d, out = self.d, np.zeros((self.K, 2 * self.d + 1, 2 * self.d + 1))
        out[:, :d, :d] = self.alpha @ rr @ self.alpha.T
        out[:, :d, d:-1] = self.alpha @ cross + self.alpha @ rr @ self.chi.T
        crossed = self.chi @ cross
        out[:, d:-1, d:-1] = V + crossed + crossed.swapaxes(1, 2) + self.chi @ rr @ self.chi.T
        return out

    def _of_q(self, whole: Floats, r: Floats, rr: Floats) -> Floats:
        """Cov(q) of group means : (n, n)."""
        rY = r[:, : self.n]
        by_y, by_r = whole[: self.n, : self.n] + self._left(self.C, rY), rY.T + self._left(self.C, rr)
        return by_y + self._left(self.C, by_r.T).T

    def _fluctuate(
        self, second: Floats, of_q: Floats | None, of_deviation: Floats, whole: Floats, deviations: Floats
    ) -> None:
        """Add what a round adds: the noise of each agent's steps, and what all see, its length and who takes part.

        second : of (u, x, 1); of_q, of_deviation : of q, of group means and of an agent's deviation from them
        """
        (same, pair), of_all = self.step.sampled, list[Floats]()
        N = self.noise(second)
        for share, source, powers in self._shared:
            assert of_q is not None
            both = self._both(source, of_q, of_deviation)
            for P in powers:
                more = self._both(P, *both)
                both = both[0] + more[0], both[1] + more[1]
            of_all.append(share * both[0])
            deviations += share * both[1]
            N += (same - pair) * (self.diagonal(both[0]) + both[1])
        self._add(whole, deviations, N, of_all)

    def _add(self, whole: Floats, deviations: Floats, N: Floats, of_all: Sequence[Floats] = ()) -> None:
        """Add what is new in y, of independent agents (K, d, d) and of group means (n, n), and what z sees of it."""
        Y = np.zeros((self.n, self.n)) if self.l else whole
        for found in of_all:
            Y += found
        Y[self.blocks] += N / self.count
        deviations += (1 - 1 / self.count) * N
        if self.l:
            seen = self.X @ (self.rho @ Y)
            whole[: self.n] += np.concatenate([Y, seen.T], axis=1)
            whole[self.n :] += np.concatenate([seen, seen @ self.rho.T @ self.X.T], axis=1)

    def noise(self, second: Floats) -> Floats:
        """(K, d, d): the noise of an agent's local steps in y, for second moments of (u, x, 1)."""
        noise = smat((self.step.noise @ svec(second)[..., None])[..., 0], self.d)
        return (1 + self.step.sampled[0]) * self.step.gain[:, None, None] ** 2 * noise

    @cached_property
    def _shared(self) -> list[tuple[float, Floats, Floats]]:
        """What all agents see, the length of a round and who takes part: the covariance that it makes of gain kappa q.

        The share of it that counts, a map of q, and those maps by which more of it is added again and again.
        """
        step, (_, pair), lengths = self.step, self.step.sampled, self.step.lengths
        by_mean = [(pair, self.moved, np.zeros((0, *self.moved.shape)))] if pair else []
        return by_mean if lengths is None else [(1 + pair, step.gain[:, None, None] * lengths[0], lengths[1]), *by_mean]

    def _both(self, M: Floats, X: Floats, deviation: Floats) -> tuple[Floats, Floats]:
        """M X M^T of all, and of each."""
        return self._left(M, self._left(M, X).T), M @ deviation @ M.swapaxes(1, 2)

    # --- what is seen of them ---------------------------------------------------------------------------------------

    def covariances(self, vector: Floats) -> Floats:
        """svec Cov(u), and the trace of the weighted mean of all Cov(x_c) : (s + 1,)."""
        return self._covariances(self.second(vector))

    def _covariances(self, second: Floats) -> Floats:
        d = self.d
        spread = np.trace(second[:, d:-1, d:-1], axis1=1, axis2=2)
        return np.append(svec(second[0, :d, :d]), self.share @ spread)

    def second(self, vector: Floats) -> Floats:
        """Covariances of (u, x_c, 1) : (K, 2 d + 1, 2 d + 1), the upper blocks."""
        whole, own = self.parts(vector)
        r = self.common(whole)
        return self._second(self.common(r.T), self._with_agents(r), self.diagonal(whole) + own)

    def independent(self, V: Floats) -> Floats:
        """The vector of agents that are independent of one another, of covariances V : (K, d, d).

        Each is to be divided by its group where it is the mean of one.
        """
        out = np.zeros(self.length)
        whole, deviations = self.parts(out)
        self._add(whole, deviations, V)
        return out
