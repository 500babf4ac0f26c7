"""CSV files as people have them: separated by commas, semicolons, tabs or bars, with decimal commas and missing values.

What separates fields is read off the header; the first block shows which columns are numbers, and their decimal mark.
A mark that can be read in two ways, 1.234 beside decimal commas, or 1,234, is refused unless decimal=... says which it
is: then the other mark stands between thousands. Columns that are used as labels keep their text. After an error a slow
and careful reader says which row it was.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import checks
from ..errors import SiteDataError
from .tables import not_a_number

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
    """Record batches of the columns, as numbers or flags, and of labels, as they are written.

    So are numbers with another mark than most, or with thousands: `csv_numbers` reads them.
    """
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
