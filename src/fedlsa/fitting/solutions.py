"""Solutions of the averaged linear system, and what to say where it has none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..checks import Floats
from ..errors import SiteDataError, warn
from .site_sums import System

SINGULAR = 1e-12  # of the largest singular value, rows and columns scaled to one size: below it are rounding errors
ILL_CONDITIONED = 1e3  # condition number from which columns are said to be the reason that no run comes near enough
FEW_DIGITS = 1e10  # condition number above which standard errors lose their sixth digit


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


def solution_without(A: Floats, theta: Floats, weight: float, own: System) -> Floats:
    """The solution of all sites' system but one's : (d,); NaN where it has none or many.

    A : (d, d), theta : (d,) of all of them; weight, own : of the one that is left out
    """
    rest = A - weight * own.A
    if weight > 1 - SINGULAR or len(null_space(rest)):
        return np.full_like(theta, np.nan)
    return theta + np.linalg.solve(rest, weight * (own.A @ theta - own.b))


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
    if n <= d:
        return f"all sites together must have more rows than coefficients, {d}; they have {n}"
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
    """What to say where no run is near enough to the data's solution: of columns that nearly determine one another.

    A : (d, d), of the shared system, in the run's coordinates; why : the planner's own words
    """
    condition, directions = conditioning(A)
    what, remedy = "", "give epsilon"
    if condition > ILL_CONDITIONED:
        weakest = np.abs(directions[-1])
        involved = [repr(names[j]) for j in np.flatnonzero(weakest > 0.1 * weakest.max())[:6]]
        what = f"columns {', '.join(involved)} nearly determine one another in the data of all sites together"
        if len(involved) == 1:
            what = f"the data of all sites together hardly determine the coefficient of {involved[0]}"
        what += f" (condition number {condition:.2g}), so that "
        remedy = "leave one out, add a ridge, or give epsilon"
    return (
        f"{what}no run of local steps comes within a tenth of a standard error of the solution, and none is planned: "
        f"{remedy} ({why})"
    )


def warn_of_lost_digits(A: Floats, standardised: bool) -> None:
    """Say so where A : (d, d) is so near to singular that its inverse, and so the standard errors, lose digits."""
    condition, _ = conditioning(A)
    if condition > FEW_DIGITS:
        warn(
            f"columns nearly determine one another{'' if standardised else ', or are far from 0,'} in the data of all "
            f"sites together (condition number {condition:.2g}): standard errors are only exact to about "
            f"{1e-15 * condition:.0e} of their size; {'leave one out' if standardised else 'standardise=True helps'}"
        )


def conditioning(A: Floats) -> tuple[float, Floats]:
    """The condition number of A with its columns scaled to one size, and its singular directions, the weakest last."""
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(A)), 1e-300))
    _, values, directions = np.linalg.svd(scale[:, None] * A * scale)
    return float(values[0] / max(values[-1], 1e-300)), np.asarray(directions, np.float64)


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
