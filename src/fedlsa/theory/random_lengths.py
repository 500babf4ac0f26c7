"""A round of Geometric(p) local steps, the same number for all agents, P(L = l) = p (1 - p)^(l - 1)."""

from __future__ import annotations

import numpy as np

from ..checks import Floats
from . import tuning
from .linear import check_accuracy, functionals, rows_of, smat, svec, symkron
from .local_steps import LocalSteps


def random_steps(one: LocalSteps, Z: Floats, p: float) -> tuple[Floats, Floats]:
    """E[kappa] / eta : (M, d, d) and svec E[w w^T] to the mean over lengths of svec Cov(u_hat | L) : (M, s, S).

    Z : (M, d, d), eta A_bar. With D the noise of one step, R = p (I - q G)^-1 D + q R symkron(M). In w = (u, z) the
    mean of a step is u' = B u + C z and z' = z, so that the blocks of R, rows of which are symmetric matrices, follow
    one from another. It is infinite where it diverges.
    """
    q, n, d = 1 - p, one.M.shape[-1], (one.M.shape[-1] - 1) // 2
    tables, s = len(one.M), d * (d + 1) // 2
    K, alone = one_less(Z, p)
    Q, none = np.asarray(np.linalg.inv(K), np.float64), np.full((tables, s, n * (n + 1) // 2), np.inf)
    B, C = one.M[:, None, :d, :d], one.M[:, None, :d, d:]
    if not np.isfinite(one.rows).all():
        return Q, none
    D = functionals(one.noise, n)
    whole = alone - q * rows_of(D[..., :d, :d])  # I - q G
    try:
        sums = np.linalg.inv(whole)
    except np.linalg.LinAlgError:
        sums = np.full_like(whole, np.inf)
    condition = np.linalg.norm(whole, axis=(1, 2)) * np.linalg.norm(sums, axis=(1, 2))
    check_accuracy(float(np.finfo(np.float64).eps * condition.max()), f"rounds of {1 / p:.0e} steps in the mean")
    if not np.linalg.eigvalsh(smat(sums @ svec(np.eye(d)), d)).min() > 0:  # a sum of positive maps is positive
        return Q, none
    E = p * (sums @ D.reshape(tables, s, n * n)).reshape(D.shape)
    uu, B_t = functionals(over(rows_of(E[..., :d, :d]), alone), d), B.swapaxes(-1, -2)
    uz = np.linalg.solve(K.swapaxes(-1, -2)[:, None], E[..., :d, d:] + q * B_t @ uu @ C)
    half = C.swapaxes(-1, -2) @ (uu @ C / 2 + uz)
    R = np.empty_like(D)
    R[..., :d, :d], R[..., :d, d:], R[..., d:, :d] = uu, uz, uz.swapaxes(-1, -2)
    R[..., d:, d:] = (E[..., d:, d:] + q * (half + half.swapaxes(-1, -2))) / p
    return Q, rows_of(R)


def one_less(Z: Floats, p: float) -> tuple[Floats, Floats]:
    """I - q B and I - q symkron(B) for B = I - Z, Z : (M, d, d), where neither p nor Z is rounded beside 1."""
    one, size = np.eye(Z.shape[-1]), max(float(np.abs(Z).max()), 1e-300)
    linear = size / 2 * (symkron(one + Z / size) - symkron(one - Z / size))
    s = linear.shape[-1]
    return p * one + (1 - p) * Z, np.asarray(p * np.eye(s) + (1 - p) * (linear - symkron(Z)), np.float64)


def shared_length(Z: Floats, p: float) -> tuple[Floats, Floats] | None:
    """What a common length L adds to the covariance of two agents' u_hat; None if it diverges.

    With B = I - Z, Z = eta A_bar, an agent's mean path is u_hat = u + eta sum_{h < L} B^h q:

        Cov_L(u_hat, u_hat') = Y = sum_j C^j X C'^jT,   C = (1 - p)^(1/2) B,
        X = eta^2 p (1 - p) Psi q q'^T Psi'^T,   Psi = B (I - (1 - p) B)^-1.

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


def over(B: Floats, K: Floats) -> Floats:
    """B K^-1 for each table."""
    return np.asarray(np.linalg.solve(K.swapaxes(-1, -2), B.swapaxes(-1, -2)).swapaxes(-1, -2), np.float64)
