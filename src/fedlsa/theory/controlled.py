"""A round of methods with control variates (SCAFFLSA, Scaffnew), as one agent of each group sees it.

In centred coordinates agent c ends its local steps at u_hat_c, delta_c = u_hat_c - u away from where the round began.
With S the m of N agents that take part, drawn without replacement, the server and the control variates go on by

    u+ = u + (N / m) sum_{c in S} w_c delta_c,   x_c+ = x_c - gain 1{c in S} delta_c + gain sum_{e in S} w_e delta_e,

which is u+ = sum_c w_c u_hat_c and x_c+ = x_c + gain (u+ - u_hat_c) where all do. Given (u, x) agents are independent,
except that they share the set S and the length of the round, which Scaffnew draws. theory/pairs.py makes the moments of
all agents from what stands here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..algorithms import SCAFFLSA, Algorithm, Scaffnew
from ..checks import Floats
from . import tuning
from .linear import check_accuracy
from .local_steps import LocalSteps, one_step, repeated
from .moments import Moments
from .symmetric import functionals, rows_of, smat, svec, symkron


@dataclass(frozen=True, eq=False)
class SharedLength:
    """What a common length L adds to the covariance of two agents' u_hat, P(L = l) = p q^(l - 1).

    With B = I - eta A_bar an agent's mean path is u_hat = u + sum_{h < L} B^h r, r = eta (x - A_bar u) its first step:

        Cov_L(u_hat, u_hat') = Y = sum_j q^j B^j X B'^jT,   X = p q Psi r r'^T Psi'^T,   Psi = B (I - q B)^-1.

    Nothing is subtracted, and no eigenvectors are needed: 2^j terms are had from the half of them, Y += Q_j Y Q_j'^T.
    source : (K, d, d) = eta (p q)^(1/2) Psi, of x - A_bar u; powers : (J, K, d, d), Q_j = (q^(1/2) B)^(2^j)
    """

    source: Floats
    powers: Floats


@dataclass(frozen=True, eq=False)
class ControlledRound:
    """What a round does to an agent of each group that takes part in it: in the mean, u_hat = P u + Q x.

    gain : m / N times that of the method
    P, Q : (K, d, d); noise : (K, s, S), svec E[w w^T] of one agent, w = (u, x, 1), to svec Cov(u_hat) given w
    cross : what a common length adds to two agents; None when the length of the round is known
    participants : m
    """

    moments: Moments
    gain: float
    P: Floats
    Q: Floats
    noise: Floats
    participants: int
    cross: SharedLength | None = None

    @property
    def sampled(self) -> tuple[float, float]:
        """By how much E[1_c 1_e] N^2 / m^2 exceeds one, for c = e and for two different agents."""
        N, m = self.moments.n_agents, self.participants
        return (N - m) / m, -(N - m) / (m * (N - 1)) if N > 1 else 0.0


def controlled_round(m: Moments, a: Algorithm, eta: float) -> ControlledRound:
    """A round of SCAFFLSA or Scaffnew at step size eta."""
    taking_part = a.taking_part(m.n_agents)
    if isinstance(a, Scaffnew):
        return geometric_round(m, eta, a.probability, a.probability / eta, taking_part)
    assert isinstance(a, SCAFFLSA)
    return fixed_round(m, eta, a.local_steps, 1 / (eta * a.local_steps), taking_part)


def fixed_round(moments: Moments, eta: float, H: int, gain: float, participants: int | None = None) -> ControlledRound:
    """A round of H local steps (SCAFFLSA); all agents take part by default."""
    steps = repeated(one_step(moments, eta), H)
    d, N = moments.dim, moments.n_agents
    m = N if participants is None else participants
    P, Q = steps.M[moments.table, :d, :d], steps.M[moments.table, :d, d : 2 * d]
    return ControlledRound(moments, gain * m / N, P, Q, steps.noise()[moments.table], m)


def geometric_round(
    moments: Moments, eta: float, p: float, gain: float, participants: int | None = None
) -> ControlledRound:
    """A round of Geometric(p) local steps, the same number for all agents (Scaffnew); noise is infinite if it diverges.

    Cov(u_hat) of one agent is that of steps in the mean over lengths, and that of the mean path over lengths.
    """
    d, n, t = moments.dim, 2 * moments.dim + 1, moments.table
    one, m = one_step(moments, eta), moments.n_agents if participants is None else participants
    K, alone = _one_less(eta * moments.A_bar, p)
    P = np.asarray(p * np.linalg.solve(K, one.M[:, :d, :d])[t], np.float64)
    Q = np.asarray(eta * np.linalg.inv(K)[t], np.float64)
    k = gain * m / moments.n_agents
    noise, shared = _summed(one, K, alone, p), _shared(one.M[:, :d, :d], K, eta, p)
    if noise is None or shared is None:
        return ControlledRound(moments, k, P, Q, np.full((len(t), len(one.G[0]), n * (n + 1) // 2), np.inf), m)
    first = np.concatenate([-moments.A_bar, np.tile(np.eye(d), (len(one.M), 1, 1)), np.zeros((len(one.M), d, 1))], 2)
    noise += np.linalg.solve(alone, symkron(shared.source @ first))
    return ControlledRound(moments, k, P, Q, noise[t], m, SharedLength(shared.source[t], shared.powers[:, t]))


def _one_less(Z: Floats, p: float) -> tuple[Floats, Floats]:
    """I - q B and I - q symkron(B) for B = I - Z, Z : (M, d, d), where neither p nor Z is rounded beside 1."""
    one, size = np.eye(Z.shape[-1]), max(float(np.abs(Z).max()), 1e-300)
    linear = size / 2 * (symkron(one + Z / size) - symkron(one - Z / size))
    s = linear.shape[-1]
    return p * one + (1 - p) * Z, np.asarray(p * np.eye(s) + (1 - p) * (linear - symkron(Z)), np.float64)


def _shared(B: Floats, K: Floats, eta: float, p: float) -> SharedLength | None:
    """Of each table, with K = I - q B; None where sums over lengths diverge."""
    q = 1 - p
    source = eta * np.sqrt(p * q) * _over(B, K)
    powers = [np.sqrt(q) * B]
    for _ in range(tuning.MAX_DOUBLINGS):
        size = np.linalg.norm(powers[-1], axis=(1, 2)).max()
        if size**2 < tuning.LENGTHS_TAIL:
            return SharedLength(source, np.stack(powers))
        powers.append(powers[-1] @ powers[-1])
    return None


def _summed(one: LocalSteps, K: Floats, alone: Floats, p: float) -> Floats | None:
    """svec E[w w^T] to the mean over lengths of svec Cov(u_hat | L) : (M, s, S); None where it diverges.

    With D the noise of one step, R = p (I - q G)^-1 D + q R symkron(M). In w = (u, z) the mean of a step is u' = B u +
    C z and z' = z, so that the blocks of R, rows of which are symmetric matrices, follow one from another.
    """
    q, n, d = 1 - p, one.M.shape[-1], (one.M.shape[-1] - 1) // 2
    tables, s = one.G.shape[:2]
    B, C = one.M[:, None, :d, :d], one.M[:, None, :d, d:]
    if not np.isfinite(one.G).all():
        return None
    whole = alone - q * rows_of(one.D[..., :d, :d])  # I - q G
    try:
        sums = np.linalg.inv(whole)
    except np.linalg.LinAlgError:
        sums = np.full_like(one.G, np.inf)
    condition = np.linalg.norm(whole, axis=(1, 2)) * np.linalg.norm(sums, axis=(1, 2))
    check_accuracy(float(np.finfo(np.float64).eps * condition.max()), f"rounds of {1 / p:.0e} steps in the mean")
    if not np.linalg.eigvalsh(smat(sums @ svec(np.eye(d)), d)).min() > 0:  # a sum of positive maps is positive
        return None
    E = p * (sums @ one.D.reshape(tables, s, n * n)).reshape(one.D.shape)
    own = _over(rows_of(E[..., :d, :d]), alone)
    uu, B_t = functionals(own, d), B.swapaxes(-1, -2)
    uz = np.linalg.solve(K.swapaxes(-1, -2)[:, None], E[..., :d, d:] + q * B_t @ uu @ C)
    half = C.swapaxes(-1, -2) @ (uu @ C / 2 + uz)
    R = np.empty_like(one.D)
    R[..., :d, :d], R[..., :d, d:], R[..., d:, :d] = uu, uz, uz.swapaxes(-1, -2)
    R[..., d:, d:] = (E[..., d:, d:] + q * (half + half.swapaxes(-1, -2))) / p
    return rows_of(R)


def _over(B: Floats, K: Floats) -> Floats:
    """B K^-1 for each table."""
    return np.asarray(np.linalg.solve(K.transpose(0, 2, 1), B.transpose(0, 2, 1)).transpose(0, 2, 1), np.float64)
