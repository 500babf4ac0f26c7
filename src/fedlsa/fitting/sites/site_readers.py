"""What a fit takes as sites: one table with a site column, tables by name, lists of tables, files, folders."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ... import checks
from ...errors import ArgumentError, ArgumentTypeError, SiteDataError
from ..tasks import Task
from .arrays import ROWS, Arrays, ColumnBlock, TablePart, from_columns, from_tuple, has_names
from .conversion import plain_array
from .site_files import files_of, open_file, open_partitioned
from .site_names import in_order, name_of, parts_of, site_labels, unlabelled_rows
from .split_files import split_files

ONE = "a path, a table (a data frame or a mapping of columns), or a tuple of arrays"
RULE = (
    f"sites must be a list with one entry per site, {ONE}; a mapping of names to such; a folder of files; "
    "or one table or file with site=..."
)
MEMORY = 6e8  # bytes of rows that are kept between passes. Larger files are read again: then a fit takes less than 1 GB
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


def open_sites(sites: Any, task: Task, site: str | None = None, memory: float = MEMORY) -> list[Site]:
    """The sites of whatever `fl.fit` takes; site : the column that says which site a row is of.

    memory : bytes of rows that a fit may keep, half of which files may take while their rows are split among sites

    Sites of a column are in the order of their names, numbers in theirs. Columns by name are a mapping or a data frame;
    tuples are those of fl.problems.regression and from_transitions.
    """
    if site is not None and (not isinstance(site, str) or not site):
        raise ArgumentTypeError(f"site must be the name of a column; got {checks.show(site)}")
    if isinstance(sites, Mapping) and sites and all(_is_entry(entry) for entry in sites.values()):
        if site is not None:
            raise ArgumentError(f"site must not be given for a mapping, whose keys name the sites; got {site!r}")
        return [open_site(name_of(name), entry, task, f"sites[{name!r}]") for name, entry in sites.items()]
    if site is not None and has_names(sites):
        return _split(from_columns(TABLE, sites), site)
    if isinstance(sites, (str, os.PathLike)) and (site is not None or os.path.isdir(checks.path("sites", sites))):
        sites = [sites]
    if isinstance(sites, (str, os.PathLike)) or has_names(sites):
        rule = (
            f"sites must come with site=... where {'one table' if has_names(sites) else 'one file'} holds all of them"
        )
        raise ArgumentTypeError(f"{rule}: the column that says which site a row is of; got {checks.show(sites)}")
    if not checks.is_sequence(sites) or hasattr(sites, "columns"):
        raise ArgumentTypeError(f"{RULE}; got {checks.show(sites)}")
    entries = checks.entries("sites", sites, RULE.removeprefix("sites must be "))
    if not entries:
        raise ArgumentError(f"{RULE}; got none")
    if site is not None:
        return _split_paths(entries, site, memory)
    return [open_site(name, entry, task, argument) for name, entry, argument in _named(entries)]


def open_site(name: str, entry: Any, task: Task, argument: str) -> Site:
    """One site: a file, a table or a tuple of arrays; argument : how errors call the entry."""
    if isinstance(entry, (str, os.PathLike)):
        return open_file(name, checks.path(argument, entry))
    if has_names(entry):
        return from_columns(name, entry)
    if isinstance(entry, (tuple, list)):
        return from_tuple(name, entry, task)
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


def _named(entries: Sequence[Any]) -> list[tuple[str, Any, str]]:
    """Entries with their names, and how errors call them; a folder is all the files in it.

    Files have their names where they are unique, else their paths, others the name of their pair, else "site 3".
    """
    out: list[tuple[str, Any, str]] = []
    for c, entry in enumerate(entries):
        argument = f"sites[{c}]"
        if isinstance(entry, (str, os.PathLike)):
            path = checks.path(argument, entry)
            found = files_of(path) if os.path.isdir(path) else {path.name: path}
            out += [(name, file, argument) for name, file in found.items()]
        elif isinstance(entry, (tuple, list)) and _is_named(entry):
            out.append((name_of(entry[0]), entry[1], argument))
        else:
            out.append((f"site {c}", entry, argument))
    seen: dict[Path, int] = {}
    for c, (_, entry, _) in enumerate(out):
        if isinstance(entry, Path) and seen.setdefault(entry.resolve(), c) != c:
            raise SiteDataError(f"{entry} must be given once; it is site {seen[entry.resolve()]} and site {c}")
    for is_whole in (False, True):  # once with the paths of files whose names repeat
        times = Counter(name for name, _, _ in out)
        for name in (name for name, count in times.items() if is_whole and count > 1):
            raise ArgumentError(f"sites must have names of their own; got {name!r} {times[name]} times")
        out = [(str(e) if isinstance(e, Path) and times[name] > 1 else name, e, a) for name, e, a in out]
    return out


def _split_paths(paths: Sequence[Any], site: str, memory: float) -> list[Site]:
    """Files, or all files in folders, as sites by a column, or by the key of folders called key=value."""
    if not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise ArgumentError(f"site must be given for one table, for files or for a folder; got {checks.show(paths)}")
    files = [open_partitioned(name, path) for name, path, _ in _named(paths)]
    return [*split_files(files, site, memory / 2)]


def _split(table: Arrays, site: str) -> list[Site]:
    """A table in memory as sites, by a column."""
    if site not in table.columns:
        hint = checks.did_you_mean(site, table.columns) or f"; it has {', '.join(table.columns[:8])}"
        raise SiteDataError(f"{table.name} has no column {site!r}, which is to say what site a row is of{hint}")
    if not table.rows:
        raise SiteDataError(f"{table.name} must have at least one row; it has none")
    names, codes = site_labels(plain_array(table.held[site], labels=True))
    lacking = codes < 0
    if lacking.any():
        raise unlabelled_rows(TABLE, site, int(lacking.sum()), len(codes), int(np.argmax(lacking)) + 1)
    parts = parts_of(names, codes)
    return [TablePart(name, table, parts[name], site) for name in in_order(names)]
