"""From a site's columns to observations of the recursion: A(z) = u v^T (+ ridge I) and b(z) = y u."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checks import Floats
from ...errors import ArgumentError, ArgumentTypeError, SiteDataError
from ...problems import features as maps
from ...problems.system import Flags
from ...problems.transitions import traces
from ..sites.arrays import ColumnBlock, piece_rows
from ..sites.conversion import refuse, row_number
from ..sites.missing_rows import MissingRows, complete
from ..sites.site_readers import Site
from ..tasks import Regression, Task, Value
from .columns import Columns
from .design import design_of
from .log_facts import LogFacts

MAPPED = 512  # numbers that a feature map of unknown dimension is thought to make of a row


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive observations of a site: u, v : (n, d); y : (n,). For least squares u and v are one array.

    root : (n,) roots of the rows' weights, None where all are 1. Pieces that are `scaled` have been multiplied by them
    cluster : (n,) what cluster each row is of, by any labels, where the task has clusters
    offset : (n,) what was taken from the targets, where the task has an offset
    log : what transitions say of themselves
    """

    u: Floats
    v: Floats
    y: Floats
    root: Floats | None = None
    cluster: NDArray[Any] | None = None
    offset: Floats | None = None
    log: LogFacts | None = None

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        beside = sum(a.nbytes for a in (self.root, self.cluster, self.offset) if a is not None)
        return self.y.nbytes + self.u.nbytes + (0 if self.v is self.u else self.v.nbytes) + beside

    def scaled(self, scale: FeatureScale) -> Piece:
        """The piece in the run's coordinates, each row times the root of its weight: then all rows count the same."""
        u = scale.applied(self.u)
        v = u if self.v is self.u else scale.applied(self.v)
        y = self.y if scale.trivial else (self.y - scale.y_centre) / scale.y_spread
        if self.root is None:
            return Piece(u, v, y, cluster=self.cluster)
        assert v is u
        u = u * self.root[:, None]
        return Piece(u, u, y * self.root, self.root, self.cluster)


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


def observations(site: Site, task: Task, columns: Columns, scale: FeatureScale) -> Iterator[Piece]:
    """The observations of a site in the run's coordinates, piece by piece; a log's traces go on across pieces."""
    for _, piece in recorded(site, task, columns):
        yield piece.scaled(scale)


def recorded(
    site: Site, task: Task, columns: Columns, missing: MissingRows | None = None
) -> Iterator[tuple[Floats, Piece]]:
    """Features (n, d), and observations made of them, in the original coordinates; with an intercept they end in 1.

    missing : counts the rows that lack a value, which are left out where the task says so, and else an error
    """
    found = missing if missing is not None else MissingRows(site.name)
    if isinstance(task, Regression):
        return _pairs(site, task, columns, found)
    return _transitions(site, task, columns, found)


def _pairs(site: Site, task: Regression, columns: Columns, missing: MissingRows) -> Iterator[tuple[Floats, Piece]]:
    design = design_of(task, columns.levels)
    beside = [c for c in (columns.row_weights, columns.offset) if c is not None]
    first = 1 + len(beside)
    wanted = (columns.reward, *beside, *columns.state)  # the features last, beside the ones of an intercept
    width = len(wanted)
    if design is not None:
        wanted = tuple(dict.fromkeys([*design.numbers, *beside]))
        width = len(wanted) + len(design.names)
    for block in complete(site.pieces(wanted, piece_rows(width), columns.labels), missing, task.missing == "drop"):
        if design is None:
            x, y = block.values[first:].T if task.intercept else block.values[first:-1].T, block.values[0]
        else:
            x, y = design.features(site.name, block), design.calculated(design.target, site.name, block)
        offset = None if columns.offset is None else block[columns.offset]
        y = y if offset is None else y - offset
        root = None if columns.row_weights is None else np.sqrt(_weights(site, columns.row_weights, block))
        yield x, Piece(x, x, y, root, None if columns.cluster is None else block.labels[columns.cluster], offset)


def _transitions(site: Site, task: Value, columns: Columns, missing: MissingRows) -> Iterator[tuple[Floats, Piece]]:
    carried: Floats | None = None  # the trace at the end of the last piece
    for piece in complete(site.pieces(columns.all, _rows(task, columns.all)), missing, drop=False):
        phi = _features(site, task, columns.state, piece)
        ended = _flags(site, columns.terminated, piece)
        cut = ended if columns.truncated is None else ended | _flags(site, columns.truncated, piece)
        rho = None if columns.importance is None else _weights(site, columns.importance, piece)
        v = _features(site, task, columns.next_state, piece)
        log = LogFacts.of(phi, v, ended, cut, rho)
        v *= np.where(ended, 0.0, -task.discount)[:, None]
        v += phi
        u = traces(phi, cut, task.discount * task.trace, rho, carried)
        carried = None if cut[-1] else u[-1].copy()
        yield phi, Piece(u, v, piece[columns.reward].copy(), log=log)  # a view would keep all columns in memory


def _rows(task: Value, columns: Sequence[str]) -> int:
    """How many rows to read at a time: fewer where a feature map makes many numbers of them."""
    if task.features is None:
        return piece_rows(len(columns))
    return piece_rows(2 * task.features.dim if isinstance(task.features, maps.FeatureMap) else MAPPED)


def _features(site: Site, task: Value, names: tuple[str, ...], piece: ColumnBlock) -> Floats:
    """The features (n, d) of a piece: its columns, or what the task's feature map makes of them; last the intercept.

    The array is new and lies column by column, as columns come: filling it and
    sums over rows run along memory.
    """
    if task.features is None:
        columns = [piece[c] for c in names]
    else:
        states = piece[names[0]] if len(names) == 1 else np.column_stack([piece[c] for c in names])
        try:
            columns = list(maps.apply(task.features, states).T)
        except (ArgumentError, ArgumentTypeError) as error:
            where = f"columns {', '.join(names)} from row {row_number(piece.rows, 0)} on"
            raise SiteDataError(f"{site.name}, {where}: {error}") from error
    out = np.empty((len(columns) + task.intercept, len(columns[0])))
    np.stack(columns, out=out[: len(columns)])
    out[len(columns) :] = 1.0
    return out.T


def _flags(site: Site, column: str | None, piece: ColumnBlock) -> Flags:
    assert column is not None
    flags = piece[column]
    refuse((flags != 0) & (flags != 1), site.name, column, flags, "true and false, or 0 and 1", piece.rows)
    return flags.astype(np.bool_)


def _weights(site: Site, column: str, piece: ColumnBlock) -> Floats:
    rho = piece[column]
    refuse(rho < 0, site.name, column, rho, "weights of at least 0", piece.rows)
    return np.ascontiguousarray(rho)
