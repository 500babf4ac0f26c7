"""What a fit takes as sites: one table with a site column, tables by name, lists of tables, logs, files, folders."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError, SiteDataError
from ..problems.environments import dataset_log
from ..problems.transitions import Log
from .table_files import MARKS, files_of, open_file, open_split
from .tables import (
    DataTable,
    MemoryTable,
    from_columns,
    from_tuple,
    has_names,
    in_order,
    name_of,
    site_codes,
    unlabelled_rows,
)
from .tasks import Task

ONE = "a path, a table (a data frame or a mapping of columns), a tuple of arrays, a Log, or a Minari data set or its id"
RULE = (
    f"sites must be a list with one entry per site, {ONE}; a mapping of names to such; a folder of files; "
    "or one table or file with site=..."
)
MINARI_ID = re.compile(r"([\w-]+/)*[\w-]+-v\d+")  # such as "D4RL/pen/human-v2"
TABLE = "the table"  # how errors call the one that is split into sites


def open_tables(
    sites: Any, task: Task, site: str | None = None, decimal: str | None = None, argument: str = "sites"
) -> list[DataTable]:
    """Tables of whatever `fl.fit` takes; site : the column that says which site a row is of.

    decimal : the mark of CSV files, by default as their numbers show it

    Sites of a column are in the order of their names, numbers in theirs. Columns by name are a mapping or a data frame;
    tuples are those of fl.problems.regression and from_transitions.
    """
    if decimal is not None:
        checks.choice("decimal", decimal, MARKS)
    if site is not None and (not isinstance(site, str) or not site):
        raise ArgumentTypeError(f"site must be the name of a column; got {checks.show(site)}")
    sites = [sites] if is_log(sites) else sites
    is_path = isinstance(sites, (str, os.PathLike))
    if isinstance(sites, Mapping) and sites and all(_is_entry(entry) for entry in sites.values()):
        if site is not None:
            raise ArgumentError(f"site must not be given for a mapping, whose keys name the sites; got {site!r}")
        return [
            open_table(name_of(name), entry, task, f"{argument}[{name!r}]", decimal) for name, entry in sites.items()
        ]
    if site is not None and has_names(sites):
        return [_split(from_columns(TABLE, sites), site)]
    if is_path and (site is not None or os.path.isdir(checks.path(argument, sites))):
        sites = [sites]
    elif is_path or has_names(sites):
        rule = f"sites must come with site=... where {'one file' if is_path else 'one table'} holds all of them"
        raise ArgumentTypeError(f"{rule}: the column that says which site a row is of; got {checks.show(sites)}")
    if not checks.is_sequence(sites) or hasattr(sites, "columns"):
        raise ArgumentTypeError(f"{RULE}; got {checks.show(sites)}")
    entries = checks.entries(argument, sites, RULE.removeprefix("sites must be "))
    if not entries:
        raise ArgumentError(f"{RULE}; got none")
    if site is None:
        return [open_table(name, entry, task, given, decimal) for name, entry, given in _named(entries, argument)]
    if not all(isinstance(path, (str, os.PathLike)) for path in entries):
        raise ArgumentError(f"site must be given for one table, for files or for a folder; got {checks.show(entries)}")
    found = [(name, path) for name, path, _ in _named(entries, argument)]
    return [open_split(found, site, decimal)]


def open_table(name: str, entry: Any, task: Task, argument: str, decimal: str | None = None) -> DataTable:
    """One site: a file, a table, a log or a tuple of arrays; argument : how errors call the entry."""
    if is_log(entry):
        entry = (entry if isinstance(entry, Log) else dataset_log(argument, entry)).columns()
    if isinstance(entry, (str, os.PathLike)):
        return open_file(name, checks.path(argument, entry), decimal)
    if has_names(entry):
        return from_columns(name, entry)
    if isinstance(entry, (tuple, list)):
        return from_tuple(name, entry, task)
    raise ArgumentTypeError(f"{argument} must be {ONE}; got {checks.show(entry)}")


def is_log(entry: Any) -> bool:
    """Whether it is a log of transitions, a Minari data set, or the id of one that is no path."""
    if isinstance(entry, str):
        return MINARI_ID.fullmatch(entry) is not None and not os.path.exists(entry)
    return isinstance(entry, Log) or hasattr(entry, "iterate_episodes")


def _is_entry(value: Any) -> bool:
    """Whether a value of a mapping is a site of its own, not a column."""
    if isinstance(value, (str, os.PathLike)) or has_names(value) or is_log(value):
        return True
    first = value[0] if isinstance(value, (tuple, list)) and value else None
    return has_names(first) or (hasattr(first, "__len__") and not isinstance(first, (str, bytes)))


def _named(entries: Sequence[Any], argument: str) -> list[tuple[str, Any, str]]:
    """Entries with their names, and how errors call them; a folder is all the files in it.

    Files have their names where they are unique, else their paths; others the name of their pair (name, table), as
    iterating over a pandas group-by gives them, else "site 3".
    """
    out: list[tuple[str, Any, str]] = []
    for c, entry in enumerate(entries):
        given = f"{argument}[{c}]"
        if isinstance(entry, str) and is_log(entry):
            out.append((entry, entry, given))
        elif isinstance(entry, (str, os.PathLike)):
            path = checks.path(given, entry)
            found = files_of(path) if os.path.isdir(path) else {path.name: path}
            out += [(name, file, given) for name, file in found.items()]
        elif isinstance(entry, (tuple, list)) and len(entry) == 2 and _is_label(entry[0]) and has_names(entry[1]):
            out.append((name_of(entry[0]), entry[1], given))
        else:
            out.append((f"site {c}", entry, given))
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


def _is_label(value: Any) -> bool:
    return isinstance(value, (str, tuple)) or not hasattr(value, "__len__")


def _split(table: MemoryTable, site: str) -> DataTable:
    """A table in memory as one of several sites, by a column."""
    table.require(site, ", which is to say what site a row is of")
    if not table.rows:
        raise SiteDataError(f"{table.name} must have at least one row; it has none")
    names, codes = site_codes(table.column(site, True))
    lacking = codes < 0
    if lacking.any():
        raise unlabelled_rows(TABLE, site, int(lacking.sum()), len(codes), int(np.argmax(lacking)) + 1)
    order = in_order(names)
    place = {name: k for k, name in enumerate(order)}
    codes = np.array([place[name] for name in names], np.int64)[codes]
    rows = np.argsort(codes, kind="stable")
    return replace(table, sites=tuple(order), split_by=site, order=rows, codes=codes[rows])
