"""What a fit takes as sites: one table with a site column, tables by name, lists of tables, logs, files, folders.

Files, and folders called key=value, may hold the rows of many sites, which a column tells apart: a site's rows may be
spread over all files, which are read once, whatever their order.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError, MissingExtraError, SiteDataError
from ..problems.data import Log
from ..problems.environments import dataset_log
from . import tables
from .formulas import typed_labels
from .table_files import DECIMAL_MARKS, KINDS, DataFile, open_file
from .tables import Batch, DataTable, MemoryTable, check_unique, distinct, name_of, sites_by_label
from .tasks import Names, Regression, Task

ONE = "a path, a table (a data frame or a mapping of columns), a tuple of arrays, a Log, or a Minari data set or its id"
RULE = (
    f"sites must be a list with one entry per site, {ONE}; a mapping of names to such; a folder of files; "
    "or one table or file with site=..."
)
MINARI_ID = re.compile(r"([\w-]+/)*[\w-]+-v\d+")  # such as "D4RL/pen/human-v2"
TABLE = "the table"  # how errors call the one that is split into sites
SAYS = ", which is to say what site a row is of"
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # what a folder is called whose rows have no value


def open_tables(sites: Any, task: Task, site: str | None = None, decimal: str | None = None) -> list[DataTable]:
    """Tables of whatever `fl.fit` takes; site : the column that says which site a row is of.

    decimal : the mark of CSV files, by default as their numbers show it

    Sites of a column are in the order of their names, numbers in theirs. Columns by name are a mapping or a data frame;
    tuples are those of fl.problems.regression and from_transitions.
    """
    if decimal is not None:
        checks.choice("decimal", decimal, DECIMAL_MARKS)
    if site is not None and (not isinstance(site, str) or not site):
        raise ArgumentTypeError(f"site must be the name of a column; got {checks.show(site)}")
    sites = [sites] if is_log(sites) else sites
    is_path = isinstance(sites, (str, os.PathLike))
    if isinstance(sites, Mapping) and sites and all(_is_entry(entry) for entry in sites.values()):
        if site is not None:
            raise ArgumentError(f"site must not be given for a mapping, whose keys name the sites; got {site!r}")
        named = [(name_of(name), entry, f"sites[{name!r}]") for name, entry in sites.items()]
        return [open_table(name, entry, task, given, decimal) for name, entry, given in named]
    if site is not None and has_names(sites):
        return [split_by_column(from_columns(TABLE, sites), site)]
    if is_path and (site is not None or os.path.isdir(checks.path("sites", sites))):
        sites = [sites]
    elif is_path or has_names(sites):
        rule = f"sites must come with site=... where {'one file' if is_path else 'one table'} holds all of them"
        raise ArgumentTypeError(f"{rule}: the column that says which site a row is of; got {checks.show(sites)}")
    if not checks.is_sequence(sites) or hasattr(sites, "columns"):
        raise ArgumentTypeError(f"{RULE}; got {checks.show(sites)}")
    entries = checks.entries("sites", sites, RULE.removeprefix("sites must be "))
    if not entries:
        raise ArgumentError(f"{RULE}; got none")
    if site is None:
        return [open_table(name, entry, task, given, decimal) for name, entry, given in _named(entries)]
    if not all(isinstance(path, (str, os.PathLike)) for path in entries):
        raise ArgumentError(f"site must be given for one table, for files or for a folder; got {checks.show(entries)}")
    return [_open_split([(name, path) for name, path, _ in _named(entries)], site, decimal)]


def open_table(name: str, entry: Any, task: Task, argument: str, decimal: str | None = None) -> DataTable:
    """One site: a file, a table, a log or a tuple of arrays; argument : how errors call the entry."""
    if is_log(entry):
        entry = (entry if isinstance(entry, Log) else dataset_log(argument, entry)).columns()
    if isinstance(entry, (str, os.PathLike)):
        return open_file(name, checks.path(argument, entry), decimal)
    if has_names(entry):
        return from_columns(name, entry)
    if isinstance(entry, (tuple, list)):
        return _from_tuple(name, entry, task)
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


def _named(entries: Sequence[Any]) -> list[tuple[str, Any, str]]:
    """Entries with their names, and how errors call them; a folder is all the files in it.

    Files have their names where they are unique, else their paths; others the name of their pair (name, table), as
    iterating over a pandas group-by gives them, else "site 3".
    """
    out: list[tuple[str, Any, str]] = []
    for c, entry in enumerate(entries):
        given, pair = f"sites[{c}]", isinstance(entry, (tuple, list)) and len(entry) == 2
        if isinstance(entry, str) and is_log(entry):
            out.append((entry, entry, given))
        elif isinstance(entry, (str, os.PathLike)):
            path = checks.path(given, entry)
            found = _files_of(path) if os.path.isdir(path) else {path.name: path}
            out += [(name, file, given) for name, file in found.items()]
        elif pair and (isinstance(entry[0], (str, tuple)) or not hasattr(entry[0], "__len__")) and has_names(entry[1]):
            out.append((name_of(entry[0]), entry[1], given))
        else:
            out.append((f"site {c}", entry, given))
    first: dict[Path, int] = {}
    for c, (_, entry, _) in enumerate(out):
        if isinstance(entry, Path) and first.setdefault(entry.resolve(), c) != c:
            raise SiteDataError(f"{entry} must be given once; it is site {first[entry.resolve()]} and site {c}")
    times = Counter(name for name, _, _ in out)
    out = [(str(e) if isinstance(e, Path) and times[name] > 1 else name, e, given) for name, e, given in out]
    for name, count in Counter(name for name, _, _ in out).items():
        if count > 1:
            raise ArgumentError(f"sites must have names of their own; got {name!r} {count} times")
    return out


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitFiles(DataTable):
    """Files that hold the rows of many sites; places : of what stands in the column of the sites' names, in `sites`."""

    members: tuple[DataFile, ...]
    places: Mapping[Any, int]

    def batches(self, columns: Sequence[str], labels: Sequence[str]) -> Iterator[Batch]:
        by, before = str(self.split_by), 0
        for file in self.members:
            end = before
            for start, numbers, texts, _ in file.batches(columns, (*labels, by)):
                codes, found = distinct(texts[by])
                codes = np.array([*(self.places.get(label, -1) for label in found), -1], np.int64)[codes]
                if codes.min() < 0:
                    rule = f"{self.name} must not change while it is read"
                    raise SiteDataError(f"{rule}; it has rows of sites that it had not")
                assert isinstance(start, int)
                end = before + start + len(codes)
                yield before + start, numbers, {c: texts[c] for c in labels}, codes
            before = end

    def which_are_categories(self, columns: Sequence[str]) -> dict[str, bool | None]:
        each = [file.which_are_categories(columns) for file in self.members]
        found = {c: [one[c] for one in each if one[c] is not None] for c in columns}
        return {c: any(known) if known else None for c, known in found.items()}


def _open_split(paths: Sequence[tuple[str, Path]], site: str, decimal: str | None) -> SplitFiles:
    """Files that hold the rows of many sites, by a column, or by the key of folders called key=value.

    A first pass over that column finds the sites.
    """
    files = []
    for name, path in paths:  # firm=3/part.parquet is of firm 3
        file = open_file(name, path, decimal)
        found = [match for part in Path(name).parts[:-1] if (match := re.fullmatch(r"([^=]+)=(.*)", part))]
        fixed = {m[1]: None if m[2] == NO_PARTITION else unquote(m[2]) for m in found if m[1] not in file.columns}
        untyped = file.untyped | fixed.keys()
        files.append(replace(file, columns=(*file.columns, *fixed), fixed=fixed, untyped=untyped, split_by=site))
    for file in files:
        file.require(site, SAYS)
    counts: Counter[Any] = Counter()
    for file in files:
        _count_labels(file, site, counts)
    typed = typed_labels(label for label in counts if isinstance(label, str))
    order, places = sites_by_label({label: name_of(typed.get(label, label)) for label in counts})
    return SplitFiles(
        name=files[0].name,
        columns=files[0].columns,
        sites=order,
        rows=counts.total(),
        split_by=site,
        categories={c: declared for f in reversed(files) for c, declared in f.categories.items()},
        untyped=frozenset().union(*(f.untyped for f in files)),
        members=tuple(files),
        places=places,
    )


def _count_labels(file: DataFile, column: str, counts: Counter[Any]) -> None:
    """How many rows of a file have each label; a row without one is an error."""
    rows = lacking = first = 0
    for _, _, texts, _ in file.batches((), (column,)):
        codes, found = distinct(texts[column])
        missing = codes < 0
        first = first if lacking or not missing.any() else rows + int(np.argmax(missing)) + 1
        lacking, rows = lacking + int(missing.sum()), rows + len(codes)
        times = np.bincount(codes[~missing], minlength=len(found)).tolist()
        counts.update(dict(zip(found, times, strict=True)))
    if lacking:
        raise tables.unlabelled_error(file.name, column, lacking, rows, first)
    if not rows:
        raise SiteDataError(f"{file.name} must have at least one row; it has none")


def _files_of(path: Path) -> dict[str, Path]:
    """The Parquet and CSV files in a folder and below, by their path in it; hidden ones are left out."""
    found = {}
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path)
        hidden = any(part.startswith((".", "_")) for part in inside.parts)
        if not hidden and file.name.lower().endswith(tuple(KINDS)) and file.is_file():
            found[inside.as_posix()] = file
    if not found:
        raise SiteDataError(f"{path} must hold files that end in {', '.join(KINDS)}; it holds none")
    return found


def split_by_column(table: MemoryTable, site: str) -> DataTable:
    """A table in memory as one of several sites, by a column."""
    table.require(site, SAYS)
    if not table.rows:
        raise SiteDataError(f"{table.name} must have at least one row; it has none")
    codes, labels = distinct(table.column(site, True))
    lacking = codes < 0
    if lacking.any():
        raise tables.unlabelled_error(table.name, site, int(lacking.sum()), len(codes), int(np.argmax(lacking)) + 1)
    names, place = sites_by_label({k: name_of(label) for k, label in enumerate(labels)})
    codes = np.array([place[k] for k in range(len(labels))], np.int64)[codes]
    rows = np.argsort(codes, kind="stable")
    return replace(table, sites=names, split_by=site, order=rows, codes=codes[rows])


def has_names(table: Any) -> bool:
    """Whether a table gives its columns by name: a mapping, or a data frame that narwhals knows."""
    return isinstance(table, Mapping) or _frame(table) is not None


def _frame(table: Any) -> Any:
    """A data frame (pandas, polars, Arrow, ...) as narwhals gives it, or pandas' own where there is no narwhals."""
    streams = hasattr(table, "__arrow_c_stream__")
    if not (streams or hasattr(type(table), "columns")) or isinstance(table, Log):
        return None  # a lazy frame would find its columns now
    try:
        import narwhals as nw
    except ImportError:
        pandas = sys.modules.get("pandas")
        if pandas is not None and isinstance(table, pandas.DataFrame):
            return table
        kind = type(table).__name__
        raise MissingExtraError(f"tables of the kind {kind} need narwhals: pip install 'fedlsa[data]'") from None
    try:
        found = nw.from_native(table, pass_through=True)
    except nw.exceptions.DuplicateError:
        return table
    if isinstance(found, nw.LazyFrame):
        return found.collect()
    if isinstance(found, nw.DataFrame):
        return found
    return nw.DataFrame.from_arrow(table, backend="pyarrow") if streams and not hasattr(table, "dtype") else None


def from_columns(name: str, table: Any) -> MemoryTable:
    """A table of one site from a mapping of columns, or from a data frame."""
    frame: Any = table if isinstance(table, Mapping) else _frame(table)
    labels = list(table) if isinstance(table, Mapping) else list(getattr(frame, "column_names", None) or frame.columns)
    names = tuple(str(label) for label in labels)
    check_unique(name, names)
    given = frame.iter_columns() if hasattr(frame, "iter_columns") else (frame[label] for label in labels)
    columns = dict(zip(names, given, strict=True))
    shapes = {c: np.shape(v) for c, v in columns.items()}
    if not shapes:
        raise SiteDataError(f"{name} must have columns; it has none")
    first = names[0]
    for column, shape in shapes.items():
        if len(shape) != 1:
            raise SiteDataError(f"{name}: column {column!r} must be one-dimensional; got shape {shape}")
        if shape != shapes[first]:
            rule = f"{name}: all columns must have as many rows"
            raise SiteDataError(f"{rule}; {first!r} has {shapes[first][0]} and {column!r} has {shape[0]}")
    native = frame.to_native() if hasattr(frame, "to_native") else None
    typed = tables.pandas_categories(getattr(native, "schema", None))
    declared = {c: tables.declared_levels(v, c in typed) for c, v in columns.items() if tables.is_categorical(v)}
    rows = shapes[first][0]
    return MemoryTable(name=name, columns=names, sites=(name,), rows=rows, categories=declared, given=columns)


def _from_tuple(name: str, entry: Sequence[Any], task: Task) -> MemoryTable:
    """A site from (X, y), or from (phi, r, phi_next, terminated[, truncated[, importance]]), named as the task says."""
    if isinstance(task, Regression):
        if len(entry) != 2:
            raise SiteDataError(f"{name} must be a pair of arrays (X, y); got {len(entry)} entries")
        return from_columns(name, _matrix_columns(name, "X", entry[0], task.columns, "x") | {task.response: entry[1]})
    if not 4 <= len(entry) <= 6:
        form = "(phi, r, phi_next, terminated[, truncated[, importance]])"
        raise SiteDataError(f"{name} must be a tuple of arrays {form}; got {len(entry)} entries")
    phi, r, following, ended, *more = entry
    out = _matrix_columns(name, "phi", phi, task.state) | _matrix_columns(name, "phi_next", following, task.next_state)
    out |= {task.reward: r, task.terminated: ended}
    optional = zip((task.truncated, task.importance), more, strict=False)
    return from_columns(name, out | {column: values for column, values in optional if values is not None})


def _matrix_columns(site: str, what: str, values: Any, names: Names | None, default: str = "") -> dict[str, Any]:
    """The columns of a matrix by name: those of a list, else a prefix and their numbers; a vector is one column.

    A data frame has names of its own, which a prefix is put before; its order of columns means nothing.
    """
    where = f"{site}: {what}"
    if has_names(values):
        given = dict(from_columns(where, values).given)
        if names is None or isinstance(names, str):
            tables.refuse_index(where, list(given), "leave it out of the data frame (df[columns])")
        if isinstance(names, str):
            return {c if c.startswith(names) else f"{names}_{c}": v for c, v in given.items()}
        if names is not None and set(names) != set(given):
            raise SiteDataError(f"{where} must have the columns {', '.join(names)}; got {', '.join(given)}")
        return given
    try:
        matrix = np.asarray(values) if not isinstance(values, np.ma.MaskedArray) else values
    except ValueError:
        raise SiteDataError(f"{where} must have rows of one length; got {checks.show(values)}") from None
    if matrix.ndim not in (1, 2):
        raise SiteDataError(f"{where} must have the shape (rows, columns); got shape {matrix.shape}")
    columns = list(matrix.T) if matrix.ndim == 2 else [matrix]
    prefix = names if isinstance(names, str) else default
    labels = [f"{prefix}{j}" for j in range(len(columns))] if names is None or isinstance(names, str) else names
    labels = [names] if isinstance(names, str) and matrix.ndim == 1 else labels
    if len(labels) != len(columns):
        raise SiteDataError(f"{where} must have {len(labels)} columns, as many as are named; got {len(columns)}")
    if not labels:
        raise SiteDataError(f"{where} must have at least one column; got shape {matrix.shape}")
    return dict(zip(labels, columns, strict=True))
