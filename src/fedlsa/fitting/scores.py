"""What a covariance assumes of the rows' errors, and one pass over rows that adds up their scores for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..checks import Floats, choice, integer
from ..errors import ArgumentError, SiteDataError
from .formulas import typed_labels
from .lag_windows import PILOT, Bartlett, FirstResiduals, LogCosines, SlowCosines, choose_window, cosine_count
from .rows import Piece
from .sums import LEVERAGE_ONE, SolvedSystem, Systems
from .tables import Codes, distinct, name_of
from .tasks import CLUSTERED, COVARIANCES, SITES, Regression, Task

POWERS = {"HC2": 0.5, "HC3": 1.0}  # of 1 - h
HELD = 2**20  # numbers of rows' products that are worked on at a time
CLUSTER_BYTES = 2**30  # for the sums of all clusters


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
    def of(cls, task: Task, covariance: str | None, cluster: str | None, lag: int | None) -> CovarianceKind:
        """As the arguments of a fit say."""
        lag = None if lag is None else integer("lag", lag)
        if not isinstance(task, Regression):
            for name, given in (("covariance", covariance), ("cluster", cluster)):
                if given is not None:
                    raise ArgumentError(f"{name} must not be given for a value function; got {given!r}")
            return cls("HAC", lag is not None, lag, values=True)
        if covariance is not None:
            choice("covariance", covariance, COVARIANCES)
        if cluster is not None and lag is not None:
            raise ArgumentError(f"lag must not be given beside cluster, which says what is correlated; got {lag}")
        if cluster is not None and covariance not in (None, *CLUSTERED):
            rule = f"covariance must be one of {', '.join(CLUSTERED)} where cluster is given"
            raise ArgumentError(f"{rule}; got {covariance!r}")
        if cluster is None and covariance is not None and covariance.startswith("CR"):
            raise ArgumentError(f"cluster must be given for covariance={covariance!r}; got none")
        if lag is not None and covariance not in (None, "HAC"):
            raise ArgumentError(f"lag must go with covariance='HAC', not with {covariance!r}; got {lag}")
        name = (covariance or ("HC3" if lag is None else "HAC")).replace("CR", "HC")
        return cls(name, covariance is not None, lag, cluster)

    @property
    def shown(self) -> str:
        """The usual name."""
        return self.name if self.cluster is None else self.name.replace("HC", "CR")

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

    def factor(self, n: Any, d: Any, clusters: Any) -> Any:
        """Of the meat, for n rows, d coefficients and so many clusters; of one estimate or of several."""
        if self.cluster is not None:
            return clusters / (clusters - 1) * (n - 1) / (n - d) if self.name == "HC1" else 1.0
        return n / (n - d) if self.name == "HC1" or self.long_run else 1.0


class ClusterSums:
    """Sums over the rows of each cluster at each site; width : numbers of a row; by_site : whether sites are clusters.

    Rows come in any order. A cluster may have rows at many sites; then its sums are joined by its label (`join_pairs`).
    less : what to say where they do not fit into memory
    """

    def __init__(self, width: int, by_site: bool, less: str = "") -> None:
        self.width, self.by_site, self._less = width, by_site, less
        self._codes: dict[Any, int] = {}
        self._pairs: dict[tuple[int, int], int] = {}
        self._sums = np.zeros((0, width))

    def add(self, p: Piece, rows: Callable[[slice], Floats]) -> None:
        """The next rows; rows : gives the numbers (k, width) of some of them."""
        codes = np.zeros(len(p.y), np.int64)
        if not self.by_site and p.cluster is not None:
            local, labels = distinct(p.cluster)
            known = [self._codes.setdefault(label, len(self._codes)) for label in labels]
            codes = np.array(known, np.int64)[local]
        sites = np.repeat(p.sites, p.counts)
        _, first, pair = np.unique(sites * (len(self._codes) + 1) + codes, return_index=True, return_inverse=True)
        places = np.empty(len(first), np.int64)
        for k in np.argsort(first):
            key = int(sites[first[k]]), int(codes[first[k]])
            places[k] = self._pairs.setdefault(key, len(self._pairs))
        if (count := len(self._pairs)) > len(self._sums):
            if 8 * count * self.width > CLUSTER_BYTES:
                rule = f"sums of all clusters must fit into {CLUSTER_BYTES >> 20} MiB"
                raise SiteDataError(f"{rule}{self._less}; got more than {len(self._sums):,} clusters")
            more = max(count, 2 * len(self._sums)) - len(self._sums)
            self._sums = np.concatenate([self._sums, np.zeros((more, self.width))])
        for at in range(0, len(codes), step := max(1, HELD // self.width)):
            part = slice(at, at + step)
            here = places[pair[part]]
            order = np.argsort(here, kind="stable")
            found, begins = np.unique(here[order], return_index=True)
            self._sums[found] += np.add.reduceat(rows(part)[order], begins, axis=0)

    def pairs(self, start: int) -> tuple[Codes, list[Any], Floats]:
        """Of each site and cluster, in the order of first rows: the site, counted from `start`, the label, the sums."""
        sites, known = np.array([site for site, _ in self._pairs], np.int64) + start, list(self._codes)
        labels = sites.tolist() if self.by_site else [known[code] for _, code in self._pairs]
        return sites, labels, self._sums[: len(self._pairs)]


@dataclass(frozen=True, eq=False)
class ClusterPairs:
    """Of each of k pairs of a site and a cluster that has rows there: the site, the cluster's place, the sums.

    labels : of the clusters
    """

    sites: Codes
    places: Codes
    sums: Floats
    labels: Sequence[Any]

    def joined(self, values: Floats) -> Floats:
        """(clusters, ...): sums over the sites of what the pairs have : (k, ...)."""
        out = np.zeros((len(self.labels), *values.shape[1:]))
        np.add.at(out, self.places, values)
        return out


def join_pairs(found: Sequence[tuple[Codes, list[Any], Floats]]) -> ClusterPairs:
    """Pairs of several groups of sites, clusters joined by their labels; 5, "5" and 5.0 are one, as is a day.

    Where texts are no numbers, what a number beside them means is not known: "05" may be 5, or not.
    """
    every = [label for _, labels, _ in found for label in labels]
    texts = typed_labels({label for label in every if isinstance(label, str)})
    text = next((x for x, kind in texts.items() if isinstance(kind, str) and typed_labels([x])[x] == x), None)
    number = next((x for x in every if isinstance(x, (int, float))), None)
    if text is not None and number is not None:
        raise SiteDataError(f"clusters must have labels of one kind; got the text {text!r} and the number {number!r}")
    codes: dict[str, int] = {}
    names = [name_of(texts.get(label, label)) for label in every]
    places = np.array([codes.setdefault(name, len(codes)) for name in names])
    sites, sums = (np.concatenate([one[k] for one in found]) for k in (0, 2))
    _, first, pair = np.unique(sites * len(codes) + places, return_index=True, return_inverse=True)
    if len(first) < len(sites):  # a site has rows of "5" in one file and of 5 in another
        np.add.at(sums, first[pair], np.where((first[pair] == np.arange(len(pair)))[:, None], 0.0, sums))
        first.sort()
        sites, places, sums = sites[first], places[first], sums[first]
    return ClusterPairs(sites, places, sums, list(codes))


class ScoreSums:
    """Sums over the rows of N sites of the scores at a solution, as a kind of covariance needs them.

    penalty : (d,), the ridge; mean : (N, d), about which scores are taken, or 0
    window : (N,) in lags; systems : of the sites; places : (N,) rows with those that were left out
    """

    def __init__(
        self,
        kind: CovarianceKind,
        at: SolvedSystem,
        penalty: Floats,
        mean: Floats | None,
        window: Codes,
        systems: Systems,
        places: Codes,
    ) -> None:
        (N, d), self.kind, self.at, n = (len(systems.n), len(penalty)), kind, at, systems.n
        self.penalty, self._shift = penalty, penalty * at.theta
        if mean is not None:
            self._shift = self._shift - np.where((n > 1)[:, None], mean, 0.0)
        self.squares, self.products = np.zeros(N), np.zeros((N, d))  # sums of e^2, and of u e
        self.second, self.free = np.zeros((N, d, d)), np.zeros((N, d, d))  # of g g^T, and of those freed of leverage
        self.leverage_one: dict[int, int] = {}  # rows with leverage 1: of each site the first
        self.window, self.systems, self.places, self.rows = window, systems, places, np.zeros(N, np.int64)
        self._lagged: dict[int, Bartlett | SlowCosines] = {}
        self._in_time = kind.name == "HAC" and not (kind.long_run and kind.lag == 0)

    @property
    def degrees(self) -> Floats:
        """(N,): of freedom of the meats, where they have fewer than there are rows."""
        if not self.kind.long_run:
            return np.full(len(self.systems.n), math.inf)
        if not self._in_time:
            return np.maximum(self.systems.n - 1, 1).astype(np.float64)
        sizes = zip(self.places.tolist(), self.window.tolist(), strict=True)
        return np.array([cosine_count(k, M) for k, M in sizes], float)

    def _lag_sums(self, c: int) -> Bartlett | SlowCosines:
        """What sees the rows of a site in their order."""
        if c not in self._lagged:
            n, M, d = int(self.places[c]), int(self.window[c]), len(self.penalty)
            count = cosine_count(n, M)
            if self.kind.values and n > 1:
                A = self.at.A if self.at.theta.ndim == 1 else self.at.A[c]
                self._lagged[c] = LogCosines(n, count, self.systems.A[c], self.at.share[c] * np.linalg.inv(A))
            else:
                self._lagged[c] = SlowCosines(n, count, d) if self.kind.long_run else Bartlett(M + 1, d)
        return self._lagged[c]

    def block_moments(self, influence: Floats) -> Floats:
        """(2, d): sums of squares and cubes of what blocks of logs do to the coefficients; (2, 1) without blocks."""
        out = np.zeros((2, 1))
        for c, blocks in self._lagged.items():
            if isinstance(blocks, LogCosines):
                psi = self.at.share[c] * blocks.sums @ influence.T
                out = out + np.stack([np.sum(psi**2, axis=0), np.sum(psi**3, axis=0)])
        return out

    def add(self, p: Piece) -> tuple[Floats, Floats]:
        """The next rows; their residuals (n,) and scores (n, d)."""
        e, s = self.at.residuals(p), p.sites
        g = p.u * e[:, None]
        self.squares[s] += p.sums(e * e)
        self.products[s] += p.sums(g)
        if self._shift.any():
            shift = self._shift if self._shift.ndim == 1 else p.each_row(self._shift)
            g = g + (shift if p.root is None else p.root[:, None] ** 2 * shift)
        self.second[s] += p.products(g, g)
        if self.kind.name in POWERS and self.kind.cluster is None:
            left = 1 - self.at.leverages(p)
            for i in np.flatnonzero(left < LEVERAGE_ONE) if left.min() < LEVERAGE_ONE else ():
                c = int(np.searchsorted(p.starts, i, "right")) - 1
                self.leverage_one.setdefault(int(s[c]), int(self.rows[s[c]] + i - p.starts[c]) + 1)
            freed = g / np.maximum(left, LEVERAGE_ONE)[:, None] ** POWERS[self.kind.name]
            self.free[s] += p.products(freed, freed)
        for c, rows in p.parts() if self._in_time else ():
            sums = self._lag_sums(c)
            if isinstance(sums, LogCosines):
                sums.add_rows(g[rows], p.u[rows], p.v[rows])
            else:
                sums.add(g[rows] if p.gaps is None else _filled(g[rows], p.gaps[rows]))
        self.rows[s] += p.counts
        return e, g

    def meats(self) -> Floats:
        """(N, d, d): of the kind, with clusters left aside."""
        share = self.at.share[:, None, None] ** 2
        if self._in_time:
            return share * np.stack([self._lag_sums(c).total() for c in range(len(self.systems.n))])
        if self.kind.long_run:
            return share * self.second * (self.rows / np.maximum(self.rows - 1, 1))[:, None, None]
        return share * (self.free if self.kind.name in POWERS else self.second)


def _filled(g: Floats, gaps: Codes) -> Floats:
    """Scores of consecutive rows, 0 for those that were left out."""
    at = np.arange(len(g)) + np.cumsum(gaps)
    out = np.zeros((int(at[-1]) + 1, g.shape[1]))
    out[at] = g
    return out


@dataclass(frozen=True, eq=False)
class SharedSolution:
    """The solution of all sites, A theta = b : (d, d) and (d,), and what is to be known of scores there.

    influence : (k, d), times a score it is what a row does to the coefficients: the window is chosen for these
    penalty : (d,), the ridge; spread : M^-1 : (d, d), where degrees of freedom are Satterthwaite's
    """

    kind: CovarianceKind
    A: Floats
    theta: Floats
    influence: Floats
    penalty: Floats
    spread: Floats | None = None


class ScorePass:
    """One pass over the rows of some sites: their scores at the shared solution, and at their own."""

    def __init__(
        self, of: SharedSolution, start: int, systems: Systems, weights: Floats, dropped: Codes | int = 0
    ) -> None:
        """start : the first of the sites among all; systems, weights : of these sites; dropped : rows left out"""
        kind, A, theta, penalty = of.kind, of.A, of.theta, of.penalty
        N, self.of, self.kind, self.start, self.systems = len(systems.n), of, kind, start, systems
        self.own = SolvedSystem.of_each(systems, not kind.values)
        self.window = np.full(N, -1 if kind.name == "HAC" and kind.lag is None else kind.lag or 0, np.int64)
        self._first, self._held = dict[int, list[Floats]](), np.zeros(N, np.int64)  # rows by which windows are chosen
        mean = systems.A @ theta - systems.b if kind.long_run else None
        sites = self.window, systems, systems.n + dropped
        self.sums = ScoreSums(kind, SolvedSystem(theta, A, weights / systems.mass), penalty, mean, *sites)
        self.own_sums = ScoreSums(kind.of_one_site, self.own, penalty, None, *sites)
        self.clusters = None
        if kind.cluster is not None:
            d, jackknife = len(theta), kind.name == "HC3"
            less = f", of {d}^2 numbers each: covariance must be 'CR1' for so many" if jackknife else ""
            self.clusters = ClusterSums(2 * d + d * d * jackknife + 1, kind.cluster == SITES, less)
        self.shares = self.log_weights = 0.0  # sums of q^2, and of the logarithms of the rows' weights
        self.residuals = FirstResiduals()

    def run(self, pieces: Iterable[Piece]) -> ScorePass:
        """Go through the pieces; those whose sites' windows are still to be chosen wait."""
        waiting: list[Piece] = []
        for p in pieces:
            waiting.append(p)
            self._choose_windows(p)
            while waiting and (self.window[waiting[0].sites] >= 0).all():
                self._add(waiting.pop(0))
        if (self.sums.rows != self.systems.n).any():
            c = int(np.argmax(self.sums.rows != self.systems.n))
            rule = f"a site must have the same rows when it is read again, {self.systems.n[c]:,}"
            raise SiteDataError(f"{rule}; got {self.sums.rows[c]:,}")
        return self

    def _choose_windows(self, p: Piece) -> None:
        """Keep the first rows of sites whose window is not chosen; choose it where there are enough of them."""
        for c, rows in p.parts() if (self.window[p.sites] < 0).any() else ():
            if self.window[c] < 0:
                e = p.v[rows] @ self.sums.at.theta - p.y[rows]
                psi = p.u[rows] * e[:, None] @ self.of.influence.T
                values = psi if self.kind.values else np.column_stack([psi, e])  # e : the score of the middle's value
                first = self._first.setdefault(c, [])
                first.append(values if p.gaps is None else _filled(values, p.gaps[rows]))
                self._held[c] += len(e)
                if self._held[c] >= min(PILOT, self.systems.n[c]):
                    self.window[c] = choose_window(np.concatenate(self._first.pop(c))[:PILOT])

    def _add(self, p: Piece) -> None:
        e, g = self.sums.add(p)
        self.residuals.add(p, e, self.start)
        if p.root is not None:
            with np.errstate(divide="ignore"):
                self.log_weights += 2 * float(np.log(p.root).sum())
        with np.errstate(invalid="ignore", over="ignore"):  # of sites that leave coefficients open
            _, own = self.own_sums.add(p)
        q = None
        if self.of.spread is not None:
            q = p.each_row(self.sums.at.share) ** 2 * np.einsum("ni,ij,nj->n", p.u, self.of.spread, p.u)
            self.shares += float(q @ q)
        if self.clusters is not None:
            self.clusters.add(p, lambda part: self._unit_rows(p, np.hstack([g[part], own[part]]), q, part))

    def _unit_rows(self, p: Piece, scores: Floats, q: Floats | None, part: slice) -> Floats:
        """Of some rows: shares in the variance, scores at both solutions, and for the jackknife u u^T + w ridge."""
        u = p.u[part]
        n, d = u.shape
        shares = np.zeros(n) if q is None else q[part]
        if self.kind.name != "HC3":
            return np.column_stack([shares, scores])
        weights = np.ones(n) if p.root is None else p.root[part] ** 2
        system = u[:, :, None] * u[:, None, :]
        system[:, range(d), range(d)] += weights[:, None] * self.of.penalty
        return np.column_stack([shares, scores, system.reshape(n, d * d)])
