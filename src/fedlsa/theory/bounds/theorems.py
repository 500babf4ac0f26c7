"""The theorems on FedLSA, SCAFFLSA and Scaffnew with i.i.d. observations, with explicit constants.

The paper has a and eta_inf of assum:exp_stability; the proofs use the inequality at the one step size eta alone, so
each theorem is evaluated with a = a(eta), the largest that holds there, and asks for eta a <= 1/2.
"""

from __future__ import annotations

import math

import numpy as np

from ...algorithms import SCAFFLSA, FedLSA, Scaffnew
from ...problems.base import Problem
from ..bias import bias_at, power_sums, round_bias
from .base import Bound, Inputs, Numbers, Rounds, Value, equal_weights, finished


def fedlsa_bound(problem: Problem, algorithm: FedLSA, rounds: Rounds, start: float, given: Inputs, label: str) -> Bound:
    """FedLSA (th:2nd_moment_no_cv_constants): the RMS distance of theta_t to theta_star + bias_t.

    sqrt(eta sigma_eps / (a N (1 - e^-2))) + sqrt(2 eta v_heter / (N a))
        + 2 sqrt(E_c||Sigma_A||) ||rho_H|| / (a H^{1/2} N^{1/2}) + (1 - eta a)^{t H} ||theta_0 - theta_star||.

    Any weights: with independent agents 1/N E_c[...] is sum_c w_c^2 [...], and nothing else in the proof changes.
    """
    eta, H, a, t = _step(algorithm), algorithm.local_steps, given.a, rounds
    rho = float(np.linalg.norm(round_bias(problem, eta, H)))
    terms = {
        "noise": _root(eta * given.eps / (a * (1 - math.exp(-2)))),
        "heterogeneity": _root(2 * eta * given.heter / a),
        "bias fluctuation": 2 * _root(given.Sigma_A / H) * rho / a,
        "transient": _left(eta * a, H * np.float64(t)) * start,
    }
    offset = _bias_norms(problem, eta, H, t)
    conditions = _stable(eta, given)
    conditions["every agent has a theta_star_c"] = (float(np.isnan(given.heter)), 0.0)
    return finished(
        "FedLSA",
        label,
        "E^{1/2} ||theta_t - theta_star - bias_t||^2",
        t,
        t * H,
        terms,
        conditions,
        mse=(sum(terms.values()) + offset) ** 2,
    )


def scafflsa_bound(
    problem: Problem, algorithm: SCAFFLSA, rounds: Rounds, start: float, given: Inputs, label: str
) -> Bound:
    """SCAFFLSA from xi_0 = 0 (thm:upper-bound-dist-param-scafflsa): the MSE.

    (1 - eta a H / 2)^t 2 (||theta_0 - theta_star||^2 + eta^2 H^2 Delta) + 36 d eta / (N a) ||Sigma_omega||,

    with Delta = E_c||xi_star_c||^2, if H <= a / (240 eta (C_A^2 + ||Sigma_A||)), where the appendix
    prints Sigma_eps; equal weights alone.
    """
    equal_weights(problem)
    eta, H, a, t, d = _step(algorithm), algorithm.local_steps, given.a, rounds, problem.dim
    psi_0 = start**2 + (eta * H) ** 2 * float(problem.table_weights @ np.sum(problem.table_xi_star**2, axis=1))
    terms = {
        "transient": _left(eta * a * H / 2, t) * 2 * psi_0,
        "noise": 36 * d * eta / (problem.n_agents * a) * given.Sigma_omega_norm,
    }
    conditions = _stable(eta, given)
    conditions["eta a H <= 1"] = (eta * a * H, 1.0)
    limit = a / (240 * eta * (given.C_A**2 + given.Sigma_A_norm))
    conditions["H <= a / (240 eta (C_A^2 + ||Sigma_A||))"] = (float(H), limit)
    return finished("SCAFFLSA", label, "E ||theta_t - theta_star||^2", t, t * H, terms, conditions)


def scaffnew_bound(
    problem: Problem, algorithm: Scaffnew, rounds: Rounds, start: float, given: Inputs, label: str
) -> Bound:
    """Scaffnew from xi_0 = 0 (thm:potential_psi_t_sto_com_appendix): psi (eq:definition:lyapunov_app) at iteration K.

    (1 - zeta)^K (||theta_0 - theta_star||^2 + eta^2 / p^2 Delta) + 2 eta^2 / zeta E_c tr Sigma_omega_c,

    zeta = min(eta a, p^2), K = rounds / p (rounded up), a and L of assum:L-a-constant; the paper prints Sigma_eps.
    The average of the agents' iterates is the same whether they communicate at K or not, so by Jensen's inequality psi
    bounds the MSE of the server at a communication at iteration K. Any weights: psi is then the weighted mean.
    """
    eta, p = _step(algorithm), algorithm.probability
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
    return finished("Scaffnew", label, f"E psi_K at iteration K = {which}", rounds, K, terms, conditions)


def iterations(rounds: Rounds, p: float) -> Value:
    """K = T / p, rounded up: the iterations in which `rounds` communications are expected."""
    return math.ceil(rounds / p - 1e-9) if isinstance(rounds, int) else np.ceil(rounds / p - 1e-9).astype(np.int64)


def _bias_norms(problem: Problem, eta: float, H: int, rounds: Rounds) -> Value:
    """||bias_t|| at the given rounds; from one to the next, bias_{t+s} = Gamma^s bias_t + bias_s."""
    if isinstance(rounds, int):
        return np.linalg.norm(bias_at(problem, eta, H, rounds))
    w, A, norms = problem.table_weights, problem.table_A_bar, np.empty(len(rounds))
    S, _ = power_sums(A, eta, H)
    leaps, bias = {}, np.zeros(problem.dim)
    with np.errstate(over="ignore", invalid="ignore"):
        Gamma = np.eye(problem.dim) - eta * np.einsum("m,mij,mjk->ik", w, S, A, optimize=True)
        for i, s in enumerate(np.diff(rounds, prepend=0).tolist()):
            if s not in leaps:
                leaps[s] = np.linalg.matrix_power(Gamma, s), bias_at(problem, eta, H, s)
            bias = leaps[s][0] @ bias + leaps[s][1]
            norms[i] = np.linalg.norm(bias)
    return norms


def _stable(eta: float, given: Inputs) -> Numbers:
    conditions = dict(given.extra)
    conditions["a(eta) exists"] = (float(math.isnan(given.a)), 0.0)
    conditions["eta a <= 1/2"] = (eta * given.a, 0.5)
    return conditions


def _step(algorithm: FedLSA | SCAFFLSA | Scaffnew) -> float:
    assert isinstance(algorithm.step_size, float)  # `constant_step` has seen to it
    return algorithm.step_size


def _root(x: float) -> float:
    return math.nan if math.isnan(x) else math.sqrt(max(x, 0.0))


def _left(rate: float, times: Value) -> Value:
    """(1 - rate)^times, without loss of digits at tiny rates; 0 for a rate above one, where conditions fail anyway."""
    if rate < 1:
        return np.exp(times * math.log1p(-rate))
    return np.where(np.equal(times, 0), 1.0, math.nan if math.isnan(rate) else 0.0)
