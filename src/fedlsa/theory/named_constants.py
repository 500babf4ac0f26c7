"""What the constants of a problem are called, with what each of them means; constants.py computes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import Floats
from ..formatting import Displayed
from ..frozen import ReadOnly
from ..problems import Problem


def _of_problem(name: str, shape: str) -> Any:
    return property(lambda known: getattr(known.problem, name), doc=f"{shape}, of the problem.")


def _per_agent(table: str) -> Any:
    return property(lambda known: getattr(known, table)[known.problem.assignment], doc=f"(N, d, d), from {table}.")


def _largest_norm(table: str) -> Any:
    """Of covariances without an agent's index (thm:upper-bound-dist-param-scafflsa): the largest over agents."""

    def norm(known: Constants) -> float:
        held = getattr(known, table)[known.problem.table_weights > 0]
        finite = np.isfinite(held).all()
        return float(np.linalg.norm(held, 2, axis=(1, 2)).max()) if finite else float("nan")

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
        return (1 + self.discount) ** 2 / (1 - self.discount) if self.nu > 0 else float("nan")

    def stability(self, step_size: float) -> float:
        """a(step_size), as `stability` gives it, without a new pass over the outcomes."""
        held = self.problem.table_weights > 0
        return stability_rate(self.problem.table_A_bar[held], self.table_Sigma_A[held], step_size)

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


def stability_rate(A_bar: Floats, Sigma_A: Floats, eta: float) -> float:
    """min over tables of (1 - lambda_max^{1/2}) / eta; NaN if not positive.

    With mu = lambda_min(A_bar + A_bar^T - eta E[A^T A]), lambda_max = 1 - eta mu: no digits are lost at small steps.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        gain = A_bar + A_bar.swapaxes(1, 2) - eta * (A_bar.swapaxes(1, 2) @ A_bar + Sigma_A)
    if not np.isfinite(gain).all():
        return float("nan")
    mu = smallest_eigenvalue(gain)
    return float(mu / (1 + np.sqrt(max(1 - eta * mu, 0)))) if mu > 0 else float("nan")


def smallest_eigenvalue(matrices: Floats) -> float:
    """Of symmetric matrices (M, d, d), less what rounding may hide: singular ones are never positive definite."""
    rounding = 4 * matrices.shape[1] * np.finfo(np.float64).eps * np.abs(matrices).max(axis=(1, 2))
    return float(np.min(np.linalg.eigvalsh(matrices)[:, 0] - rounding))
