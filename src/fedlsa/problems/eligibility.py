"""Ratios, traces and emphasis: which state an outcome credits, and with what weight.

Emphatic off-policy TD(lambda) has, in the place of phi(s) of TD(0), the trace e of a transition (s, a, s'):

    rho = pi(a|s) / behaviour(a|s),  F = 1 + gamma rho' F',  e = rho (gamma lambda e' + (lambda + (1 - lambda) F) phi),

with rho', F' and e' of the transition before, or 0 where an episode begins; without emphasis, F = 1. Neither the
followon trace F nor e takes finitely many values. A table has observations of the same mean instead:

- In the place of F stands its mean in the state s, f(s) / mu(s) with f = (I - gamma P_pi^T)^{-1} mu.
- In the place of e stands one state m of the episode: with probability gamma lambda it is kept when the chain moves on,
  else the new state takes its place. So m lies k steps back with probability (1 - gamma lambda) (gamma lambda)^k, and
  u = phi(m) / (1 - gamma lambda) has the mean e, given the trajectory; m is empty, and u = 0, with the probability
  that lies before the episode. The pairs (m, s) are a finite chain. Their noise is larger than that of e.
- In the place of the product of the ratios from m to s stands its mean over the ways from m to s, a quotient of the
  visits (I - gamma lambda P)^{-1} of the two policies.

So A_bar, b_bar, theta_star and xi_star are those of the method; noise and trajectories are those of these observations.
P counts transitions of the behaviour that end nothing, and P_pi those of the policy; mu is the law of the behaviour.
"""

from __future__ import annotations

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import PrecisionError
from .edges import Trajectories
from .system import Integers, Problem, RankOne

TOLERANCE = 1e-8  # relative, of expected numbers of visits
LEFT_OUT = 1e-60  # the largest term of a series of visits that is left out
MOST_STEPS = 2**50  # that are summed over: beyond, rounding has taken every digit


def weighted_differences(on: Trajectories, discount: float, trace: float, emphatic: bool) -> Problem:
    """The federated problem of TD(trace) with the ratios of the edges, with or without emphasis."""
    edges, phi, (M, S) = on.edges, on.features, on.mu.shape
    t, decay = edges.table, discount * trace
    rho = np.ones(len(t)) if edges.ratio is None else edges.ratio
    kernel, kernel_pi = (_continuing(on, chance) for chance in (edges.conditional, edges.conditional * rho))
    weight, k = np.ones((M, S + 1, 1)), np.arange(len(t))  # of a credited state; the last one is none
    if emphatic:
        lived_in = on.mu > 0  # elsewhere a followon trace has no mean
        followon = np.einsum("ms,mst->mt", on.mu, _visits(discount * kernel_pi * lived_in[:, :, None]))
        weight[:, :S, 0][lived_in] = trace + (1 - trace) * followon[lived_in] / on.mu[lived_in]
    rows, right = on.differences(discount)
    chain, credited = on, edges.origin
    if decay > 0:
        visits = _visits(decay * kernel)
        visits_pi = visits if edges.ratio is None else _visits(decay * kernel_pi)
        if (visits_pi[visits == 0] > np.finfo(np.float64).eps).any():
            raise PrecisionError("behaviour must do what policy does more often than with probability 1e-300; got less")
        quotient = np.divide(visits_pi, visits, out=np.zeros_like(visits), where=visits > 0) / (1 - decay)
        weight = weight * np.concatenate([quotient, np.zeros((M, 1, S))], axis=1)
        chain, k = _pairs(on, visits, decay)
        credited = chain.edges.origin // S
    factor = weight[t[k], credited, edges.origin[k] % weight.shape[2]] * rho[k]
    used, left = np.unique(credited + 1j * factor, return_inverse=True)  # a row for each state and weight
    u = used.imag[:, None] * np.vstack([phi, np.zeros_like(phi[:1])])[used.real.astype(np.int64)]
    z = RankOne(np.concatenate([rows, u]), np.uint32(len(rows)) + left.astype(np.uint32), right[k], edges.y[k])
    return chain.problem(z, discount=discount, trace=trace, off_policy=edges.ratio is not None or emphatic)


def _pairs(on: Trajectories, visits: Floats, decay: float) -> tuple[Trajectories, Integers]:
    """The chain of pairs (m, s), numbered m S + s, with m = S where no state is credited; and the edge of each move."""
    edges, (M, S) = on.edges, on.mu.shape
    table, ends = edges.table, edges.ends
    begins = np.bincount(
        (table * S + edges.successor)[ends], (on.mu[table, edges.origin] * edges.conditional)[ends], M * S
    )
    empty = decay * np.einsum("ms,mst->mt", begins.reshape(M, S), visits)
    law = np.concatenate([(1 - decay) * on.mu[:, :, None] * visits, empty[:, None]], axis=1)
    restarts = np.bincount(table, ends, M) > 0
    possible = np.concatenate([visits > 0, np.broadcast_to(restarts[:, None, None], (M, 1, S))], axis=1)
    moves = 2 * int(possible.sum(axis=1)[table, edges.origin].sum())
    checks.memory("transitions, with every state that can be credited,", moves, 200, "each of them")
    k, m = np.nonzero(possible[table, :, edges.origin])
    s_next = edges.successor[k]
    kept = np.where(ends[k], S, m)
    kept = np.where(possible[table[k], kept, s_next], kept, s_next)  # what underflows does not happen
    k, kept = np.tile(k, 2), np.concatenate([kept, s_next])
    moved = edges.at(k)._replace(
        origin=np.tile(m, 2) * S + edges.origin[k],
        successor=kept * S + edges.successor[k],
        conditional=np.repeat([decay, 1 - decay], len(m)) * edges.conditional[k],
    )
    order = np.lexsort([moved.origin, moved.table])
    return on._replace(edges=moved.at(order), mu=law.reshape(M, -1)), k[order]


def _continuing(on: Trajectories, chance: Floats) -> Floats:
    """(M, S, S): kernels of the transitions that end nothing."""
    (M, S), edges = on.mu.shape, on.edges
    flat = (edges.table * S + edges.origin) * S + edges.successor
    out = np.bincount(flat, np.where(edges.ends, 0.0, chance), M * S * S)
    return np.asarray(out.reshape(M, S, S), np.float64)


def _visits(kernel: Floats) -> Floats:
    """(M, S, S): (I - K)^{-1} = I + K + K^2 + ..., without a subtraction, so that small entries keep their digits."""
    total, power, steps = np.eye(kernel.shape[1]) + kernel, kernel @ kernel, 2
    while steps < kernel.shape[1] or (power.max() > LEFT_OUT and steps < MOST_STEPS):
        total, power, steps = total + power @ total, power @ power, 2 * steps
    residual = np.abs(total - np.eye(kernel.shape[1]) - kernel @ total)
    error = np.divide(total @ residual, total, out=np.zeros_like(total), where=total > 0).max()
    if not error <= TOLERANCE:
        rule = f"expected numbers of visits must be known to {TOLERANCE:g}"
        raise PrecisionError(f"{rule}; got an error of {error:.2g}, where episodes are too long")
    return total
