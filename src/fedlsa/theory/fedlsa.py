"""Exact moments of FedLSA: rounds compose as local steps do, whatever the number of agents and local steps.

With v = (u, 1) and agents independent given v, a round has the mean map sum_c w_c M_c, and the noise sum_c w_c^2 D_c of
H local steps (theory/local_steps.py). Where m of N agents take part, drawn without replacement, the server moves by
N / m times the sum of their a_c = w_c (u_hat_c - u); the noise then has N / m times those of the steps, and of the draw

    N (N - m) / (m (N - 1)) sum_c (a_c - a_bar)(a_c - a_bar)^T,   a_bar = sum_c a_c / N.

Powers of a round give any later one, and the stationary limit is one linear solve. Covariances are sums of positive
terms, never second moments less squares of means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from . import noiseless
from .linear import check_accuracy, contracts, refined
from .local_steps import LocalSteps, one_step, repeated
from .moments import Moments
from .recursions import Squares, at_rounds
from .symmetric import functionals, smat, svec, symkron, triangle, within


@dataclass(frozen=True, eq=False)
class FedLSARound:
    """One round on v = (u, 1): mean : (d + 1, d + 1) maps E[v], noise : (s, S) maps svec E[v v^T] to what it adds.

    What it adds is svec of the mean covariance of u+ given v. Where nothing is random, noise is None and all that
    follows is about means alone, in any dimension.
    """

    mean: Floats
    noise: Floats | None = None

    @cached_property
    def own(self) -> Floats:
        """The map of Cov(u), where the mean is what it tends to : (s, s); without noise that of u : (d, d)."""
        d = len(self.mean) - 1
        if self.noise is None:
            return self.mean[:d, :d]
        return symkron(self.mean[:d, :d]) + self.noise[:, within(d, d + 1)]

    def added(self, u: Floats) -> Floats:
        """svec of the covariance that a round adds for a known u : (s,)."""
        assert self.noise is not None
        v = np.append(u, 1.0)
        return np.asarray(self.noise @ svec(np.outer(v, v)), np.float64)

    @property
    def steps(self) -> LocalSteps:
        """The round as steps of one table, which compose; without noise they have no second moments, s = 0."""
        n = len(self.mean)
        if self.noise is None:
            return LocalSteps(self.mean[None], np.empty((1, 0, 0)), np.empty((1, 0, n, n)))
        return LocalSteps(self.mean[None], self.own[None], functionals(self.noise, n)[None])


def round_map(moments: Moments, eta: float, H: int, x: Floats, participants: int | None = None) -> FedLSARound:
    """A round of FedLSA on v = (u, 1), with control variates frozen at xi = xi_star + x; x : (M, d), -xi_star for 0.

    participants : how many agents, drawn without replacement, take part; all by default.
    """
    d, N, weight = moments.dim, moments.n_agents, moments.weight
    m = N if participants is None else participants
    if noiseless.suits(moments, m):
        local, mean = noiseless.local_powers(moments), np.eye(d + 1)
        power, kappa = local.powers(eta, H)
        mean[:d, :d] = local.mean(local.times(power, local.identity()))
        mean[:d, d] = local.mean(local.times(kappa, local.own(x[moments.table])))
        return FedLSARound(mean)
    steps = repeated(one_step(moments, eta, x), H)
    M, D = steps.M[moments.table], steps.noise()[moments.table]
    share = moments.count * weight
    mean, noise = np.tensordot(share, M, 1), np.tensordot(share * weight, D, 1)
    if m < N:
        moved = weight[:, None, None] * (M - np.eye(d + 1))[:, :d]
        moved = moved - np.tensordot(moments.count / N, moved, 1)
        draw = np.tensordot(moments.count, symkron(moved), 1)
        noise = N / m * noise + N * (N - m) / (m * (N - 1)) * draw
    return FedLSARound(mean, noise)


def curve(step: FedLSARound, u: Floats, rounds: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """E[u] : (R, d) and E||u - E[u]||^2 : (R,) at the given rounds, from known u : (d,)."""
    d, v, powers = len(u), np.append(u, 1.0), Squares(step.steps, LocalSteps.then)
    C = np.zeros(0 if step.noise is None else len(step.own))
    diagonal = np.flatnonzero(np.equal(*triangle(d)))[: len(C)]
    mean, variance = np.empty((len(rounds), d)), np.empty(len(rounds))
    for i, gap in enumerate(np.diff(rounds, prepend=0).tolist()):
        short = step.noise is None and gap < d * gap.bit_length()  # products with a vector are less work than squares
        for power in [step.steps] * gap if short else powers.of(gap):
            C, v = power.G[0] @ C + power.D[0] @ v @ v, power.M[0] @ v
        mean[i], variance[i] = v[:d], C[diagonal].sum()
    return mean, variance


def averaged_curve(
    step_in: Callable[[int], FedLSARound], u: Floats, after: int, rounds: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """The same for the running mean of u from round `after` on (Polyak-Ruppert); step_in(t) : what round t does.

    Beside C = Cov(u) it carries A = Cov(a, u) and Q = Cov(a) of the running sum a, and its mean.
    """
    d = len(u)

    def states() -> Iterator[tuple[Floats, Floats]]:
        v, C, A, Q = np.append(u, 1.0), np.zeros((d, d)), np.zeros((d, d)), np.zeros((d, d))
        a, n = np.zeros(d), 0
        for t in count():
            if t >= after:
                Q, A, a, n = Q + A + A.T + C, A + C, a + v[:d], n + 1
            yield (a / n, Q / n**2) if n else (v[:d], C)
            step = step_in(t)
            if step.noise is not None:
                C = smat(step.own @ svec(C) + step.added(v[:d]), d)
            v, A = step.mean @ v, A @ step.mean[:d, :d].T

    mean, variance = at_rounds(states(), rounds, lambda state: (state[0], np.trace(state[1])))
    return mean, variance


@dataclass(frozen=True, eq=False)
class FedLSALimit:
    """E[u] : (d,) and Cov(u) : (d, d) as t goes to infinity, with its estimated error, relative.

    Where second moments do not converge the covariance is infinite; where the mean does not either, it is NaN.
    """

    mean: Floats
    covariance: Floats
    error: float = 0.0

    @property
    def stable(self) -> bool:
        return bool(np.isfinite(self.covariance).all())


def limit(step: FedLSARound) -> FedLSALimit:
    """What a round leaves as it is: Cov(u) = own(Cov(u)) + noise((E[u], 1)), so it is never a difference of squares."""
    d = len(step.mean) - 1
    linear, constant = step.mean[:d, :d], step.mean[:d, d]
    if not contracts(step.own):
        u = refined(np.eye(d) - linear, constant)[0] if contracts(linear) else np.full(d, np.nan)
        return FedLSALimit(u, np.full((d, d), np.inf))
    u, error = refined(np.eye(d) - linear, constant)
    covariance = np.zeros((d, d))
    if step.noise is not None:
        found, off = refined(np.eye(len(step.own)) - step.own, step.added(u))
        covariance, error = smat(found, d), max(error, off)
    check_accuracy(error, "the stationary law")
    return FedLSALimit(u, covariance, error)


def radius(step: FedLSARound) -> float:
    """The factor by which the slowest second moment shrinks in a round."""
    if not np.isfinite(step.own).all():
        return np.inf
    value = float(np.abs(np.linalg.eigvals(step.own)).max())
    return value**2 if step.noise is None else value
