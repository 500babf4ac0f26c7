"""The constants of the paper that depend on the problem alone, computed from its tables of observations.

With A~(z) = A(z) - A_bar_c, b~(z) = b(z) - b_bar_c and the noises (eq:def-epsilon-noise)

    eps_c(z) = A~(z) theta_star_c - b~(z),   omega_c(z) = A~(z) theta_star - b~(z),

the covariances (eq:def_covariance_noises) are Sigma_A = E[A~^T A~], the order that the bounds use (the paper prints
E[A~ A~^T]), Sigma_eps = E[eps eps^T] and Sigma_omega = E[omega omega^T]. Outcomes are visited in chunks: memory is
linear in the number of tables, and a rank-one outcome is never written out as a matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import scipy.linalg

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Dense, Problem, RankOne
from ..value_objects import Displayed, ReadOnly
from . import tuning

Kept = TypeVar("Kept")


def _of_problem(name: str, shape: str) -> Any:
    return property(lambda known: getattr(known.problem, name), doc=f"{shape}, of the problem.")


def _per_agent(table: str) -> Any:
    return property(lambda known: getattr(known, table)[known.problem.assignment], doc=f"(N, d, d), from {table}.")


def _largest_norm(table: str) -> Any:
    """Of covariances without an agent's index (thm:upper-bound-dist-param-scafflsa): the largest over agents."""

    def norm(known: Constants) -> float:
        held = getattr(known, table)[known.problem.table_weights > 0]
        finite = np.isfinite(held).all()
        return float(np.linalg.norm(held, 2, axis=(1, 2)).max()) if finite else math.nan

    return cached_property(norm)


@dataclass(frozen=True, eq=False, repr=False)
class Constants(Displayed, ReadOnly):
    """The constants of the paper that depend on the problem alone.

    `table_...` has one entry per table, other arrays one per agent. NaN stands for what does not exist: everything
    about theta_star_c where A_bar_c is singular, L and nu where they have no value.

    problem : that they are of
    table_Sigma_A : (M, d, d) covariance of the matrices, E[A~^T A~]
    table_Sigma_A_printed : (M, d, d) E[A~ A~^T], as the paper prints it
    table_Sigma_eps : (M, d, d) covariance of the noise at theta_star_c
    table_Sigma_omega : (M, d, d) covariance of the noise at theta_star
    C_A : largest mean matrix, sup_c ||A_bar_c|| (assum:noise-level-flsa)
    A_sup : largest matrix, sup_c sup_z ||A(z)||, the C_A of assum:P_pi_ergodicity
    eps_sup : largest noise, sup_c sup_z ||eps_c(z)|| (assum:P_pi_ergodicity)
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

    problem: Problem = field(repr=False)
    table_Sigma_A: Floats = field(repr=False)
    table_Sigma_A_printed: Floats = field(repr=False)
    table_Sigma_eps: Floats = field(repr=False)
    table_Sigma_omega: Floats = field(repr=False)
    C_A: float
    A_sup: float
    eps_sup: float
    Sigma_A_mean: float
    sigma_eps: float
    sigma_omega: float
    v_heter: float
    Delta: float
    a_sym: float
    L: float
    nu: float
    distance: float
    chi: float
    discount: float

    @property
    def L_td(self) -> float:
        """L for TD(0), ||phi|| <= 1: E[A^T A] <= (1 + gamma)^2 E[phi phi^T] <= L E[(A + A^T) / 2]; or NaN."""
        return (1 + self.discount) ** 2 / (1 - self.discount) if self.nu > 0 else math.nan

    def stability(self, step_size: float) -> float:
        """a(step_size), as `stability` gives it.

        With mu = lambda_min(A_bar + A_bar^T - eta E[A^T A]), lambda_max = 1 - eta mu: small steps lose no digits.
        """
        eta, held = step_size, self.problem.table_weights > 0
        A_bar, Sigma_A = self.problem.table_A_bar[held], self.table_Sigma_A[held]
        with np.errstate(over="ignore", invalid="ignore"):
            gain = A_bar + A_bar.swapaxes(1, 2) - eta * (A_bar.swapaxes(1, 2) @ A_bar + Sigma_A)
        mu = smallest_eigenvalue(gain) if np.isfinite(gain).all() else math.nan
        return mu / (1 + math.sqrt(max(1 - eta * mu, 0))) if mu > 0 else math.nan

    A_bar = _of_problem("A_bar", "(N, d, d)")
    b_bar = _of_problem("b_bar", "(N, d)")
    theta_star = _of_problem("theta_star", "(d,)")
    theta_star_local = _of_problem("theta_star_local", "(N, d)")
    xi_star = _of_problem("xi_star", "(N, d)")
    Sigma_A = _per_agent("table_Sigma_A")
    Sigma_eps = _per_agent("table_Sigma_eps")
    Sigma_omega = _per_agent("table_Sigma_omega")
    Sigma_A_norm = _largest_norm("table_Sigma_A")
    Sigma_eps_norm = _largest_norm("table_Sigma_eps")
    Sigma_omega_norm = _largest_norm("table_Sigma_omega")


def smallest_eigenvalue(matrices: Floats) -> float:
    """Of symmetric matrices (M, d, d), less what rounding may hide: singular ones are never positive definite."""
    rounding = 4 * matrices.shape[1] * np.finfo(np.float64).eps * np.abs(matrices).max(axis=(1, 2))
    return float(np.min(np.linalg.eigvalsh(matrices)[:, 0] - rounding))


def kept(problem: Problem, name: str, compute: Callable[[Problem], Kept]) -> Kept:
    """What is computed once for a problem, which keeps it beside its cached properties."""
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    known: dict[str, Kept] = problem.__dict__
    if name not in known:
        known[name] = compute(problem)
    return known[name]


def constants(problem: Problem) -> Constants:
    """Every constant of the paper that depends on the problem alone; the problem keeps them for the next call."""
    return kept(problem, "_constants", _computed)


def _computed(problem: Problem) -> Constants:
    obs, M, d, w = problem.observations, problem.n_tables, problem.dim, problem.table_weights
    held, td = w > 0, not (problem.discount is None or problem.trace or problem.off_policy)  # TD(0)
    Sigma_A, printed = np.empty((M, d, d)), np.empty((M, d, d))
    Sigma_eps, Sigma_omega = np.zeros((M, d, d)), np.zeros((M, d, d))
    A_sup, eps_sup, features = np.zeros(M), np.zeros(M), np.zeros((M, d, d))
    for m, span in enumerate(problem.spans()):
        Sigma_A[m], printed[m] = _matrix_noise(problem, m, span)
        local, common = problem.table_theta_star_local[m], problem.theta_star
        A, b = problem.table_A_bar[m], problem.table_b_bar[m]
        for chunk in _chunks(problem, span):
            p = problem.prob[chunk]
            eps = _residuals(problem, chunk, local) - (A @ local - b)  # in the same order: 0 without noise
            omega = _residuals(problem, chunk, common) - (A @ common - b)
            Sigma_eps[m] += (p[:, None] * eps).T @ eps
            Sigma_omega[m] += (p[:, None] * omega).T @ omega
            if td and isinstance(obs, RankOne):
                u = obs.rows[obs.left[chunk]]  # phi(s)
                features[m] += (p[:, None] * u).T @ u
            possible = p > 0
            A_sup[m] = max(A_sup[m], _norms(problem, chunk)[possible].max(initial=0))
            eps_sup[m] = np.maximum(eps_sup[m], np.linalg.norm(eps[possible], axis=1).max(initial=0))
    A_bar, local, noise = problem.table_A_bar, problem.table_theta_star_local, np.linalg.norm(Sigma_A, 2, axis=(1, 2))
    nu = smallest_eigenvalue(features[held]) if td and isinstance(obs, RankOne) else math.nan
    distance = np.sum((local - problem.theta_star) ** 2, axis=1)
    a_sym, L = _cocoercivity(A_bar[held], Sigma_A[held])

    def mean(each: Floats) -> float:
        """E_c of one number per table."""
        return float(w[held] @ each[held])

    return Constants(
        problem=problem,
        table_Sigma_A=Sigma_A,
        table_Sigma_A_printed=printed,
        table_Sigma_eps=Sigma_eps,
        table_Sigma_omega=Sigma_omega,
        C_A=float(np.linalg.norm(A_bar[held], 2, axis=(1, 2)).max()),
        A_sup=float(A_sup[held].max()),
        eps_sup=float(eps_sup[held].max()),
        Sigma_A_mean=mean(noise),
        sigma_eps=mean(np.trace(Sigma_eps, axis1=1, axis2=2)),
        sigma_omega=mean(np.trace(Sigma_omega, axis1=1, axis2=2)),
        v_heter=mean(noise * distance),
        Delta=mean(np.sum(problem.table_xi_star**2, axis=1)),
        a_sym=a_sym,
        L=L,
        nu=nu,
        distance=mean(np.sqrt(distance)),
        chi=float(np.maximum(mean(distance), 1 + mean(np.sum(local**2, axis=1)))),
        discount=problem.discount if problem.discount is not None and nu == nu else math.nan,
    )


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

    a_sym = property(lambda claim: claim.a)  # the names of `Constants`
    Sigma_omega_norm = sigma_omega = property(lambda claim: claim.trace_Sigma_omega)


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


def _cocoercivity(A_bar: Floats, Sigma_A: Floats) -> tuple[float, float]:
    """a and L of assum:L-a-constant; there is no L unless every symmetric part is positive definite."""
    symmetric = (A_bar + A_bar.swapaxes(1, 2)) / 2
    a = smallest_eigenvalue(symmetric)
    if a <= 0:
        return a, math.nan
    second = Sigma_A + A_bar.swapaxes(1, 2) @ A_bar  # E[A^T A]
    try:
        L = max(scipy.linalg.eigh(E, S, eigvals_only=True)[-1] for E, S in zip(second, symmetric, strict=True))
    except np.linalg.LinAlgError:
        return a, math.nan
    return a, float(L)


def _matrix_noise(problem: Problem, m: int, span: slice) -> tuple[Floats, Floats]:
    """E[A~^T A~] and E[A~ A~^T] of one table, (d, d) each; the ridge drops out of A~."""
    obs, d = problem.observations, problem.dim
    if isinstance(obs, RankOne):
        return _rank_one_noise(problem, obs, span)
    inner, outer = np.zeros((d, d)), np.zeros((d, d))
    for chunk in _chunks(problem, span):
        noise = obs.A[chunk] - problem.table_A_bar[m]
        weighted = problem.prob[chunk, None, None] * noise
        inner += np.tensordot(weighted, noise, ((0, 1), (0, 1)))
        outer += np.tensordot(weighted, noise, ((0, 2), (0, 2)))
    return inner, outer


def _rank_one_noise(problem: Problem, obs: RankOne, span: slice) -> tuple[Floats, Floats]:
    """A~ = B - E[B] with B = u_bar v~^T + u~ v^T, all of the size of the noise: small noise keeps its digits."""
    d = obs.dim
    u_bar, v_bar = (problem.prob[span] @ obs.rows[side[span]] for side in (obs.left, obs.right))
    inner, outer, mean = np.zeros((d, d)), np.zeros((d, d)), np.zeros((d, d))
    for chunk in _chunks(problem, span):
        p, u, v = problem.prob[chunk], obs.rows[obs.left[chunk]] - u_bar, obs.rows[obs.right[chunk]]
        w = v - v_bar
        mean += (p[:, None] * u).T @ v
        mixed = ((p * (u @ u_bar))[:, None] * w).T @ v
        inner += mixed + mixed.T + (u_bar @ u_bar) * (p[:, None] * w).T @ w
        inner += ((p * np.sum(u * u, axis=1))[:, None] * v).T @ v
        mixed = np.outer(u_bar, (p * np.sum(w * v, axis=1)) @ u)
        outer += mixed + mixed.T + p @ np.sum(w * w, axis=1) * np.outer(u_bar, u_bar)
        outer += ((p * np.sum(v * v, axis=1))[:, None] * u).T @ u
    return inner - mean.T @ mean, outer - mean @ mean.T


def _residuals(problem: Problem, chunk: slice, theta: Floats) -> Floats:
    """A(z) theta - b(z) : (chunk, d)."""
    obs = problem.observations
    if isinstance(obs, Dense):
        return obs.A[chunk] @ theta - obs.b[chunk]
    u, v = obs.rows[obs.left[chunk]], obs.rows[obs.right[chunk]]
    return (v @ theta - obs.y[chunk])[:, None] * u + obs.ridge * theta


def _norms(problem: Problem, chunk: slice) -> Floats:
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


def _chunks(problem: Problem, span: slice) -> Iterator[slice]:
    """Parts of a span of outcomes that hold about tuning.OUTCOMES_AT_ONCE numbers."""
    d = problem.dim
    size = max(1, tuning.OUTCOMES_AT_ONCE // (d * d if isinstance(problem.observations, Dense) else d))
    for start in range(span.start, span.stop, size):
        yield slice(start, min(start + size, span.stop))
