"""Where the error of an answer comes from, and which site it comes from, in standard errors of the estimate.

The protocol's answer, off the data's solution, is what is left of the start, drift (FedLSA's limit bias) and the noise
of the run's draws; the data's solution is off the truth because data are finite. All is in the run's coordinates;
lengths in standard errors (metric.py) are the same in the original ones.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from scipy.linalg import solve_continuous_lyapunov

from ..checks import Floats
from ..errors import FedLSAWarning
from .covariance import Scores
from .fitted import SiteReport
from .metric import Metric
from .run import Outcome, Settings
from .systems import System, own_solution
from .window import PILOT, SHARE

UNLUCKY = 2  # times epsilon: one run may well come out this far, since epsilon is a root mean square


def warn_if_coarse(outcome: Outcome, settings: Settings, metric: Metric) -> None:
    """Say so where the run's error is more than was asked for, or, by hand, more than that of the data."""
    kind = "predicted" if outcome.sure else "realised"
    rmse = math.sqrt(float(outcome.bias @ outcome.bias) + outcome.variance)
    if settings.by_hand:
        error = math.hypot(metric.length(outcome.bias), metric.largest_spread(outcome.variance))
        if error > 1:
            _warn(
                f"the run ends at a {kind} distance of {error:.3g} standard errors from the data's solution: "
                "more rounds or a smaller step_size would help"
            )
    elif settings.epsilon is not None and rmse > UNLUCKY * settings.epsilon:
        _warn(
            f"the run ends at a {kind} distance of {rmse:.3g} from the data's solution, more than epsilon, "
            f"{settings.epsilon:.3g}: the plan is for rows drawn at random"
        )


def warn_if_small(names: Sequence[str], found: Sequence[Scores], chosen: bool, centred: bool) -> None:
    """Say so where sites are too small for their part of the error bars; chosen : whether windows were."""
    single = [name for name, s in zip(names, found, strict=True) if s.n == 1]
    if single and centred:
        _warn(
            f"{_sites(single, len(names))} with one row: one row has no spread, so its score is taken about 0, which "
            "is right where such sites are like the others, and too wide where they differ"
        )
    short = [name for name, s in zip(names, found, strict=True) if s.n > 1 and s.window >= min(s.n, PILOT) // SHARE]
    if short and chosen:
        _warn(
            f"{_sites(short, len(names))} with logs too short to see how far apart rows are correlated: standard "
            "errors may be too small; lag=... says it"
        )


def _sites(which: Sequence[str], count: int) -> str:
    return f"{len(which)} of {count} sites ({which[0]}{', ...' if len(which) > 1 else ''})"


def _warn(text: str) -> None:
    warnings.warn(text, FedLSAWarning, stacklevel=4)


def of_the_run(outcome: Outcome, T: Floats) -> Floats:
    """(d,): a bound on the root mean squared distance of each coefficient from the data's solution.

    The mean of T (theta - solution) is known exactly; its variance in coordinate j is at most ||T_j||^2 times the
    total variance of the run.
    """
    return np.sqrt((T @ outcome.bias) ** 2 + np.sum(T**2, axis=1) * outcome.variance)


def by_origin(outcome: Outcome, metric: Metric, covariance: Floats) -> dict[str, float]:
    """Root mean squared errors of all coefficients together, in standard errors; covariance : (d, d), of the estimate.

    "start" and "drift" are lengths of vectors that add up to the mean error of the run; "noise" is at most what is
    given, for only the total variance of the run is known; "finite data" is 1 unless some have no error at all.
    """
    return {
        "start": metric.length(outcome.bias - outcome.drift),
        "drift": metric.length(outcome.drift),
        "noise": metric.largest_spread(outcome.variance),
        "finite data": metric.spread(covariance),
    }


def site_reports(
    names: Sequence[str],
    systems: Sequence[System],
    found: Sequence[Scores],
    weights: Floats,
    A: Floats,
    original: tuple[Floats, Floats],
    outcome: Outcome,
    theta: Floats,
    metric: Metric,
) -> tuple[SiteReport, ...]:
    """How each site stands to the data's solution theta : (d,). A : (d, d) of the shared system."""
    T, t = original
    inverse = np.linalg.inv(A)
    noise = metric.largest_spread(outcome.variance)
    shares = noise_shares(A, metric, found, weights)
    out = []
    for name, own, s, w, share in zip(names, systems, found, weights, shares, strict=True):
        home = own_solution(own)
        out.append(
            SiteReport(
                name=name,
                rows=s.n,
                weight=float(w),
                theta=T @ home + t,
                distance=metric.length(home - theta),
                influence=metric.length(w * inverse @ s.mean),
                noise=noise * math.sqrt(share) if noise > 0 else 0.0,
                finite_data=metric.spread(w**2 / s.n * inverse @ s.long_run @ inverse.T),
                window=s.window,
            )
        )
    return tuple(out)


def noise_shares(A: Floats, metric: Metric, found: Sequence[Scores], weights: Floats) -> Floats:
    """(N,): each site's share in the squared noise, in standard errors, that small steps leave; they add up to one.

    With a small step eta the iterates' covariance U solves A U + U A^T = eta sum_c w_c^2 Sigma_c, which is linear in
    the sites' Sigma_c; so trace(W U W^T) = eta sum_c w_c^2 trace(Q Sigma_c) with A^T Q + Q A = W^T W.
    """
    Q = solve_continuous_lyapunov(A.T, metric.whiten.T @ metric.whiten)
    parts = np.array([w**2 * np.sum(Q * s.row.T) for w, s in zip(weights, found, strict=True)])
    if not (np.isfinite(parts).all() and (parts >= 0).all() and parts.sum() > 0):  # no noise, or no stable small step
        return np.full(len(found), 1 / len(found))
    return np.asarray(parts / parts.sum(), np.float64)
