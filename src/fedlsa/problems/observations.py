"""Problems given outright: every observation's matrix and vector."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from .base import Dense, Problem, agents
from .tables import not_empty, offsets, own, recipe, tuples


def from_observations(
    tables: Iterable[tuple[ArrayLike, ArrayLike, ArrayLike]],
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """A federated linear system (eq:lsa_syst_fed) from any finite law of A(z) and b(z) (assum:noise-level-flsa).

    tables : tuples (prob, A, b), prob : (K,) summing to one, A : (K, d, d), b : (K, d); K may differ.
    """
    given = tuples("tables", tables, ("prob", "A", "b"))
    prob: list[Floats] = []
    A: list[Floats] = []
    b: list[Floats] = []
    for m, (law, matrices, vectors) in enumerate(given):
        prob.append(checks.probabilities(f"prob in tables[{m}]", law, ("K",)))
        K, d = len(prob[-1]), A[0].shape[1] if A else "d"
        A.append(checks.array(f"A in tables[{m}]", matrices, (K, d, d)))
        not_empty(f"A in tables[{m}]", A[-1].shape)
        b.append(checks.array(f"b in tables[{m}]", vectors, (K, A[-1].shape[1])))
    held, w = agents(len(given), assignment, weights)
    first = offsets([len(law) for law in prob])
    all_A, all_b = np.concatenate(A), np.concatenate(b)
    spans = [slice(i, j) for i, j in pairwise(first)]
    own_tables = [(own(entry[0]), all_A[span], all_b[span]) for entry, span in zip(given, spans, strict=True)]
    return Problem(
        observations=Dense(all_A, all_b),
        prob=np.concatenate(prob),
        first=first,
        assignment=held,
        weights=w,
        recipe=recipe("from_observations", weights, assignment, {"tables": own_tables}),
    )
