"""Standard errors of a regression whose rows stay at their sites: from sums to which each site adds its part.

Two sums over all sites give what `fit` computes from the rows themselves (covariance.py), to rounding errors:

    system  of w_c A_c and of w_c (A_c theta - b_c), the gradient where a run has ended. With A = sum_c w_c A_c the
            data's own solution is theta - A^-1 gradient, wherever that was
    scores  at the solution: of s s^T / (1 - h)^2 (HC3), and of squared residuals

Where A is more than sites want to tell, a few coefficients e_j^T (T theta + t) need directions v_j alone, with
A^T v_j = T^T e_j, which rounds find as they find theta. The one sum is then of v_j^T s s^T v_k (HC1, for leverages need
A) where the run ended, and v_j^T gradient is how far coefficient j is from the solution's, but for a product of two
small errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, SiteDataError
from ..theory.linear import smat, svec
from .covariance import root_of_sandwich, sandwiches, undetermined_text
from .error_sources import explained
from .rows import FeatureScale, Piece
from .scores import CovarianceKind, ScorePass, SharedSolution
from .sums import Systems, check_determined, penalty_of
from .tasks import Regression, Task

ROUNDING = 1e-6  # relative, of a site's part in the system of all
UNSETTLED = 0.01  # relative, of a standard error: what is more is said
FAR = 0.1  # standard errors: a run that ends further from the data's solution says so
Pieces = Callable[[], Iterable[Piece]]  # the rows of one site in the run's coordinates, from the first on


def system_sums(pieces: Iterable[Piece], theta: Floats, penalty: Floats, weight: float) -> Floats:
    """A site's part of the first sum, at theta : (d,); penalty : (d,), the ridge; weight : w_c, of the site."""
    own = Systems.of(pieces, ["this site"], penalty)
    A, n = svec(own.A[0]), own.n[0]
    return weight * np.concatenate([A, own.A[0] @ theta - own.b[0], weight / n * (A - svec(np.diag(penalty)))])


@dataclass(frozen=True, eq=False)
class PooledSystem:
    """What the first sum holds: A : (d, d), with the ridge; gradient : (d,), A theta - b; shares : (d, d), the sum over
    all rows of r^2 u u^T, r the share of a row in the average."""

    A: Floats
    gradient: Floats
    shares: Floats

    @classmethod
    def read(cls, total: Floats, d: int) -> PooledSystem:
        """Of sums over all sites."""
        k = d * (d + 1) // 2
        A, gradient, shares = np.split(total, [k, k + d])
        return cls(smat(A, d), gradient, smat(shares, d))


@dataclass(frozen=True, eq=False)
class ScorePoint:
    """Where scores are taken and what of them is told: theta : (d,); directions : (q, d), V of V s s^T V^T.

    A : (d, d), for leverages; None, and scores are those of HC1
    spread : (d, d), for degrees of freedom where not all rows count the same (covariance.py); None where they do
    """

    theta: Floats
    directions: Floats
    A: Floats | None = None
    spread: Floats | None = None

    @property
    def kind(self) -> CovarianceKind:
        return CovarianceKind("HC1" if self.A is None else "HC3", asked=False)


def score_sums(pieces: Pieces, at: ScorePoint, penalty: Floats, weight: float) -> Floats:
    """A site's part of the second sum."""
    d, V = len(at.theta), at.directions
    systems = Systems.of(pieces(), ["this site"], penalty)
    A = np.eye(d) if at.A is None else at.A
    of = SharedSolution(at.kind, A, at.theta, np.empty((0, d)), penalty, at.spread)
    if at.A is not None and not eigh(weight * systems.A[0], at.A, eigvals_only=True)[-1] <= 1 + ROUNDING:
        raise SiteDataError("the system of all sites must hold this site's own part; it does not")
    found = ScorePass(of, 0, systems, np.array([weight])).run(pieces())
    sums, n = found.sums, int(systems.n[0])
    for row in sums.leverage_one.values():
        raise SiteDataError(undetermined_text(f"row {row}", at.kind))
    gradient = weight * (sums.products[0] / n + penalty * at.theta)
    means = weight / n * np.sum([[*p.u.sum(axis=0), p.y.sum(), p.y @ p.y] for p in pieces()], axis=0)
    squares = weight / n * sums.squares[0], found.shares
    return np.concatenate([svec(V @ sums.meats()[0] @ V.T), V @ gradient, means, squares])


def rows_count_equally(rows: Floats, weights: Floats) -> bool:
    """Whether sites of so many rows, and these weights, give each row the same share : (N,) each."""
    return bool(np.ptp(weights / rows) <= 1e-12 * np.max(weights / rows))


def chosen_coefficients(task: Task, names: Sequence[str], chosen: Sequence[str], equal: bool) -> list[int]:
    """The places of coefficients that are to have errors from directions alone; equal : whether rows count equally."""
    if chosen and not (isinstance(task, Regression) and equal):
        rule = "errors_of must go with a regression whose rows all count the same, at sites of any size"
        raise ArgumentError(f"{rule}; got {', '.join(chosen)}")
    return [names.index(checks.choice("each of errors_of", name, names)) for name in chosen]


def solution_point(
    system: PooledSystem, theta: Floats, names: Sequence[str], rows: Floats, weights: Floats
) -> ScorePoint:
    """The data's own solution, from where a run ended, and what the scores are to tell there."""
    d, n = len(theta), int(np.sum(rows))
    check_determined(system.A, names, n)
    if n <= d:
        raise SiteDataError(f"error bars need more rows than coefficients, {d}; all sites together have {n}")
    equal = rows_count_equally(rows, weights)
    spread = None if equal else np.asarray(np.linalg.pinv(system.shares, hermitian=True), np.float64)
    return ScorePoint(theta - np.linalg.solve(system.A, system.gradient), np.eye(d), system.A, spread)


def fields_of_fit(
    task: Regression, scale: FeatureScale, n: int, at: ScorePoint, total: Floats, chosen: Sequence[int]
) -> dict[str, Any]:
    """The fields of a Fit that the second sum gives: coefficients, covariance, how well the model fits.

    n : rows of all sites; chosen : the q coefficients that directions are of. Others keep the run's value, and their
    covariance is NaN
    """
    d, q = len(at.theta), len(at.directions)
    k, (T, t) = q * (q + 1) // 2, scale.original()
    meat, gradient, mean, (y, yy, squares, shares) = np.split(total, [k, k + q, k + q + d])
    meat, theta = at.kind.factor(n, d, 0) * smat(meat, q), T @ at.theta + t
    if at.A is not None:
        theta = T @ (at.theta - np.linalg.solve(at.A, gradient)) + t
        covariance, root = T @ sandwiches(at.A, meat) @ T.T, T @ root_of_sandwich(at.A, meat)
    else:
        theta[chosen] -= gradient
        covariance, root = np.full((d, d), np.nan), np.full((d, d), np.nan)
        covariance[np.ix_(chosen, chosen)] = meat
        root[chosen] = np.pad(root_of_sandwich(np.eye(q), meat), ((0, 0), (0, d - q)))
    A, about = None if at.A is None else at.A - np.diag(penalty_of(task, scale)), mean[: len(scale.centre)]
    centre = np.append(scale.centre + scale.spread * about, scale.y_centre + scale.y_spread * y)
    variance, pooled = scale.y_spread**2 * (yy - y**2), at.spread is None
    return {
        "theta": theta,
        "covariance": covariance,
        "root": root,
        "degrees_of_freedom": float(n - d) if pooled else min(float(n - d), d**2 / shares),
        "covariance_kind": at.kind.shown,
        **explained(task, scale, A, (n, float(n)), squares, centre, variance, pooled),
    }


def convergence_notes(theta: Floats, protocol: Floats, covariance: Floats, slack: float) -> tuple[str, ...]:
    """What to say of a run that ended far from the solution theta, or whose directions had not settled.

    protocol : (d,), where it ended; covariance : (d, d); slack : the relative error of directions, about
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        off = float(np.nanmax(np.abs(protocol - theta) / np.sqrt(np.diag(covariance)), initial=0.0))
    out = []
    if off > FAR:
        out.append(
            f"the run has not converged: it ended {off:.2g} standard errors from the solution of all sites' data, "
            "which coefficients with a standard error are here; more rounds, or smaller steps, bring it nearer"
        )
    if slack > UNSETTLED:
        about = f"about {slack:.0%} of their size" if slack < 1 else "an amount that rounds do not show"
        out.append(f"the rounds for standard errors had not settled: they may be off by {about}")
    return tuple(out)
