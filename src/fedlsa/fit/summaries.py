"""Standardisation from sums: each site sends counts, means and scatters of its columns, never a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..checks import Floats
from ..errors import SiteDataError
from .observe import Scale
from .tasks import Regression, Task, Value

LARGEST, LEAST = 1e150, 1e-150  # absolute values of a column's largest number: their squares are numbers too


@dataclass(frozen=True, eq=False)
class Summary:
    """Of n rows: the mean (k + 1,) and scatter sum (x - mean)^2 (k + 1,) of each feature, and last of the target."""

    n: int
    mean: Floats
    scatter: Floats
    largest: Floats  # (k + 1,) of the absolute values, against which a scatter of rounding errors is told

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Summary:
        """The summary of features (n, k) and targets (n,)."""
        mean = np.append(x.mean(axis=0), y.mean())
        off, y_off = x - mean[:-1], y - mean[-1]
        scatter = np.append(np.einsum("nk,nk->k", off, off), y_off @ y_off)
        largest = np.append(np.maximum(x.max(axis=0), -x.min(axis=0)), np.abs(y).max())
        return cls(len(y), mean, scatter, largest)

    def check_size(self, site: str, least: float = LEAST) -> None:
        """Refuse columns whose numbers cannot be squared."""
        for size in self.largest.tolist():
            if size > LARGEST or 0 < size < least:
                rule = f"{site} must have columns whose largest number is from {least:g} to {LARGEST:g}, or 0"
                raise SiteDataError(f"{rule}, so that it can be squared; got {size:g}; rescale the column")

    def __add__(self, other: Summary) -> Summary:
        """The summary of the rows of both."""
        n = self.n + other.n
        gap = other.mean - self.mean
        return Summary(
            n,
            self.mean + gap * (other.n / n),
            self.scatter + other.scatter + gap**2 * (self.n * other.n / n),
            np.maximum(self.largest, other.largest),
        )


def summary(pieces: Iterable[tuple[Floats, Floats]], name: str) -> Summary:
    """The summary of one site's features (n, k) and targets (n,), from its pieces; name : of the site, for errors."""
    total: Summary | None = None
    for x, y in pieces:
        with np.errstate(over="ignore", invalid="ignore"):  # told in words
            total = Summary.of(x, y) if total is None else total + Summary.of(x, y)
    if total is None:
        raise none_there(name)
    total.check_size(name, least=0.0)
    return total


def none_there(site: str) -> SiteDataError:
    """The error for a site without rows."""
    return SiteDataError(f"{site} must have at least one row; it has none")


def unscaled(k: int, intercept: bool) -> Scale:
    """The original coordinates of k features."""
    return Scale(np.zeros(k), np.ones(k), 0.0, 1.0, intercept)


def scale_of(
    task: Task, parts: Sequence[Summary], weights: Floats, names: Sequence[str], sites: Sequence[str]
) -> Scale:
    """The coordinates of the run: weighted means and variances over the sites' rows (weights : (N,), of the sites).

    A column that is constant at every site, and has no coefficient of its own beside the intercept, is an error.
    """
    mean = weights @ np.stack([p.mean for p in parts])
    within = weights @ np.stack([p.scatter / p.n for p in parts])
    between = weights @ np.stack([(p.mean - mean) ** 2 for p in parts])
    variance, largest = within + between, np.max([p.largest for p in parts], axis=0)
    k, mapped = len(names), isinstance(task, Value) and task.features is not None
    constant = variance <= (1e-12 * np.maximum(largest, 1e-300)) ** 2
    where = sites[0] if len(sites) == 1 else f"all {len(sites)} sites ({sites[0]}, ...)"
    for j in np.flatnonzero(constant[:k]).tolist():
        if task.intercept and (largest[j] > 0 or not mapped):
            raise SiteDataError(
                f"column {names[j]!r} has the same value, {mean[j]:g}, in every row of {where}; leave it out"
            )
        if largest[j] == 0 and mapped:
            raise SiteDataError(f"{names[j]} is 0 in every row of {where}: no state there has it; use a smaller map")
        if largest[j] == 0:
            raise SiteDataError(f"column {names[j]!r} is 0 in every row of {where}; leave it out")
    if not task.scaled:
        return unscaled(k, task.intercept)
    if not task.standardise:  # centred for the sake of a ridge
        return Scale(mean[:k], np.ones(k), float(mean[k]), 1.0, task.intercept)
    root_mean_square = np.sqrt(variance[:k] + mean[:k] ** 2)
    if not isinstance(task, Regression) or not task.intercept:  # without a constant term features cannot be shifted
        y_spread = np.sqrt(variance[k] + mean[k] ** 2) if isinstance(task, Regression) else 1.0
        return Scale(np.zeros(k), root_mean_square, 0.0, float(y_spread) or 1.0, task.intercept)
    return Scale(mean[:k], np.sqrt(variance[:k]), float(mean[k]), float(np.sqrt(variance[k])) or 1.0, task.intercept)
