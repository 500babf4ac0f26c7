"""A round of any method, from the stages that it declares (algorithms/stages.py): what it does to groups of agents.

Coordinates are centred: u = theta - theta_star, x_c = xi_c - xi_star_c. Agent c ends its local steps at u + delta_c:

    delta_c = kappa_c q_c + noise,   q_c = x_c - A_c u,   kappa_c = eta sum_{h < H} (I - eta A_c)^h.

With S the m of N agents that take part, the server and the control variates go on by

    u+ = u + Delta,   Delta = (N / m) sum_{c in S} w_c delta_c,
    x_c+ = x_c - gain_c 1{c in S} delta_c + sum_{e in S} w_e gain_e delta_e,

and a server with memory by memory+ = server memory + change Delta, memory = (u, v, ...). Without control variates
(gain 0, FedLSA) agents have no state, and a round is a map of the server's memory alone: `ServerRound`. With them it
is an `AgentRound`, in coordinates in which nothing is conserved; joint.py, modes.py, many_rounds.py make moments of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..algorithms import Algorithm
from ..algorithms.stages import Geometric, Linear, Local, Private, Sample, Shared
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from . import noiseless, tuning
from .linear import (
    Index,
    Squares,
    at_rounds,
    averaged_states,
    check_accuracy,
    contracts,
    diagonal,
    powers_on,
    refined,
    smat,
    squares,
    svec,
    symkron,
    triangle,
    within,
)
from .local_steps import FrozenSteps, Kinds, LocalSteps, one_less, over, random_steps, shared_length
from .problem_moments import Moments, moments

# --- groups of identical agents, and what their stages say ------------------------------------------------------------


class Groups(NamedTuple):
    """K groups of agents that have one table, weight, control variate and settings.

    x : (K, d), xi_0 - xi_star; agent : (K,), one of each group; problem : known where each agent is a group
    """

    moments: Moments
    x: Floats
    agent: Index
    problem: Problem | None = None


def groups_of(problem: Problem | Moments, algorithm: Algorithm, xi_0: ArrayLike | None = None) -> Groups:
    """The groups of a run. Moments know no agents, so that those of a group are alike in everything else too."""
    m = moments(problem)
    known, N = isinstance(problem, Moments), m.n_agents
    factors = algorithm.agent_factors(N)
    if known and (factors is not None or xi_0 is not None):
        name = "xi_0" if xi_0 is not None else f"agent_factors of {type(algorithm).__name__}"
        raise ArgumentError(f"{name} must be None where only moments are given: agents have no numbers; got an array")
    if isinstance(problem, Moments) or (xi_0 is None and factors is None):
        return Groups(m, -m.xi_star[m.table], np.zeros(len(m.table), np.intp))
    xi = np.zeros((N, m.dim)) if xi_0 is None else checks.array("xi_0", xi_0, (N, m.dim))
    if np.abs(problem.weights @ xi).max() > 1e-8 * max(1.0, float(np.abs(xi).max())):
        raise ArgumentError("xi_0 must have a weighted sum of 0 over agents; got another one")
    _, table = np.unique(problem.assignment, return_inverse=True)
    rows = np.column_stack([table, problem.weights, xi, *(factors or ())])
    groups, agent, number = np.unique(rows, axis=0, return_index=True, return_counts=True)
    split = replace(m, table=groups[:, 0].astype(np.int64), weight=groups[:, 1], count=number.astype(np.int64))
    return Groups(split, groups[:, 2 : 2 + m.dim] - m.xi_star[split.table], agent)


@dataclass(frozen=True, eq=False)
class GroupStages:
    """What the stages of a round say of K groups of agents.

    eta, gain : (K,); steps : (K,), or the law of their number; server, change : as in `Linear`
    deviation : the standard deviation of what agents add to their uploads
    """

    eta: Floats
    steps: NDArray[np.int64] | Geometric
    gain: Floats
    server: Floats
    change: Floats
    participants: int
    deviation: float = 0.0

    @staticmethod
    def of(a: Algorithm, groups: Groups, eta: float, upload_noise: float = 0.0) -> GroupStages:
        """Of a method at a step size."""
        N, agent = groups.moments.n_agents, groups.agent
        stages = a.stages(eta, N, upload_noise)
        local = next(stage for stage in stages if isinstance(stage, Local))
        linear = next(stage for stage in stages if isinstance(stage, Linear))
        private = next((stage for stage in stages if isinstance(stage, Private)), Private(0.0))
        drawn = [s.law.participants for s in stages if isinstance(s, Shared) and isinstance(s.law, Sample)]
        each = (np.broadcast_to(np.asarray(x, np.float64), N)[agent] for x in (local.step_size, linear.gain))
        steps = local.steps if isinstance(local.steps, Geometric) else np.broadcast_to(local.steps, N)[agent]
        (etas, gain), server, change = each, np.array(linear.server), np.array(linear.change)
        return GroupStages(etas, steps, gain, server, change, [*drawn, N][0], private.deviation)

    @property
    def controlled(self) -> bool:
        """Whether there are control variates."""
        return bool((self.gain != 0).any())

    def noiseless(self, m: Moments) -> bool:
        """Whether nothing is random, all agents are alike in their steps and the server has no memory."""
        if isinstance(self.steps, Geometric) or np.ptp(self.eta) > 0 or np.ptp(self.steps) > 0:
            return False
        usual = not self.controlled or bool((self.gain == 1 / (self.eta * self.steps)).all())
        plain = self.server.shape == (1, 1) and self.change[0] == 1
        return bool(plain and usual and not self.deviation and m.noiseless and self.participants == m.n_agents)


def upload_noise(noise: Floats, d: int, deviation: float) -> Floats:
    """The map svec E[w w^T] to svec Cov(u_hat) : (..., s, S), where w ends in 1, with deviation^2 I more of it."""
    if not deviation:
        return noise
    out = noise.copy()
    out[..., diagonal(d), -1] += deviation**2
    return out


# --- without control variates: the server's memory is all there is ----------------------------------------------------
#
# With v = (memory, 1), agents are independent given v, so a round has the mean map sum_c w_c M_c, and the noise
# sum_c w_c^2 D_c. Where m of N agents take part, drawn without replacement, the server moves by N / m times the sum of
# their a_c = w_c delta_c; the noise then has N / m times those of the steps, and of the draw
#
#     N (N - m) / (m (N - 1)) sum_c (a_c - a_bar)(a_c - a_bar)^T,   a_bar = sum_c a_c / N.
#
# Rounds compose as steps do: powers of a round give any later one, and the stationary limit is one linear solve.


class StateLimit(NamedTuple):
    """The stationary law of a state: mean (n,), C (n, n), infinite where it has none; their estimated error, relative.

    M : (n, n), the mean map of a round
    """

    mean: Floats
    C: Floats
    error: float
    M: Floats


@dataclass(frozen=True, eq=False)
class ServerRound:
    """One round on v = (memory, 1).

    mean : (k d + 1, k d + 1), the map of E[v]; d : the dimension of theta, which comes first in the memory
    noise : (s, S), svec E[v v^T] to svec of the mean covariance of the memory given v. Where nothing is random it is
        None, and all that follows is about means alone, in any dimension
    """

    mean: Floats
    noise: Floats | None
    d: int

    @cached_property
    def covariance_map(self) -> Floats:
        """The map of Cov(memory), where the mean is what it tends to : (s, s); without noise that of the mean."""
        n = len(self.mean) - 1
        if self.noise is None:
            return self.mean[:n, :n]
        return symkron(self.mean[:n, :n]) + self.noise[:, within(n, n + 1)]

    def start(self, u: Floats) -> Floats:
        """v of a known u, with nothing in the rest of the memory."""
        return np.concatenate([u, np.zeros(len(self.mean) - 1 - self.d), [1.0]])

    def move(self, memory: Floats) -> Floats:
        """The next mean of the memory."""
        return self.carry(memory) + self.mean[:-1, -1]

    def carry(self, X: Floats) -> Floats:
        """The linear part on columns."""
        return self.mean[:-1, :-1] @ X

    def covariance(self, C: Floats, memory: Floats) -> Floats:
        """The next covariance of the memory, from its covariance and its mean."""
        return C if self.noise is None else smat(self.covariance_map @ svec(C) + self.added(memory), len(memory))

    def added(self, memory: Floats) -> Floats:
        """svec of the covariance that a round adds for a known memory."""
        assert self.noise is not None
        return np.asarray(self.noise @ squares(np.append(memory, 1.0)), np.float64)

    @cached_property
    def steps(self) -> FrozenSteps:
        """The round, if it has noise, as steps of one table, which compose."""
        assert self.noise is not None
        return FrozenSteps.of(self.mean[None], self.covariance_map[None], self.noise[None])

    def curve(self, u: Floats, rounds: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """E[u] : (R, d) and svec Cov(u) : (R, s), or a 0 without noise, at the given rounds, from known u : (d,)."""
        d, v = self.d, self.start(u)
        if self.noise is None:
            return powers_on(self.mean, v, rounds)[:, :d], np.zeros((len(rounds), 1))
        s, gaps = len(self.covariance_map), np.diff(rounds, prepend=0)
        mean, covariance = np.empty((len(rounds), d)), np.empty((len(rounds), s))
        powers = Squares(self.steps, FrozenSteps.then)
        often = {gap: [reduce(FrozenSteps.then, powers.of(gap))] for gap in _frequent(gaps)}
        both = np.concatenate([np.zeros(s), squares(v)])  # svec Cov(memory) and svec E[v] E[v]^T
        for i, gap in enumerate(gaps.tolist()):
            for power in often.get(gap) or powers.of(gap):
                both, v = both @ power.rows[0], power.M[0] @ v
            mean[i], covariance[i] = v[:d], both[:s]
        return mean, covariance if s == d * (d + 1) // 2 else covariance[:, within(d, len(v) - 1)]

    @cached_property
    def limit(self) -> StateLimit:
        """The law of the memory that a round leaves as it is.

        Cov = own(Cov) + noise(E[v]), so it is never a difference of squares. Where second moments do not converge it is
        infinite; where the mean does not either, it is NaN.
        """
        n = len(self.mean) - 1
        linear, constant = self.mean[:n, :n], self.mean[:n, n]
        if not contracts(self.covariance_map):
            mean = refined(np.eye(n) - linear, constant)[0] if contracts(linear) else np.full(n, np.nan)
            return StateLimit(mean, np.full((n, n), np.inf), 0.0, linear)
        mean, error = refined(np.eye(n) - linear, constant)
        if self.noise is None:
            check_accuracy(error, "the stationary law")
            return StateLimit(mean, np.zeros((n, n)), error, linear)
        found, off = refined(np.eye(len(self.covariance_map)) - self.covariance_map, self.added(mean))
        check_accuracy(max(error, off), "the stationary law")
        return StateLimit(mean, smat(found, n), max(error, off), linear)

    @property
    def radius(self) -> float:
        """The factor by which the slowest second moment shrinks in a round."""
        if not np.isfinite(self.covariance_map).all():
            return np.inf
        value = float(np.abs(np.linalg.eigvals(self.covariance_map)).max())
        return value**2 if self.noise is None else value


_RECENT: WeakKeyDictionary[Moments, dict[bytes, ServerRound]] = WeakKeyDictionary()  # of moments, which do not change


def server_round(m: Moments, stages: GroupStages, x: Floats) -> ServerRound:
    """A round without control variates, frozen at xi = xi_star + x; x : (K, d). The last few of a problem are kept."""
    known = _RECENT.setdefault(m, {})
    key = b"|".join(np.asarray(part).tobytes() for part in (x, *vars(stages).values()))
    found = known.get(key)
    if found is None:
        found = known[key] = _server_round(m, stages, x)
        for old in list(known)[: -tuning.RECENT_ROUNDS]:
            known.pop(old, None)
    return found


def _server_round(m: Moments, stages: GroupStages, x: Floats) -> ServerRound:
    d, N, weight, part = m.dim, m.n_agents, m.weight, stages.participants
    total = m.count * weight
    assert not isinstance(stages.steps, Geometric)
    if stages.noiseless(m):
        local, mean = noiseless.local_powers(m), np.eye(d + 1)
        power, kappa = local.powers(float(stages.eta[0]), int(stages.steps[0]))
        mean[:d, :d] = local.mean(local.times(power, local.identity()))
        mean[:d, d] = local.mean(local.times(kappa, local.in_bases(x)))
        return ServerRound(mean, None, d)
    kinds = Kinds.of(m.table, stages.eta, stages.steps, x)
    square = np.bincount(kinds.kind, total * weight, len(kinds.table))

    found, at = kinds.repeated(m, lambda some, steps: (steps.M, np.tensordot(square[some], steps.noise, 1)))
    maps, noises = zip(*found, strict=True)
    M = np.concatenate(maps)[at]
    noise = upload_noise(np.sum(noises, axis=0), d, stages.deviation * math.sqrt(square.sum()))
    if part < N:
        moved = weight[:, None, None] * (M - np.eye(d + 1))[:, :d]
        moved = moved - np.tensordot(m.count / N, moved, 1)
        draw = np.tensordot(m.count, symkron(moved), 1)
        noise = N / part * noise + N * (N - part) / (part * (N - 1)) * draw
    return _with_memory(np.tensordot(total, M, 1), noise, stages.server, stages.change)


def _with_memory(average: Floats, noise: Floats, server: Floats, change: Floats) -> ServerRound:
    """The round of a server that does not simply go to the average, a map of v = (u, 1) with its noise."""
    d, k = len(average) - 1, len(server)
    if k == 1 and change[0] == 1:
        return ServerRound(average, noise, d)
    mean = np.eye(k * d + 1)
    mean[:-1, :-1] = np.kron(server, np.eye(d))
    place = np.append(np.arange(d), k * d)  # of (u, 1) in v
    mean[:-1, place] += np.kron(change[:, None], (average - np.eye(d + 1))[:d])
    i, j = triangle(d + 1)
    where = smat(np.arange((k * d + 1) * (k * d + 2) // 2, dtype=np.float64), k * d + 1).astype(np.intp)
    moved = symkron(np.asarray(np.kron(change[:, None], np.eye(d)), np.float64)) @ noise
    wide = np.zeros((len(moved), where.max() + 1))
    wide[:, where[place[i], place[j]]] = moved
    return ServerRound(mean, wide, d)


def _frequent(gaps: NDArray[np.int64]) -> list[int]:
    """Numbers of rounds that are gone so often that they are worth a composition of their own."""
    gap, times = np.unique(gaps[gaps > 2], return_counts=True)
    return [int(g) for g in gap[times > len(gaps) // 8]]


def averaged_curve(
    step_at: Callable[[int], ServerRound], u: Floats, after: int, rounds: NDArray[np.int64]
) -> tuple[Floats, Floats, Floats]:
    """E : (R, d) and svec Cov : (R, s) of that mean of u without control variates, and E of a run from theta_star."""
    begin, drifting = (step_at(0).start(x)[:-1] for x in (u, 0 * u))
    states = averaged_states(step_at, begin, drifting, after, len(u))
    mean, covariance, drifted = at_rounds(states, rounds, lambda now: (now[0].average, svec(now[0].own), now[1]))
    return mean, covariance, drifted


# --- with control variates --------------------------------------------------------------------------------------------


class Coordinates(NamedTuple):
    """What stands for u and x_c, in the letters of joint.py.

    rho : (s, K), weights of sums over agents; alpha, chi, eta : (k,); Z : (l, k); X : (l, s)
    """

    rho: Floats
    alpha: Floats
    chi: Floats
    eta: Floats
    Z: Floats
    X: Floats


@dataclass(frozen=True, eq=False)
class AgentRound:
    """A round of K groups of agents with control variates.

    gain : (K,), m / N times that of the method; A, Q : (K, d, d), mean matrix and E[kappa]
    noise : (K, s, S), svec E[w w^T] of one agent, w = (u, x, 1), to svec Cov(u_hat) given w and the length of the round
    steady : whether the next rounds have the same gain, so that u need not be kept beside the y_c
    most_gain : times A_bar, up to which u is not kept either
    """

    moments: Moments
    stages: GroupStages
    gain: Floats
    A: Floats
    Q: Floats
    noise: Floats
    steady: bool = True
    most_gain: float = tuning.MAX_GAIN

    @property
    def shape(self) -> tuple[int, int]:
        """Number of groups and dimension."""
        return int(self.Q.shape[0]), int(self.Q.shape[1])

    @property
    def probability(self) -> float | None:
        """That a local step ends the round, where its length is random."""
        steps = self.stages.steps
        return steps.probability if isinstance(steps, Geometric) and steps.probability < 1 else None

    @property
    def sampled(self) -> tuple[float, float]:
        """By how much E[1_c 1_e] N^2 / m^2 exceeds one, for c = e and for two different agents."""
        N, m = self.moments.n_agents, self.stages.participants
        return (N - m) / m, -(N - m) / (m * (N - 1)) if N > 1 else 0.0

    @property
    def random(self) -> bool:
        """Whether there is something that all agents see: the length of a round, or who takes part."""
        return self.probability is not None or self.sampled[0] > 0

    @property
    def finite(self) -> bool:
        """Whether a round has second moments."""
        return bool(np.isfinite(self.noise).all() and np.isfinite(self.Q).all())

    @cached_property
    def reduced(self) -> bool:
        """Whether u is a sum over agents: y_c = x_c - chi u, u = -y_bar / chi, where gains and server allow it."""
        plain = self.stages.server.shape == (1, 1) and np.ptp(self.gain) == 0
        return bool(plain and self.steady and self.relative_gain <= self.most_gain)

    @property
    def relative_gain(self) -> float:
        """The gain beside A_bar: in y = x - gain u that many roundings of x are lost."""
        return float(self.gain[0]) / max(float(np.abs(self.A).max()), 1e-300)

    @cached_property
    def coordinates(self) -> Coordinates:
        """Those in which nothing is conserved, so that rounding does not add up.

        Reduced: y_c+ = y_c - gain delta_c, so that u = -change y_bar / gain is no state of its own. Else z is the
        server's memory, and agents start each round at y_c = x_c, of which rounding may have moved the mean:
        x_c = y_c - y_bar and Delta = sum_c (w_c / gain_c) (x_c - y_c+).
        """
        m, change, server = self.moments, self.stages.change, self.stages.server
        total = m.count * m.weight
        if self.reduced:
            chi, nothing = self.gain[0] / change[0], np.zeros((0, 1))
            return Coordinates(-total[None] / chi, np.ones(1), np.array([chi]), np.zeros(1), nothing, nothing)
        first = np.eye(2 + len(server))[0]
        Z = np.column_stack([-change * np.sum(total / self.gain), change, server])
        X = np.column_stack([0 * change, -change])
        rho = np.stack([total, total / self.gain])
        return Coordinates(rho, np.eye(2 + len(server))[2], -first, -first, Z, X)

    @cached_property
    def moved(self) -> Floats:
        """(K, d, 2 d + 1): w = (u, x, 1) to E[u_hat - u]."""
        return np.concatenate([-self.Q @ self.A, self.Q, np.zeros((*self.Q.shape[:2], 1))], axis=2)

    @cached_property
    def agent_noise(self) -> Floats:
        """(K, s, S): svec E[w w^T] of one agent to svec Cov(u_hat) given w, whatever the length."""
        if self.probability is None:
            return self.noise
        source, covariance = self.length_source
        first = np.concatenate([-self.A, np.broadcast_to(np.eye(self.A.shape[1]), self.A.shape)], axis=2)
        first = np.concatenate([first, np.zeros((*first.shape[:2], 1))], axis=2)
        return self.noise + np.linalg.solve(covariance, symkron(source @ first))

    @cached_property
    def length_source(self) -> tuple[Floats, Floats]:
        """Of a random length, with B = I - eta A: eta (p q)^(1/2) B (I - q B)^-1 : (K, d, d) and I - q symkron(B)."""
        p, Z = self.probability, self.stages.eta[:, None, None] * self.A
        assert p is not None
        K, covariance = one_less(Z, p)
        return self.stages.eta[:, None, None] * np.sqrt(p * (1 - p)) * over(np.eye(Z.shape[1]) - Z, K), covariance

    @cached_property
    def lengths(self) -> tuple[Floats, Floats] | None:
        """How a common length correlates agents, by `shared_length`: source : (K, d, d), powers : (J, K, d, d)."""
        if self.probability is None:
            return None
        found = shared_length(self.stages.eta[:, None, None] * self.A, self.probability)
        if found is None:
            return np.full_like(self.Q, np.inf), np.zeros((1, *self.Q.shape))
        return found[0] @ self.length_source[0], found[1]


def agent_round(m: Moments, stages: GroupStages, steady: bool = True) -> AgentRound:
    """A round with control variates, of K groups of agents."""
    gain, d, t = stages.participants / m.n_agents * stages.gain, m.dim, m.table
    if not (gain > 0).all():
        raise ArgumentError(f"gain must be above 0 for all agents, or 0 for all; got {stages.gain.min():g}")
    if isinstance(stages.steps, Geometric):
        eta, p = float(stages.eta[0]), stages.steps.probability
        one = Kinds(np.arange(len(m.A_bar)), np.full(len(m.A_bar), eta), np.ones(1, np.int64), None, t)
        step = one.step(m, one.table)
        assert isinstance(step, LocalSteps)
        Q, noise = (a[t] for a in random_steps(step, eta * m.A_bar, p))
        Q *= eta
    else:
        M, noise = Kinds.of(t, stages.eta, stages.steps).maps(m)
        Q = np.ascontiguousarray(M[:, :d, d : 2 * d])
    return AgentRound(m, stages, gain, m.A_bar[t], Q, upload_noise(noise, d, stages.deviation), steady)


def round_of(groups: Groups, algorithm: Algorithm, eta: float, upload_noise: float = 0.0) -> ServerRound | AgentRound:
    """A round of a method at a step size."""
    m, stages = groups.moments, GroupStages.of(algorithm, groups, eta, upload_noise)
    return agent_round(m, stages) if stages.controlled else server_round(m, stages, groups.x)
