"""What a fit takes as sites: one table with a site column, tables by name, lists of tables, files, folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError, SiteDataError
from .arrays import ROWS, Arrays, ColumnBlock, TablePart, from_columns, from_tuple, has_names
from .conversion import is_missing, plain_array
from .site_files import open_file
from .tasks import Task

ONE = "a path, a table (a data frame or a mapping of columns), or a tuple of arrays"
RULE = f"sites must be a list with one entry per site, {ONE}; a mapping of names to such; or one table with site=..."
TABLE = "the table"  # how errors call the one that is split into sites


class Site(Protocol):
    """One site's data: named columns of numbers, in the order in which they were recorded.

    name : how errors and tables call it; rows : how many there are, where that is known without reading
    split_by : the column by which a table was split into sites, which is no feature unless it is named as one
    categories : columns that are categories by their type, whatever their values
    """

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def rows(self) -> int | None: ...

    @property
    def split_by(self) -> str | None: ...

    @property
    def categories(self) -> frozenset[str]: ...

    def pieces(self, columns: Sequence[str], rows: int = ROWS, labels: Sequence[str] = ()) -> Iterator[ColumnBlock]:
        """The columns, at most `rows` rows at a time, as float64 numbers, NaN where missing; SiteDataError for what is
        not one.

        labels : columns that are given as they are, numbers or not, None or NaN where missing
        """
        ...


def open_sites(sites: Any, task: Task, site: str | None = None) -> list[Site]:
    """The sites of whatever `fl.fit` takes; site : the column that says which site a row is of.

    Sites of a column are in the order of their names, numbers in theirs. Columns by name are a mapping or a data frame;
    tuples are those of fl.problems.regression and from_transitions.
    """
    if site is not None and (not isinstance(site, str) or not site):
        raise ArgumentTypeError(f"site must be the name of a column; got {checks.show(site)}")
    if isinstance(sites, Mapping) and sites and all(_is_entry(entry) for entry in sites.values()):
        if site is not None:
            raise ArgumentError(f"site must not be given for a mapping, whose keys name the sites; got {site!r}")
        return [open_site(str(name), entry, task, f"sites[{name!r}]") for name, entry in sites.items()]
    if site is not None and has_names(sites):
        return _split(from_columns(TABLE, sites), site)
    if not checks.is_sequence(sites) or has_names(sites) or hasattr(sites, "columns"):
        raise ArgumentTypeError(f"{RULE}; got {checks.show(sites)}")
    entries = checks.entries("sites", sites, RULE.removeprefix("sites must be "))
    if not entries:
        raise ArgumentError(f"{RULE}; got none")
    named = zip(_names(entries), entries, strict=True)
    return [open_site(name, entry, task, f"sites[{c}]") for c, (name, entry) in enumerate(named)]


def open_site(name: str, entry: Any, task: Task, argument: str) -> Site:
    """One site: a file, a table or a tuple of arrays; argument : how errors call the entry."""
    if isinstance(entry, (str, os.PathLike)):
        return open_file(name, checks.path(argument, entry))
    if has_names(entry):
        return from_columns(name, entry)
    if isinstance(entry, (tuple, list)):
        return from_columns(name, entry[1]) if _is_named(entry) else from_tuple(name, entry, task)
    raise ArgumentTypeError(f"{argument} must be {ONE}; got {checks.show(entry)}")


def _is_entry(value: Any) -> bool:
    """Whether a value of a mapping is a site of its own, not a column."""
    if isinstance(value, (str, os.PathLike)) or has_names(value):
        return True
    first = value[0] if isinstance(value, (tuple, list)) and value else None
    return has_names(first) or (hasattr(first, "__len__") and not isinstance(first, (str, bytes)))


def _is_named(entry: Sequence[Any]) -> bool:
    """Whether an entry is a pair of a name and a table, as iterating over a pandas group-by gives them."""
    is_name = len(entry) == 2 and (isinstance(entry[0], (str, tuple)) or not hasattr(entry[0], "__len__"))
    return is_name and has_names(entry[1])


def _names(entries: Sequence[Any]) -> list[str]:
    """File names where they are unique, else paths as they were given; "site 3" for data in memory without a name."""
    paths = {c: checks.path(f"sites[{c}]", e) for c, e in enumerate(entries) if isinstance(e, (str, os.PathLike))}
    seen: dict[Path, int] = {}
    for c, path in paths.items():
        if seen.setdefault(path.resolve(), c) != c:
            raise SiteDataError(f"{path} must be given once; it is site {seen[path.resolve()]} and site {c}")
    short = [path.name for path in paths.values()]
    out = [
        (str(entry[0]) if isinstance(entry, (tuple, list)) and _is_named(entry) else f"site {c}")
        if c not in paths
        else (paths[c].name if short.count(paths[c].name) == 1 else str(paths[c]))
        for c, entry in enumerate(entries)
    ]
    for name in (name for name in out if out.count(name) > 1):
        raise ArgumentError(f"sites must have names of their own; got {name!r} {out.count(name)} times")
    return out


def _split(table: Arrays, site: str) -> list[Site]:
    """A table in memory as sites, by a column."""
    if site not in table.columns:
        hint = checks.did_you_mean(site, table.columns) or f"; it has {', '.join(table.columns[:8])}"
        raise SiteDataError(f"{table.name} has no column {site!r}, which is to say what site a row is of{hint}")
    names, codes = site_labels(TABLE, site, plain_array(table.held[site], labels=True))
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    parts = {name: order[a:b] for name, a, b in zip(names, cuts, cuts[1:], strict=False)}
    return [TablePart(name, table, parts[name], site) for name in in_order(names)]


def site_labels(table: str, column: str, values: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """The sites' names in a column of any labels, and which of them each row has : (n,)."""
    import pandas as pd

    lacking = int(is_missing(values).sum())
    if lacking:
        raise SiteDataError(
            f"{table}: column {column!r} must say of every row what site it is of; {lacking:,} of {len(values):,} rows "
            f"have no value, the first is row {int(np.argmax(is_missing(values))) + 1:,}"
        )
    codes, found = pd.factorize(values)
    names = [name_of(label) for label in pd.Index(found)]
    distinct = {name: k for k, name in enumerate(dict.fromkeys(names))}  # 1, 1.0 and "1" are one site
    return list(distinct), np.array([distinct[name] for name in names], np.int64)[codes]


def name_of(label: Any) -> str:
    """The name of a site from its label: whole numbers without a point, dates without the time where it is midnight."""
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label).removesuffix(" 00:00:00")


def in_order(names: Iterable[str]) -> list[str]:
    """Names sorted: numbers by their size, text with the numbers in it by theirs."""
    held = list(names)
    try:
        return sorted(held, key=float)
    except ValueError:
        parts = {name: re.split(r"(\d+)", name) for name in held}
        return sorted(held, key=lambda name: [int(t) if k % 2 else t for k, t in enumerate(parts[name])])
