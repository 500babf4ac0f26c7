"""Small problems that the tests of exact moments share."""

import numpy as np

import fedlsa as fl


def tiny(agents: int, dim: int, outcomes: int, seed: int, **keywords) -> fl.Problem:
    """Dense random tables whose averaged matrix is close to the identity."""
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(agents):
        A = np.eye(dim) + 0.4 * rng.standard_normal((outcomes, dim, dim))
        tables.append((rng.dirichlet(np.ones(outcomes)), A, rng.standard_normal((outcomes, dim))))
    return fl.problems.from_observations(tables, **keywords)
