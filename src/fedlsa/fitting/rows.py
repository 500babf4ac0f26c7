"""From columns to observations of the recursion, A(z) = u v^T (+ ridge I) and b(z) = y u, of many sites at a time.

Which columns a task needs is settled first: every site must have the same ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError, SiteDataError
from ..problems import features as maps
from ..problems.data import traces
from ..problems.system import Flags
from . import tables as data_tables
from .design import Levels, agreed_levels, design_of
from .formulas import parse_formula
from .tables import Codes, ColumnBlock, DataTable, MissingRows, block_rows, drop_incomplete, listed
from .tasks import Names, Regression, Task, Value, shared_intercept

MAPPED = 512  # numbers that a feature map of unknown dimension is thought to make of a row
FEW_ROWS = 32  # of a site in a piece, on average: with fewer, products of all sites at once are quicker
PRODUCTS = 2**20  # numbers of rows' products that are held at a time
SAME = 1e-6  # relative: a state and the same state in the next row may have been rounded


@dataclass(frozen=True)
class Columns:
    """The columns that a task reads, the same at every site. Those of `state` and `next_state` stand in one order.

    regression : state are the columns of the features, of a formula those that its right side names; reward is that of
        the target, of a formula the first that its left side names. row_weights, offset, cluster : as the task names
        them
    labels : categories of a formula, and the cluster, which are read as they are, numbers or not
    levels : of each category of a formula, agreed by all sites, in order
    more_targets : further columns of the left side of a formula
    """

    state: tuple[str, ...]
    next_state: tuple[str, ...]
    reward: str
    terminated: str | None = None
    truncated: str | None = None
    importance: str | None = None
    row_weights: str | None = None
    offset: str | None = None
    cluster: str | None = None
    labels: tuple[str, ...] = ()
    levels: Levels = ()
    more_targets: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every column once, in the order in which they are read."""
        some = self.terminated, self.truncated, self.importance, self.row_weights, self.offset, self.cluster
        always = *self.state, *self.next_state, *self.more_targets, self.reward
        return tuple(dict.fromkeys([*always, *(c for c in some if c is not None)]))


def choose_columns(
    task: Task, tables: Sequence[DataTable], levels: Levels | None = None, cluster: str | None = None
) -> Columns:
    """The columns that the task reads, found in the first table and checked in all.

    levels : of the categories of a formula. By default those of all these tables, from a pass over their rows
    cluster : the column of the clusters, where there is one
    """
    members = [member for table in tables for member in table.members or (table,)]
    first, *others = members
    columns = _columns_of(task, first, cluster)
    for table in others:
        for column in (c for c in columns.all if c not in table.columns):
            raise SiteDataError(f"{table.name} lacks the column {column!r} that {first.name} has")
        for extra in (c for c in _columns_of(task, table, cluster).all if c not in columns.all):
            hint = "; name the columns" if isinstance(task, Regression) else ""
            raise SiteDataError(f"{table.name} has a column {extra!r} that {first.name} lacks{hint}")
    if task.formula is None:
        return columns
    if levels is None:
        levels = agreed_levels(tables, task, columns.labels)
    return replace(columns, levels=levels, labels=tuple(dict.fromkeys([*(c for c, _ in levels), *columns.labels])))


def _columns_of(task: Task, site: DataTable, cluster: str | None) -> Columns:
    """The columns that the task reads in one table."""
    return _regression(task, site, cluster) if isinstance(task, Regression) else _value(task, site)


def _regression(task: Regression, site: DataTable, cluster: str | None) -> Columns:
    more: dict[str, Any] = {"row_weights": task.row_weights, "offset": task.offset, "cluster": cluster}
    more["labels"] = () if cluster is None else (cluster,)
    if task.formula is not None:
        parsed = parse_formula(task.formula)
        target, *others = parsed.target.columns
        found = Columns(parsed.columns, (), target, more_targets=tuple(others), **more)
        for column in found.all:
            site.require(column)
        return found
    taken = {task.target, task.row_weights, task.offset, cluster, site.split_by}
    features = [c for c in site.columns if c not in taken] if task.columns is None else task.columns
    if task.columns is None:
        data_tables.refuse_index(site.name, features, "name the columns that explain the target (columns, --columns)")
    if task.target not in site.columns and re.search("[=+]", task.target):
        rule = "a formula has a ~ between its target and its terms, 'y ~ a + b'"
        raise SiteDataError(f"{site.name} has no column {task.target!r}; {rule}")
    for column in (task.target, *features, *(c for c in (task.row_weights, task.offset, cluster) if c is not None)):
        site.require(column)
    if task.target in features:
        raise SiteDataError(f"{site.name}: the target {task.target!r} must not be a feature as well")
    for column in (c for c, count in Counter(features).items() if count > 1):
        raise SiteDataError(f"{site.name}: columns must be named once each; {column!r} is named twice")
    if not features:
        raise SiteDataError(f"{site.name} must have at least one column beside the target {task.target!r}")
    return Columns(tuple(features), (), task.target, **more)


def _value(task: Value, site: DataTable) -> Columns:
    site.require(task.reward)
    site.require(task.terminated)
    before = _group(site, task, task.state, task.next_state, "state")
    after = _group(site, task, task.next_state, task.state, "next_state")
    for column in (c for c, count in Counter([*before, *after]).items() if count > 1):
        raise SiteDataError(f"{site.name}: columns of state and next_state must be named once; {column!r} is twice")
    if len(before) != len(after):
        raise SiteDataError(
            f"{site.name} must have as many columns of the next state as of the state, "
            f"{len(before)} ({listed(before)}); got {len(after)} ({listed(after)})"
        )
    if isinstance(task.state, str) and isinstance(task.next_state, str):  # in one order, by what follows the prefix
        tails = {c.removeprefix(task.next_state) for c in after}
        for column in before:
            tail = column.removeprefix(task.state)
            if tail not in tails:
                raise SiteDataError(f"{site.name} has {column!r} but no {task.next_state + tail!r} for the next state")
        after = [task.next_state + c.removeprefix(task.state) for c in before]
    cut, rho = (name if name in site.columns else None for name in (task.truncated, task.importance))
    return Columns(tuple(before), tuple(after), task.reward, task.terminated, cut, rho)


def _group(site: DataTable, task: Value, names: Names, others: Names, what: str) -> list[str]:
    """A list of columns as it is; a column of just this name; else all columns that begin so, numbers in their order.

    others : the names or prefix of the other state. Where one prefix begins with the other, the longer takes its own.
    """
    if not isinstance(names, str):
        for column in names:
            site.require(column)
        return list(names)
    if names in site.columns:
        return [names]
    taken = {task.reward, task.terminated, task.truncated, task.importance, site.split_by}
    taken |= {others} if isinstance(others, str) else set(others)
    longer = isinstance(others, str) and len(others) > len(names) and others.startswith(names)
    matching = [
        c for c in site.columns if c.startswith(names) and c not in taken and not (longer and c.startswith(str(others)))
    ]
    if not matching:
        rule = f"{site.name} has no column {names!r}, nor any that begins so, for {what}"
        raise SiteDataError(f"{rule}; it has {listed(site.columns)}")
    return sorted(matching, key=data_tables.natural)


def feature_names(task: Task, columns: Columns, k: int) -> tuple[str, ...]:
    """Of the k features, the intercept not among them."""
    if task.features is not None:
        return maps.names_of(task.features, k)
    design = design_of(task, columns.levels)
    names = columns.state if design is None else design.names
    counts = Counter([*names, *(["intercept"] if task.intercept else [])])
    for name in (n for n, count in counts.items() if count > 1):
        raise SiteDataError(f"coefficients must have a name each; {name!r} would be of two: rename a column")
    return names


def coefficient_names(task: Task, columns: Columns, k: int) -> tuple[str, ...]:
    """Of k features, and of the intercept where all sites share one."""
    return (*feature_names(task, columns, k), *(["intercept"] if shared_intercept(task) else []))


def feature_count(task: Task, columns: Columns) -> int:
    """How many features the task has, the intercept not among them."""
    if task.features is not None:
        return task.features.dim if isinstance(task.features, maps.FeatureMap) else np.shape(task.features)[-1]
    return len(feature_names(task, columns, 0))


def may_number_states(task: Task, columns: Columns, x: Floats) -> bool:
    """Whether features x : (n, k) are one column of integers of which nobody has said that they are numbers."""
    asked = isinstance(task, Value) and task.features is None and not task.numbers and len(columns.state) == 1
    return asked and bool((x[:, 0] == np.rint(x[:, 0])).all())


def integers_error(site: str, column: str) -> SiteDataError:
    return SiteDataError(
        f"{site}: column {column!r} holds integers alone. Where they number states, features must say so (--features "
        "'OneHot(64)'); where they are numbers that are their own feature, numbers must be given (--numbers)"
    )


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
        none = np.full((2, phi.shape[1]), np.nan)
        states, following = (np.stack([x.min(axis=0), x.max(axis=0)]) if len(x) else none for x in (phi, entered))
        apart = np.abs(after[:-1] - phi[1:]) > SAME * np.maximum(np.abs(after[:-1]), np.abs(phi[1:]))
        breaks = int(np.sum(apart.any(axis=1) & ~cut[:-1]))
        nowhere = int(np.sum(~after.any(axis=1) & ~ended))
        ends = int(ended.sum()), int(cut.sum()), not cut[-1]
        return cls(n, *ends, states, following, breaks, nowhere, float(mass), float(squares))

    def __add__(self, later: LogFacts) -> LogFacts:
        """Of both, one after the other; between two pieces of a log nobody looks for breaks."""
        added = ("n", "terminated", "cut", "breaks", "nowhere", "mass", "squares")
        sums = {name: getattr(self, name) + getattr(later, name) for name in added}
        ranges: dict[str, Any] = {  # NaN stands for none
            name: np.stack([np.fmin(a[0], b[0]), np.fmax(a[1], b[1])])
            for name, a, b in (("states", self.states, later.states), ("following", self.following, later.following))
        }
        return LogFacts(going_on=later.going_on, **sums, **ranges)

    @property
    def episodes(self) -> int:
        """In the log, the one that goes on at its end included."""
        return self.cut + self.going_on

    @property
    def effective_rows(self) -> float:
        """(sum of weights)^2 / (sum of their squares): how many rows of one weight would say as much."""
        return self.mass**2 / self.squares if self.squares > 0 else 0.0


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
        v = None if self.v is self.u else self.v
        arrays = (self.u, v, self.y, self.root, self.cluster, self.offset, self.gaps, self.order)
        return sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))

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
        if len(here) == 1:
            return np.broadcast_to(here[0], (len(self.y), *here.shape[1:]))
        return here.repeat(self.counts, axis=0)

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
        same = self.y_centre == 0 and self.y_spread == 1 and not self.centre.any()
        return same and bool((self.spread == 1).all())

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


def read_observations(
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
    more = [c for c in (columns.row_weights, columns.offset) if c is not None]
    first = 1 + len(more)
    wanted = (columns.reward, *more, *columns.state)  # the features last, beside the ones of an intercept
    width = len(wanted)
    if design is not None:
        wanted = tuple(dict.fromkeys([*design.numbers, *more]))
        width = len(wanted) + len(design.names)
    blocks = table.blocks(wanted, block_rows(width), columns.labels)
    for block, gaps in drop_incomplete(blocks, missing, task.missing == "drop", start):
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
    width, features = len(columns.all), task.features
    if features is not None:  # fewer rows at a time where a feature map makes many numbers of them
        width = 2 * features.dim if isinstance(features, maps.FeatureMap) else MAPPED
    for block, _ in drop_incomplete(table.blocks(columns.all, block_rows(width)), missing, False, start):
        phi, v = (_features(task, names, block) for names in (columns.state, columns.next_state))
        flags = []
        for column in (c for c in (columns.terminated, columns.truncated) if c is not None):
            given = block[column]
            block.refuse((given != 0) & (given != 1), column, given, "true and false, or 0 and 1")
            flags.append(given.astype(np.bool_))
        ended, cut = flags[0], flags[0] | flags[-1]
        rho = None if columns.importance is None else _weights(columns.importance, block)
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
        yield phi, replace(piece, logs=tuple(logs))


def _features(task: Value, names: tuple[str, ...], block: ColumnBlock) -> Floats:
    """The features (n, d) of a block: its columns, or what the task's feature map makes of them; last the intercept.

    The array is new and lies column by column, as columns come: filling it and sums over rows run along memory.
    """
    columns = [block[c] for c in names]
    if task.features is not None:
        try:
            columns = list(maps.apply(task.features, np.column_stack(columns) if len(names) > 1 else columns[0]).T)
        except (ArgumentError, ArgumentTypeError) as error:
            where = f"columns {', '.join(names)} from row {block.row(0)} on"
            raise SiteDataError(f"{block.site(0)}, {where}: {error}") from error
    out = np.empty((len(columns) + task.intercept, len(columns[0])))
    np.stack(columns, out=out[: len(columns)])
    out[len(columns) :] = 1.0
    return out.T


def _weights(column: str, block: ColumnBlock) -> Floats:
    rho = block[column]
    block.refuse(rho < 0, column, rho, "weights of at least 0")
    return np.ascontiguousarray(rho)
