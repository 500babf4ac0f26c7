"""One pass over rows that adds up their scores for a covariance: by site, by cluster, and over lags of time.

Lag windows take one pass, whose cost does not grow with the window. Over a sequence that is 0 outside its n rows, with
S_k the sum of L consecutive rows that ends at row k,

    sum_k S_k S_k^T / L = sum_h (1 - |h|/L)_+ G_h = B(L),   G_h = sum_i g_i g_{i+h}^T,

which is Bartlett's window. Where nobody says how many lags count, the sum over all of them comes from k slow cosines
instead: for each j = 1 ... k the sum sqrt(2 / n) sum_i cos(pi j (i - 1/2) / n) g_i has about that covariance, and they
are nearly independent, so that errors over standard errors follow a t distribution with k degrees of freedom (Lazarus,
Lewis, Stock and Watson, 2018). Their mean is never negative, and constants do not enter into it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import fft

from ..checks import Floats
from ..errors import SiteDataError
from .formulas import typed_labels
from .rows import Piece
from .sums import HELD, LEVERAGE_ONE, SolvedSystem, Systems
from .tables import Codes, distinct, name_of
from .tasks import SITES, CovarianceKind

POWERS = {"HC2": 0.5, "HC3": 1.0}  # of 1 - h
PILOT = 2**14  # first rows of a site, from which the window is chosen
ENDING = 5  # lags in a row with negligible correlation that end the search
MOST_BLOCKS = 2**13  # of a site's rows, whose sums the slow cosines see
CLUSTER_BYTES = 2**30  # for the sums of all clusters
SHARE = 8  # rows of a site for each lag that counts, at least


class Bartlett:
    """sum_h (1 - |h|/L)_+ G_h of rows that come in pieces; lags : L."""

    def __init__(self, lags: int, dim: int) -> None:
        self.lags = lags
        self._before = np.zeros((lags - 1, dim))  # the rows that the next blocks reach back to
        self._rows: list[Floats] = []  # until they are as many as blocks reach back: else these cost more
        self._sum = np.zeros((dim, dim))

    def add(self, g: Floats) -> None:
        """The next rows, (n, d)."""
        self._rows.append(g)
        if sum(map(len, self._rows)) >= self.lags:
            self._add_blocks()

    def total(self) -> Floats:
        """(d, d): of all rows so far; blocks that reach beyond the last row are added without it."""
        self._add_blocks()
        S = self._before[::-1].cumsum(axis=0)
        return (self._sum + S.T @ S) / self.lags

    def _add_blocks(self) -> None:
        rows = np.concatenate([self._before, *self._rows])
        n, self._rows = len(rows) - len(self._before), []
        ends = rows.cumsum(axis=0)
        S = ends[self.lags - 1 :]
        S[1:] -= ends[: max(n - 1, 0)].copy()
        self._sum += S.T @ S
        self._before = rows[n:]


def cosine_count(n: int, M: int) -> int:
    """How many slow cosines n rows have that are correlated over M rows, 0 for independent ones: at least 1.

    A cosine of j half waves sees the rows' spectrum at frequency j / (2 n): at most n / (6 M) of them stay where it is
    flat. 0.41 n^(2/3) is the most for rows that are hardly correlated (Lazarus, Lewis, Stock and Watson, 2018).
    """
    most = min(0.41 * n ** (2 / 3), MOST_BLOCKS / 8, n / (6 * M) if M > 0 else n)
    return max(1, int(most))


class SlowCosines:
    """n rows that come in pieces, seen through `count` slow cosines, as the sums of at most so many blocks of rows."""

    def __init__(self, n: int, count: int, dim: int, blocks: int = MOST_BLOCKS) -> None:
        self.block, self._count, self._at = -(-n // blocks), count, 0
        self.sums = np.zeros((-(-n // self.block), dim))

    def add(self, g: Floats) -> None:
        """The next rows, (n, d); what is beyond n does not count, and the caller finds it out."""
        g = g[: max(len(self.sums) * self.block - self._at, 0)]
        if len(g):
            begins = np.maximum(np.arange(-(self._at % self.block), len(g), self.block), 0)
            first = self._at // self.block
            self.sums[first : first + len(begins)] += np.add.reduceat(g, begins, axis=0)
        self._at += len(g)

    def total(self) -> Floats:
        """(d, d): an estimate of the covariance of the sum of all rows, whose mean must be 0, with `count` degrees of
        freedom. Never negative."""
        Z = fft.dct(self.sums, axis=0, norm="ortho")[1 : self._count + 1]  # nearly independent sums
        return np.asarray(len(self.sums) / self._count * Z.T @ Z, np.float64)


class LogCosines(SlowCosines):
    """The same of a log of a value function, in about two blocks for each cosine.

    Without a block, whose scores add up to S and whose rows put A_g into A, theta is off by (A - A_g)^-1 S, which is
    A^-1 (S + A_g A^-1 S) to second order, both about the site's mean, for the site counts what it did. The cosines see
    this in place of S: scores at the solution are too small, most of all in blocks that have a large part in it.

    site_A : (d, d), the mean of the rows' u v^T; inverse : (d, d), of A, times the rows' share in it
    """

    def __init__(self, n: int, count: int, site_A: Floats, inverse: Floats) -> None:
        super().__init__(n, count, len(site_A), 2 * count)
        self._rows, self._site_A, self._inverse, self._block_A = n, site_A, inverse, np.zeros_like(site_A)

    def add_rows(self, g: Floats, u: Floats, v: Floats) -> None:
        """The next rows: scores, and what they are made of, (n, d) each."""
        start = first = self._at
        super().add(g)
        last = min(start + len(g), self._rows)
        while first < last:
            block = first // self.block
            end = min((block + 1) * self.block, self._rows)
            rows = slice(first - start, min(end, last) - start)
            self._block_A += u[rows].T @ v[rows] - (rows.stop - rows.start) * self._site_A
            if end <= last:
                self.sums[block] += self._block_A @ (self._inverse @ self.sums[block])
                self._block_A[:] = 0
            first = end


class FirstResiduals:
    """The residuals of the first rows of each site, and the gaps between these; summed : `sums` of other sites."""

    def __init__(self) -> None:
        self.summed = np.zeros(4)
        self.parts: list[tuple[Floats, Codes, Codes]] = []
        self._taken: dict[int, int] = {}

    def add(self, p: Piece, e: Floats) -> None:
        for c, rows in p.parts():
            size = min(rows.stop - rows.start, PILOT - self._taken.get(c, 0))
            if size > 0:
                first = slice(rows.start, rows.start + size)
                self._taken[c] = self._taken.get(c, 0) + size
                gaps = np.zeros(size, np.int64) if p.gaps is None else p.gaps[first]
                self.parts.append((e[first], np.full(size, c), gaps))

    def sums(self) -> Floats:
        """What the correlation of neighbours follows from (`neighbour_correlation`): S, sum e^2, sum t^2 and how many
        pairs of rows, which add up over sites."""
        if not self.parts:
            return self.summed
        e, sites, gaps = (np.concatenate([part[k] for part in self.parts]) for k in range(3))
        order = np.argsort(sites, kind="stable")
        e, sites, gaps = e[order], sites[order], gaps[order]
        starts = np.flatnonzero(np.append(True, sites[1:] != sites[:-1]))
        counts = np.diff(np.append(starts, len(e)))
        e = e - np.repeat(np.add.reduceat(e, starts) / counts, counts)
        neighbours = (sites[1:] == sites[:-1]) & (gaps[1:] == 0)
        t = (e[1:] * e[:-1])[neighbours]
        pairs = np.add.reduceat(np.append(neighbours, False).astype(float), starts)  # of each site
        expected = np.add.reduceat(e * e, starts) / counts * pairs / np.maximum(counts - 1, 1)
        return self.summed + np.array([t.sum() + expected.sum(), e @ e, t @ t, len(t)])


def choose_window(psi: Floats) -> int:
    """M, the lag after which the autocorrelations of all columns of psi : (n, d) are negligible for ENDING lags.

    Negligible is below 2 sqrt(log10(n) / n) (Politis, 2003) or below twice the standard error that Bartlett's formula
    gives an autocorrelation whose true value is 0, sqrt((1 + 2 sum_{k < h} rho_k^2) / n). 0 for independent rows.
    Twice, for what is negligible lag by lag need not be so in sum.
    """
    n = len(psi)
    most = n // SHARE
    if most == 0:
        return 0
    size = fft.next_fast_len(n + most + ENDING, real=True)
    power = np.abs(fft.rfft(psi - psi.mean(axis=0), size, axis=0)) ** 2
    G = fft.irfft(power, size, axis=0)[: most + ENDING + 1]
    rho = G[1:] / np.where(G[0] > 0, G[0], np.inf)
    spread = np.sqrt((1 + 2 * (np.cumsum(rho**2, axis=0) - rho**2)) / n)
    negligible = (np.abs(rho) < np.maximum(2 * spread, 2 * np.sqrt(np.log10(n) / n))).all(axis=1)
    runs = np.convolve(negligible, np.ones(ENDING), "valid") > ENDING - 0.5  # runs[M]: lags M + 1 ... M + ENDING
    return int(np.argmax(runs)) if runs.any() else most


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
            codes = np.array([self._codes.setdefault(label, len(self._codes)) for label in labels], np.int64)[local]
        sites = np.repeat(p.sites, p.counts)
        _, first, pair = np.unique(sites * (len(self._codes) + 1) + codes, return_index=True, return_inverse=True)
        order, places = np.argsort(first), np.empty(len(first), np.int64)
        places[order] = self._places(sites[first[order]], codes[first[order]])
        for at in range(0, len(codes), step := max(1, HELD // self.width)):
            part = slice(at, at + step)
            here = places[pair[part]]
            order = np.argsort(here, kind="stable")
            found, begins = np.unique(here[order], return_index=True)
            self._sums[found] += np.add.reduceat(rows(part)[order], begins, axis=0)

    def add_pairs(self, sites: Codes, labels: Sequence[Any], sums: Floats) -> None:
        """Sums of other rows, as `pairs` gives them; the same clusters by their labels."""
        codes = [0 if self.by_site else self._codes.setdefault(label, len(self._codes)) for label in labels]
        places = self._places(sites, np.array(codes, np.int64))
        self._sums[places] += sums

    def _places(self, sites: Codes, codes: Codes) -> Codes:
        """Where the sums of pairs stand, each pair once; new ones come last."""
        keys = zip(sites.tolist(), codes.tolist(), strict=True)
        places = np.array([self._pairs.setdefault(key, len(self._pairs)) for key in keys], np.int64)
        if (count := len(self._pairs)) > len(self._sums):
            if 8 * count * self.width > CLUSTER_BYTES:
                rule = f"sums of all clusters must fit into {CLUSTER_BYTES >> 20} MiB"
                raise SiteDataError(f"{rule}{self._less}; got more than {len(self._sums):,} clusters")
            more = max(count - len(self._sums), len(self._sums))
            self._sums = np.concatenate([self._sums, np.zeros((more, self.width))])
        return places

    def pairs(self, start: int) -> tuple[Codes, list[Any], Floats]:
        """Of each site and cluster, in the order of first rows: the site, counted from `start`, the label, the sums."""
        sites, known = np.array([site for site, _ in self._pairs], np.int64) + start, list(self._codes)
        labels = sites.tolist() if self.by_site else [known[code] for _, code in self._pairs]
        return sites, labels, self._sums[: len(self._pairs)]


@dataclass(frozen=True, eq=False)
class ClusterPairs:
    """Of k pairs of a site and a cluster with rows there: the site, the cluster's place among the labels, the sums."""

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
    places, names = distinct(np.array([name_of(texts.get(label, label)) for label in every], object))
    sites, sums = (np.concatenate([one[k] for one in found]) for k in (0, 2))
    _, first, pair = np.unique(sites * len(names) + places, return_index=True, return_inverse=True)
    if len(first) < len(sites):  # a site has rows of "5" in one file and of 5 in another
        np.add.at(sums, first[pair], np.where((first[pair] == np.arange(len(pair)))[:, None], 0.0, sums))
        first.sort()
        sites, places, sums = sites[first], places[first], sums[first]
    return ClusterPairs(sites, places, sums, names)


class ScoreSums:
    """Sums over the rows of N sites of the scores at a solution, as a kind of covariance needs them.

    Where sites have intercepts of their own, a score has one entry more, that of the site's, with its column z of
    squares that add up to 1: sums are then (N, d + 1, d + 1), and `alone` says where one row is all of its site.

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
        self.width = d + kind.own
        self.second, self.free = np.zeros((2, N, self.width, self.width))  # of g g^T, and of those freed of leverage
        self.alone = np.zeros(N, np.bool_)
        self.leverage_one = np.zeros(N, np.int64)  # the first row of each site with leverage 1, from 1; 0 for none
        self.window, self.systems, self.places, self.rows = window, systems, places, np.zeros(N, np.int64)
        self._lagged: dict[int, Bartlett | SlowCosines] = {}
        self._in_time = kind.name == "HAC" and kind.lag != 0

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
            n, M = int(self.places[c]), int(self.window[c])
            count = cosine_count(n, M)
            if self.kind.values and n > 1:
                A = self.at.A if self.at.theta.ndim == 1 else self.at.A[c]
                self._lagged[c] = LogCosines(n, count, self.systems.A[c], self.at.share[c] * np.linalg.inv(A))
            else:
                self._lagged[c] = (
                    SlowCosines(n, count, self.width) if self.kind.long_run else Bartlett(M + 1, self.width)
                )
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
        scores, own = g, np.zeros(1)
        if self.kind.own:
            z = own_column(p, self.systems.mass)
            scores, own = np.column_stack([g, z * e]), z * z
            self.alone[s] |= p.sums(own > 1 - LEVERAGE_ONE) > 0
        self.second[s] += p.products(scores, scores)
        if self.kind.name in POWERS and self.kind.cluster is None:
            left = 1 - self.at.leverages(p)
            left = np.where(own > 1 - LEVERAGE_ONE, 1.0, left - own)  # of a row that is all of its site the score is 0
            for i in np.flatnonzero(left < LEVERAGE_ONE) if left.min() < LEVERAGE_ONE else ():
                c = int(np.searchsorted(p.starts, i, "right")) - 1
                self.leverage_one[s[c]] = self.leverage_one[s[c]] or self.rows[s[c]] + i - p.starts[c] + 1
            freed = scores / np.maximum(left, LEVERAGE_ONE)[:, None] ** POWERS[self.kind.name]
            self.free[s] += p.products(freed, freed)
        for c, rows in p.parts() if self._in_time else ():
            sums = self._lag_sums(c)
            if isinstance(sums, LogCosines):
                sums.add_rows(g[rows], p.u[rows], p.v[rows])
            else:
                sums.add(scores[rows] if p.gaps is None else _filled(scores[rows], p.gaps[rows]))
        self.rows[s] += p.counts
        return e, g

    def meats(self) -> Floats:
        """(N, d, d), or one wider: of the kind, with clusters left aside, where each site's rows have a share of 1."""
        if self._in_time:
            return np.stack([self._lag_sums(c).total() for c in range(len(self.systems.n))])
        if self.kind.long_run:
            return self.second * (self.rows / np.maximum(self.rows - 1, 1))[:, None, None]
        return self.free if self.kind.name in POWERS else self.second


def own_column(p: Piece, mass: Floats) -> Floats:
    """(n,): the column of each site's own intercept, with squares that add up to 1; mass : (N,) of the sites."""
    column = p.each_row(1 / np.sqrt(mass))
    return column if p.root is None else column * p.root


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
            more = (d * d + (d + 3) * kind.own) * jackknife
            self.clusters = ClusterSums(2 * d + more + 1, kind.cluster == SITES, less)
        self.shares = self.log_weights = 0.0  # sums of q^2, and of the logarithms of the rows' weights
        self.residuals = FirstResiduals()

    def run(self, pieces: Iterable[Piece]) -> ScorePass:
        """Go through the pieces; those whose sites' windows are still to be chosen wait."""
        waiting: list[Piece] = []
        for p in pieces:
            waiting.append(p)
            self._choose_windows(p)
            while waiting and (self.window[waiting[0].sites] >= 0).all():
                self.add(waiting.pop(0))
        for c in np.flatnonzero(self.sums.rows != self.systems.n).tolist():
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

    def add(self, p: Piece) -> None:
        e, g = self.sums.add(p)
        self.residuals.add(p, e)
        if p.root is not None:
            with np.errstate(divide="ignore"):
                self.log_weights += 2 * float(np.log(p.root).sum())
        with np.errstate(invalid="ignore", over="ignore"):  # of sites that leave coefficients open
            own_e, own = self.own_sums.add(p)
        q = None
        if self.of.spread is not None:
            q = p.each_row(self.sums.at.share) ** 2 * np.einsum("ni,ij,nj->n", p.u, self.of.spread, p.u)
            self.shares += float(q @ q)
        if self.clusters is not None:
            both = np.column_stack([e, own_e])
            self.clusters.add(p, lambda part: self._unit_rows(p, np.hstack([g[part], own[part]]), both, q, part))

    def _unit_rows(self, p: Piece, scores: Floats, e: Floats, q: Floats | None, part: slice) -> Floats:
        """Of some rows: shares in the variance, scores at both solutions, and for the jackknife u u^T + w ridge; with
        intercepts z of the sites' own, z u, z e : (n, 2) and z^2."""
        u = p.u[part]
        n, d = u.shape
        shares = np.zeros(n) if q is None else q[part]
        if self.kind.name != "HC3":
            return np.column_stack([shares, scores])
        weights = np.ones(n) if p.root is None else p.root[part] ** 2
        system = u[:, :, None] * u[:, None, :]
        system[:, range(d), range(d)] += weights[:, None] * self.of.penalty
        z = own_column(p, self.systems.mass)[part, None] if self.kind.own else np.empty((n, 0))
        more = [z * u, z * e[part], z * z] if self.kind.own else []
        return np.column_stack([shares, scores, system.reshape(n, d * d), *more])
