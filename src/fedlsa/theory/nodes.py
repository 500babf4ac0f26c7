"""Curves in eigenbases (modes.py), at a cost that grows with the number of agents and not with that of their pairs.

As a function of j, Cov(y_i, y_j) is T_j times smooth functions of the second mode. So it is kept at r nodes, modes from
which all others are interpolated: 10 to 25, chosen and checked by trial functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.linalg import qr, solve_triangular

from ..checks import Floats
from . import tuning
from .linear import Index
from .modes import Complexes, ModalRound, adjoint
from .rounds import AgentRound


class Nodes(ModalRound):
    """Covariances as V : (K, d, d), those of each agent in its basis, and a : (n, e, r), those at nodes.

    The covariance of modes i and j of two agents is sum_ek a_iek (g_je c_jk)* and its counterpart. c : (n, r) is the
    interpolation from nodes, and g : (n, e) is T, and beside it y_0 where there is something that all agents see. Then
    means, too, carry what they are at the nodes : (e, r), so that y_j = sum_ek g_je c_jk mean_ek.
    """

    def __init__(self, step: AgentRound, u: Floats, x: Floats) -> None:
        super().__init__(step)
        self.first = super().start(u, x)
        first = (self.T @ self.first.reshape(self.K, self.d, 1)).reshape(self.n, 1)
        rows = self.T.reshape(self.n, self.d)
        self.g = np.concatenate([rows, first], axis=1) if step.random else rows
        self.e = self.g.shape[1]
        self.node, self.c_nodes, self.lost = self._choose()
        self.r = len(self.node)
        every, node = np.arange(self.n)[:, None], self.node[None]
        self.phi_nodes, self.psi_nodes = self.phi(every, node), self.psi(every, node)
        self.g_c = (self.g.conj()[:, :, None] * self.c_nodes[:, None, :]).reshape(self.n, self.e * self.r)
        self.rho_g_c = self.rho_modes @ self.g_c.conj()

    def _choose(self) -> tuple[Index, Complexes, float]:
        """Nodes, the interpolation from them, and its largest relative error on functions that did not choose them."""
        n = self.n
        some = self._spread(min(n, tuning.TRIAL_MODES))
        trial, other = self._trial(some[::2], 0), self._trial(some[1::2] if n > 1 else some, 1)
        if not (np.isfinite(trial).all() and np.isfinite(other).all()):  # of modes that grow
            return some[:1], np.ones((n, 1), np.complex128), np.inf
        if trial.shape[1] > 2 * tuning.MAX_NODES:  # random sums of them have the same span
            trial = trial @ np.random.default_rng(0).standard_normal((trial.shape[1], 2 * tuning.MAX_NODES))
        _, R, order = qr(trial.T, mode="economic", pivoting=True, check_finite=False)
        size = np.abs(np.diagonal(R))
        r = max(1, int((size > tuning.NODE_ROUNDING * size[0]).sum()))
        c = np.zeros((n, r), np.complex128)
        c[order] = np.concatenate([np.eye(r), solve_triangular(R[:r, :r], R[:r, r:])], axis=1).T
        return order[:r], c, float(np.abs(c @ other[order[:r]] - other).max())

    def _spread(self, number: int) -> Index:
        """Modes far from one another, the outliers among them first."""
        places = np.stack([self.f, self.zeta / np.abs(self.zeta).max()])
        some, far = [0], np.full(self.n, np.inf)
        while len(some) < number:
            far = np.minimum(far, np.abs(places - places[:, some[-1:]]).max(0))
            some.append(int(far.argmax()))
        return np.array(some)

    def _trial(self, some: Index, shift: int) -> Complexes:
        """Functions of the second mode that occur in a run, for some first ones : (n, ...), of a size of at most 1.

        What fades fades beside the rest of the covariance: powers keep their size. shift : of these, 0 or 1
        """
        i, j = some[None], np.arange(self.n)[:, None]
        phi = self.phi(j, i)
        functions, power = [phi**shift, 1 / (1 - phi)], phi
        for _ in range(tuning.TRIAL_DOUBLINGS):
            power = power * power
            functions.append(power * phi**shift)
        factors = [np.ones(self.n), self.b_factor, self.zeta]
        functions = [x / max(1.0, np.abs(x).max()) * (y / np.abs(y).max())[:, None] for x in functions for y in factors]
        if self.step.random:
            shared = self.psi(j, i)
            functions += [x * shared / np.abs(shared).max() for x in functions]
        return np.concatenate(functions, axis=1).conj()

    @property
    def b_factor(self) -> Complexes:
        return -self.k * self.zeta

    @property
    def good(self) -> bool:
        """Whether bases are, all functions of modes that were tried come from their nodes, and no agent grows alone."""
        growing = np.abs(self.agent_kernels[0]).max() > 1  # an agent with itself, which no pair is, would hide the rest
        return bool(super().good and self.lost <= tuning.NODE_ERROR and not growing)

    # --- means: where all agents see something, (y, mean_ek in real numbers) ----------------------------------------

    def start(self, u: Floats, x: Floats) -> Floats:
        y = super().start(u, x)
        if not self.step.random:
            return y
        at_nodes = np.zeros((self.e, self.r), np.complex128)
        at_nodes[-1] = 1
        return np.concatenate([y, at_nodes.ravel().view(np.float64)])

    def common(self, means: Floats) -> Floats:
        return np.asarray(self.rho @ means[: self.n])

    def mean(self, means: Floats) -> Floats:
        y = super().mean(means[: self.n])
        if not self.step.random:
            return y
        u, at = self.common(means), self._at_nodes(means[self.n :, None])[..., 0]
        at = self.f[self.node] * at
        at[: self.d] += self.b_factor[self.node] * u[:, None]
        return np.concatenate([y, at.ravel().view(np.float64)])

    def _at_nodes(self, rest: Floats) -> Complexes:
        """(e, r, columns)."""
        columns = np.ascontiguousarray(rest.T).view(np.complex128)
        return columns.T.reshape(self.e, self.r, -1)

    # --- covariances ------------------------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        return 2 * (self.K * self.d**2 + self.n * self.e * self.r)

    def halves(self, vector: Floats) -> tuple[Complexes, Complexes]:
        """V : (K, d, d) and a : (n, e, r)."""
        numbers = vector.view(np.complex128)
        cut = self.K * self.d**2
        return numbers[:cut].reshape(-1, self.d, self.d), numbers[cut:].reshape(self.n, self.e, self.r)

    def server(self, V: Complexes, a: Complexes) -> tuple[Complexes, Floats]:
        """Cov(u, y) in modes : (d, n), and Cov(u) : (d, d)."""
        flat = a.reshape(self.n, -1)
        uy = (self.rho_modes @ flat) @ self.g_c.T + adjoint(flat @ adjoint(self.rho_g_c))
        twins = a.reshape(self.K, self.d, -1) @ self.g_c.reshape(self.K, self.d, -1).swapaxes(1, 2)
        covariance = (V - twins - adjoint(twins)) / self.count  # an agent is not two
        uy += (self._rho_blocks @ covariance).transpose(1, 0, 2).reshape(self.d, self.n)
        U = (uy @ adjoint(self.rho_modes)).real
        return uy, (U + U.T) / 2

    @cached_property
    def _rho_blocks(self) -> Complexes:
        return self.rho_modes.reshape(self.d, self.K, self.d).transpose(1, 0, 2)

    def real(self, uy: Complexes) -> Floats:
        """Cov(u, y_k) : (K, d, d)."""
        return (uy.reshape(self.d, self.K, self.d).transpose(1, 0, 2) @ adjoint(self.V)).real

    def advance_with_covariances(self, vector: Floats) -> tuple[Floats, Floats]:
        V, a = self.halves(vector)
        V = (V + adjoint(V)) / 2
        uy, U = self.server(V, a)
        second = self._second(U, self.real(uy), self.from_modes(V))
        out = np.empty_like(vector)
        V_out, a_out = self.halves(out)
        np.multiply(self.phi_nodes[:, None], a, out=a_out)
        V_out[:] = self._source(U, uy, second, a_out) + (self.agent_kernels[0] + self.agent_kernels[2]) * V
        return out, self._covariances(second)

    def _source(self, U: Floats, uy: Complexes, second: Floats, a: Complexes) -> Complexes:
        """What a round adds that comes of u: to each agent's own covariance, and, in place, to a.

        second : of (u, x, 1), for the noise of local steps
        """
        d, (_, psi, more) = self.d, self.agent_kernels
        R = self.f[:, None] * adjoint(uy) + self.b @ (U / 2)
        a[:, :d] += R[:, :, None] * self.b_factor[self.node].conj()
        agents = self.blocks_of(R, self.b) + self.to_modes(self.noise(second))
        if self.step.random:
            Q = adjoint(uy) + self.c @ (U / 2)
            a[:, :d] += (self.psi_nodes * self.zeta[self.node].conj())[:, None] * Q[:, :, None]
            agents += (psi + more) * self.blocks_of(Q, self.c)
        return agents

    def force(self, means: Floats) -> Callable[..., Floats]:
        second, (y, u, _) = self._of_means(means[: self.n]), self.read(means[: self.n])
        q = (self.T @ y).reshape(self.n, -1) + self.c @ u
        halves, at = np.concatenate([q.real, q.imag]) / 2, np.zeros((0, 0), np.complex128)
        if self.step.random:
            of_nodes = self._at_nodes(means[self.n :]).conj()
            of_nodes[: self.d] += self.zeta[self.node, None].conj() * u[:, None]
            at = of_nodes.reshape(self.e * self.r, -1).T

        def force(s: Floats, S: Floats, constant: float = 1.0) -> Floats:
            out = np.zeros(self.length)
            V, a = self.halves(out)
            V[:] = self.to_modes(self.noise(second(s, S, constant)))
            if self.step.random:
                real, imaginary = np.split(halves @ S, 2)
                qS = real + 1j * imaginary
                a += self.psi_nodes[:, None] * (qS @ at).reshape(a.shape)
                V += (self.agent_kernels[1] + self.agent_kernels[2]) * self.blocks_of(qS, q)
            return out

        return force

    def second(self, vector: Floats) -> Floats:
        V, a = self.halves(vector)
        uy, U = self.server(V, a)
        return self._second(U, self.real(uy), self.from_modes(V))

    def fixed(self, S: Floats, V: Floats) -> Floats:
        """The vector of a limit, from Cov(u, y_k) : (K, d, d) and Cov(y_k)."""
        out = np.zeros(self.length)
        agents, a = self.halves(out)
        uy = (S @ adjoint(self.T)).transpose(1, 0, 2).reshape(self.d, self.n)
        U = (uy @ adjoint(self.rho_modes)).real
        self._source((U + U.T) / 2, uy, np.zeros((self.K, 2 * self.d + 1, 2 * self.d + 1)), a)
        a /= 1 - self.phi_nodes[:, None]
        agents[:] = self.to_modes(V)
        return out
