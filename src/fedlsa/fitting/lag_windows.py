"""Sums over lags of autocovariances, by windows, of rows that come in pieces.

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
from collections.abc import Sequence

import numpy as np
from scipy import fft

from ..checks import Floats
from .rows import Piece
from .tables import Codes

PILOT = 2**14  # first rows of a site, from which the window is chosen
ENDING = 5  # lags in a row with negligible correlation that end the search
MOST_BLOCKS = 2**13  # of a site's rows, whose sums the slow cosines see
SHARE = 8  # rows of a site for each lag that counts, at least


class Bartlett:
    """sum_h (1 - |h|/L)_+ G_h of rows that come in pieces; lags : L, which is 1 for independent rows."""

    def __init__(self, lags: int, dim: int) -> None:
        self.lags = lags
        self._before = np.zeros((lags - 1, dim))  # the rows that the next blocks reach back to
        self._rows: list[Floats] = []  # until they are as many as blocks reach back: else these cost more
        self._sum = np.zeros((dim, dim))

    def add(self, g: Floats) -> None:
        """The next rows, (n, d)."""
        if self.lags == 1:
            self._sum += g.T @ g
            return
        self._rows.append(g)
        if sum(map(len, self._rows)) >= self.lags:
            self._add_blocks()

    def total(self) -> Floats:
        """(d, d): of all rows so far; blocks that reach beyond the last row are added without it."""
        if self.lags == 1:
            return self._sum
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
    """The residuals of the first rows of each site, and the gaps between these."""

    def __init__(self) -> None:
        self.parts: list[tuple[Floats, Codes, Codes]] = []
        self._taken: dict[int, int] = {}

    def add(self, p: Piece, e: Floats, start: int) -> None:
        """Of a piece, whose sites count from `start`."""
        for c, rows in p.parts():
            size = min(rows.stop - rows.start, PILOT - self._taken.get(c, 0))
            if size > 0:
                first = slice(rows.start, rows.start + size)
                self._taken[c] = self._taken.get(c, 0) + size
                gaps = np.zeros(size, np.int64) if p.gaps is None else p.gaps[first]
                self.parts.append((e[first], np.full(size, c + start), gaps))


def neighbour_correlation(found: Sequence[FirstResiduals]) -> tuple[float, float, int]:
    """The autocorrelation at lag 1 of residuals e of each site, about its mean; in standard errors; and of how many
    pairs of rows.

    With t_i = e_i e_{i+1} these are S / sum e^2 and S / sqrt(sum t^2), where S = sum t + sum over sites of
    sum e^2 / n, which has mean 0 over all orders of a site's rows. Variances may differ between rows.
    """
    e, sites, gaps = (np.concatenate([one[k] for some in found for one in some.parts]) for k in range(3))
    order = np.argsort(sites, kind="stable")
    e, sites, gaps = e[order], sites[order], gaps[order]
    starts = np.flatnonzero(np.append(True, sites[1:] != sites[:-1]))
    counts = np.diff(np.append(starts, len(e)))
    e = e - np.repeat(np.add.reduceat(e, starts) / counts, counts)
    neighbours = (sites[1:] == sites[:-1]) & (gaps[1:] == 0)
    t = (e[1:] * e[:-1])[neighbours]
    pairs = np.add.reduceat(np.append(neighbours, False).astype(float), starts)  # of each site
    expected = np.add.reduceat(e * e, starts) / counts * pairs / np.maximum(counts - 1, 1)
    S, squares, spread = float(t.sum() + expected.sum()), float(e @ e), float(t @ t)
    return (S / squares, S / math.sqrt(spread), len(t)) if spread > 0 else (0.0, 0.0, len(t))


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
