"""How far the data's solution is from the truth: covariances to which each site adds its own part.

Least squares, with any weights: a row of site c counts r_c w_i, r_c = W_c / (sum of w at c), W_c the weight of the site
in the average. With A = sum r_c w_i x_i x_i^T, the scores s_i = r_c w_i x_i e_i and leverages h_i = r_c w_i x_i^T A^-1
x_i of all n rows, e_i the residuals and d the number of coefficients,

    Cov(theta) = factor A^-1 (sum_c meat_c) A^-T

    kind       meat of a site                                                     factor
    classical  sum r w x x^T                                                      sum r w e^2 / (n - d)
    HC0, HC1   sum s s^T                                                          1, n / (n - d)
    HC2, HC3   sum s s^T / (1 - h), / (1 - h)^2                                   1
    CR0, CR1   sum over clusters of S S^T, S = sum s                              1, G / (G - 1) (n - 1) / (n - d)
    CR3        sum over clusters of A D D^T A, D = (A - A_g)^-1 S                 1
    HAC        sum over lags |l| <= L of (1 - |l| / (L + 1)) sum s_i s_{i+l}^T    1

D is how far theta is from what it is without the cluster. A ridge is part of every row: s = r w (x e + ridge theta).

The scores g_i of a value function (A(z_i) theta - b(z_i), about their site's mean) are correlated in time: Cov is
that of their mean, A^-1 (sum_c W_c^2 / n_c sum_h Cov(g_i, g_{i+h})) A^-T, seen through slow cosines (lag_windows.py),
with the factor n / (n - d). So are the scores of a regression with "HAC" and without a lag.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from ...checks import Floats, integer
from ...errors import ArgumentError, SiteDataError
from ..rows.observe import Piece
from ..site_sums import System
from ..tasks import SITES, Regression, Task
from .cluster_sums import ClusterSums
from .lag_windows import PILOT, choose_window
from .own_estimates import OwnEstimate, own_estimate
from .score_sums import ClassicalSums, LagSums, LeverageSums, LongRunSums, ScoreSums, Solved

POWERS = {"HC2": 0.5, "HC3": 1.0}  # of 1 - h


@dataclass(frozen=True)
class CovarianceKind:
    """What is assumed of the rows' errors.

    name : "classical", "HC0" to "HC3" or "HAC"; asked : whether it was asked for, or is the default
    lag : L; None has the window chosen. cluster : a column, "sites" or None; values : whether of a value function
    """

    name: str
    asked: bool = True
    lag: int | None = None
    cluster: str | None = None
    values: bool = False

    @classmethod
    def of(cls, task: Task, lag: int | None) -> CovarianceKind:
        """As the task and a fit's lag say."""
        lag = None if lag is None else integer("lag", lag)
        if not isinstance(task, Regression):
            return cls("HAC", lag is not None, lag, values=True)
        if lag is not None and task.cluster is not None:
            raise ArgumentError(f"lag must not be given beside cluster, which says what is correlated; got {lag}")
        if lag is not None and task.covariance not in (None, "HAC"):
            raise ArgumentError(f"lag must go with covariance='HAC', not with {task.covariance!r}; got {lag}")
        name = task.covariance or ("HC3" if lag is None else "HAC")
        return cls(name, task.covariance is not None, lag, task.cluster)

    @property
    def long_run(self) -> bool:
        """Whether correlations in time are seen through slow cosines."""
        return self.name == "HAC" and (self.values or self.lag is None)

    @property
    def independent(self) -> bool:
        """Whether rows are taken to be independent."""
        return self.name != "HAC" and self.cluster is None

    @property
    def of_one_site(self) -> CovarianceKind:
        """The kind for a site's own solution: a site that is one cluster has its rows."""
        return replace(self, cluster=None) if self.cluster == SITES else self

    def text(self, sites: Sequence[Scores]) -> str:
        """For people."""
        if self.cluster is not None:
            return f"{self.name.replace('HC', 'CR')}, {sum(s.clusters for s in sites):,} clusters"
        if self.name != "HAC":
            return self.name
        M = max(s.window for s in sites)
        return f"HAC, lag {M}" if self.lag is not None else f"HAC, lag {M} seen"

    def sums(self, at: Solved, penalty: Floats, mean: Floats, window: int, n: int) -> ScoreSums:
        """What adds up a site's n rows; mean : (d,) of their scores; window : in lags."""
        if self.long_run:
            return LongRunSums(at, penalty, mean, n, window, self.lag == 0)
        if self.cluster is not None:
            return ClusterSums(at, penalty, self.name == "HC3")
        if self.name == "HAC":
            return LagSums(at, penalty, window)
        if self.name == "classical":
            return ClassicalSums(at, penalty)
        return LeverageSums(at, penalty, POWERS[self.name]) if self.name in POWERS else ScoreSums(at, penalty)

    def factor(self, n: int, d: int, sites: Sequence[Scores]) -> float:
        """Of the sum of these sites' meats, for n rows in all and d coefficients."""
        if self.name == "classical":
            return sum(s.squares for s in sites) / (n - d)
        if self.cluster is not None:
            G = sum(s.clusters for s in sites)
            return G / (G - 1) * (n - 1) / (n - d) if self.name == "HC1" else 1.0
        return n / (n - d) if self.name == "HC1" or self.long_run else 1.0

    def degrees_of_freedom(self, n: int, d: int, sites: Sequence[Scores]) -> float:
        """Of the t distribution of errors over standard errors.

        Where sites have k_c each, of their part V_c of the covariance V, all have 1 / sum_c s_c^2 / k_c together, with
        the shares s_c = trace(V^-1 V_c) / d (Welch and Satterthwaite).
        """
        if self.cluster is not None:
            return float(sum(s.clusters for s in sites) - 1)
        if not self.long_run:
            return float(n - d)
        V = sum_of_meats(sites)
        scale = np.sqrt(np.where(np.diag(V) > 0, np.diag(V), 1.0))
        inverse = np.linalg.pinv(V / np.outer(scale, scale), rcond=1e-12, hermitian=True) / np.outer(scale, scale)
        shares = np.array([np.sum(inverse * s.meat) for s in sites])
        degrees = np.array([s.degrees for s in sites])
        return min(float(shares.sum() ** 2 / np.sum(shares**2 / degrees)), n - d) if shares.sum() > 0 else float(n - d)

    def own_freedom(self, freedom: int, s: Scores) -> float:
        """Of the covariance of a site's own solution, whose rows leave `freedom`; fewer for correlated rows, for a
        sum over lags is known as well as from n / (sum over lags of squared weights) independent rows."""
        if self.cluster is not None:
            return float(s.clusters - 1)
        lags = 0.0 if self.long_run else s.window * 2 / 3
        return min(float(freedom), s.degrees, s.n / lags if lags > 0 else math.inf)


@dataclass(frozen=True, eq=False)
class Scores:
    """Of one site's scores g_i = A(z_i) theta - b(z_i), i = 1 ... n.

    mean : (d,), the site's ideal control variate xi_star; row : (d, d) covariance of one of these n scores drawn at
    random (Sigma_omega); meat : (d, d) its part of the sandwich; spare : (d, d) what takes the place of the meat where
    some site has none
    window : how many lags count; clusters : how many; squares : sum r w e^2; alone : what has leverage 1
    degrees : of freedom of the meat, where it has fewer than there are rows
    own : (d, d) covariance of the site's own solution, NaN where its rows do not tell; freedom : its degrees of freedom
    residuals : of the first rows; independent : (d, d) the meat if rows were independent (HC0)
    """

    n: int
    mean: Floats
    row: Floats
    meat: Floats
    spare: Floats
    window: int
    clusters: int = 0
    squares: float = 0.0
    alone: str = ""
    degrees: float = math.inf
    own: Floats = field(default_factory=lambda: np.empty((0, 0)))
    freedom: float = math.nan
    residuals: Floats = field(default_factory=lambda: np.empty(0))
    independent: Floats = field(default_factory=lambda: np.empty((0, 0)))


def scores(
    pieces: Iterable[Piece],
    own: System,
    weight: float,
    shared: tuple[Floats, Floats],
    influence: Floats,
    penalty: Floats,
    kind: CovarianceKind,
) -> Scores:
    """A site's part of the covariance, and the covariance of its own solution, in one pass over its pieces.

    own : the site's system, whose A theta - b is the mean score; weight : W_c; shared : A and theta of all sites
    influence : (k, d), times a score it is what a row does to the coefficients: the window is chosen for these
    penalty : (d,), the ridge of each coefficient
    """
    A, theta = shared
    mean, home = own.A @ theta - own.b, own_estimate(own, not kind.values)
    stream, first = iter(pieces), list[Piece]()
    if kind.name == "HAC" and kind.lag is None:
        while sum(len(p.y) for p in first) < PILOT and (p := next(stream, None)) is not None:
            first.append(p)
        e = np.concatenate([p.v @ theta - p.y for p in first])[:PILOT]
        psi = np.concatenate([p.u for p in first])[:PILOT] * e[:, None] @ influence.T
        window = choose_window(psi if kind.values else np.column_stack([psi, e]))  # e : the score of the middle's value
    else:
        window = kind.lag or 0
    if kind.values and own.n < 6 * window:
        raise ArgumentError(f"lag must be at most a sixth of the rows of every site, and one has {own.n}; got {window}")
    sums = kind.sums(Solved(theta, A, weight / own.mass), penalty, mean, window, own.n)
    apart = None
    if own.n > home.rank > 0:
        at = Solved(home.theta, home.A, 1 / own.mass)
        apart = kind.of_one_site.sums(at, penalty, np.zeros_like(mean), window, own.n)
    for p in chain(first, stream):
        sums.add(p)
        if apart is not None:
            apart.add(p)
    if sums.n != own.n:
        raise SiteDataError(f"a site must have the same rows when it is read again, {own.n:,}; got {sums.n:,}")
    if not kind.values:
        mean = sums.products / own.mass + penalty * theta  # the same, with the digits that A theta - b has lost
    found = _scores(sums, mean, own, window, kind)
    if apart is None:
        return replace(found, own=np.full_like(A, np.nan))
    alone = _scores(apart, np.zeros_like(mean), own, window, kind)
    freedom = kind.of_one_site.own_freedom(own.n - home.rank, alone)
    return replace(found, own=_own_covariance(home, alone, kind.of_one_site), freedom=freedom)


def _scores(sums: ScoreSums, mean: Floats, own: System, window: int, kind: CovarianceKind) -> Scores:
    meat, spare = sums.meats()
    second = sums.second * (own.n / own.mass) ** 2 / own.n
    row = second if kind.long_run else second - np.outer(mean, mean)
    squares, residuals = sums.at.share * sums.squares, np.concatenate(sums.residuals)
    found = Scores(own.n, mean, row, meat, spare, window, sums.clusters, squares, sums.alone, sums.degrees)
    return replace(found, residuals=residuals[:PILOT], independent=sums.at.share**2 * sums.second)


def _own_covariance(home: OwnEstimate, s: Scores, kind: CovarianceKind) -> Floats:
    """Of one site's solution, from its scores there; NaN where its rows do not tell."""
    if s.alone or (kind.cluster is not None and s.clusters < 2):
        return np.full_like(home.A, np.nan)
    return sandwich(home.A, kind.factor(s.n, home.rank, [s]) * s.meat)


def complete(
    kind: CovarianceKind, sites: Sequence[Scores], names: Sequence[str], A: Floats
) -> tuple[CovarianceKind, list[Scores]]:
    """The sites' scores with the whole factor in their meats; and the kind, which is HC1 or CR1 where the default has
    no answer: a row or a cluster without which coefficients are open."""
    n, d = sum(s.n for s in sites), len(A)
    if n <= d:
        raise SiteDataError(
            f"error bars need more rows than coefficients, {d}; all sites together have {n}, which are fitted exactly"
        )
    if kind.lag is not None and kind.lag >= max(s.n for s in sites):
        rule = f"lag must be less than the rows of the largest site, {max(s.n for s in sites)}"
        raise ArgumentError(f"{rule}; got {kind.lag}")
    G = sum(s.clusters for s in sites)
    if kind.cluster is not None and G < 2:
        raise SiteDataError(f"error bars need at least 2 clusters ({kind.cluster!r}); all sites together have {G}")
    for name, s in zip(names, sites, strict=True):
        if s.alone and kind.asked:
            raise SiteDataError(f"{alone_text(name, s, kind)}: covariance must be 'HC1'; got {kind.name!r}")
    if any(s.alone for s in sites):
        kind = replace(kind, name="HC1")
        sites = [replace(s, meat=s.spare) for s in sites]
    factor = kind.factor(n, d, sites)
    return kind, [replace(s, meat=factor * s.meat) for s in sites]


def alone_text(name: str, s: Scores, kind: CovarianceKind) -> str:
    """What to say of a row or cluster with leverage 1; name : of its site."""
    what = kind.name if kind.cluster is None else kind.name.replace("HC", "CR")
    return f"{name}, {s.alone}, alone determines some coefficient, so that {what} does not exist"


def sandwich(A: Floats, meat: Floats) -> Floats:
    """A^-1 meat A^-T : (d, d)."""
    left = np.linalg.solve(A, meat)
    out = np.linalg.solve(A, left.T)
    return np.asarray((out + out.T) / 2, np.float64)


def root_of_sandwich(A: Floats, meat: Floats) -> Floats:
    """(d, d): R with R R^T = A^-1 meat A^-T."""
    scale = np.sqrt(np.where(np.diag(meat) > 0, np.diag(meat), 1.0))
    values, vectors = np.linalg.eigh(meat / np.outer(scale, scale))
    root = scale[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(np.linalg.solve(A, root), np.float64)


def sum_of_meats(sites: Sequence[Scores]) -> Floats:
    """(d, d)."""
    return np.asarray(np.sum([s.meat for s in sites], axis=0), np.float64)
