"""The stationary law of SCAFFLSA with many different agents, at a cost linear in their number: by frequency.

In the coordinates of theory/pairs.py, y_c+ = F_c y_c + B_c u - gain n_c with u = -y_bar / gain. For given covariances
C_c of the noises n_c the process is linear and stationary, so its second moments are integrals over |z| = 1 of

    u = K^-1 sum_c w_c R_c n_c,  y_c = R_c (B_c u - gain n_c),  R_c = (z - F_c)^-1,  K = I + sum_c w_c R_c B_c / gain.

F_c and B_c are polynomials of A_c, so in its eigenbasis R_c and B_c are diagonal: r_i = 1 / (z - f_i) and beta_i. All
integrals over z become a few large matrix products. In turn C_c is linear in the moments of (u, y_c) alone, which
closes the system: it is solved for the covariances. Where slow modes crowd z = 1, so do the nodes.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, gmres

from ..checks import Floats
from .controlled import Round
from .krylov import Krylov
from .symmetric import smat, svec, triangle

Complexes = NDArray[np.complex128]
FINEST = 1e-7  # angle of the first panel; each next one is twice as wide
ORDER = 8  # nodes of a panel
CHUNK = 64  # agents at a time where their frequencies are all held
STEADY = 1e-8  # relative change of the feedback over a few more dimensions
PRECISE = 1e-4  # of one minus the radius, relative
SKEW = 1e7  # condition of an eigenbasis beyond which its digits are lost


class Spectrum:
    """A round of fixed length, and its second moments for given noise.

    f, beta : (K, d) eigenvalues of F and B; E, J : (K, d, d) the eigenbasis and its inverse; z, weight : (Z,) nodes
    """

    def __init__(self, step: Round, order: int = ORDER) -> None:
        assert step.cross is None
        m, k = step.moments, step.gain
        self.step, self.gain, self.order = step, k, order
        basis = np.linalg.eig(m.A_bar)[1]
        self.E: Complexes = basis[m.table].astype(np.complex128)
        self.J: Complexes = np.linalg.inv(basis)[m.table].astype(np.complex128)
        self.f = 1 - k * np.einsum("cij,cjk,cki->ci", self.J, step.Q, self.E, optimize=True)
        self.beta = k * (self.f - np.einsum("cij,cjk,cki->ci", self.J, step.P, self.E, optimize=True))
        self.share, self.own_weight = m.count * m.weight, m.weight
        self.i, self.j = triangle(m.dim)
        self._place(1.0)

    def at(self, modulus: float) -> Spectrum:
        """The same with |z| = modulus: the moments of a process that is damped or blown up by it every round."""
        other = copy(self)
        other.__dict__.pop("_from_noise", None)
        other.__dict__.pop("rr", None)
        other._place(modulus)
        return other

    def _place(self, modulus: float) -> None:
        d = self.f.shape[1]
        angle, width = _nodes(self.order)
        self.z, self.weight = modulus * np.exp(1j * angle), width / (2 * np.pi)
        self.r = 1 / (self.z[:, None, None] - self.f)  # (Z, K, d)
        spread = (self.share[:, None] * self.beta / self.gain)[:, :, None, None] * (
            self.E.transpose(0, 2, 1)[:, :, :, None] * self.J[:, :, None, :]
        )
        K = np.eye(d) + (self.r.reshape(len(self.r), -1) @ spread.reshape(-1, d * d)).reshape(-1, d, d)
        poles, several = np.abs(self.f) >= modulus, self.step.moments.count > 1
        # modes that grow: zeros of det K and, where a group has several agents, their differences
        self.outside = _outside(np.linalg.det(K)) + int(poles.sum()) + int(poles[several].sum())
        self.K_inverse: Complexes = np.linalg.inv(K)

    @cached_property
    def rr(self) -> Complexes:
        """r_i r_j* for i <= j : (Z, K s)."""
        return (self.r[:, :, self.i] * self.r[:, :, self.j].conj()).reshape(len(self.r), -1)

    @staticmethod
    def suits(step: Round) -> bool:
        """Whether the eigenbases of all agents are good enough, and the round has one length."""
        if step.cross is not None:
            return False
        return bool(np.linalg.cond(np.linalg.eig(step.moments.A_bar)[1]).max() < SKEW)

    @cached_property
    def _from_noise(self) -> tuple[Complexes, Complexes, Complexes]:
        """Integrals of r_i r_j* : (K, s); of K^-1 E r_l r_j* : (K, p, l, j); of beta_i r_i (J K^-1 E)_il r_l r_j*."""
        n, d = self.f.shape
        flat = (self.weight[:, None] * self.K_inverse.reshape(-1, d * d)).astype(np.complex128)
        upper = (self.rr.T @ flat).reshape(n, -1, d, d)
        lower = (self.rr.conj().T @ flat).reshape(n, -1, d, d)
        full = np.empty((n, d, d, d, d), np.complex128)  # (K, l, j, p, q)
        full[:, self.j, self.i], full[:, self.i, self.j] = lower, upper
        mixed = np.einsum("cljpq,cql->cplj", full, self.E, optimize=True)
        triple = np.empty((n, d, d, d), np.complex128)
        for a in range(0, n, CHUNK):
            part = slice(a, a + CHUNK)
            r = self.r[:, part].transpose(1, 0, 2)  # (k, Z, d)
            G = self.J[part, None] @ self.K_inverse @ self.E[part, None]  # (k, Z, d, d)
            G *= (self.weight[:, None] * r)[..., :, None] * r[..., None, :] * self.beta[part, None, :, None]
            both = G.reshape(len(r), len(self.z), d * d).transpose(0, 2, 1) @ r.conj()
            triple[part] = both.reshape(-1, d, d, d)
        return (self.weight @ self.rr).reshape(n, -1), mixed, triple

    def moments(self, C: Floats) -> tuple[Floats, Floats, Floats]:
        """E[u u^T] : (d, d), E[u x^T] and E[x x^T] : (K, d, d) of one agent, for noises of covariance C : (K, d, d)."""
        (n, d), k, i, j = self.f.shape, self.gain, self.i, self.j
        E, J, beta = self.E, self.J, self.beta
        noise = J @ C @ J.conj().transpose(0, 2, 1)
        half = np.where(i == j, 0.5, 1.0) * noise[:, i, j] * (self.share * self.own_weight)[:, None]
        outer = E[:, :, i].transpose(0, 2, 1)[:, :, :, None] * E.conj()[:, :, j].transpose(0, 2, 1)[:, :, None, :]
        S = (self.rr @ (half[..., None, None] * outer).reshape(-1, d * d)).reshape(-1, d, d)
        S = self.K_inverse @ (S + S.conj().transpose(0, 2, 1)) @ self.K_inverse.conj().transpose(0, 2, 1)
        S *= self.weight[:, None, None]  # of u, at each node
        U = 2 * S.sum(0).real
        alone, mixed, triple = self._from_noise
        common = (self.rr.T @ S.reshape(-1, d * d)).reshape(n, -1, d, d)
        through = np.einsum("csp,cspq,csq->cs", J[:, i], common, J.conj()[:, j], optimize=True)
        Y = np.zeros((n, d, d), np.complex128)
        Y[:, i, j] = beta[:, i] * beta.conj()[:, j] * through + k**2 * alone * noise[:, i, j]
        strict = i != j
        Y[:, j[strict], i[strict]] = Y[:, i[strict], j[strict]].conj()
        crossed = k * self.own_weight[:, None, None] * np.einsum("cilj,clj->cij", triple, noise, optimize=True)
        Y -= crossed + crossed.conj().transpose(0, 2, 1)
        sight = (self.r.conj().reshape(len(S), -1).T @ S.reshape(-1, d * d)).reshape(n, d, d, d)  # (K, j, p, q)
        uy = np.einsum("cjpq,cjq->cpj", sight, J.conj(), optimize=True) * beta.conj()[:, None, :]
        uy -= k * self.own_weight[:, None, None] * np.einsum("cplj,clj->cpj", mixed, noise, optimize=True)
        turned = E.conj().transpose(0, 2, 1)
        X = 2 * (uy @ turned).real
        V = 2 * (E @ Y @ turned).real
        V = V + k * (X + X.transpose(0, 2, 1)) + k**2 * U
        return U, X + k * U, V

    def noise(self, U: Floats, X: Floats, V: Floats, constant: float) -> Floats:
        """The covariances of the noises of a round from such moments : (K, d, d)."""
        n, d = self.f.shape
        w = np.zeros((n, 2 * d + 1, 2 * d + 1))
        w[:, :d, :d], w[:, d : 2 * d, d : 2 * d], w[:, :d, d : 2 * d] = U, V, X
        w[:, -1, -1] = constant
        return smat((self.step.noise @ svec(w)[..., None])[..., 0], d)

    def feedback(self) -> float:
        """The factor by which noise makes more noise: below one, second moments converge; infinite if the mean grows.

        The map takes positive matrices to positive ones, so the space of a positive one holds its largest eigenvalue.
        """
        n, d = self.f.shape
        if self.outside > 0:
            return np.inf

        def again(c: Floats) -> Floats:
            return svec(self.noise(*self.moments(smat(c.reshape(n, -1), d)), 0.0)).ravel()

        space, last = Krylov(again, np.tile(svec(np.eye(d)), n)), 0.0
        while True:
            space.grow(space.size + 4)
            largest = float(np.abs(np.linalg.eigvals(space.h)).max())
            if abs(largest - last) <= STEADY * largest or space.closed or space.size >= 40:
                return largest
            last = largest

    def limit(self, tolerance: float = 1e-11) -> Floats | None:
        """E[u u^T] : (d, d) in the limit; None where second moments do not converge."""
        n, d = self.f.shape
        if self.outside > 0:
            return None
        begin = self.noise(np.zeros((d, d)), np.zeros((n, d, d)), np.zeros((n, d, d)), 1.0)

        def rest(c: Floats) -> Floats:
            C = smat(c.reshape(n, -1), d)
            return c.ravel() - svec(self.noise(*self.moments(C), 0.0)).ravel()

        size = n * d * (d + 1) // 2
        map_ = LinearOperator((size, size), matvec=rest, dtype=np.float64)
        found, failed = gmres(map_, svec(begin).ravel(), rtol=tolerance, atol=0.0, restart=40, maxiter=3)
        C = smat(found.reshape(n, -1), d)
        if failed or np.linalg.eigvalsh(C).min() < -1e-9 * np.abs(C).max():  # a limit of covariances is positive
            return None
        return self.moments(C)[0]


def radius(step: Round) -> float:
    """The mean-square radius of a round of fixed length: where damping its square root leaves noise just undying.

    It is a little above the square of the radius of the mean, where 1 / feedback starts from 0 almost linearly.
    """
    here = Spectrum(step)
    low, high = 0.0, 1.0
    while here.at(float(np.sqrt(high))).outside:
        low, high = high, 2 * high
    while high - low > PRECISE / 10 * max(abs(1 - high), 1e-9 * high):  # the mean alone
        middle = (low + high) / 2
        low, high = (middle, high) if here.at(float(np.sqrt(middle))).outside else (low, middle)
    mean, below = high, -1.0
    above = -1.0
    high = max(1.0, mean)
    while (above := 1 / here.at(float(np.sqrt(high))).feedback() - 1) < 0:
        low, below, high = high, above, 2 * high
    low = max(low, mean)
    while high - low > PRECISE * max(abs(1 - high), 1e-9 * high):
        guess = low - below * (high - low) / (above - below)
        at = float(np.clip(guess, low + 1e-3 * (high - low), high - 0.1 * (high - low)))
        value = 1 / here.at(float(np.sqrt(at))).feedback() - 1
        if value < 0:
            low, below = at, value
        else:
            high, above = at, value
            if value < PRECISE or at == low + 1e-3 * (high - low):
                break
    return high


def _nodes(order: int) -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights on (0, pi), on panels that double in width."""
    edges = [0.0, FINEST]
    while edges[-1] < np.pi:
        edges.append(min(2 * edges[-1], np.pi))
    x, w = np.polynomial.legendre.leggauss(order)
    low, high = np.array(edges[:-1])[:, None], np.array(edges[1:])[:, None]
    return ((low + high) / 2 + (high - low) / 2 * x).ravel(), ((high - low) / 2 * w).ravel()


def _outside(det: Complexes) -> int:
    """How many zeros more than poles a real function that tends to one has outside the circle: how often it winds.

    det : its values along the upper half, from z near 1 to z near -1; there and here it is real.
    """
    phase = np.angle(det[1:] / det[:-1]).sum() + np.angle(det[0] / det[0].real) - np.angle(det[-1] / det[-1].real)
    return -round(float(phase) / np.pi)
