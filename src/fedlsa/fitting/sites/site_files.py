"""Sites in files: Parquet or CSV, read in pieces.

Files are read in blocks, wanted columns alone; after an error in a CSV file a slow and careful reader says which row it
was.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from ...errors import MissingExtraError, SiteDataError
from .arrays import NUMBERS, ROWS, ColumnBlock, blocks, check_unique, piece_rows
from .conversion import from_array, from_arrow, is_categorical, labels_from_arrow
from .csv_files import CsvDialect, csv_batches, explain_csv, open_csv

PARQUET, CSV = "a Parquet file", "a CSV file"
KINDS = {".parquet": PARQUET, ".pq": PARQUET, ".csv": CSV, ".csv.gz": CSV, ".tsv": CSV, ".tsv.gz": CSV}
BUFFER = 2**18  # bytes of a column of a Parquet file that are read at a time
GROUP = 2**22  # numbers of a row group that is read as a whole, at most
SMALL_GROUP = 2**13  # rows, on average: groups below are read many at a time
COMMAS = CsvDialect()
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # what a folder is called whose rows have no value


@dataclass(frozen=True, eq=False)
class FileSite:
    """A site in a file.

    dialect : how a CSV file is written; groups : rows of each row group of a Parquet file
    categories : columns that a Parquet file declares as such
    fixed : columns that the file does not hold, with the one value that all rows have, as the names of folders give it
    """

    name: str
    path: Path
    kind: str
    columns: tuple[str, ...] = ()
    rows: int | None = None
    dialect: CsvDialect = COMMAS
    groups: tuple[int, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)
    split_by: str | None = None
    categories: frozenset[str] = frozenset()

    def pieces(self, columns: Sequence[str], rows: int = ROWS, labels: Sequence[str] = ()) -> Iterator[ColumnBlock]:
        """The columns, at most `rows` rows at a time."""
        for start, batch in self.located(columns, labels):
            numbers, beside = self.decoded(batch, columns, labels, start)
            yield from blocks(self.name, columns, numbers, rows, start, beside)

    def located(
        self,
        columns: Sequence[str],
        labels: Sequence[str],
        texts: Sequence[str] = (),
        groups: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Batches of Arrow with the columns, not empty, each with its first row; texts : columns that are read as text.

        groups : those of a Parquet file that are wanted, by default all
        """
        from pyarrow import ArrowException

        numbers, beside = ([c for c in some if c not in self.fixed] for some in (columns, labels))
        if not (numbers or beside or texts):  # only how many rows there are
            texts = [c for c in self.columns if c not in self.fixed][:1]
        try:
            if self.kind == PARQUET:
                found = _parquet_batches(self, tuple(dict.fromkeys((*numbers, *beside, *texts))), groups)
            else:
                found = _numbered(csv_batches(self.path, self.dialect, numbers, beside, texts))
            yield from ((start, batch) for start, batch in found if len(batch))
        except (OSError, ArrowException) as error:
            raise _explained(self, error, numbers, (*beside, *texts)) from error

    def decoded(
        self, batch: Any, columns: Sequence[str], labels: Sequence[str], start: int
    ) -> tuple[list[NDArray[Any]], dict[str, NDArray[Any]]]:
        """Columns of a batch as numbers, and labels as they are; start : its first row."""
        n = len(batch)
        numbers = [
            from_arrow(self.name, c, batch.column(c), start)
            if c not in self.fixed
            else from_array(self.name, c, np.full(n, fixed_value(self.fixed[c])))
            for c in columns
        ]
        beside = {
            c: labels_from_arrow(batch.column(c)) if c not in self.fixed else np.full(n, fixed_value(self.fixed[c]))
            for c in labels
        }
        return numbers, beside


def fixed_value(text: str) -> Any:
    """What a folder's name gives its rows: a number, text, or None where it says that there is none."""
    if text == NO_PARTITION:
        return None
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def open_file(name: str, path: Path, fixed: Mapping[str, str] | None = None) -> FileSite:
    """The site in a file, of the kind that its name ends in; only its beginning or its footer is read.

    fixed : columns that all rows have the same value of, beside those in the file
    """
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
    blank = FileSite(name, path, kind)
    try:
        site = _open_parquet(blank) if kind == PARQUET else _open_csv(blank)
    except ImportError:
        raise MissingExtraError("site files need pyarrow: pip install 'fedlsa[data]'") from None
    check_unique(name, site.columns)
    more = {c: text for c, text in (fixed or {}).items() if c not in site.columns}
    return replace(site, columns=(*site.columns, *more), fixed=more) if more else site


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


def open_partitioned(name: str, path: Path) -> FileSite:
    """A file with the values that folders give its rows: firm=3/part.parquet is of firm 3."""
    found = (re.fullmatch(r"([^=]+)=(.*)", part) for part in Path(name).parts[:-1])
    return open_file(name, path, {match[1]: unquote(match[2]) for match in found if match})


def _open_parquet(blank: FileSite) -> FileSite:
    from pyarrow import ArrowException

    try:
        with _parquet(blank.path) as file:
            schema = file.schema_arrow
            pandas = (schema.pandas_metadata or {}).get("columns", ())  # of its categories that are numbers
            typed = {c["name"] for c in pandas if c.get("pandas_type") == "categorical"}
            return replace(
                blank,
                columns=tuple(schema.names),
                rows=file.metadata.num_rows,
                groups=tuple(file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)),
                categories=frozenset(f.name for f in schema if f.name in typed or is_categorical(f)),
            )
    except (OSError, ValueError, ArrowException) as error:
        raise _unreadable(blank, error) from error


def _open_csv(blank: FileSite) -> FileSite:
    from pyarrow import ArrowException

    try:
        columns, dialect = open_csv(blank.name, blank.path)
    except SiteDataError:
        raise
    except (OSError, ValueError, ArrowException) as error:
        raise _explained(blank, error) from error
    return replace(blank, columns=columns, dialect=dialect)


def _parquet(path: Path) -> Any:
    from pyarrow.parquet import ParquetFile

    return ParquetFile(path, pre_buffer=False, buffer_size=BUFFER)


def _parquet_batches(site: FileSite, columns: Sequence[str], chosen: Sequence[int] | None) -> Iterator[tuple[int, Any]]:
    """Row groups, column after column, for a column being read holds buffers; in batches where groups are too large for
    memory, or so small that calls would cost more than reading. Each with its first row."""
    from pyarrow import RecordBatch

    groups, step = site.groups, piece_rows(len(columns), NUMBERS)
    starts = [0, *accumulate(groups)]
    with _parquet(site.path) as file:  # sites are read in threads, which a second layer of threads would only disturb
        if chosen is None and (not groups or sum(groups) < SMALL_GROUP * len(groups)):
            yield from _numbered(file.iter_batches(step, columns=list(columns), use_threads=False))
            return
        for g in range(len(groups)) if chosen is None else chosen:
            if groups[g] * len(columns) > GROUP:
                batches = file.iter_batches(step, [g], list(columns), use_threads=False)
                yield from _numbered(batches, starts[g])
            else:
                tables = (file.read_row_group(g, columns=[c], use_threads=False) for c in columns)
                yield starts[g], RecordBatch.from_arrays([t.column(0).combine_chunks() for t in tables], list(columns))


def _numbered(batches: Iterable[Any], start: int = 0) -> Iterator[tuple[int, Any]]:
    """Batches, each with its first row."""
    for batch in batches:
        yield start, batch
        start += len(batch)


def _explained(
    site: FileSite, error: Exception, columns: Sequence[str] = (), labels: Sequence[str] = ()
) -> SiteDataError:
    """What is wrong with a file: of a CSV file, found by reading it again, row by row."""
    if site.kind == PARQUET:
        return _unreadable(site, error)
    try:
        return explain_csv(site.name, site.path, site.dialect, columns, labels) or _unreadable(site, error)
    except (OSError, ValueError, csv.Error):
        return _unreadable(site, error)


def _unreadable(site: FileSite, error: Exception) -> SiteDataError:
    """The error for a file that is not what its name says, with the first line of the reason."""
    named = isinstance(error, UnicodeEncodeError)  # by bytes that are no text
    reason = "its name is not UTF-8" if named else (str(error).splitlines() or [""])[0].rstrip(". ")
    return SiteDataError(f"{site.name} cannot be read as {site.kind}: {reason[:200] or type(error).__name__}")
