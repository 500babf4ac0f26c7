"""The paper's decompositions of the error, each part as a problem of its own.

A part of the error obeys the recursion of the whole with a part of its noise left out. So it is the error of the same
method on a problem with the same A(z) and another b(z), and whatever is known exactly of a method on a problem
(second moments, limits, simulations) is known of each part, beside the lemma that bounds it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError
from ...problems import Dense, Problem, RankOne


@dataclass(frozen=True, eq=False)
class FedLSAParts:
    """theta_t - theta_star = transient + bias + fluctuation of the bias + noise (eq:FLSA_recursion_expanded_appendix).

    transient : run from theta_0 - theta_star; its error is the transient part (lem:transient_term_bound)
    noise : run from 0; its error is the noise part (lem:fluctuation_term_bound)
    heterogeneity : run from theta_star; its error has mean bias_t (lem:bias_bias_bound), and what is left is the
        fluctuation of the bias (lem:bounding_flbi)
    """

    transient: Problem
    noise: Problem
    heterogeneity: Problem


@dataclass(frozen=True, eq=False)
class SCAFFLSAParts:
    """theta_t - theta_star = virtual + fluctuation (sec:bias-corrected-lsa), from xi_0 = 0.

    virtual : run from theta_0; its error is the virtual iterate's (thm:transient-without-noise)
    fluctuation : run from 0; its error is the fluctuation (coro:analysis-noise-param)
    """

    virtual: Problem
    fluctuation: Problem


def fedlsa_parts(problem: Problem) -> FedLSAParts:
    """The decomposition of FedLSA (eq:FLSA_recursion_expanded_notations_appendix); it needs every theta_star_c.

    With eps(z) = A(z) theta_star_c - b(z): b = 0 for the transient, -eps for the noise, A(z) theta_star_c for the rest.
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    local = problem.table_theta_star_local
    if not np.isfinite(local[problem.table_weights > 0]).all():
        raise ArgumentError("every agent must have a theta_star_c for FedLSA's decomposition; one has none")
    return FedLSAParts(
        transient=_with(problem, np.zeros_like(local), np.zeros_like(local), 0.0),
        noise=_with(problem, -local, np.zeros_like(local), 1.0),
        heterogeneity=_with(problem, local, np.zeros_like(local), 0.0),
    )


def scafflsa_parts(problem: Problem) -> SCAFFLSAParts:
    """The decomposition of SCAFFLSA (sec:bias-corrected-lsa).

    With omega(z) = A(z) theta_star - b(z) - xi_star_c: b = A(z) theta_star - xi_star_c for the virtual iterates, whose
    omega is 0, and -omega for the fluctuation, whose theta_star and xi_star are 0.
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    common, xi = np.broadcast_to(problem.theta_star, problem.table_xi_star.shape), problem.table_xi_star
    return SCAFFLSAParts(virtual=_with(problem, common, -xi, 0.0), fluctuation=_with(problem, -common, xi, 1.0))


def _with(problem: Problem, theta: Floats, shift: Floats, share: float) -> Problem:
    """The problem with b(z) replaced by A(z) theta_m + shift_m + share b(z); theta, shift : (M, d), one per table."""
    obs = problem.observations
    table = np.repeat(np.arange(problem.n_tables), np.diff(problem.first))
    new: RankOne | Dense
    if isinstance(obs, RankOne) and obs.ridge == 0 and not shift.any():
        new = replace(obs, y=np.sum(obs.rows[obs.right] * theta[table], axis=1) + share * obs.y)
    else:
        A, b = obs.matrices(slice(0, len(obs)))
        new = Dense(A, np.einsum("kij,kj->ki", A, theta[table]) + shift[table] + share * b)
    return replace(problem, observations=new, recipe={})
