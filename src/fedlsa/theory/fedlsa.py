"""Exact moments of FedLSA: rounds compose as local steps do, whatever the number of agents and local steps.

With v = (u, 1) and agents independent given v, a round has the mean map sum_c w_c M_c, and the noise sum_c w_c^2 D_c of
H local steps (theory/local.py). Where m of N agents take part, drawn without replacement, the server moves by N / m
times the sum of their a_c = w_c (u_hat_c - u); the noise then has N / m times those of the steps, and that of the draw,

    N (N - m) / (m (N - 1)) sum_c (a_c - a_bar)(a_c - a_bar)^T,   a_bar = sum_c a_c / N.

Powers of a round give any later one, and the stationary limit is one linear solve. Covariances are sums of positive
terms, never second moments less squares of means.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from .linear import check_accuracy, contracts, refined
from .local_steps import Steps, frozen_step, repeated
from .moments import Moments
from .symmetric import functionals, smat, svec, symkron, within


@dataclass(frozen=True, eq=False)
class Round:
    """One round on v = (u, 1): mean : (d + 1, d + 1) maps E[v], noise : (s, S) maps svec E[v v^T] to what it adds.

    What it adds is svec of the mean covariance of u+ given v.
    """

    mean: Floats
    noise: Floats

    @cached_property
    def own(self) -> Floats:
        """(s, s): maps svec Cov(u), where the mean is what it tends to."""
        d = len(self.mean) - 1
        return symkron(self.mean[:d, :d]) + self.noise[:, within(d, d + 1)]

    @property
    def steps(self) -> Steps:
        """The round as steps of one table, which compose."""
        return Steps(self.mean[None], self.own[None], functionals(self.noise, len(self.mean))[None])


def round_map(moments: Moments, eta: float, H: int, x: Floats, participants: int | None = None) -> Round:
    """A round of FedLSA on v = (u, 1), with control variates frozen at xi = xi_star + x; x : (M, d), -xi_star for 0.

    participants : how many agents, drawn without replacement, take part; all by default.
    """
    d, N, weight = moments.dim, moments.n_agents, moments.weight
    steps = repeated(frozen_step(moments, eta, x), H)
    M, D = steps.M[moments.table], steps.noise()[moments.table]
    share = moments.count * weight
    mean, noise = np.tensordot(share, M, 1), np.tensordot(share * weight, D, 1)
    m = N if participants is None else participants
    if m < N:
        moved = weight[:, None, None] * (M - np.eye(d + 1))[:, :d]
        moved = moved - np.tensordot(moments.count / N, moved, 1)
        draw = np.tensordot(moments.count, symkron(moved), 1)
        noise = N / m * noise + N * (N - m) / (m * (N - 1)) * draw
    return Round(mean, noise)


def curve(step: Round, v: Floats, rounds: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """E[u] : (R, d) and E||u - E[u]||^2 : (R,) at the given rounds, from v = (u_0, 1)."""
    d, at, powers = len(v) - 1, 0, [step.steps]
    C = np.zeros(len(step.own))
    mean, variance = np.empty((len(rounds), d)), np.empty(len(rounds))
    for i, t in enumerate(rounds):
        gap, bit = int(t) - at, 0
        while gap >> bit:
            if bit == len(powers):
                powers.append(powers[-1].then(powers[-1]))
            if gap >> bit & 1:
                power = powers[bit]
                C, v = power.G[0] @ C + power.D[0] @ v @ v, power.M[0] @ v
            bit += 1
        at = int(t)
        mean[i], variance[i] = v[:d], np.trace(smat(C, d))
    return mean, variance


def averaged_curve(steps: list[Round], v: Floats, after: int, rounds: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The same for the running mean of u from round `after` on (Polyak-Ruppert); steps : one, or one per round.

    Beside C = Cov(u) it carries A = Cov(a, u) and Q = Cov(a) of the running sum a, and its mean.
    """
    d, last = len(v) - 1, int(rounds[-1])
    C, A, Q, a, n = np.zeros(d * (d + 1) // 2), np.zeros((d, d)), np.zeros((d, d)), np.zeros(d), 0
    found: dict[int, tuple[Floats, float]] = {}
    wanted = set(rounds.tolist())
    for t in range(last + 1):
        if t > 0:
            step = steps[min(t - 1, len(steps) - 1)]
            C, v = step.own @ C + step.noise @ svec(np.outer(v, v)), step.mean @ v
            A = A @ step.mean[:d, :d].T
        if t >= after:
            full = smat(C, d)
            Q, A, a, n = Q + A + A.T + full, A + full, a + v[:d], n + 1
        if t in wanted:
            found[t] = (a / n, float(np.trace(Q)) / n**2) if n else (v[:d], float(np.trace(smat(C, d))))
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
