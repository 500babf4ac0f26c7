"""FedLSA on trajectories (sec:proof_markov_sampling): mixing times, Lyapunov matrices, and the bounds that they enter.

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
from numpy.typing import ArrayLike, NDArray

from ... import checks
from ...algorithms import Algorithm, FedLSA, FixedRounds
from ...checks import Floats
from ...errors import ArgumentError, ArgumentTypeError
from ...problems import Problem
from ...value_objects import Displayed, ReadOnly
from ..problem_constants import Constants, constants
from .theorems import Bound, Conditions, Rounds, computed_inputs, constant_step, fedlsa_bound, start_distance

NAME = "FedLSA on trajectories"
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
    """Every constant of the Markovian case; the problem must have been made from chains."""
    tau = mixing_times(problem)
    A_bar = problem.table_A_bar
    Q = np.stack([lyapunov_matrix(A) for A in A_bar])
    norm, kappa, weighted = (np.full(len(Q), np.nan) for _ in range(3))
    for m, (A, X) in enumerate(zip(A_bar, Q, strict=True)):
        if np.isfinite(X).all():
            spectrum = np.linalg.eigvalsh(X)
            root = np.linalg.cholesky(X).T  # ||x||_Q = ||root x||
            norm[m], kappa[m] = spectrum[-1], spectrum[-1] / spectrum[0]
            weighted[m] = np.linalg.norm(root @ A @ np.linalg.inv(root), 2)
    a = 1 / (2 * norm)
    eta_tilde = np.minimum(1 / (2 * weighted**2 * norm), norm)
    held = problem.table_weights > 0
    C_A, kappa_Q, a_tilde = constants(problem).A_sup, float(kappa[held].max()), float(a[held].min())
    eta_tilde_inf = float(eta_tilde[held].min())
    root_kappa = math.sqrt(kappa_Q)
    blocks = float(np.ceil(8 * root_kappa * C_A / a_tilde))
    C_Gamma = 4 * (root_kappa * C_A + a_tilde / 6) ** 2 * blocks
    c_A_M = a_tilde / (12 * C_Gamma)
    small = np.min([eta_tilde_inf, 1 / (root_kappa * C_A), a_tilde / (6 * math.e * kappa_Q * C_A)])
    each = problem.assignment
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
    return np.array([_mixing_time(P) for P in state_kernels(problem)])


def state_kernels(problem: Problem) -> list[NDArray[np.float64]]:
    """P(s' | s) on the recurrent states of each table's chain."""
    chain = problem.chain
    if chain is None:
        raise ArgumentError("problem must have been made from chains (from_mdps, garnet) to have a mixing time")
    kernels = []
    for span, a, b in zip(problem.spans(), chain.first_state[:-1], chain.first_state[1:], strict=True):
        recurrent = chain.stationary[a:b] > 0
        checks.memory("the states of a chain", int(b - a), 16 * int(b - a), "its kernel, written out")
        P = np.zeros((b - a, b - a))
        np.add.at(P, (chain.origin[span], chain.successor[span]), chain.conditional[span])
        kernels.append(P[np.ix_(recurrent, recurrent)])
    return kernels


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


@dataclass(frozen=True, eq=False, repr=False)
class MarkovBlock(Displayed, ReadOnly):
    """How far observations must lie apart on a trajectory (cor:sample_complexity_lsa_Markov).

    delta : probability that the run differs from one with independent observations
    Delta_corr : what bounds the fourth moment of the error (eq:delta_corr)
    q : observations of a block, of which one makes an update (eq:q_block_size)
    delta_printed : delta with Delta_corr where its square is needed, as it is printed
    """

    delta: float
    Delta_corr: float
    q: int
    delta_printed: float


def last_iterate_bound(
    known: Constants, markov: MarkovConstants, algorithm: FedLSA, rounds: Rounds, start: float, q: int
) -> Bound:
    """lem:last_iterate_bound: the fourth moment of the error, on trajectories of which every q-th observation is used.

    ||theta_0 - theta_star|| + 2 t E_c||theta_star_c - theta_star|| + eta t H sup||eps|| bounds its fourth root.
    It rests on lem:matr_product_upd, which the paper cites and which is not proved here: a product of k >= 1 step
    matrices has E^{1/4}||.||^4 <= C e^{-r (k - 1)}, C = e^2 (d kappa_Q)^{1/2}, r = a~ eta / 12, from any start. So a
    round of n = floor(H / q) updates contracts if C e^{-r (n - 1)} <= 1. The noise of a round is at most sup||eps||
    times 1 + C / (1 - e^{-r}), a sum over products of all lengths; short ones need not be below 1, as the proof has it.
    """
    eta, H = constant_step(algorithm), algorithm.local_steps
    terms = {
        "start": start,
        "heterogeneity": 2 * rounds * known.distance,
        "noise": eta * H * rounds * known.eps_sup,
    }
    updates, observations = round_lengths(markov, known.problem.dim, eta)
    conditions: Conditions = {
        "-A_bar_c is Hurwitz": (float(math.isnan(markov.a_tilde)), 0.0),
        "tau_mix <= q": (markov.tau_mix, float(q)),
        "eta <= eta_inf^(M)": (eta, markov.eta_inf_M),
        "1 + 12 / (a~ eta) (2 + log(d kappa_Q) / 2) <= floor(H / q)": (updates, float(H // q)),
        "1 + e^2 (d kappa_Q)^{1/2} / (1 - e^{-a~ eta / 12}) <= H": (observations, float(H)),
    }
    mse, bounds = sum(terms.values()) ** 2, "E^{1/4} ||theta_t - theta_star||^4"
    return Bound("lem:last_iterate_bound", NAME, bounds, rounds, rounds * H, terms, conditions, mse, proved=False)


def round_lengths(markov: MarkovConstants, d: int, eta: float) -> tuple[float, float]:
    """The fewest updates (eq:block_size_relation, and one more) and the fewest observations in a round of the lemma."""
    log_C, rate = 2 + math.log(d) / 2 + math.log(markov.kappa_Q) / 2, markov.a_tilde * eta / 12
    return 1 + log_C / rate, 1 - math.exp(log_C) / math.expm1(-rate)


def coupled_bound(
    known: Constants, markov: MarkovConstants, algorithm: FedLSA, rounds: Rounds, start: float, q: int
) -> Bound:
    """The inequality behind cor:sample_complexity_lsa_Markov (eq:last_iter_bound), with an MSE on its left.

    Every q-th observation is an independent one, except with probability delta <= N n (1/4)^{floor(q / tau_mix)}, n
    the updates of an agent; so the MSE is at most that of floor(H / q) independent local steps + sqrt(delta) times
    the square of the lemma's bound. Its conditions are those of theorem and lemma together.
    """
    eta, updates, problem = constant_step(algorithm), algorithm.local_steps // q, known.problem
    worst = last_iterate_bound(known, markov, algorithm, rounds, start, q)
    apart = fedlsa_bound(problem, FedLSA(eta, updates), rounds, start, computed_inputs(known, eta), "")
    blocks = q // markov.tau_mix if math.isfinite(markov.tau_mix) else 0.0
    delta = np.minimum(1.0, problem.n_agents * updates * 0.25**blocks * np.float64(rounds))
    terms = {"independent": apart.mse, "coupling": np.sqrt(delta) * worst.mse}
    label, bounds = "cor:sample_complexity_lsa_Markov", "E ||theta_t - theta_star||^2"
    samples, conditions = rounds * algorithm.local_steps, apart.numbers | worst.numbers
    return Bound(label, NAME, bounds, rounds, samples, terms, conditions, proved=False)


def markov_block(
    problem: Problem, algorithm: Algorithm, rounds: int, epsilon: float, theta_0: ArrayLike | None = None
) -> MarkovBlock:
    """delta, Delta_corr (eq:delta_corr) and q (eq:q_block_size) for H = local_steps and T = rounds.

    problem : one of fl.problems, made of chains
    algorithm : the method, with its step size and local steps
    rounds, epsilon : communications T, and the root mean squared error to be reached
    theta_0 : (d,) where the run starts, as in `bound`

    sqrt(delta) times the bound of lem:last_iterate_bound on E^{1/2}||theta_T - theta_star||^4, which is at most
    (H T)^2 Delta_corr, must be epsilon^2: so delta = epsilon^4 / ((H T)^4 Delta_corr^2); the square is not printed.
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    eta = constant_step(algorithm)
    if not isinstance(algorithm, FixedRounds):
        raise ArgumentTypeError(f"algorithm must have rounds of fixed length; got {checks.show(algorithm)}")
    T, eps = checks.integer("rounds", rounds, at_least=1), checks.real("epsilon", epsilon, above=0)
    known, steps = constants(problem), algorithm.local_steps * T
    away = np.float64(start_distance(problem, theta_0))
    with np.errstate(divide="ignore", over="ignore"):
        Delta_corr = float((away + 2 * known.distance + eta * known.eps_sup) ** 2)
        delta, printed = (float(min(1.0, np.float64(eps / steps) ** 4 / np.float64(Delta_corr) ** k)) for k in (2, 1))
    tau = float(mixing_times(problem)[problem.assignment].max())
    if not math.isfinite(tau) or math.isnan(Delta_corr):
        raise ArgumentError(f"chains must mix and every theta_star_c exist for a block size; got tau_mix = {tau:g}")
    if delta == 0:
        rule = "theta_0 must be so near to theta_star, and epsilon so large, that delta is a floating-point number"
        raise ArgumentError(f"{rule}; got a distance of {away:g} and epsilon = {eps:g}")
    q = math.ceil(tau * math.log(2 * problem.n_agents * steps / delta) / math.log(4))
    return MarkovBlock(delta, Delta_corr, max(q, 1), printed)
