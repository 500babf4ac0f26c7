"""Sums over lags of autocovariances, by windows, of rows that come in pieces.

Lag windows take one pass, whose cost does not grow with the window. Over a sequence that is 0 outside its n rows, with
S_k the sum of L consecutive rows that ends at row k,

    sum_k S_k S_k^T / L = sum_h (1 - |h|/L)_+ G_h = B(L),   G_h = sum_i g_i g_{i+h}^T,

which is Bartlett's window. The flat-top window 2 B(2 M) - B(M) counts lags up to M in full and fades out at 2 M: its
bias is that of the correlations beyond M alone (Politis and Romano, 1995), where Bartlett's falls only like 1/L.
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from ..checks import Floats

PILOT = 2**14  # first rows of a site, from which the window is chosen
ENDING = 5  # lags in a row with negligible correlation that end the search
SHARE = 8  # rows of a site for each lag that counts, at least


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


class FlatTop:
    """The flat-top window of rows that come in pieces; M : up to which lags count in full, 0 for independent rows."""

    def __init__(self, M: int, dim: int) -> None:
        self._short, self._long = Bartlett(max(M, 1), dim), Bartlett(max(2 * M, 1), dim)

    def add(self, g: Floats) -> None:
        """The next rows, (n, d)."""
        self._short.add(g)
        self._long.add(g)

    def totals(self) -> tuple[Floats, Floats]:
        """(d, d) by the flat-top window, and by Bartlett's of 2 M lags, which is smaller and never negative."""
        far = self._long.total()
        return 2 * far - self._short.total(), far


def rows_about_mean(n: int, M: int) -> float:
    """What n rows about their own mean leave of the flat-top window's sum: its expectation for white noise.

    With variance 1, E sum_h w_h sum_i (g_i - mean)(g_{i+h} - mean) = n - sum_h w_h (1 - |h|/n): n - 1 for lag 0 alone.
    """
    h = np.arange(1, 2 * M)
    return n - 1 - 2 * float(np.sum(np.clip(2 - h / max(M, 1), 0, 1) * (1 - h / n)))


def choose_window(psi: Floats) -> int:
    """M, twice the lag after which the autocorrelations of all columns of psi : (n, d) are negligible for ENDING lags.

    Negligible is below 2 sqrt(log10(n) / n) (Politis, 2003) or below twice the standard error that Bartlett's formula
    gives an autocorrelation whose true value is 0, sqrt((1 + 2 sum_{k < h} rho_k^2) / n). 0 for independent rows.
    Twice, for what is negligible lag by lag is not in sum: intervals from Markov chains then cover 1% more often.
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
    return min(2 * int(np.argmax(runs)), most) if runs.any() else most
