"""CSV files of sites, read in blocks; after an error a slow and careful reader says which row it was."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import checks
from ..checks import Floats
from ..errors import SiteDataError
from .numbers import ROWS, from_arrow, missing, not_a_number
from .parquet import unreadable

BLOCK = 2**20  # bytes
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)
FLAG = re.compile(r"true|false|0|1", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class CSVSite:
    """A site in a CSV file, plain or compressed; flags : columns that begin with true and false instead of numbers."""

    name: str
    path: Path
    columns: tuple[str, ...]
    flags: frozenset[str]
    rows: int | None = None

    def pieces(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[dict[str, Floats]]:
        """The columns, at most `rows` rows at a time."""
        import pyarrow as pa

        start = 0
        types = {c: pa.bool_() if c in self.flags else pa.float64() for c in columns}
        try:
            with _opened(self.path, include_columns=list(columns), column_types=types) as reader:
                for block in reader:
                    for at in range(0, len(block), rows):
                        batch = block.slice(at, rows)
                        yield {c: from_arrow(self.name, c, batch.column(c), start + at) for c in columns}
                    start += len(block)
        except (OSError, pa.ArrowException) as error:
            raise _explained(self, columns, error) from error


def open_csv(name: str, path: Path) -> CSVSite:
    """The site in a CSV file, of which only the first block is read."""
    import pyarrow as pa

    blank = CSVSite(name, path, (), frozenset())
    _check_text(blank)
    try:
        with _opened(path) as reader:
            columns = tuple(reader.schema.names)
            flags = frozenset(f.name for f in reader.schema if pa.types.is_boolean(f.type))
    except (OSError, pa.ArrowException) as error:
        raise _explained(blank, (), error) from error
    return CSVSite(name, path, columns, flags)


def _opened(path: Path, **convert: Any) -> Any:
    from pyarrow import csv as arrow

    return arrow.open_csv(
        path,
        read_options=arrow.ReadOptions(use_threads=False, block_size=BLOCK),
        parse_options=arrow.ParseOptions(newlines_in_values=True),
        convert_options=arrow.ConvertOptions(null_values=[], check_utf8=False, **convert),
    )


def _text(path: Path) -> io.TextIOWrapper:
    from pyarrow import input_stream

    # surrogates stand for what is not UTF-8: only the header must be, and the columns of numbers are
    return io.TextIOWrapper(input_stream(path), "utf-8-sig", errors="surrogateescape", newline="")


def _check_text(site: CSVSite) -> None:
    """Refuse a header that is not there, not text in UTF-8, or not separated by commas."""
    try:
        with _text(site.path) as file:
            header = next(csv.reader(file), None)
    except csv.Error:  # NUL bytes and endless fields
        header = ["\0"]
    except (OSError, ValueError) as error:
        raise unreadable(site.name, "a CSV file", error) from error
    if header is None or not any(header):
        raise SiteDataError(f"{site.name} must begin with a line that names its columns; its first line is empty")
    if any("\0" in h or re.search("[\udc80-\udcff]", h) for h in header):
        raise SiteDataError(f"{site.name} must be text in UTF-8; its first line is not")
    for mark, called in ((";", "';'"), ("\t", "tabs"), ("|", "'|'")):
        if len(header) == 1 and mark in header[0]:
            raise SiteDataError(f"{site.name} must have fields separated by commas; its header has {called} instead")


def _explained(site: CSVSite, columns: Sequence[str], error: Exception) -> SiteDataError:
    """What is wrong with the file: found by reading it again, row by row."""
    try:
        with _text(site.path) as file:
            rows = csv.reader(file)
            header = next(rows, [])
            wanted = {c: header.index(c) for c in columns if c in header}
            empty = True
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
        return unreadable(site.name, "a CSV file", error)
    if empty:
        return SiteDataError(f"{site.name} must have at least one row; it has a header alone")
    return unreadable(site.name, "a CSV file", error)
