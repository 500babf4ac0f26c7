"""The moments of joint.py in the eigenbases of the agents' mean matrices, at a cost that grows with their number.

All matrices that carry an agent through a round are functions of its A_c. So in eigenbases, with i and j modes (of two
different agents c and e) and the reduced coordinates y_c = x_c - chi u, u = -y_bar / chi,

    Cov(y_i+, y_j+) = phi_ij Cov(y_i, y_j) + R_i b_j* + b_i R_j* + psi_ij (Q_i c_j* + c_i Q_j*),
    f = 1 - gain kappa,   c = (chi - lambda) T,   b = -gain kappa c,   phi = f f* + psi,
    R = f Cov(y, u) + b U / 2,   Q = Cov(y, u) + c U / 2,   U = Cov(u),

T the rows of the inverse bases, kappa = (1 - (1 - eta lambda)^H) / lambda, or eta / (p + q eta lambda) in the mean over
geometric lengths, q = 1 - p. psi is what all agents see; that of a common length is

    gain^2 Cov_L(kappa_i, kappa_j) = s_i s_j* / (p + q (z_i + z_j* - z_i z_j*)),   z = eta lambda,
    s = gain eta (p q)^(1/2) (1 - z) / (p + q z).

In the limit Cov(y_i, y_j) is what is added to it over 1 - phi_ij: 1 / (1 - phi_ij) is a positive definite kernel of low
rank. So a pass over sums of it is linear in the number of agents, and GMRES finds the Cov(u, y_c) that a round leaves
as they are. Curves are in many_rounds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, gmres

from ..checks import Floats
from . import tuning
from .joint import Joint
from .linear import positive, smat, svec, symkron, triangle
from .noiseless import powers_of
from .rounds import AgentRound

Complexes = NDArray[np.complex128]


def adjoint(X: NDArray[Any]) -> Complexes:
    return X.conj().swapaxes(-1, -2)


class ModalRound(Joint):
    """A round in eigenbases, as limits and nodes share it. `good` says whether these are accurate enough."""

    def __init__(self, step: AgentRound) -> None:
        super().__init__(step)
        m, (K, d), p, eta = step.moments, step.shape, step.probability, step.stages.eta[:, None]
        self.same, self.pair = step.sampled
        with np.errstate(all="ignore"):
            value, basis = (x.astype(np.complex128)[m.table] for x in np.linalg.eig(m.A_bar))
            self.V, self.T = basis, np.linalg.inv(basis)
        lam = value.ravel()
        gain, chi = np.repeat(step.gain, d), step.coordinates.chi[0]
        if p is None:
            steps = step.stages.steps
            kappa = powers_of(value, eta, steps[:, None] if isinstance(steps, np.ndarray) else 1)[1].ravel()
            self._s = self._z = np.zeros(0, np.complex128)
        else:
            z, q = (eta * value).ravel(), 1 - p
            kappa = np.repeat(eta.ravel(), d) / (p + q * z)
            self._s, self._z = gain * kappa * np.sqrt(p * q) * (1 - z), z
        self.k = gain * kappa
        self.f = 1 - self.k
        rows = self.T.reshape(K * d, d)
        self.c = (chi - lam)[:, None] * rows
        self.b = -self.k[:, None] * self.c
        self.rho_modes = np.concatenate([r * B for r, B in zip(step.coordinates.rho[0], self.V, strict=True)], axis=1)
        self.zeta = chi - lam

    @cached_property
    def good(self) -> bool:
        """Whether bases are well conditioned, and F and Q are in them what they are without them."""
        with np.errstate(all="ignore"):
            if not np.linalg.cond(self.V).max() < tuning.MAX_EIGENVECTOR_CONDITION:
                return False
            moved = (self.V * self.k.reshape(self.K, 1, self.d)) @ self.T
            off = np.abs(moved - self.moved).max((1, 2))
            return bool((off <= tuning.MODES_RESIDUAL * np.abs(self.moved).max((1, 2))).all())

    def length_kernel(self, i: Any, j: Any) -> Complexes:
        """gain^2 Cov_L(kappa_i, kappa_j*) of modes i and j."""
        p, s, z = self.step.probability, self._s, self._z
        assert p is not None
        return np.asarray(s[i] * s[j].conj() / (p + (1 - p) * (z[i] + z[j].conj() - z[i] * z[j].conj())))

    def psi(self, i: Any, j: Any) -> Any:
        """What all see of the modes i and j of two agents."""
        seen: Any = (1 + self.pair) * self.length_kernel(i, j) if self.step.probability is not None else 0.0
        return seen + self.pair * self.k[i] * self.k[j].conj() if self.pair else seen

    def phi(self, i: Any, j: Any) -> Complexes:
        """The factor by which their covariance goes on."""
        return np.asarray(self.f[i] * self.f[j].conj() + self.psi(i, j))

    @cached_property
    def agent_kernels(self) -> tuple[Complexes, Any, Any]:
        """phi and psi of the modes of one agent as if they were those of two : (K, d, d), and what is more of psi."""
        at = np.arange(self.n).reshape(self.K, self.d)
        i, j = at[:, :, None], at[:, None, :]
        more: Any = 0.0
        if self.same:
            more = (self.same - self.pair) * self.k[i] * self.k[j].conj()
            if self.step.probability is not None:
                more = more + (self.same - self.pair) * self.length_kernel(i, j)
        return self.phi(i, j), self.psi(i, j), more

    @cached_property
    def agent_map(self) -> Floats:
        """(K, s, s): what a round makes of svec of an agent's own covariance, without u."""
        step, d, gain = self.step, self.d, self.step.gain[:, None, None]
        i, j = triangle(2 * d + 1)
        found = symkron(self.F) + gain**2 * step.noise[:, :, (i >= d) & (j < 2 * d)]
        if step.random:
            source, same = step.length_source
            found += np.linalg.solve(same, symkron(gain * source))
        return found

    def to_modes(self, X: Floats) -> Complexes:
        """Covariances of each agent in its basis : (K, d, d)."""
        return self.T @ X @ adjoint(self.T)

    def from_modes(self, X: Complexes) -> Floats:
        """The inverse."""
        return (self.V @ X @ adjoint(self.V)).real

    def blocks_of(self, A: Complexes, B: Complexes) -> Complexes:
        """A_k B_k^H + B_k A_k^H of each agent; A, B : (n, e)."""
        found = A.reshape(self.K, self.d, -1) @ adjoint(B.reshape(self.K, self.d, -1))
        return found + adjoint(found)


def factor(kernel: Callable[[Any, Any], Complexes], n: int) -> Complexes:
    """L : (n, r) with L L^H the positive definite kernel(i, j) of n modes, to rounding; by pivoted Cholesky."""
    every = np.arange(n)
    left = kernel(every, every).real.copy()
    if not left.min() > 0:
        return np.zeros((n, 0), np.complex128)
    first, L = left.max(), np.zeros((n, min(n, tuning.MAX_KERNEL_RANK)), np.complex128)
    for r in range(L.shape[1]):
        p = int(left.argmax())
        if not left[p] > tuning.KERNEL_ROUNDING * first:
            return L[:, :r].copy()
        L[:, r] = (kernel(every, p) - L[:, :r] @ L[p, :r].conj()) / np.sqrt(left[p])
        left -= np.abs(L[:, r]) ** 2
        left[p] = 0
    return L if L.shape[1] == n else np.zeros((n, 0), np.complex128)


class Limit(ModalRound):
    """The fixed point of a round in which all agents take part, as a linear equation for S_k = Cov(u, y_k) alone.

    rate : by which the round is divided
    """

    def __init__(self, step: AgentRound, rate: float = 1.0) -> None:
        super().__init__(step)
        self.rate, self.r = rate, step.coordinates.rho[0]
        self.agent_inverse = 1 / (rate - self.agent_kernels[0])
        self.kernels = [(factor(lambda i, j: 1 / (rate - self.phi(i, j)), self.n), self.f, self.b)]
        if step.random:
            shared = factor(lambda i, j: self.psi(i, j) / (rate - self.phi(i, j)), self.n)
            self.kernels.append((shared, np.ones(self.n, np.complex128), self.c))

    @cached_property
    def good(self) -> bool:
        return bool(super().good and not self.same and all(L.shape[1] for L, _, _ in self.kernels))

    @cached_property
    def _solve_agent(self) -> Floats:
        """(K, s, s): what a round adds to it, to the covariance itself."""
        return np.asarray(np.linalg.inv(self.rate * np.eye(self.agent_map.shape[1]) - self.agent_map), np.float64)

    @cached_property
    def _sums(self) -> list[tuple[Complexes, Complexes]]:
        """Of each kernel, what sums over the modes i of all agents of rho_i L_i L_j* R_i b_j* need."""
        found = []
        for L, _, b in self.kernels:
            rho_L = (self.rho_modes[:, None, :] * L.T[None]).reshape(-1, self.n)
            b_L = (L.conj()[:, :, None] * b.conj()[:, None, :]).reshape(self.n, -1)
            found.append((rho_L, np.ascontiguousarray(b_L.T)))
        return found

    @cached_property
    def _maps(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Matrices of each agent, of S_k and of U as vectors of d^2 numbers.

        Two of what they add to its own covariance in a round : (K, s, d^2), in svec; two of all that they add to S_k
        but for the sums above; one of S_k to itself if all agents were the average of these : (d^2, d^2).
        """
        K, d, step, chi, r = self.K, self.d, self.step, self.step.coordinates.chi[0], self.r.sum()
        at = (self.V[:, :, None, :] * self.T.swapaxes(1, 2)[:, None]).reshape(K, d * d, d)

        def matrices(X: Complexes) -> Floats:
            """Of sum_j X_j (T S)_j* V_j*; X : (K, d^2, d). It is real, since modes come in pairs."""
            first, second = (np.ascontiguousarray(x).view(np.float64) for x in (X, at))
            found = (first @ second.swapaxes(1, 2)).reshape(K, d, d, d, d)
            return np.asarray(found.swapaxes(2, 3).reshape(K, d * d, d * d))

        f, b, zeta = (x.reshape(K, d, 1) for x in (self.f, -self.k * self.zeta, self.zeta))
        by_S, by_U = b * adjoint(f), b * adjoint(b)  # entry by entry of T S T^H and T U T^H
        if step.random:
            by_S, by_U = by_S + self.agent_kernels[1] * zeta, by_U + self.agent_kernels[1] * zeta * adjoint(zeta)
        of_S, of_U = matrices(at @ by_S), matrices(at @ by_U)
        pair_S, pair_U = (matrices(at @ (self.agent_inverse * by)) for by in (by_S, by_U))
        transposed = np.arange(d * d).reshape(d, d).T.ravel()
        of_S, pair_S = of_S + of_S[:, transposed], pair_S + pair_S[:, transposed]
        where, (i, j) = smat(np.arange(step.noise.shape[2]), 2 * d + 1), triangle(d)
        blocks = where[:d, :d], where[:d, d:-1], where[d:-1, d:-1]
        uu, ux, xx = (step.gain[:, None, None] ** 2 * step.noise[:, :, block.ravel()] for block in blocks)
        once = (1 + np.eye(d).ravel()) / 2  # of two entries off the diagonal
        of_S = of_S[:, i * d + j] + ux + 2 * chi * once * xx
        of_U = of_U[:, i * d + j] + once * (uu + chi**2 * xx) + chi * ux
        square, share = smat(np.arange(len(i)), d).ravel(), self.r[:, None, None] / self.count
        S_of_S = share * ((self._solve_agent @ of_S)[:, square] - pair_S)  # an agent is not two
        S_of_U = share * ((self._solve_agent @ of_U)[:, square] - pair_U)
        total = step.moments.count * step.moments.weight
        average, by_u = (np.tensordot(total, x, 1) for x in (r * pair_S + S_of_S, r * pair_U + S_of_U))
        average += r / 2 * (by_u + by_u[:, transposed])
        for (L, h, b_rows), (rho_L, _) in zip(self.kernels, self._sums, strict=True):
            crossed = (rho_L @ b_rows).reshape(d, -1, d).swapaxes(1, 2).reshape(d * d, -1) @ adjoint(L)
            crossed = crossed.reshape(d * d, K, d).swapaxes(0, 1)
            S_of_S += matrices(crossed * adjoint(h.reshape(K, d, 1)))
            S_of_U += matrices(crossed * adjoint(b if h is self.f else zeta) / 2)
        return of_S, of_U, S_of_S, S_of_U, average

    def _server(self, S: Floats) -> Floats:
        """U of S."""
        U = np.tensordot(self.r, S, 1)
        return np.asarray((U + U.T) / 2, np.float64)

    def again(self, S: Floats) -> Floats:
        """The S that belongs to a given one, without noise : (K, d, d)."""
        K, d, U = self.K, self.d, self._server(S)
        _, _, S_of_S, S_of_U, _ = self._maps
        out = np.zeros((d, self.n), np.complex128)
        for (_, R, _), (rho_L, b_L) in zip(self._terms(S, U), self._sums, strict=True):
            out += (rho_L @ R).reshape(d, -1) @ b_L
        agents = S_of_S @ S.reshape(K, d * d, 1) + (S_of_U @ U.ravel())[..., None]
        return np.asarray((out.reshape(d, K, d).swapaxes(0, 1) @ adjoint(self.V)).real + agents.reshape(K, d, d))

    def solve(self, noise: Floats, goal: float) -> tuple[Floats, Floats, Floats, float]:
        """S, U and V : (K, d, d) of the fixed point, and its estimated error, which ought to be below `goal`.

        noise : (K, d, d), what a round adds to each agent. The error is what the residual amounts to if agents are like
        their average, relative to S, and ten times that. GMRES is told of what agents have in common by the same
        equation for their average, and of what they do not by that of each alone.
        """
        K, d = self.K, self.d
        of_S, of_U, S_of_S, _, average = self._maps
        total, one = self.step.moments.count * self.step.moments.weight, np.eye(d * d)
        same, together = np.linalg.inv(one - S_of_S), np.linalg.inv(one - average)

        def correct(v: Floats) -> Floats:
            v = v.reshape(K, d * d)
            mean = total @ v
            return np.asarray((same @ (v - mean)[..., None])[..., 0] + together @ mean).reshape(K, d, d)

        def rest(v: Floats) -> Floats:
            S = correct(v)
            return (S - self.again(S)).ravel()

        map_ = LinearOperator((K * d * d,) * 2, matvec=rest, dtype=np.float64)
        by_noise = self.r[:, None, None] / self.count * smat((self._solve_agent @ svec(noise)[..., None])[..., 0], d)
        S, left, error, reduction = np.zeros((K, d, d)), by_noise, 0.0, goal / 1e4
        for _ in range(tuning.GMRES_REFINEMENTS if noise.any() else 0):
            reduction = max(tuning.GMRES_REDUCTION, reduction)
            change = gmres(map_, left.ravel(), rtol=reduction, atol=0.0, restart=tuning.GMRES_PASSES, maxiter=1)[0]
            S = S + correct(change)
            left = self.again(S) + by_noise - S
            error = 10 * float(np.linalg.norm(correct(left)) / np.linalg.norm(S))
            if error < goal or not np.isfinite(error):
                break
            reduction = goal / (10 * error)
        U = self._server(S)
        added = of_S @ S.reshape(K, d * d, 1) + (of_U @ U.ravel() + svec(noise))[..., None]
        return S, U, smat((self._solve_agent @ added)[..., 0], d), error

    def definite(self, S: Floats, U: Floats, V: Floats) -> bool | None:
        """Whether the covariances of all agents together are positive definite; None where rounding hides it."""
        agents = np.linalg.eigvalsh(V)
        if (agents[:, 0] < -tuning.SOLUTION_ERROR * np.abs(agents[:, -1])).any():
            return False
        if self.n > tuning.DENSE_MODES:
            return self._by_inertia(self._terms(S, U), V)
        Y, deviations = self.parts(self.written(S, U, V))
        return positive(Y, *deviations[self.step.moments.count > 1])

    def _terms(self, S: Floats, U: Floats) -> list[tuple[Complexes, Complexes, Complexes]]:
        """L, R and b of each kernel."""
        yu = adjoint((S @ adjoint(self.T)).transpose(1, 0, 2).reshape(self.d, self.n))
        return [(L, h[:, None] * yu + b @ (U / 2), b) for L, h, b in self.kernels]

    def written(self, S: Floats, U: Floats, V: Floats) -> Floats:
        """The fixed point as a vector of joint.py, all pairs of agents written out."""
        out, every = np.zeros(self.length), np.arange(self.n)
        Y, agents = self.parts(out)
        W = np.zeros((self.n, self.n), np.complex128)
        for i, (_, R, b) in enumerate(self._terms(S, U)):
            found = R @ adjoint(b)
            W += (found + adjoint(found)) * (self.psi(every[:, None], every) if i else 1.0)
        W /= self.rate - self.phi(every[:, None], every)
        Y[:] = self._left(self.V, self._left(self.V, W).conj().T).real
        agents[:] = V - self.diagonal(Y)  # an agent is not two
        Y[self.blocks] += agents / self.count
        agents *= 1 - 1 / self.count
        return out

    def _by_inertia(self, terms: list[tuple[Complexes, Complexes, Complexes]], V: Floats) -> bool | None:
        """The same without all pairs of agents.

        The covariances are G J G^H beside blocks D_k / count_k, D_k = V_k - W_kk: G = (L R, L b) for all columns of
        both, and J swaps the two. If all D_k are positive definite, the whole is so where J + G^H (count D^-1) G has as
        many negative eigenvalues as J.
        """
        left, right = [], []
        for L, R, b in terms:
            L = L[:, np.linalg.norm(L, axis=0) > tuning.INERTIA_SHARE * np.linalg.norm(L)]
            left.append((L[:, :, None] * R[:, None, :]).reshape(self.n, -1))
            right.append((L[:, :, None] * b[:, None, :]).reshape(self.n, -1))
        R, b = np.concatenate(left, axis=1), np.concatenate(right, axis=1)
        try:
            root = np.linalg.cholesky(self.to_modes(V) - self.blocks_of(R, b))
        except np.linalg.LinAlgError:
            return False
        many = np.sqrt(self.count)
        R, b = ((many * np.linalg.solve(root, X.reshape(self.K, self.d, -1))).reshape(self.n, -1) for X in (R, b))
        size = np.sqrt(np.linalg.norm(R, axis=0) / np.maximum(np.linalg.norm(b, axis=0), 1e-300)) + 1e-300
        G, one = np.concatenate([R / size, b * size], axis=1), np.eye(R.shape[1])
        E = adjoint(G) @ G
        scale = 1 / np.sqrt(1 + np.diagonal(E).real)
        E += np.block([[0 * one, one], [one, 0 * one]])
        values = np.linalg.eigvalsh(scale[:, None] * E * scale)
        if not np.abs(values).min() > tuning.INERTIA_ROUNDING * np.abs(values).max():
            return None
        return bool((values < 0).sum() == len(one))
