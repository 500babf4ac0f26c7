"""Tables in files, read in pieces: Parquet, and CSV as people have it. Wanted columns alone are read.

CSV is separated by commas, semicolons, tabs or bars, with decimal commas and missing values. What separates fields is
read off the header; the first block shows which columns are numbers, and their decimal mark. A mark that can be read in
two ways, 1.234 beside decimal commas, or 1,234, is refused unless decimal=... says which it is: then the other mark
stands between thousands. Columns that are used as labels keep their text. After an error a slow and careful reader says
which row it was.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..errors import MissingExtraError, SiteDataError
from . import tables
from .tables import NUMBERS, Batch, DataTable, as_labels, as_numbers, block_rows, check_unique, not_a_number

PARQUET, CSV = "a Parquet file", "a CSV file"
KINDS = {".parquet": PARQUET, ".pq": PARQUET, ".csv": CSV, ".csv.gz": CSV, ".tsv": CSV, ".tsv.gz": CSV}
BUFFER = 2**18  # bytes of a column of a Parquet file that are read at a time
GROUP = 2**22  # numbers of a row group that is read as a whole, at most
SMALL_GROUP = 2**13  # rows, on average: groups below are read many at a time
DECIMAL_MARKS = (".", ",")
BLOCK = 2**20  # bytes that are read at a time
# fields that are missing values: those of pandas, and a blank
NOTHING = [
    *("", " ", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"),
    *("N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
]
FLAG = re.compile(r"true|false|0|1", re.IGNORECASE)
SEPARATORS = ",;\t|"
MOSTLY = 0.5  # of the fields of a column: then it is meant to hold numbers


def _number(mark: str, thousands: bool = False) -> re.Pattern[str]:
    """What a number looks like with this decimal mark, with the other one between thousands or not at all."""
    other = re.escape("," if mark == "." else ".")
    whole = rf"(\d{{1,3}}({other}\d{{3}})+|\d+)" if thousands else r"\d+"
    mark = re.escape(mark)
    number = rf"\s*[+-]?({whole}{mark}?\d*|{mark}\d+)([eE][+-]?\d+)?\s*|\s*[+-]?(nan|inf|infinity)\s*"
    return re.compile(number, re.IGNORECASE | re.ASCII)


NUMBER = {mark: _number(mark) for mark in (".", ",", "")}  # without a mark where a later one could be read in two ways
GROUPED = {mark: _number(mark, thousands=True) for mark in ".,"}
DOUBTFUL = re.compile(r"\s*[+-]?[1-9]\d{0,2}[.,]\d{3}\s*")  # 1.234: a thousand, or a little more than one


@dataclass(frozen=True)
class CsvDialect:
    """How a file is written; marks : of columns of numbers; flags : columns that begin with true and false.

    given : whether the mark was given: then the other one stands between thousands. A mark is "" where nothing in the
    first block shows it, beside semicolons, which are used where commas are decimal marks: then no later number has one
    doubtful : columns of numbers with a field that can be read in two ways, and where; mixed : columns of text that are
    numbers but for some field, and where: row, from 1, and field
    """

    separator: str = ","
    flags: frozenset[str] = frozenset()
    decimals: Mapping[str, str] = field(default_factory=dict)
    given: bool = False
    doubtful: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    mixed: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def pattern(self, column: str) -> re.Pattern[str]:
        """What a field of a column of numbers looks like."""
        return FLAG if column in self.flags else (GROUPED if self.given else NUMBER)[self.decimals.get(column, ".")]

    def check(self, name: str, columns: Sequence[str]) -> None:
        """Refuse columns of numbers that can be read in two ways."""
        for column in (c for c in columns if c in self.doubtful):
            row, text = self.doubtful[column]
            whole, parts = re.sub("[.,]", "", text.strip()), text.strip().replace(",", ".")
            mark = "," if "," in text else "."
            raise SiteDataError(
                f"{name}: column {column!r} must be numbers that can be read in one way; got {text!r} in row {row} of "
                f"the data, which is {parts} (decimal={mark!r}) or {whole} (decimal={'.' if mark == ',' else ','!r})"
            )

    def is_text(self, name: str, column: str) -> bool:
        """Whether a column is text, or true and false; one that is numbers but for some field is refused."""
        if column in self.mixed:
            row, text = self.mixed[column]
            raise SiteDataError(
                f"{name}: column {column!r} holds numbers but for {text!r} in row {row} of the data; C({column}) makes "
                "it a category; missing='drop' leaves out rows with the marks NA, N/A, None, null, or with none"
            )
        return column not in self.decimals


def open_csv(name: str, path: Path, decimal: str | None) -> tuple[tuple[str, ...], CsvDialect]:
    """The columns of a file and how it is written, from its first block; errors call it `name`."""
    separator, header = _header(name, path)
    if len(set(header)) < len(header):
        return header, CsvDialect(separator)  # which is refused
    import pyarrow as pa
    from pyarrow import compute

    texts = dict.fromkeys(header, pa.binary())  # what is not UTF-8 is no error yet, for the column may not be used
    with _stream(path, CsvDialect(separator), column_types=texts) as reader:
        first = next(iter(reader), None)
    if first is None:
        raise SiteDataError(f"{name} must have at least one row; it has a header alone")
    flags, decimals, doubtful, mixed = set[str](), dict[str, str](), dict[str, tuple[int, str]](), {}
    sure: dict[str, set[str]] = {}  # of each column of numbers, the marks that it has for sure
    for column, values in zip(header, first.columns, strict=True):
        with contextlib.suppress(pa.ArrowInvalid):  # with points alone, and so most columns: at once
            text = values.cast(pa.string())
            text.cast(pa.float64())
            points = text.filter(compute.match_substring(text, "."))
            doubts = compute.match_substring_regex(points, f"^{DOUBTFUL.pattern}$")
            sure[column] = {"."} if compute.any(compute.invert(doubts)).as_py() else set()
            if compute.any(doubts).as_py():
                first_doubt = points.filter(doubts)[0].as_py()
                doubtful[column] = text.index(first_doubt).as_py() + 1, first_doubt
            continue
        fields = [(row, v.decode(errors="replace")) for row, v in enumerate(values.to_pylist(), 1) if v is not None]
        if fields and all(text.lower() in ("true", "false") for _, text in fields):
            flags.add(column)
            continue
        odd = [one for one in fields if not any(pattern.fullmatch(one[1]) for pattern in GROUPED.values())]
        if not odd:
            sure[column] = {mark for _, text in fields if (mark := _sure_mark(text))}
            doubt = next((one for one in fields if DOUBTFUL.fullmatch(one[1])), None)
            if doubt is not None:
                doubtful[column] = doubt
        elif len(odd) <= (1 - MOSTLY) * len(fields) and len(fields) > 1:
            mixed[column] = odd[0]
    settled = {m for found in sure.values() for m in found}
    usual = "." if separator != ";" else ""
    for column, own in sure.items():
        known = own or settled
        decimals[column] = decimal or (next(iter(known)) if len(known) == 1 else "." if own else "" if known else usual)
        # a doubtful field is settled by its own column, else by all of the file's; 1.234 with nothing but points in the
        # file has three decimals, unless semicolons speak of a country with decimal commas
        if column in doubtful and decimal is None:
            mark = "," if "," in doubtful[column][1] else "."
            if (known or {usual}) == {mark}:
                del doubtful[column]
    kept = {} if decimal is not None else doubtful
    return header, CsvDialect(separator, frozenset(flags), decimals, decimal is not None, kept, mixed)


def _sure_mark(text: str) -> str:
    """The decimal mark that a number must have; none where it has no mark, or one that can be read in two ways."""
    found = [letter for letter in text if letter in ".,"]
    if not found or DOUBTFUL.fullmatch(text):
        return ""
    if len(found) > 1 and len(set(found)) == 1:  # 1,234,567
        return "." if found[0] == "," else ","
    return found[-1]


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


def csv_batches(path: Path, dialect: CsvDialect, columns: Sequence[str], labels: Sequence[str]) -> Iterator[Any]:
    """Record batches of the columns, as numbers or flags, and of labels, as they are written; so are numbers with
    another mark than most, or with thousands: `csv_numbers` reads them."""
    import pyarrow as pa

    marks = {dialect.decimals.get(c, ".") for c in columns if c not in dialect.flags and c not in labels} - {""}
    mark = marks.pop() if len(marks) == 1 and not dialect.given else "."
    apart = [c for c in columns if dialect.given or dialect.decimals.get(c, ".") != mark]
    types = {c: pa.bool_() if c in dialect.flags else pa.float64() for c in columns}
    types |= dict.fromkeys((*labels, *(c for c in apart if c not in dialect.flags)), pa.string())
    options: dict[str, Any] = {"include_columns": list(types), "column_types": types, "decimal_point": mark}
    with _stream(path, dialect, bool(labels), **options) as reader:
        yield from reader


def csv_numbers(texts: Any, dialect: CsvDialect, column: str) -> Any:
    """Texts of a column as numbers, with its decimal mark; ArrowInvalid for what is none."""
    import pyarrow as pa
    from pyarrow import compute

    mark, pattern = dialect.decimals.get(column, "."), f"^({dialect.pattern(column).pattern})$"
    if not compute.all(compute.match_substring_regex(texts, pattern, ignore_case=True), min_count=0).as_py():
        raise pa.ArrowInvalid("not a number")
    if column in dialect.flags:
        return texts.cast(pa.bool_())
    plain = compute.replace_substring(compute.utf8_trim_whitespace(texts), "," if mark == "." else ".", "")
    return compute.replace_substring(plain, ",", ".").cast(pa.float64())


def _text(path: Path) -> io.TextIOWrapper:
    from pyarrow import input_stream

    # surrogates stand for what is not UTF-8: only the header must be, and the columns that are used
    return io.TextIOWrapper(input_stream(path), "utf-8-sig", errors="surrogateescape", newline="")


def _header(name: str, path: Path) -> tuple[str, tuple[str, ...]]:
    """What separates the names in the header, and these; one that is not there, or not text in UTF-8, is refused."""
    try:
        with _text(path) as file:
            text = file.read(BLOCK)  # names in quotes may have line breaks
        bare = re.sub(r'(?<![^,;\t|])"[^"]*(""[^"]*)*"', "", text)  # what stands in quotes separates nothing
        first, second, *_ = [*re.split("[\r\n]+", bare, maxsplit=2), ""]
        # as often in the header as in the row after it, for names may have commas in them
        separator = max(SEPARATORS, key=lambda mark: (first.count(mark) == second.count(mark) > 0, first.count(mark)))
        header = next(csv.reader(io.StringIO(text, ""), delimiter=separator), [""])
    except csv.Error:  # NUL bytes and endless fields
        separator, header = ",", ["\0"]
    if not any(h.strip() for h in header):
        raise SiteDataError(f"{name} must begin with a line that names its columns; its first line is empty")
    if any("\0" in h or re.search("[\udc80-\udcff]", h) for h in header):
        raise SiteDataError(f"{name} must be text in UTF-8 (Excel: CSV UTF-8); its first line is not")
    return separator, tuple(header)


def explain_csv(
    name: str, path: Path, dialect: CsvDialect, columns: Sequence[str], labels: Sequence[str]
) -> SiteDataError | None:
    """What is wrong with a file, found by reading it again, row by row; None where that finds nothing."""
    empty = True
    with _text(path) as file:
        rows = csv.reader(file, delimiter=dialect.separator)
        header = next(rows, [])
        for k, fields in enumerate(row for row in rows if row):
            empty = False
            if len(fields) != len(header):
                rule = f"{name} must have {len(header)} fields in every row, as in its header"
                return SiteDataError(f"{rule}; row {k + 1} of the data has {len(fields)}")
            for c, text in zip(header, fields, strict=True):
                if c in columns and text not in NOTHING and not dialect.pattern(c).fullmatch(text):
                    hint = any(p.fullmatch(text) for p in GROUPED.values()) and not dialect.given
                    more = " (decimal='.' or ',' says which mark is the decimal one)" if hint else ""
                    return not_a_number(name, c, checks.show(text) + more, k)
                if c in labels and re.search("[\udc80-\udcff]", text):
                    rule = f"{name}: column {c!r} must be text in UTF-8 (Excel: CSV UTF-8)"
                    return SiteDataError(f"{rule}; row {k + 1} of the data is not")
    return SiteDataError(f"{name} must have at least one row; it has a header alone") if empty else None


@dataclass(frozen=True, eq=False, kw_only=True)
class DataFile(DataTable):
    """One file; dialect : how a CSV file is written; groups : rows of each row group of a Parquet file.

    fixed : columns that the file does not hold, with the one value that all rows have, as the names of folders give it
    """

    path: Path
    kind: str
    dialect: CsvDialect = field(default_factory=CsvDialect)
    groups: tuple[int, ...] = ()
    fixed: Mapping[str, str | None] = field(default_factory=dict)

    def batches(self, columns: Sequence[str], labels: Sequence[str]) -> Iterator[Batch]:
        for start, batch in self._arrow_batches(columns, labels):
            numbers = [self._number(batch, c, start) for c in columns]
            yield start, numbers, {c: self._label(batch, c) for c in labels}, None

    def which_are_categories(self, columns: Sequence[str]) -> dict[str, bool | None]:
        of_csv = [c for c in columns if self.kind == CSV and c not in self.fixed]
        known = {c: self.dialect.is_text(self.name, c) for c in of_csv}
        return super().which_are_categories([c for c in columns if c not in known]) | known

    def _arrow_batches(self, columns: Sequence[str], labels: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Batches of Arrow with the columns, not empty, each with its first row."""
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
                    yield start, batch
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

    def _number(self, batch: Any, column: str, start: int) -> NDArray[Any]:
        """A column of a batch as numbers : (n,)."""
        import pyarrow as pa

        if column not in self.fixed:
            values = batch.column(column)
            if self.kind == CSV and values.type == "string":
                try:
                    values = csv_numbers(values, self.dialect, column)
                except ValueError as error:
                    raise self.explained(error, [column]) from error
            if pa.types.is_decimal(values.type) or pa.types.is_boolean(values.type):
                values = values.cast(pa.float64(), safe=False)
            return as_numbers(self.name, column, values, start)
        text = self.fixed[column]
        try:
            return np.full(len(batch), np.nan if text is None else float(text))
        except ValueError:
            raise not_a_number(self.name, column, repr(text), start) from None

    def _label(self, batch: Any, column: str) -> NDArray[Any]:
        """A column of a batch as it is : (n,)."""
        if column not in self.fixed:
            return as_labels(self.name, column, batch.column(column))
        return np.full(len(batch), self.fixed[column], object)

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


def open_file(name: str, path: Path, decimal: str | None = None) -> DataFile:
    """The site in a file; only its beginning or its footer is read. decimal : the mark of a CSV file."""
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
    file = DataFile(name=name, sites=(name,), path=path, kind=kind)
    try:
        from pyarrow import ArrowException
    except ImportError:
        raise MissingExtraError("site files need pyarrow: pip install 'fedlsa[data]'") from None
    try:
        if kind == PARQUET:
            file = _open_parquet(file)
        else:
            columns, dialect = open_csv(name, path, decimal)
            file = replace(file, columns=columns, dialect=dialect, untyped=frozenset(columns))
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
    opened = open_file(file.name, file)
    if opened.kind == CSV:
        return [c for c in opened.columns if c not in opened.dialect.decimals and c not in opened.dialect.flags]
    with _parquet(file) as parquet:
        kinds = {f.name: f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in parquet.schema_arrow}
    return [c for c, kind in kinds.items() if not re.match("u?int|halffloat|float|double|bool|decimal|null", str(kind))]
