"""Value objects: their arrays cannot be written to, they are equal where their numbers are, and they show themselves.

What an object hands out is the object, so `t = p.theta_star; t += 1` must fail. On a screen it is a title and rows of
(label, value), and in a notebook the same as HTML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass
from functools import cached_property, partial, wraps
from html import escape
from inspect import cleandoc
from textwrap import wrap
from typing import Any, TypeVar

import numpy as np

from . import checks

_T = TypeVar("_T")
SAMPLED = 16  # numbers of an array that its hash looks at: a hash must be cheap, equality looks at all of them
WIDTH = 110  # letters of a line
LISTED = 8  # numbers of a vector that are shown; of a longer one the first and the last
ROWS = 40  # labels: what fits on a screen
LINES = 3  # of one value

Rows = Sequence[tuple[Any, ...]]  # (label, value) or (label, value, meaning)
VALUE = 30  # letters of a value beside which its meaning has room
ENTRY = re.compile(r"(?:^|[;.] )\s*((?:\w+, )*\w+) : ", re.MULTILINE)  # of a docstring: name : meaning


def frozen(value: Any) -> Any:
    """The value with every array in it read-only, also in tuples, lists and dictionaries.

    An array that owns its numbers is frozen itself, whoever holds it; a view of what others can write is copied.
    """
    if isinstance(value, np.ndarray):
        if not value.flags.writeable:
            return value
        if isinstance(value.base, np.ndarray) and value.base.flags.writeable:
            value = value.copy()
        value.flags.writeable = False
        return value
    if isinstance(value, Mapping):
        return {key: frozen(entry) for key, entry in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(frozen, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(frozen, value))
    return value


def same(one: Any, two: Any) -> bool:
    """Whether values are equal: arrays and sequences by their entries, whatever their types, and NaN equals NaN."""
    if one is two:
        return True
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        known = one.dtype.kind in "fc" and two.dtype.kind in "fc"  # where there may be NaN
        return np.array_equal(one, two) or (known and np.array_equal(one, two, equal_nan=True))
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        return False
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(same(value, two[key]) for key, value in one.items())
    if isinstance(one, (tuple, list)) and isinstance(two, (tuple, list)):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two) or (_is_nan(one) and _is_nan(two))


def _is_nan(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and bool(value != value)


def _gist(value: Any) -> Hashable:
    """Something to hash, which is equal for values that are the `same`."""
    if isinstance(value, np.ndarray):
        few = value.flat[:: max(1, value.size // SAMPLED)]
        return value.shape, _gist((few.astype(np.float64) if few.dtype.kind in "biuf" else few).tolist())
    if isinstance(value, Mapping):
        return frozenset((key, _gist(entry)) for key, entry in value.items())
    if isinstance(value, (tuple, list)):
        return tuple(map(_gist, value))
    try:
        return None if _is_nan(value) else hash(value)  # each NaN has a hash of its own
    except TypeError:
        return None


class ReadOnly:
    """Base of frozen dataclasses (with eq=False) that are values: equal and with equal hashes where their fields are.

    Their arrays are read-only from the start, and in copies and after unpickling too.
    """

    def __post_init__(self) -> None:
        self.__setstate__(vars(self))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_hash"}  # another in each process

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: frozen(value) for name, value in state.items()})
        vars(self).pop("_hash", None)

    def _values(self) -> list[Any]:
        return [getattr(self, f.name) for f in fields(self) if f.compare]  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReadOnly) or type(self) is not type(other):
            return NotImplemented
        return self is other or same(self._values(), other._values())

    def __hash__(self) -> int:
        known = vars(self)
        if "_hash" not in known:
            known["_hash"] = hash((type(self), _gist(self._values())))
        return int(known["_hash"])


def frozen_property(function: Callable[[Any], _T]) -> cached_property[_T]:
    """A cached property whose arrays are read-only."""
    return cached_property(wraps(function)(lambda instance: frozen(function(instance))))


class Displayed:
    """Base of dataclasses (with repr=False) that show a title and rows instead of all their numbers.

    By default the title is the name of the class with the first line of its docstring, and the rows are the fields with
    repr=True and what the docstring says of them. `_display` says otherwise; `_further_html` follows in notebooks.
    """

    def _display(self) -> tuple[str, Rows]:
        known = meanings(type(self))
        first = (type(self).__doc__ or "").partition("\n")[0].rstrip(".:")
        return f"{type(self).__name__}: {first}", [(*row, known.get(row[0], "")) for row in fields_of(self)]

    def _further_html(self) -> str:
        return ""

    def __repr__(self) -> str:
        title, rows = self._display()
        width = max((len(label) for label, *_ in rows), default=0)
        texts = [(label, shown(value), *meaning) for label, value, *meaning in _few(rows)]
        room = max((len(value) for _, value, *_ in texts if len(value) <= VALUE), default=0)
        lines = [
            _wrapped(f"  {label:{width}}  {value:{room}}  {meaning[0]}", "", 1)
            if meaning and meaning[0] and len(value) <= room
            else _wrapped(f"  {label:{width}}  {value}", " " * (width + 4))
            for label, value, *meaning in texts
        ]
        return "\n".join([_wrapped(title, "    "), *lines])

    def _repr_html_(self) -> str:
        title, rows = self._display()
        cells = "".join(
            f'<tr><th style="text-align:left">{escape(label)}</th>'
            + "".join(f'<td style="text-align:left">{escape(_wrapped(shown(v)))}</td>' for v in entries)
            + "</tr>"
            for label, *entries in _few(rows)
        )
        return f"<div><strong>{escape(title)}</strong><table>{cells}</table>{self._further_html()}</div>"


class Settings(Displayed):
    """Base of dataclasses of settings: on a screen the call that makes them; in a notebook all options and meanings."""

    def __repr__(self) -> str:
        return call(self) if is_dataclass(self) else object.__repr__(self)

    def _display(self) -> tuple[str, Rows]:
        known = meanings(type(self))
        ordered: list[Any] = sorted(fields(self), key=lambda f: bool(f.kw_only)) if is_dataclass(self) else []
        return repr(self), [(f.name, getattr(self, f.name), known.get(f.name, "")) for f in ordered]


class Checked(Settings):
    """Settings whose fields check themselves when they are made: each `number`, each `count`, and all of type bool."""

    def __post_init__(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]
            check = checks.boolean if f.type in ("bool", bool) else f.metadata.get("check")
            if check and not isinstance(getattr(self, f.name), f.metadata.get("instead", ())):
                object.__setattr__(self, f.name, check(f.name, getattr(self, f.name)))


def number(default: Any = MISSING, instead: Any = (), check: Any = checks.real, **bounds: float) -> Any:
    """A field of `Checked` that is a number within `bounds` of `check`; instead : the class of what else it may be."""
    return field(default=default, metadata={"check": partial(check, **bounds), "instead": instead})


def count(default: Any = MISSING, instead: Any = (), **bounds: int) -> Any:
    """The same of an integer, within `bounds` of `checks.integer`."""
    return number(default, instead, checks.integer, **bounds)


def meanings(kind: type) -> dict[str, str]:
    """What the docstring of a class says of each name, in entries `name, name : meaning`."""
    out: dict[str, str] = {}
    for part in cleandoc(kind.__doc__ or "").partition(">>>")[0].split("\n\n"):
        found = list(ENTRY.finditer(part))
        for entry, end in zip(found, [*(following.start() for following in found[1:]), None], strict=False):
            text = part[entry.end() : end]
            out |= dict.fromkeys(entry[1].split(", "), " ".join(text.split()).rstrip(".;"))
    return out


def spread_table(title: str, names: Sequence[str], value: Any, others: Any) -> str:
    """HTML: each coordinate of value : (d,), and the least, middle and largest of others : (n, d), NaN left out."""
    import pandas as pd

    listed = [str(name) for name in names[:ROWS]]
    spread = pd.DataFrame(np.asarray(others)[:, :ROWS]).quantile([0, 0.5, 1]).T.to_numpy()
    frame = pd.DataFrame(spread, columns=["least", "median", "largest"]).dropna(axis=1, how="all")
    frame.insert(0, "value", np.asarray(value)[:ROWS])
    numbers = frame.set_axis(listed, axis=0).to_html(float_format="{:.4g}".format, na_rep="", border=0)
    return f"<p>{escape(title)}</p>{numbers}"


def fields_of(record: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass that its repr would have, with their values."""
    return [(f.name, getattr(record, f.name)) for f in fields(record) if f.repr]


def counted(number: int, what: str) -> str:
    """A number of things: 1 agent, 2 agents."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def given_fields(record: Any) -> dict[str, Any]:
    """The fields of a dataclass that have another value than the default, its own before the options (keywords)."""
    ordered = sorted(fields(record), key=lambda f: bool(f.kw_only))
    return {f.name: getattr(record, f.name) for f in ordered if not same(getattr(record, f.name), f.default)}


def call(record: Any) -> str:
    """A dataclass as a reader writes it: its own parameters, then the options (keywords) that were set."""
    written = {name: shown(v) if isinstance(v, np.ndarray) else repr(v) for name, v in given_fields(record).items()}
    return f"{type(record).__name__}({', '.join(f'{name}={text}' for name, text in written.items())})"


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
    if isinstance(value, Displayed) and not isinstance(value, Settings):
        return value._display()[0].partition(": ")[0]
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


def _wrapped(text: str, indent: str = "", lines: int = LINES) -> str:
    return "\n".join(wrap(text, WIDTH, subsequent_indent=indent, max_lines=lines, placeholder=" ..."))
