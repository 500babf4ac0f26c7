"""What a command gives: files, one JSON object or tables on standard output."""

from __future__ import annotations

import html
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .. import checks, figures
from ..errors import ArgumentError, ResultFileError
from ..figures.matplotlib_figures import SUFFIXES as PICTURES
from ..files import LINE_BREAKS, as_bytes, csv_bytes
from ..files import write as write_bytes
from ..fitting.model_files import to_plain
from ..results.result_files import MAX_COMMAND

FILE_WIDTH = 120  # letters: a file has no right edge


class Outputs:
    """The files of a command: looked at before the work, written before anything is printed, and named in the end.

    Where nobody reads what is printed, or a log's disk is full, nothing is lost.
    """

    def __init__(self, command: str, force: bool) -> None:
        self.command, self.force = command, force
        self.saved: list[Path] = []

    def check(self, option: str, path: Path | None, suffixes: Sequence[str] = PICTURES) -> None:
        """Complain now, not after the work, about a file that exists or that cannot be written.

        A file that says that this very command made it may stand there: the command was killed before its end.
        """
        if path is None:
            return
        checks.path(option, path, suffixes)
        if not self.force and (path.is_file() or path.is_dir()) and not _made_by(path, self.command):
            raise ArgumentError(f"{path} exists; --force replaces it")
        check_writable(option, path)

    def save(self, path: Path | None, save: Callable[[Path], Any]) -> None:
        """Save data where it was asked for; without `force` no other content is ever replaced."""
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.force or not path.is_file():
            save(path)
        elif as_bytes(path.name, save) != path.read_bytes():
            other = "holds something else than this command gives"
            raise ResultFileError(f"{path} exists, and {other}; --force replaces it")
        self.saved.append(path)

    def save_table(self, path: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows as CSV, after a comment with the command that makes them; NaN is left empty."""
        cells = [["" if isinstance(v, float) and math.isnan(v) else v for v in row.values()] for row in rows]
        content = csv_bytes([*rows[:1], *cells], self.command)
        self.save(path, lambda target: write_bytes(target, content, "the table"))

    def draw(self, path: Path | None, draw: Callable[[], Any]) -> None:
        """Draw a figure only where it was asked for; it remembers the command that drew it.

        One that this very command has drawn is drawn again: equal figures may differ in the last bits of their layout.
        """
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            figures.save(draw(), path, command=self.command)
            self.saved.append(path)

    def print_saved(self) -> None:
        for path in self.saved:
            print(f"saved {path}")


def check_writable(option: str, path: Path) -> None:
    """Complain about a file or folder that cannot be made where it should be."""
    folder = next((p for p in path.absolute().parents if p.exists()), path)  # the root has no parents
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ResultFileError(f"{option} cannot write {path}: {folder} is not a folder that can be written to")


def _made_by(path: Path, command: str) -> bool:
    """Whether a file holds a command, as any of our formats writes it."""
    if not command or not path.is_file():
        return False
    content, known = path.read_bytes(), command[:MAX_COMMAND]
    texts = (known, LINE_BREAKS.sub(" ", known), html.escape(known, quote=False), json.dumps(known)[1:-1])
    codes = (("utf-8", "surrogateescape"), ("utf-16-be", "surrogatepass"))
    forms = {text.encode(*code) for text in texts for code in codes}
    forms |= {re.sub(rb"([\\()])", rb"\\\1", form) for form in forms}  # PDF
    return any(form in content for form in (*forms, known.encode("latin-1", "replace")))  # PNG


def print_json(**content: Any) -> None:
    """One JSON object and nothing else on standard output: numbers in full, NaN as null, infinity as "inf"."""
    print(json.dumps(to_plain(content), indent=1, ensure_ascii=False, allow_nan=False))


def print_all(*parts: str | Table, heading: str = "", width: int = FILE_WIDTH) -> None:
    """Lines and tables on standard output, after a faint heading."""
    console = Console(file=sys.stdout, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = width
    if heading:
        console.print(heading, style="dim")
    for part in parts:
        console.print(part)


def table(first: str, *headings: str, rows: Iterable[Iterable[Any]]) -> Table:
    """A table whose first column is words and whose others are numbers, or words for them."""
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    out.add_column(first)
    for heading in headings:
        out.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        out.add_row(*map(number, row))
    return out


def number(value: Any, digits: int = 3) -> str:
    """A number to so many digits, an integer to all; a dash for none, and words as they are."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else "-" if math.isnan(value) else f"{value:.{digits}g}"
