"""What one agent does between two communications, in expectation, and a round of FedLSA, which averages it.

Coordinates are centred: u = theta - theta_star, x = xi - xi_star, and a local step is

    u' = (I - eta A(z)) u + eta x - eta omega(z).

With the lifted state w = (u, x, 1), M the mean map of w, G the map E[(I - eta A) X (I - eta A)^T] on svec and D_h the
map from svec(w w^T) to the covariance of u after h steps given w, steps compose as (a first, then b)

    M_{a+b} = M_b M_a,   G_{a+b} = G_b G_a,   D_{a+b} = G_b D_a + D_b symkron(M_a),

so H steps cost O(log H) products, and only positive terms are ever added. Each row of D is kept as a symmetric matrix,
for which composing with symkron(M) means M^T D M.

FedLSA has v = (u, 1). Agents are independent given v, so a round has the mean map sum_c w_c M_c, and the noise sum_c
w_c^2 D_c. Where m of N agents take part, drawn without replacement, the server moves by N / m times the sum of their
a_c = w_c (u_hat_c - u); the noise then has N / m times those of the steps, and of the draw

    N (N - m) / (m (N - 1)) sum_c (a_c - a_bar)(a_c - a_bar)^T,   a_bar = sum_c a_c / N.

Noise that agents add to what they upload, independent of all else, is one more covariance of u_hat, a constant.
Rounds compose as steps do: powers of a round give any later one, and the stationary limit is one linear solve.
Covariances are sums of positive terms, never second moments less squares of means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from . import noiseless, tuning
from .linear import check_accuracy, contracts, refined
from .moments import Moments, check_size
from .recursions import Squares, at_rounds, repeat
from .symmetric import functionals, rows_of, smat, squares, svec, symkron, triangle, within
from .threads import cores, share


@dataclass(frozen=True, eq=False)
class LocalSteps:
    """Some number of local steps of every table: M : (M, n, n), G : (M, s, s), D : (M, s, n, n), n the size of w."""

    M: Floats
    G: Floats
    D: Floats

    def then(self, later: LocalSteps) -> LocalSteps:
        """These steps, and then those."""
        tables, s, n = self.D.shape[:3]
        D = (later.G @ self.D.reshape(tables, s, n * n)).reshape(self.D.shape)
        D += _pulled(later.D, self.M)
        return LocalSteps(later.M @ self.M, later.G @ self.G, D)

    def noise(self) -> Floats:
        """D as a matrix on svec(w w^T) : (M, s, S)."""
        return rows_of(self.D)


def _pulled(D: Floats, M: Floats) -> Floats:
    """M^T D M for each row of D, which is symmetric: both products in the one form that is a few large ones."""
    (tables, s, n, _), new = D.shape, M.shape[2]
    half = (D.reshape(tables, s * n, n) @ M).reshape(tables, s, n, new)
    return (half.transpose(0, 1, 3, 2).reshape(tables, s * new, n) @ M).reshape(tables, s, new, new)


def one_step(moments: Moments, eta: float, frozen: Floats | None = None) -> LocalSteps:
    """A single local step, w = (u, x, 1).

    frozen : (M, d), control variates x that never change; they go into the constant, and w = (u, 1)
    """
    check_size(moments.noise.shape)  # which may be a zero that takes no memory itself
    d, tables = moments.dim, len(moments.A_bar)
    n = 2 * d + 1 if frozen is None else d + 1
    M = np.tile(np.eye(n), (tables, 1, 1))
    M[:, :d, :d] -= eta * moments.A_bar
    M[:, :d, d:] += eta * (np.eye(d, d + 1) if frozen is None else frozen[:, :, None])
    place = np.zeros((d + 1, n))  # v = (theta - centre, 1) in terms of w
    place[:d, :d], place[:d, -1], place[d, -1] = np.eye(d), moments.offset, 1
    D = eta**2 * _pulled(functionals(moments.noise, d + 1), place[None])
    return LocalSteps(M, symkron(M[:, :d, :d]) + rows_of(D[..., :d, :d]), D)


def repeated(step: LocalSteps, H: int) -> LocalSteps:
    """H times the same step, in O(log H) products; threads share the tables, a few at a time to stay in the cache."""
    tables = len(step.M)
    if step.D.size < tuning.THREADS_FROM or H == 1:
        return repeat(step, H, LocalSteps.then)
    out = LocalSteps(*(np.empty_like(a) for a in (step.M, step.G, step.D)))

    def work(begin: int, end: int) -> None:
        for a in range(begin, end, tuning.TABLES_AT_ONCE):
            b = min(a + tuning.TABLES_AT_ONCE, end)
            some = repeat(LocalSteps(step.M[a:b], step.G[a:b], step.D[a:b]), H, LocalSteps.then)
            out.M[a:b], out.G[a:b], out.D[a:b] = some.M, some.G, some.D

    parts = min(cores(), tables)
    share(work, [tables * i // parts for i in range(parts + 1)])  # products of arrays let go of the lock
    return out


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
        return np.asarray(self.noise @ squares(np.append(u, 1.0)), np.float64)

    @property
    def steps(self) -> LocalSteps:
        """The round as steps of one table, which compose; without noise they have no second moments, s = 0."""
        n = len(self.mean)
        if self.noise is None:
            return LocalSteps(self.mean[None], np.empty((1, 0, 0)), np.empty((1, 0, n, n)))
        return LocalSteps(self.mean[None], self.own[None], functionals(self.noise, n)[None])


def with_upload_noise(noise: Floats, d: int, deviation: float) -> Floats:
    """The map svec E[w w^T] to svec Cov(u_hat) : (..., s, S), where w ends in 1, with deviation^2 I more of it."""
    if not deviation:
        return noise
    out = noise.copy()
    out[..., np.flatnonzero(np.equal(*triangle(d))), -1] += deviation**2
    return out


def fedlsa_round(
    moments: Moments, eta: float, H: int, x: Floats, participants: int | None = None, upload_noise: float = 0.0
) -> FedLSARound:
    """A round of FedLSA on v = (u, 1), with control variates frozen at xi = xi_star + x; x : (M, d), -xi_star for 0.

    participants : how many agents, drawn without replacement, take part; all by default.
    upload_noise : standard deviation per coordinate of what each agent adds to u_hat
    """
    d, N, weight = moments.dim, moments.n_agents, moments.weight
    m = N if participants is None else participants
    if noiseless.suits(moments, m) and not upload_noise:
        local, mean = noiseless.local_powers(moments), np.eye(d + 1)
        power, kappa = local.powers(eta, H)
        mean[:d, :d] = local.mean(local.times(power, local.identity()))
        mean[:d, d] = local.mean(local.times(kappa, local.own(x[moments.table])))
        return FedLSARound(mean)
    steps = repeated(one_step(moments, eta, x), H)
    M, D = steps.M[moments.table], with_upload_noise(steps.noise(), d, upload_noise)[moments.table]
    share = moments.count * weight
    mean, noise = np.tensordot(share, M, 1), np.tensordot(share * weight, D, 1)
    if m < N:
        moved = weight[:, None, None] * (M - np.eye(d + 1))[:, :d]
        moved = moved - np.tensordot(moments.count / N, moved, 1)
        draw = np.tensordot(moments.count, symkron(moved), 1)
        noise = N / m * noise + N * (N - m) / (m * (N - 1)) * draw
    return FedLSARound(mean, noise)


def fedlsa_curve(step: FedLSARound, u: Floats, rounds: NDArray[np.int64]) -> tuple[Floats, Floats]:
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


def fedlsa_limit(step: FedLSARound) -> FedLSALimit:
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


def fedlsa_radius(step: FedLSARound) -> float:
    """The factor by which the slowest second moment shrinks in a round."""
    if not np.isfinite(step.own).all():
        return np.inf
    value = float(np.abs(np.linalg.eigvals(step.own)).max())
    return value**2 if step.noise is None else value
