"""Where a site's observations come from: a file read in pieces, or arrays in memory; columns by name, checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError, MissingExtraError, SiteDataError
from .arrays import from_columns, from_tuple, has_names
from .csv_file import open_csv
from .numbers import ROWS
from .parquet import open_parquet
from .tasks import Task


class Site(Protocol):
    """One site's data: named columns of numbers, in the order in which they were recorded."""

    @property
    def name(self) -> str:
        """How errors and tables call it."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all its columns, in order."""
        ...

    @property
    def rows(self) -> int | None:
        """How many rows it has, where that is known without reading."""
        ...

    def pieces(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[dict[str, Floats]]:
        """The columns, at most `rows` rows at a time, as finite float64 arrays; SiteDataError for what is not one."""
        ...


KINDS: dict[str, Callable[[str, Path], Site]] = {
    ".parquet": open_parquet,
    ".pq": open_parquet,
    ".csv": open_csv,
    ".csv.gz": open_csv,
}


def open_sites(sites: Sequence[Any], task: Task) -> list[Site]:
    """A site for each entry of a list: a path to a Parquet or CSV file, columns by name, or a tuple of arrays.

    Columns by name are a mapping or a data frame; tuples are those of fl.problems.regression and from_transitions.
    """
    rule = "sites must be a list with one entry per site: a path, a mapping of columns, or a tuple of arrays"
    if not checks.is_sequence(sites) or isinstance(sites, Mapping) or hasattr(sites, "columns"):
        raise ArgumentTypeError(f"{rule}; got {checks.show(sites)}")
    entries = checks.entries("sites", sites, rule.removeprefix("sites must be "))
    if not entries:
        raise ArgumentError(f"{rule}; got none")
    named = zip(_names(entries), entries, strict=True)
    return [_opened(name, entry, task, f"sites[{c}]") for c, (name, entry) in enumerate(named)]


def _opened(name: str, entry: Any, task: Task, argument: str) -> Site:
    if isinstance(entry, (str, os.PathLike)):
        return open_file(name, checks.path(argument, entry))
    if has_names(entry):
        return from_columns(name, entry)
    if isinstance(entry, (tuple, list)):
        return from_tuple(name, entry, task)
    raise ArgumentTypeError(
        f"{argument} must be a path, a mapping of columns, or a tuple of arrays; got {checks.show(entry)}"
    )


def _names(entries: Sequence[Any]) -> list[str]:
    """File names where they are unique, else paths as they were given; "site 3" for data in memory."""
    paths = {c: checks.path(f"sites[{c}]", e) for c, e in enumerate(entries) if isinstance(e, (str, os.PathLike))}
    seen: dict[Path, int] = {}
    for c, path in paths.items():
        if seen.setdefault(path.resolve(), c) != c:
            raise SiteDataError(f"{path} must be given once; it is site {seen[path.resolve()]} and site {c}")
    short = [path.name for path in paths.values()]
    return [
        f"site {c}" if c not in paths else paths[c].name if short.count(paths[c].name) == 1 else str(paths[c])
        for c in range(len(entries))
    ]


def open_file(name: str, path: Path) -> Site:
    """The site in a file, of the kind that its name ends in."""
    kind = next((opener for end, opener in KINDS.items() if path.name.lower().endswith(end)), None)
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
    try:
        site = kind(name, path)
    except ImportError:
        raise MissingExtraError("site files need pyarrow: pip install 'fedlsa[data]'") from None
    columns = site.columns
    for column in columns:
        if columns.count(column) > 1:
            raise SiteDataError(f"{name} must have each column once; {column!r} appears {columns.count(column)} times")
    return site
