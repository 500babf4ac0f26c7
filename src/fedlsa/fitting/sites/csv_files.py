"""CSV files as people have them: separated by commas, semicolons, tabs or bars, with decimal commas and missing values.

What separates fields is read off the header. Where it is no comma, a column may have decimal commas: one whose first
rows show it, and with it all columns of whole numbers. Thousands are never guessed: 1.234,5 is no number. After an
error a slow and careful reader says which row it was.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import checks
from ...errors import SiteDataError
from .conversion import not_a_number

BLOCK = 2**20  # bytes that are read at a time
NOTHING = ["", "NA", "NaN", "nan", "null", "NULL", "<NA>"]  # fields that are missing values
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)
COMMA = re.compile(NUMBER.pattern.replace(r"\.", ","), re.IGNORECASE)  # the same with a decimal comma
FLAG = re.compile(r"true|false|0|1", re.IGNORECASE)
SEPARATORS = ",;\t|"


@dataclass(frozen=True)
class CsvDialect:
    """How a file is written; flags, numbers : columns that begin with true and false, or with numbers; commas : those
    with decimal commas."""

    separator: str = ","
    flags: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    commas: frozenset[str] = frozenset()

    def pattern(self, column: str) -> re.Pattern[str]:
        """What a field of a column of numbers looks like."""
        return FLAG if column in self.flags else COMMA if column in self.commas else NUMBER


def open_csv(name: str, path: Path) -> tuple[tuple[str, ...], CsvDialect]:
    """The columns of a file and how it is written, from its first block; errors call it `name`."""
    import pyarrow as pa

    separator = _separator(name, path)
    with _stream(path, CsvDialect(separator)) as reader:
        schema = reader.schema
        flags = frozenset(f.name for f in schema if pa.types.is_boolean(f.type))
        numbers = frozenset(f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type))
        commas = frozenset[str]()
        if separator != ",":
            first = reader.read_next_batch()
            texts = {f.name: first.column(k) for k, f in enumerate(schema) if pa.types.is_string(f.type)}
            shown = {c: _fields(values) for c, values in texts.items()}
            commas = frozenset(c for c, fields in shown.items() if _has_commas(fields))
        if commas:
            numbers |= frozenset(c for c in commas if all(map(COMMA.fullmatch, shown[c])))
            whole = (f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_null(f.type))
            commas |= frozenset(whole)
    return tuple(schema.names), CsvDialect(separator, flags, numbers, commas)


def _fields(texts: Any) -> list[str]:
    """The fields of a column that are there; what is not UTF-8 is no error yet, for the column may not be used."""
    import pyarrow as pa

    return [field.decode(errors="replace") for field in texts.cast(pa.binary()).to_pylist() if field is not None]


def _has_commas(fields: Sequence[str]) -> bool:
    """Whether a column of text begins with numbers that have decimal commas; what is none is found when it is read."""
    return any("," in field and COMMA.fullmatch(field) for field in fields)


def _stream(path: Path, dialect: CsvDialect, check: bool = False, **convert: Any) -> Any:
    from pyarrow import csv as arrow

    return arrow.open_csv(
        path,
        read_options=arrow.ReadOptions(use_threads=False, block_size=BLOCK),
        parse_options=arrow.ParseOptions(delimiter=dialect.separator, newlines_in_values=True),
        convert_options=arrow.ConvertOptions(
            null_values=NOTHING, strings_can_be_null=True, check_utf8=check, **convert
        ),
    )


def csv_batches(
    path: Path, dialect: CsvDialect, columns: Sequence[str], labels: Sequence[str], texts: Sequence[str]
) -> Iterator[Any]:
    """Record batches of the columns, as numbers or flags, of labels, which are text unless a column begins with
    numbers, and of texts, as they are written."""
    import pyarrow as pa

    def kind(column: str) -> Any:
        if (
            column in texts
            or column in dialect.commas
            or (column in labels and column not in dialect.numbers | dialect.flags)
        ):
            return pa.string()
        return pa.bool_() if column in dialect.flags else pa.float64()

    types: dict[str, Any] = {c: kind(c) for c in (*columns, *labels, *texts)}
    commas = [c for c in dialect.commas if c in columns or (c in labels and c in dialect.numbers)]
    with _stream(path, dialect, bool(labels or texts), include_columns=list(types), column_types=types) as reader:
        for batch in reader:
            yield _with_points(batch, commas) if commas else batch


def _with_points(batch: Any, commas: Sequence[str]) -> Any:
    """A batch whose texts with decimal commas are numbers."""
    import pyarrow as pa
    from pyarrow import compute

    def number(values: Any) -> Any:
        if compute.any(compute.match_substring(values, ".")).as_py():
            raise pa.ArrowInvalid("a point beside decimal commas")
        return compute.replace_substring(compute.utf8_trim_whitespace(values), ",", ".").cast(pa.float64())

    held = [number(batch.column(c)) if c in commas else batch.column(c) for c in batch.schema.names]
    return pa.RecordBatch.from_arrays(held, batch.schema.names)


def _text(path: Path) -> io.TextIOWrapper:
    from pyarrow import input_stream

    # surrogates stand for what is not UTF-8: only the header must be, and the columns that are used
    return io.TextIOWrapper(input_stream(path), "utf-8-sig", errors="surrogateescape", newline="")


def _separator(name: str, path: Path) -> str:
    """What separates the names in the header; a header that is not there, or not text in UTF-8, is refused."""
    try:
        with _text(path) as file:
            line = file.readline(BLOCK)
        headers = {mark: next(csv.reader([line], delimiter=mark), [""]) for mark in SEPARATORS}
    except csv.Error:  # NUL bytes and endless fields
        headers = {",": ["\0"]}
    separator = max(headers, key=lambda mark: len(headers[mark]))
    header = headers[separator]
    if not any(h.strip() for h in header):
        raise SiteDataError(f"{name} must begin with a line that names its columns; its first line is empty")
    if any("\0" in h or re.search("[\udc80-\udcff]", h) for h in header):
        raise SiteDataError(f"{name} must be text in UTF-8 (Excel: CSV UTF-8); its first line is not")
    return separator


def explain_csv(
    name: str, path: Path, dialect: CsvDialect, columns: Sequence[str], labels: Sequence[str]
) -> SiteDataError | None:
    """What is wrong with a file, found by reading it again, row by row; None where that finds nothing."""
    empty = True
    with _text(path) as file:
        rows = csv.reader(file, delimiter=dialect.separator)
        header = next(rows, [])
        wanted = {c: header.index(c) for c in columns if c in header}
        texts = {c: header.index(c) for c in labels if c in header}
        for k, fields in enumerate(row for row in rows if row):
            empty = False
            if len(fields) != len(header):
                rule = f"{name} must have {len(header)} fields in every row, as in its header"
                return SiteDataError(f"{rule}; row {k + 1} of the data has {len(fields)}")
            for c, j in wanted.items():
                if fields[j] not in NOTHING and not dialect.pattern(c).fullmatch(fields[j]):
                    return not_a_number(name, c, checks.show(fields[j]), k)
            for c, j in texts.items():
                if re.search("[\udc80-\udcff]", fields[j]):
                    rule = f"{name}: column {c!r} must be text in UTF-8 (Excel: CSV UTF-8)"
                    return SiteDataError(f"{rule}; row {k + 1} of the data is not")
                if c in dialect.numbers and fields[j] not in NOTHING and not dialect.pattern(c).fullmatch(fields[j]):
                    return not_a_number(name, c, f"{checks.show(fields[j])} after numbers", k)
    return SiteDataError(f"{name} must have at least one row; it has a header alone") if empty else None
