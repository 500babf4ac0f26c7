"""What the rows of each site add up to: moments of columns, by which features are standardised, and linear systems.

Each site sends counts, means, scatters and its system's sums, never a row. Here those of N sites are arrays, the first
axis the site's: solutions of all of them are found at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from ..checks import LARGEST_REAL, Floats
from ..errors import SiteDataError
from .rows import FeatureScale, Piece
from .tables import Codes, quoted
from .tasks import Regression, Task, shared_intercept

CONSTANT = 1e-15  # of a column's size: a spread below it is made of rounding errors
SINGULAR = 1e-12  # of the largest singular value, rows and columns scaled to one size: below it are rounding errors
HELD = 2**20  # numbers of matrices that are worked on at a time
LEVERAGE_ONE = 1e-9  # from 1: below it, what is left of a row or a cluster beside its own fit is a rounding error
OPEN = 1e-8  # of the largest part of an open direction: a coefficient with less of it is determined


@dataclass(frozen=True, eq=False)
class Summary:
    """Of n rows: the mean (k + 1,) and scatter sum (x - mean)^2 (k + 1,) of each feature, and last of the target;
    largest : (k + 1,) of the absolute values"""

    n: int
    mean: Floats
    scatter: Floats
    largest: Floats


class SiteSums:
    """Moments of the rows of N sites, as pieces add to them: of k features and a target z, by the rows' weights.

    The mean is origin + offset, the scatter sum (z - mean)(z - mean)^T. They give the rows' system in any coordinates
    without a second look at the rows. Columns may be far from 0, for their spread: differences from an origin among the
    rows are exact where the mean itself would be rounded. Of a value function A and b are the sums of u v^T and y u.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.n, self.mass = np.zeros(len(names), np.int64), np.zeros(len(names))
        self._empty = True

    @classmethod
    def joined(cls, parts: Sequence[SiteSums], row_weights: str | None = None) -> SiteSums:
        """Those of all the sites of the parts; row_weights : the column of weights, which must not all be 0."""
        out = cls([name for part in parts for name in part.names])
        for part in parts[1:]:
            parts[0]._check_width(part.origin.shape[1], part.names[0])
        for name in ("n", "mass", "origin", "offset", "largest", "scatter", "A", "b"):
            setattr(out, name, np.concatenate([getattr(part, name) for part in parts]))
        for c in np.flatnonzero(out.mass == 0).tolist():
            raise SiteDataError(f"{out.names[c]}: column {row_weights!r} must have a weight above 0; it has none")
        return out

    def add(self, x: Floats, p: Piece) -> None:
        """The next rows: features (n, k), and the observations made of them."""
        (n, k), s = x.shape, p.sites
        self._begin(k + 1, 0 if p.u is p.v else p.u.shape[1])
        self._check_width(k + 1, self.names[s[0]])
        z = np.empty((k + 1, n))
        z[:k], z[k] = x.T, p.y
        z = z.T
        size = np.abs(z) if p.root is None else np.abs(z * (p.root > 0)[:, None])
        largest = size.max(axis=0)[None] if len(s) == 1 else np.maximum.reduceat(size, p.starts, axis=0)
        mass = p.counts.astype(np.float64)
        origin = p.sums(z) / mass[:, None]
        if p.root is not None:  # rows of little weight may be far away
            mass = p.sums(p.root**2)
            weighted = p.sums(z * p.root[:, None] ** 2) / np.where(mass > 0, mass, 1.0)[:, None]
            origin = np.where(mass[:, None] > 0, weighted, origin)
        z -= origin[0] if len(s) == 1 else origin.repeat(p.counts, axis=0)
        if p.root is not None:
            z *= p.root[:, None]
        offset = p.sums(z if p.root is None else z * p.root[:, None]) / np.where(mass > 0, mass, 1.0)[:, None]
        scatter = p.products(z, z) - mass[:, None, None] * offset[:, :, None] * offset[:, None, :]
        self._merge(s, mass, origin, offset, scatter)
        self.n[s] += p.counts
        self.largest[s] = np.maximum(self.largest[s], largest)
        if p.u is not p.v:
            self.A[s] += p.products(p.u, p.v)
            self.b[s] += p.sums(p.u * p.y[:, None])

    def add_sums(self, part: SiteSums, s: Codes) -> None:
        """Those of a regression's other rows, of whose sites this one has the places s : (N,), each once."""
        if not part._empty:
            self._begin(part.origin.shape[1], 0)
            self._merge(s, part.mass, part.origin, part.offset, part.scatter)
            self.n[s] += part.n
            self.largest[s] = np.maximum(self.largest[s], part.largest)

    def _begin(self, width: int, d: int) -> None:
        """Make room when the first rows come."""
        if self._empty:
            N, self._empty = len(self.names), False
            self.origin, self.offset, self.largest = (np.zeros((N, width)) for _ in range(3))
            self.scatter, self.A, self.b = np.zeros((N, width, width)), np.zeros((N, d, d)), np.zeros((N, d))

    def _check_width(self, width: int, site: str) -> None:
        if width != self.origin.shape[1]:
            rule = f"the feature map must give as many features at every site, {self.origin.shape[1] - 1} first"
            raise SiteDataError(f"{rule}; got {width - 1} at {site}")

    def _merge(self, s: Codes, mass: Floats, origin: Floats, offset: Floats, scatter: Floats) -> None:
        """Add the moments of more rows of sites s; the heavier part is kept as the place to start from, for the mean of
        the lighter may be far away."""
        a, b = self.mass[s], mass
        total, heavy = a + b, (b > a)[:, None]
        gap = (origin - self.origin[s]) + (offset - self.offset[s])
        share = np.where(heavy, -a[:, None], b[:, None]) / np.where(total > 0, total, 1.0)[:, None]
        between = (a * b / np.where(total > 0, total, 1))[:, None, None]
        self.scatter[s] += scatter + gap[:, :, None] * gap[:, None, :] * between
        self.offset[s] = np.where(heavy, offset, self.offset[s]) + gap * share
        self.origin[s] = np.where(heavy, origin, self.origin[s])
        self.mass[s] = total

    def check(self, least: float = 1 / LARGEST_REAL) -> None:
        """Refuse sites without rows, and columns whose numbers cannot be squared; least : of what is not 0."""
        refuse_empty(self.names, self.n)
        bad = ~(self.largest <= LARGEST_REAL) | ((self.largest > 0) & (self.largest < least))
        for c, j in zip(*np.nonzero(bad), strict=True):
            rule = f"{self.names[c]} must have columns whose largest number is from {least:g} to {LARGEST_REAL:g}, or 0"
            got = f"got {self.largest[c, j]:g}; rescale the column"
            raise SiteDataError(f"{rule}, so that it can be squared; {got}")

    @property
    def mean(self) -> Floats:
        return self.origin + self.offset

    @property
    def variance(self) -> Floats:
        return np.diagonal(self.scatter, axis1=1, axis2=2) / np.where(self.mass > 0, self.mass, 1.0)[:, None]

    def pooled(self, weights: Floats) -> tuple[Floats, Floats]:
        """The mean and the variance of all sites together, (k + 1,) each; weights : (N,), of the sites."""
        mean = weights @ self.mean
        return mean, weights @ (self.variance + (self.mean - mean) ** 2)

    def within(self) -> SiteSums:
        """The moments of what `centre` leaves of rows; a column that does not vary at a site is 0 there."""
        out, spread = SiteSums(self.names), np.diagonal(self.scatter, axis1=1, axis2=2)
        varies = spread > self.mass[:, None] * (CONSTANT * self.largest) ** 2
        vars(out).update(vars(self), origin=np.zeros_like(self.origin), offset=np.zeros_like(self.offset))
        out.scatter = self.scatter * (varies[:, :, None] & varies[:, None, :])
        return out

    def centre(self, p: Piece, start: int) -> Piece:
        """Rows that end in 1 without it, less the means of their sites, which count from `start`."""
        here, z = p.moved(start), np.empty((len(p.y), p.u.shape[1]), order="F")
        z[:, :-1], z[:, -1] = p.u[:, :-1], p.y
        z -= here.each_row(self.origin)  # one after the other, for columns far from 0
        z -= here.each_row(self.offset)
        u = z[:, :-1]
        return replace(p, u=u, v=u, y=z[:, -1])

    def summary(self, c: int = 0) -> Summary:
        scatter = np.diag(self.scatter[c]).copy()
        return Summary(int(self.n[c]), self.mean[c], scatter, self.largest[c])

    def systems(self, scale: FeatureScale, penalty: Floats | float) -> Systems:
        """The means of each site's system in these coordinates; penalty : (d,), the ridge of each coefficient."""
        k, mass = len(scale.spread), self.mass[:, None, None]
        if self.A.shape[1]:  # of a value function: coordinates that shift nothing and leave the target alone
            assert not np.any(scale.centre)
            spread = np.append(scale.spread, np.ones(int(scale.intercept)))
            A, b = self.A / np.outer(spread, spread) / mass, self.b / spread / self.mass[:, None]
        else:
            spread = np.append(scale.spread, scale.y_spread)
            mean = ((self.origin - np.append(scale.centre, scale.y_centre)) + self.offset) / spread
            z = np.column_stack([mean, np.ones(len(mean))])  # features, target and the intercept
            second = z[:, :, None] * z[:, None, :]
            second[:, : k + 1, : k + 1] += self.scatter / np.outer(spread, spread) / mass
            kept = [*range(k), k + 1][: scale.dim]
            A, b = second[:, kept][:, :, kept], second[:, kept, k]
        return Systems(self.n, A + np.diag(np.broadcast_to(penalty, b.shape[1:])), b, self.mass)


def refuse_empty(names: Sequence[str], rows: Codes) -> None:
    for c in np.flatnonzero(rows == 0).tolist():
        raise SiteDataError(f"{names[c]} must have at least one row; it has none")


def original_scale(k: int, intercept: bool) -> FeatureScale:
    """The original coordinates of k features."""
    return FeatureScale(np.zeros(k), np.ones(k), 0.0, 1.0, intercept)


def penalty_of(task: Task, scale: FeatureScale) -> Floats:
    """The ridge of each coefficient, (d,): none of the intercept."""
    return np.append(np.full(len(scale.centre), task.ridge), np.zeros(int(scale.intercept)))


def scale_of(
    task: Task, mean: Floats, variance: Floats, largest: Floats, names: Sequence[str], where: str
) -> FeatureScale:
    """The coordinates of the run, from the mean and variance of the columns over all sites' rows, (k + 1,) each.

    A column that is constant at every site, and has no coefficient of its own beside the intercept, is an error.
    largest : (k + 1,) absolute values; names : of the k features; where : the sites, for errors
    """
    k, constant = len(names), variance <= (CONSTANT * mean) ** 2
    intercept = shared_intercept(task)
    for j in np.flatnonzero(constant[:k]).tolist():
        rule, instead = f"column {names[j]!r} is 0 in every row of {where}", "leave it out"
        if task.formula is not None and "]" in names[j] and largest[j] == 0:
            instead = "no row has these levels together: leave out their product, or join levels"
        if task.intercept and (largest[j] > 0 or task.features is None):
            rule = f"column {names[j]!r} has the same value, {mean[j]:g}, in every row of {where}"
            if task.own is not None:
                rule = f"column {names[j]!r} does not vary beside each site's own intercept in {where}"
        elif largest[j] != 0:
            continue
        raise SiteDataError(f"{rule}; {instead}")
    if not task.scaled:
        return original_scale(k, intercept)
    if not task.standardise:  # centred for the sake of a ridge
        return FeatureScale(mean[:k], np.ones(k), float(mean[k]), 1.0, intercept)
    if not isinstance(task, Regression) or not intercept:  # without a constant term features cannot be shifted
        size = np.sqrt(variance + mean**2)
        y_spread = float(size[k]) if isinstance(task, Regression) else 1.0
        return FeatureScale(np.zeros(k), size[:k], 0.0, y_spread or 1.0, intercept)
    spread = np.sqrt(variance)
    return FeatureScale(mean[:k], spread[:k], float(mean[k]), float(spread[k]) or 1.0, intercept)


@dataclass(frozen=True, eq=False)
class Systems:
    """The means of A(z) : (N, d, d) and b(z) : (N, d) over the n : (N,) rows of each site, each by its weight.

    mass : (N,) the sum of the weights, n where rows have none
    """

    n: Codes
    A: Floats
    b: Floats
    mass: Floats

    @classmethod
    def of(cls, pieces: Iterable[Piece], names: Sequence[str], penalty: Floats | float) -> Systems:
        """Of rows in the run's coordinates; penalty : (d,), the ridge; names : of the sites, for errors."""
        n, A, b = np.zeros(len(names), np.int64), np.empty(0), np.empty(0)
        for p in pieces:
            if not n.any():
                d = p.u.shape[1]
                A, b = np.zeros((len(n), d, d)), np.zeros((len(n), d))
            n[p.sites] += p.counts
            A[p.sites] += p.products(p.u, p.v)
            b[p.sites] += p.sums(p.u * p.y[:, None])
        refuse_empty(names, n)
        means = A / n[:, None, None] + np.diag(np.broadcast_to(penalty, b.shape[1:]))
        return cls(n, means, b / n[:, None], n.astype(np.float64))

    @classmethod
    def joined(cls, parts: Sequence[Systems]) -> Systems:
        """Those of all the sites of the parts."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("n", "A", "b", "mass")))

    def of_sites(self, places: Codes | slice) -> Systems:
        """Those of some of the sites."""
        return Systems(self.n[places], self.A[places], self.b[places], self.mass[places])

    def solution(self, weights: Floats, names: Sequence[str]) -> tuple[Floats, Floats]:
        """A = sum_c w_c A_c : (d, d), and theta with A theta = sum_c w_c b_c : (d,) (eq:lsa_syst_fed on the data).

        names : of the features. Those that determine one another are an error that names them.
        """
        A, b = np.tensordot(weights, self.A, 1), weights @ self.b
        check_determined(A, names, int(self.n.sum()))
        return A, np.asarray(np.linalg.solve(A, b), np.float64)

    def without(self, weights: Floats, theta: Floats) -> Floats:
        """The solution of all sites' system but one's, for each : (N, d), from theta : (d,), that of all of them; NaN
        where it has none or many."""
        rest = sums_of_others(weights[:, None, None] * self.A)
        unique = ~singular(rest)
        shift = weights[:, None] * (self.A @ theta - self.b)
        change = np.linalg.solve(np.where(unique[:, None, None], rest, np.eye(len(theta))), shift[:, :, None])[:, :, 0]
        return np.where(unique[:, None], theta + change, np.nan)


@dataclass(frozen=True, eq=False)
class SolvedSystem:
    """Where scores are taken: theta : (d,) with A theta = b, A : (d, d); or of each of N sites, with one axis more.

    share : (N,), of each site's rows in A. A is symmetric but for value functions
    free : (N, d, d), directions that a site's rows leave open, 0 beyond these; rank : (N,) how many coefficients, or
        combinations of them, they determine. For least squares A is then the site's matrix and a multiple of the
        projection on what is open. Rows have no part in it, so residuals, leverages, and whatever the rows determine
        are as they are without it
    """

    theta: Floats
    A: Floats
    share: Floats
    free: Floats = field(default_factory=lambda: np.empty(0))
    rank: Codes = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of_each(cls, s: Systems, least_squares: bool) -> SolvedSystem:
        """Of each site alone; where it is not least squares, all is open or nothing."""
        d = s.b.shape[1]
        if not least_squares:
            lost = singular(s.A)[:, None, None]
            A = np.where(lost, np.eye(d), s.A)
            theta = np.where(lost[:, 0], np.nan, np.linalg.solve(A, s.b[:, :, None])[:, :, 0])
            return cls(theta, A, 1 / s.mass, np.where(lost, np.eye(d), 0.0), np.where(lost[:, 0, 0], 0, d))
        diagonal = np.diagonal(s.A, axis1=1, axis2=2)
        scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        values, vectors = np.linalg.eigh(s.A * scale[:, :, None] * scale[:, None, :])
        is_open = values <= SINGULAR * np.maximum(values[:, -1:], 0.0)
        left = vectors * is_open[:, None, :]
        added = left / scale[:, :, None]
        A = s.A + added @ added.transpose(0, 2, 1)
        theta = np.linalg.solve(A, s.b[:, :, None])[:, :, 0]
        return cls(theta, A, 1 / s.mass, scale[:, :, None] * left, d - is_open.sum(axis=1))

    @cached_property
    def factor(self) -> Floats:
        """Lower triangular, with A = L L^T."""
        return np.asarray(np.linalg.cholesky(self.A), np.float64)

    @cached_property
    def whiten(self) -> Floats:
        """The inverse of the factor."""
        return np.asarray(np.linalg.inv(self.factor), np.float64)

    def residuals(self, p: Piece) -> Floats:
        if self.theta.ndim == 1:
            return p.v @ self.theta - p.y
        if p.is_coarse:
            return np.concatenate([p.v[rows] @ self.theta[c] for c, rows in p.parts()]) - p.y
        return np.einsum("nd,nd->n", p.v, p.each_row(self.theta)) - p.y

    def leverages(self, p: Piece) -> Floats:
        if self.theta.ndim == 1:
            z = self.whiten @ p.u.T
        elif p.is_coarse:
            z = np.concatenate([self.whiten[c] @ p.u[rows].T for c, rows in p.parts()], axis=1)
        else:
            z = np.einsum("nij,nj->in", p.each_row(self.whiten), p.u)
        return np.asarray(p.each_row(self.share) * np.einsum("in,in->n", z, z), np.float64)

    def unit_scores(self, S: Floats, A: Floats | None, sites: Codes) -> tuple[Floats, NDArray[np.bool_]]:
        """What units put into A theta - b : (k, d), whose squares are the meat, and which leave coefficients open.

        S : (k, d) sums of scores, A : (k, d, d) of the system, both times shares, for the jackknife A (A - A_g)^-1 S;
        sites : (k,) of each unit, by whose solution it is
        """
        undetermined = np.zeros(len(S), np.bool_)
        if A is None:
            return S, undetermined
        d, out = S.shape[1], np.empty_like(S)
        for first in range(0, len(S), step := max(1, HELD // d**2)):
            some = slice(first, first + step)
            root, white = self.factor, self.whiten
            if self.theta.ndim > 1:
                root, white = root[sites[some]], white[sites[some]]
            left = np.eye(d) - white @ A[some] @ np.swapaxes(white, -1, -2)  # of A without the unit
            heavy = np.flatnonzero(np.trace(left, axis1=1, axis2=2) < d - 0.5)  # others have eigenvalues above 1/2
            lost = heavy[np.linalg.eigvalsh(left[heavy])[:, 0] < LEVERAGE_ONE]
            undetermined[first + lost] = True
            left[lost] = np.eye(d)
            out[some] = (root @ np.linalg.solve(left, white @ S[some, :, None]))[:, :, 0]
        return out, undetermined

    def open_in(self, T: Floats) -> NDArray[np.bool_]:
        """(N, d): which entries of T theta the rows leave open."""
        parts = np.abs(T @ self.free)
        return np.asarray((parts > OPEN * parts.max(axis=1, keepdims=True)).any(axis=2))


def _even(A: Floats) -> Floats:
    """Matrices (..., d, d) with their rows and columns scaled to one size, so that units play no part."""
    rows = np.abs(A).max(axis=-1, keepdims=True)
    even = A / np.where(rows == 0, 1.0, rows)
    columns = np.abs(even).max(axis=-2, keepdims=True)
    return np.asarray(even / np.where(columns == 0, 1.0, columns), np.float64)


def sums_of_others(values: Floats | NDArray[np.bool_]) -> Floats:
    """Over the first axis, for each entry the sum of all others, without differences of large numbers."""
    zero = np.zeros_like(values[:1], np.float64)
    before = np.concatenate([zero, np.cumsum(values[:-1], axis=0)])
    after = np.concatenate([np.cumsum(values[:0:-1], axis=0)[::-1], zero])
    return np.asarray(before + after, np.float64)


def singular(A: Floats) -> NDArray[np.bool_]:
    """(N,): of matrices (N, d, d), up to rounding errors."""
    values = np.linalg.svd(_even(A), compute_uv=False)
    return np.asarray(values[:, -1] <= SINGULAR * values[:, 0])


def null_space(A: Floats) -> Floats:
    """(k, d): k independent directions with A x = 0 up to rounding errors, none for a regular matrix."""
    _, values, directions = np.linalg.svd(_even(A))
    return np.asarray(directions[values <= SINGULAR * values[0]], np.float64)


def check_determined(A: Floats, names: Sequence[str], n: int) -> None:
    """Refuse a system A : (d, d) of n rows in which columns of these names determine one another: the error has the
    shortest relation between columns that the data show."""
    free, d = null_space(A), len(names)
    if not len(free):
        return
    if n <= d:
        raise SiteDataError(f"all sites together must have more rows than coefficients, {d}; they have {n}")
    *_, pivots = qr(free, mode="r", pivoting=True)
    echelon = np.linalg.solve(free[:, pivots[: len(free)]], free)  # the same space: relations of few columns
    involved = min((np.flatnonzero(np.abs(x) > 1e-6 * np.abs(x).max()).tolist() for x in echelon), key=len)
    what, where = quoted(names, involved), "the data of all sites together"
    if len(involved) == 1:
        raise SiteDataError(f"{where} do not determine the coefficient of {what}; leave it out")
    rule = f"columns {what} determine one another in {where}"
    raise SiteDataError(f"{rule}: their coefficients are not unique; leave one of them out")


def conditioning(A: Floats) -> tuple[float, Floats]:
    """The condition number of A with its columns scaled to one size, and its singular directions, the weakest last."""
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(A)), 1e-300))
    _, values, directions = np.linalg.svd(scale[:, None] * A * scale)
    return float(values[0] / max(values[-1], 1e-300)), np.asarray(directions, np.float64)
