"""Problems given outright: every observation's matrix and vector, or the rows of a least squares problem."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from .arguments import agents, filled, offsets, recorded, same_columns, tuples
from .system import Dense, Problem, RankOne


def from_observations(
    tables: Iterable[tuple[ArrayLike, ArrayLike, ArrayLike]],
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """A federated linear system (eq:lsa_syst_fed) from any finite law of A(z) and b(z) (assum:noise-level-flsa).

    tables : tuples (prob, A, b), prob : (K,) summing to one, A : (K, d, d), b : (K, d); K may differ.
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    given = tuples("tables", tables, ("prob", "A", "b"))
    prob, A, b = [], list[Floats](), []
    for m, (law, matrices, vectors) in enumerate(given):
        prob.append(checks.probabilities(f"prob in tables[{m}]", law, ("K",)))
        K, d = len(prob[-1]), A[0].shape[1] if A else "d"
        A.append(filled(f"A in tables[{m}]", matrices, (K, d, d)))
        b.append(checks.array(f"b in tables[{m}]", vectors, (K, A[-1].shape[1])))
    assigned, w = agents(len(given), assignment, weights)
    first = offsets([len(law) for law in prob])
    z, laws = Dense(np.concatenate(A), np.concatenate(b)), [np.array(law) for law, _, _ in given]
    table_arguments = list(zip(laws, np.split(z.A, first[1:-1]), np.split(z.b, first[1:-1]), strict=True))
    problem = Problem(z, np.concatenate(prob), first, assigned, w)
    return recorded(problem, "from_observations", {"tables": table_arguments}, weights=weights, assignment=assignment)


def regression(
    sites: Iterable[tuple[ArrayLike, ArrayLike]],
    ridge: float = 0.0,
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """Least squares as a federated linear system (eq:lsa_syst_fed): A(z) = x x^T + ridge I and b(z) = y x.

    sites : pairs (X, y), X : (K, d) and y : (K,); K may differ from site to site, each row has probability 1/K.
    With weights proportional to K, theta_star is the (ridge) estimate from the data of all sites together.
    ridge : strength of the penalty, at least 0
    weights, assignment : (N,) how much each agent counts, by default the same; which table it holds, by default its own
    """
    given = tuples("sites", sites, ("X", "y"))
    same_columns("X in sites", [features for features, _ in given])
    strength = checks.real("ridge", ridge, at_least=0)
    X, y = list[Floats](), []
    for m, (features, target) in enumerate(given):
        X.append(filled(f"X in sites[{m}]", features, ("K", X[0].shape[1] if X else "d")))
        y.append(checks.array(f"y in sites[{m}]", target, (len(X[-1]),)))
    assigned, w = agents(len(given), assignment, weights)
    first = offsets([len(rows) for rows in X])
    row = np.arange(first[-1], dtype=np.uint32)
    z = RankOne(np.concatenate(X), row, row, np.concatenate(y), strength)
    site_arguments = list(zip(np.split(z.rows, first[1:-1]), np.split(z.y, first[1:-1]), strict=True))
    problem = Problem(z, np.repeat(1 / np.diff(first), np.diff(first)), first, assigned, w, ordered=True)
    given_as = {"sites": site_arguments, "ridge": strength}
    return recorded(problem, "regression", given_as, weights=weights, assignment=assignment)
