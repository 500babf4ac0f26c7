"""Exact moments of FedLSA: one matrix per round, whatever the number of agents and local steps.

With v = (u, 1) and agents independent given v,

    svec E[v+ v+^T] = R svec E[v v^T],   R = symkron(sum_c w_c M_c) + sum_c w_c^2 D_c,

where M_c and D_c are the mean and the noise of H local steps (theory/local.py). Powers of R give any round, and the
stationary limit is one linear solve.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from .linear import check_accuracy, contracts, refined
from .local import frozen_step, repeated
from .moments import Moments
from .symmetric import smat, svec, symkron, within


@dataclass(frozen=True, eq=False)
class Round:
    """One round on v = (u, 1): mean : (d + 1, d + 1) maps E[v], noise : (s, S) maps svec E[v v^T] to what it adds.

    What it adds is svec of the mean covariance of u+ given v.
    """

    mean: Floats
    noise: Floats

    @cached_property
    def second(self) -> Floats:
        """(S, S): maps svec E[v v^T]."""
        out, d = symkron(self.mean), len(self.mean) - 1
        out[within(d, d + 1)] += self.noise
        return out

    @cached_property
    def own(self) -> Floats:
        """(s, s): maps svec Cov(u), where the mean is what it tends to."""
        d = len(self.mean) - 1
        return symkron(self.mean[:d, :d]) + self.noise[:, within(d, d + 1)]


def round_map(moments: Moments, eta: float, H: int, x: Floats, participants: int | None = None) -> Round:
    """A round of FedLSA with control variates frozen at xi = xi_star + x; x : (M, d), so -xi_star for xi = 0.

    participants : how many agents, drawn without replacement, take part; all by default. Needs equal weights.
    """
    d, N = moments.dim, moments.n_agents
    steps = repeated(frozen_step(moments, eta, x), H)
    M, D = steps.M[moments.table], steps.noise()[moments.table]
    share = moments.count * moments.weight
    mean = np.tensordot(share, M, 1)
    if participants is None or participants == N:
        return Round(mean, np.tensordot(share * moments.weight, D, 1))
    m = participants  # agents differ from their mean, and of those that are drawn each is drawn once
    apart = symkron((M - mean)[:, :d]) * ((N - m) / (N - 1))
    return Round(mean, np.tensordot(moments.count / (N * m), apart + D, 1))


def curve(step: Round, v: Floats, rounds: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """E[u] : (R, d) and E||u||^2 : (R,) at the given rounds, from v = (u_0, 1)."""
    d = len(v) - 1
    state, at, powers = svec(np.outer(v, v)), 0, {0: step.second}
    mean, mse = np.empty((len(rounds), d)), np.empty(len(rounds))
    for i, t in enumerate(rounds):
        gap, bit = int(t) - at, 0
        while gap >> bit:
            if bit not in powers:
                powers[bit] = powers[bit - 1] @ powers[bit - 1]
            if gap >> bit & 1:
                state = powers[bit] @ state
            bit += 1
        at = int(t)
        full = smat(state, d + 1)
        mean[i], mse[i] = full[:d, d], np.trace(full[:d, :d])
    return mean, mse


def averaged_curve(steps: list[Round], v: Floats, after: int, rounds: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The same for the running mean of u from round `after` on (Polyak-Ruppert); steps : one, or one per round.

    Beside S = E[v v^T] it carries C = E[a v^T] and Q = E[a a^T] of the running sum a; E[a_t v_{t+1}^T] = C mean^T.
    """
    d, last = len(v) - 1, int(rounds[-1])
    S, C, Q, n = np.outer(v, v), np.zeros((d, d + 1)), np.zeros((d, d)), 0
    found: dict[int, tuple[Floats, float]] = {}
    wanted = set(rounds.tolist())
    for t in range(last + 1):
        if t > 0:
            step = steps[min(t - 1, len(steps) - 1)]
            S = smat(step.second @ svec(S), d + 1)
            C = C @ step.mean.T
        if t >= after:
            Q = Q + C[:, :d] + C[:, :d].T + S[:d, :d]
            C, n = C + S[:d], n + 1
        if t in wanted:
            sum_mean, square, k = (C[:, d], np.trace(Q), n) if n else (S[:d, d], np.trace(S[:d, :d]), 1)
            found[t] = (sum_mean / k, float(square) / k**2)
    return np.stack([found[t][0] for t in rounds.tolist()]), np.array([found[t][1] for t in rounds.tolist()])


@dataclass(frozen=True, eq=False)
class Limit:
    """E[u] : (d,) and Cov(u) : (d, d) as t goes to infinity, with its estimated error, relative.

    Where second moments do not converge the covariance is infinite; where the mean does not either, it is NaN.
    """

    mean: Floats
    covariance: Floats
    error: float = 0.0

    @property
    def stable(self) -> bool:
        return bool(np.isfinite(self.covariance).all())


def limit(step: Round) -> Limit:
    """What a round leaves as it is: Cov(u) = own(Cov(u)) + noise((E[u], 1)), so it is never a difference of squares."""
    d = len(step.mean) - 1
    if not contracts(step.own):
        return _without_limit(step.mean)
    mean, off = _fixed_point(step.mean)
    v = np.append(mean, 1.0)
    covariance, error = refined(np.eye(len(step.own)) - step.own, step.noise @ svec(np.outer(v, v)))
    check_accuracy(max(off, error), "the stationary law")
    return Limit(mean, smat(covariance, d), max(off, error))


def mean_limit(mean: Floats) -> Limit:
    """The same from the mean of a round, (d + 1, d + 1), where nothing is random."""
    d = len(mean) - 1
    if not contracts(mean[:d, :d]):
        return _without_limit(mean)
    u, error = _fixed_point(mean)
    check_accuracy(error, "the stationary law")
    return Limit(u, np.zeros((d, d)), error)


def _without_limit(mean: Floats) -> Limit:
    d = len(mean) - 1
    u = _fixed_point(mean)[0] if contracts(mean[:d, :d]) else np.full(d, np.nan)
    return Limit(u, np.full((d, d), np.inf))


def radius(step: Round) -> float:
    """The factor by which the slowest second moment shrinks in a round."""
    return float(np.abs(np.linalg.eigvals(step.own)).max()) if np.isfinite(step.own).all() else np.inf


def mean_radius(mean: Floats) -> float:
    """The same from the mean of a round, where nothing is random."""
    d = len(mean) - 1
    return float(np.abs(np.linalg.eigvals(mean[:d, :d])).max()) ** 2 if np.isfinite(mean).all() else np.inf


def _fixed_point(mean: Floats) -> tuple[Floats, float]:
    """The u with mean (u, 1) = (u, 1), and its error."""
    d = len(mean) - 1
    return refined(np.eye(d) - mean[:d, :d], mean[:d, d])
