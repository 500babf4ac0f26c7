"""What a site's rows add up to for a covariance: the meat of the sandwich, in one pass over pieces.

A row of weight w counts share * w in A = sum share w (x x^T + ridge). Its score is g = w (x (x . theta - y) + ridge
theta), its leverage h = share w x^T A^-1 x; theta without a cluster of rows is off by (A - A_g)^-1 share sum_g g.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...checks import Floats
from ..rows.observe import Piece
from .lag_windows import PILOT, Bartlett, SlowCosines, cosine_count

LEVERAGE_ONE = 1e-9  # from 1: below it, what is left of a row or a cluster beside its own fit is a rounding error


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
        self.second, self.products = np.zeros_like(at.A), np.zeros_like(at.theta)  # sums of g g^T, and of u e : (d,)
        self.residuals: list[Floats] = []  # of the first rows
        self._shift = penalty * at.theta - mean

    def add(self, p: Piece) -> None:
        """The next rows."""
        e = p.v @ self.at.theta - p.y
        if self.n < PILOT:
            self.residuals.append(e[:PILOT])
        self.squares += float(e @ e)
        self.products += p.u.T @ e
        g = self._scores(p, e)
        self.second += g.T @ g
        self._add(p, g)
        self.n += len(e)

    def _scores(self, p: Piece, e: Floats) -> Floats:
        """g of rows with these residuals : (n, d)."""
        g = p.u * e[:, None]
        if self._shift.any():
            g += self._shift if p.root is None else p.root[:, None] ** 2 * self._shift
        return g

    def _add(self, p: Piece, g: Floats) -> None:
        """What the kind adds of rows and their scores (n, d); self.n : rows before them."""

    def contributions(self, p: Piece) -> Floats:
        """(n, d): what rows put into A theta - b, with their leverage taken out as the kind does."""
        return self.at.share * self._free(p, self._scores(p, p.v @ self.at.theta - p.y))

    def _free(self, p: Piece, g: Floats) -> Floats:
        """Scores (n, d) of rows with their leverage taken out."""
        return g

    def of_units(self) -> Iterator[Floats] | None:
        """What independent units put into A theta - b, some (k, d) at a time, where units are known after all rows were
        added: their squares are the meat. None where units are rows, whose `contributions` can be had at once."""
        return None

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
        g = self._free(p, g)
        self._total += g.T @ g

    def _free(self, p: Piece, g: Floats) -> Floats:
        z = p.u @ self.at.whiten.T
        left = 1 - self.at.share * np.einsum("ni,ni->n", z, z)
        if left.min() < LEVERAGE_ONE:
            self._alone = self.n + int(np.argmin(left)) if self._alone < 0 else self._alone
            left = np.maximum(left, LEVERAGE_ONE)
        return g / left[:, None] ** self._power

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
        self._about = math.sqrt(n / max(n - 1, 1))  # what the mean took away
        self._cosines = SlowCosines(n, int(self.degrees), len(at.A))

    def _add(self, p: Piece, g: Floats) -> None:
        if not self._independent:
            self._cosines.add(g)

    def meats(self) -> tuple[Floats, Floats]:
        total = self._about**2 * self.second if self._independent else self._cosines.total()
        return self.at.share**2 * total, self.at.share**2 * total

    def _free(self, p: Piece, g: Floats) -> Floats:
        return self._about * g

    def of_units(self) -> Iterator[Floats] | None:
        return None if self._independent else iter([self.at.share * self._cosines.parts()])
