"""The right-hand sides of the paper's theorems: from a method and a way of sampling to the one that speaks of them.

The paper has a and eta_inf of assum:exp_stability; the proofs use the inequality at the one step size eta alone, so
each theorem is evaluated with a = a(eta), the largest that holds there, and asks for eta a <= 1/2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks, results
from ..algorithms import SCAFFLSA, Algorithm, FedLSA, FixedRounds, Scaffnew, method
from ..errors import ArgumentError, ArgumentTypeError, TheoryWarning, warn
from ..problems import Problem
from ..sampling import IID, Markov, Sampling
from ..value_objects import Displayed, ReadOnly
from .bias_terms import bias_path, round_bias
from .problem_constants import Constants, MarkovConstants, TDClaim, constants, markov_constants, td_claim
from .problem_moments import start_error

Rounds: TypeAlias = int | NDArray[np.int64]
Value: TypeAlias = Any  # a float; where several rounds were asked for, an array with one entry for each
Known: TypeAlias = Constants | TDClaim  # computed from tables, or promised by the Claim
Conditions = dict[str, tuple[float, float]]  # each with its left side and its right side

ON_TRAJECTORIES = "FedLSA on trajectories"
NOT_IN_THEOREMS = {
    "participation": "need all agents to take part",
    "participants": "need all agents to take part",
    "projection": "need iterates that are not projected",
    "average_after": "bound the last iterate",
}


def constant_step(algorithm: Algorithm) -> float:
    """The step size of a method that the theorems speak of: constant steps, all agents, the last iterate."""
    checks.instance("algorithm", algorithm, Algorithm, "a method with its settings")
    if not isinstance(algorithm.step_size, float):
        raise ArgumentError(f"the theorems need a constant step_size; got {algorithm.step_size!r}")
    if algorithm.grows:
        raise ArgumentError(f"the theorems need a constant local_steps; got {algorithm!r}")
    for name, rule in NOT_IN_THEOREMS.items():
        if getattr(algorithm, name) is not None:
            raise ArgumentError(f"the theorems {rule}; got {name}={getattr(algorithm, name)!r}")
    return algorithm.step_size


def start_distance(problem: Problem, theta_0: ArrayLike | None) -> float:
    """||theta_0 - theta_star||; by default from `problem.start`."""
    return float(np.linalg.norm(start_error(problem, theta_0)))


@dataclass(frozen=True, eq=False, repr=False)
class Bound(Displayed, ReadOnly):
    """The right-hand side of a theorem: it bounds what `bounds` says, if all `conditions` are met.

    NaN where a constant does not exist, such as a(eta). For several `rounds`, `value`, `mse` and each term are arrays
    over them; conditions do not depend on rounds.

    label : of the theorem in the paper's LaTeX source
    name : of the method
    bounds : what the value bounds
    rounds : for which it holds, one or several
    samples : observations of an agent by then; for Scaffnew the iterations K
    terms : which add up to the value
    numbers : the two sides of each condition
    mse : the bound on E||theta_t - theta_star||^2 that follows
    proved : False where the proof rests on a statement that the paper cites and that is not proved here
    value : the right-hand side
    conditions : under which the theorem holds, and whether each is met
    """

    label: str
    name: str
    bounds: str
    rounds: Rounds
    samples: Value
    terms: dict[str, Value]
    numbers: Conditions = field(repr=False)
    mse: Value = None
    proved: bool = True
    value: Value = field(init=False)
    conditions: dict[str, bool] = field(init=False)

    def __post_init__(self) -> None:
        terms = {term: self._each_round(value) for term, value in self.terms.items()}
        value = sum(terms.values())
        mse = value if self.mse is None else self._each_round(self.mse)
        met = {rule: bool(left <= right) for rule, (left, right) in self.numbers.items()}
        vars(self).update(terms=terms, value=value, mse=mse, conditions=met)
        super().__post_init__()

    def _each_round(self, value: Value) -> Value:
        """A float for one round; for several an array of their number."""
        if isinstance(self.rounds, int):
            return np.asarray(value, np.float64).item()
        return np.broadcast_to(value, self.rounds.shape).astype(np.float64)

    @property
    def holds(self) -> bool:
        """Whether every condition of the theorem is met."""
        return all(self.conditions.values())

    def warn_unmet(self) -> Bound:
        """The bound itself; where conditions fail, a TheoryWarning names them."""
        failed = [f"{rule} ({left:.4g} against {right:.4g})" for rule, (left, right) in self.numbers.items()]
        failed = [text for text, met in zip(failed, self.conditions.values(), strict=True) if not met]
        if failed:
            warn(f"{self.name} ({self.label}): conditions not met: {'; '.join(failed)}", TheoryWarning)
        return self


def fedlsa_bound(known: Known, algorithm: FedLSA, rounds: Rounds, start: float, label: str) -> Bound:
    """FedLSA (th:2nd_moment_no_cv_constants, corrected): the RMS distance of theta_t to theta_star + bias_t.

    sqrt(eta sigma_eps / (a N (1 - e^-2))) + sqrt(2 eta v_heter / (N a)) + (1 - eta a)^{t H} ||theta_0 - theta_star||
        + sqrt(2 eta E_c||Sigma_A|| / (N a)) ||rho_H|| / (1 - (1 - eta a)^H).

    The last term is printed as 2 sqrt(E_c||Sigma_A|| / (N H)) ||rho_H|| / a: the proof of lem:bounding_flbi loses a
    factor t - s. What holds: from theta_star, and without noise at home, e_t = theta_t - theta_star - bias_t obeys

        e_t = G_t e_{t-1} + D_t,  D_t = sum_c w_c (G_tc - E G_tc) u_tc,  u_tc = theta_star + bias_{t-1} - theta_star_c,

    with G_tc the product of agent c's step matrices in round t and G_t = sum_c w_c G_tc. The D_s are independent and
    centred, so the parts G_t ... G_{s+1} D_s of e_t are orthogonal. With q = 1 - eta a, by assum:exp_stability,

        E||e_t||^2 <= sum_s q^{2H(t-s)} E||D_s||^2,
        E||D_s||^2 <= eta^2 H q^{2(H-1)} sum_c w_c^2 ||Sigma_A_c|| ||u_sc||^2;

    1 - q^{2H} >= (1 - q^2) H q^{2(H-1)} and 1 - q^2 >= eta a leave eta/a sum_c w_c^2 ||Sigma_A_c|| sup_s ||u_sc||^2.
    Last, ||u_sc|| <= ||theta_star_c - theta_star|| + ||rho_H|| / (1 - q^H), and Minkowski's inequality gives two terms.
    Any weights: 1/N E_c[...] is then sum_c w_c^2 [...].
    """
    eta, H, t, problem = constant_step(algorithm), algorithm.local_steps, rounds, known.problem
    a, gap = known.stability(eta), np.sum((problem.theta_star_local - problem.theta_star) ** 2, axis=1)
    of_agents = known.trace_Sigma_eps, known.Sigma_A_norms * gap, known.Sigma_A_norms
    eps, heter, Sigma_A = map(known.of_average, of_agents)
    terms = {
        "noise": math.sqrt(eta * eps / (a * (1 - math.exp(-2)))),
        "heterogeneity": math.sqrt(2 * eta * heter / a),
        "bias fluctuation": math.sqrt(2 * eta * Sigma_A / a) * largest_bias(problem, eta, H, a),
        "transient": _left(eta * a, H * np.float64(t)) * start,
    }
    conditions = _stable(known, eta, a) | {"every agent has a theta_star_c": (float(math.isnan(heter)), 0.0)}
    with np.errstate(over="ignore", invalid="ignore"):  # of means that diverge
        bias = np.linalg.norm(bias_path(problem, eta, H, np.atleast_1d(t)), axis=1)
    mse = (sum(terms.values()) + bias) ** 2
    return Bound(label, "FedLSA", "E^{1/2} ||theta_t - theta_star - bias_t||^2", t, t * H, terms, conditions, mse)


def scafflsa_bound(known: Known, algorithm: SCAFFLSA, rounds: Rounds, start: float, label: str) -> Bound:
    """SCAFFLSA from xi_0 = 0 (thm:upper-bound-dist-param-scafflsa): the MSE.

    (1 - eta a H / 2)^t 2 (||theta_0 - theta_star||^2 + eta^2 H^2 Delta) + 36 d eta / (N a) ||Sigma_omega||,

    with Delta = E_c||xi_star_c||^2, if H <= a / (240 eta K), K = C_A^2 + ||Sigma_A||, where the appendix prints
    Sigma_eps; equal weights alone. The printed proof bounds E||M||^2 for random matrices M by what holds of
    |M|^2 = ||E[M^T M]||, and covariances in the spectral norm; both fail when d is large (lemma:bound-i-c_sto). The
    same steps go through with |M| and with nuclear norms, for ||E[M X M'^T]||_* <= |M| |M'| ||X||_*. For agent c let
    G_c be the product of its step matrices in a round, E_c = I - C_c / H, phi_c its noise, and z_c the fluctuation of
    its control variate times eta H. As the z_c sum to 0, the fluctuations obey

        x' = G x - mean_e(E_e z_e) - eta phi,   z_c' = (G - G_c) x + E_c z_c - mean_e(E_e z_e) - eta (phi - phi_c),

    where G and phi are means over agents. E[A^T A] <= K gives |E_c| <= beta / 2 and |G - G_c| <= 2 beta with
    beta = eta H K^{1/2}; |G| <= (1 - eta a)^H and eta^2 E||phi_c||^2 <= S = eta^2 H max_c tr Sigma_omega_c. Agents are
    independent and fluctuations centred. So the nuclear norms p of E[x x^T], r of E[x z_c^T], s of E[z_c z_c^T] and
    u of E[z_c z_e^T] for e != c, each the largest over agents, obey

        p' <= (1 - eta a)^{2 H} p + beta r + beta^2 / 4 (s / N + u) + S / N,
        r' <= 2 beta p + (beta + beta^2) r + beta^2 / 2 (s / N + u) + 2 S / N,
        s' <= 4 beta^2 p + 4 beta^2 r + beta^2 s + 3 beta^2 / 4 u + S,
        u' <= 4 beta^2 p + 4 beta^2 r + 3 beta^2 / 4 s / N + beta^2 u + 3 S / N.

    With o = a / (12 K^{1/2}), which is below 1/12 for a <= C_A, the condition says beta <= o / 20, and
    V = p + o (r + s / N + u) obeys V' <= (1 - eta a H / 2) V + 9 S / N: so E||x||^2 = p <= 18 S / (N eta a H). With
    |E_c| <= beta / 2 the printed proof of thm:transient-without-noise holds too, at the rate eta a H / 2 that it finds.
    """
    eta, H, t, w = constant_step(algorithm), algorithm.local_steps, rounds, known.problem.weights
    a, d, N = known.stability(eta), known.problem.dim, len(w)
    if not np.allclose(w, 1 / N, rtol=1e-9, atol=0):
        c = int(np.argmax(np.abs(w - 1 / N)))
        raise ArgumentError(f"this theorem needs equal weights, {1 / N:g} each; got {w[c]:g} for agent {c}")
    psi_0 = start**2 + (eta * H) ** 2 * constants(known.problem).Delta
    terms = {
        "transient": _left(eta * a * H / 2, t) * 2 * psi_0,
        "noise": 36 * d * eta / (N * a) * known.Sigma_omega_norm,
    }
    longest = a / (240 * eta * (known.C_A**2 + known.Sigma_A_norm))
    conditions = {"eta a H <= 1": (eta * a * H, 1.0), "H <= a / (240 eta (C_A^2 + ||Sigma_A||))": (float(H), longest)}
    conditions = _stable(known, eta, a) | conditions
    return Bound(label, "SCAFFLSA", "E ||theta_t - theta_star||^2", t, t * H, terms, conditions)


def scaffnew_bound(known: Known, algorithm: Scaffnew, rounds: Rounds, start: float, label: str) -> Bound:
    """Scaffnew from xi_0 = 0 (thm:potential_psi_t_sto_com_appendix): psi (eq:definition:lyapunov_app) at iteration K.

    (1 - zeta)^K (||theta_0 - theta_star||^2 + eta^2 / p^2 Delta) + 2 eta^2 / zeta E_c tr Sigma_omega_c,

    zeta = min(eta a, p^2), K = rounds / p (rounded up), a and L of assum:L-a-constant; the paper prints Sigma_eps.
    The average of the agents' iterates is the same whether they communicate at K or not, so by Jensen's inequality psi
    bounds the MSE of the server at a communication at iteration K. Any weights: psi is then the weighted mean.
    """
    eta, p, Delta = constant_step(algorithm), algorithm.probability, constants(known.problem).Delta
    one, zeta = isinstance(rounds, int), min(eta * known.a_sym, p**2)
    K: Value = math.ceil(rounds / p - 1e-9) if one else np.ceil(rounds / p - 1e-9).astype(np.int64)
    exists = known.a_sym > 0 and not math.isnan(known.L)
    terms = {
        "transient": _left(zeta, K) * (start**2 + eta**2 / p**2 * Delta) if exists else math.nan,
        "noise": 2 * eta**2 / zeta * known.sigma_omega if exists else math.nan,
    }
    conditions = _assumed(known, eta)
    conditions["symmetric parts positive definite, L exists"] = (float(not exists), 0.0)
    conditions["eta <= 1 / (2 L)"] = (eta, 1 / (2 * known.L))
    what = f"E psi_K at iteration K = {K if one else 'rounds / p'}"
    return Bound(label, "Scaffnew", what, rounds, K, terms, conditions)


def largest_bias(problem: Problem, eta: float, H: int, a: float) -> float:
    """||rho_H|| / (1 - (1 - eta a)^H), which bounds ||bias_t|| for every t; NaN where a(eta) is."""
    shrink = -math.expm1(H * math.log1p(-eta * a)) if eta * a < 1 else a / a
    return float(np.linalg.norm(round_bias(problem, eta, H))) / shrink


def _assumed(known: Known, eta: float) -> Conditions:
    """What the constants themselves rest on: those that are computed on nothing."""
    if isinstance(known, Constants):
        return {}
    promised = {rule: (float(not met), 0.0) for rule, met in known.conditions.items()}
    return {**promised, "eta <= (1 - gamma) / 4": (eta, known.eta_inf)}


def _stable(known: Known, eta: float, a: float) -> Conditions:
    return {**_assumed(known, eta), "a(eta) exists": (float(math.isnan(a)), 0.0), "eta a <= 1/2": (eta * a, 0.5)}


def _left(rate: float, times: Value) -> Value:
    """(1 - rate)^times, without loss of digits at tiny rates; 0 for a rate above one, where conditions fail anyway."""
    if rate < 1:
        return np.exp(times * math.log1p(-rate))
    return np.where(np.equal(times, 0), 1.0, math.nan if math.isnan(rate) else 0.0)


THEOREMS: dict[type[Algorithm], tuple[Callable[..., Bound], str, str]] = {  # with its label, and that for TD(0)
    FedLSA: (fedlsa_bound, "th:2nd_moment_no_cv_constants", "th:cor_fed_td_no_cv"),
    SCAFFLSA: (scafflsa_bound, "thm:upper-bound-dist-param-scafflsa", "cor:iteration-complexity-fed-td"),
    Scaffnew: (scaffnew_bound, "thm:potential_psi_t_sto_com_appendix", "thm:potential_psi_t_sto_com_appendix"),
}


def theorem(known: Known, algorithm: Algorithm, rounds: Rounds, start: float) -> Bound:
    """The bound of a method's theorem."""
    function, *labels = THEOREMS[type(algorithm)]
    return function(known, algorithm, rounds, start, labels[isinstance(known, TDClaim)])


def last_iterate_bound(problem: Problem, algorithm: FedLSA, rounds: Rounds, start: float, q: int) -> Bound:
    """lem:last_iterate_bound: the fourth moment of the error, on trajectories of which every q-th observation is used.

    ||theta_0 - theta_star|| + 2 t E_c||theta_star_c - theta_star|| + eta t H sup||eps|| bounds its fourth root.
    It rests on lem:matr_product_upd, which the paper cites and which is not proved here: a product of k >= 1 step
    matrices has E^{1/4}||.||^4 <= C e^{-r (k - 1)}, C = e^2 (d kappa_Q)^{1/2}, r = a~ eta / 12, from any start. So a
    round of n = floor(H / q) updates contracts if C e^{-r (n - 1)} <= 1. The noise of a round is at most sup||eps||
    times 1 + C / (1 - e^{-r}), a sum over products of all lengths; short ones need not be below 1, as the proof has it.
    """
    eta, H = constant_step(algorithm), algorithm.local_steps
    known, markov = constants(problem), markov_constants(problem)
    noise = eta * H * rounds * known.eps_sup
    terms = {"start": start, "heterogeneity": 2 * rounds * known.distance, "noise": noise}
    updates, observations = round_lengths(markov, problem.dim, eta)
    conditions: Conditions = {
        "-A_bar_c is Hurwitz": (float(math.isnan(markov.a_tilde)), 0.0),
        "tau_mix <= q": (markov.tau_mix, float(q)),
        "eta <= eta_inf^(M)": (eta, markov.eta_inf_M),
        "1 + 12 / (a~ eta) (2 + log(d kappa_Q) / 2) <= floor(H / q)": (updates, float(H // q)),
        "1 + e^2 (d kappa_Q)^{1/2} / (1 - e^{-a~ eta / 12}) <= H": (observations, float(H)),
    }
    what = "lem:last_iterate_bound", ON_TRAJECTORIES, "E^{1/4} ||theta_t - theta_star||^4"
    return Bound(*what, rounds, rounds * H, terms, conditions, sum(terms.values()) ** 2, proved=False)


def round_lengths(markov: MarkovConstants, d: int, eta: float) -> tuple[float, float]:
    """The fewest updates (eq:block_size_relation, and one more) and the fewest observations in a round of the lemma."""
    log_C, rate = 2 + math.log(d) / 2 + math.log(markov.kappa_Q) / 2, markov.a_tilde * eta / 12
    return 1 + log_C / rate, 1 - math.exp(log_C) / math.expm1(-rate)


def coupled_bound(problem: Problem, algorithm: FedLSA, rounds: Rounds, start: float, q: int) -> Bound:
    """The inequality behind cor:sample_complexity_lsa_Markov (eq:last_iter_bound), with an MSE on its left.

    Every q-th observation is an independent one, except with probability delta <= N n (1/4)^{floor(q / tau_mix)}, n
    the updates of an agent; so the MSE is at most that of floor(H / q) independent local steps + sqrt(delta) times
    the square of the lemma's bound. Its conditions are those of theorem and lemma together.
    """
    eta, updates, tau = constant_step(algorithm), algorithm.local_steps // q, markov_constants(problem).tau_mix
    worst = last_iterate_bound(problem, algorithm, rounds, start, q)
    independent = theorem(constants(problem), FedLSA(eta, updates), rounds, start)
    blocks = q // tau if math.isfinite(tau) else 0.0
    delta = np.minimum(1.0, problem.n_agents * updates * 0.25**blocks * np.float64(rounds))
    terms = {"independent": independent.mse, "coupling": np.sqrt(delta) * worst.mse}
    label, bounds = "cor:sample_complexity_lsa_Markov", "E ||theta_t - theta_star||^2"
    samples, conditions = rounds * algorithm.local_steps, independent.numbers | worst.numbers
    return Bound(label, ON_TRAJECTORIES, bounds, rounds, samples, terms, conditions, proved=False)


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


def markov_block(
    problem: Problem, algorithm: Algorithm, rounds: int, epsilon: float, theta_0: ArrayLike | None = None
) -> MarkovBlock:
    """delta, Delta_corr (eq:delta_corr) and q (eq:q_block_size) for H = local_steps and T = rounds.

    problem : one of fl.problems, made of chains; algorithm, theta_0 : as in `bound`
    rounds, epsilon : communications T, and the root mean squared error to be reached

    sqrt(delta) times the bound of lem:last_iterate_bound on E^{1/2}||theta_T - theta_star||^4, which is at most
    (H T)^2 Delta_corr, must be epsilon^2: so delta = epsilon^4 / ((H T)^4 Delta_corr^2); the square is not printed.
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    eta = constant_step(method("algorithm", algorithm, "paper"))
    if not isinstance(algorithm, FixedRounds):
        raise ArgumentTypeError(f"algorithm must have rounds of fixed length; got {checks.show(algorithm)}")
    T, eps = checks.integer("rounds", rounds, at_least=1), checks.real("epsilon", epsilon, above=0)
    known, steps = constants(problem), algorithm.local_steps * T
    away = np.float64(start_distance(problem, theta_0))
    with np.errstate(divide="ignore", over="ignore"):
        Delta_corr = float((away + 2 * known.distance + eta * known.eps_sup) ** 2)
        delta, printed = (float(min(1.0, np.float64(eps / steps) ** 4 / np.float64(Delta_corr) ** k)) for k in (2, 1))
    tau = markov_constants(problem).tau_mix
    if not math.isfinite(tau) or math.isnan(Delta_corr):
        raise ArgumentError(f"chains must mix and every theta_star_c exist for a block size; got tau_mix = {tau:g}")
    if delta == 0:
        rule = "theta_0 must be so near to theta_star, and epsilon so large, that delta is a floating-point number"
        raise ArgumentError(f"{rule}; got a distance of {away:g} and epsilon = {eps:g}")
    q = math.ceil(tau * math.log(2 * problem.n_agents * steps / delta) / math.log(4))
    return MarkovBlock(delta, Delta_corr, max(q, 1), printed)


def bound(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int | Sequence[int],
    theta_0: ArrayLike | None = None,
    sampling: Sampling = IID(),  # noqa: B008  frozen
    record: int | Sequence[int] | None = None,
) -> Bound:
    """The theorem on this method after `rounds` communications: what it bounds, its value, terms and conditions.

    problem : one of fl.problems
    algorithm : the method, with its step size and local steps
    sampling : fl.IID(), or fl.Markov(...) for trajectories

    FedLSA (th:2nd_moment_no_cv_constants), SCAFFLSA (thm:upper-bound-dist-param-scafflsa), Scaffnew
    (thm:potential_psi_t_sto_com_appendix), FedLSA on trajectories (lem:last_iterate_bound).
    theta_0 : (d,), by default `problem.start`; control variates start at 0.
    record : None for the last round alone; a count or a list of rounds, as in `simulate` and `exact`, for a curve.
    A list in the place of `rounds` is short for recording that list; constants are computed once for all rounds.
    Where conditions fail a TheoryWarning says which, and the number is returned all the same.
    """
    q = sampling.thin if isinstance(sampling, Markov) else 1
    algorithm, t, start = _checked(problem, algorithm, rounds, theta_0, record, q)
    if isinstance(sampling, Markov) and isinstance(algorithm, FedLSA):
        return last_iterate_bound(problem, algorithm, t, start, q).warn_unmet()
    if not isinstance(sampling, IID):
        name, got = type(algorithm).__name__, checks.show(sampling)
        raise ArgumentError(f"the theorem on {name} needs i.i.d. sampling; got {got}")
    return theorem(constants(problem), algorithm, t, start).warn_unmet()


def td_bound(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int | Sequence[int],
    theta_0: ArrayLike | None = None,
    record: int | Sequence[int] | None = None,
) -> Bound:
    """The same theorem for TD(0) with the Claim's constants in the place of the computed ones (prop:condition_check).

    problem : one of fl.problems, of TD(0); algorithm, rounds, theta_0, record : as in `bound`

    For FedLSA this is th:cor_fed_td_no_cv with its constants, a = (1 - gamma) nu / 2.
    """
    algorithm, t, start = _checked(problem, algorithm, rounds, theta_0, record)
    return theorem(td_claim(problem), algorithm, t, start).warn_unmet()


def markov_bound(
    problem: Problem,
    algorithm: FedLSA,
    rounds: int | Sequence[int],
    thin: int,
    theta_0: ArrayLike | None = None,
    record: int | Sequence[int] | None = None,
) -> Bound:
    """A bound on the MSE of FedLSA on trajectories that are thinned, from coupling (eq:last_iter_bound).

    problem : one of fl.problems, made of chains; algorithm, rounds, theta_0, record : as in `bound`
    thin : of so many observations in a row one makes an update (the paper's q)
    """
    q = checks.integer("thin", thin, at_least=1)
    given, t, start = _checked(problem, algorithm, rounds, theta_0, record, q)
    checks.instance("algorithm", given, FedLSA, "a FedLSA")
    return coupled_bound(problem, algorithm, t, start, q).warn_unmet()


def _checked(
    problem: Any, given: Any, rounds: Any, theta_0: Any, record: Any, thin: int = 1
) -> tuple[Algorithm, Rounds, float]:
    """The method, the rounds, and the distance from which it starts."""
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    algorithm = method("algorithm", given, "paper")
    constant_step(algorithm)
    if isinstance(algorithm, FedLSA) and thin > algorithm.local_steps:
        raise ArgumentError(f"thin must be at most local_steps, {algorithm.local_steps}; got {thin}")
    if checks.is_sequence(rounds):
        if record is not None:
            raise ArgumentError("record must be None where rounds is a list of rounds; got both")
        record = checks.entries("rounds", rounds, "a number of rounds, or several")
        rounds = record[-1] if record else 0
    last = checks.integer("rounds", rounds)
    t = last if record is None else results.recorded_rounds(record, last)
    return algorithm, t, start_distance(problem, theta_0)
