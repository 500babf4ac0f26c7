"""A round of methods with control variates (SCAFFLSA, Scaffnew), as one agent of each group sees it.

In centred coordinates agent c ends its local steps at u_hat_c, delta_c = u_hat_c - u away from where the round began.
With S the m of N agents that take part, drawn without replacement, the server and the control variates go on by

    u+ = u + (N / m) sum_{c in S} w_c delta_c,   x_c+ = x_c - gain 1{c in S} delta_c + gain sum_{e in S} w_e delta_e,

which is u+ = sum_c w_c u_hat_c and x_c+ = x_c + gain (u+ - u_hat_c) where all do. Given (u, x) agents are independent,
except that they share the set S and the length of the round, which Scaffnew draws. pairs.py makes the moments of all
agents from what stands here.
"""

from __future__ import annotations

import numpy as np

from ..algorithms import SCAFFLSA, Algorithm, Scaffnew
from ..checks import Floats
from . import noiseless, tuning
from .linear import check_accuracy, functionals, rows_of, smat, svec, symkron
from .local_steps import LocalSteps, local_maps, one_step, with_upload_noise
from .noiseless import NoiselessMap
from .pairs import PairMap
from .problem_moments import Moments


def round_on_pairs(m: Moments, a: Algorithm, eta: float, upload_noise: float = 0.0) -> PairMap | NoiselessMap:
    """A round of SCAFFLSA or Scaffnew at step size eta; where nothing is random, that of the means alone."""
    if isinstance(a, SCAFFLSA) and noiseless.suits(m, a.taking_part(m.n_agents)) and not upload_noise:
        return NoiselessMap(noiseless.local_powers(m), eta, a.local_steps)
    return controlled_round(m, a, eta, upload_noise)


def controlled_round(m: Moments, a: Algorithm, eta: float, upload_noise: float = 0.0) -> PairMap:
    """A round of SCAFFLSA or Scaffnew at step size eta.

    upload_noise : standard deviation per coordinate of what each agent adds to u_hat, for the average and for itself
    """
    participants = a.taking_part(m.n_agents)
    gain = participants / m.n_agents / (eta * a.mean_steps)
    if isinstance(a, Scaffnew):
        P, Q, noise, lengths = _random_steps(m, one_step(m, eta), eta, a.probability)
        return PairMap(m, gain, P, Q, with_upload_noise(noise, m.dim, upload_noise), participants, lengths)
    assert isinstance(a, SCAFFLSA)
    d, t, (M, noise) = m.dim, m.table, local_maps(m, a.local_steps, lambda part: one_step(m, eta, part))
    noise = with_upload_noise(noise, d, upload_noise)[t]
    return PairMap(m, gain, M[t, :d, :d], M[t, :d, d : 2 * d], noise, participants)


def _random_steps(
    m: Moments, one: LocalSteps, eta: float, p: float
) -> tuple[Floats, Floats, Floats, tuple[Floats, Floats] | None]:
    """P, Q, noise and lengths of Geometric(p) local steps, the same number for all agents.

    Cov(u_hat) of one agent is that of steps in the mean over lengths, and that of the mean path over lengths; it is
    infinite where it diverges.
    """
    d, n, t = m.dim, 2 * m.dim + 1, m.table
    K, alone = _one_less(eta * m.A_bar, p)
    P = np.asarray(p * np.linalg.solve(K, one.M[:, :d, :d])[t], np.float64)
    Q = np.asarray(eta * np.linalg.inv(K)[t], np.float64)
    source = eta * np.sqrt(p * (1 - p)) * _over(one.M[:, :d, :d], K)
    noise, shared = _summed(one, K, alone, p), _shared(eta * m.A_bar, p)
    if noise is None or shared is None:
        return P, Q, np.full((len(t), d * (d + 1) // 2, n * (n + 1) // 2), np.inf), None
    first = np.concatenate([-m.A_bar, np.tile(np.eye(d), (len(one.M), 1, 1)), np.zeros((len(one.M), d, 1))], 2)
    noise += np.linalg.solve(alone, symkron(source @ first))
    return P, Q, noise[t], ((shared[0] @ source)[t], shared[1][:, t])


def _one_less(Z: Floats, p: float) -> tuple[Floats, Floats]:
    """I - q B and I - q symkron(B) for B = I - Z, Z : (M, d, d), where neither p nor Z is rounded beside 1."""
    one, size = np.eye(Z.shape[-1]), max(float(np.abs(Z).max()), 1e-300)
    linear = size / 2 * (symkron(one + Z / size) - symkron(one - Z / size))
    s = linear.shape[-1]
    return p * one + (1 - p) * Z, np.asarray(p * np.eye(s) + (1 - p) * (linear - symkron(Z)), np.float64)


def _shared(Z: Floats, p: float) -> tuple[Floats, Floats] | None:
    """What a common length L adds to the covariance of two agents' u_hat, P(L = l) = p q^(l - 1); None if it diverges.

    With B = I - Z, Z = eta A_bar, an agent's mean path is u_hat = u + sum_{h < L} B^h r, r = eta (x - A_bar u):

        Cov_L(u_hat, u_hat') = Y = sum_j C^j X C'^jT,   X = p q Psi r r'^T Psi'^T,   Psi = B (I - q B)^-1,

    with C = q^(1/2) B.
    Nothing is subtracted, and no eigenvectors are needed: 2^j terms are had from the half of them, Y += Q_j Y Q_j'^T.
    The equation Y = C Y C'^T + X stays the same for any |c| < 1 when C becomes (C - c) (I - c C)^-1 and X goes through
    (1 - c^2)^(1/2) (I - c C)^-1 on both sides: with c amid the eigenvalues of C the sum has far fewer terms. They are
    spread by (1 - C) (1 + C)^-1, on which c acts as a factor. As each product is rounded, terms are digits lost.
    Returns that factor : (M, d, d) and powers : (J, M, d, d), those of the new C to 2^j. E = I - C and g = 1 - c are
    not rounded beside 1.
    """
    one, q = np.eye(Z.shape[-1]), 1 - p
    least = p / (1 + np.sqrt(q))  # of E where Z is 0
    E = least * one + np.sqrt(q) * Z
    try:
        largest = float(np.linalg.norm(np.linalg.solve(2 * one - E, E), 2, axis=(1, 2)).max())
        amid = min(1.0, np.sqrt(least / (2 - least) * largest))
        g = 2 * amid / (1 + amid)
        factor = np.linalg.inv(g * one + (1 - g) * E)
    except np.linalg.LinAlgError:  # an eigenvalue -1 or 1 / c of C, or no numbers
        return None
    powers = [(g * one - E) @ factor]
    for doublings in range(tuning.MAX_DOUBLINGS):
        size = np.linalg.norm(powers[-1], axis=(1, 2)).max()
        if size**2 < tuning.LENGTHS_TAIL:  # then all that this power would add is left out
            error = np.finfo(np.float64).eps * 2.0**doublings / tuning.LENGTHS_TERMS
            check_accuracy(float(error), f"rounds of {1 / p:.0e} steps in the mean")
            return np.sqrt(g * (2 - g)) * factor, np.stack(powers[: max(1, len(powers) - 1)])
        powers.append(powers[-1] @ powers[-1])
    return None


def _summed(one: LocalSteps, K: Floats, alone: Floats, p: float) -> Floats | None:
    """svec E[w w^T] to the mean over lengths of svec Cov(u_hat | L) : (M, s, S); None where it diverges.

    With D the noise of one step, R = p (I - q G)^-1 D + q R symkron(M). In w = (u, z) the mean of a step is u' = B u +
    C z and z' = z, so that the blocks of R, rows of which are symmetric matrices, follow one from another.
    """
    q, n, d = 1 - p, one.M.shape[-1], (one.M.shape[-1] - 1) // 2
    tables, s = len(one.M), d * (d + 1) // 2
    B, C = one.M[:, None, :d, :d], one.M[:, None, :d, d:]
    if not np.isfinite(one.rows).all():
        return None
    D = functionals(one.noise, n)
    whole = alone - q * rows_of(D[..., :d, :d])  # I - q G
    try:
        sums = np.linalg.inv(whole)
    except np.linalg.LinAlgError:
        sums = np.full_like(whole, np.inf)
    condition = np.linalg.norm(whole, axis=(1, 2)) * np.linalg.norm(sums, axis=(1, 2))
    check_accuracy(float(np.finfo(np.float64).eps * condition.max()), f"rounds of {1 / p:.0e} steps in the mean")
    if not np.linalg.eigvalsh(smat(sums @ svec(np.eye(d)), d)).min() > 0:  # a sum of positive maps is positive
        return None
    E = p * (sums @ D.reshape(tables, s, n * n)).reshape(D.shape)
    own = _over(rows_of(E[..., :d, :d]), alone)
    uu, B_t = functionals(own, d), B.swapaxes(-1, -2)
    uz = np.linalg.solve(K.swapaxes(-1, -2)[:, None], E[..., :d, d:] + q * B_t @ uu @ C)
    half = C.swapaxes(-1, -2) @ (uu @ C / 2 + uz)
    R = np.empty_like(D)
    R[..., :d, :d], R[..., :d, d:], R[..., d:, :d] = uu, uz, uz.swapaxes(-1, -2)
    R[..., d:, d:] = (E[..., d:, d:] + q * (half + half.swapaxes(-1, -2))) / p
    return rows_of(R)


def _over(B: Floats, K: Floats) -> Floats:
    """B K^-1 for each table."""
    return np.asarray(np.linalg.solve(K.transpose(0, 2, 1), B.transpose(0, 2, 1)).transpose(0, 2, 1), np.float64)
