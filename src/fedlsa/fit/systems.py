"""Each site's own linear system, its sufficient statistic, and the system that the sites share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..checks import Floats
from ..errors import SiteDataError
from .observe import Piece

SINGULAR = 1e-12  # of the largest singular value, rows and columns scaled to one size: below it are rounding errors


@dataclass(frozen=True, eq=False)
class System:
    """The means of A(z) : (d, d) and b(z) : (d,) over a site's n rows."""

    n: int
    A: Floats
    b: Floats


@dataclass(frozen=True, eq=False)
class Sums:
    """Of u v^T : (d, d) and y u : (d,) over n rows: what pieces of a site add up to."""

    n: int
    A: Floats
    b: Floats

    @classmethod
    def of(cls, p: Piece) -> Sums:
        return cls(len(p.y), p.u.T @ p.v, p.u.T @ p.y)

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.n + other.n, self.A + other.A, self.b + other.b)

    def system(self, ridge: Floats | float) -> System:
        """The means, with the ridge of each coefficient, (d,), or of all."""
        return System(self.n, self.A / self.n + np.diag(np.broadcast_to(ridge, self.b.shape)), self.b / self.n)


def system(pieces: Iterable[Piece], ridge: Floats) -> System:
    """The system of one site, from its pieces."""
    total: Sums | None = None
    for p in pieces:
        total = Sums.of(p) if total is None else total + Sums.of(p)
    assert total is not None  # a site without rows has been refused
    return total.system(ridge)


def solution(systems: Sequence[System], weights: Floats, names: Sequence[str]) -> tuple[Floats, Floats]:
    """A = sum_c w_c A_c : (d, d), and theta with A theta = sum_c w_c b_c : (d,) (eq:lsa_syst_fed on the data).

    names : of the features. Those that determine one another are an error that names them.
    """
    A = np.tensordot(weights, np.stack([s.A for s in systems]), 1)
    b = weights @ np.stack([s.b for s in systems])
    free = null_space(A)
    if len(free):
        raise SiteDataError(_undetermined(free, names, sum(s.n for s in systems)))
    return A, np.asarray(np.linalg.solve(A, b), np.float64)


def own_solution(s: System) -> Floats:
    """The solution of a site's own system : (d,); NaN where it has none or many."""
    if len(null_space(s.A)):
        return np.full(len(s.b), np.nan)
    return np.asarray(np.linalg.solve(s.A, s.b), np.float64)


def null_space(A: Floats) -> Floats:
    """(k, d): k independent directions with A x = 0 up to rounding errors, none for a regular matrix.

    They are those of A with its rows and columns scaled to one size, so that the units of columns play no part.
    """
    rows = np.abs(A).max(axis=1, keepdims=True)
    even = A / np.where(rows == 0, 1.0, rows)
    columns = np.abs(even).max(axis=0)
    columns[columns == 0] = 1.0
    _, values, directions = np.linalg.svd(even / columns)
    return np.asarray(directions[values <= SINGULAR * values[0]], np.float64)


def _undetermined(free: Floats, names: Sequence[str], n: int) -> str:
    """What to say of a system with many solutions: the shortest relation between columns that the data show."""
    d = len(names)
    if n < d:
        return f"all sites together must have at least as many rows as coefficients, {d}; they have {n}"
    relations = [np.flatnonzero(np.abs(x) > 1e-6 * np.abs(x).max()).tolist() for x in _echelon(free)]
    involved = [names[j] for j in min(relations, key=len)]
    if len(involved) == 1:
        return f"the data of all sites together do not determine the coefficient of {involved[0]!r}; leave it out"
    listed = ", ".join(repr(name) for name in involved[:6]) + (f" and {len(involved) - 6} more" if d > 6 else "")
    if len(involved) <= 6:
        listed = ", ".join(repr(name) for name in involved[:-1]) + f" and {involved[-1]!r}"
    return (
        f"columns {listed} determine one another in the data of all sites together: "
        "their coefficients are not unique; leave one of them out"
    )


def unreachable(A: Floats, names: Sequence[str], why: str) -> str:
    """What to say where no run is near enough to the data's solution: columns that nearly determine one another.

    A : (d, d), of the shared system, in the run's coordinates; why : the planner's own words
    """
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(A)), 1e-300))
    _, values, directions = np.linalg.svd(scale[:, None] * A * scale)
    weakest = np.abs(directions[-1])
    involved = [repr(names[j]) for j in np.flatnonzero(weakest > 0.1 * weakest.max())[:6]]
    what = f"columns {', '.join(involved)} nearly determine one another in the data of all sites together"
    if len(involved) == 1:
        what = f"the data of all sites together hardly determine the coefficient of {involved[0]}"
    return (
        f"{what} (condition number {values[0] / max(values[-1], 1e-300):.2g}), so that no run of local steps comes "
        f"within a tenth of a standard error of the solution: leave one out, add a ridge, or give epsilon ({why})"
    )


def _echelon(directions: Floats) -> Floats:
    """The same space by its reduced echelon form, each row scaled to its pivot: relations of few columns."""
    out = directions / np.abs(directions).max(axis=1, keepdims=True)
    for i in range(len(out)):
        rest = np.abs(out[i:])
        p, j = (int(q) for q in np.unravel_index(np.argmax(rest), rest.shape))
        out[[i, i + p]] = out[[i + p, i]]
        out[i] /= out[i, j]
        for other in range(len(out)):
            if other != i:
                out[other] -= out[other, j] * out[i]
    return out
