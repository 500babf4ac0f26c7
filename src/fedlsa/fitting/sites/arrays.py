"""Sites in memory: columns by name, data frames of any kind that narwhals knows, tuples of arrays; parts of a table."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError, MissingExtraError, SiteDataError
from ..tasks import Names, Regression, Task
from .conversion import Rows, finite_array, from_array, is_categorical, plain_array, refuse_infinite

NUMBERS = 2**21  # that a piece of a site holds at most, as long as it has some hundred rows
CACHED_NUMBERS = 2**17  # of a piece that sums over it find in the cache
ROWS = 2**16  # of a piece, at most
INDEX = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")  # what a data frame's index is called in a file


def piece_rows(width: int, cached: int = CACHED_NUMBERS) -> int:
    """How many rows of `width` numbers make a piece, so that memory stays bounded however wide they are.

    A piece fits into the cache unless it would then be hardly larger than its sums, of width^2 numbers.
    """
    numbers = min(NUMBERS, max(cached, 4 * width**2))
    return max(256, min(ROWS, numbers // max(width, 1)))


@dataclass(frozen=True, eq=False)
class ColumnBlock:
    """Consecutive rows of a site by column; values : (k + 1, n), the k columns of numbers that are wanted, and ones.

    labels : columns that are wanted as they are, numbers or not, (n,) each
    rows : where they stand in the data, counted from 0: the first of consecutive rows, or all
    holes : whether some number is missing, which is then NaN
    """

    place: Mapping[str, int]
    values: Floats
    labels: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    rows: Rows = 0
    holes: bool = False

    def __getitem__(self, column: str) -> Floats:
        return self.values[self.place[column]]


def blocks(
    site: str,
    columns: Sequence[str],
    numbers: Sequence[NDArray[Any]],
    size: int,
    rows: Rows,
    labels: Mapping[str, NDArray[Any]],
) -> Iterator[ColumnBlock]:
    """Columns of numbers, (n,) each, `size` rows at a time; infinite ones are refused. rows : where they stand.

    labels : columns that go along as they are.

    All blocks are parts of one array, which takes memory in few large pages; each is filled just before it is used, so
    that sums over it find it in the cache.
    """
    place = {c: j for j, c in enumerate(columns)}
    n = len(numbers[0]) if numbers else len(next(iter(labels.values())))
    values = np.empty((len(columns) + 1, n))
    for at in range(0, n, size):
        block = values[:, at : at + size]
        here = rows + at if isinstance(rows, int) else rows[at : at + size]
        if numbers:
            np.stack([v[at : at + size] for v in numbers], out=block[:-1])
        block[-1] = 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            suspect = not np.isfinite(block.sum())  # finite unless an entry is not, or the sum is beyond all numbers
        for column, row in zip(columns, block, strict=False) if suspect else ():
            refuse_infinite(site, column, row, here)
        holes = suspect and bool(np.isnan(block).any())
        yield ColumnBlock(place, block, {c: v[at : at + size] for c, v in labels.items()}, here, holes)


@dataclass(frozen=True, eq=False)
class Arrays:
    """A site whose columns are in memory; each is checked when it is first wanted."""

    name: str
    held: Mapping[str, Any]
    checked: dict[str, Floats] = field(default_factory=dict)
    labels: dict[str, NDArray[Any]] = field(default_factory=dict)
    split_by: str | None = None

    def __post_init__(self) -> None:
        sizes = {c: np.shape(v) for c, v in self.held.items()}
        if not sizes:
            raise SiteDataError(f"{self.name} must have columns; it has none")
        first = next(iter(sizes))
        for column, shape in sizes.items():
            if len(shape) != 1:
                raise SiteDataError(f"{self.name}: column {column!r} must be one-dimensional; got shape {shape}")
            if shape != sizes[first]:
                raise SiteDataError(
                    f"{self.name}: all columns must have as many rows; "
                    f"{first!r} has {sizes[first][0]} and {column!r} has {shape[0]}"
                )

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.held)

    @property
    def categories(self) -> frozenset[str]:
        return frozenset(c for c, values in self.held.items() if is_categorical(values))

    @property
    def rows(self) -> int:
        return len(next(iter(self.held.values())))

    def pieces(self, columns: Sequence[str], rows: int = ROWS, labels: Sequence[str] = ()) -> Iterator[ColumnBlock]:
        """The columns, `rows` rows at a time."""
        step = piece_rows(len(columns), NUMBERS)
        for start in range(0, self.rows, step):
            yield from self.block(self.name, slice(start, start + step), start, columns, rows, labels)

    def block(
        self, site: str, part: Any, at: Rows, columns: Sequence[str], size: int, labels: Sequence[str]
    ) -> Iterator[ColumnBlock]:
        """The rows that `part` takes out of the columns; at : where they stand."""
        for c in columns:
            if c not in self.checked:
                self.checked[c] = from_array(self.name, c, self.held[c])
        for c in labels:
            if c not in self.labels:
                self.labels[c] = plain_array(self.held[c], labels=True)
        beside = {c: self.labels[c][part] for c in labels}
        return blocks(site, columns, [self.checked[c][part] for c in columns], size, at, beside)


@dataclass(frozen=True, eq=False)
class TablePart:
    """The rows of a table in memory that are of one site; split_by : the column that says so."""

    name: str
    table: Arrays
    part: NDArray[np.int64]
    split_by: str

    @property
    def columns(self) -> tuple[str, ...]:
        return self.table.columns

    @property
    def categories(self) -> frozenset[str]:
        return self.table.categories

    @property
    def rows(self) -> int:
        return len(self.part)

    def pieces(self, columns: Sequence[str], rows: int = ROWS, labels: Sequence[str] = ()) -> Iterator[ColumnBlock]:
        """The columns, `rows` rows at a time."""
        step = piece_rows(len(columns), NUMBERS)
        for start in range(0, self.rows, step):
            part = self.part[start : start + step]
            yield from self.table.block(self.name, part, part, columns, rows, labels)


def has_names(table: Any) -> bool:
    """Whether a table gives its columns by name: a mapping, or a data frame that narwhals knows."""
    return isinstance(table, Mapping) or _frame(table) is not None


def _frame(table: Any) -> Any:
    """A data frame (pandas, polars, Arrow, ...) as narwhals gives it, or pandas' own where there is no narwhals."""
    streams = hasattr(table, "__arrow_c_stream__")
    if not (streams or hasattr(type(table), "columns")):  # a lazy frame would find its columns now
        return None
    try:
        import narwhals as nw
    except ImportError:
        pandas = sys.modules.get("pandas")
        if pandas is not None and isinstance(table, pandas.DataFrame):
            return table
        kind = type(table).__name__
        raise MissingExtraError(f"tables of the kind {kind} need narwhals: pip install 'fedlsa[data]'") from None
    try:
        found = nw.from_native(table, pass_through=True)
    except nw.exceptions.DuplicateError:
        return table
    if isinstance(found, nw.LazyFrame):
        return found.collect()
    if isinstance(found, nw.DataFrame):
        return found
    return nw.DataFrame.from_arrow(table, backend="pyarrow") if streams and not hasattr(table, "dtype") else None


def by_name(argument: str, table: Any, wanted: Sequence[str]) -> Floats:
    """(n, k): the wanted columns of a table with names, in the order wanted; others may be there as well."""
    found = from_columns(argument, table)
    for lacking in (c for c in wanted if c not in found.columns):
        hint = checks.did_you_mean(lacking, found.columns)
        rule = f"{argument} must have the columns {', '.join(wanted)}, in any order"
        raise ArgumentError(f"{rule}; got none called {lacking!r}{hint}")
    return np.column_stack([finite_array(argument, c, found.held[c]) for c in wanted])


def from_columns(name: str, table: Any) -> Arrays:
    """A site from a mapping of columns, or from a data frame."""
    frame: Any = table if isinstance(table, Mapping) else _frame(table)
    labels = list(table) if isinstance(table, Mapping) else list(getattr(frame, "column_names", None) or frame.columns)
    names = [str(label) for label in labels]
    check_unique(name, names)
    held = frame.iter_columns() if hasattr(frame, "iter_columns") else (frame[label] for label in labels)
    return Arrays(name, dict(zip(names, held, strict=True)))


def check_unique(site: str, names: Sequence[str]) -> None:
    """Refuse columns of one name."""
    for column in names:
        if names.count(column) > 1:
            raise SiteDataError(f"{site} must have each column once; {column!r} appears {names.count(column)} times")


def refuse_index(site: str, names: Sequence[str], instead: str) -> None:
    """Refuse a column that is a data frame's index as files hold it; instead : what else helps."""
    for column in (c for c in names if INDEX.fullmatch(c)):
        raise SiteDataError(
            f"{site} has a column {'without a name' if not column else repr(column)}, as an index is written: write "
            f"the file without it (index=False), or {instead}"
        )


def from_tuple(name: str, entry: Sequence[Any], task: Task) -> Arrays:
    """A site from (X, y), or from (phi, r, phi_next, terminated[, truncated[, importance]]), named as the task says."""
    if isinstance(task, Regression):
        if len(entry) != 2:
            raise SiteDataError(f"{name} must be a pair of arrays (X, y); got {len(entry)} entries")
        return from_columns(name, _spread(name, "X", entry[0], task.columns, "x") | {task.response: entry[1]})
    if not 4 <= len(entry) <= 6:
        form = "(phi, r, phi_next, terminated[, truncated[, importance]])"
        raise SiteDataError(f"{name} must be a tuple of arrays {form}; got {len(entry)} entries")
    phi, r, following, ended, *more = entry
    out = _spread(name, "phi", phi, task.state) | _spread(name, "phi_next", following, task.next_state)
    out |= {task.reward: r, task.terminated: ended}
    optional = zip((task.truncated, task.importance), more, strict=False)
    return from_columns(name, out | {column: values for column, values in optional if values is not None})


def _spread(site: str, what: str, values: Any, names: Names | None, default: str = "") -> dict[str, Any]:
    """The columns of a matrix by name: those of a list, else a prefix and their numbers; a vector is one column.

    A data frame has names of its own, which a prefix is put before; its order of columns means nothing.
    """
    if has_names(values):
        held = from_columns(f"{site}: {what}", values).held
        if names is None or isinstance(names, str):
            refuse_index(f"{site}: {what}", list(held), "leave it out of the data frame (df[columns])")
        if isinstance(names, str):
            return {c if c.startswith(names) else f"{names}_{c}": v for c, v in held.items()}
        if names is not None and set(names) != set(held):
            raise SiteDataError(f"{site}: {what} must have the columns {', '.join(names)}; got {', '.join(held)}")
        return dict(held)
    try:
        given = np.asarray(values) if not isinstance(values, np.ma.MaskedArray) else values
    except ValueError:
        raise SiteDataError(f"{site}: {what} must have rows of one length; got {checks.show(values)}") from None
    if given.ndim not in (1, 2):
        raise SiteDataError(f"{site}: {what} must have the shape (rows, columns); got shape {given.shape}")
    prefix = names if isinstance(names, str) else default
    wide = given if given.ndim == 2 else given[:, None]
    if isinstance(names, str) and given.ndim == 1:
        labels: Sequence[str] = [names]
    elif names is None or isinstance(names, str):
        labels = [f"{prefix}{j}" for j in range(wide.shape[1])]
    else:
        labels = names
    if len(labels) != wide.shape[1]:
        raise SiteDataError(
            f"{site}: {what} must have {len(labels)} columns, as many as are named; got {wide.shape[1]}"
        )
    if not labels:
        raise SiteDataError(f"{site}: {what} must have at least one column; got shape {given.shape}")
    return dict(zip(labels, wide.T, strict=True))
