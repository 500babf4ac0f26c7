"""The constants of the paper that depend on the problem alone, computed from its tables of observations.

With A~(z) = A(z) - A_bar_c, b~(z) = b(z) - b_bar_c and the noises (eq:def-epsilon-noise)

    eps_c(z) = A~(z) theta_star_c - b~(z),   omega_c(z) = A~(z) theta_star - b~(z),

the covariances (eq:def_covariance_noises) are Sigma_A = E[A~^T A~], the order that the bounds use (the paper prints
E[A~ A~^T]), Sigma_eps = E[eps eps^T] and Sigma_omega = E[omega omega^T]. Outcomes are visited in chunks: memory is
linear in the number of tables, and a rank-one outcome is never written out as a matrix.

On a trajectory an observation is z = (s, a, s'), and the next one starts in s'. So k >= 1 steps after z the law of the
observation is that of a chain of states k - 1 steps after s', and two such laws are as far apart as those of states:

    d(k) = max_{z, z'} TV(Q^k(. | z), Q^k(. | z')) = max_{s, s'} TV(P^{k-1}(. | s), P^{k-1}(. | s')).

d never grows and d(j + k) <= d(j) d(k): the least tau with d(k) <= (1/4)^{floor(k / tau)} for all k
(eq:drift-condition-main) is the least with d(tau) <= 1/4.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import scipy.linalg

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Dense, Problem, RankOne, Stream
from ..value_objects import Displayed, ReadOnly, frozen_property
from . import tuning

PERIODIC_FROM = 2**40  # steps: a chain that has not mixed by then counts as periodic
Kept = TypeVar("Kept")


def constant(formula: Callable[[Any], Any], shown: bool = True) -> Any:
    """A field that follows from those before it."""
    return field(init=False, repr=shown, metadata={"formula": formula})


@dataclass(frozen=True, eq=False, repr=False)
class OfProblem(Displayed, ReadOnly):
    """Base of the constants of a problem; those with a formula are computed in their order."""

    problem: Problem = field(repr=False)

    def __post_init__(self) -> None:
        for f in fields(self):
            if "formula" in f.metadata:
                vars(self)[f.name] = f.metadata["formula"](self)
        super().__post_init__()

    def of_average(self, agents: Floats) -> float:
        """What an average of independent agents has: sum_c w_c^2 of a number of each; the paper's E_c[...] / N."""
        return float(self.problem.weights**2 @ agents)


@dataclass(frozen=True, eq=False, repr=False)
class Constants(OfProblem):
    """The constants of the paper that depend on the problem alone.

    `table_...` has one entry per table, other arrays one per agent. NaN stands for what does not exist: everything
    about theta_star_c where A_bar_c is singular, L and nu where they have no value.

    table_Sigma_A : (M, d, d) covariance of the matrices, E[A~^T A~]
    table_Sigma_eps : (M, d, d) covariance of the noise at theta_star_c
    table_Sigma_omega : (M, d, d) covariance of the noise at theta_star
    table_A_sup, table_eps_sup : (M,) largest matrix, and largest noise at theta_star_c
    table_features : (M, d, d) E[phi(s) phi(s)^T]; NaN unless TD(0)
    C_A : largest mean matrix, sup_c ||A_bar_c|| (assum:noise-level-flsa)
    A_sup : largest matrix, sup_c sup_z ||A(z)||, the C_A of assum:P_pi_ergodicity
    eps_sup : largest noise, sup_c sup_z ||eps_c(z)|| (assum:P_pi_ergodicity)
    Sigma_A_norm, Sigma_eps_norm, Sigma_omega_norm : the largest over agents (thm:upper-bound-dist-param-scafflsa)
    Sigma_A_mean : noise of the matrices, E_c ||Sigma_A_c||
    sigma_eps : noise at the agents' own solutions, E_c tr Sigma_eps_c (eq;definition-kappa)
    sigma_omega : noise at the shared solution, E_c tr Sigma_omega_c
    v_heter : noise from differences, E_c ||Sigma_A_c|| ||theta_star_c - theta_star||^2 (eq;definition-kappa)
    Delta : how much agents differ, E_c ||xi_star_c||^2 (eq:heterogeneity-factor)
    a_sym : smallest eigenvalue of all E[(A + A^T) / 2] (assum:L-a-constant)
    L : smallest L with E[A^T A] <= L E[(A + A^T) / 2] for all c (assum:L-a-constant, its inequality put right)
    nu : smallest eigenvalue of all E[phi(s) phi(s)^T] (assum:feature_design); NaN unless TD(0)
    distance : of the agents' own solutions from the shared one, E_c ||theta_star_c - theta_star|| (th:2nd_moment_no_cv)
    chi : E_c ||theta_star_c - theta_star||^2 or 1 + E_c ||theta_star_c||^2, the larger (th:cor_fed_td_no_cv)
    discount : gamma; NaN unless TD(0)
    """

    table_Sigma_A: Floats = field(repr=False)
    table_Sigma_eps: Floats = field(repr=False)
    table_Sigma_omega: Floats = field(repr=False)
    table_A_sup: Floats = field(repr=False)
    table_eps_sup: Floats = field(repr=False)
    table_features: Floats = field(repr=False)
    C_A: float = constant(lambda k: float(_norms(k.A_held).max()))
    A_sup: float = constant(lambda k: k._largest(k.table_A_sup))
    eps_sup: float = constant(lambda k: k._largest(k.table_eps_sup))
    Sigma_A_norm: float = constant(lambda k: k._largest(_norms(k.table_Sigma_A)), shown=False)
    Sigma_eps_norm: float = constant(lambda k: k._largest(_norms(k.table_Sigma_eps)), shown=False)
    Sigma_omega_norm: float = constant(lambda k: k._largest(_norms(k.table_Sigma_omega)), shown=False)
    Sigma_A_mean: float = constant(lambda k: k._mean(_norms(k.table_Sigma_A)))
    sigma_eps: float = constant(lambda k: k._mean(np.trace(k.table_Sigma_eps, axis1=1, axis2=2)))
    sigma_omega: float = constant(lambda k: k._mean(np.trace(k.table_Sigma_omega, axis1=1, axis2=2)))
    v_heter: float = constant(lambda k: k._mean(_norms(k.table_Sigma_A) * k.table_gap))
    Delta: float = constant(lambda k: k._mean(_squares(k.problem.table_xi_star)))
    a_sym: float = constant(lambda k: smallest_eigenvalue(k.symmetric))
    L: float = constant(lambda k: _cocoercivity(k.second, k.symmetric) if k.a_sym > 0 else math.nan)
    nu: float = constant(lambda k: smallest_eigenvalue(k._of_agents(k.table_features)))
    distance: float = constant(lambda k: k._mean(np.sqrt(k.table_gap)))
    chi: float = constant(
        lambda k: float(np.maximum(k._mean(k.table_gap), 1 + k._mean(_squares(k.problem.table_theta_star_local))))
    )
    discount: float = constant(lambda k: k.problem.discount if k.nu == k.nu else math.nan)

    @property
    def L_td(self) -> float:
        """L for TD(0), ||phi|| <= 1: E[A^T A] <= (1 + gamma)^2 E[phi phi^T] <= L E[(A + A^T) / 2]; or NaN."""
        return (1 + self.discount) ** 2 / (1 - self.discount) if self.nu > 0 else math.nan

    def stability(self, step_size: float) -> float:
        """a(step_size), as `stability` gives it.

        With mu = lambda_min(A_bar + A_bar^T - eta E[A^T A]), lambda_max = 1 - eta mu: small steps lose no digits.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            mu = smallest_eigenvalue(2 * self.symmetric - step_size * self.second)
        return mu / (1 + math.sqrt(max(1 - step_size * mu, 0))) if mu > 0 else math.nan

    def _of_agents(self, tables: Floats) -> Floats:
        """Those of the tables that agents hold."""
        return tables[self.problem.table_weights > 0]

    def _mean(self, tables: Floats) -> float:
        """E_c of one number per table."""
        return float(self._of_agents(self.problem.table_weights) @ self._of_agents(tables))

    def _largest(self, tables: Floats) -> float:
        return float(self._of_agents(tables).max())

    table_Sigma_A_printed = frozen_property(lambda k: _matrix_noise(k.problem, transposed=True))
    table_gap = frozen_property(lambda k: _squares(k.problem.table_theta_star_local - k.problem.theta_star))
    A_held = property(lambda k: k._of_agents(k.problem.table_A_bar))
    symmetric = frozen_property(lambda k: (k.A_held + k.A_held.swapaxes(1, 2)) / 2)
    second = frozen_property(lambda k: k._of_agents(k.table_Sigma_A) + k.A_held.swapaxes(1, 2) @ k.A_held)
    A_bar = property(lambda k: k.problem.A_bar, doc="(N, d, d), of the problem.")
    b_bar = property(lambda k: k.problem.b_bar, doc="(N, d), of the problem.")
    theta_star = property(lambda k: k.problem.theta_star, doc="(d,), of the problem.")
    theta_star_local = property(lambda k: k.problem.theta_star_local, doc="(N, d), of the problem.")
    xi_star = property(lambda k: k.problem.xi_star, doc="(N, d), of the problem.")
    Sigma_A_norms = frozen_property(lambda k: _norms(k.table_Sigma_A)[k.problem.assignment])
    trace_Sigma_eps = frozen_property(lambda k: np.trace(k.Sigma_eps, axis1=1, axis2=2))
    Sigma_A = property(lambda k: k.table_Sigma_A[k.problem.assignment], doc="(N, d, d)")
    Sigma_eps = property(lambda k: k.table_Sigma_eps[k.problem.assignment], doc="(N, d, d)")
    Sigma_omega = property(lambda k: k.table_Sigma_omega[k.problem.assignment], doc="(N, d, d)")


def smallest_eigenvalue(matrices: Floats) -> float:
    """Of symmetric matrices (M, d, d), less what rounding may hide: singular ones are never positive definite."""
    if not np.isfinite(matrices).all():
        return math.nan
    rounding = 4 * matrices.shape[1] * np.finfo(np.float64).eps * np.abs(matrices).max(axis=(1, 2))
    return float(np.min(np.linalg.eigvalsh(matrices)[:, 0] - rounding))


def _norms(matrices: Floats) -> Floats:
    """The spectral norms of matrices (M, d, d); NaN where one is not finite."""
    found, finite = np.full(len(matrices), np.nan), np.isfinite(matrices).all(axis=(1, 2))
    found[finite] = np.linalg.norm(matrices[finite], 2, axis=(1, 2))
    return found


def _squares(vectors: Floats) -> Floats:
    return np.sum(vectors**2, axis=1)


def _cocoercivity(second: Floats, symmetric: Floats) -> float:
    """L of assum:L-a-constant, where symmetric parts are positive definite."""
    try:
        return float(
            max(scipy.linalg.eigh(E, S, eigvals_only=True)[-1] for E, S in zip(second, symmetric, strict=True))
        )
    except np.linalg.LinAlgError:
        return math.nan


def kept(compute: Callable[[Problem], Kept]) -> Callable[[Problem], Kept]:
    """What is computed once for a problem, which keeps it beside its cached properties."""

    @wraps(compute)
    def once(problem: Problem) -> Kept:
        checks.instance("problem", problem, Problem, "a fedlsa problem")
        known: dict[str, Kept] = problem.__dict__
        if (name := f"_{compute.__name__}") not in known:
            known[name] = compute(problem)
        return known[name]

    return once


@kept
def constants(problem: Problem) -> Constants:
    """Every constant of the paper that depends on the problem alone; the problem keeps them for the next call."""
    obs, M, d = problem.observations, problem.n_tables, problem.dim
    td = isinstance(obs, RankOne) and not (problem.discount in (None, 1) or problem.trace or problem.off_policy)
    Sigma_eps, Sigma_omega, features = (np.full((M, d, d), x) for x in (0.0, 0.0, 0.0 if td else np.nan))
    A_sup, eps_sup = np.zeros(M), np.zeros(M)
    if isinstance(obs, Stream):
        obs.stand_in()
        A_sup[:] = eps_sup[:] = np.nan  # what is largest is not known
    for m, chunk in _chunks(problem):
        p, eps = problem.prob[chunk], _noise_at(problem.table_theta_star_local[m], problem, m, chunk)
        omega = _noise_at(problem.theta_star, problem, m, chunk)
        Sigma_eps[m] += (p[:, None] * eps).T @ eps
        Sigma_omega[m] += (p[:, None] * omega).T @ omega
        if isinstance(obs, RankOne):
            u = obs.rows[obs.left[chunk]]  # phi(s) of TD(0); elsewhere NaN stays NaN
            features[m] += (p[:, None] * u).T @ u
        possible = p > 0
        A_sup[m] = np.maximum(A_sup[m], _outcome_norms(problem, chunk)[possible].max(initial=0))
        eps_sup[m] = np.maximum(eps_sup[m], np.linalg.norm(eps[possible], axis=1).max(initial=0))
    return Constants(problem, _matrix_noise(problem), Sigma_eps, Sigma_omega, A_sup, eps_sup, features)


def stability(problem: Problem, step_size: float) -> float:
    """The largest a of assum:exp_stability at this step size, over all agents; NaN if none is positive.

    problem : one of fl.problems
    step_size : eta

    E^{1/2} ||(I - eta A(z)) u||^2 <= (1 - eta a) ||u||, that is a = min_c (1 - lambda_max^{1/2}) / eta
    with lambda_max the largest eigenvalue of

        E[(I - eta A)^T (I - eta A)] = (I - eta A_bar_c)^T (I - eta A_bar_c) + eta^2 Sigma_A_c.
    """
    return constants(problem).stability(checks.real("step_size", step_size, above=0))


@dataclass(frozen=True, eq=False, repr=False)
class TDClaim(OfProblem):
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

    trace_Sigma_eps: Floats = field(repr=False)
    conditions: dict[str, bool]
    discount: float = constant(lambda k: constants(k.problem).discount)
    nu: float = constant(lambda k: constants(k.problem).nu)
    C_A: float = constant(lambda k: 1 + k.discount)
    Sigma_A_norm: float = constant(lambda k: 2 * (1 + k.discount) ** 2)
    trace_Sigma_omega: float = constant(
        lambda k: float(k.Sigma_A_norm * (k.problem.theta_star @ k.problem.theta_star + 1))
    )
    a: float = constant(lambda k: (1 - k.discount) * k.nu / 2)
    eta_inf: float = constant(lambda k: (1 - k.discount) / 4)
    L: float = constant(lambda k: constants(k.problem).L_td)

    def stability(self, step_size: float) -> float:
        """a, the rate that is promised whatever step_size is; NaN where there is none."""
        return self.a if self.a > 0 else math.nan

    # the names of `Constants`
    Sigma_A_norms = property(lambda claim: np.full(claim.problem.n_agents, claim.Sigma_A_norm))
    a_sym = property(lambda claim: claim.a)
    Sigma_omega_norm = sigma_omega = property(lambda claim: claim.trace_Sigma_omega)


def td_claim(problem: Problem) -> TDClaim:
    """The constants of prop:condition_check; an ArgumentError where the problem is not TD(0)."""
    known, obs = constants(problem), problem.observations
    if math.isnan(known.nu) or not isinstance(obs, RankOne):
        got = problem.made_by if problem.recipe else "one made by hand"
        raise ArgumentError(f"problem must be one of TD(0) for prop:condition_check to speak of it; got {got}")
    possible = problem.prob > 0
    phi_sup = float(np.linalg.norm(obs.rows[obs.left[possible]], axis=1).max())
    conditions = {
        "transitions of a stationary chain (assum:generative_model)": problem.chain is not None,
        "E[phi phi^T] positive definite (assum:feature_design)": known.nu > 0,
        "||phi(s)|| <= 1 (assum:feature_design)": phi_sup <= 1 + 1e-12,
        "|r(s, a)| <= 1": bool(np.abs(obs.y[possible]).max() <= 1),
    }
    return TDClaim(problem, 2 * (1 + known.discount) ** 2 * (_squares(problem.theta_star_local) + 1), conditions)


@dataclass(frozen=True, eq=False, repr=False)
class MarkovConstants(OfProblem):
    """The constants of trajectories (assum:P_pi_ergodicity).

    They are those of eq:condition_number_contraction_rates and eq:alpha_infty_makov. Arrays have one entry per agent.
    NaN stands for what does not exist, where some -A_bar_c is not Hurwitz, or where floating-point numbers cannot tell.

    problem : that they are of
    tau_mix_local : (N,) mixing time of each agent's chain of observations; inf if periodic
    Q : (N, d, d) with A_bar^T Q + Q A_bar = I (eq:Lyapunov)
    a_local : (N,) ||Q_c||^-1 / 2
    eta_tilde_inf_local : (N,) largest step size with which the mean step of each agent contracts
    kappa_Q_local : (N,) condition number of Q_c
    tau_mix : the longest mixing time of an agent, in observations
    kappa_Q : the largest condition number of an agent's Q
    a_tilde : the slowest rate of an agent
    eta_tilde_inf : the smallest of the agents' largest step sizes
    C_A : the largest matrix, sup_z ||A(z)||
    b_Q : 2 kappa_Q^{1/2} C_A
    blocks : steps of a block in the proof of lem:matr_product_upd
    C_Gamma : the factor of lem:matr_product_upd
    c_A_M : a_tilde / (12 C_Gamma)
    eta_inf_M : largest step size of lem:matr_product_upd
    """

    tau_mix_local: Floats
    Q: Floats = field(repr=False)
    a_local: Floats = field(repr=False)
    eta_tilde_inf_local: Floats = field(repr=False)
    kappa_Q_local: Floats = field(repr=False)
    tau_mix: float = constant(lambda k: float(k.tau_mix_local.max()))
    kappa_Q: float = constant(lambda k: float(k.kappa_Q_local.max()))
    a_tilde: float = constant(lambda k: float(k.a_local.min()))
    eta_tilde_inf: float = constant(lambda k: float(k.eta_tilde_inf_local.min()))
    C_A: float = constant(lambda k: constants(k.problem).A_sup)
    b_Q: float = constant(lambda k: 2 * math.sqrt(k.kappa_Q) * k.C_A)
    blocks: float = constant(lambda k: float(np.ceil(4 * k.b_Q / k.a_tilde)), shown=False)
    C_Gamma: float = constant(lambda k: 4 * (k.b_Q / 2 + k.a_tilde / 6) ** 2 * k.blocks)
    c_A_M: float = constant(lambda k: k.a_tilde / (12 * k.C_Gamma))
    eta_inf_M: float = constant(lambda k: float(np.minimum(np.min(k._steps) / k.blocks, k.c_A_M / 2)))
    _steps = property(lambda k: [k.eta_tilde_inf, 2 / k.b_Q, k.a_tilde / (6 * math.e * k.kappa_Q * k.C_A)])


@kept
def markov_constants(problem: Problem) -> MarkovConstants:
    """Every constant of the Markovian case; the problem must have been made from chains, and keeps them."""
    tau, A_bar, each = mixing_times(problem), problem.table_A_bar, problem.assignment
    Q, (norm, kappa, weighted) = np.stack([lyapunov_matrix(A) for A in A_bar]), np.full((3, len(A_bar)), np.nan)
    for m in np.flatnonzero(np.isfinite(Q).all(axis=(1, 2))):
        spectrum = np.linalg.eigvalsh(Q[m])
        root = np.linalg.cholesky(Q[m]).T  # ||x||_Q = ||root x||
        norm[m], kappa[m] = spectrum[-1], spectrum[-1] / spectrum[0]
        weighted[m] = np.linalg.norm(root @ A_bar[m] @ np.linalg.inv(root), 2)
    a, eta = 1 / (2 * norm), np.minimum(1 / (2 * weighted**2 * norm), norm)
    return MarkovConstants(problem, tau[each], Q[each], a[each], eta[each], kappa[each])


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


def _matrix_noise(problem: Problem, transposed: bool = False) -> Floats:
    """E[A~^T A~] of each table, (M, d, d), or E[A~ A~^T]; the ridge drops out of A~.

    Of rank one A~ = B - E[B] with B = u_bar v~^T + u~ v^T, all of the size of the noise: small noise keeps its digits.
    """
    obs, prob, spans = problem.observations, problem.prob, list(problem.spans())
    total, mean = np.zeros((2, problem.n_tables, problem.dim, problem.dim))
    if isinstance(obs, Dense):
        axes = (0, 2) if transposed else (0, 1)
        for m, chunk in _chunks(problem):
            noise = obs.A[chunk] - problem.table_A_bar[m]
            total[m] += np.tensordot(prob[chunk, None, None] * noise, noise, (axes, axes))
        return total
    left, right = (obs.right, obs.left) if transposed else (obs.left, obs.right)
    u_bar, v_bar = ([prob[span] @ obs.rows[side[span]] for span in spans] for side in (left, right))
    for m, chunk in _chunks(problem):
        p, u, v = prob[chunk], obs.rows[left[chunk]] - u_bar[m], obs.rows[right[chunk]]
        w = v - v_bar[m]
        mean[m] += (p[:, None] * u).T @ v
        mixed = ((p * (u @ u_bar[m]))[:, None] * w).T @ v
        total[m] += mixed + mixed.T + (u_bar[m] @ u_bar[m]) * (p[:, None] * w).T @ w
        total[m] += ((p * np.sum(u * u, axis=1))[:, None] * v).T @ v
    return total - mean.swapaxes(1, 2) @ mean


def _noise_at(theta: Floats, problem: Problem, m: int, chunk: slice) -> Floats:
    """A~(z) theta - b~(z) : (chunk, d), of outcomes of table m."""
    obs, mean = problem.observations, problem.table_A_bar[m] @ theta - problem.table_b_bar[m]
    if isinstance(obs, Dense):
        return obs.A[chunk] @ theta - obs.b[chunk] - mean  # in the same order: 0 without noise
    u, v = obs.rows[obs.left[chunk]], obs.rows[obs.right[chunk]]
    return (v @ theta - obs.y[chunk])[:, None] * u + obs.ridge * theta - mean


def _outcome_norms(problem: Problem, chunk: slice) -> Floats:
    """||A(z)|| : (chunk,)."""
    obs = problem.observations
    if isinstance(obs, Dense):
        return np.asarray(np.linalg.norm(obs.A[chunk], 2, axis=(1, 2)))
    u, v, r = obs.rows[obs.left[chunk]], obs.rows[obs.right[chunk]], obs.ridge
    dot = np.sum(u * v, axis=1)
    if problem.dim == 1:
        return np.asarray(np.abs(dot + r))
    # A^T A - r^2 I acts on span(u, v) alone, where its two eigenvalues have this sum and the product -r^2 area
    squares = np.sum(u * u, axis=1) * np.sum(v * v, axis=1)
    total, area = 2 * r * dot + squares, np.maximum(squares - dot**2, 0)
    return np.asarray(np.sqrt(r**2 + (total + np.sqrt(total**2 + 4 * r**2 * area)) / 2))


def _chunks(problem: Problem) -> Iterator[tuple[int, slice]]:
    """Each table, in parts of its outcomes that hold about tuning.OUTCOMES_AT_ONCE numbers."""
    d = problem.dim
    size = max(1, tuning.OUTCOMES_AT_ONCE // (d * d if isinstance(problem.observations, Dense) else d))
    for m, span in enumerate(problem.spans()):
        for start in range(span.start, span.stop, size):
            yield m, slice(start, min(start + size, span.stop))
