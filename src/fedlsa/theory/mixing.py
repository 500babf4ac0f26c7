"""The constants of trajectories (sec:proof_markov_sampling): mixing times, and Lyapunov matrices.

An observation is z = (s, a, s'), and the next one starts in s'. So k >= 1 steps after z the law of the observation is
that of a chain of states k - 1 steps after s', and two such laws are as far apart as the laws of their states:

    d(k) = max_{z, z'} TV(Q^k(. | z), Q^k(. | z')) = max_{s, s'} TV(P^{k-1}(. | s), P^{k-1}(. | s')).

d never grows and d(j + k) <= d(j) d(k): the least tau with d(k) <= (1/4)^{floor(k / tau)} for all k
(eq:drift-condition-main) is the least with d(tau) <= 1/4.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..value_objects import Displayed, ReadOnly
from .problem_constants import constants, kept

PERIODIC_FROM = 2**40  # steps: a chain that has not mixed by then counts as periodic


@dataclass(frozen=True, eq=False, repr=False)
class MarkovConstants(Displayed, ReadOnly):
    """The constants of trajectories (assum:P_pi_ergodicity).

    They are those of eq:condition_number_contraction_rates and eq:alpha_infty_makov. Arrays have one entry per agent.
    NaN stands for what does not exist, where some -A_bar_c is not Hurwitz, or where floating-point numbers cannot tell.

    tau_mix_local : (N,) mixing time of each agent's chain of observations; inf if periodic
    Q : (N, d, d) with A_bar^T Q + Q A_bar = I (eq:Lyapunov)
    a_local : (N,) ||Q_c||^-1 / 2
    eta_tilde_inf_local : (N,) largest step size with which the mean step of each agent contracts
    kappa_Q_local : (N,) condition number of Q_c
    tau_mix : the longest mixing time of an agent, in observations
    kappa_Q : the largest condition number of an agent's Q
    a_tilde : the slowest rate of an agent
    eta_tilde_inf : the smallest of the agents' largest step sizes
    b_Q : 2 kappa_Q^{1/2} C_A
    C_A : the largest matrix, sup_z ||A(z)||
    C_Gamma : the factor of lem:matr_product_upd
    c_A_M : a_tilde / (12 C_Gamma)
    eta_inf_M : largest step size of lem:matr_product_upd
    """

    tau_mix_local: Floats
    Q: Floats = field(repr=False)
    a_local: Floats = field(repr=False)
    eta_tilde_inf_local: Floats = field(repr=False)
    kappa_Q_local: Floats = field(repr=False)
    tau_mix: float
    kappa_Q: float
    a_tilde: float
    eta_tilde_inf: float
    b_Q: float
    C_A: float
    C_Gamma: float
    c_A_M: float
    eta_inf_M: float


def markov_constants(problem: Problem) -> MarkovConstants:
    """Every constant of the Markovian case; the problem must have been made from chains, and keeps them."""
    return kept(problem, "_markov_constants", _computed)


def _computed(problem: Problem) -> MarkovConstants:
    tau, A_bar, each, held = mixing_times(problem), problem.table_A_bar, problem.assignment, problem.table_weights > 0
    Q, (norm, kappa, weighted) = np.stack([lyapunov_matrix(A) for A in A_bar]), np.full((3, len(A_bar)), np.nan)
    for m in np.flatnonzero(np.isfinite(Q).all(axis=(1, 2))):
        spectrum = np.linalg.eigvalsh(Q[m])
        root = np.linalg.cholesky(Q[m]).T  # ||x||_Q = ||root x||
        norm[m], kappa[m] = spectrum[-1], spectrum[-1] / spectrum[0]
        weighted[m] = np.linalg.norm(root @ A_bar[m] @ np.linalg.inv(root), 2)
    a, eta_tilde = 1 / (2 * norm), np.minimum(1 / (2 * weighted**2 * norm), norm)
    C_A, kappa_Q, a_tilde = constants(problem).A_sup, float(kappa[held].max()), float(a[held].min())
    eta_tilde_inf, root_kappa = float(eta_tilde[held].min()), math.sqrt(kappa_Q)
    blocks = float(np.ceil(8 * root_kappa * C_A / a_tilde))
    C_Gamma = 4 * (root_kappa * C_A + a_tilde / 6) ** 2 * blocks
    c_A_M = a_tilde / (12 * C_Gamma)
    small = np.min([eta_tilde_inf, 1 / (root_kappa * C_A), a_tilde / (6 * math.e * kappa_Q * C_A)])
    return MarkovConstants(
        tau_mix_local=tau[each],
        Q=Q[each],
        a_local=a[each],
        eta_tilde_inf_local=eta_tilde[each],
        kappa_Q_local=kappa[each],
        tau_mix=float(tau[held].max()),
        kappa_Q=kappa_Q,
        a_tilde=a_tilde,
        eta_tilde_inf=eta_tilde_inf,
        b_Q=2 * root_kappa * C_A,
        C_A=C_A,
        C_Gamma=C_Gamma,
        c_A_M=c_A_M,
        eta_inf_M=float(np.minimum(small / blocks, c_A_M / 2)),
    )


def mixing_times(problem: Problem) -> Floats:
    """tau_mix of each table's chain of observations (eq:drift-condition-main), (M,); inf for a periodic chain.

    problem : one of fl.problems, made of chains

    The chain lives where its stationary law does: transient states do not count.
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    chain, times = problem.chain, []
    if chain is None:
        raise ArgumentError("problem must have been made from chains (from_mdps, garnet) to have a mixing time")
    for span, a, b in zip(problem.spans(), chain.first_state[:-1], chain.first_state[1:], strict=True):
        recurrent = chain.stationary[a:b] > 0
        checks.memory("the states of a chain", int(b - a), 16 * int(b - a), "its kernel, written out")
        P = np.zeros((b - a, b - a))
        np.add.at(P, (chain.origin[span], chain.successor[span]), chain.conditional[span])
        times.append(_mixing_time(P[np.ix_(recurrent, recurrent)]))
    return np.array(times)


def _mixing_time(P: Floats) -> float:
    """The least k >= 1 with d(k) <= 1/4, by doubling and bisection."""
    from scipy.spatial.distance import pdist  # slow to load, and few bounds need it

    if len(P) == 1:
        return 1.0
    powers = [P]  # P^(2^i)
    while pdist(powers[-1], "cityblock").max() / 2 > 0.25:
        if 2 ** len(powers) > PERIODIC_FROM:
            return math.inf
        square = powers[-1] @ powers[-1]
        powers.append(square / square.sum(axis=1, keepdims=True))  # or rounding errors in the sums would double
    steps, reached = 0, np.eye(len(P))  # P^steps is still too far; grow it greedily
    for i in reversed(range(len(powers))):
        further = reached @ powers[i]
        if pdist(further, "cityblock").max() / 2 > 0.25:
            steps, reached = steps + 2**i, further
    return float(steps + 2)  # P^(steps + 1) is near enough, and d(k) looks at P^(k - 1)


def lyapunov_matrix(A: Floats) -> Floats:
    """Q with A^T Q + Q A = I (eq:Lyapunov); NaN unless -A is Hurwitz and floating-point numbers can tell."""
    nowhere = np.full_like(A, np.nan)
    if np.linalg.eigvals(A).real.min() <= 0:
        return nowhere
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of SciPy, where the equation is nearly singular
        Q = np.asarray(scipy.linalg.solve_continuous_lyapunov(A.T, np.eye(len(A))), np.float64)
    Q = (Q + Q.T) / 2
    solved = np.linalg.norm(A.T @ Q + Q @ A - np.eye(len(A)), 2) < 1e-6
    return Q if solved and np.linalg.eigvalsh(Q)[0] > 0 else nowhere
