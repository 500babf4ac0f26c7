"""The levels of categories, which sites agree on without sending rows: each gives those that it has, in order.

Levels are text, numbers, or true and false; whole numbers are integers, whatever a file makes of them. A column is a
category by itself where it holds text, or true and false, or has a categorical type; numbers are one in C(column).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import checks
from ...errors import SiteDataError
from ..sites.arrays import ColumnBlock
from ..sites.conversion import Rows, is_missing, missing, row_number
from ..sites.missing_rows import MissingRows, complete
from ..sites.site_readers import Site
from ..tasks import SITES, Regression, Task
from .formulas import ParsedFormula, parse_formula

MAX_LEVELS = 1000  # of a category
Levels = tuple[tuple[str, tuple[Any, ...]], ...]  # of each categorical column


@dataclass(frozen=True, eq=False)
class LevelCodes:
    """The levels of a category, and the place of each among them."""

    levels: tuple[Any, ...]

    def of(self, site: str, column: str, labels: NDArray[Any], rows: Rows) -> NDArray[np.intp]:
        """(n,): places of labels; rows : where they stand in the data."""
        place = {(kind_of(level), level): j for j, level in enumerate(self.levels)}
        codes, found = _factorized(site, column, labels, rows)
        places = np.array([place.get((kind_of(level), level), -1) for level in found], np.intp)
        if len(places) and places.min() < 0:
            new = int(np.argmin(places))
            row = row_number(rows, int(np.argmax(codes == new)))
            rule = f"{site}: column {column!r} must have a level that the model knows"
            raise SiteDataError(f"{rule}; got {found[new]!r} in row {row} of the data; {known_levels(self.levels)}")
        return places[codes]


def levels_of(site: Site, task: Task) -> dict[str, tuple[Any, ...]]:
    """The levels that one site has of each column that is a category there, sorted; none where a task has no formula.

    Categories are columns in C() of a formula, and columns of text or of true and false that a formula names.
    """
    return {column: tuple(sorted(counts)) for column, counts in level_counts(site, task).items()}


def level_counts(site: Site, task: Task) -> dict[str, dict[Any, int]]:
    """The same, each level with the number of rows that have it."""
    if not isinstance(task, Regression) or task.formula is None:
        return {}
    parsed = parse_formula(task.formula)
    columns = _categories(site, parsed)
    found: dict[str, dict[Any, int]] = {c: {} for c in columns}
    for block in _whole_rows(site, task, parsed, columns) if columns else ():
        for column, counts in found.items():
            there = block.labels[column][~is_missing(block.labels[column])]
            codes, levels = _factorized(site.name, column, there, block.rows)
            check_levels({site.name: levels + list(counts)}, column)
            for level, count in zip(levels, np.bincount(codes, minlength=len(levels)).tolist(), strict=True):
                counts[level] = counts.get(level, 0) + count
    return found


def _categories(site: Site, parsed: ParsedFormula) -> list[str]:
    """The columns in C() of a formula, and of the others that may be categories those that are by their type, or that
    begin with such a value."""
    marked = {f.columns[0] for f in parsed.factors.values() if f.marked} | site.categories
    open_ = [c for c in parsed.candidates if c not in marked]
    for block in site.pieces((), 256, open_) if open_ else ():
        there = {c: block.labels[c][~is_missing(block.labels[c])] for c in open_}
        marked |= {c for c, labels in there.items() if len(labels) and _is_category(labels)}
        open_ = [c for c, labels in there.items() if not len(labels)]
        if not open_:
            break
    if open_ and site.rows != 0:
        rule = f"{site.name}: column {open_[0]!r} must have a value in some row"
        raise SiteDataError(f"{rule}; all are missing, so that it is neither a number nor a category")
    return [c for c in parsed.candidates if c in marked]


def _whole_rows(site: Site, task: Regression, parsed: ParsedFormula, columns: list[str]) -> Iterator[ColumnBlock]:
    """The categories of a site; without the rows that a fit leaves out, whose levels no other row may have."""
    if task.missing != "drop":
        return site.pieces((), labels=columns)
    beside = [c for c in (task.row_weights, task.offset) if c is not None]
    numbers = dict.fromkeys([*parsed.target.columns, *(c for c in parsed.columns if c not in columns), *beside])
    cluster = [task.cluster] if task.cluster not in (None, SITES, *columns) else []
    return complete(site.pieces(tuple(numbers), labels=[*columns, *map(str, cluster)]), MissingRows(site.name), True)


def agree_levels(found: Mapping[str, Mapping[str, Sequence[Any]]]) -> Levels:
    """The levels that any site has, of each category, sorted; found : what `levels_of` gives, by the sites' names.

    >>> from fedlsa.fitting.levels import agree_levels
    >>> agree_levels({"north": {"region": ("a", "c")}, "south": {"region": ("b", "c")}})
    (('region', ('a', 'b', 'c')),)
    """
    out = []
    for column in dict.fromkeys(c for levels in found.values() for c in levels):
        for site in (s for s, levels in found.items() if column not in levels):
            other = next(s for s, levels in found.items() if column in levels)
            what = "categories" if are_numbers(found[other][column]) else kind_of(found[other][column][0])
            rule = f"column {column!r} must hold numbers at all sites, or categories at all"
            raise SiteDataError(f"{rule}; it holds {what} at {other} and numbers at {site}")
        check_levels({site: levels[column] for site, levels in found.items()}, column)
        out.append((column, tuple(sorted({level for levels in found.values() for level in levels[column]}))))
    return tuple(out)


def known_levels(levels: Sequence[Any]) -> str:
    """The levels, for an error."""
    listed = ", ".join(repr(level) for level in levels[:8])
    return f"its levels are {listed}" + (f" and {len(levels) - 8} more" if len(levels) > 8 else "")


def kind_of(level: Any) -> str:
    """What a level is, in words."""
    kind = {str: "text", bool: "true and false", int: "numbers", float: "numbers"}.get(type(level))
    if kind is None:
        raise SiteDataError(f"levels must be text, numbers, or true and false; got {checks.show(level)}")
    return kind


def are_numbers(levels: Sequence[Any]) -> bool:
    """Whether levels are numbers, which are a category in C() alone."""
    return all(type(level) in (int, float) for level in levels)


def check_levels(found: Mapping[str, Sequence[Any]], column: str) -> None:
    """Refuse levels of two kinds, and too many."""
    kinds = {(kind_of(level), site) for site, levels in found.items() for level in levels}
    names = dict(sorted(kinds, reverse=True))  # a site for each kind
    if len(names) > 1:
        (one, here), (two, there) = sorted(names.items())[:2]
        raise SiteDataError(f"column {column!r} must have levels of one kind; got {one} at {here} and {two} at {there}")
    count = len({level for levels in found.values() for level in levels})
    if count > MAX_LEVELS:
        where = next(iter(found)) if len(found) == 1 else "all sites together"
        rule = f"column {column!r}, a category, must have at most {MAX_LEVELS:,} levels"
        raise SiteDataError(f"{rule}; {where} has more; is it a number, or a name of each row?")


def _is_category(labels: NDArray[Any]) -> bool:
    """Whether a column is a category by itself: text, or true and false."""
    first = next((v for v in labels.tolist() if v is not None), None)
    return labels.dtype.kind in "bUS" or isinstance(first, (str, bytes, bool))


def _factorized(site: str, column: str, labels: NDArray[Any], rows: Rows) -> tuple[NDArray[np.intp], list[Any]]:
    """(n,) places of labels among those that are there, and these; a missing one is an error."""
    import pandas as pd

    if labels.dtype.kind in "mM" and len(labels):
        raise _no_level(site, column, labels[0])
    codes, found = pd.factorize(labels)
    if len(codes) and codes.min() < 0:
        raise missing(site, column, row_number(rows, int(np.argmin(codes))))
    return codes, [_level(site, column, value) for value in np.asarray(found).tolist()]


def _level(site: str, column: str, value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise _no_level(site, column, value)


def _no_level(site: str, column: str, value: Any) -> SiteDataError:
    rule = f"{site}: column {column!r}, a category, must hold text, numbers, or true and false"
    return SiteDataError(f"{rule}; got {checks.show(value)}")
