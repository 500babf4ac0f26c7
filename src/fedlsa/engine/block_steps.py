"""Local steps on rank-one observations in NumPy, many at a time: a short run ends before an engine could be compiled.

Steps theta_i+1 = rho theta_i - e_i s_i + eta xi, with rho = 1 - eta ridge, e_i = eta u_i and s_i = v_i^T theta_i - y_i,
are followed for a block of them: theta_i = rho^i theta_0 + (1 + ... + rho^(i-1)) eta xi - sum_j<i rho^(i-1-j) e_j s_j.
Put into the s_i this is a triangular system for all of them, solved in the order of the steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsv

from ..checks import Floats
from ..problems import Problem, RankOne
from ..sampling import Replay, Sampling
from .outcome_tables import OutcomeTables
from .random import OBSERVATION, choose_all, words
from .reference import Integers, LocalSteps

BLOCK = 64  # steps that are solved for at once: with more, the products of their rows outweigh the calls
BLOCKS_AT_ONCE = 128  # whose products are held: 4 MB


def block_steps(problem: Problem, sampling: Sampling, outcomes: OutcomeTables, seed: int) -> LocalSteps:
    """Those of `reference.observed_steps` up to rounding, for rank-one observations, independent or replayed."""
    z, received = problem.observations, np.zeros(problem.n_agents, np.int64)
    assert isinstance(z, RankOne)

    def walk(theta: Floats, xi: Floats, active: Integers, eta: Any, moments: Integers) -> Floats:
        out = np.full((len(xi), len(moments), len(theta)), np.nan)
        for c in active:
            theta_hat, done, m = theta, 0, int(problem.assignment[c])
            for k, until in enumerate(moments):
                while done < until:
                    left = int(until - done)  # whole blocks, and then what remains
                    n = min(left // BLOCK, BLOCKS_AT_ONCE) * BLOCK or left
                    drawn = outcomes.order[_outcomes(sampling, outcomes, seed, int(c), m, int(received[c]), n)]
                    u, v = (z.rows[side[drawn]].reshape(-1, min(n, BLOCK), problem.dim) for side in (z.left, z.right))
                    y = z.y[drawn].reshape(u.shape[:2])
                    theta_hat = _solve_blocks(theta_hat, xi[c], float(eta), z.ridge, u, v, y)
                    done, received[c] = done + n, received[c] + n
                out[c, k] = theta_hat
        return out

    return walk


def _outcomes(
    sampling: Sampling, t: OutcomeTables, seed: int, agent: int, table: int, first: int, count: int
) -> NDArray[np.int64]:
    """Which outcomes an agent receives as its observations first, ..., first + count - 1."""
    if isinstance(sampling, Replay):
        return np.asarray(t.row[table] + np.arange(first, first + count) % t.length[table])
    word, shift = words(seed, agent, OBSERVATION, first, count).astype(np.int64), t.shift[table]
    entry = t.slots[t.slot[table] + (word >> shift)].astype(np.int64)
    return np.asarray(t.row[table] + choose_all(word, entry, shift))


def _solve_blocks(theta: Floats, xi: Floats, eta: float, ridge: float, u: Floats, v: Floats, y: Floats) -> Floats:
    """theta after blocks of steps on u, v : (blocks, n, d) and y : (blocks, n)."""
    n = u.shape[1]
    powers = (1 - eta * ridge) ** np.arange(n + 1)
    sums, ahead = np.append(0, np.cumsum(powers[:-1])), np.arange(n)[:, None] - 1 - np.arange(n)
    e = eta * u
    products = v @ e.transpose(0, 2, 1)  # of which what stands below the diagonal is read
    if ridge:
        products *= powers[np.maximum(ahead, 0)]
    known = sums[:-1] * (eta * (v @ xi)) - y
    e *= powers[n - 1 :: -1, None]
    pull, kept, last = sums[-1] * eta * xi, powers[-1], powers[:-1]
    for row, direction, product, rest in zip(v, e, products, known, strict=True):
        s = dtrsv(product.T, last * (row @ theta) + rest, lower=0, trans=1, diag=1)
        theta = kept * theta - s @ direction + pull
    return theta
