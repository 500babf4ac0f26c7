"""Exact moments of FedLSA: one matrix per round, whatever the number of agents and local steps.

With v = (u, 1) and agents independent given v,

    svec E[v+ v+^T] = R svec E[v v^T],   R = symkron(sum_c w_c M_c) + sum_c w_c^2 D_c,

where M_c and D_c are the mean and the noise of H local steps (theory/local.py). Powers of R give any round, and the
stationary limit is one linear solve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from .local import frozen_step, repeated
from .moments import Moments
from .symmetric import smat, svec, symkron, within


@dataclass(frozen=True, eq=False)
class Round:
    """One round on v = (u, 1): mean : (d + 1, d + 1) maps E[v], second : (S, S) maps svec E[v v^T]."""

    mean: Floats
    second: Floats


def round_map(moments: Moments, eta: float, H: int, x: Floats, participants: int | None = None) -> Round:
    """A round of FedLSA with control variates frozen at xi = xi_star + x; x : (M, d), so -xi_star for xi = 0.

    participants : how many agents, drawn without replacement, take part; all by default. Needs equal weights.
    """
    d, N = moments.dim, moments.n_agents
    steps = repeated(frozen_step(moments, eta, x), H)
    M, D = steps.M[moments.table], steps.noise()[moments.table]
    share = moments.count * moments.weight
    mean = np.tensordot(share, M, 1)
    block = within(d, d + 1)
    second = symkron(mean)
    if participants is None or participants == N:
        second[block] += np.tensordot(share * moments.weight, D, 1)
    else:
        m, alone = participants, symkron(M)[:, block]  # E[u u^T] of each agent by itself, given v
        pair = m * (m - 1) / (N * (N - 1)) if N > 1 else 0.0
        apart = N**2 * second[block] - np.tensordot(moments.count, alone, 1)
        together = np.tensordot(moments.count, alone + D, 1)
        second[block] = (m / N * together + pair * apart) / m**2
    return Round(mean, second)


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


def limit(step: Round) -> tuple[Floats, Floats, float]:
    """E[u] : (d,), E[u u^T] : (d, d) as t goes to infinity, and the mean-square radius of a round.

    The radius is that of svec E[u u^T] alone; where it is not below one, the second moment is infinite.
    """
    d = len(step.mean) - 1
    block = within(d, d + 1)
    own = step.second[np.ix_(block, block)]
    radius = float(np.abs(np.linalg.eigvals(own)).max())
    if not radius < 1:
        with np.errstate(all="ignore"):
            stable = np.abs(np.linalg.eigvals(step.mean[:d, :d])).max() < 1
        nowhere = np.full(d, np.nan)
        return _fixed_point(step.mean) if stable else nowhere, np.full((d, d), np.inf), radius
    mean = _fixed_point(step.mean)
    known = smat(np.zeros(step.second.shape[0]), d + 1)
    known[:d, d] = known[d, :d] = mean
    known[d, d] = 1
    source = (step.second @ svec(known))[block]
    second = np.asarray(np.linalg.solve(np.eye(len(block)) - own, source), np.float64)
    return mean, smat(second, d), radius


def mean_limit(mean: Floats) -> tuple[Floats, Floats, float]:
    """The same from the mean of a round, (d + 1, d + 1), where nothing is random."""
    d = len(mean) - 1
    radius = float(np.abs(np.linalg.eigvals(mean[:d, :d])).max()) ** 2
    if not radius < 1:
        return np.full(d, np.nan), np.full((d, d), np.inf), radius
    u = _fixed_point(mean)
    return u, np.outer(u, u), radius


def _fixed_point(mean: Floats) -> Floats:
    """The u with mean (u, 1) = (u, 1)."""
    d = len(mean) - 1
    return np.asarray(np.linalg.solve(np.eye(d) - mean[:d, :d], mean[:d, d]), np.float64)
