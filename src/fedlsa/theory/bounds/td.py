"""TD(0): the constants that the paper's Claim (prop:condition_check) promises, and the bounds that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...checks import Floats
from ...errors import ArgumentError
from ...formatting import Displayed
from ...frozen import ReadOnly
from ...problems import Problem, RankOne
from ..constants import constants
from .base import Inputs, Numbers


@dataclass(frozen=True, eq=False, repr=False)
class TDClaim(Displayed, ReadOnly):
    """The Claim for TD(0) (prop:condition_check), and whether its assumptions hold on the problem."""

    discount: float  # gamma
    nu: float  # smallest eigenvalue of E[phi phi^T] over agents (assum:feature_design)
    C_A: float  # 1 + gamma, a bound on ||A(z)||
    Sigma_A_norm: float  # 2 (1 + gamma)^2, a bound on ||Sigma_A||
    trace_Sigma_eps: Floats = field(repr=False)  # (N,) 2 (1 + gamma)^2 (||theta_star_c||^2 + 1), of tr Sigma_eps
    trace_Sigma_omega: float  # 2 (1 + gamma)^2 (||theta_star||^2 + 1), of tr Sigma_omega, by the same proof
    a: float  # (1 - gamma) nu / 2
    eta_inf: float  # (1 - gamma) / 4
    L: float  # (1 + gamma)^2 / (1 - gamma), in the place of the paper's value below assum:L-a-constant
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
    extra: Numbers = {rule: (float(not met), 0.0) for rule, met in claim.conditions.items()}
    extra["eta <= (1 - gamma) / 4"] = (eta, claim.eta_inf)
    return Inputs(
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
