"""What a site's rows add up to for a covariance: the meat of the sandwich, in one pass over pieces.

A row of weight w counts share * w in A = sum share w (x x^T + ridge). Its score is g = w (x (x . theta - y) + ridge
theta), its leverage h = share w x^T A^-1 x; theta without a cluster of rows is off by (A - A_g)^-1 share sum_g g.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..checks import Floats
from ..errors import SiteDataError
from .lag_windows import PILOT, Bartlett, SlowCosines, cosine_count
from .observe import Piece

LEVERAGE_ONE = 1e-9  # from 1: below it, what is left of a row or a cluster beside its own fit is a rounding error
HELD = 2**20  # numbers of rows' products, and of clusters' systems, that are worked on at a time
CLUSTER_BYTES = 2**30  # for the systems of a site's clusters


@dataclass(frozen=True, eq=False)
class Solved:
    """theta : (d,) with A theta = b, A : (d, d) symmetric but for value functions; share : of the site's rows in A."""

    theta: Floats
    A: Floats
    share: float

    @cached_property
    def root(self) -> Floats:
        """(d, d): lower triangular, with A = root root^T."""
        return np.asarray(np.linalg.cholesky(self.A), np.float64)

    @cached_property
    def whiten(self) -> Floats:
        """(d, d): the inverse of the root."""
        return np.asarray(np.linalg.inv(self.root), np.float64)


class ScoreSums:
    """Sums over a site's rows of the scores at a solution; what a kind of covariance needs is added by its class.

    penalty : (d,), the ridge; mean : (d,), about which scores are taken
    degrees : of freedom of the meat, where it has fewer than there are rows
    """

    degrees = math.inf

    def __init__(self, at: Solved, penalty: Floats, mean: Floats | float = 0.0) -> None:
        self.at, self.penalty = at, penalty
        self.n, self.squares = 0, 0.0
        self.second = np.zeros_like(at.A)  # sum g g^T : (d, d)
        self.residuals: list[Floats] = []  # of the first rows
        self._shift = penalty * at.theta - mean

    def add(self, p: Piece) -> None:
        """The next rows."""
        e = p.v @ self.at.theta - p.y
        if self.n < PILOT:
            self.residuals.append(e[:PILOT])
        self.squares += float(e @ e)
        g = p.u * e[:, None]
        if self._shift.any():
            g += self._shift if p.root is None else p.root[:, None] ** 2 * self._shift
        self.second += g.T @ g
        self._add(p, g)
        self.n += len(e)

    def _add(self, p: Piece, g: Floats) -> None:
        """What the kind adds of rows and their scores (n, d); self.n : rows before them."""

    def meats(self) -> tuple[Floats, Floats]:
        """(d, d) of this kind, NaN where there is none, and of the kind that takes its place there: HC0."""
        return self.at.share**2 * self.second, self.at.share**2 * self.second

    @property
    def clusters(self) -> int:
        """How many there are."""
        return 0

    @property
    def alone(self) -> str:
        """What has leverage 1, in words, where something has."""
        return ""


class ClassicalSums(ScoreSums):
    """share sum w x x^T, which is to be multiplied by the residuals' variance."""

    def __init__(self, at: Solved, penalty: Floats) -> None:
        super().__init__(at, penalty)
        self._gram = np.zeros_like(at.A)

    def _add(self, p: Piece, g: Floats) -> None:
        self._gram += p.u.T @ p.u

    def meats(self) -> tuple[Floats, Floats]:
        return self.at.share * self._gram, super().meats()[1]


class LeverageSums(ScoreSums):
    """share^2 sum g g^T / (1 - h)^(2 power): HC2 for power 1/2, HC3 for power 1."""

    def __init__(self, at: Solved, penalty: Floats, power: float) -> None:
        super().__init__(at, penalty)
        self._power, self._total, self._alone = power, np.zeros_like(at.A), -1

    def _add(self, p: Piece, g: Floats) -> None:
        z = p.u @ self.at.whiten.T
        left = 1 - self.at.share * np.einsum("ni,ni->n", z, z)
        if left.min() < LEVERAGE_ONE:
            self._alone = self.n + int(np.argmin(left)) if self._alone < 0 else self._alone
            left = np.maximum(left, LEVERAGE_ONE)
        g /= left[:, None] ** self._power
        self._total += g.T @ g

    def meats(self) -> tuple[Floats, Floats]:
        total = np.full_like(self._total, np.nan) if self.alone else self._total
        return self.at.share**2 * total, super().meats()[1]

    @property
    def alone(self) -> str:
        return f"row {self._alone + 1}" if self._alone >= 0 else ""


class LagSums(ScoreSums):
    """Newey and West: Bartlett's window, in which lag l counts 1 - l / (lag + 1)."""

    def __init__(self, at: Solved, penalty: Floats, lag: int) -> None:
        super().__init__(at, penalty)
        self._window = Bartlett(lag + 1, len(at.A))

    def _add(self, p: Piece, g: Floats) -> None:
        self._window.add(g)

    def meats(self) -> tuple[Floats, Floats]:
        total = self.at.share**2 * self._window.total()
        return total, total


class LongRunSums(ScoreSums):
    """Rows that are correlated in time, about their site's mean: seen through slow cosines.

    n : how many there will be; M : over how many of them they are correlated. None are where `independent`
    """

    def __init__(self, at: Solved, penalty: Floats, mean: Floats, n: int, M: int, independent: bool) -> None:
        super().__init__(at, penalty, mean if n > 1 else 0.0)
        self.degrees = float(max(n - 1, 1) if independent else cosine_count(n, M))
        self._independent = independent or n == 1
        self._cosines = SlowCosines(n, int(self.degrees), len(at.A))

    def _add(self, p: Piece, g: Floats) -> None:
        if not self._independent:
            self._cosines.add(g)

    def meats(self) -> tuple[Floats, Floats]:
        total = self.n / max(self.n - 1, 1) * self.second if self._independent else self._cosines.total()
        return self.at.share**2 * total, self.at.share**2 * total


class ClusterSums(ScoreSums):
    """Sums over the rows of each cluster: CR0 of these; or CR3, with what theta is without each of them."""

    def __init__(self, at: Solved, penalty: Floats, jackknife: bool) -> None:
        super().__init__(at, penalty)
        d = len(at.A)
        self._codes: dict[Any, int] = {}
        self._jackknife, self._sums = jackknife, np.zeros((0, d + d * d if jackknife else d))
        self._alone = ""

    def _add(self, p: Piece, g: Floats) -> None:
        labels = [None] * len(g) if p.cluster is None else p.cluster.tolist()
        codes = np.array([self._codes.setdefault(label, len(self._codes)) for label in labels])
        self._grow(len(self._codes))
        rows = max(1, HELD // self._sums.shape[1])
        for at in range(0, len(g), rows):
            part = slice(at, at + rows)
            order = np.argsort(codes[part], kind="stable")
            found, begins = np.unique(codes[part][order], return_index=True)
            self._sums[found] += np.add.reduceat(self._products(p, g, part)[order], begins, axis=0)

    def _products(self, p: Piece, g: Floats, part: slice) -> Floats:
        """The scores, and with the jackknife u u^T + w ridge, of some rows : (n, d) or (n, d + d^2)."""
        if not self._jackknife:
            return g[part]
        u, d = p.u[part], g.shape[1]
        out = np.empty((len(u), d + d * d))
        out[:, :d] = g[part]
        out[:, d:] = (u[:, :, None] * u[:, None, :]).reshape(len(u), d * d)
        if self.penalty.any():
            weights = np.ones(len(u)) if p.root is None else p.root[part] ** 2
            out[:, d :: d + 1] += weights[:, None] * self.penalty
        return out

    def _grow(self, clusters: int) -> None:
        if clusters <= len(self._sums):
            return
        if 8 * clusters * self._sums.shape[1] > CLUSTER_BYTES:
            raise SiteDataError(
                f"covariance must be 'HC1' for so many clusters at one site: more than {len(self._sums):,} with "
                f"{len(self.at.A)} coefficients do not fit into {CLUSTER_BYTES >> 20} MiB with 'HC3' (CR3)"
                if self._jackknife
                else f"clusters of one site must fit into {CLUSTER_BYTES >> 20} MiB; got more than {len(self._sums):,}"
            )
        more = np.zeros((max(clusters, 2 * len(self._sums)) - len(self._sums), self._sums.shape[1]))
        self._sums = np.concatenate([self._sums, more])

    def meats(self) -> tuple[Floats, Floats]:
        """CR3 or CR0, and CR0."""
        d, share = len(self.at.A), self.at.share
        sums = self._sums[: self.clusters]
        plain = share**2 * sums[:, :d].T @ sums[:, :d]
        if not self._jackknife:
            return plain, plain
        total, white = np.zeros_like(plain), self.at.whiten
        for at in range(0, len(sums), max(1, HELD // d**2)):
            some = sums[at : at + max(1, HELD // d**2)]
            left = np.eye(d) - share * (white @ some[:, d:].reshape(-1, d, d) @ white.T)  # of A without the cluster
            lowest = np.linalg.eigvalsh(left)[:, 0]
            if lowest.min() < LEVERAGE_ONE:
                label = list(self._codes)[at + int(np.argmin(lowest))]
                self._alone = "all its rows" if label is None else f"cluster {label!r}"
                return np.full_like(plain, np.nan), plain
            change = np.linalg.solve(left, share * (some[:, :d] @ white.T)[:, :, None])[:, :, 0]
            total += change.T @ change
        return self.at.root @ total @ self.at.root.T, plain

    @property
    def clusters(self) -> int:
        return len(self._codes)

    @property
    def alone(self) -> str:
        return self._alone
