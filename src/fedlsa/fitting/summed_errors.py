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

from ..checks import Floats
from ..errors import ArgumentError, SiteDataError
from ..theory.linear import smat, svec
from .covariance import alone_text, root_of_sandwich, sandwiches
from .error_sources import explained
from .rows import FeatureScale, Piece
from .scores import CovarianceKind, ScorePass, SharedSolution
from .sums import Systems, check_determined, penalty_of
from .tasks import Regression

ROUNDING = 1e-6  # relative, of a site's part in the system of all
UNSETTLED = 0.01  # relative, of a standard error: what is more is said
FAR = 0.1  # standard errors: a run that ends further from the data's solution says so
Pieces = Callable[[], Iterable[Piece]]  # the rows of one site in the run's coordinates, from the first on


def system_sums(pieces: Iterable[Piece], theta: Floats, penalty: Floats, weight: float) -> Floats:
    """A site's part of the first sum, at theta : (d,); penalty : (d,), the ridge; weight : w_c, of the site."""
    d, n = len(theta), 0
    gram, gradient, mean = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for p in pieces:
        n += len(p.y)
        gram += p.u.T @ p.u
        gradient += p.u.T @ (p.u @ theta - p.y)
        mean += p.u.sum(axis=0)
    parts = (
        svec(gram / n) + svec(np.diag(penalty)),
        gradient / n + penalty * theta,
        mean / n,
        svec(gram / n) * weight / n,
    )
    return weight * np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class PooledSystem:
    """What the first sum holds: A : (d, d), with the ridge; gradient : A theta - b : (d,); mean : (d,) of the features;
    shares : (d, d), sum over all rows of r^2 u u^T, r the share of a row in the average."""

    A: Floats
    gradient: Floats
    mean: Floats
    shares: Floats

    @classmethod
    def read(cls, total: Floats, d: int) -> PooledSystem:
        """Of sums over all sites."""
        k = d * (d + 1) // 2
        A, gradient, mean, shares = np.split(np.asarray(total, np.float64), np.cumsum([k, d, d]))
        return cls(smat(A, d), gradient, mean, smat(shares, d))


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
    for row in sums.alone.values():
        raise SiteDataError(alone_text(f"row {row}", at.kind))
    gradient = weight * (sums.products[0] / n + penalty * at.theta)
    y = np.sum([[p.y.sum(), p.y @ p.y] for p in pieces()], axis=0)
    numbers = weight / n * sums.squares[0], found.shares, *(weight / n * y)
    return np.concatenate([svec(V @ sums.meats()[0] @ V.T), V @ gradient, numbers])


@dataclass(frozen=True, eq=False)
class RowCounts:
    """rows, weights : (N,) of the sites, by which they count."""

    rows: Sequence[int]
    weights: Floats

    @property
    def n(self) -> int:
        return sum(self.rows)

    @property
    def equal(self) -> bool:
        """Whether all rows count the same."""
        share = np.asarray(self.weights) / np.asarray(self.rows)
        return bool(np.ptp(share) <= 1e-12 * share.max())


def solution_point(counts: RowCounts, system: PooledSystem, theta: Floats, names: Sequence[str]) -> ScorePoint:
    """The data's own solution, from where a run ended, and what the scores are to tell there."""
    d = len(theta)
    check_determined(system.A, names, counts.n)
    if counts.n <= d:
        raise SiteDataError(f"error bars need more rows than coefficients, {d}; all sites together have {counts.n}")
    spread = None if counts.equal else np.asarray(np.linalg.pinv(system.shares, hermitian=True), np.float64)
    return ScorePoint(theta - np.linalg.solve(system.A, system.gradient), np.eye(d), system.A, spread)


def fields_of_fit(
    task: Regression, scale: FeatureScale, counts: RowCounts, at: ScorePoint, total: Floats,
    chosen: Sequence[int], system: PooledSystem | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The fields of a Fit that the second sum gives: coefficients, covariance, how well the model fits.

    chosen : the q coefficients that directions are of. Others keep the run's value, and their covariance is NaN
    """
    d, q, n = len(at.theta), len(at.directions), counts.n
    k, (T, t) = q * (q + 1) // 2, scale.original()
    numbers = np.asarray(total, np.float64)
    meat, gradient, (squares, shares, mean, square) = smat(numbers[:k], q), numbers[k : k + q], numbers[k + q :]
    theta, root = T @ at.theta + t, np.full((d, d), np.nan)
    covariance = root.copy()
    freedom = float(n - d) if at.spread is None else min(float(n - d), d**2 / shares)
    if at.A is not None:
        theta = T @ (at.theta - np.linalg.solve(at.A, gradient)) + t
        covariance, root = T @ sandwiches(at.A, meat) @ T.T, T @ root_of_sandwich(at.A, meat)
    else:
        if not counts.equal:
            raise ArgumentError(
                "errors of chosen coefficients need rows that all count the same; those of some sites count more"
            )
        block = at.kind.factor(n, d, 0) * meat
        covariance[np.ix_(chosen, chosen)] = block
        root[chosen] = 0.0
        root[chosen, :q] = root_of_sandwich(np.eye(q), block)
        theta[chosen] -= gradient
    about, A = np.append(np.full(d, np.nan), scale.y_centre + scale.y_spread * mean), None
    if system is not None:
        A, k = system.A - np.diag(penalty_of(task, scale)), len(scale.centre)
        about = np.append(scale.centre + scale.spread * system.mean[:k], about[-1])
    fits = {"squares": squares, "mean": about, "variance": scale.y_spread**2 * (square - mean**2)}
    return {
        "theta": theta,
        "covariance": covariance,
        "root": root,
        "degrees_of_freedom": freedom,
        "covariance_kind": at.kind.shown,
        **explained(task, scale, A, **fits, rows=(n, float(n)), pooled=counts.equal),
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
