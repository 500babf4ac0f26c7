"""Sample and communication complexities, by solving the explicit theorems for a target accuracy.

No corollary is copied, for several have wrong constants. Each recipe takes the largest step size at which the noise
term is its share of the target, the most local steps that the theorem allows, and then as few rounds as make the
transient small; the bound of the result is at most epsilon^2.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from numpy.typing import ArrayLike

from .. import checks
from ..algorithms import SCAFFLSA, Algorithm, FedLSA, Scaffnew, method_class
from ..errors import ArgumentError
from ..problems import Problem
from ..value_objects import Displayed, ReadOnly
from .bounds import Bound, constant_step, coupled_bound, largest_bias, round_lengths, start_distance, theorem
from .problem_constants import Constants, constants, markov_constants

NOISE, BIAS, TRANSIENT = 0.5, 0.25, 0.25  # shares of epsilon in FedLSA's theorem, which bounds the RMS error
Setting = tuple[FedLSA | SCAFFLSA | Scaffnew, int, int]  # method, rounds, thin


@dataclass(frozen=True, eq=False, repr=False)
class Complexity(Displayed, ReadOnly):
    """What a theorem promises to reach E||theta_T - theta_star||^2 <= epsilon^2, and what it costs.

    method : whose theorem it is
    epsilon : the root mean squared error to be reached
    algorithm : with the step size and local steps that the theorem asks for
    rounds : communications T
    samples : observations per agent, T H; for Scaffnew the iterations K = T / p
    bound : the theorem at this setting
    thin : q: on trajectories, one of this many observations is used
    """

    method: str
    epsilon: float
    algorithm: FedLSA | SCAFFLSA | Scaffnew
    rounds: int
    samples: int
    bound: Bound = field(repr=False)
    thin: int = 1

    @property
    def step_size(self) -> float:
        return constant_step(self.algorithm)

    @property
    def local_steps(self) -> float:
        """H, or its mean 1/p for Scaffnew."""
        return self.algorithm.mean_steps


def complexity(
    problem: Problem, method: str | type[Algorithm], epsilon: float, theta_0: ArrayLike | None = None
) -> Complexity:
    """Step size, local steps and rounds with which a method's theorem reaches the accuracy epsilon (RMSE).

    problem : one of fl.problems
    method : "fedlsa" (cor:sample_complexity_lsa), "synchronous", which is FedLSA with H = 1
        (cor:sample_compl_h_1_proof), "markov", which is FedLSA on thinned trajectories
        (cor:sample_complexity_lsa_Markov), "scafflsa" (cor:iteration-complexity-fed-lsa-constant) or "scaffnew"
        (cor:scaffnew-complexity); of the methods, the class serves as well
    theta_0 : (d,), by default `problem.start`
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    name = method if isinstance(method, str) else method_class("method", method, "paper").name
    name = checks.choice("method", name.lower() if name.lower() in RECIPES else name, RECIPES)
    eps = checks.real("epsilon", epsilon, above=0)
    known, start = constants(problem), start_distance(problem, theta_0)
    if not known.L > 0:
        rule = "problem must have agents with positive definite symmetric parts, or no theorem gives a step size"
        raise ArgumentError(f"{rule}; got a smallest eigenvalue of {known.a_sym:.3g}")
    algorithm, rounds, thin = RECIPES[name](known, eps, start)
    if name == "markov":
        assert isinstance(algorithm, FedLSA)
        result = coupled_bound(problem, algorithm, rounds, start, thin)
    else:
        result = theorem(known, algorithm, rounds, start)
    return Complexity(name, eps, algorithm, rounds, result.samples, result.warn_unmet(), thin)


def best_within(
    problem: Problem, method: str, rounds: float, samples: float, theta_0: ArrayLike | None
) -> Complexity | None:
    """The best accuracy that a method's theorem promises within so many rounds and observations, to a thousandth."""

    def affordable(epsilon: float) -> Complexity | None:
        found = complexity(problem, method, epsilon, theta_0)
        return found if found.rounds <= rounds and found.samples <= samples else None

    start = start_distance(problem, theta_0)
    if affordable(start) is None:
        return None
    return affordable(_bracket(lambda epsilon: affordable(epsilon) is None, start, 1e-3)[1])


def _fedlsa(known: Constants, eps: float, start: float, single_steps: bool = False) -> Setting:
    """The terms of th:2nd_moment_no_cv_constants."""
    eta, steps, unbiased = _fedlsa_parts(known, eps, start)
    H = 1 if single_steps else _last(unbiased, steps)
    return FedLSA(eta, H), math.ceil(steps / H), 1


def _markov(known: Constants, eps: float, start: float) -> Setting:
    """Half of epsilon^2 for independent observations, half for the event that thinned trajectories differ from them.

    The lemma on that event asks for long rounds (eq:block_size_relation), the bias for short ones.
    """
    markov, problem = markov_constants(known.problem), known.problem
    if not math.isfinite(markov.tau_mix):
        raise ArgumentError("chains must mix for the corollary on trajectories; one is periodic")
    eta, steps, unbiased = _fedlsa_parts(known, eps / math.sqrt(2), start, markov.eta_inf_M)
    fewest, observations = map(math.ceil, round_lengths(markov, problem.dim, eta))
    if not unbiased(fewest):
        raise ArgumentError(
            f"epsilon must be larger, for the corollary on trajectories needs rounds of at least {fewest} updates at "
            f"step size {eta:.3g} (eq:block_size_relation) and then FedLSA's bias is too large; got {eps:g}"
        )
    updates = max(fewest, _last(unbiased, steps))
    T, q = math.ceil(steps / updates), int(markov.tau_mix)

    def coupling(q: int) -> float:
        return float(coupled_bound(problem, FedLSA(eta, q * updates), T, start, q).terms["coupling"])

    while q * updates < observations or coupling(q) > eps**2 / 2:
        q += int(markov.tau_mix)
    return FedLSA(eta, q * updates), T, q


def _fedlsa_parts(
    known: Constants, eps: float, start: float, at_most: float = math.inf
) -> tuple[float, int, Callable[[int], bool]]:
    """eta from the two noise terms, the local steps in all, T H, from the transient, and whether H keeps to its share.

    H local steps are allowed if the bias and its fluctuation are small at every round.
    """
    if math.isnan(known.sigma_eps):
        raise ArgumentError("every agent must have a theta_star_c for th:2nd_moment_no_cv_constants; one has none")

    def noise_is_small(eta: float) -> bool:
        terms = theorem(known, FedLSA(eta, 1), 0, start).terms
        return eta <= at_most and terms["noise"] + terms["heterogeneity"] <= NOISE * eps

    eta = _largest_step(known, noise_is_small)
    a = known.stability(eta)
    fluctuation = math.sqrt(2 * eta * known.of_average(known.Sigma_A_norms) / a)

    def unbiased(H: int) -> bool:
        return (1 + fluctuation) * largest_bias(known.problem, eta, H, a) <= BIAS * eps

    return eta, _decay(math.log1p(-eta * a), start, TRANSIENT * eps), unbiased


def _scafflsa(known: Constants, eps: float, start: float) -> Setting:
    """Half of epsilon^2 for each of the two terms of thm:upper-bound-dist-param-scafflsa."""

    def at_start(eta: float, H: int) -> Bound:
        return theorem(known, SCAFFLSA(eta, H), 0, start)

    def allowed(eta: float) -> bool:
        single = at_start(eta, 1)
        return single.terms["noise"] <= eps**2 / 2 and single.holds

    eta = _largest_step(known, allowed)
    _, most = at_start(eta, 1).numbers["H <= a / (240 eta (C_A^2 + ||Sigma_A||))"]
    H = max(1, math.floor(most))
    rate = math.log1p(-eta * known.stability(eta) * H / 2)
    return SCAFFLSA(eta, H), _decay(rate, 2 * at_start(eta, H).terms["transient"], eps**2), 1


def _scaffnew(known: Constants, eps: float, start: float) -> Setting:
    """p^2 = eta a balances the two rates of thm:potential_psi_t_sto_com_appendix; half of epsilon^2 for each term."""
    a, eta = known.a_sym, 1 / (2 * known.L)
    if known.sigma_omega > 0:
        eta = min(eta, eps**2 * a / (4 * known.sigma_omega))
    p = math.sqrt(eta * a)
    K = _decay(math.log1p(-min(eta * a, p**2)), 2 * (start**2 + eta**2 / p**2 * known.Delta), eps**2)
    return Scaffnew(eta, p), max(1, math.ceil(K * p)), 1


RECIPES: dict[str, Callable[[Constants, float, float], Setting]] = {
    "fedlsa": _fedlsa,
    "synchronous": partial(_fedlsa, single_steps=True),
    "markov": _markov,
    "scafflsa": _scafflsa,
    "scaffnew": _scaffnew,
}


def _largest_step(known: Constants, allowed: Callable[[float], bool]) -> float:
    """The largest step size up to 1/L with eta a(eta) <= 1/2 that is allowed, to 12 digits; both are monotone there."""

    def good(eta: float) -> bool:
        return eta * known.stability(eta) <= 0.5 and allowed(eta)

    return 1 / known.L if good(1 / known.L) else _bracket(good, 1 / known.L, 1e-12)[0]


def _bracket(below: Callable[[float], bool], high: float, digits: float) -> tuple[float, float]:
    """Numbers up to `high`, which is not below an edge, on its two sides, as near to each other as these digits."""
    low = high / 2
    while not below(low):
        low, high = low / 2, low
        if low < 1e-300:
            raise ArgumentError("epsilon must be larger for a step size to exist in floating-point numbers")
    while high > (1 + digits) * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


def _last(allowed: Callable[[int], bool], limit: int) -> int:
    """The largest H <= limit found by doubling and bisection; H = 1 is always allowed."""
    high = 2
    while high < limit and allowed(high):
        high *= 2
    low = high // 2
    return low + bisect_left(range(low + 1, min(high, limit + 1)), True, key=lambda H: not allowed(H))


def _decay(log_rate: float, start: float, end: float) -> int:
    """The fewest steps (at least one) in which exp(log_rate) shrinks `start` to `end`; their ratio may overflow."""
    return max(1, math.ceil((math.log(start) - math.log(end)) / -log_rate)) if start > end else 1
