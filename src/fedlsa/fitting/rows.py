"""From columns to observations of the recursion, A(z) = u v^T (+ ridge I) and b(z) = y u, of many sites at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError, SiteDataError
from ..problems import features as maps
from ..problems.system import Flags
from ..problems.transitions import traces
from .columns import Columns
from .design import design_of
from .tables import Codes, ColumnBlock, DataTable, MissingRows, block_rows, complete
from .tasks import Regression, Task, Value

MAPPED = 512  # numbers that a feature map of unknown dimension is thought to make of a row
FEW_ROWS = 32  # of a site in a piece, on average: with fewer, products of all sites at once are quicker
PRODUCTS = 2**20  # numbers of rows' products that are held at a time
SAME = 1e-6  # relative: a state and the same state in the next row may have been rounded


@dataclass(frozen=True, eq=False)
class LogFacts:
    """Of n consecutive transitions.

    terminated : how many ended the task; cut : how many were the last of their episode, for that or for truncation
    going_on : whether the last one was not
    states, following : (2, d) the least and the largest value of each feature, in the states that were left and in
        those that were entered, where the task did not end
    breaks : how many were not the last of their episode, and yet the next one does not begin in the state they led to
    nowhere : how many led to a state whose features are all 0, though the task did not end
    mass, squares : sum of the importance weights and of their squares; n where there are none
    """

    n: int
    terminated: int
    cut: int
    going_on: bool
    states: Floats
    following: Floats
    breaks: int
    nowhere: int
    mass: float
    squares: float

    @classmethod
    def of(cls, phi: Floats, after: Floats, ended: Flags, cut: Flags, importance: Floats | None) -> LogFacts:
        """Of features before and after, (n, d) each, and of what the log says of each transition, (n,) each."""
        n, entered = len(phi), after[~ended] if ended.any() else after
        mass, squares = (n, n) if importance is None else (importance.sum(), importance @ importance)
        following = _range(entered) if len(entered) else np.full((2, phi.shape[1]), np.nan)
        apart = np.abs(after[:-1] - phi[1:]) > SAME * np.maximum(np.abs(after[:-1]), np.abs(phi[1:]))
        breaks = int(np.sum(apart.any(axis=1) & ~cut[:-1]))
        nowhere = int(np.sum(~after.any(axis=1) & ~ended))
        ends = int(ended.sum()), int(cut.sum()), not cut[-1]
        return cls(n, *ends, _range(phi), following, breaks, nowhere, float(mass), float(squares))

    def __add__(self, later: LogFacts) -> LogFacts:
        """Of both, one after the other."""
        return LogFacts(
            self.n + later.n,
            self.terminated + later.terminated,
            self.cut + later.cut,
            later.going_on,
            _joint(self.states, later.states),
            _joint(self.following, later.following),
            self.breaks + later.breaks,  # between two pieces of a log nobody looks
            self.nowhere + later.nowhere,
            self.mass + later.mass,
            self.squares + later.squares,
        )

    @property
    def episodes(self) -> int:
        """In the log, the one that goes on at its end included."""
        return self.cut + self.going_on

    @property
    def effective_rows(self) -> float:
        """(sum of weights)^2 / (sum of their squares): how many rows of one weight would say as much."""
        return self.mass**2 / self.squares if self.squares > 0 else 0.0


def _range(x: Floats) -> Floats:
    return np.stack([x.min(axis=0), x.max(axis=0)])


def _joint(a: Floats, b: Floats) -> Floats:
    """The range of both; NaN stands for none."""
    return np.stack([np.fmin(a[0], b[0]), np.fmax(a[1], b[1])])


@dataclass(frozen=True, eq=False)
class Piece:
    """Observations of some sites, those of one side by side: u, v : (n, d); y : (n,). For least squares u is v.

    sites : (s,) whose they are; starts : (s,) the first row of each
    root : (n,) roots of the rows' weights, None where all are 1. Pieces that are `scaled` have been multiplied by them
    cluster : (n,) what cluster each row is of, by any labels, where the fit has clusters
    offset : (n,) what was taken from the targets, where the task has an offset
    gaps : (n,) rows that were left out just before, None where none were; order : (n,) where rows stand in the data
    logs : what transitions say of themselves, of each site
    """

    u: Floats
    v: Floats
    y: Floats
    sites: Codes = field(default_factory=lambda: np.zeros(1, np.int64))
    starts: Codes = field(default_factory=lambda: np.zeros(1, np.int64))
    root: Floats | None = None
    cluster: NDArray[Any] | None = None
    offset: Floats | None = None
    gaps: Codes | None = None
    order: int | Codes = 0
    logs: tuple[LogFacts, ...] = ()

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        beside = (self.root, self.cluster, self.offset, self.gaps, self.order)
        more = sum(a.nbytes for a in beside if isinstance(a, np.ndarray))
        return self.y.nbytes + self.u.nbytes + (0 if self.v is self.u else self.v.nbytes) + more

    @cached_property
    def counts(self) -> Codes:
        """(s,): rows of each site."""
        return np.diff(np.append(self.starts, len(self.y)))

    @property
    def is_coarse(self) -> bool:
        """Whether sites have so many rows here that one after the other is quicker than all at once."""
        return len(self.y) >= FEW_ROWS * len(self.sites)

    def moved(self, start: int) -> Piece:
        """The same, with the places of sites counted from another start."""
        return replace(self, sites=self.sites + start) if start else self

    def parts(self) -> Iterator[tuple[int, slice]]:
        """Each site with its rows."""
        for c, start, count in zip(self.sites.tolist(), self.starts.tolist(), self.counts.tolist(), strict=True):
            yield c, slice(start, start + count)

    def each_row(self, values: NDArray[Any]) -> NDArray[Any]:
        """What the sites have, (N, ...), for each row : (n, ...)."""
        here = values[self.sites]
        return (
            np.broadcast_to(here[0], (len(self.y), *here.shape[1:]))
            if len(here) == 1
            else here.repeat(self.counts, axis=0)
        )

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """(s, ...): over each site's rows, of (n, ...)."""
        return values.sum(axis=0)[None] if len(self.sites) == 1 else np.add.reduceat(values, self.starts, axis=0)

    def products(self, a: Floats, b: Floats) -> Floats:
        """(s, i, j): the sum of a b^T over each site's rows, of (n, i) and (n, j)."""
        if self.is_coarse:
            return np.stack([a[rows].T @ b[rows] for _, rows in self.parts()])
        out = np.empty((len(self.sites), a.shape[1], b.shape[1]))
        ends = np.append(self.starts, len(self.y))
        at, most = 0, max(1, PRODUCTS // (a.shape[1] * b.shape[1]))
        while at < len(self.sites):
            upto = max(at + 1, int(np.searchsorted(ends, ends[at] + most, "right")) - 1)
            rows = slice(ends[at], ends[upto])
            pairs = a[rows, :, None] * b[rows, None, :]
            out[at:upto] = np.add.reduceat(pairs, self.starts[at:upto] - ends[at], axis=0)
            at = upto
        return out

    def scaled(self, scale: FeatureScale) -> Piece:
        """The piece in the run's coordinates, each row times the root of its weight: then all rows count the same."""
        u = scale.applied(self.u)
        v = u if self.v is self.u else scale.applied(self.v)
        y = self.y if scale.trivial else (self.y - scale.y_centre) / scale.y_spread
        if self.root is not None:
            assert v is u
            u = v = u * self.root[:, None]
            y = y * self.root
        return Piece(u, v, y, self.sites, self.starts, self.root, self.cluster, gaps=self.gaps, order=self.order)


@dataclass(frozen=True, eq=False)
class FeatureScale:
    """The run's coordinates: feature j is (x_j - centre_j) / spread_j, the target (y - y_centre) / y_spread.

    All are computed from sums over the sites. With an intercept the last feature is 1.
    """

    centre: Floats
    spread: Floats
    y_centre: float
    y_spread: float
    intercept: bool

    @property
    def dim(self) -> int:
        return len(self.centre) + self.intercept

    @property
    def trivial(self) -> bool:
        """Whether the run's coordinates are the original ones."""
        same = not self.centre.any() and bool((self.spread == 1).all())
        return same and self.y_centre == 0 and self.y_spread == 1

    def applied(self, x: Floats) -> Floats:
        """Rows (n, d), which end in a 1 where there is an intercept, in the run's coordinates."""
        if self.trivial:
            return x
        k = len(self.centre)
        out = np.empty(x.shape, order="F")  # column by column, as they are read
        np.subtract(x[:, :k], self.centre, out=out[:, :k])
        out[:, :k] *= 1 / self.spread
        out[:, k:] = x[:, k:]
        return out

    def original(self) -> tuple[Floats, Floats]:
        """(T, t) with theta on the original scale = T theta + t : (d, d) and (d,)."""
        d = self.dim
        T, t = np.zeros((d, d)), np.zeros(d)
        k = len(self.centre)
        T[range(k), range(k)] = self.y_spread / self.spread
        if self.intercept:
            T[k, :k] = -self.y_spread * self.centre / self.spread
            T[k, k], t[k] = self.y_spread, self.y_centre
        return T, t


def observations(table: DataTable, task: Task, columns: Columns, scale: FeatureScale) -> Iterator[Piece]:
    """The observations of a table in the run's coordinates, piece by piece; a log's traces go on across pieces."""
    for _, piece in recorded(table, task, columns):
        yield piece.scaled(scale)


def recorded(
    table: DataTable, task: Task, columns: Columns, missing: MissingRows | None = None, start: int = 0
) -> Iterator[tuple[Floats, Piece]]:
    """Features (n, d), and observations made of them, in the original coordinates; with an intercept they end in 1.

    missing : counts the rows that lack a value, which are left out where the task says so, and else an error; there the
    table's sites count from `start`
    """
    found = (missing, start) if missing is not None else (MissingRows(table.sites), 0)
    if isinstance(task, Regression):
        return _pairs(table, task, columns, *found)
    return _transitions(table, task, columns, *found)


def _pairs(
    table: DataTable, task: Regression, columns: Columns, missing: MissingRows, start: int
) -> Iterator[tuple[Floats, Piece]]:
    design = design_of(task, columns.levels)
    beside = [c for c in (columns.row_weights, columns.offset) if c is not None]
    first = 1 + len(beside)
    wanted = (columns.reward, *beside, *columns.state)  # the features last, beside the ones of an intercept
    width = len(wanted)
    if design is not None:
        wanted = tuple(dict.fromkeys([*design.numbers, *beside]))
        width = len(wanted) + len(design.names)
    blocks = table.blocks(wanted, block_rows(width), columns.labels)
    for block, gaps in complete(blocks, missing, task.missing == "drop", start):
        if design is None:
            x, y = block.values[first:].T if task.intercept else block.values[first:-1].T, block.values[0]
        else:
            x, y = design.features(block), design.calculated(design.formula.target, block)
        offset = None if columns.offset is None else block[columns.offset]
        y = y if offset is None else y - offset
        root = None if columns.row_weights is None else np.sqrt(_weights(columns.row_weights, block))
        cluster = None if columns.cluster is None else block.labels[columns.cluster]
        yield x, Piece(x, x, y, block.sites, block.starts, root, cluster, offset, gaps, block.rows)


def _transitions(
    table: DataTable, task: Value, columns: Columns, missing: MissingRows, start: int
) -> Iterator[tuple[Floats, Piece]]:
    carried: dict[int, Floats] = {}  # the trace at the end of each site's last rows
    for block, _ in complete(table.blocks(columns.all, _rows(task, columns.all)), missing, False, start):
        phi = _features(task, columns.state, block)
        ended = _flags(columns.terminated, block)
        cut = ended if columns.truncated is None else ended | _flags(columns.truncated, block)
        rho = None if columns.importance is None else _weights(columns.importance, block)
        v = _features(task, columns.next_state, block)
        u, logs = np.empty_like(phi), []
        # a view would keep all columns in memory
        piece = Piece(u, v, block[columns.reward].copy(), block.sites, block.starts, order=block.rows)
        for c, rows in piece.parts():
            weights = None if rho is None else rho[rows]
            logs.append(LogFacts.of(phi[rows], v[rows], ended[rows], cut[rows], weights))
            u[rows] = traces(phi[rows], cut[rows], task.discount * task.trace, weights, carried.pop(c, None))
            if not cut[rows][-1]:
                carried[c] = u[rows][-1].copy()
        v *= np.where(ended, 0.0, -task.discount)[:, None]
        v += phi
        yield phi, Piece(u, v, piece.y, piece.sites, piece.starts, order=piece.order, logs=tuple(logs))


def _rows(task: Value, columns: Sequence[str]) -> int:
    """How many rows to read at a time: fewer where a feature map makes many numbers of them."""
    if task.features is None:
        return block_rows(len(columns))
    return block_rows(2 * task.features.dim if isinstance(task.features, maps.FeatureMap) else MAPPED)


def _features(task: Value, names: tuple[str, ...], block: ColumnBlock) -> Floats:
    """The features (n, d) of a block: its columns, or what the task's feature map makes of them; last the intercept.

    The array is new and lies column by column, as columns come: filling it and sums over rows run along memory.
    """
    if task.features is None:
        columns = [block[c] for c in names]
    else:
        states = block[names[0]] if len(names) == 1 else np.column_stack([block[c] for c in names])
        try:
            columns = list(maps.apply(task.features, states).T)
        except (ArgumentError, ArgumentTypeError) as error:
            where = f"columns {', '.join(names)} from row {block.row(0)} on"
            raise SiteDataError(f"{block.site(0)}, {where}: {error}") from error
    out = np.empty((len(columns) + task.intercept, len(columns[0])))
    np.stack(columns, out=out[: len(columns)])
    out[len(columns) :] = 1.0
    return out.T


def _flags(column: str | None, block: ColumnBlock) -> Flags:
    assert column is not None
    flags = block[column]
    block.refuse((flags != 0) & (flags != 1), column, flags, "true and false, or 0 and 1")
    return flags.astype(np.bool_)


def _weights(column: str, block: ColumnBlock) -> Floats:
    rho = block[column]
    block.refuse(rho < 0, column, rho, "weights of at least 0")
    return np.ascontiguousarray(rho)
