"""What the theorems ask of a problem and of a method: its numbers, computed or promised by the Claim for TD(0)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from ... import checks
from ...algorithms import Algorithm
from ...checks import Floats
from ...errors import ArgumentError
from ...formatting import Displayed
from ...frozen import ReadOnly
from ...problems import Problem, RankOne
from ..constants import constants
from ..moments import start_error
from ..named_constants import Constants

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
    checks.instance("algorithm", algorithm, Algorithm, "a fedlsa algorithm")
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
        made = problem.recipe.get("constructor", "an unknown constructor")
        raise ArgumentError(f"problem must be one of TD(0) for prop:condition_check to speak of it; got {made}")
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
