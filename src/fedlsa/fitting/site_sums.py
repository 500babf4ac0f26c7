"""What a site's rows add up to: moments of its columns, from which features are standardised, and its linear system.

Each site sends counts, means, scatters and its system's sums, never a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TypeVar

import numpy as np

from ..checks import LARGEST_REAL, Floats
from ..errors import SiteDataError
from .rows.observe import FeatureScale, Piece
from .tasks import Regression, Task, Value

Added = TypeVar("Added")


@dataclass(frozen=True, eq=False)
class Summary:
    """Of n rows: the mean (k + 1,) and scatter sum (x - mean)^2 (k + 1,) of each feature, and last of the target.

    mass : the sum of the rows' weights, None where all are 1
    """

    n: int
    mean: Floats
    scatter: Floats
    largest: Floats  # (k + 1,) of the absolute values
    mass: float | None = None

    @property
    def count(self) -> float:
        """Rows, each counted by its weight."""
        return self.n if self.mass is None else self.mass

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Summary:
        """The summary of features (n, k) and targets (n,)."""
        mean = np.append(x.mean(axis=0), y.mean())
        off, y_off = x - mean[:-1], y - mean[-1]
        scatter = np.append(np.einsum("nk,nk->k", off, off), y_off @ y_off)
        return cls(len(y), mean, scatter, _largest(x, y))

    def check_size(self, site: str, least: float = 1 / LARGEST_REAL) -> None:
        """Refuse columns whose numbers cannot be squared."""
        for size in self.largest.tolist():
            if size > LARGEST_REAL or 0 < size < least:
                rule = f"{site} must have columns whose largest number is from {least:g} to {LARGEST_REAL:g}, or 0"
                raise SiteDataError(f"{rule}, so that it can be squared; got {size:g}; rescale the column")

    def __add__(self, other: Summary) -> Summary:
        """The summary of the rows of both."""
        if other.count > self.count:  # the lighter may be far away, and its mean a poor place to start from
            return other + self
        count = (self.count + other.count) or 1.0
        gap = other.mean - self.mean
        return Summary(
            self.n + other.n,
            self.mean + gap * (other.count / count),
            self.scatter + other.scatter + gap**2 * (self.count * other.count / count),
            np.maximum(self.largest, other.largest),
            None if self.mass is None or other.mass is None else self.mass + other.mass,
        )


@dataclass(frozen=True, eq=False)
class CrossMoments:
    """Of n rows z of k features and a target: their mean, origin + offset, and sum (z - mean)(z - mean)^T.

    They give the rows' system in any coordinates without a second look at the rows. Columns may be far from 0, for
    their spread: differences from an origin among the rows are exact where the mean itself would be rounded.
    """

    n: int
    origin: Floats  # (k + 1,)
    offset: Floats  # (k + 1,)
    scatter: Floats  # (k + 1, k + 1)
    largest: Floats  # (k + 1,), as in a Summary
    mass: float | None = None  # as in a Summary; means and scatters are by the rows' weights

    @classmethod
    def of(cls, x: Floats, y: Floats, root: Floats | None = None) -> CrossMoments:
        """Of features (n, k) and targets (n,); root : (n,) roots of the rows' weights, by default 1."""
        n, k = x.shape
        mass = None if root is None else float(root @ root)
        z, origin = np.empty((k + 1, n)), np.append(x.mean(axis=0), y.mean())
        if root is not None and mass:  # rows of little weight may be far away
            origin = np.append(root**2 @ x, root**2 @ y) / mass
        np.subtract(x.T, origin[:k, None], out=z[:k])
        np.subtract(y, origin[k], out=z[k])
        if root is None or mass is None:
            offset = z.mean(axis=1)
            return cls(n, origin, offset, z @ z.T - n * np.outer(offset, offset), _largest(x, y))
        z *= root
        offset = z @ root / (mass or 1.0)
        largest = _largest(x * (root > 0)[:, None], y * (root > 0))
        return cls(n, origin, offset, z @ z.T - mass * np.outer(offset, offset), largest, mass)

    def __add__(self, other: CrossMoments) -> CrossMoments:
        """Those of the rows of both."""
        a, b = self.summary.count, other.summary.count
        if b > a:  # as in a Summary
            return other + self
        total, gap = (a + b) or 1.0, (other.origin - self.origin) + (other.offset - self.offset)
        scatter = self.scatter + other.scatter + np.outer(gap, gap) * (a * b / total)
        largest = np.maximum(self.largest, other.largest)
        mass = None if self.mass is None or other.mass is None else self.mass + other.mass
        return CrossMoments(self.n + other.n, self.origin, self.offset + gap * (b / total), scatter, largest, mass)

    @property
    def summary(self) -> Summary:
        return Summary(self.n, self.origin + self.offset, np.diag(self.scatter).copy(), self.largest, self.mass)

    def in_scale(self, scale: FeatureScale) -> SystemSums:
        """The sums of the rows' system in these coordinates."""
        spread, k = np.append(scale.spread, scale.y_spread), len(scale.spread)
        mean = ((self.origin - np.append(scale.centre, scale.y_centre)) + self.offset) / spread
        z = np.append(mean, 1.0)  # features, target and the intercept
        second = self.summary.count * np.outer(z, z)
        second[: k + 1, : k + 1] += self.scatter / np.outer(spread, spread)
        kept = [*range(k), k + 1][: scale.dim]
        return SystemSums(self.n, second[np.ix_(kept, kept)], second[kept, k], self.mass)


def _largest(x: Floats, y: Floats) -> Floats:
    """Of the absolute values of each column of x : (n, k) and of y : (n,)."""
    return np.append(np.maximum(x.max(axis=0), -x.min(axis=0)), max(y.max(), -y.min()))


def summary(pieces: Iterable[tuple[Floats, Floats]], name: str) -> Summary:
    """The summary of one site's features (n, k) and targets (n,), from its pieces; name : of the site, for errors."""
    with np.errstate(over="ignore", invalid="ignore"):  # check_size says it in words
        total = add_up((Summary.of(x, y) for x, y in pieces), name)
    total.check_size(name, least=0.0)
    return total


def add_up(parts: Iterable[Added], name: str) -> Added:
    """The sum of what the pieces of a site give; a site without rows is a SiteDataError."""
    remaining = iter(parts)
    first = next(remaining, None)
    if first is None:
        raise no_rows(name)
    return reduce(add, remaining, first)


def no_rows(site: str) -> SiteDataError:
    """The error for a site without rows."""
    return SiteDataError(f"{site} must have at least one row; it has none")


def unscaled(k: int, intercept: bool) -> FeatureScale:
    """The original coordinates of k features."""
    return FeatureScale(np.zeros(k), np.ones(k), 0.0, 1.0, intercept)


def scale_of(
    task: Task, parts: Sequence[Summary], weights: Floats, names: Sequence[str], sites: Sequence[str]
) -> FeatureScale:
    """The coordinates of the run: weighted means and variances over the sites' rows (weights : (N,), of the sites).

    A column that is constant at every site, and has no coefficient of its own beside the intercept, is an error.
    """
    mean = weights @ np.stack([p.mean for p in parts])
    within = weights @ np.stack([p.scatter / p.count for p in parts])
    between = weights @ np.stack([(p.mean - mean) ** 2 for p in parts])
    variance, largest = within + between, np.max([p.largest for p in parts], axis=0)
    k, mapped = len(names), isinstance(task, Value) and task.features is not None
    constant = variance <= (1e-12 * mean) ** 2  # up to rounding errors
    where = sites[0] if len(sites) == 1 else f"all {len(sites)} sites ({sites[0]}, ...)"
    for j in np.flatnonzero(constant[:k]).tolist():
        instead = "leave it out"
        if isinstance(task, Regression) and task.formula is not None and "]" in names[j] and largest[j] == 0:
            instead = "no row has these levels together: leave out their product, or join levels"
        if task.intercept and (largest[j] > 0 or not mapped):
            raise SiteDataError(
                f"column {names[j]!r} has the same value, {mean[j]:g}, in every row of {where}; {instead}"
            )
        if largest[j] == 0:
            raise SiteDataError(f"column {names[j]!r} is 0 in every row of {where}; {instead}")
    if not task.scaled:
        return unscaled(k, task.intercept)
    if not task.standardise:  # centred for the sake of a ridge
        return FeatureScale(mean[:k], np.ones(k), float(mean[k]), 1.0, task.intercept)
    root_mean_square = np.sqrt(variance[:k] + mean[:k] ** 2)
    if not isinstance(task, Regression) or not task.intercept:  # without a constant term features cannot be shifted
        y_spread = np.sqrt(variance[k] + mean[k] ** 2) if isinstance(task, Regression) else 1.0
        return FeatureScale(np.zeros(k), root_mean_square, 0.0, float(y_spread) or 1.0, task.intercept)
    spread = np.sqrt(variance)
    return FeatureScale(mean[:k], spread[:k], float(mean[k]), float(spread[k]) or 1.0, task.intercept)


@dataclass(frozen=True, eq=False)
class System:
    """The means of A(z) : (d, d) and b(z) : (d,) over a site's n rows, each by its weight.

    mass : the sum of the weights, n where rows have none
    """

    n: int
    A: Floats
    b: Floats
    mass: float


@dataclass(frozen=True, eq=False)
class SystemSums:
    """Of u v^T : (d, d) and y u : (d,) over n rows: what pieces of a site add up to; mass : as in a Summary."""

    n: int
    A: Floats
    b: Floats
    mass: float | None = None

    @classmethod
    def of(cls, p: Piece) -> SystemSums:
        return cls(len(p.y), p.u.T @ p.v, p.u.T @ p.y)

    def in_scale(self, scale: FeatureScale) -> SystemSums:
        """Sums of the original coordinates in those of a scale that shifts nothing and leaves the target alone."""
        assert not np.any(scale.centre)
        assert (scale.y_centre, scale.y_spread) == (0, 1)
        spread = np.append(scale.spread, np.ones(int(scale.intercept)))
        return SystemSums(self.n, self.A / np.outer(spread, spread), self.b / spread, self.mass)

    def __add__(self, other: SystemSums) -> SystemSums:
        return SystemSums(self.n + other.n, self.A + other.A, self.b + other.b)

    def system(self, ridge: Floats | float) -> System:
        """The means, with the ridge of each coefficient, (d,), or of all."""
        mass = self.n if self.mass is None else self.mass
        return System(self.n, self.A / mass + np.diag(np.broadcast_to(ridge, self.b.shape)), self.b / mass, mass)
