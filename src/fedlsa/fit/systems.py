"""Each site's own linear system, its sufficient statistic, and the system that the sites share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..checks import Floats
from ..errors import SiteDataError
from .observe import Piece


@dataclass(frozen=True, eq=False)
class System:
    """The means of A(z) : (d, d) and b(z) : (d,) over a site's n rows."""

    n: int
    A: Floats
    b: Floats


def system(pieces: Iterable[Piece], ridge: float) -> System:
    """The system of one site, from its pieces."""
    n, A, b = 0, np.zeros(0), np.zeros(0)
    for p in pieces:
        first = n == 0
        A = p.u.T @ p.v if first else A + p.u.T @ p.v
        b = p.u.T @ p.y if first else b + p.u.T @ p.y
        n += len(p.y)
    return System(n, A / n + ridge * np.eye(len(b)), b / n)


def solution(systems: Sequence[System], weights: Floats, names: Sequence[str]) -> tuple[Floats, Floats]:
    """A = sum_c w_c A_c : (d, d), and theta with A theta = sum_c w_c b_c : (d,) (eq:lsa_syst_fed on the data).

    names : of the features. One that the others determine is an error that names it.
    """
    A = np.tensordot(weights, np.stack([s.A for s in systems]), 1)
    b = weights @ np.stack([s.b for s in systems])
    size = np.abs(A).max(axis=0)
    size[size == 0] = 1.0
    _, values, directions = np.linalg.svd(A / size)
    if values[-1] <= 1e-11 * values[0]:
        involved = np.abs(directions[-1] / size)
        named = [names[j] for j in np.argsort(-involved, kind="stable") if involved[j] > 0.01 * involved.max()]
        raise SiteDataError(
            f"columns {', '.join(repr(n) for n in sorted(named, key=list(names).index)[:6])} determine one another "
            "in the data of all sites together: their coefficients are not unique; leave one out, or add a ridge"
        )
    return A, np.asarray(np.linalg.solve(A, b), np.float64)


def own_solution(s: System) -> Floats:
    """The solution of a site's own system : (d,); NaN where it has none or many."""
    values = np.linalg.svd(s.A, compute_uv=False)
    if values[-1] <= 1e-11 * values[0]:
        return np.full(len(s.b), np.nan)
    return np.asarray(np.linalg.solve(s.A, s.b), np.float64)
