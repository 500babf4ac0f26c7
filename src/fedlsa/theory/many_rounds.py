"""Curves of methods with control variates: round by round, or many rounds at once by Krylov spaces (krylov.py).

A round is on the covariances of all agents (joint.py), or, where there are many, in eigenbases (modes.py), at a cost
that grows with the number of agents and not with that of their pairs: as a function of j, Cov(y_i, y_j) is T_j times
smooth functions of the second mode. So it is kept at r nodes, modes from which all others are interpolated: 10 to 25,
chosen and checked by trial functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular

from ..algorithms.stages import Geometric
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from . import krylov, tuning
from .joint import Joint
from .linear import Index, at_rounds, traces
from .modes import Complexes, ModalRound, adjoint
from .noiseless import NoiselessMap, local_powers
from .rounds import AgentRound, Groups, GroupStages, ServerRound, agent_round, server_round
from .stationarity import ROUTES, limit

AgentsMap = Joint | NoiselessMap
RoundMap = ServerRound | AgentsMap


def round_map(groups: Groups, stages: GroupStages, u: Floats, steady: bool = True) -> RoundMap:
    """What a round does to moments, from u : (d,); steady : whether the next rounds have the same step size."""
    m, x = groups.moments, groups.x
    if not stages.controlled:
        return server_round(m, stages, x)
    if stages.noiseless(m):
        assert not isinstance(stages.steps, Geometric)
        return NoiselessMap(local_powers(m), float(stages.eta[0]), int(stages.steps[0]))
    step = agent_round(m, stages, steady)
    return moment_map(step, u, x) if steady else Joint(step)


def moment_map(step: AgentRound, u: Floats, x: Floats) -> Joint:
    """A round on covariances, from u and x : (K, d): at nodes where modes are many and good, else on all of them."""
    if step.finite and step.reduced and step.shape[0] * step.shape[1] > tuning.JOINT_MODES:
        nodes = Nodes(step, u, x)
        if nodes.good:
            return nodes
    return Joint(step)


def agents_curve(
    map_at: Callable[[int], Any], u: Floats, x: Floats, rounds: NDArray[np.int64], steady: bool = True
) -> tuple[tuple[Floats, Floats, Floats], str]:
    """E[u] : (R, d), svec Cov(u) : (R, s) and sum_c w_c E||x_c||^2 : (R,) with control variates, and the way to them.

    Of noiseless rounds Cov(u), which is 0, has one entry.
    """
    first, found = map_at(0), None
    if steady and isinstance(first, Joint) and rounds[-1] > tuning.KRYLOV_FROM:
        found = krylov_curve(first, u, x, rounds)
    values = one_by_one(map_at, u, x, rounds) if found is None else found
    route = "round by round" if found is None else "Krylov spaces"
    return (values[:, : len(u)], values[:, len(u) : -1], values[:, -1]), route


def shown(form: AgentsMap, means: Floats, vector: Floats) -> Floats:
    """E[u], svec Cov(u) and sum_c w_c E||x_c||^2 : (d + s + 1,)."""
    _, u, x = form.read(means)
    found = np.concatenate([u, form.covariances(vector)])
    found[-1] += form.share @ np.sum(x**2, axis=1)
    return found


def one_by_one(form_at: Callable[[int], Any], u: Floats, x: Floats, rounds: NDArray[np.int64]) -> Floats:
    """What is `shown` at the given rounds : (R, d + s + 1), from known u : (d,) and x : (K, d).

    form_at(t) : what round t does, a form; the same object where nothing changes.
    """
    states = _each_round(form_at, form_at(0).start(u, x), int(rounds[-1]))
    return at_rounds(states, rounds, lambda state: (shown(*state),))[0]


def _each_round(
    form_at: Callable[[int], Any], means: Floats, last: int, least: float = -1.0
) -> Iterator[tuple[AgentsMap, Floats, Floats]]:
    """Forms, means and covariances after 0, 1, 2, ... rounds; without covariances where `least` is above 0.

    Ends where means have overflowed, or are all at most `least`.
    """
    form, known = form_at(0), (np.ones(1), np.ones((1, 1)))
    vector, finite = np.zeros(form.length), form.length > 0 and least < 0
    for t in count():
        yield form, means, vector
        finite = finite and bool(np.isfinite(vector).all())  # second moments overflow first
        if not (finite or least < np.abs(means).max() < np.inf):
            return
        if finite and t * max(vector.size, tuning.ROUND_OVERHEAD) > tuning.MAX_ROUND_WORK:
            most = f"at most {t} where only single rounds are accurate"
            raise ArgumentError(f"rounds must be {most}; got {last}")
        before, form = form, form_at(t)
        if finite:
            vector = form.advance(vector) + form.force(means[:, None])(*known)
        means = form.mean(means if form is before else form.taken_over(before, means))


def drifted_means(form_at: Callable[[int], Any], x: Floats, rounds: NDArray[np.int64], steady: bool) -> Floats:
    """E[u] : (R, d) at the given rounds of a run from theta_star, u = 0, and x : (K, d); steady : all rounds alike."""
    first = form_at(0)
    start = first.start(np.zeros(x.shape[1]), x)
    if steady:
        found = krylov.powers(
            lambda left: (lambda v: (first.mean(v), first.read(v)[1]), start if left is None else left),
            lambda u: float(tuning.MEANS_ACCURACY * np.linalg.norm(u) / first.u_norm),
            rounds,
        )
        if found is not None:
            return found

    states = _each_round(form_at, start, int(rounds[-1]), tuning.VANISHED * np.abs(start).max())
    return at_rounds(states, rounds, lambda state: (state[0].read(state[1])[1],))[0]


# --- many rounds at once ----------------------------------------------------------------------------------------------


def krylov_curve(form: Joint, u: Floats, x: Floats, rounds: NDArray[np.int64]) -> Floats | None:
    """The same, at a cost that hardly depends on how many rounds they are; None where it is not known to be accurate.

    Covariances, measured from their limit, and squares of means stand in one vector. Covariances are divided by their
    size, so that they are as accurate as the squares, however small the noise is. As long as they are a small part of
    their limit, rounds are computed one by one, as many as are cheap.
    """
    step, n, d = form.step, form.length, form.d
    try:
        routes = ROUTES if step.reduced else ROUTES[1:]  # that leave a vector of these coordinates
        found = limit(step, routes) if step.finite and krylov.dimensions(n) else None
    except PrecisionError:
        return None
    if isinstance(form, Nodes):
        end = form.fixed(*found.known[1:]) if found and found.known and found.route == "modes" else None
    else:
        end = found.vector() if found else None
    if found is None or end is None or found.error > tuning.LIMIT_ERROR:
        return None
    means, vector, at, early = form.start(u, x), np.zeros(n), 0, list[Floats]()
    end_values, one = np.concatenate([np.zeros(d), form.covariances(end)]), (np.ones(1), np.ones((1, 1)))
    enough = tuning.NEAR_LIMIT * traces(end_values[d:-1])
    while at < tuning.KRYLOV_FROM and traces(form.covariances(vector)[:-1]) < enough:
        early += [shown(form, means, vector)] * int((rounds == at).sum())
        vector, means, at = form.advance(vector) + form.force(means[:, None])(*one), form.mean(means), at + 1
    distance, later = vector - end, form.advance(vector) + form.force(means[:, None])(*one)
    noise = max(float(np.linalg.norm(v)) for v in (end, vector, later))
    square = float(means @ means)
    size = noise / max(float(np.hypot(square, np.sqrt(square))), 1e-100) or 1.0  # of which squares are numbers
    space = MeanSpace(form, means, krylov.dimensions(n))
    force = form.force(space.basis)

    def begin(left: Floats | None) -> tuple[krylov.Observed, Floats]:
        nonlocal space, force
        if left is None:
            return apply, space.with_covariances(distance / size)
        space = MeanSpace(form, space.mean(left[n:]), krylov.dimensions(n))
        force = form.force(space.basis)
        return apply, space.with_covariances(left[:n])

    def apply(v: Floats) -> tuple[Floats, Floats]:
        (s, S), (mean, spread) = space.parts(v[n:]), space.mean_and_spread(v[n:])
        out, shown = form.advance_with_covariances(v[:n])
        out += force(s, S, 0.0) / size
        shown *= size
        shown[-1] += spread
        return np.concatenate([out, space.carry(v[n:])]), np.concatenate([mean, shown])

    norms = _norms(form, size)

    def allowed(value: Floats) -> float:
        variance, spread = (abs(traces(end_values[i])) + abs(traces(value[i])) for i in (np.s_[d:-1], np.s_[-1:]))
        scale = np.full(len(value), variance)
        scale[:d], scale[-1] = np.sqrt(variance + value[:d] @ value[:d]), spread
        return tuning.CURVE_ACCURACY * float(np.min(scale[norms > 0] / norms[norms > 0]))

    values = krylov.powers(begin, allowed, rounds[rounds >= at] - at)
    if values is None:
        return None
    return np.concatenate([np.array(early).reshape(-1, len(end_values)), end_values + values])


class MeanSpace:
    """E[(y, z)] = Q s and its square Q S Q^T, S = s s^T, in the Krylov space Q of a mean under its map.

    As many rounds as the space has dimensions are exact. (s, S) has r + r^2 numbers, far fewer than the square itself.
    Dimensions in which no round leaves more than rounding are left out.
    """

    def __init__(self, form: Joint, means: Floats, rounds: int) -> None:
        self.form = form
        space = krylov.Krylov(form.mean, means)
        space.grow(rounds)
        r, self.length = space.size + (not space.closed), space.length
        self.H, basis = np.zeros((r, r)), np.zeros((r, len(means)))
        self.H[: space.size, : space.size], basis[: space.size] = space.h, space.basis
        if not space.closed:
            self.H[-1, -2], basis[-1] = space.rest
        r = _occupied(self.H)
        self.H, self.basis = self.H[:r, :r].copy(), np.ascontiguousarray(basis[:r].T)
        _, self.u, x = form.read(self.basis)
        weighted = (form.share[:, None, None] * x).reshape(form.n, r)
        self.spread = weighted.T @ x.reshape(form.n, r)

    def with_covariances(self, C: Floats) -> Floats:
        """A vector of covariances and these means, where they begin."""
        r = len(self.H)
        start = np.zeros(r + r * r)
        if r:
            start[0], start[r] = self.length, self.length**2
        return np.append(C, start)

    def parts(self, v: Floats) -> tuple[Floats, Floats]:
        """s : (r,) and S : (r, r)."""
        r = len(self.H)
        return v[:r], v[r:].reshape(r, r)

    def mean(self, v: Floats) -> Floats:
        """E[(y, z)]."""
        return self.basis @ self.parts(v)[0]

    def carry(self, v: Floats) -> Floats:
        """A round later."""
        s, S = self.parts(v)
        return np.append(self.H @ s, self.H @ S @ self.H.T)

    def mean_and_spread(self, v: Floats) -> tuple[Floats, float]:
        """E[u] : (d,) and sum_c w_c ||x_c||^2."""
        s, S = self.parts(v)
        return self.u @ s, float(np.sum(S * self.spread))


def _occupied(H: Floats) -> int:
    """How many leading entries of e_1, H e_1, H^2 e_1, ... are ever more than rounding of the whole, in any round."""
    s = np.eye(len(H))[:1].sum(0)
    largest, power = s.copy(), H
    for t in range(len(H) + tuning.DOUBLED_ROUNDS):
        if t >= len(H):  # one by one at first, then each time twice as far
            power = power @ power
        s = power @ s
        if not (np.isfinite(s).all() and s.any()):
            break
        s /= np.abs(s).max()
        largest = np.maximum(largest, np.abs(s))
    return int(np.max(np.flatnonzero(largest > tuning.VANISHED_MEAN), initial=-1)) + 1


def _norms(form: Joint, size: float) -> Floats:
    """(d + s + 1,): of the linear functions seen of the long vector: of means, and, estimated, of covariances."""
    rng, k = np.random.default_rng(0), tuning.NORM_PROBES
    probes = np.array([form.covariances(rng.standard_normal(form.length)) for _ in range(k)])
    of_covariances = 2 * np.sqrt(np.mean(probes**2, axis=0))  # which are right to a third
    of_covariances *= np.append(np.full(probes.shape[1] - 1, size), np.hypot(size, 1))
    return np.append(np.full(form.d, form.u_norm), of_covariances)


# --- at nodes ---------------------------------------------------------------------------------------------------------


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
