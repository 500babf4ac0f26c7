"""How far the data's solution is from the truth: covariances to which each site adds its own part.

Least squares, with any weights: a row of site c counts r_c w_i, r_c = W_c / (sum of w at c), W_c the weight of the site
in the average. With A = sum r_c w_i x_i x_i^T, the scores s_i = r_c w_i x_i e_i and leverages h_i = r_c w_i x_i^T A^-1
x_i of all n rows, e_i the residuals and d the number of coefficients,

    Cov(theta) = factor A^-1 (sum_c meat_c) A^-T

    kind       meat of a site                                                     factor
    classical  sum r^2 w x x^T                                                    sum w e^2 / f
    HC0, HC1   sum s s^T                                                          1, n / (n - d)
    HC2, HC3   sum s s^T / (1 - h), / (1 - h)^2                                   1
    CR0, CR1   sum over clusters of S S^T, S = sum s                              1, G / (G - 1) (n - 1) / (n - d)
    CR3        sum over clusters of A D D^T A, D = (A - A_g)^-1 S                 1
    HAC        sum over lags |l| <= L of (1 - |l| / (L + 1)) sum s_i s_{i+l}^T    1

Classical errors have the variance sigma^2 / w_i, and f = n - 2 tr H + tr A^-1 G A^-1 M with G = sum w x x^T, M = sum
r^2 w x x^T, and H = A^-1 sum r w x x^T, which is I without a ridge; f is then n - d where rows count the same. D is how
far theta is from what it is without the cluster; clusters may have rows at many sites. A ridge is part of every row:
s = r w (x e + ridge theta). Rows that were left out count as scores of 0 in their place.

Where rows of some sites count more than those of others, few rows may decide: then t quantiles have Satterthwaite's
degrees of freedom, d^2 / sum q^2 with the shares q_i = r^2 w x^T M^-1 x of rows, or those of clusters, in the variance.

The scores g_i of a value function (A(z_i) theta - b(z_i), about their site's mean) are correlated in time: Cov is
that of their mean, A^-1 (sum_c W_c^2 / n_c sum_h Cov(g_i, g_{i+h})) A^-T, seen through slow cosines (scores.py),
with the factor n / (n - d). So are the scores of a regression with "HAC" and without a lag. Those of a log are sums of
blocks, each with its part in A taken out. Blocks also say how skew the error of a coefficient is, which costs degrees
of freedom (fitted.py).

Where rows stay at their sites, two sums to which each site adds its part give the same, to rounding errors:

    system  of w_c A_c and of w_c (A_c theta - b_c), the gradient where a run has ended. With A = sum_c w_c A_c the
            data's own solution is theta - A^-1 gradient, wherever that was
    scores  at the solution: of s s^T / (1 - h)^2 (HC3), and of squared residuals

Where A is more than sites want to tell, a few coefficients e_j^T (T theta + t) need directions v_j alone, with
A^T v_j = T^T e_j, which rounds find as they find theta. The one sum is then of v_j^T s s^T v_k (HC1, for leverages need
A) where the run ended, and v_j^T gradient is how far coefficient j is from the solution's, but for a product of two
small errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import eigh

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, SiteDataError
from ..theory.linear import smat, svec
from .rows import FeatureScale, Piece
from .scores import FirstResiduals, ScorePass, SharedSolution, join_pairs
from .sums import LEVERAGE_ONE, SolvedSystem, Systems, check_determined, penalty_of
from .tables import Codes
from .tasks import SITES, CovarianceKind, Regression, Task

NO_CONSTANT = 1e-12  # of 1: how far a combination of columns that is a constant may be from it
NO_PART = 1e-9  # of a constant: a column with less of it takes no part
ROUNDING = 1e-6  # relative, of a site's part in the system of all
UNSETTLED = 0.01  # relative, of a standard error: what is more is said
FAR = 0.1  # standard errors: a run that ends further from the data's solution says so
Pieces = Callable[[], Iterable[Piece]]  # the rows of one site in the run's coordinates, from the first on


@dataclass(frozen=True, eq=False)
class Estimate:
    """The data's own solution, in the run's coordinates, and what the sites' scores g_i = A(z_i) theta - b(z_i) say of
    its error.

    kind : of the covariance : (d, d); A : (d, d) of the shared system; theta : (d,); systems, weights : of the N sites
    mean : (N, d), the sites' ideal control variates xi_star; row : (N, d, d) covariance of one of a site's scores drawn
    at random (Sigma_omega); meats : (N, d, d) the sites' parts of the sandwich, alone if clusters have rows at several
    meat : (d, d) of all; independent : (d, d) the same if rows were independent (HC0)
    window : (N,) how many lags count; squares : (N,) sum r w e^2
    clusters : how many; site_clusters : (N,) at each site; degrees : (N,) of freedom of `meats`; freedom : of the
    meat, for t quantiles
    fallback : what has leverage 1, in words, where the kind is another than the default for it
    own : (N, d, d) covariance of the sites' own solutions, NaN where their rows do not tell; own_freedom : (N,)
    residuals : of the first rows of each site; log_weights : the sum of the logarithms of the rows' weights
    skewness : (d,) of the error of each coefficient, as blocks of logs show it; (1,), 0 without blocks
    level : (N, 1 + d), where intercepts are the sites' own: the variance of a site's mean target about the model there,
        and its covariance with theta; NaN where the kind or the site's rows do not tell
    """

    kind: CovarianceKind
    A: Floats
    theta: Floats
    covariance: Floats
    systems: Systems
    weights: Floats
    mean: Floats
    row: Floats
    meats: Floats
    meat: Floats
    independent: Floats
    window: Codes
    squares: Floats
    clusters: int
    site_clusters: Codes
    degrees: Floats
    freedom: float
    fallback: str
    own: Floats
    own_freedom: Floats
    residuals: Sequence[FirstResiduals]
    log_weights: float
    skewness: Floats
    level: Floats


def join_scores(passes: Sequence[ScorePass], names: Sequence[str]) -> Estimate:
    """What the passes over all sites found, with the whole factor in their meats. The kind is HC1 or CR1 where the
    default has no answer: a row or a cluster without which coefficients are open. names : of the sites"""
    of = passes[0].of
    asked, kind, A, theta, penalty, d = of.kind, of.kind, of.A, of.theta, of.penalty, len(of.A)

    def put(of: Any) -> Any:
        return np.concatenate([of(one) for one in passes])

    systems = Systems.joined([one.systems for one in passes])
    count, mass = systems.n, systems.mass
    window, squares = put(lambda one: one.window), put(lambda one: one.sums.at.share * one.sums.squares)
    share, own_A = put(lambda one: one.sums.at.share), put(lambda one: one.own.A)
    N, n, q = len(count), int(count.sum()), int(kind.own)
    all_fitted = d + N * q
    if n <= all_fitted:
        rule = f"error bars need more rows than coefficients, {all_fitted}; all sites together have {n}"
        raise SiteDataError(f"{rule}, which are fitted exactly")
    if kind.values and (count < 6 * window).any():
        c = int(np.argmax(count < 6 * window))
        rule = f"lag must be at most a sixth of the rows of every site, and one has {count[c]}"
        raise ArgumentError(f"{rule}; got {window[c]}")
    every, wide = put(lambda one: one.sums.second), put(lambda one: one.sums.meats())
    second, meats = every[:, :d, :d], share[:, None, None] ** 2 * wide[:, :d, :d]
    own_meats = put(lambda one: one.own_sums.meats())[:, :d, :d] / mass[:, None, None] ** 2
    rank, meat = put(lambda one: one.own.rank), None
    at_one, open_own = put(lambda one: one.sums.leverage_one), put(lambda one: one.own_sums.leverage_one) != 0
    first = ((names[c], at_one[c]) for c in np.flatnonzero(at_one).tolist())
    fallback = next((f"{name}, {f'row {row}' if row > 0 else 'one row'}" for name, row in first), "")
    clusters, site_clusters, shares = 0, np.zeros(N, np.int64), sum(one.shares for one in passes)
    if kind.cluster is not None:
        pairs = join_pairs([one.clusters.pairs(one.start) for one in passes if one.clusters is not None])
        clusters, site_clusters = len(pairs.labels), np.bincount(pairs.sites, minlength=N)
        if clusters < 2:
            rule = f"error bars need at least 2 clusters ({kind.cluster!r})"
            raise SiteDataError(f"{rule}; all sites together have {clusters}")
        if q and kind.name == "HC3":
            pairs = replace(pairs, sums=_without_own(pairs.sums, d))
        system = pairs.sums[:, 1 + 2 * d :].reshape(-1, d, d) if kind.name == "HC3" else None
        each, own_each = share[pairs.sites, None], 1 / mass[pairs.sites, None]
        S, M = each * pairs.sums[:, 1 : 1 + d], None if system is None else each[:, :, None] * system
        at, own_at = SolvedSystem(theta, A, share), SolvedSystem(put(lambda one: one.own.theta), own_A, 1 / mass)
        joined = pairs.joined(S)
        units, lost = at.unit_scores(joined, None if M is None else pairs.joined(M), np.zeros(clusters, np.int64))
        meat, meats = units.T @ units, _by_site(at.unit_scores(S, M, pairs.sites)[0], pairs.sites, N)
        shares = float(np.sum(pairs.joined(pairs.sums[:, :1]) ** 2))
        if lost.any():
            label, where = pairs.labels[int(np.argmax(lost))], names[int(pairs.sites[np.argmax(lost[pairs.places])])]
            fallback = f"{where}, all its rows" if kind.cluster == SITES else f"{where}, cluster {label!r}"
            meat, meats = joined.T @ joined, _by_site(S, pairs.sites, N)
        if kind.cluster != SITES:
            own_S = own_each * pairs.sums[:, 1 + d : 1 + 2 * d]
            own_M = None if system is None else own_each[:, :, None] * system
            units, own_lost = own_at.unit_scores(own_S, own_M, pairs.sites)
            own_meats = _by_site(units, pairs.sites, N)
            open_own |= (np.bincount(pairs.sites, own_lost, N) > 0) | (site_clusters < 2)
    if fallback and kind.asked:
        instead = "HC1" if kind.cluster is None else "CR1"
        raise SiteDataError(f"{undetermined_text(fallback, kind)}: covariance must be {instead!r}; got {kind.shown!r}")
    if fallback:
        kind, wide = replace(kind, name="HC1"), every
        meats = share[:, None, None] ** 2 * second if kind.cluster is None else meats
    factor, single = kind.factor(n, all_fitted, clusters), asked.of_one_site  # others may have what one site has not
    with np.errstate(divide="ignore", invalid="ignore"):
        own_factor = single.factor(count, rank + q, site_clusters)
    if kind.name == "classical":
        grams = mass[:, None, None] * (systems.A - np.diag(penalty))
        meats, own_meats = share[:, None, None] ** 2 * grams, grams
        left, right = np.linalg.solve(A, grams.sum(axis=0)), np.linalg.solve(A, meats.sum(axis=0))
        fitted = d - np.trace(np.linalg.solve(A, np.diag(penalty)))
        factor = float((squares / share).sum()) / (n - N * q - 2 * fitted + np.trace(left @ right))
        with np.errstate(divide="ignore", invalid="ignore"):
            own_factor = put(lambda one: one.own_sums.squares) / (count - rank - q) / mass**2
    mean = put(lambda one: one.sums.products) / mass[:, None] + penalty * theta
    if kind.values:  # the same; else with the digits that A theta - b has lost
        mean = systems.A @ theta - systems.b
    row = second * (count / mass**2)[:, None, None]
    if not kind.long_run:
        row = row - mean[:, :, None] * mean[:, None, :]
    degrees, lags = put(lambda one: one.sums.degrees), 0.0 if kind.long_run else window * 2 / 3
    with np.errstate(divide="ignore", invalid="ignore"):
        own = sandwiches(own_A, np.broadcast_to(own_factor, N)[:, None, None] * own_meats)
        own_freedom = np.minimum(np.minimum(count - rank - q, degrees), count / lags)
    if single.cluster is not None:
        own_freedom = site_clusters - 1.0
    telling = (count > rank + q) & (rank > 0)
    own[~telling | open_own] = np.nan
    freedom = float(clusters - 1 if kind.cluster is not None else n - all_fitted)
    if kind.long_run:
        freedom = _pooled_freedom(meats, degrees, freedom)
    elif of.spread is not None and shares > 0:
        freedom = min(freedom, d**2 / shares)
    level = np.full((N, 1 + d), np.nan)
    if q and kind.name == "classical":
        level = factor / mass[:, None] * np.eye(1, 1 + d)
    elif q and kind.cluster is None:
        with_theta = np.linalg.solve(A, wide[:, :d, d].T * share / np.sqrt(mass)).T
        level = factor * np.column_stack([wide[:, d, d] / mass, with_theta])
        level[put(lambda one: one.sums.alone)] = np.nan
    powers, cubes = sum((one.sums.block_moments(of.influence) for one in passes), np.zeros((2, 1)))
    weights, meat = share * mass, factor * (meats.sum(axis=0) if meat is None else meat)
    if not kind.values:  # columns that nearly determine one another have lost digits, which rows give back
        theta = theta - np.linalg.solve(A, weights @ mean)
    return Estimate(
        kind=kind,
        A=A,
        theta=theta,
        covariance=sandwiches(A, meat),
        systems=systems,
        weights=weights,
        mean=mean,
        row=row,
        meats=factor * meats,
        meat=meat,
        independent=np.tensordot(share**2, second, 1),
        window=window,
        squares=squares,
        clusters=clusters,
        site_clusters=site_clusters,
        degrees=degrees,
        freedom=freedom,
        fallback=undetermined_text(fallback, asked) if fallback else "",
        own=own,
        own_freedom=np.where(telling, own_freedom, np.nan),
        residuals=[one.residuals for one in passes],
        log_weights=sum(one.log_weights for one in passes),
        skewness=np.asarray(cubes / np.where(powers > 0, powers, 1.0) ** 1.5, np.float64),
        level=level,
    )


def _pooled_freedom(meats: Floats, degrees: Floats, most: float) -> float:
    """Where sites have k_c degrees of freedom each, of their part V_c of the covariance V, all have 1 / sum_c s_c^2 /
    k_c together, with the shares s_c = trace(V^-1 V_c) / d (Welch and Satterthwaite)."""
    V = meats.sum(axis=0)
    scale = np.sqrt(np.where(np.diag(V) > 0, np.diag(V), 1.0))
    inverse = np.linalg.pinv(V / np.outer(scale, scale), rcond=1e-12, hermitian=True) / np.outer(scale, scale)
    shares = np.einsum("ij,nij->n", inverse, meats)
    return min(float(shares.sum() ** 2 / np.sum(shares**2 / degrees)), most) if shares.sum() > 0 else most


def _without_own(sums: Floats, d: int) -> Floats:
    """Sums of clusters for the jackknife, with the part of each in the intercept z of its site (`ScorePass`).

    The system without a cluster has the Schur complement A - A_g - p p^T / (1 - q) and the right side S_g + p s / (1 -
    q), p = sum u z, s = sum z e and q = sum z^2 over it. A cluster that is its whole site has p = 0 and s = 0.
    """
    out, p, s, q = np.split(sums, [at := 1 + 2 * d + d * d, at + d, at + d + 2], axis=1)
    root = np.sqrt(np.maximum(1 - q, LEVERAGE_ONE))
    p, s = np.where(1 - q > LEVERAGE_ONE, p / root, 0.0), s / root
    system = (p[:, :, None] * p[:, None, :]).reshape(-1, d * d)
    return np.asarray(out + np.hstack([np.zeros_like(q), p * s[:, :1], p * s[:, 1:], system]), np.float64)


def _by_site(units: Floats, sites: Codes, N: int) -> Floats:
    """(N, d, d): sums of squares of units : (k, d)."""
    order = np.argsort(sites, kind="stable")
    found, starts = np.unique(sites[order], return_index=True)
    out, S = np.zeros((N, units.shape[1], units.shape[1])), units[order]
    out[found] = Piece(S, S, np.empty(len(S)), found, starts).products(S, S)
    return out


def undetermined_text(where: str, kind: CovarianceKind) -> str:
    """What to say of a row or cluster with leverage 1."""
    return f"{where}, alone determines some coefficient, so that {kind.shown} does not exist"


def covariance_text(s: Estimate) -> str:
    """The kind of covariance, for people."""
    kind = s.kind
    if kind.cluster is not None:
        joined = ", joined across sites" if kind.cluster != SITES and s.site_clusters.sum() > s.clusters else ""
        return f"{kind.shown}, {s.clusters:,} clusters{joined}"
    M = int(s.window.max())
    return kind.name if kind.name != "HAC" else f"HAC, lag {M}" if kind.lag is not None else f"HAC, lag {M} seen"


def sandwiches(A: Floats, meat: Floats) -> Floats:
    """A^-1 meat A^-T : (..., d, d)."""
    left = np.linalg.solve(A, meat)
    out = np.linalg.solve(A, np.swapaxes(left, -1, -2))
    return np.asarray((out + np.swapaxes(out, -1, -2)) / 2, np.float64)


def root_of_sandwich(A: Floats, meat: Floats) -> Floats:
    """(d, d): R with R R^T = A^-1 meat A^-T."""
    scale = np.sqrt(np.where(np.diag(meat) > 0, np.diag(meat), 1.0))
    values, vectors = np.linalg.eigh(meat / np.outer(scale, scale))
    root = scale[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(np.linalg.solve(A, root), np.float64)


def measure_fit(
    task: Task, scale: FeatureScale, A: Floats | None, rows: tuple[int, float], squares: float, mean: Floats,
    variance: float, pooled: bool, log_weights: float = 0.0, own: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """How well a regression fits, as fields of a Fit, as statsmodels has them; none for a value function.

    A : (d, d), without the ridge; rows : n, and the sum of their weights; squares : sum r_c w e^2, in the run's
    coordinates; mean : (k + 1,) of features and target; variance : of the target; pooled : whether rows count by their
    weights alone; log_weights : the sum of the logarithms of these; own : sites with intercepts of their own, about
    which the target then varies

    The variance is sum of v e^2 / (n - d), v = r_c w scaled so that they add up to the rows' own weights w. R^2 is
    about the mean where columns have a constant among their combinations, as A tells, and else about 0. The likelihood
    is that of normal errors, and needs pooled rows without a ridge.
    """
    if not isinstance(task, Regression):
        return {}
    (n, mass), constant, likelihood, squares = rows, None, math.nan, scale.y_spread**2 * squares
    if not task.intercept:
        if A is not None:  # the k that comes nearest to x . k = 1 has A k = centre
            centre = mean[:-1] / scale.spread
            k = np.asarray(np.linalg.lstsq(A, centre)[0], np.float64)
            if centre @ k >= 1 - NO_CONSTANT:  # the mean of (1 - x . k)^2 is 1 - centre . k
                constant = np.where(np.abs(k) * np.sqrt(np.diag(A)) > NO_PART, k, 0.0)  # others take no part
        variance += float(mean[-1]) ** 2 if constant is None else 0.0
    if pooled and task.ridge == 0 and squares > 0 and math.isfinite(log_weights):
        likelihood = (log_weights - n * (1 + math.log(2 * math.pi * squares * mass / n))) / 2
    known = variance > 0 and (task.intercept or A is not None)
    return {
        "residual_variance": squares * mass / (n - scale.dim - own),
        "r_squared": 1 - squares / variance if known else math.nan,
        "log_likelihood": likelihood,
        "constant": None if constant is None else constant / scale.spread,
    }


def system_sums(pieces: Iterable[Piece], theta: Floats, penalty: Floats, weight: float) -> Floats:
    """A site's part of the first sum, at theta : (d,); penalty : (d,), the ridge; weight : w_c, of the site."""
    own = Systems.of(pieces, ["this site"], penalty)
    A, n = svec(own.A[0]), own.n[0]
    return weight * np.concatenate([A, own.A[0] @ theta - own.b[0], weight / n * (A - svec(np.diag(penalty)))])


@dataclass(frozen=True, eq=False)
class ScorePoint:
    """Where scores are taken and what of them is told: theta : (d,); directions : (q, d), V of V s s^T V^T.

    A : (d, d), for leverages; None, and scores are those of HC1
    spread : (d, d), for degrees of freedom where not all rows count the same (covariance.py); None where they do
    own : whether sites have intercepts of their own
    """

    theta: Floats
    directions: Floats
    A: Floats | None = None
    spread: Floats | None = None
    own: bool = False

    @property
    def kind(self) -> CovarianceKind:
        return CovarianceKind("HC1" if self.A is None else "HC3", asked=False, own=self.own)


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
    for row in filter(None, sums.leverage_one.tolist()):
        raise SiteDataError(undetermined_text(f"row {row}", at.kind))
    gradient = weight * (sums.products[0] / n + penalty * at.theta)
    means = weight / n * np.sum([[*p.u.sum(axis=0), p.y.sum(), p.y @ p.y] for p in pieces()], axis=0)
    squares = weight / n * sums.squares[0], found.shares
    meat = V @ sums.meats()[0, :d, :d] @ V.T * sums.at.share[0] ** 2
    return np.concatenate([svec(meat), V @ gradient, means, squares])


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
    total: Floats, theta: Floats, names: Sequence[str], rows: Floats, weights: Floats, own: bool
) -> ScorePoint:
    """The data's own solution, from where a run ended and the first sum there, and what the scores are to tell."""
    d, n = len(theta), int(np.sum(rows))
    fitted = d + own * len(rows)
    k = d * (d + 1) // 2
    packed, gradient, shares = np.split(total, [k, k + d])  # shares : of r^2 u u^T over all rows
    A = smat(packed, d)
    check_determined(A, names, n)
    if n <= fitted:
        raise SiteDataError(f"error bars need more rows than coefficients, {fitted}; all sites together have {n}")
    equal = rows_count_equally(rows, weights)
    spread = None if equal else np.asarray(np.linalg.pinv(smat(shares, d), hermitian=True), np.float64)
    return ScorePoint(theta - np.linalg.solve(A, gradient), np.eye(d), A, spread, own)


def fields_of_fit(
    task: Regression, scale: FeatureScale, rows: Sequence[int], at: ScorePoint, total: Floats, chosen: Sequence[int]
) -> dict[str, Any]:
    """The fields of a Fit that the second sum gives; rows : of each site; chosen : the q coefficients that directions
    are of. Others keep the run's value, and their covariance is NaN"""
    d, q, n, own = len(at.theta), len(at.directions), sum(rows), at.own * len(rows)
    k, (T, t) = q * (q + 1) // 2, scale.original()
    meat, gradient, mean, (y, yy, squares, shares) = np.split(total, [k, k + q, k + q + d])
    meat, theta = at.kind.factor(n, d + own, 0) * smat(meat, q), T @ at.theta + t
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
        "degrees_of_freedom": float(n - d - own) if pooled else min(float(n - d - own), d**2 / shares),
        "covariance_kind": at.kind.shown,
        **measure_fit(task, scale, A, (n, float(n)), squares, centre, variance, pooled, own=own),
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
