"""Tables in files, read in pieces: Parquet, and CSV as people have it (csv_files.py).

One file is a site; or files, and folders called key=value, hold the rows of many, which a column tells apart. Wanted
columns alone are read; a site's rows may be spread over all files, which are read once, whatever their order.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..errors import MissingExtraError, SiteDataError
from . import tables
from .csv_files import CsvDialect, csv_batches, csv_numbers, explain_csv, open_csv
from .formulas import typed_labels
from .tables import NUMBERS, Batch, Codes, DataTable, Declared, as_labels, block_rows, check_unique, distinct, name_of

PARQUET, CSV = "a Parquet file", "a CSV file"
KINDS = {".parquet": PARQUET, ".pq": PARQUET, ".csv": CSV, ".csv.gz": CSV, ".tsv": CSV, ".tsv.gz": CSV}
BUFFER = 2**18  # bytes of a column of a Parquet file that are read at a time
GROUP = 2**22  # numbers of a row group that is read as a whole, at most
SMALL_GROUP = 2**13  # rows, on average: groups below are read many at a time
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # what a folder is called whose rows have no value
DECIMAL_MARKS = (".", ",")


@dataclass(frozen=True, eq=False)
class DataFile:
    """One file; dialect : how a CSV file is written; groups : rows of each row group of a Parquet file.

    fixed : columns that the file does not hold, with the one value that all rows have, as the names of folders give it
    """

    name: str
    path: Path
    kind: str
    columns: tuple[str, ...] = ()
    rows: int | None = None
    dialect: CsvDialect = field(default_factory=CsvDialect)
    groups: tuple[int, ...] = ()
    fixed: Mapping[str, str | None] = field(default_factory=dict)
    categories: Declared = field(default_factory=dict)

    def batches(self, columns: Sequence[str], labels: Sequence[str]) -> Iterator[tuple[int, int, Any]]:
        """Batches of Arrow with the columns, not empty, each with its first row and how many it has."""
        from pyarrow import ArrowException

        numbers, texts = ([c for c in some if c not in self.fixed] for some in (columns, labels))
        if not (numbers or texts):  # only how many rows there are
            texts = [c for c in self.columns if c not in self.fixed][:1]
        self.dialect.check(self.name, numbers)
        start = 0
        try:
            if self.kind == PARQUET:
                found = self._parquet_batches(tuple(dict.fromkeys((*numbers, *texts))))
            else:
                found = csv_batches(self.path, self.dialect, numbers, texts)
            for batch in found:
                if len(batch):
                    yield start, len(batch), batch
                start += len(batch)
        except (OSError, ArrowException) as error:
            raise self.explained(error, numbers, texts) from error

    def _parquet_batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Row groups, column after column, for a column being read holds buffers; in batches where groups are too
        large for memory, or so small that calls would cost more than reading."""
        from pyarrow import RecordBatch

        step = block_rows(len(columns), NUMBERS)
        with _parquet(self.path) as file:  # files are read in threads, which a second layer of threads only disturbs
            if not self.groups or sum(self.groups) < SMALL_GROUP * len(self.groups):
                yield from file.iter_batches(step, columns=list(columns), use_threads=False)
                return
            for g, rows in enumerate(self.groups):
                if rows * len(columns) > GROUP:
                    yield from file.iter_batches(step, [g], list(columns), use_threads=False)
                else:
                    parts = (file.read_row_group(g, columns=[c], use_threads=False) for c in columns)
                    yield RecordBatch.from_arrays([t.column(0).combine_chunks() for t in parts], list(columns))

    def number(self, batch: Any, n: int, column: str, start: int) -> NDArray[Any]:
        """A column of a batch as numbers : (n,)."""
        if column not in self.fixed:
            values = batch.column(column)
            if self.kind == CSV and values.type == "string":
                try:
                    values = csv_numbers(values, self.dialect, column)
                except ValueError as error:
                    raise self.explained(error, [column]) from error
            return _from_arrow(self.name, column, values, start)
        text = self.fixed[column]
        try:
            return np.full(n, np.nan if text is None else float(text))
        except ValueError:
            raise tables.not_a_number(self.name, column, repr(text), start) from None

    def label(self, batch: Any, n: int, column: str) -> NDArray[Any]:
        """A column of a batch as it is : (n,)."""
        if column not in self.fixed:
            return as_labels(self.name, column, batch.column(column))
        return np.full(n, self.fixed[column], object)

    def explained(self, error: Exception, columns: Sequence[str] = (), labels: Sequence[str] = ()) -> SiteDataError:
        """What is wrong with a file: of a CSV file, found by reading it again, row by row."""
        found = None
        if self.kind == CSV:
            with contextlib.suppress(OSError, ValueError, csv.Error):
                found = explain_csv(self.name, self.path, self.dialect, columns, labels)
        named = isinstance(error, UnicodeEncodeError)  # by bytes that are no text
        reason = "its name is not UTF-8" if named else (str(error).splitlines() or [""])[0].rstrip(". ")
        what = f"{self.name} cannot be read as {self.kind}: {reason[:200] or type(error).__name__}"
        return found or SiteDataError(what)


@dataclass(frozen=True, eq=False, kw_only=True)
class FileTable(DataTable):
    """Rows in one or several files; places : of what stands in the column of the sites' names, in `sites`."""

    files: tuple[DataFile, ...]
    places: Mapping[Any, int] = field(default_factory=dict)

    def batches(self, columns: Sequence[str], labels: Sequence[str]) -> Iterator[Batch]:
        by = () if self.split_by is None else (self.split_by,)
        before = 0
        for file in self.files:
            start = n = 0
            for start, n, batch in file.batches(columns, (*labels, *by)):
                numbers = [file.number(batch, n, c, start) for c in columns]
                texts = {c: file.label(batch, n, c) for c in labels}
                codes = None if self.split_by is None else self._codes(file.label(batch, n, self.split_by))
                yield before + start, numbers, texts, codes
            before += start + n

    def is_text(self, column: str) -> bool | None:
        found = [f.dialect.is_text(f.name, column) for f in self.files if f.kind == CSV and column not in f.fixed]
        return any(found) if found else None

    def _codes(self, labels: NDArray[Any]) -> Codes:
        codes, found = distinct(labels)
        places = np.array([*(self.places.get(label, -1) for label in found), -1], np.int64)[codes]
        if len(places) and places.min() < 0:
            raise SiteDataError(f"{self.name} must not change while it is read; it has rows of sites that it had not")
        return places


def open_file(name: str, path: Path, decimal: str | None = None) -> FileTable:
    """The site in a file; only its beginning or its footer is read. decimal : the mark of a CSV file."""
    file = _open(name, path, decimal)
    columns, untyped = file.columns, frozenset(file.columns if file.kind == CSV else ())
    about: dict[str, Any] = {"rows": file.rows, "categories": file.categories, "untyped": untyped}
    return FileTable(name=name, columns=columns, sites=(name,), files=(file,), **about)


def open_split(paths: Sequence[tuple[str, Path]], site: str, decimal: str | None = None) -> FileTable:
    """Files that hold the rows of many sites, by a column, or by the key of folders called key=value.

    A first pass over that column finds the sites.
    """
    files = [_open_partitioned(name, path, decimal) for name, path in paths]
    members = [DataTable(name=f.name, columns=f.columns, split_by=site, categories=f.categories) for f in files]
    for member in members:
        member.require(site, ", which is to say what site a row is of")
    counts: dict[Any, int] = {}
    for file in files:
        _count_labels(file, site, counts)
    typed = typed_labels(label for label in counts if isinstance(label, str))
    order, places = tables.sites_by_label({label: name_of(typed.get(label, label)) for label in counts})
    untyped = frozenset(c for f in files for c in f.columns if f.kind == CSV or c in f.fixed)
    return FileTable(
        name=files[0].name,
        columns=files[0].columns,
        sites=order,
        rows=sum(counts.values()),
        split_by=site,
        categories={c: declared for f in reversed(files) for c, declared in f.categories.items()},
        untyped=untyped,
        members=tuple(members),
        files=tuple(files),
        places=places,
    )


def _count_labels(file: DataFile, column: str, counts: dict[Any, int]) -> None:
    """How many rows of a file have each label; a row without one is an error."""
    rows = lacking = first = 0
    for _, n, batch in file.batches((), (column,)):
        codes, found = distinct(file.label(batch, n, column))
        missing = codes < 0
        first = first if lacking or not missing.any() else rows + int(np.argmax(missing)) + 1
        lacking, rows = lacking + int(missing.sum()), rows + n
        for label, count in zip(found, np.bincount(codes[~missing], minlength=len(found)).tolist(), strict=True):
            counts[label] = counts.get(label, 0) + count
    if lacking:
        raise tables.unlabelled_error(file.name, column, lacking, rows, first)
    if not rows:
        raise SiteDataError(f"{file.name} must have at least one row; it has none")


def files_of(path: Path) -> dict[str, Path]:
    """The Parquet and CSV files in a folder and below, by their path in it; hidden ones are left out."""
    found = {}
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path)
        hidden = any(part.startswith((".", "_")) for part in inside.parts)
        if not hidden and file.name.lower().endswith(tuple(KINDS)) and file.is_file():
            found[inside.as_posix()] = file
    if not found:
        raise SiteDataError(f"{path} must hold files that end in {', '.join(KINDS)}; it holds none")
    return found


def _open_partitioned(name: str, path: Path, decimal: str | None) -> DataFile:
    """A file with the values that folders give its rows: firm=3/part.parquet is of firm 3."""
    file = _open(name, path, decimal)
    found = [match for part in Path(name).parts[:-1] if (match := re.fullmatch(r"([^=]+)=(.*)", part))]
    fixed = {m[1]: None if m[2] == NO_PARTITION else unquote(m[2]) for m in found if m[1] not in file.columns}
    return replace(file, columns=(*file.columns, *fixed), fixed=fixed)


def _open(name: str, path: Path, decimal: str | None) -> DataFile:
    """A file of the kind that its name ends in."""
    kind = next((kind for end, kind in KINDS.items() if path.name.lower().endswith(end)), None)
    try:
        if path.is_dir():
            raise SiteDataError(f"{name} must be a file; it is a folder")
        if not path.exists():
            raise SiteDataError(f"{path} does not exist")
        if kind is None:
            raise SiteDataError(f"{name} must be a Parquet or CSV file, ending in {', '.join(KINDS)}")
        if path.stat().st_size == 0:
            raise SiteDataError(f"{name} must have at least one row; it is empty")
        path.open("rb").close()
    except OSError as error:
        raise SiteDataError(f"{name} cannot be read: {error.strerror or error}") from None
    file = DataFile(name, path, kind)
    try:
        from pyarrow import ArrowException
    except ImportError:
        raise MissingExtraError("site files need pyarrow: pip install 'fedlsa[data]'") from None
    try:
        if kind == PARQUET:
            file = _open_parquet(file)
        else:
            columns, dialect = open_csv(name, path, decimal)
            file = replace(file, columns=columns, dialect=dialect)
    except (OSError, ValueError, ArrowException) as error:
        if isinstance(error, SiteDataError):
            raise
        raise file.explained(error) from error
    check_unique(name, file.columns)
    return file


def _open_parquet(file: DataFile) -> DataFile:
    with _parquet(file.path) as opened:
        schema, about = opened.schema_arrow, opened.metadata
        typed = tables.pandas_categories(schema)
        categories: dict[str, Any] = {f.name: None for f in schema if f.name in typed or tables.is_categorical(f)}
        ordered = [f.name for f in schema if tables.is_categorical(f) and (f.name in typed or f.type.ordered)]
        if ordered and about.num_row_groups:  # a dictionary has its levels in the declared order
            group = opened.read_row_group(0, columns=ordered)
            categories |= {c: tables.declared_levels(group[c], True) for c in ordered}
        groups = tuple(about.row_group(g).num_rows for g in range(opened.num_row_groups))
        return replace(file, columns=tuple(schema.names), rows=about.num_rows, groups=groups, categories=categories)


def _parquet(path: Path) -> Any:
    from pyarrow.parquet import ParquetFile

    return ParquetFile(path, pre_buffer=False, buffer_size=BUFFER)


def _from_arrow(site: str, column: str, values: Any, start: int) -> NDArray[Any]:
    """An Arrow array of numbers, (n,), NaN where missing; start : the row of the first, counted from 0."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind):
        return np.full(len(values), np.nan)
    if pa.types.is_decimal(kind) or (pa.types.is_boolean(kind) and values.null_count):
        values = values.cast(pa.float64(), safe=False)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        there = values.is_valid().to_numpy(zero_copy_only=False)
        if not there.any():
            return np.full(len(values), np.nan)
        first = int(np.argmax(there))
        raise tables.not_a_number(site, column, f"{tables.show_value(values[first].as_py())} ({kind})", start + first)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def columns_of(path: Any) -> list[str]:
    """The names of the columns of a site's file, Parquet or CSV, of which only the beginning or the footer is read.

    path : of the file
    """
    file = checks.path("path", path)
    return list(open_file(file.name, file).columns)


def text_columns_of(path: Any) -> list[str]:
    """The columns of a site's file that hold no numbers at its beginning: a formula takes them as categories, C(name).

    path : of the file
    """
    import pyarrow as pa

    file = checks.path("path", path)
    opened = _open(file.name, file, None)
    if opened.kind == CSV:
        return [c for c in opened.columns if c not in opened.dialect.decimals and c not in opened.dialect.flags]
    with _parquet(file) as parquet:
        kinds = {f.name: f.type for f in parquet.schema_arrow}
    kinds = {c: kind.value_type if pa.types.is_dictionary(kind) else kind for c, kind in kinds.items()}
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return [c for c, kind in kinds.items() if not any(test(kind) for test in tests)]
