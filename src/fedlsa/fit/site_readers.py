"""Where a site's observations come from: a Parquet or CSV file read in pieces, or arrays in memory.

Files are read in blocks, wanted columns alone; after an error in a CSV file a slow and careful reader says which row it
was.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError, MissingExtraError, SiteDataError
from .arrays import (
    NUMBERS,
    ROWS,
    ColumnBlock,
    blocks,
    check_unique,
    from_arrow,
    from_columns,
    from_tuple,
    has_names,
    missing,
    not_a_number,
    piece_rows,
)
from .tasks import Task

PARQUET, CSV = "a Parquet file", "a CSV file"
KINDS = {".parquet": PARQUET, ".pq": PARQUET, ".csv": CSV, ".csv.gz": CSV}
BUFFER = 2**18  # bytes of a column of a Parquet file that are read at a time
GROUP = 2**22  # numbers of a row group that is read as a whole, at most
SMALL_GROUP = 2**13  # rows, on average: groups below are read many at a time
BLOCK = 2**20  # bytes of a CSV file that are read at a time
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)
FLAG = re.compile(r"true|false|0|1", re.IGNORECASE)


class Site(Protocol):
    """One site's data: named columns of numbers, in the order in which they were recorded.

    name : how errors and tables call it; rows : how many there are, where that is known without reading
    """

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def rows(self) -> int | None: ...

    def pieces(self, columns: Sequence[str], rows: int = ROWS, labels: Sequence[str] = ()) -> Iterator[ColumnBlock]:
        """The columns, at most `rows` rows at a time, as finite float64 numbers; SiteDataError for what is not one.

        labels : columns that are given as they are, numbers or not
        """
        ...


@dataclass(frozen=True, eq=False)
class FileSite:
    """A site in a file; flags : columns of a CSV file that begin with true and false instead of numbers."""

    name: str
    path: Path
    kind: str
    columns: tuple[str, ...] = ()
    rows: int | None = None
    flags: frozenset[str] = frozenset()

    def pieces(self, columns: Sequence[str], rows: int = ROWS, labels: Sequence[str] = ()) -> Iterator[ColumnBlock]:
        """The columns, at most `rows` rows at a time."""
        from pyarrow import ArrowException

        start = 0
        try:
            for batch in (_parquet_batches if self.kind == PARQUET else _csv_batches)(self, (*columns, *labels)):
                if len(batch):
                    decoded = [from_arrow(self.name, c, batch.column(c), start) for c in columns]
                    beside = {c: batch.column(c).to_numpy(zero_copy_only=False) for c in labels}
                    yield from blocks(self.name, columns, decoded, rows, start, beside)
                start += len(batch)
        except (OSError, ArrowException) as error:
            raise _explained(self, columns, error) from error


def open_sites(sites: Sequence[Any], task: Task) -> list[Site]:
    """A site for each entry of a list: a path to a Parquet or CSV file, columns by name, or a tuple of arrays.

    Columns by name are a mapping or a data frame; tuples are those of fl.problems.regression and from_transitions.
    """
    rule = "sites must be a list with one entry per site: a path, a mapping of columns, or a tuple of arrays"
    if not checks.is_sequence(sites) or isinstance(sites, Mapping) or hasattr(sites, "columns"):
        raise ArgumentTypeError(f"{rule}; got {checks.show(sites)}")
    entries = checks.entries("sites", sites, rule.removeprefix("sites must be "))
    if not entries:
        raise ArgumentError(f"{rule}; got none")
    named = zip(_names(entries), entries, strict=True)
    return [_open_entry(name, entry, task, f"sites[{c}]") for c, (name, entry) in enumerate(named)]


def _open_entry(name: str, entry: Any, task: Task, argument: str) -> Site:
    if isinstance(entry, (str, os.PathLike)):
        return open_file(name, checks.path(argument, entry))
    if has_names(entry):
        return from_columns(name, entry)
    if isinstance(entry, (tuple, list)):
        return from_tuple(name, entry, task)
    raise ArgumentTypeError(
        f"{argument} must be a path, a mapping of columns, or a tuple of arrays; got {checks.show(entry)}"
    )


def _names(entries: Sequence[Any]) -> list[str]:
    """File names where they are unique, else paths as they were given; "site 3" for data in memory."""
    paths = {c: checks.path(f"sites[{c}]", e) for c, e in enumerate(entries) if isinstance(e, (str, os.PathLike))}
    seen: dict[Path, int] = {}
    for c, path in paths.items():
        if seen.setdefault(path.resolve(), c) != c:
            raise SiteDataError(f"{path} must be given once; it is site {seen[path.resolve()]} and site {c}")
    short = [path.name for path in paths.values()]
    return [
        f"site {c}" if c not in paths else paths[c].name if short.count(paths[c].name) == 1 else str(paths[c])
        for c in range(len(entries))
    ]


def open_file(name: str, path: Path) -> Site:
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
            return FileSite(
                blank.name, blank.path, PARQUET, tuple(file.schema_arrow.names), rows=file.metadata.num_rows
            )
    except (OSError, ArrowException) as error:
        raise _unreadable(blank, error) from error


def _open_csv(blank: FileSite) -> FileSite:
    import pyarrow as pa

    _check_header(blank)
    try:
        with _csv(blank.path) as reader:
            flags = frozenset(f.name for f in reader.schema if pa.types.is_boolean(f.type))
            return FileSite(blank.name, blank.path, CSV, tuple(reader.schema.names), flags=flags)
    except (OSError, pa.ArrowException) as error:
        raise _explained(blank, (), error) from error


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


def _csv(path: Path, **convert: Any) -> Any:
    from pyarrow import csv as arrow

    return arrow.open_csv(
        path,
        read_options=arrow.ReadOptions(use_threads=False, block_size=BLOCK),
        parse_options=arrow.ParseOptions(newlines_in_values=True),
        convert_options=arrow.ConvertOptions(null_values=[], check_utf8=False, **convert),
    )


def _csv_batches(site: FileSite, columns: Sequence[str]) -> Iterator[Any]:
    import pyarrow as pa

    types = {c: pa.bool_() if c in site.flags else pa.float64() for c in columns}
    with _csv(site.path, include_columns=list(columns), column_types=types) as reader:
        yield from reader


def _text(path: Path) -> io.TextIOWrapper:
    from pyarrow import input_stream

    # surrogates stand for what is not UTF-8: only the header must be, and the columns of numbers are
    return io.TextIOWrapper(input_stream(path), "utf-8-sig", errors="surrogateescape", newline="")


def _check_header(site: FileSite) -> None:
    """Refuse a header that is not there, not text in UTF-8, or not separated by commas."""
    try:
        with _text(site.path) as file:
            header = next(csv.reader(file), None)
    except csv.Error:  # NUL bytes and endless fields
        header = ["\0"]
    except (OSError, ValueError) as error:
        raise _unreadable(site, error) from error
    if header is None or not any(header):
        raise SiteDataError(f"{site.name} must begin with a line that names its columns; its first line is empty")
    if any("\0" in h or re.search("[\udc80-\udcff]", h) for h in header):
        raise SiteDataError(f"{site.name} must be text in UTF-8; its first line is not")
    for mark, called in ((";", "';'"), ("\t", "tabs"), ("|", "'|'")):
        if len(header) == 1 and mark in header[0]:
            raise SiteDataError(f"{site.name} must have fields separated by commas; its header has {called} instead")


def _explained(site: FileSite, columns: Sequence[str], error: Exception) -> SiteDataError:
    """What is wrong with a file: of a CSV file, found by reading it again, row by row."""
    if site.kind == PARQUET:
        return _unreadable(site, error)
    empty = True
    try:
        with _text(site.path) as file:
            rows = csv.reader(file)
            header = next(rows, [])
            wanted = {c: header.index(c) for c in columns if c in header}
            for k, fields in enumerate(row for row in rows if row):
                empty = False
                if len(fields) != len(header):
                    rule = f"{site.name} must have {len(header)} fields in every row, as in its header"
                    return SiteDataError(f"{rule}; row {k + 1} of the data has {len(fields)}")
                for c, j in wanted.items():
                    if not fields[j].strip():
                        return missing(site.name, c, k)
                    if not (FLAG if c in site.flags else NUMBER).fullmatch(fields[j]):
                        return not_a_number(site.name, c, checks.show(fields[j]), k)
    except (OSError, ValueError, csv.Error):
        return _unreadable(site, error)
    if empty:
        return SiteDataError(f"{site.name} must have at least one row; it has a header alone")
    return _unreadable(site, error)


def _unreadable(site: FileSite, error: Exception) -> SiteDataError:
    """The error for a file that is not what its name says, with the first line of the reason."""
    reason = (str(error).splitlines() or [""])[0].rstrip(". ")
    return SiteDataError(f"{site.name} cannot be read as {site.kind}: {reason[:200] or type(error).__name__}")
