"""How objects show themselves: a title and rows of (label, value), as text on a screen and as HTML in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from textwrap import wrap
from typing import Any

import numpy as np

WIDTH = 110  # letters of a line
LISTED = 8  # numbers of a vector that are shown; of a longer one the first and the last
ROWS = 40  # labels: what fits on a screen
LINES = 3  # of one value

Rows = Sequence[tuple[str, Any]]


class Displayed:
    """Base of dataclasses (with repr=False) that show a title and rows instead of all their numbers.

    By default the title is the name of the class and the rows are the fields with repr=True; `_display` says otherwise.
    """

    def _display(self) -> tuple[str, Rows]:
        return type(self).__name__, fields_of(self)

    def __repr__(self) -> str:
        title, rows = self._display()
        width = max((len(label) for label, _ in rows), default=0)
        lines = [_wrapped(f"  {label:{width}}  {shown(value)}", " " * (width + 4)) for label, value in _few(rows)]
        return "\n".join([_wrapped(title, "    "), *lines])

    def _repr_html_(self) -> str:
        title, rows = self._display()
        cells = "".join(
            f'<tr><th style="text-align:left">{escape(label)}</th>'
            f'<td style="text-align:left">{escape(_wrapped(shown(value), ""))}</td></tr>'
            for label, value in _few(rows)
        )
        return f"<div><strong>{escape(title)}</strong><table>{cells}</table></div>"


def fields_of(record: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass that its repr would have, with their values."""
    return [(f.name, getattr(record, f.name)) for f in fields(record) if f.repr]


def call(record: Any) -> str:
    """A dataclass as a reader writes it: its own parameters, then the options (keywords) that were set."""
    ordered = sorted(fields(record), key=lambda f: bool(f.kw_only))
    given = {f.name: getattr(record, f.name) for f in ordered if getattr(record, f.name) != f.default}
    return f"{type(record).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def shown(value: Any) -> str:
    """A value in one short line: numbers with five digits, long arrays by their shape and range."""
    if isinstance(value, np.ndarray):
        return _array(value)
    if value is None or isinstance(value, (str, bool, np.bool_)):
        return "none" if value is None else str(value)
    if isinstance(value, (int, np.integer)):
        return f"{int(value):,}"
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.5g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {shown(v)}" for k, v in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        parts = [shown(v) for v in value[:LISTED]]
        return ", ".join([*parts, f"... ({len(value)} in all)"] if len(value) > LISTED else parts) or "none"
    if isinstance(value, Displayed):
        return value._display()[0]
    return call(value) if is_dataclass(value) else str(value)


def _array(values: np.ndarray[Any, Any]) -> str:
    if values.ndim == 0:
        return shown(values.item())
    if values.ndim == 1:
        numbers = [f"{v:.5g}" for v in values.tolist()]
        if len(numbers) <= LISTED:
            return f"[{', '.join(numbers)}]"
        return f"[{', '.join(numbers[: LISTED - 2])}, ..., {numbers[-1]}] ({len(numbers):,} numbers)"
    known = values[np.isfinite(values)]
    spread = f", from {known.min():.5g} to {known.max():.5g}" if known.size else ""
    return f"array of shape {values.shape}{spread}"


def _few(rows: Rows) -> Rows:
    """As many rows as fit on a screen."""
    return rows if len(rows) <= ROWS else [*rows[: ROWS - 1], ("...", f"{len(rows) - ROWS + 1:,} more")]


def _wrapped(text: str, indent: str = "") -> str:
    return "\n".join(wrap(text, WIDTH, subsequent_indent=indent, max_lines=LINES, placeholder=" ..."))
