"""Whatever a fit takes as data, as tables of named columns: rows come in blocks, those of one site side by side.

Columns are numbers (float64, NaN where a value is missing) or labels, which stay what they are. Infinities are errors
everywhere: nothing that is computed from them is a number. Rows that lack a value which a task needs are counted and
refused, or left out.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import MissingExtraError, SiteDataError
from ..problems.transitions import Log
from .arrays import as_labels, as_numbers, declared_levels, distinct, is_categorical, is_missing, pandas_categories
from .tasks import Names, Regression, Task

NUMBERS = 2**21  # that a block holds at most, as long as it has some hundred rows
CACHED_NUMBERS = 2**17  # of a block that sums over it find in the cache
ROWS = 2**16  # of a block, at most
INDEX = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")  # what a data frame's index is called in a file
MEMORY = 6e8  # bytes of rows that are kept between passes. Larger files are read again: then a fit takes less than 1 GB
SHOWN = 6  # sites, and columns of a site, that an error names
Codes = NDArray[np.int64]
Declared = Mapping[str, tuple[Any, ...] | None]  # categories by their type: their levels in order, None for no order
Batch = tuple[int | Codes, list[NDArray[Any]], dict[str, NDArray[Any]], Codes | None]


def block_rows(width: int, cached: int = CACHED_NUMBERS) -> int:
    """How many rows of `width` numbers make a block, so that memory stays bounded however wide they are.

    A block fits into the cache unless it would then be hardly larger than its sums, of width^2 numbers.
    """
    numbers = min(NUMBERS, max(cached, 4 * width**2))
    return max(256, min(ROWS, numbers // max(width, 1)))


@dataclass(frozen=True, eq=False)
class ColumnBlock:
    """Rows of a table by column; values : (k + 1, n), the k columns of numbers that are wanted, and ones.

    labels : columns that are wanted as they are, numbers or not, (n,) each
    rows : where they stand in the data, counted from 0: the first of consecutive rows, or all
    holes : whether some number is missing, which is then NaN
    names : of the table's sites; sites : (s,) those that have rows here; starts : (s,) the first row of each
    """

    place: Mapping[str, int]
    values: Floats
    labels: Mapping[str, NDArray[Any]]
    rows: int | Codes
    holes: bool
    names: Sequence[str]
    sites: Codes
    starts: Codes

    def __getitem__(self, column: str) -> Floats:
        return self.values[self.place[column]]

    def row(self, i: int) -> int:
        """Of entry i, as people count: from 1, the header left out."""
        return int(self.rows + i if isinstance(self.rows, int) else self.rows[i]) + 1

    def site(self, i: int) -> str:
        """The name of the site of entry i."""
        return self.names[self.sites[int(np.searchsorted(self.starts, i, "right")) - 1]]

    def refuse(self, bad: NDArray[np.bool_], column: str, values: Floats, rule: str) -> None:
        """The error for the first of the bad entries, if there is one."""
        if bad.any():
            i = int(np.argmax(bad))
            got = f"got {values[i]:g} in row {self.row(i)} of the data"
            raise SiteDataError(f"{self.site(i)}: column {column!r} must hold {rule}; {got}")

    def take(self, at: Codes) -> ColumnBlock:
        """Some of its rows, in their order."""
        codes = np.repeat(self.sites, np.diff(np.append(self.starts, self.values.shape[1])))[at]
        starts = _changes(codes)
        rows = self.rows + at if isinstance(self.rows, int) else self.rows[at]
        labels = {c: v[at] for c, v in self.labels.items()}
        values = np.ascontiguousarray(self.values[:, at])
        return ColumnBlock(self.place, values, labels, rows, False, self.names, codes[starts], starts)


def _changes(codes: Codes) -> Codes:
    """Where sorted codes begin anew."""
    return np.flatnonzero(np.append(True, codes[1:] != codes[:-1])) if len(codes) else np.empty(0, np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class DataTable:
    """Columns of one site, or of several that a column tells apart; a site's rows come in the order of the data.

    name : how errors call it; sites : names; rows : how many there are, where that is known without reading
    split_by : the column that tells sites apart, which is no feature unless it is named as one
    categories : columns that are categories by their type; untyped : columns of text whose kind a file does not declare
    members : the files of which it is made, where there are many, each as a table without rows
    """

    name: str
    columns: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    rows: int | None = None
    split_by: str | None = None
    categories: Declared = field(default_factory=dict)
    untyped: frozenset[str] = frozenset()
    members: tuple[DataTable, ...] = ()

    def batches(self, columns: Sequence[str], labels: Sequence[str]) -> Iterator[Batch]:
        """Some rows at a time: where they stand, columns of numbers, labels, and whose they are, by places in `sites`;
        None where all are of one site."""
        raise NotImplementedError

    def blocks(self, columns: Sequence[str], size: int = ROWS, labels: Sequence[str] = ()) -> Iterator[ColumnBlock]:
        """The columns, at most `size` rows at a time; what is no number is a SiteDataError.

        Blocks of a batch are parts of one array, which takes memory in few large pages; each is filled just before it
        is used, so that sums over it find it in the cache.
        """
        place = {c: j for j, c in enumerate(columns)}
        for rows, numbers, beside, codes in self.batches(columns, labels):
            n = len(numbers[0]) if numbers else len(next(iter(beside.values())))
            order = None
            if codes is not None and (np.diff(codes) < 0).any():
                order = np.argsort(codes, kind="stable")
                codes, rows = codes[order], rows + order if isinstance(rows, int) else rows[order]
                beside = {c: v[order] for c, v in beside.items()}
            values = np.empty((len(columns) + 1, n))
            for at in range(0, n, size):
                part = slice(at, at + size)
                block = values[:, part]
                if numbers:
                    np.stack([v[part] if order is None else v[order[part]] for v in numbers], out=block[:-1])
                block[-1] = 1.0
                starts = _changes(codes[part]) if codes is not None else np.zeros(1, np.int64)
                sites = codes[part][starts] if codes is not None else starts
                here = rows + at if isinstance(rows, int) else rows[part]
                with np.errstate(over="ignore", invalid="ignore"):
                    suspect = not np.isfinite(block.sum())  # finite unless an entry is not, or the sum is too large
                some = {c: v[part] for c, v in beside.items()}
                holes = suspect and bool(np.isnan(block).any())
                out = ColumnBlock(place, block, some, here, holes, self.sites, sites, starts)
                for column in columns if suspect else ():
                    out.refuse(np.isinf(out[column]), column, out[column], "finite numbers")
                yield out

    def is_text(self, column: str) -> bool | None:
        """Whether a column is text; None where its values say so themselves."""
        return None

    def require(self, column: str, why: str = "") -> None:
        """Refuse a table that lacks the column, and offer the nearest name."""
        if column not in self.columns:
            hint = checks.did_you_mean(column, self.columns) or f"; it has {listed(self.columns)}"
            raise SiteDataError(f"{self.name} has no column {column!r}{why}{hint}")


def listed(columns: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(columns[:8]) + (f" and {len(columns) - 8} more" if len(columns) > 8 else "")


def quoted(names: Sequence[str], which: Sequence[int]) -> str:
    """Some of the names in quotes, the last after "and"; of many the first."""
    shown = [repr(names[j]) for j in which[:SHOWN]] + ([f"{len(which) - SHOWN} more"] if len(which) > SHOWN else [])
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryTable(DataTable):
    """Columns in memory; each is checked when it is first wanted.

    held : columns as they were given
    order : of several sites, the rows sorted by site; codes : of each row in this order, the place of its site
    """

    held: Mapping[str, Any]
    order: Codes | None = None
    codes: Codes | None = None
    checked: dict[tuple[str, bool], NDArray[Any]] = field(default_factory=dict)

    def parts(self, count: int) -> list[MemoryTable]:
        """The table in at most so many parts, of whole sites each and of about as many rows."""
        if self.order is None or self.codes is None:
            return [self]
        starts = np.append(np.searchsorted(self.codes, np.arange(len(self.sites))), len(self.codes))
        places = np.linspace(0, len(self.codes), count + 1)[:-1]
        cuts = np.unique(np.searchsorted(starts[:-1], places, "right") - 1)  # each at the site that a place is in
        out = []
        for a, b in pairwise([*cuts.tolist(), len(self.sites)]):
            rows = slice(starts[a], starts[b])
            order, codes, sites = self.order[rows], self.codes[rows] - a, self.sites[a:b]
            out.append(replace(self, order=order, codes=codes, sites=sites, rows=len(order)))
        return out

    def column(self, name: str, label: bool = False) -> NDArray[Any]:
        """(n,): as numbers, or as it is."""
        if (name, label) not in self.checked:
            self.checked[name, label] = (as_labels if label else as_numbers)(self.name, name, self.held[name])
        return self.checked[name, label]

    def batches(self, columns: Sequence[str], labels: Sequence[str]) -> Iterator[Batch]:
        numbers, beside = [self.column(c) for c in columns], {c: self.column(c, True) for c in labels}
        if self.order is None or self.codes is None:
            if self.rows:
                yield 0, numbers, beside, None
            return
        step = block_rows(len(columns), NUMBERS)
        for at in range(0, len(self.order), step):
            part, codes = self.order[at : at + step], self.codes[at : at + step]
            yield part, [v[part] for v in numbers], {c: v[part] for c, v in beside.items()}, codes


def site_codes(values: NDArray[Any]) -> tuple[list[str], Codes]:
    """The sites' names in a column of any labels, and which of them each row has : (n,), -1 where there is no label."""
    codes, found = distinct(values)
    names = [name_of(label) for label in found]
    places = {name: k for k, name in enumerate(dict.fromkeys(names))}  # 1 and 1.0 are one site
    return list(places), np.array([*(places[name] for name in names), -1], np.int64)[codes]


def name_of(label: Any) -> str:
    """The name of a site from its label: whole numbers without a point, dates without a time that is midnight."""
    if isinstance(label, tuple):
        return ", ".join(map(name_of, label))
    if isinstance(label, (float, Decimal)) and math.isfinite(label) and label == int(label):
        return str(int(label))
    return str(label).removesuffix(" 00:00:00")


def in_order(names: Iterable[str]) -> list[str]:
    """Names sorted: numbers by their size, text with the numbers in it by theirs."""
    held = list(names)
    try:
        return sorted(held, key=float)
    except ValueError:
        return sorted(held, key=natural)


def natural(name: str) -> list[Any]:
    """A key to sort by: text, with the numbers in it by their size."""
    return [int(t) if k % 2 else t for k, t in enumerate(re.split(r"(\d+)", name))]


def unlabelled_rows(table: str, column: str, lacking: int, rows: int, first: int) -> SiteDataError:
    """The error for rows of no site."""
    return SiteDataError(
        f"{table}: column {column!r} must say of every row what site it is of; {lacking:,} of {rows:,} rows have no "
        f"value, the first is row {first:,}"
    )


def has_names(table: Any) -> bool:
    """Whether a table gives its columns by name: a mapping, or a data frame that narwhals knows."""
    return isinstance(table, Mapping) or _frame(table) is not None


def _frame(table: Any) -> Any:
    """A data frame (pandas, polars, Arrow, ...) as narwhals gives it, or pandas' own where there is no narwhals."""
    streams = hasattr(table, "__arrow_c_stream__")
    if not (streams or hasattr(type(table), "columns")) or isinstance(table, Log):
        return None  # a lazy frame would find its columns now
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


def from_columns(name: str, table: Any) -> MemoryTable:
    """A table of one site from a mapping of columns, or from a data frame."""
    frame: Any = table if isinstance(table, Mapping) else _frame(table)
    labels = list(table) if isinstance(table, Mapping) else list(getattr(frame, "column_names", None) or frame.columns)
    names = tuple(str(label) for label in labels)
    check_unique(name, names)
    held = frame.iter_columns() if hasattr(frame, "iter_columns") else (frame[label] for label in labels)
    columns = dict(zip(names, held, strict=True))
    shapes = {c: np.shape(v) for c, v in columns.items()}
    if not shapes:
        raise SiteDataError(f"{name} must have columns; it has none")
    first = names[0]
    for column, shape in shapes.items():
        if len(shape) != 1:
            raise SiteDataError(f"{name}: column {column!r} must be one-dimensional; got shape {shape}")
        if shape != shapes[first]:
            rule = f"{name}: all columns must have as many rows"
            raise SiteDataError(f"{rule}; {first!r} has {shapes[first][0]} and {column!r} has {shape[0]}")
    schema = getattr(frame.to_native(), "schema", None) if hasattr(frame, "to_native") else None
    typed = pandas_categories(schema)
    declared = {c: declared_levels(v, c in typed) for c, v in columns.items() if is_categorical(v)}
    return MemoryTable(
        name=name, columns=names, sites=(name,), rows=shapes[first][0], categories=declared, held=columns
    )


def check_unique(site: str, names: Sequence[str]) -> None:
    """Refuse columns of one name."""
    for column, count in Counter(names).items():
        if count > 1:
            raise SiteDataError(f"{site} must have each column once; {column!r} appears {count} times")


def refuse_index(site: str, names: Sequence[str], instead: str) -> None:
    """Refuse a column that is a data frame's index as files hold it; instead : what else helps."""
    for column in (c for c in names if INDEX.fullmatch(c)):
        raise SiteDataError(
            f"{site} has a column {'without a name' if not column else repr(column)}, as an index is written: write "
            f"the file without it (index=False), or {instead}"
        )


def from_tuple(name: str, entry: Sequence[Any], task: Task) -> MemoryTable:
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
    where = f"{site}: {what}"
    if has_names(values):
        held = dict(from_columns(where, values).held)
        if names is None or isinstance(names, str):
            refuse_index(where, list(held), "leave it out of the data frame (df[columns])")
        if isinstance(names, str):
            return {c if c.startswith(names) else f"{names}_{c}": v for c, v in held.items()}
        if names is not None and set(names) != set(held):
            raise SiteDataError(f"{where} must have the columns {', '.join(names)}; got {', '.join(held)}")
        return held
    try:
        given = np.asarray(values) if not isinstance(values, np.ma.MaskedArray) else values
    except ValueError:
        raise SiteDataError(f"{where} must have rows of one length; got {checks.show(values)}") from None
    if given.ndim not in (1, 2):
        raise SiteDataError(f"{where} must have the shape (rows, columns); got shape {given.shape}")
    wide = given if given.ndim == 2 else given[:, None]
    if isinstance(names, str) and given.ndim == 1:
        labels: Sequence[str] = [names]
    else:
        prefix = names if isinstance(names, str) else default
        numbered = [f"{prefix}{j}" for j in range(wide.shape[1])]
        labels = numbered if names is None or isinstance(names, str) else names
    if len(labels) != wide.shape[1]:
        raise SiteDataError(f"{where} must have {len(labels)} columns, as many as are named; got {wide.shape[1]}")
    if not labels:
        raise SiteDataError(f"{where} must have at least one column; got shape {given.shape}")
    return dict(zip(labels, wide.T, strict=True))


class MissingRows:
    """What is missing at sites: of how many rows some lack a value, in how many which column.

    rows, incomplete : (N,); columns : by name, in how many rows and the first of them, from 1, (N,) each
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names, zero = names, np.zeros(len(names), np.int64)
        self.rows, self.incomplete, self._pending = zero, zero.copy(), zero.copy()
        self.columns: dict[str, tuple[Codes, Codes]] = {}

    def whole(self, block: ColumnBlock, start: int = 0) -> NDArray[np.bool_] | None:
        """Count a block, whose sites count from `start`; (n,) which of its rows lack nothing, None for all."""
        n, sites = block.values.shape[1], block.sites + start
        self.rows[sites] += np.diff(np.append(block.starts, n))
        holes = {c: np.isnan(block[c]) for c in block.place} if block.holes else {}
        holes |= {c: is_missing(v) for c, v in block.labels.items()}
        lacking = np.zeros(n, np.bool_)
        for column, hole in holes.items():
            if not hole.any():
                continue
            lacking |= hole
            counts, first = self.columns.setdefault(column, (np.zeros_like(self.rows), np.zeros_like(self.rows)))
            here = np.add.reduceat(hole.astype(np.int64), block.starts)
            for c, start in zip(sites[here > 0], block.starts[here > 0], strict=True):
                first[c] = first[c] or block.row(int(start + np.argmax(hole[start:])))
            counts[sites] += here
        if not lacking.any():
            return None
        self.incomplete[sites] += np.add.reduceat(lacking.astype(np.int64), block.starts)
        return ~lacking

    def gaps(self, block: ColumnBlock, whole: NDArray[np.bool_] | None, start: int = 0) -> Codes | None:
        """(n,): rows of its site that were left out just before each row of the block that is whole."""
        n, sites = block.values.shape[1], block.sites + start
        if whole is None and not self._pending[sites].any():
            return None
        at = np.arange(n) if whole is None else np.flatnonzero(whole)
        counts = np.diff(np.append(block.starts, n))
        site = np.repeat(np.arange(len(sites)), counts)[at]
        first = np.append(True, site[1:] != site[:-1]) if len(at) else np.empty(0, np.bool_)
        before = np.append(0, at[:-1]) + 1
        out = np.where(first, at - block.starts[site] + self._pending[sites[site]], at - before)
        pending = self._pending[sites] + counts
        last = np.append(site[1:] != site[:-1], True) if len(at) else first
        pending[site[last]] = (block.starts + counts)[site[last]] - at[last] - 1
        self._pending[sites] = pending
        return np.asarray(out, np.int64)

    def text(self, instead: str = "") -> str:
        """The sentence on the sites where values are missing; instead : what can be done."""
        found = np.flatnonzero(self.incomplete).tolist()
        said = [self._site(c) for c in found[:SHOWN]]
        said += [f"{len(found) - SHOWN} more sites"] if len(found) > SHOWN else []
        have, N = "has" if len(found) == 1 else "have", len(self.names)
        what = f"{len(found):,} of {N:,} sites {have} missing values: " if N > 1 else "values are missing at "
        return what + ", ".join(said) + instead

    def _site(self, c: int) -> str:
        own = sorted(((-int(counts[c]), column) for column, (counts, _) in self.columns.items() if counts[c]))
        said = [f"{column!r} {-k:,}, first in row {self.columns[column][1][c]:,}" for k, column in own[:SHOWN]]
        said += [f"{len(own) - SHOWN} more columns"] if len(own) > SHOWN else []
        return f"{self.names[c]} in {self.incomplete[c]:,} of {self.rows[c]:,} rows ({'; '.join(said)})"


class MissingValuesError(SiteDataError):
    """Some rows lack a value."""


def complete(
    blocks: Iterator[ColumnBlock], found: MissingRows, drop: bool, start: int = 0
) -> Iterator[tuple[ColumnBlock, Codes | None]]:
    """The blocks without the rows that lack a value, which are counted in `found`, and the gaps that they leave; their
    sites count from `start`.

    Unless they are to be dropped, the first such row ends the blocks: the rest is read to count, and is an error.
    """
    here = slice(start, start)
    for block in blocks:
        here, whole = slice(start, start + len(block.names)), found.whole(block, start)
        if found.incomplete[here].any() and not drop:
            continue
        gaps = found.gaps(block, whole, start)
        if whole is None:
            yield block, gaps
        elif whole.any():
            yield block.take(np.flatnonzero(whole)), gaps
    lacking = found.incomplete[here]
    if lacking.any() and not drop:
        raise MissingValuesError(found.text())
    for c in np.flatnonzero((lacking > 0) & (lacking == found.rows[here])).tolist():
        one = found._site(start + c)
        raise SiteDataError(
            f"{found.names[start + c]} must have a row without a missing value; values are missing at {one}"
        )
