"""FedLSA on trajectories (algo:fed-lsa-markov): the last-iterate lemma, coupling, and block sizes."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...algorithms import FedLSA
from ...algorithms.base import Algorithm, FixedRounds
from ...errors import ArgumentError, ArgumentTypeError, TheoryWarning
from ...formatting import Displayed
from ...problems import Problem
from ..constants import Constants, constants
from ..markov import MarkovConstants, mixing_times
from .base import Bound, Numbers, Rounds, computed_inputs, constant_step, finished, start_distance
from .theorems import fedlsa_bound


@dataclass(frozen=True, repr=False)
class MarkovBlock(Displayed):
    """The block of cor:sample_complexity_lsa_Markov: of q observations in a row one makes an update."""

    delta: float  # probability that the run differs from one with independent observations
    Delta_corr: float  # eq:delta_corr
    q: int  # eq:q_block_size
    delta_printed: float  # with Delta_corr where its square is needed


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
    eta, H = algorithm.step_size, algorithm.local_steps
    assert isinstance(eta, float)
    terms = {
        "start": start,
        "heterogeneity": 2 * rounds * known.distance,
        "noise": eta * H * rounds * known.eps_sup,
    }
    updates, observations = round_lengths(markov, known.problem.dim, eta)
    conditions: Numbers = {
        "-A_bar_c is Hurwitz": (float(math.isnan(markov.a_tilde)), 0.0),
        "tau_mix <= q": (markov.tau_mix, float(q)),
        "eta <= eta_inf^(M)": (eta, markov.eta_inf_M),
        "1 + 12 / (a~ eta) (2 + log(d kappa_Q) / 2) <= floor(H / q)": (updates, float(H // q)),
        "1 + e^2 (d kappa_Q)^{1/2} / (1 - e^{-a~ eta / 12}) <= H": (observations, float(H)),
    }
    value = sum(terms.values())
    return finished(
        "FedLSA on trajectories",
        "lem:last_iterate_bound",
        "E^{1/4} ||theta_t - theta_star||^4",
        rounds,
        rounds * H,
        terms,
        conditions,
        mse=value**2,
        proved=False,
    )


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
    eta, updates, problem = algorithm.step_size, algorithm.local_steps // q, known.problem
    assert isinstance(eta, float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TheoryWarning)
        worst = last_iterate_bound(known, markov, algorithm, rounds, start, q)
        apart = fedlsa_bound(problem, FedLSA(eta, updates), rounds, start, computed_inputs(known, eta), "")
    blocks = q // markov.tau_mix if math.isfinite(markov.tau_mix) else 0.0
    delta = np.minimum(1.0, problem.n_agents * updates * 0.25**blocks * np.float64(rounds))
    terms = {"independent": apart.mse, "coupling": np.sqrt(delta) * worst.mse}
    label = "cor:sample_complexity_lsa_Markov"
    conditions = apart.numbers | worst.numbers
    samples = rounds * algorithm.local_steps
    bounds = "E ||theta_t - theta_star||^2"
    return finished("FedLSA on trajectories", label, bounds, rounds, samples, terms, conditions, proved=False)


def markov_block(
    problem: Problem, algorithm: Algorithm, rounds: int, epsilon: float, theta_0: ArrayLike | None = None
) -> MarkovBlock:
    """delta, Delta_corr (eq:delta_corr) and q (eq:q_block_size) for H = local_steps and T = rounds.

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
