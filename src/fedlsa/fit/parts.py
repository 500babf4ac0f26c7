"""Where the error of an answer comes from, and which site it comes from, on the original scale of the columns.

theta off the data's solution is what is left of the start, drift (FedLSA's limit bias) and the noise of the run's
draws; the data's solution is off the truth because data are finite. (T, t) takes the run's coordinates to the
original ones, theta -> T theta + t.
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
from .run import Outcome, Settings
from .systems import System, own_solution

TWICE = 2  # epsilon: one run may well come out this far, since epsilon is a root mean square


def mean_error(covariance: Floats) -> float:
    """The mean standard error of the data's solution, in the coordinates of its covariance : (d, d)."""
    return float(np.mean(np.sqrt(np.maximum(np.diag(covariance), 0.0))))


def warn_if_coarse(outcome: Outcome, settings: Settings, covariance: Floats) -> None:
    """Say so where the run's error is more than was asked for, or, by hand, more than that of the data.

    covariance : of the data's solution, in the run's coordinates
    """
    rmse = math.sqrt(float(outcome.bias @ outcome.bias) + outcome.variance)
    kind = "predicted" if outcome.sure else "realised"
    advice = "more rounds or a smaller step_size would help"
    if settings.by_hand:
        error = mean_error(covariance)
        if rmse > error:
            warnings.warn(
                f"the run ends at a {kind} distance of {rmse:.3g} from the data's solution, more than its mean "
                f"standard error, {error:.3g} (in the run's coordinates): {advice}",
                FedLSAWarning,
                stacklevel=3,
            )
    elif settings.epsilon is not None and rmse > TWICE * settings.epsilon:
        warnings.warn(
            f"the run ends at a {kind} distance of {rmse:.3g} from the data's solution, more than epsilon, "
            f"{settings.epsilon:.3g}: the plan is for rows drawn at random",
            FedLSAWarning,
            stacklevel=3,
        )


def of_the_run(outcome: Outcome, T: Floats) -> Floats:
    """(d,): a bound on the root mean squared distance of each coefficient from the data's solution.

    The mean of T (theta - solution) is known exactly; its variance in coordinate j is at most ||T_j||^2 times the
    total variance of the run.
    """
    return np.sqrt((T @ outcome.bias) ** 2 + np.sum(T**2, axis=1) * outcome.variance)


def by_origin(outcome: Outcome, T: Floats, covariance: Floats) -> dict[str, float]:
    """Root mean squared errors of all coefficients together; covariance : (d, d), on the original scale.

    "start" and "drift" are lengths of vectors that add up to the mean error of the run; "noise" is at most what is
    given (T stretches no direction more than by its norm), and exact where T is a multiple of the identity.
    """
    return {
        "start": float(np.linalg.norm(T @ (outcome.bias - outcome.drift))),
        "drift": float(np.linalg.norm(T @ outcome.drift)),
        "noise": float(np.linalg.norm(T, 2)) * math.sqrt(outcome.variance),
        "finite data": math.sqrt(max(float(np.trace(covariance)), 0.0)),
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
) -> tuple[SiteReport, ...]:
    """How each site stands to the shared answer theta : (d,). A : (d, d) of the shared system."""
    T, t = original
    influence = T @ np.linalg.inv(A)
    noise = float(np.linalg.norm(T, 2)) * math.sqrt(outcome.variance)
    shares = noise_shares(A, T, found, weights)
    out = []
    for name, own, s, w, share in zip(names, systems, found, weights, shares, strict=True):
        home = T @ own_solution(own) + t
        finite = w**2 / s.n * float(np.trace(influence @ s.long_run @ influence.T))
        out.append(
            SiteReport(
                name=name,
                rows=s.n,
                weight=float(w),
                theta=home,
                distance=float(np.linalg.norm(home - theta)),
                pull=float(np.linalg.norm(w * influence @ s.mean)),
                noise=noise * math.sqrt(share),
                finite_data=math.sqrt(max(finite, 0.0)),
                window=s.window,
            )
        )
    return tuple(out)


def noise_shares(A: Floats, T: Floats, found: Sequence[Scores], weights: Floats) -> Floats:
    """(N,): each site's share in the variance of T theta that small steps leave; they add up to one.

    With a small step eta the iterates' covariance U solves A U + U A^T = eta sum_c w_c^2 Sigma_c, which is linear in
    the sites' Sigma_c; so trace(T U T^T) = eta sum_c w_c^2 trace(Q Sigma_c) with A^T Q + Q A = T^T T.
    """
    Q = solve_continuous_lyapunov(A.T, T.T @ T)
    parts = np.array([w**2 * np.sum(Q * s.row.T) for w, s in zip(weights, found, strict=True)])
    if not (np.isfinite(parts).all() and (parts >= 0).all() and parts.sum() > 0):  # no noise, or no stable small step
        return np.full(len(found), 1 / len(found))
    return np.asarray(parts / parts.sum(), np.float64)
