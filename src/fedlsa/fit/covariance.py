"""How far the data's solution is from the truth: the sandwich covariance from each site's scores.

The data's solution is off by A^-1 sum_c w_c (mean of g_i at site c) to first order, with the scores
g_i = A(z_i) theta_star - b(z_i); sites are independent, so

    Cov(theta) = A^-1 (sum_c w_c^2 Omega_c / n_c) A^-T,   Omega_c = sum over lags h of Cov(g_i, g_{i+h}).

Centred scores lose what their own mean takes from them: n_c independent rows are divided by n_c - 1, not n_c. And the
residuals of n rows are shorter than the noise, for d coefficients were fitted to them: all is multiplied by
n / (n - d), as in HC1. Uncentred, with one weight per row, this is HC0 without any factor.

Lag windows take one pass, whose cost does not grow with the window. Over a sequence that is 0 outside its n rows, with
S_k the sum of L consecutive rows that ends at row k,

    sum_k S_k S_k^T / L = sum_h (1 - |h|/L)_+ G_h = B(L),   G_h = sum_i g_i g_{i+h}^T,

which is Bartlett's window. The flat-top window 2 B(2 M) - B(M) counts lags up to M in full and fades out at 2 M: its
bias is that of the correlations beyond M alone (Politis and Romano, 1995), where Bartlett's falls only like 1/L.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from scipy import fft

from ..checks import Floats
from ..errors import ArgumentError, SiteDataError
from .observe import Piece
from .site_sums import System

BLOCKS = 32  # of a site's rows in a bootstrap, at least: one in 2^32 replicas drops them all
PILOT = 2**14  # first rows of a site, from which the window is chosen
ENDING = 5  # lags in a row with negligible correlation that end the search
SHARE = 8  # rows of a site for each lag that counts, at least


@dataclass(frozen=True, eq=False)
class Scores:
    """Of one site's scores g_i = A(z_i) theta - b(z_i), i = 1 ... n.

    mean : (d,), the site's ideal control variate xi_star; row : (d, d) covariance of one of these n scores drawn at
    random (Sigma_omega), or its second moment where covariances are not centred
    window : M, up to which lags count in full
    long_run : (d, d) sum over lags of autocovariances by the flat-top window, so that Cov(mean) = long_run / n: an
    estimate for the law that the rows come from. One row has no spread: its second moment about 0 is taken
    bartlett : (d, d) the same by Bartlett's window of 2 M lags, which is smaller and has no negative eigenvalue
    """

    n: int
    mean: Floats
    row: Floats
    long_run: Floats
    bartlett: Floats
    window: int


def scores(
    pieces: Iterable[Piece],
    own: System,
    theta: Floats,
    influence: Floats,
    ridge: Floats | float,
    window: int | None,
    centred: bool,
) -> Scores:
    """Moments of a site's scores at theta, in one pass over its pieces.

    own : the site's system, whose A theta - b is the mean score; window : M, 0 for independent rows. None chooses it
    from the first PILOT rows, as seen by the coefficients: influence : (k, d) times a score is what a row does to them.
    ridge : of each coefficient, (d,), or of all
    """
    mean = own.A @ theta - own.b
    stream = (_centred_scores(p, theta, ridge * theta - mean) for p in pieces)
    first: list[Floats] = []
    while window is None and sum(map(len, first)) < PILOT and (g := next(stream, None)) is not None:
        first.append(g)
    M = choose_window(np.concatenate(first)[:PILOT] @ influence.T) if window is None else window
    if own.n < 6 * M:
        raise ArgumentError(f"lag must be at most a sixth of the rows of every site, and one has {own.n}; got {M}")
    row, short, long = (Bartlett(lags, len(mean)) for lags in (1, max(M, 1), max(2 * M, 1)))
    rows = 0
    for g in chain(first, stream):
        rows += len(g)
        row.add(g)
        if M > 1:
            short.add(g)
        if M > 0:
            long.add(g)
    if rows != own.n:
        raise SiteDataError(f"a site must have the same rows when it is read again, {own.n:,}; got {rows:,}")
    square = np.zeros_like(own.A) if centred and own.n > 1 else np.outer(mean, mean)
    kept = degrees_of_freedom(own.n, M) if M > 0 or (centred and own.n > 1) else own.n
    far = long.total() / kept if M > 0 else row.total() / kept
    near = short.total() / kept if M > 1 else row.total() / kept
    return Scores(own.n, mean, row.total() / own.n + square, 2 * far - near + square, far + square, M)


def _centred_scores(p: Piece, theta: Floats, shift: Floats) -> Floats:
    """u (v . theta - y) + shift of each row : (n, d)."""
    g = p.u * (p.v @ theta - p.y)[:, None]
    g += shift
    return g


def degrees_of_freedom(n: int, M: int) -> float:
    """What n rows about their own mean leave of the flat-top window's sum: its expectation for white noise.

    With variance 1, E sum_h w_h sum_i (g_i - mean)(g_{i+h} - mean) = n - sum_h w_h (1 - |h|/n): n - 1 for lag 0 alone.
    """
    h = np.arange(1, 2 * M)
    return n - 1 - 2 * float(np.sum(np.clip(2 - h / max(M, 1), 0, 1) * (1 - h / n)))


def corrected(sites: Sequence[Scores], dim: int) -> list[Scores]:
    """The sites' scores times n / (n - d), n the rows of all of them: for the d coefficients that were fitted."""
    n = sum(s.n for s in sites)
    if n <= dim:
        raise SiteDataError(
            f"error bars need more rows than coefficients, {dim}; all sites together have {n}, which are fitted exactly"
        )
    factor = n / (n - dim)
    return [replace(s, long_run=factor * s.long_run, bartlett=factor * s.bartlett) for s in sites]


def positive(sites: Sequence[Scores], weights: Floats) -> list[Scores]:
    """The sites' scores, with Bartlett's window in place of the flat-top one where the latter's sum over sites is not
    positive semidefinite, which can happen in short logs."""
    total = _meat(sites, weights)
    lowest = np.linalg.eigvalsh(total)
    if lowest[0] >= -1e-12 * max(lowest[-1], 0.0) and lowest[-1] >= 0:
        return list(sites)
    return [replace(s, long_run=s.bartlett) for s in sites]


def block_length(sites: Sequence[Scores]) -> int:
    """How many consecutive rows share a weight in a bootstrap: 1 for independent rows.

    Blocks of L rows are Bartlett's window B(L), whose bias falls like 1/L: four times the lags of the flat-top window
    leave little of it. Every site keeps BLOCKS of them, or replicas would drop whole sites.
    """
    M, fewest = max(s.window for s in sites), min(s.n for s in sites)
    return max(1, min(4 * M, fewest // BLOCKS))


def sandwich(A: Floats, sites: Sequence[Scores], weights: Floats) -> Floats:
    """Cov(theta) = A^-1 (sum_c w_c^2 long_run_c / n_c) A^-T : (d, d)."""
    left = np.linalg.solve(A, _meat(sites, weights))
    out = np.linalg.solve(A, left.T)
    return np.asarray((out + out.T) / 2, np.float64)


def _meat(sites: Sequence[Scores], weights: Floats) -> Floats:
    S = np.zeros_like(sites[0].row)
    for w, s in zip(weights, sites, strict=True):
        S += w**2 / s.n * s.long_run
    return S


class Bartlett:
    """sum_h (1 - |h|/L)_+ G_h of rows that come in pieces; lags : L, which is 1 for independent rows."""

    def __init__(self, lags: int, dim: int) -> None:
        self.lags = lags
        self._before = np.zeros((lags - 1, dim))  # the rows that the next blocks reach back to
        self._waiting: list[Floats] = []  # rows until they are as many as blocks reach back: else these cost more
        self._sum = np.zeros((dim, dim))

    def add(self, g: Floats) -> None:
        """The next rows, (n, d)."""
        if self.lags == 1:
            self._sum += g.T @ g
            return
        self._waiting.append(g)
        if sum(map(len, self._waiting)) >= self.lags:
            self._add_blocks()

    def total(self) -> Floats:
        """(d, d): of all rows so far; blocks that reach beyond the last row are added without it."""
        if self.lags == 1:
            return self._sum
        self._add_blocks()
        S = self._before[::-1].cumsum(axis=0)
        return (self._sum + S.T @ S) / self.lags

    def _add_blocks(self) -> None:
        rows = np.concatenate([self._before, *self._waiting])
        n = len(rows) - len(self._before)
        self._waiting = []
        ends = rows.cumsum(axis=0)
        S = ends[self.lags - 1 :]
        S[1:] -= ends[: max(n - 1, 0)].copy()
        self._sum += S.T @ S
        self._before = rows[n:]


def choose_window(psi: Floats) -> int:
    """M, the lag after which the autocorrelations of all columns of psi : (n, d) are negligible for ENDING lags.

    Negligible is below 2 sqrt(log10(n) / n) (Politis, 2003) or below twice the standard error that Bartlett's formula
    gives an autocorrelation whose true value is 0, sqrt((1 + 2 sum_{k < h} rho_k^2) / n). 0 for independent rows.
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
