"""What one agent does between two communications, in expectation, and a round of FedLSA, which averages it.

Coordinates are centred: u = theta - theta_star, x = xi - xi_star, and a local step is

    u' = (I - eta A(z)) u + eta x - eta omega(z).

With the lifted state w = (u, x, 1), M the mean map of w, G the map E[(I - eta A) X (I - eta A)^T] on svec and D_h the
map from svec(w w^T) to the covariance of u after h steps given w, steps compose as (a first, then b)

    M_{a+b} = M_b M_a,   G_{a+b} = G_b G_a,   D_{a+b} = G_b D_a + D_b symkron(M_a),

so H steps cost O(log H) products (`Compositions`), and only positive terms are ever added.

FedLSA has v = (u, 1). Agents are independent given v, so a round has the mean map sum_c w_c M_c, and the noise sum_c
w_c^2 D_c. Where m of N agents take part, drawn without replacement, the server moves by N / m times the sum of their
a_c = w_c (u_hat_c - u); the noise then has N / m times those of the steps, and of the draw

    N (N - m) / (m (N - 1)) sum_c (a_c - a_bar)(a_c - a_bar)^T,   a_bar = sum_c a_c / N.

Noise that agents add to what they upload, independent of all else, is one more covariance of u_hat, a constant.
Rounds compose as steps do: powers of a round give any later one, and the stationary limit is one linear solve.
Covariances are sums of positive terms, never second moments less squares of means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import count
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from . import noiseless, tuning
from .linear import (
    Index,
    Squares,
    at_rounds,
    check_accuracy,
    contracts,
    powers_on,
    refined,
    repeat,
    smat,
    squares,
    svec,
    symkron,
    triangle,
    within,
)
from .problem_moments import Moments, check_size
from .threads import cores, share

# Local steps that follow one another, for many tables at once: how M, G and D compose.
#
# Steps a and then steps b are M = M_b M_a, G = G_b G_a and D = G_b D_a + D_b symkron(M_a). What is kept is laid out for
# few products of matrices that are as large as they can be, so all of them are transposed: the entries of svec Cov(u)
# come last, and G^T and D^T are rows of one matrix, which one product carries on.


@dataclass(frozen=True, eq=False)
class LocalSteps:
    """Some number of local steps of every table on w = (u, z), z = (x, 1), which does not change; M : (M, n, n).

    rows : (M, s + d n + q q, s), q = d + 1: G^T, then D^T of all u_k w_l, then D^T of all z_k z_l. Composing D with
    symkron(M_a) is a product for one index, a copy in whole rows that exchanges the two, and another product.
    """

    M: Floats
    rows: Floats

    @staticmethod
    def of(M: Floats, G: Floats, noise: Floats) -> LocalSteps:
        """From G : (M, s, s) and noise : (M, s, S), of the entries of svec(v v^T), v = (u, 1)."""
        (tables, n, _), s = M.shape, len(G[0])
        d, D, (k, j) = n // 2, np.zeros((tables, n, n, s)), triangle(n // 2 + 1)
        by_rows = np.multiply(np.where(k == j, 1.0, 0.5)[:, None], noise.swapaxes(1, 2), order="C")
        at = np.append(np.arange(d), n - 1)
        D[:, at[:, None], at] = by_rows[:, smat(np.arange(len(k), dtype=np.float64), d + 1).astype(np.intp)]
        uw, zz = D[:, :d].reshape(tables, d * n, s), D[:, d:, d:].reshape(tables, (n - d) ** 2, s)
        return LocalSteps(M, np.concatenate([G.swapaxes(1, 2), uw, zz], axis=1))

    @property
    def noise(self) -> Floats:
        """D as a matrix on svec(w w^T) : (M, s, S)."""
        place, times = _places(self.M.shape[1])
        return (times[:, None] * self.rows[:, self.rows.shape[2] + place]).swapaxes(1, 2)

    def then(self, later: LocalSteps) -> LocalSteps:
        """These steps, and then those."""
        (tables, n, _), s = self.M.shape, self.rows.shape[2]
        d, q, before = n // 2, n - n // 2, self.M[:, : n // 2].swapaxes(1, 2)
        end, rows = s + d * n, self.rows @ later.rows[:, :s]
        uw = later.rows[:, s:end].reshape(tables, d, n * s)
        uz = uw.reshape(tables, d, n, s)[:, :, d:]
        met = np.empty((tables, d, n, s))  # (D_uu, D_uz) once the second of its indices has gone through M_a
        met[:] = (before @ uw[:, :, : d * s]).reshape(tables, n, d, s).swapaxes(1, 2)
        met[:, :, d:] += uz
        half = (before[:, d:] @ ((met[:, :, d:] + uz) / 2).reshape(tables, d, q * s)).reshape(tables, q, q, s)
        rows[:, s:end] += (before[:, :d] @ met.reshape(tables, d, n * s)).reshape(tables, d * n, s)
        rows[:, end:] += later.rows[:, end:]
        rows[:, end:] += (half + half.swapaxes(1, 2)).reshape(tables, q * q, s)
        return LocalSteps(later.M @ self.M, rows)


@cache
def _places(n: int) -> tuple[Index, Floats]:
    """Where the entries of svec(w w^T) stand among the rows of D^T, and how often each of them counts."""
    d, (k, j) = n // 2, triangle(n)
    return np.where(k < d, k * n + j, d * n + (k - d) * (n - d) + j - d), np.where(k == j, 1.0, 2.0)


@dataclass(frozen=True, eq=False)
class FrozenSteps:
    """The same where control variates never change, on v = (u, 1) : M : (M, d + 1, d + 1).

    rows : (M, s + S, s + S), the transpose of the map of (svec Cov(u), svec E[v] E[v]^T): G^T and 0, and below
    D^T and symkron(M)^T. Steps compose as these matrices multiply.
    """

    M: Floats
    rows: Floats

    @staticmethod
    def of(M: Floats, G: Floats, noise: Floats) -> FrozenSteps:
        """From G : (M, s, s) and noise : (M, s, S), of the entries of svec(v v^T)."""
        s, S = noise.shape[1:]
        rows = np.empty((len(M), s + S, s + S))
        rows[:, :s, s:] = 0
        rows[:, :s, :s], rows[:, s:, :s] = G.swapaxes(1, 2), noise.swapaxes(1, 2)
        rows[:, s:, s:] = symkron(M).swapaxes(1, 2)
        return FrozenSteps(M, rows)

    @property
    def noise(self) -> Floats:
        """D as a matrix on svec(v v^T) : (M, s, S)."""
        s = _size(self.M)
        return self.rows[:, s:, :s].swapaxes(1, 2)

    def then(self, later: FrozenSteps) -> FrozenSteps:
        """These steps, and then those."""
        s, a, b = _size(self.M), self.rows, later.rows
        rows = np.empty_like(a)
        rows[:, :s, s:] = 0
        np.matmul(a[:, :s, :s], b[:, :s, :s], out=rows[:, :s, :s])
        np.matmul(a[:, s:], b[:, :, :s], out=rows[:, s:, :s])
        np.matmul(a[:, s:, s:], b[:, s:, s:], out=rows[:, s:, s:])
        return FrozenSteps(later.M @ self.M, rows)


def _size(M: Floats) -> int:
    """s for the M of frozen steps."""
    n = M.shape[1]
    return n * (n - 1) // 2


Steps = TypeVar("Steps", LocalSteps, FrozenSteps)
Kept = TypeVar("Kept")


def one_step(moments: Moments, eta: float, tables: slice = slice(None)) -> LocalSteps:
    """A single local step of some tables, w = (u, x, 1)."""
    d, (G, noise) = moments.dim, _second_moments(moments, eta, tables)
    M = np.tile(np.eye(2 * d + 1), (len(G), 1, 1))
    M[:, :d, :d] -= eta * moments.A_bar[tables]
    M[:, :d, d:] += eta * np.eye(d, d + 1)
    return LocalSteps.of(M, G, noise)


def frozen_step(moments: Moments, eta: float, x: Floats, tables: slice = slice(None)) -> FrozenSteps:
    """The same with control variates x : (M, d) that never change; they go into the constant of w = (u, 1)."""
    d, (G, noise) = moments.dim, _second_moments(moments, eta, tables)
    M = np.tile(np.eye(d + 1), (len(G), 1, 1))
    M[:, :d, :d] -= eta * moments.A_bar[tables]
    M[:, :d, d] = eta * x[tables]
    return FrozenSteps.of(M, G, noise)


def _second_moments(moments: Moments, eta: float, tables: slice) -> tuple[Floats, Floats]:
    """G : (M, s, s), and D : (M, s, S) on svec(v v^T), v = (u, 1), of a single step."""
    check_size(moments.noise.shape)  # which may be a zero that takes no memory itself
    d = moments.dim
    place = np.eye(d + 1)  # (theta - centre, 1) in terms of v
    place[:d, d] = moments.offset
    noise = moments.noise[tables] @ (eta**2 * symkron(place))
    return symkron(np.eye(d) - eta * moments.A_bar[tables]) + noise[..., within(d, d + 1)], noise


def repeated(
    m: Moments, H: int, step: Callable[[slice], Steps], keep: Callable[[slice, Steps], Kept]
) -> tuple[Kept, ...]:
    """What `keep` says of H times the step of some tables, in O(log H) products, for one part of them after the other.

    A part stays in the cache. Threads share the parts, and there are as many for any number of threads.
    """
    tables = len(m.A_bar)
    parts = 2 * math.ceil(tables / tuning.TABLES_AT_ONCE / 2) if m.noise.size > tuning.THREADS_FROM and H > 1 else 1
    found = dict[int, Kept]()

    def work(begin: int, end: int) -> None:
        for i in range(begin, end):
            part = slice(tables * i // parts, tables * (i + 1) // parts)
            one = step(part)
            found[i] = keep(part, repeat(one, H, type(one).then))

    threads = min(cores(), parts)
    share(work, [parts * i // threads for i in range(threads + 1)])  # products of arrays let go of the lock
    return tuple(found[i] for i in range(parts))


def local_maps(m: Moments, H: int, step: Callable[[slice], Steps]) -> tuple[Floats, Floats]:
    """M : (M, n, n) and the noise : (M, s, S) of H times the step of each table."""
    M, noise = zip(*repeated(m, H, step, lambda _, steps: (steps.M, steps.noise)), strict=True)
    return np.concatenate(M), np.concatenate(noise)


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

    @property
    def noiseless(self) -> FedLSARound:
        """What it does to means."""
        return FedLSARound(self.mean)

    def added(self, u: Floats) -> Floats:
        """svec of the covariance that a round adds for a known u : (s,)."""
        assert self.noise is not None
        return np.asarray(self.noise @ squares(np.append(u, 1.0)), np.float64)

    @cached_property
    def steps(self) -> FrozenSteps:
        """The round, if it has noise, as steps of one table, which compose."""
        assert self.noise is not None
        return FrozenSteps.of(self.mean[None], self.own[None], self.noise[None])


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
    share = moments.count * weight
    square = np.bincount(moments.table, share * weight, len(moments.A_bar))

    def step(part: slice) -> FrozenSteps:
        return frozen_step(moments, eta, x, part)

    def keep(part: slice, steps: FrozenSteps) -> tuple[Floats, Floats]:
        return steps.M, np.tensordot(square[part], steps.noise, 1)

    maps, noises = zip(*repeated(moments, H, step, keep), strict=True)
    M = np.concatenate(maps)[moments.table]
    noise = with_upload_noise(np.sum(noises, axis=0), d, upload_noise * math.sqrt(square.sum()))
    mean = np.tensordot(share, M, 1)
    if m < N:
        moved = weight[:, None, None] * (M - np.eye(d + 1))[:, :d]
        moved = moved - np.tensordot(moments.count / N, moved, 1)
        draw = np.tensordot(moments.count, symkron(moved), 1)
        noise = N / m * noise + N * (N - m) / (m * (N - 1)) * draw
    return FedLSARound(mean, noise)


def fedlsa_curve(step: FedLSARound, u: Floats, rounds: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """E[u] : (R, d) and E||u - E[u]||^2 : (R,) at the given rounds, from known u : (d,)."""
    d, v = len(u), np.append(u, 1.0)
    if step.noise is None:
        return powers_on(step.mean, v, rounds)[:, :d], np.zeros(len(rounds))
    C, gaps = np.zeros(len(step.own)), np.diff(rounds, prepend=0)
    mean, covariance = np.empty((len(rounds), d)), np.empty((len(rounds), len(C)))
    powers = Squares(step.steps, FrozenSteps.then)
    often = {gap: [reduce(FrozenSteps.then, powers.of(gap))] for gap in _frequent(gaps)}
    both = np.concatenate([C, squares(v)])  # svec Cov(u) and svec E[v] E[v]^T
    for i, gap in enumerate(gaps.tolist()):
        for power in often.get(gap) or powers.of(gap):
            both, v = both @ power.rows[0], power.M[0] @ v
        mean[i], covariance[i] = v[:d], both[: len(C)]
    return mean, covariance[:, np.equal(*triangle(d))].sum(1)


def _frequent(gaps: NDArray[np.int64]) -> list[int]:
    """Numbers of rounds that are gone so often that they are worth a composition of their own."""
    gap, times = np.unique(gaps[gaps > 2], return_counts=True)
    return [int(g) for g in gap[times > len(gaps) // 8]]


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
