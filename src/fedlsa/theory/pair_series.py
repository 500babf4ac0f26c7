"""Sums over all pairs of groups without going through the pairs.

The Stein equation of lyapunov.py has the solution

    W_kl = sum_n F_k^n (R_k B_l^T + B_k R_l^T) F_l^nT,

each term of which has its k and its l apart. So sum_l w_l W_lk, all that the equation for S needs, takes K times as
many products as there are terms. What is left out after n terms is F_k^n W_kl F_l^nT, bounded by norms of powers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import Floats
from . import tuning


@dataclass(frozen=True, eq=False)
class PairSeries:
    """w_l W_lk summed over all other agents, for an agent of each group, as a linear function of R : (K, d, d).

    spread : (n d, K d), t_k F_k^n, t the total weight of a group; gather : (n d, K d), (F_k^n B_k)^T
    own : (K, d^2, d^2), what agent k's own R_k has in the sums of others, less the pair of it with itself
    """

    spread: Floats
    gather: Floats
    own: Floats

    def sums(self, R: Floats) -> Floats:
        """(K, d, d), for R : (K, d, d)."""
        K, d, _ = R.shape
        P = (self.spread @ R.reshape(K * d, d)).reshape(-1, d, d)  # sum_l t_l F_l^n R_l
        others = P.transpose(1, 0, 2).reshape(d, -1) @ self.gather
        return others.reshape(d, K, d).transpose(1, 0, 2) + (self.own @ R.reshape(K, d * d, 1)).reshape(K, d, d)


def pair_series(F: Floats, B: Floats, total: Floats, weight: Floats) -> PairSeries | None:
    """None where powers of F fade so slowly that going through the pairs takes less.

    total, weight : (K,), of a group, and of one agent in it
    """
    K, d, _ = F.shape
    powers, last = np.broadcast_to(np.eye(d), (1, K, d, d)), F
    while not np.linalg.norm(last, axis=(1, 2)).max() <= tuning.PAIR_SERIES_POWER:
        if 2 * len(powers) > min(K, tuning.PAIR_SERIES_NUMBERS // F.size):
            return None
        powers, last = np.concatenate([powers, powers @ last]), last @ last
    n = len(powers)
    moved = powers @ B
    Q = np.einsum("k,nkij->nij", total, moved)
    crossed = (powers.transpose(1, 2, 3, 0).reshape(-1, n) @ Q.reshape(n, -1)).reshape(K, d, d, d, d)  # k, j, m, i, a
    mine = powers.transpose(1, 2, 3, 0).reshape(K, d * d, n) @ moved.transpose(1, 0, 2, 3).reshape(K, n, d * d)
    mine = mine.reshape(K, d, d, d, d)  # k, i, m, j, a: F^n R (F^n B)^T of R[m, a]
    own = crossed.transpose(0, 3, 1, 2, 4) - weight[:, None, None, None, None] * (
        mine.transpose(0, 1, 3, 2, 4) + mine.transpose(0, 3, 1, 2, 4)
    )
    spread = (total[:, None, None] * powers).transpose(0, 2, 1, 3).reshape(n * d, K * d)
    gather = np.ascontiguousarray(moved.transpose(0, 3, 1, 2)).reshape(n * d, K * d)
    return PairSeries(spread, gather, own.reshape(K, d * d, d * d))
