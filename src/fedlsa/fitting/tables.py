"""Whatever a fit takes as data, as tables of named columns: rows come in blocks, those of one site side by side.

Columns are numbers (float64, NaN where a value is missing) or labels, which stay what they are. Infinities are errors
everywhere. Rows that lack a value which a task needs are counted and refused, or left out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import SiteDataError

NUMBERS = 2**21  # that a block holds at most, as long as it has some hundred rows
CACHED_NUMBERS = 2**17  # of a block that sums over it find in the cache
ROWS = 2**16  # of a block, at most
FIRST_ROWS = 256  # that mostly show whether a column is a category
INDEX = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")  # what a data frame's index is called in a file
MEMORY = 6e8  # bytes of rows that are kept between passes. Larger files are read again: then a fit takes less than 1 GB
SHOWN = 6  # sites, and columns of a site, that an error names
Codes = NDArray[np.int64]
Declared = Mapping[str, tuple[Any, ...] | None]  # categories by their type: their levels in order, None for no order
Batch = tuple[int | Codes, list[NDArray[Any]], dict[str, NDArray[Any]], Codes | None]


def as_numbers(site: str, column: str, values: Any, start: int = 0) -> Floats:
    """A column of anything that NumPy, narwhals or Arrow reads, (n,), NaN where missing; text and dates are refused.

    start : where its first row stands
    """
    given = plain_array(site, column, values)
    if given.dtype.kind in "fiub" and given.ndim == 1:
        with np.errstate(over="ignore"):  # beyond float64 is infinite, which is refused later
            return given.astype(np.float64, copy=False)
    if given.dtype.kind != "O" and not len(given):
        raise SiteDataError(f"{site}: column {column!r} must hold numbers; got dtype {given.dtype}")
    out = np.empty(len(given))
    given = given.astype(f"{given.dtype.kind}8[us]") if given.dtype in ("M8[ns]", "m8[ns]") else given
    for i, (entry, lacks) in enumerate(zip(given.tolist(), is_missing(given), strict=True)):
        try:
            # dates that Python does not have, such as those after the year 9999, come as integers
            if isinstance(entry, (str, bytes)) or (given.dtype.kind != "O" and not lacks):
                raise TypeError
            out[i] = np.nan if lacks else float(entry)
        except (TypeError, ValueError, OverflowError):
            is_dictionary = hasattr(values, "dictionary_decode")  # of Arrow
            kind = values.type.value_type if is_dictionary else getattr(values, "type", None)
            got = show_value(given[i] if isinstance(entry, int) else entry)
            raise not_a_number(site, column, got if kind is None else f"{got} ({kind})", start + i) from None
    return out


def as_labels(site: str, column: str, values: Any) -> NDArray[Any]:
    """A column of anything as labels, (n,), which stay what they are; lists and structures are refused."""
    from pandas.api.types import infer_dtype

    given = plain_array(site, column, values, True)
    nested = [given[0].tolist()] if given.ndim > 1 and len(given) else []
    if given.dtype.kind == "O" and infer_dtype(given) == "mixed":  # neither text nor numbers nor dates alone
        nested = [v for v in given.tolist() if isinstance(v, (list, dict, set, np.ndarray))]
    if nested:
        rule = f"{site}: column {column!r} must hold one value in each row, as a label"
        raise SiteDataError(f"{rule}; got {show_value(nested[0])}")
    return given


def distinct(labels: NDArray[Any]) -> tuple[NDArray[np.intp], list[Any]]:
    """(n,): places of labels among those that there are, -1 where one is missing; and these."""
    import pandas as pd

    codes, found = pd.factorize(labels)
    return codes, (pd.Index(found) if found.dtype.kind in "mM" else found).tolist()  # dates stay dates


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,): which labels are missing: None, NaN, NaT or pandas' NA."""
    import pandas as pd

    return np.asarray(pd.isna(values), np.bool_)


def not_a_number(site: str, column: str, got: str, row: int) -> SiteDataError:
    """The error for an entry of another kind; row counts from 0, in the message from 1, the header left out."""
    return SiteDataError(f"{site}: column {column!r} must hold numbers; got {got} in row {row + 1} of the data")


def show_value(value: Any) -> str:
    """Text in quotes, dates as they are written."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return checks.show(value) if isinstance(value, (str, bytes, list, dict, complex)) else str(value)


def plain_array(site: str, column: str, values: Any, labels: bool = False) -> NDArray[Any]:
    """A column as an array; missing entries are NaN, NaT or None. labels : integers stay integers where some are
    missing, and all are then objects."""
    if isinstance(values, np.ma.MaskedArray):
        hidden, plain = np.ma.getmaskarray(values), np.asarray(values.data)
        if hidden.any():
            plain = plain.astype(object)
            plain[hidden] = None
        return plain
    if hasattr(values, "dictionary_decode"):
        values = values.dictionary_decode()
    nulls, dtype = getattr(values, "null_count", 0), getattr(values, "dtype", None)
    is_number = getattr(dtype, "is_float", bool)() or getattr(dtype, "is_integer", bool)() or hasattr(values, "type")
    too_wide = type(dtype).__name__ in ("Int128", "UInt128")  # for NumPy
    try:
        if too_wide or ((nulls() if callable(nulls) else nulls) and (labels or not is_number)):
            entries = values.to_pylist() if hasattr(values, "to_pylist") else values.to_list()
            out = np.empty(len(entries), object)
            out[:] = entries
            return out
        return np.asarray(values)  # which reads other missing values rightly
    except ValueError as error:  # of Arrow: times of day with nanoseconds
        raise SiteDataError(f"{site}: column {column!r} must hold values that Python has; {error}") from None


def is_categorical(values: Any) -> bool:
    """Whether a column of a table is a category by its type: pandas' category, polars' Enum, a dictionary of Arrow."""
    kind = getattr(values, "dtype", getattr(values, "type", None))
    return type(kind).__name__ in ("CategoricalDtype", "Categorical", "Enum", "DictionaryType")


def declared_levels(values: Any, by_pandas: bool = False) -> tuple[Any, ...] | None:
    """The levels of a categorical column in the order that its type declares: of pandas' category, polars' Enum, and
    ordered dictionaries of Arrow; None for others. by_pandas : whether pandas made a dictionary of its category."""
    values = values.to_native() if hasattr(values, "to_native") else values
    kind: Any = getattr(values, "dtype", getattr(values, "type", None))
    if type(kind).__name__ in ("CategoricalDtype", "Enum"):
        return tuple(kind.categories.to_list())
    if type(kind).__name__ != "DictionaryType" or not (kind.ordered or by_pandas):
        return None
    if hasattr(values, "unify_dictionaries"):
        values = values.unify_dictionaries().combine_chunks()
    return tuple(values.dictionary.to_pylist())


def pandas_categories(schema: Any) -> set[str]:
    """The columns of an Arrow schema that were categories of pandas, numbers or not."""
    columns = (getattr(schema, "pandas_metadata", None) or {}).get("columns", ())
    return {c["name"] for c in columns if c.get("pandas_type") == "categorical"}


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
    """Where sorted codes change, the first included."""
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
        for rows, numbers, texts, codes in self.batches(columns, labels):
            n = len(numbers[0]) if numbers else len(next(iter(texts.values())))
            order = None
            if codes is not None and (np.diff(codes) < 0).any():
                order = np.argsort(codes, kind="stable")
                codes, rows = codes[order], rows + order if isinstance(rows, int) else rows[order]
                texts = {c: v[order] for c, v in texts.items()}
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
                holes = suspect and bool(np.isnan(block).any())
                some = {c: v[part] for c, v in texts.items()}
                out = ColumnBlock(place, block, some, here, holes, self.sites, sites, starts)
                for column in columns if suspect else ():
                    out.refuse(np.isinf(out[column]), column, out[column], "finite numbers")
                yield out

    def which_are_categories(self, columns: Sequence[str]) -> dict[str, bool | None]:
        """Whether columns hold text, or true and false, as their first values say; None where all are missing."""
        found: dict[str, bool | None] = dict.fromkeys(columns)
        for block in self.blocks((), FIRST_ROWS, columns) if columns else ():
            for column in (c for c, known in found.items() if known is None):
                there = block.labels[column][~is_missing(block.labels[column])]
                found[column] = isinstance(there[:1].tolist()[0], (str, bytes, bool)) if len(there) else None
            if None not in found.values():
                break
        return found

    def require(self, column: str, why: str = "") -> None:
        """Refuse a table that lacks the column, and offer the nearest name."""
        if column not in self.columns:
            hint = checks.did_you_mean(column, self.columns) or f"; it has {listed(self.columns)}"
            raise SiteDataError(f"{self.name} has no column {column!r}{why}{hint}")


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryTable(DataTable):
    """Columns in memory; each is checked when it is first wanted.

    given : columns as they were given
    order : of several sites, the rows sorted by site; codes : of each row in this order, the place of its site
    """

    given: Mapping[str, Any]
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
            self.checked[name, label] = (as_labels if label else as_numbers)(self.name, name, self.given[name])
        return self.checked[name, label]

    def batches(self, columns: Sequence[str], labels: Sequence[str]) -> Iterator[Batch]:
        numbers, texts = [self.column(c) for c in columns], {c: self.column(c, True) for c in labels}
        if self.order is None or self.codes is None:
            if self.rows:
                yield 0, numbers, texts, None
            return
        step = block_rows(len(columns), NUMBERS)
        for at in range(0, len(self.order), step):
            part, codes = self.order[at : at + step], self.codes[at : at + step]
            yield part, [v[part] for v in numbers], {c: v[part] for c, v in texts.items()}, codes


def listed(columns: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(columns[:8]) + (f" and {len(columns) - 8} more" if len(columns) > 8 else "")


def quoted(names: Sequence[str], which: Sequence[int]) -> str:
    """Some of the names in quotes, the last after "and"; of many the first."""
    shown = _some([repr(names[j]) for j in which])
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _some(texts: list[str], what: str = "") -> list[str]:
    """The first, and how many more there are of what."""
    return texts if len(texts) <= SHOWN else [*texts[:SHOWN], f"{len(texts) - SHOWN} more {what}".rstrip()]


def name_of(label: Any) -> str:
    """The name of a site from its label: whole numbers without a point, dates without a time that is midnight."""
    if isinstance(label, tuple):
        return ", ".join(map(name_of, label))
    if isinstance(label, (float, Decimal)) and math.isfinite(label) and label == int(label):
        return str(int(label))
    return str(label).removesuffix(" 00:00:00")


def sites_by_label(names: Mapping[Any, str]) -> tuple[tuple[str, ...], dict[Any, int]]:
    """The names of sites in order, numbers by their size, also those in text; and the place of each label's site."""
    order = list(dict.fromkeys(names.values()))
    try:
        order.sort(key=Decimal)  # floating point would not tell long numbers apart
    except InvalidOperation:
        order.sort(key=natural)
    place = {name: k for k, name in enumerate(order)}
    return tuple(order), {label: place[name] for label, name in names.items()}


def natural(name: str) -> list[Any]:
    """A key to sort by: text, with the numbers in it by their size."""
    return [int(t) if k % 2 else t for k, t in enumerate(re.split(r"(\d+)", name))]


def unlabelled_error(table: str, column: str, lacking: int, rows: int, first: int) -> SiteDataError:
    return SiteDataError(
        f"{table}: column {column!r} must say of every row what site it is of; {lacking:,} of {rows:,} rows have no "
        f"value, the first is row {first:,}"
    )


def check_unique(site: str, names: Sequence[str]) -> None:
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


class MissingValuesError(SiteDataError):
    """Some rows lack a value."""


class MissingRows:
    """What is missing at N sites: of how many rows some lack a value, in how many which column.

    rows, incomplete : (N,); columns : by name, in how many rows and the first of them, from 1, (N,) each
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.rows, self.incomplete, self._skipped = (np.zeros(len(names), np.int64) for _ in range(3))
        self.columns: dict[str, tuple[Codes, Codes]] = {}

    def complete_rows(self, block: ColumnBlock, start: int = 0) -> NDArray[np.bool_] | None:
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
            for c, begin in zip(sites[here > 0], block.starts[here > 0], strict=True):
                first[c] = first[c] or block.row(int(begin + np.argmax(hole[begin:])))
            counts[sites] += here
        if not lacking.any():
            return None
        self.incomplete[sites] += np.add.reduceat(lacking.astype(np.int64), block.starts)
        return ~lacking

    def gaps(self, block: ColumnBlock, complete: NDArray[np.bool_] | None, start: int = 0) -> Codes | None:
        """(n,): rows of its site that were left out just before each row of the block that is complete."""
        n, sites = block.values.shape[1], block.sites + start
        if complete is None and not self._skipped[sites].any():
            return None
        at = np.arange(n) if complete is None else np.flatnonzero(complete)
        site = np.searchsorted(block.starts, at, "right") - 1
        last = block.starts - 1 - self._skipped[sites]  # where each site's last row stands that was not left out
        before = np.where(np.diff(site, prepend=-1) > 0, last[site], np.append(-1, at[:-1]))
        last[site] = at
        self._skipped[sites] = np.append(block.starts[1:], n) - 1 - last
        return np.asarray(at - before - 1, np.int64)

    def refuse_lost_sites(self, here: slice) -> None:
        """Refuse those of these sites of which no row is left."""
        lost = (self.incomplete > 0) & (self.incomplete == self.rows)
        for c in (here.start + np.flatnonzero(lost[here])).tolist():
            rule = f"{self.names[c]} must have a row without a missing value, or the column, or the site, be left out"
            raise SiteDataError(f"{rule}; values are missing at {self.text_of(c)}")

    def text(self, instead: str = "") -> str:
        """The sentence on the sites where values are missing; instead : what can be done."""
        found, N = np.flatnonzero(self.incomplete).tolist(), len(self.names)
        have = "has" if len(found) == 1 else "have"
        what = f"{len(found):,} of {N:,} sites {have} missing values: " if N > 1 else "values are missing at "
        return what + ", ".join(_some([self.text_of(c) for c in found], "sites")) + instead

    def text_of(self, c: int) -> str:
        columns = sorted(((-int(counts[c]), column) for column, (counts, _) in self.columns.items() if counts[c]))
        first = {column: f", first in row {rows[c]:,}" if rows[c] else "" for column, (_, rows) in self.columns.items()}
        about = [f"{column!r} {-k:,}{first[column]}" for k, column in columns]
        some = "; ".join(_some(about, "columns"))
        return f"{self.names[c]} in {self.incomplete[c]:,} of {self.rows[c]:,} rows ({some})"


def drop_incomplete(
    blocks: Iterator[ColumnBlock], found: MissingRows, drop: bool, start: int = 0
) -> Iterator[tuple[ColumnBlock, Codes | None]]:
    """The blocks without the rows that lack a value, which are counted in `found`, and the gaps that they leave; their
    sites count from `start`.

    Unless they are to be dropped, the first such row ends the blocks: the rest is read to count, and is an error.
    """
    here = slice(start, start)
    for block in blocks:
        here, kept = slice(start, start + len(block.names)), found.complete_rows(block, start)
        if found.incomplete[here].any() and not drop:
            continue
        gaps = found.gaps(block, kept, start)
        if kept is None:
            yield block, gaps
        elif kept.any():
            yield block.take(np.flatnonzero(kept)), gaps
    lacking = found.incomplete[here]
    if lacking.any() and not drop:
        raise MissingValuesError(found.text())
    found.refuse_lost_sites(here)
