"""Where the error of an answer comes from, and which site it comes from, in standard errors of the estimate.

The protocol's answer, off the data's solution, is what is left of the start, drift (FedLSA's limit bias) and the noise
of the run's draws; the data's solution is off the truth because data are finite. All is in the run's coordinates.

With Sigma the covariance of the estimate, a difference delta of d coefficients has the length

    sqrt(delta^T Sigma^-1 delta / d),

the same in every unit of every column, and under every linear change of coordinates: 1 for a difference as large as
the estimate's own error. No single coefficient is off by more than sqrt(d) lengths, in its own standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_continuous_lyapunov

from ..checks import Floats
from ..errors import warn
from ..theory.exact_curves import start_and_drift
from .covariance import Scores, covariance_text
from .fitted import SiteReport
from .lag_windows import PILOT, SHARE, neighbour_correlation
from .protocol import FitSettings, RunOutcome
from .reading import PooledData
from .rows import FeatureScale
from .scores import CovarianceKind
from .sums import OwnEstimates, Systems
from .tables import Codes
from .tasks import Regression, Task

NO_SPREAD = 1e-12  # of the largest eigenvalue of the correlation matrix, or of the solution's size: a rounding error
NO_DIFFERENCE = 1e-9  # of the solution's size: what is below it, in directions without any error, is none
LEAST_CORRELATION = 0.05  # of residuals of consecutive rows: with less, error bars of independent rows are nearly right
FEW_CLUSTERS = 10  # below which intervals are said to be rough
ROWS_PER_LAG = 25  # below which intervals from a log were seen to cover less often than they say
UNLUCKY = 2  # times epsilon: one run may well come out this far, since epsilon is a root mean square


@dataclass(frozen=True, eq=False)
class Metric:
    """whiten : (k, d) with whiten Sigma whiten^T = I; exact : (d - k, d), combinations of coefficients without error
    of their own (data without noise), where every difference beyond `none` is infinitely many standard errors."""

    whiten: Floats
    exact: Floats
    none: float

    def lengths(self, deltas: Floats) -> Floats:
        """(N,): of differences : (N, d); NaN where they are not known."""
        out = np.linalg.norm(deltas @ self.whiten.T, axis=1) / math.sqrt(deltas.shape[1])
        if len(self.exact):
            out = np.where(np.abs(deltas @ self.exact.T).max(axis=1) > self.none, math.inf, out)
        return np.where(np.isnan(deltas).any(axis=1), math.nan, out)

    def length(self, delta: Floats) -> float:
        """Of one difference : (d,)."""
        return float(self.lengths(delta[None])[0])

    def spreads(self, covariances: Floats) -> Floats:
        """(N,): root mean squared lengths of differences with mean 0 and these covariances : (N, d, d)."""
        inside = np.einsum("nij,ij->n", covariances, self.whiten.T @ self.whiten)
        out = np.sqrt(np.maximum(inside, 0.0) / covariances.shape[1])
        if len(self.exact):
            beyond = np.abs(self.exact @ covariances @ self.exact.T).max(axis=(1, 2)) > self.none**2
            out = np.where(beyond, math.inf, out)
        return out

    def largest_spread(self, variance: float) -> float:
        """The largest `spread` of a covariance with this trace."""
        if variance == 0 or math.isnan(variance):
            return variance
        return math.inf if len(self.exact) else math.sqrt(variance / self.whiten.shape[1]) * self.stretch

    @property
    def stretch(self) -> float:
        """The most by which a direction is stretched: 1 / sqrt(smallest eigenvalue of Sigma); inf where it is 0."""
        return math.inf if len(self.exact) else float(np.linalg.norm(self.whiten, 2))


def metric_of(covariance: Floats, theta: Floats, more: Floats | None = None) -> Metric:
    """The metric of an estimate theta : (d,) with a covariance : (d, d).

    more : (d, d), that of independent rows. It is added where some combination of coefficients has no error, for fewer
    clusters than coefficients cannot tell the error of every one
    """
    size = float(np.linalg.norm(theta))
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    known = error > NO_SPREAD * size
    scale = np.where(known, error, 1.0)  # to a correlation matrix: then units play no part
    correlation = np.where(np.outer(known, known), covariance / np.outer(scale, scale), 0.0)
    values, directions = np.linalg.eigh(correlation)
    kept = values > NO_SPREAD * max(values[-1], 0.0) if values[-1] > 0 else np.zeros(len(values), np.bool_)
    whiten = (directions[:, kept] / np.sqrt(values[kept])).T / scale
    exact = directions[:, ~kept].T / scale
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    if len(exact) and more is not None:
        return metric_of(covariance + more, theta)
    return Metric(whiten, exact, NO_DIFFERENCE * size)


@dataclass(frozen=True, eq=False)
class Estimate:
    """The data's own solution with what is known of its error, in the run's coordinates.

    A : (d, d) of the shared system; theta : (d,); covariance : (d, d); systems, scores, weights : of the N sites
    original : (T, t) with coefficients on the original scale = T theta + t : (d, d) and (d,)
    kind : of the covariance
    """

    systems: Systems
    weights: Floats
    A: Floats
    theta: Floats
    scores: Scores
    covariance: Floats
    metric: Metric
    original: tuple[Floats, Floats]
    kind: CovarianceKind


def explained(
    task: Task, scale: FeatureScale, A: Floats | None, rows: tuple[int, float], squares: float, mean: Floats,
    variance: float, pooled: bool, log_weights: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """How well a regression fits, as fields of a Fit, as statsmodels has them; none for a value function.

    A : (d, d), without the ridge; rows : n, and the sum of their weights; squares : sum r_c w e^2, in the run's
    coordinates; mean : (k + 1,) of features and target; variance : of the target; pooled : whether rows count by their
    weights alone; log_weights : the sum of the logarithms of these

    The variance is sum of v e^2 / (n - d), v = r_c w scaled so that they add up to the rows' own weights w. R^2 is
    about the mean where columns have a constant among their combinations, as A tells, and else about 0. The likelihood
    is that of normal errors, and needs pooled rows without a ridge.
    """
    if not isinstance(task, Regression):
        return {}
    (n, mass), constant, likelihood, squares = rows, None, math.nan, scale.y_spread**2 * squares
    if not task.intercept:
        constant = None if A is None else _constant(A, mean[:-1] / scale.spread)
        variance += float(mean[-1]) ** 2 if constant is None else 0.0
    if pooled and task.ridge == 0 and squares > 0 and math.isfinite(log_weights):
        likelihood = (log_weights - n * (1 + math.log(2 * math.pi * squares * mass / n))) / 2
    known = variance > 0 and (task.intercept or A is not None)
    return {
        "residual_variance": squares * mass / (n - scale.dim),
        "r_squared": 1 - squares / variance if known else math.nan,
        "log_likelihood": likelihood,
        "constant": None if constant is None else constant / scale.spread,
    }


def _constant(A: Floats, centre: Floats) -> Floats | None:
    """(d,): k with x . k = 1 in every row, from the mean of x x^T, A : (d, d), and of x, centre : (d,); None where
    there is none. The k that comes nearest has A k = centre, and the mean of (1 - x . k)^2 is 1 - centre . k."""
    k = np.asarray(np.linalg.lstsq(A, centre)[0], np.float64)
    if centre @ k < 1 - NO_SPREAD:
        return None
    return np.where(np.abs(k) * np.sqrt(np.diag(A)) > NO_DIFFERENCE, k, 0.0)  # columns that take no part


def warn_if_coarse(outcome: RunOutcome, settings: FitSettings, metric: Metric) -> None:
    """Say so where the run's error is more than was asked for, or, by hand, more than that of the data."""
    kind = "predicted" if outcome.sure else "realised"
    rmse = math.sqrt(float(outcome.bias @ outcome.bias) + outcome.variance)
    if settings.by_hand:
        error = math.hypot(metric.length(outcome.bias), metric.largest_spread(outcome.variance))
        if error > 1:
            warn(
                f"the run ends at a {kind} distance of {error:.3g} standard errors from the data's solution: "
                "more rounds or a smaller step_size would help"
            )
    elif settings.epsilon is not None and rmse > UNLUCKY * settings.epsilon:
        warn(
            f"the run ends at a {kind} distance of {rmse:.3g} from the data's solution, more than epsilon, "
            f"{settings.epsilon:.3g}: the plan is for rows drawn at random"
        )


def warn_of_errors(names: Sequence[str], s: Scores, asked: CovarianceKind, kind: CovarianceKind) -> None:
    """Say so where sites are too small for their part of the error bars, or these are of another kind than asked."""
    single = np.flatnonzero(s.n == 1)
    if len(single) and kind.values:
        warn(
            f"{_sites(single, names)} with one row: one row has no spread, so its score is taken about 0, which "
            "is right where such sites are like the others, and too wide where they differ"
        )
    few = (s.n < ROWS_PER_LAG * s.window) | (s.window >= np.minimum(s.n, PILOT) // SHARE)
    short = np.flatnonzero(few & (s.n > 1))
    if len(short) and kind.long_run and kind.lag is None:
        warn(
            f"{_sites(short, names)} with logs too short to see how far apart rows are correlated, fewer than "
            f"{ROWS_PER_LAG} rows for each lag: standard errors may be too small; lag=... says it"
        )
    if kind.name != asked.name:
        warn(f"{s.fallback}; error bars are {covariance_text(kind, s)} instead, which may be too short")
    if kind.independent:
        rho, z, pairs = neighbour_correlation(s.residuals)
        if plainly_correlated(rho, z, pairs):
            warn(
                f"residuals of consecutive rows are correlated ({rho:.2g}, {z:.1f} standard errors from 0), so that "
                "error bars for independent rows are too short: covariance='HAC', lag=... or cluster=... says what "
                "depends on what"
            )
    if 0 < s.clusters < FEW_CLUSTERS:
        warn(f"error bars from {s.clusters} clusters are rough: fewer than {FEW_CLUSTERS} hardly show their own spread")


def plainly_correlated(rho: float, z: float, pairs: int) -> bool:
    """Whether the correlation of neighbours is beyond chance: in standard errors for rows of one variance, pairs^-1/2,
    and in its own, z, whose law has shorter tails for few rows.

    Measured on independent rows, 10,000 to 100,000 data sets for each case of 1 to 200 sites and 8 to 5,000 rows: of
    1,000 fits at most 0.5 are warned (normal, t with 3 degrees of freedom, exponential, lognormal, two values), and 1.2
    where standard deviations grow along the rows up to fiftyfold (2.5 where one of four sites of 15 rows has ten
    times that of the others in its last five). 56 rows with a correlation of 0.6 are warned in 8 of 10.
    """
    return bool(pairs and rho > max(LEAST_CORRELATION, 3.3 / math.sqrt(pairs)) and z > 3.09 - 18 / pairs)


def _sites(which: Codes, names: Sequence[str]) -> str:
    return f"{len(which)} of {len(names)} sites ({names[int(which[0])]}{', ...' if len(which) > 1 else ''})"


def optimisation_error(outcome: RunOutcome, T: Floats) -> Floats:
    """(d,): a bound on the root mean squared distance of each coefficient from the data's solution.

    The mean of T (theta - solution) is known exactly; its variance in coordinate j is at most ||T_j||^2 times the
    total variance of the run.
    """
    return np.sqrt((T @ outcome.bias) ** 2 + np.sum(T**2, axis=1) * outcome.variance)


def error_by_origin(outcome: RunOutcome, estimate: Estimate) -> dict[str, float]:
    """Root mean squared errors of all coefficients together, in standard errors.

    Squares of "start" and "drift" add up to that of the mean error, split as `theory.exact` splits it, but for one
    thing: drift here is that of the limit, so that start is all that more rounds would remove, and with it what control
    variates have still to learn. "noise" is at most what is given, for only the total variance of the run is known;
    "finite data" is 1 unless some have no error at all.
    """
    metric = estimate.metric
    left, drifted = metric.length(outcome.bias - outcome.drift), metric.length(outcome.drift)
    if math.isfinite(left + drifted):
        left, drifted = metric.length(outcome.bias) * np.sqrt(start_and_drift(left, drifted))
    return {
        "start": float(left),
        "drift": float(drifted),
        "noise": metric.largest_spread(outcome.variance),
        "finite data": float(metric.spreads(estimate.covariance[None])[0]),
    }


def site_reports(data: PooledData, estimate: Estimate, outcome: RunOutcome) -> tuple[SiteReport, ...]:
    """How each site stands to the data's solution."""
    (T, t), metric, own, s = estimate.original, estimate.metric, estimate.systems, estimate.scores
    inverse, noise = np.linalg.inv(estimate.A), metric.largest_spread(outcome.variance)
    home = OwnEstimates.of(own, not estimate.kind.values)
    left_open = home.open_in(T)
    both = left_open[:, :, None] | left_open[:, None, :]
    whole = np.where((home.rank == len(t))[:, None], home.theta, np.nan)
    each = {
        "rows": s.n,
        "weight": estimate.weights,
        "theta": np.where(left_open, np.nan, home.theta @ T.T + t),
        "distance": metric.lengths(whole - estimate.theta),
        "influence": metric.lengths(estimate.weights[:, None] * (s.mean @ inverse.T)),
        "noise": noise * np.sqrt(noise_shares(estimate)) if noise != 0 else np.zeros(len(s.n)),
        "finite_data": metric.spreads(inverse @ s.meats @ inverse.T),
        "window": s.window,
        "covariance": np.where(both, np.nan, T @ s.own @ T.T),
        "degrees_of_freedom": s.own_freedom,
        "without": own.without(estimate.weights, estimate.A, estimate.theta) @ T.T + t,
        "dropped": data.dropped,
    }
    for name in ("episodes", "terminated", "effective_rows") if data.logs else ():
        each[name] = np.array([getattr(log, name) for log in data.logs])
    columns = [values.tolist() if values.ndim == 1 else list(values) for values in each.values()]
    return tuple(
        SiteReport(name, **dict(zip(each, values, strict=True)))
        for name, *values in zip(data.names, *columns, strict=True)
    )


def noise_shares(estimate: Estimate) -> Floats:
    """(N,): each site's share in the squared noise, in standard errors, that small steps leave; they add up to one.

    With a small step eta the iterates' covariance U solves A U + U A^T = eta sum_c w_c^2 Sigma_c, which is linear in
    the sites' Sigma_c; so trace(W U W^T) = eta sum_c w_c^2 trace(Q Sigma_c) with A^T Q + Q A = W^T W.
    """
    Q = solve_continuous_lyapunov(estimate.A.T, estimate.metric.whiten.T @ estimate.metric.whiten)
    parts = estimate.weights**2 * np.einsum("ij,nji->n", Q, estimate.scores.row)
    if not (np.isfinite(parts).all() and (parts >= 0).all() and parts.sum() > 0):  # no noise, or no stable small step
        return np.full(len(parts), 1 / len(parts))
    return np.asarray(parts / parts.sum(), np.float64)
