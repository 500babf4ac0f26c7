"""Small problems that the tests of exact moments share."""

import numpy as np

import fedlsa as fl
from fedlsa.theory.problem_moments import Moments
from fedlsa.theory.rounds import AgentRound, GroupStages, agent_round, groups_of


def tiny(agents: int, dim: int, outcomes: int, seed: int, **keywords) -> fl.Problem:
    """Dense random tables whose averaged matrix is close to the identity."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(agents):
        A = np.eye(dim) + 0.4 * rng.standard_normal((outcomes, dim, dim))
        tables.append((rng.dirichlet(np.ones(outcomes)), A, rng.standard_normal((outcomes, dim))))
    return fl.problems.from_observations(tables, **keywords)


def well_conditioned(seed: int = 0, agents: int = 2, spread: float = 0.3, **options) -> fl.Problem:
    """Dense tables of dimension 2 whose matrices are near multiples of the identity, from 1 to 2."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(agents):
        A = (1 + rng.random()) * np.eye(2) + spread * rng.standard_normal((3, 2, 2))
        tables.append((rng.dirichlet(np.ones(3)), A, rng.standard_normal((3, 2))))
    return fl.problems.from_observations(tables, **options)


def turning(agents: int, re: float = 0.001, im: float = 0.1) -> fl.Problem:
    """Many different agents with eigenvalues re +- i im."""
    rng, tables = np.random.default_rng(0), []
    for _ in range(agents):
        A = np.array([[re, im], [-im, re]]) + 0.05 * re * rng.standard_normal((2, 2))
        E, b, e = 0.05 * re * rng.standard_normal((2, 2)), rng.standard_normal(2), rng.standard_normal(2)
        tables.append(([0.5, 0.5], np.stack([A + E, A - E]), np.stack([b + e, b - e])))
    return fl.problems.from_observations(tables)


def skewed(agents: int, delta: float) -> fl.Problem:
    """Many different agents whose two eigenvectors are nearly one."""
    rng, tables = np.random.default_rng(0), []
    for _ in range(agents):
        A = (1 + 0.3 * rng.random()) * np.array([[1.0, 1.0], [0.0, 1.0 + delta]])
        E, b, e = 0.1 * rng.standard_normal((2, 2)), rng.standard_normal(2), rng.standard_normal(2)
        tables.append(([0.5, 0.5], np.stack([A + E, A - E]), np.stack([b + e, b - e])))
    return fl.problems.from_observations(tables)


def round_of(problem: fl.Problem | Moments, a: fl.Algorithm, steady: bool = True) -> AgentRound:
    """A round of a method with control variates."""
    groups = groups_of(problem, a)
    m = groups.moments
    return agent_round(m, GroupStages.of(a, groups, a.step_size), steady)
