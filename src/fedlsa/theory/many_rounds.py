"""Curves of methods with control variates: round by round, or many rounds at once by Krylov spaces (krylov.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.stages import Geometric
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from . import krylov, tuning
from .joint import Joint
from .linear import at_rounds, traces
from .nodes import Nodes
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
    end = None if found is None else found.vector(form)
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
