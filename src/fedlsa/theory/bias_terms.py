"""The bias of FedLSA (th:2nd_moment_no_cv), and the other parts that errors are made of, each as a problem of its own.

The bias is where local training drives the server when agents differ.

With S_H = sum_{h < H} (I - eta A_bar_c)^h, which depends on the agent c,

    I - (I - eta A_bar_c)^H = eta S_H A_bar_c,   A_bar_c (theta_star_c - theta_star) = -xi_star_c,

so both formulas of the paper turn into ones that never ask for theta_star_c, which a singular A_bar_c does not have:

    rho_H = -eta E_c[S_H xi_star_c],   bias = -(E_c[S_H A_bar_c])^{-1} E_c[S_H xi_star_c].

A part of the error obeys the recursion of the whole with a part of its noise left out. So it is the error of the same
method on a problem with the same A(z) and another b(z), and whatever is known exactly of a method on a problem
(second moments, limits, simulations) is known of each part, beside the lemma that bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..value_objects import Displayed, ReadOnly
from .linear import repeat
from .problem_constants import stability
from .problem_moments import EPS, Moments


def round_bias(problem: Problem, step_size: float, local_steps: int) -> Floats:
    """rho_H (eq:global_iterates_run): the drift that one round of FedLSA adds when it starts at theta_star, (d,).

    problem : one of fl.problems; step_size, local_steps : of FedLSA, the paper's eta and H

    rho_H = E_c[(I - (I - eta A_bar_c)^H)(theta_star_c - theta_star)]; 0 for H = 1 and for identical agents.
    """
    eta, H = _checked(problem, step_size, local_steps)
    return -eta * _drift(problem, eta, H)[1]


def bias(problem: Problem, step_size: float, local_steps: int) -> Floats:
    """The limit bias of FedLSA (th:2nd_moment_no_cv), (d,): its mean tends to theta_star + bias.

    problem : one of fl.problems; step_size, local_steps : of FedLSA, the paper's eta and H

    bias = (I - E_c[(I - eta A_bar_c)^H])^{-1} rho_H; its square is the drift of `stationary`, to which that of `exact`
    tends. Where the mean recursion is unstable there is no limit, and the step size is refused (`bias_at` has one).
    """
    return limit_bias(problem, *_checked(problem, step_size, local_steps))[0]


def limit_bias(problem: Problem | Moments, eta: float, H: int) -> tuple[Floats, float]:
    """The limit bias of FedLSA, and an estimate of its relative error."""
    matrix, drift, error = _drift(problem, eta, H)
    finite = np.isfinite(matrix).all() and np.isfinite(drift).all()
    rates = np.linalg.eigvals(matrix) if finite else np.full(1, np.inf)
    if not (2 * rates.real > eta * np.abs(rates) ** 2).all():  # |1 - eta rate| < 1, also of steps that 1 swallows
        radius = float(np.abs(1 - eta * rates).max())
        rule = f"step_size must be small enough for the mean of FedLSA with local_steps={H} to have a limit"
        raise ArgumentError(f"{rule}; got {eta:g}, where its recursion has spectral radius {radius:.6g}, not below 1")
    limit = np.asarray(-np.linalg.solve(matrix, drift), np.float64)
    return limit, error + EPS * float(np.linalg.cond(matrix)) if limit.any() else 0.0


def bias_at(problem: Problem, step_size: float, local_steps: int, rounds: int) -> Floats:
    """The bias after t rounds (th:2nd_moment_no_cv), (d,): FedLSA started at theta_star has mean theta_star + bias_t.

    problem : one of fl.problems; step_size, local_steps : of FedLSA, the paper's eta and H; rounds : t

    bias_t = sum_{s <= t} Gamma^{t-s} rho_H with Gamma = E_c[(I - eta A_bar_c)^H]; 0 for t = 0, and it tends to `bias`.
    """
    eta, H = _checked(problem, step_size, local_steps)
    return bias_path(problem, eta, H, [checks.integer("rounds", rounds)])[0]


@np.errstate(over="ignore", invalid="ignore")
def bias_path(problem: Problem, eta: float, H: int, rounds: ArrayLike) -> Floats:
    """bias_t : (R, d) at rising rounds t; from one to the next, bias_{t+s} = Gamma^s bias_t + bias_s."""
    (matrix, drift, _), bias, steps, path = _drift(problem, eta, H), np.zeros(problem.dim), {}, []
    for s in np.diff(rounds, prepend=0).tolist():
        if s and s not in steps:
            S = power_sums(matrix[None], eta, s)[0][0]  # of Gamma = I - eta matrix
            steps[s] = np.eye(len(S)) - eta * (matrix @ S), -eta * (S @ drift)
        if s:
            bias = (steps[s][0] @ bias if bias.any() else 0) + steps[s][1]
        path.append(bias)
    return np.array(path)


def first_order_bias(problem: Problem, step_size: float, local_steps: int) -> Floats:
    """The limit bias to first order in the step size, (d,); it too never asks for theta_star_c.

    problem : one of fl.problems; step_size, local_steps : of FedLSA, the paper's eta and H

    -eta (H-1)/2 A_bar^{-1} E_c[A_bar_c^2 (theta_star_c - theta_star)] = eta (H-1)/2 A_bar^{-1} E_c[A_bar_c xi_star_c].
    """
    eta, H = _checked(problem, step_size, local_steps)
    w, A, _, xi_star = _held_tables(problem)
    slope = np.einsum("m,mij,mj->i", w, A - A[0], xi_star)  # E_c[xi_star_c] = 0
    return np.asarray(eta * (H - 1) / 2 * np.linalg.solve(np.tensordot(w, A, 1), slope), np.float64)


def round_bias_bound(problem: Problem, step_size: float, local_steps: int) -> float:
    """The bound on ||rho_H|| of lem:bound-bias, corrected: a factor ||A_bar_c||^2 / 2 is not printed.

    problem : one of fl.problems; step_size, local_steps : of FedLSA, the paper's eta and H

    eta^2 H^2 / 2 E_c[||A_bar_c||^2 exp(eta H ||A_bar_c||) ||theta_star_c - theta_star||]; NaN without a theta_star_c.
    """
    eta, H = _checked(problem, step_size, local_steps)
    held = problem.table_weights > 0
    norm = np.linalg.norm(problem.table_A_bar[held], 2, axis=(1, 2))
    gap = np.linalg.norm(problem.table_theta_star_local[held] - problem.theta_star, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        each = norm**2 * np.exp(eta * H * norm) * gap
    each[gap == 0] = 0  # also where the exponential overflows
    return float((eta * H) ** 2 / 2 * (problem.table_weights[held] @ each))


def bias_gap_bound(problem: Problem, step_size: float, local_steps: int, rounds: int) -> float:
    """How far bias_t can be from its limit (lem:bias_bias_bound, eq:theta_bias_bias_bound); NaN where a(eta) is.

    problem : one of fl.problems; step_size, local_steps : of FedLSA, the paper's eta and H; rounds : t

    (1 - eta a)^{t H} ||(I - Gamma)^{-1}|| ||rho_H|| with Gamma = E_c[(I - eta A_bar_c)^H] and a = a(eta).
    """
    eta, H = _checked(problem, step_size, local_steps)
    t, a = checks.integer("rounds", rounds), stability(problem, eta)
    matrix, drift, _ = _drift(problem, eta, H)  # I - Gamma = eta matrix, rho_H = -eta drift
    smallest = np.linalg.svd(matrix, compute_uv=False)[-1] if np.isfinite(matrix).all() else np.nan
    rate = max(1 - eta * a, 0.0) if a == a else a
    return float(rate ** (t * H) * np.linalg.norm(drift) / smallest) if smallest > 0 else float("nan")


@dataclass(frozen=True, eq=False, repr=False)
class FedLSAParts(Displayed, ReadOnly):
    """The parts of FedLSA's error, each as a problem of its own (eq:FLSA_recursion_expanded_appendix).

    theta_t - theta_star = transient + bias + fluctuation of the bias + noise: the paper's terms, all random but the
    bias. In the split of `exact`, start is the mean of the transient, drift the bias, noise all that is random.

    transient : run from theta_0 - theta_star; its error is the transient part (lem:transient_term_bound)
    noise : run from 0; its error is the noise part (lem:fluctuation_term_bound)
    heterogeneity : run from theta_star; its error has mean bias_t (lem:bias_bias_bound), and what is left is the
        fluctuation of the bias (lem:bounding_flbi)
    """

    transient: Problem
    noise: Problem
    heterogeneity: Problem


@dataclass(frozen=True, eq=False, repr=False)
class SCAFFLSAParts(Displayed, ReadOnly):
    """The parts of SCAFFLSA's error, each as a problem of its own (sec:bias-corrected-lsa).

    theta_t - theta_star = virtual + fluctuation, from xi_0 = 0.

    virtual : run from theta_0; its error is the virtual iterate's (thm:transient-without-noise)
    fluctuation : run from 0; its error is the fluctuation (coro:analysis-noise-param)
    """

    virtual: Problem
    fluctuation: Problem


def fedlsa_parts(problem: Problem) -> FedLSAParts:
    """The decomposition of FedLSA (eq:FLSA_recursion_expanded_notations_appendix); it needs every theta_star_c.

    problem : one of fl.problems

    With eps(z) = A(z) theta_star_c - b(z): b = 0 for the transient, -eps for the noise, A(z) theta_star_c for the rest.
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    local, nothing = problem.table_theta_star_local, np.zeros_like(problem.table_xi_star)
    if not np.isfinite(local[problem.table_weights > 0]).all():
        raise ArgumentError("every agent must have a theta_star_c for FedLSA's decomposition; one has none")
    parts = (nothing, 0.0), (-local, 1.0), (local, 0.0)  # theta and the share of b, for each in its order
    return FedLSAParts(*(problem.with_b(theta, nothing, share) for theta, share in parts))


def scafflsa_parts(problem: Problem) -> SCAFFLSAParts:
    """The decomposition of SCAFFLSA (sec:bias-corrected-lsa).

    problem : one of fl.problems

    With omega(z) = A(z) theta_star - b(z) - xi_star_c: b = A(z) theta_star - xi_star_c for the virtual iterates, whose
    omega is 0, and -omega for the fluctuation, whose theta_star and xi_star are 0.
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    common, xi = np.broadcast_to(problem.theta_star, problem.table_xi_star.shape), problem.table_xi_star
    return SCAFFLSAParts(problem.with_b(common, -xi, 0.0), problem.with_b(-common, xi, 1.0))


def power_sums(A: Floats, eta: float, H: int) -> tuple[Floats, Floats]:
    """S = sum_{h < H} (I - eta A)^h of each matrix of A : (M, d, d), and F = S less the first S, in O(log H) products.

    With P_h = (I - eta A)^h = I - eta A S_h, these reach any H from S_1 = I, F_1 = 0 (0 marks the first matrix):

        S_{h+k} = S_h + S_k P_h,   F_{h+k} = F_h + F_k P_h + S_{k,0} (P_h - P_{h,0}),
        P_h - P_{h,0} = -eta ((A - A_0) S_h + A_0 F_h),

    so F is made of differences alone, and keeps its digits where the matrices are nearly equal or eta A is small.
    """
    identity, gap = np.eye(A.shape[-1]), A - A[:1]
    S = np.broadcast_to(identity, A.shape).copy()

    def then(first: tuple[Floats, Floats], later: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        (S, F), (S_later, F_later) = first, later
        P = identity - eta * (A @ S)
        # in this order, as in Newton's iteration, rounding errors die out
        return S + S_later @ P, F + F_later @ P - eta * (S_later[:1] @ (gap @ S + A[:1] @ F))

    with np.errstate(over="ignore", invalid="ignore"):
        return repeat((S, np.zeros_like(S)), H, then)


@np.errstate(over="ignore", invalid="ignore")
def _drift(problem: Problem | Moments, eta: float, H: int) -> tuple[Floats, Floats, float]:
    """E_c[S_H A_bar_c] : (d, d), E_c[S_H xi_star_c] : (d,) and its relative error: u <- (I - eta matrix) u - eta drift.

    As E_c[xi_star_c] = 0, the drift is E_c[F_H xi_star_c]: of differences twice, where agents hardly differ. Rounding
    A_bar_c and b_bar_c changes xi_star_c by eps (|A_bar_c| |theta_star| + |b_bar_c|), F by eps eta H |S| |A_bar_c| / 2.
    """
    w, A, b, xi_star = _held_tables(problem)
    S, F = power_sums(A, eta, H)
    matrix, drift = np.einsum("m,mij,mjk->ik", w, S, A, optimize=True), np.einsum("m,mij,mj->i", w, F, xi_star)
    if not (size := float(np.linalg.norm(drift))):
        return matrix, drift, 0.0
    S_size, F_size, A_size = (np.linalg.norm(X, axis=(1, 2)) for X in (S, F, A))
    lost = F_size * (A_size * np.linalg.norm(problem.theta_star) + np.linalg.norm(b, axis=1))
    lost += eta * H / 2 * S_size * A_size * np.linalg.norm(xi_star, axis=1)
    return matrix, drift, EPS * float(w @ lost) / size


def _held_tables(problem: Problem | Moments) -> tuple[Floats, Floats, Floats, Floats]:
    """Weights, A_bar, b_bar and xi_star of the tables that agents hold."""
    if isinstance(problem, Moments):
        return problem.table_weights, problem.A_bar, problem.b_bar, problem.xi_star
    held = problem.table_weights > 0
    tables = problem.table_weights, problem.table_A_bar, problem.table_b_bar, problem.table_xi_star
    return tuple(table[held] for table in tables)  # type: ignore[return-value]


def _checked(problem: Problem, step_size: float, local_steps: int) -> tuple[float, int]:
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    return checks.real("step_size", step_size, above=0), checks.integer("local_steps", local_steps, at_least=1)
