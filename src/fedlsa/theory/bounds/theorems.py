"""The theorems on FedLSA, SCAFFLSA and Scaffnew with i.i.d. observations, with explicit constants.

The paper has a and eta_inf of assum:exp_stability; the proofs use the inequality at the one step size eta alone, so
each theorem is evaluated with a = a(eta), the largest that holds there, and asks for eta a <= 1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import checks
from ...algorithms import SCAFFLSA, Algorithm, FedLSA, Scaffnew
from ...checks import Floats
from ...errors import ArgumentError, TheoryWarning, warn
from ...problems import Problem, RankOne
from ...small_pictures import curve
from ...value_objects import Displayed, ReadOnly
from ..bias_terms import bias_at, power_sums, round_bias
from ..problem_constants import Constants, constants
from ..problem_moments import start_error

# What the theorems ask of a problem and of a method: its numbers, computed or promised by the Claim for TD(0).

Conditions = dict[str, tuple[float, float]]  # each with its left side and its right side

NOT_IN_THEOREMS = {
    "participation": "need all agents to take part",
    "participants": "need all agents to take part",
    "projection": "need iterates that are not projected",
    "average_after": "bound the last iterate",
}


@dataclass(frozen=True, eq=False)
class Inputs:
    """The numbers of a problem that the theorems at step size eta ask for: computed, or promised by a Claim."""

    eta: float
    a: float  # of assum:exp_stability, at eta
    C_A: float
    Sigma_A_norm: float  # largest ||Sigma_A_c||
    eps: float  # sum_c w_c^2 tr Sigma_eps_c, the paper's sigma_eps / N
    heter: float  # sum_c w_c^2 ||Sigma_A_c|| ||theta_star_c - theta_star||^2, the paper's v_heter / N
    Sigma_A: float  # sum_c w_c^2 ||Sigma_A_c||, the paper's E_c ||Sigma_A_c|| / N
    Sigma_omega_norm: float  # largest ||Sigma_omega_c||
    sigma_omega: float  # E_c tr Sigma_omega_c
    a_sym: float  # a and L of assum:L-a-constant
    L: float
    extra: Conditions = field(default_factory=dict)  # conditions that the numbers themselves rest on


def computed_inputs(known: Constants, eta: float) -> Inputs:
    """Every number from the problem's own tables, with a = a(eta)."""
    problem = known.problem
    held = problem.table_weights > 0
    w2 = np.bincount(problem.assignment, problem.weights**2, problem.n_tables)[held]  # as independent agents average
    noise = np.linalg.norm(known.table_Sigma_A[held], 2, axis=(1, 2))
    gap = np.sum((problem.table_theta_star_local[held] - problem.theta_star) ** 2, axis=1)
    return Inputs(
        eta=eta,
        a=known.stability(eta),
        C_A=known.C_A,
        Sigma_A_norm=known.Sigma_A_norm,
        eps=float(w2 @ np.trace(known.table_Sigma_eps[held], axis1=1, axis2=2)),
        heter=float(w2 @ (noise * gap)),
        Sigma_A=float(w2 @ noise),
        Sigma_omega_norm=known.Sigma_omega_norm,
        sigma_omega=known.sigma_omega,
        a_sym=known.a_sym,
        L=known.L,
    )


def constant_step(algorithm: Algorithm) -> float:
    """The step size of a method that the theorems speak of: constant steps, all agents, the last iterate."""
    checks.instance("algorithm", algorithm, Algorithm, "a method with its settings")
    if not isinstance(algorithm.step_size, float):
        raise ArgumentError(f"the theorems need a constant step_size; got {algorithm.step_size!r}")
    for name, rule in NOT_IN_THEOREMS.items():
        if getattr(algorithm, name) is not None:
            raise ArgumentError(f"the theorems {rule}; got {name}={getattr(algorithm, name)!r}")
    return algorithm.step_size


def start_distance(problem: Problem, theta_0: ArrayLike | None) -> float:
    """||theta_0 - theta_star||; by default from `problem.start`."""
    return float(np.linalg.norm(start_error(problem, theta_0)))


def equal_weights(problem: Problem) -> None:
    """The paper averages with 1/N; where that matters, other weights are refused."""
    w, N = problem.weights, problem.n_agents
    if not np.allclose(w, 1 / N, rtol=1e-9, atol=0):
        c = int(np.argmax(np.abs(w - 1 / N)))
        raise ArgumentError(f"this theorem needs equal weights, {1 / N:g} each; got {w[c]:g} for agent {c}")


@dataclass(frozen=True, eq=False, repr=False)
class TDClaim(Displayed, ReadOnly):
    """The Claim for TD(0) (prop:condition_check), and whether its assumptions hold on the problem.

    discount : gamma
    nu : smallest eigenvalue of E[phi phi^T] over agents (assum:feature_design)
    C_A : 1 + gamma, a bound on ||A(z)||
    Sigma_A_norm : 2 (1 + gamma)^2, a bound on ||Sigma_A||
    trace_Sigma_eps : (N,) 2 (1 + gamma)^2 (||theta_star_c||^2 + 1), a bound on tr Sigma_eps
    trace_Sigma_omega : 2 (1 + gamma)^2 (||theta_star||^2 + 1), a bound on tr Sigma_omega by the same proof
    a : (1 - gamma) nu / 2, the rate
    eta_inf : (1 - gamma) / 4, the largest step size
    L : (1 + gamma)^2 / (1 - gamma), in the place of the paper's value below assum:L-a-constant
    conditions : the assumptions, and whether each holds on the problem
    """

    discount: float
    nu: float
    C_A: float
    Sigma_A_norm: float
    trace_Sigma_eps: Floats = field(repr=False)
    trace_Sigma_omega: float
    a: float
    eta_inf: float
    L: float
    conditions: dict[str, bool]


def td_claim(problem: Problem) -> TDClaim:
    """The constants of prop:condition_check; an ArgumentError where the problem is not TD(0)."""
    known = constants(problem)
    gamma, nu, obs = known.discount, known.nu, problem.observations
    if np.isnan(nu) or not isinstance(obs, RankOne):
        got = problem.made_by if problem.recipe else "one made by hand"
        raise ArgumentError(f"problem must be one of TD(0) for prop:condition_check to speak of it; got {got}")
    possible = problem.prob > 0
    phi_sup = float(np.linalg.norm(obs.rows[obs.left[possible]], axis=1).max())
    noise = 2 * (1 + gamma) ** 2
    return TDClaim(
        discount=gamma,
        nu=nu,
        C_A=1 + gamma,
        Sigma_A_norm=noise,
        trace_Sigma_eps=noise * (np.sum(problem.theta_star_local**2, axis=1) + 1),
        trace_Sigma_omega=float(noise * (problem.theta_star @ problem.theta_star + 1)),
        a=(1 - gamma) * nu / 2,
        eta_inf=(1 - gamma) / 4,
        L=known.L_td,
        conditions={
            "transitions of a stationary chain (assum:generative_model)": problem.chain is not None,
            "E[phi phi^T] positive definite (assum:feature_design)": nu > 0,
            "||phi(s)|| <= 1 (assum:feature_design)": phi_sup <= 1 + 1e-12,
            "|r(s, a)| <= 1": bool(np.abs(obs.y[possible]).max() <= 1),
        },
    )


def claim_inputs(problem: Problem, eta: float) -> Inputs:
    """What the Claim promises of a TD(0) problem, in the place of the computed numbers."""
    claim = td_claim(problem)
    w2 = problem.weights**2
    gap = np.sum((problem.theta_star_local - problem.theta_star) ** 2, axis=1)
    extra: Conditions = {rule: (float(not met), 0.0) for rule, met in claim.conditions.items()}
    extra["eta <= (1 - gamma) / 4"] = (eta, claim.eta_inf)
    return Inputs(
        eta=eta,
        a=claim.a if claim.a > 0 else float("nan"),
        C_A=claim.C_A,
        Sigma_A_norm=claim.Sigma_A_norm,
        eps=float(w2 @ claim.trace_Sigma_eps),
        heter=float(w2 @ gap) * claim.Sigma_A_norm,
        Sigma_A=float(w2.sum()) * claim.Sigma_A_norm,
        Sigma_omega_norm=claim.trace_Sigma_omega,
        sigma_omega=claim.trace_Sigma_omega,
        a_sym=claim.a,
        L=claim.L,
        extra=extra,
    )


Rounds: TypeAlias = int | NDArray[np.int64]
Value: TypeAlias = Any  # a float; where several rounds were asked for, an array with one entry for each


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

    def _picture(self) -> str:
        return "" if isinstance(self.rounds, int) else curve(self.value, "the value by round, on a logarithmic scale")

    def _each_round(self, value: Value) -> Value:
        """A float for one round; for several an array of their number."""
        if isinstance(self.rounds, int):
            return float(value)
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
            text = f"{self.name} ({self.label}): conditions not met: {'; '.join(failed)}"
            warn(text, TheoryWarning)
        return self


def fedlsa_bound(problem: Problem, algorithm: FedLSA, rounds: Rounds, start: float, given: Inputs, label: str) -> Bound:
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
    eta, H, a, t = given.eta, algorithm.local_steps, given.a, rounds
    terms = {
        "noise": _root(eta * given.eps / (a * (1 - math.exp(-2)))),
        "heterogeneity": _root(2 * eta * given.heter / a),
        "bias fluctuation": _root(2 * eta * given.Sigma_A / a) * largest_bias(problem, eta, H, a),
        "transient": _left(eta * a, H * np.float64(t)) * start,
    }
    conditions = _stable(given)
    conditions["every agent has a theta_star_c"] = (float(np.isnan(given.heter)), 0.0)
    mse = (sum(terms.values()) + _bias_norms(problem, eta, H, t)) ** 2
    return Bound(label, "FedLSA", "E^{1/2} ||theta_t - theta_star - bias_t||^2", t, t * H, terms, conditions, mse)


def scafflsa_bound(
    problem: Problem, algorithm: SCAFFLSA, rounds: Rounds, start: float, given: Inputs, label: str
) -> Bound:
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
    equal_weights(problem)
    eta, H, a, t, d = given.eta, algorithm.local_steps, given.a, rounds, problem.dim
    psi_0 = start**2 + (eta * H) ** 2 * float(problem.table_weights @ np.sum(problem.table_xi_star**2, axis=1))
    terms = {
        "transient": _left(eta * a * H / 2, t) * 2 * psi_0,
        "noise": 36 * d * eta / (problem.n_agents * a) * given.Sigma_omega_norm,
    }
    conditions = _stable(given)
    conditions["eta a H <= 1"] = (eta * a * H, 1.0)
    limit = a / (240 * eta * (given.C_A**2 + given.Sigma_A_norm))
    conditions["H <= a / (240 eta (C_A^2 + ||Sigma_A||))"] = (float(H), limit)
    return Bound(label, "SCAFFLSA", "E ||theta_t - theta_star||^2", t, t * H, terms, conditions)


def scaffnew_bound(
    problem: Problem, algorithm: Scaffnew, rounds: Rounds, start: float, given: Inputs, label: str
) -> Bound:
    """Scaffnew from xi_0 = 0 (thm:potential_psi_t_sto_com_appendix): psi (eq:definition:lyapunov_app) at iteration K.

    (1 - zeta)^K (||theta_0 - theta_star||^2 + eta^2 / p^2 Delta) + 2 eta^2 / zeta E_c tr Sigma_omega_c,

    zeta = min(eta a, p^2), K = rounds / p (rounded up), a and L of assum:L-a-constant; the paper prints Sigma_eps.
    The average of the agents' iterates is the same whether they communicate at K or not, so by Jensen's inequality psi
    bounds the MSE of the server at a communication at iteration K. Any weights: psi is then the weighted mean.
    """
    eta, p = given.eta, algorithm.probability
    zeta, K = min(eta * given.a_sym, p**2), iterations(rounds, p)
    Delta = float(problem.table_weights @ np.sum(problem.table_xi_star**2, axis=1))
    exists = given.a_sym > 0 and not math.isnan(given.L)
    terms = {
        "transient": _left(zeta, K) * (start**2 + eta**2 / p**2 * Delta) if exists else math.nan,
        "noise": 2 * eta**2 / zeta * given.sigma_omega if exists else math.nan,
    }
    conditions = dict(given.extra)
    conditions["symmetric parts positive definite, L exists"] = (float(not exists), 0.0)
    conditions["eta <= 1 / (2 L)"] = (eta, 1 / (2 * given.L))
    which = K if isinstance(K, int) else "rounds / p"
    return Bound(label, "Scaffnew", f"E psi_K at iteration K = {which}", rounds, K, terms, conditions)


def largest_bias(problem: Problem, eta: float, H: int, a: float) -> float:
    """||rho_H|| / (1 - (1 - eta a)^H), which bounds ||bias_t|| for every t; NaN where a(eta) is."""
    shrink = -math.expm1(H * math.log1p(-eta * a)) if eta * a < 1 else a / a
    return float(np.linalg.norm(round_bias(problem, eta, H))) / shrink


def iterations(rounds: Rounds, p: float) -> Value:
    """K = T / p, rounded up: the iterations in which `rounds` communications are expected."""
    return math.ceil(rounds / p - 1e-9) if isinstance(rounds, int) else np.ceil(rounds / p - 1e-9).astype(np.int64)


def _bias_norms(problem: Problem, eta: float, H: int, rounds: Rounds) -> Value:
    """||bias_t|| at the given rounds; from one to the next, bias_{t+s} = Gamma^s bias_t + bias_s."""
    if isinstance(rounds, int):
        return np.linalg.norm(bias_at(problem, eta, H, rounds))
    w, A, norms = problem.table_weights, problem.table_A_bar, np.empty(len(rounds))
    S, _ = power_sums(A, eta, H)
    advances, bias = {}, np.zeros(problem.dim)
    with np.errstate(over="ignore", invalid="ignore"):
        Gamma = np.eye(problem.dim) - eta * np.einsum("m,mij,mjk->ik", w, S, A, optimize=True)
        for i, s in enumerate(np.diff(rounds, prepend=0).tolist()):
            if s not in advances:
                advances[s] = np.linalg.matrix_power(Gamma, s), bias_at(problem, eta, H, s)
            bias = advances[s][0] @ bias + advances[s][1]
            norms[i] = np.linalg.norm(bias)
    return norms


def _stable(given: Inputs) -> Conditions:
    exists, small = (float(math.isnan(given.a)), 0.0), (given.eta * given.a, 0.5)
    return {**given.extra, "a(eta) exists": exists, "eta a <= 1/2": small}


def _root(x: float) -> float:
    return math.nan if math.isnan(x) else math.sqrt(max(x, 0.0))


def _left(rate: float, times: Value) -> Value:
    """(1 - rate)^times, without loss of digits at tiny rates; 0 for a rate above one, where conditions fail anyway."""
    if rate < 1:
        return np.exp(times * math.log1p(-rate))
    return np.where(np.equal(times, 0), 1.0, math.nan if math.isnan(rate) else 0.0)
