"""Sites in files: Parquet or CSV, read in pieces.

Files are read in blocks, wanted columns alone; after an error in a CSV file a slow and careful reader says which row it
was.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MissingExtraError, SiteDataError
from .arrays import NUMBERS, ROWS, ColumnBlock, blocks, check_unique, piece_rows
from .conversion import from_arrow, is_categorical, labels_from_arrow
from .csv_files import CsvDialect, csv_batches, explain_csv, open_csv

PARQUET, CSV = "a Parquet file", "a CSV file"
KINDS = {".parquet": PARQUET, ".pq": PARQUET, ".csv": CSV, ".csv.gz": CSV, ".tsv": CSV, ".tsv.gz": CSV}
BUFFER = 2**18  # bytes of a column of a Parquet file that are read at a time
GROUP = 2**22  # numbers of a row group that is read as a whole, at most
SMALL_GROUP = 2**13  # rows, on average: groups below are read many at a time
COMMAS = CsvDialect()


@dataclass(frozen=True, eq=False)
class FileSite:
    """A site in a file; dialect : how a CSV file is written; categories : that a Parquet file declares as such."""

    name: str
    path: Path
    kind: str
    columns: tuple[str, ...] = ()
    rows: int | None = None
    dialect: CsvDialect = COMMAS
    split_by: str | None = None
    categories: frozenset[str] = frozenset()

    def pieces(self, columns: Sequence[str], rows: int = ROWS, labels: Sequence[str] = ()) -> Iterator[ColumnBlock]:
        """The columns, at most `rows` rows at a time."""
        from pyarrow import ArrowException

        start = 0
        try:
            for batch in self.batches(columns, labels):
                if len(batch):
                    decoded = [from_arrow(self.name, c, batch.column(c), start) for c in columns]
                    beside = {c: labels_from_arrow(batch.column(c)) for c in labels}
                    yield from blocks(self.name, columns, decoded, rows, start, beside)
                start += len(batch)
        except (OSError, ArrowException) as error:
            raise _explained(self, error, columns, labels) from error

    def batches(self, columns: Sequence[str], labels: Sequence[str] = ()) -> Iterator[Any]:
        """Record batches of Arrow that hold the columns and the labels."""
        if self.kind == PARQUET:
            return _parquet_batches(self, tuple(dict.fromkeys((*columns, *labels))))
        return csv_batches(self.path, self.dialect, columns, labels)


def open_file(name: str, path: Path) -> FileSite:
    """The site in a file, of the kind that its name ends in; only its beginning or its footer is read."""
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
    return site


def _open_parquet(blank: FileSite) -> FileSite:
    from pyarrow import ArrowException

    try:
        with _parquet(blank.path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            pandas = (schema.pandas_metadata or {}).get("columns", ())  # of its categories that are numbers
            typed = {c["name"] for c in pandas if c.get("pandas_type") == "categorical"}
            categories = frozenset(f.name for f in schema if f.name in typed or is_categorical(f))
            return FileSite(blank.name, blank.path, PARQUET, tuple(schema.names), rows, categories=categories)
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
    return FileSite(blank.name, blank.path, CSV, columns, dialect=dialect)


def _parquet(path: Path) -> Any:
    from pyarrow.parquet import ParquetFile

    return ParquetFile(path, pre_buffer=False, buffer_size=BUFFER)


def _parquet_batches(site: FileSite, columns: Sequence[str]) -> Iterator[Any]:
    """Row groups, column after column, for a column being read holds buffers; in batches where groups are too large for
    memory, or so small that calls would cost more than reading."""
    from pyarrow import RecordBatch

    with _parquet(site.path) as file:  # sites are read in threads, which a second layer of threads would only disturb
        groups = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
        if not groups or max(groups) * len(columns) > GROUP or sum(groups) < SMALL_GROUP * len(groups):
            yield from file.iter_batches(piece_rows(len(columns), NUMBERS), columns=list(columns), use_threads=False)
            return
        for g in range(len(groups)):
            tables = (file.read_row_group(g, columns=[c], use_threads=False) for c in columns)
            yield RecordBatch.from_arrays([t.column(0).combine_chunks() for t in tables], list(columns))


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
    reason = (str(error).splitlines() or [""])[0].rstrip(". ")
    return SiteDataError(f"{site.name} cannot be read as {site.kind}: {reason[:200] or type(error).__name__}")
