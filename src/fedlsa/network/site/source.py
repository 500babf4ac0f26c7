"""A site's data as its owner names them: a file, or a function that returns them. They are opened when first read."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError, SiteDataError
from ...files import reason
from ...fit.arrays import ROWS, from_columns, from_tuple, has_names
from ...fit.site_readers import Site, open_sites
from ...fit.tasks import Task

FORM = "package.module:function or file.py:function"


@dataclass(frozen=True)
class SiteData:
    """A site (fit/sites.py) in a file or from a loader; nothing is read before it is asked for."""

    path: Path | None
    loader: str | None
    task: Task

    @property
    def name(self) -> str:
        return self.path.name if self.path is not None else str(self.loader)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.opened.columns

    @property
    def rows(self) -> int | None:
        return self.opened.rows

    def pieces(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[dict[str, Floats]]:
        """The columns, at most `rows` rows at a time."""
        return self.opened.pieces(columns, rows)

    @cached_property
    def opened(self) -> Site:
        """The data themselves."""
        if self.path is not None:
            return open_sites([self.path], self.task)[0]
        entry = _called(str(self.loader))
        if isinstance(entry, (str, os.PathLike)):
            return open_sites([entry], self.task)[0]
        if has_names(entry):
            return from_columns(self.name, entry)
        if isinstance(entry, (tuple, list)):
            return from_tuple(self.name, entry, self.task)
        rule = f"{self.name} must return a path, a mapping of columns, or a tuple of arrays"
        raise SiteDataError(f"{rule}; got {checks.show(entry)}")

    def stamp(self) -> list[str | int]:
        """What tells these data from others without reading them: where they are, their size and when they changed.

        Of a loader it is its name alone: its rows are those of the day on which the site joined (prepared.clear).
        """
        if self.path is None:
            return ["loader", str(self.loader)]
        try:
            there = self.path.stat()
        except OSError as error:
            raise SiteDataError(f"{self.path} cannot be read: {reason(error)}") from None
        return ["file", str(self.path.resolve()), there.st_size, there.st_mtime_ns]


def open_data(path: Path | str | None, loader: str | None, task: Task) -> SiteData:
    """A site's data, from a Parquet or CSV file or from a loader; loader : package.module:function or file.py:function.

    A loader takes no arguments and returns what fl.fit takes for one site: columns by name, a tuple of arrays, a path.
    """
    if (path is None) == (loader is None):
        raise ArgumentError(f"exactly one of data and loader must be given; got {path!r} and {loader!r}")
    if loader is not None:
        _parts(loader)
        return SiteData(None, loader, task)
    return SiteData(checks.path("data", path), None, task)


def _parts(loader: Any) -> tuple[str, str]:
    module, _, function = loader.rpartition(":") if isinstance(loader, str) else ("", "", "")
    if not module or not function.isidentifier():
        raise ArgumentError(f"loader must be {FORM}; got {checks.show(loader)}")
    return module, function


def _called(loader: str) -> Any:
    function = _function(loader)
    try:
        return function()
    except Exception as error:  # code of the site's own can fail in any way
        raise SiteDataError(f"{loader} failed with {type(error).__name__}: {reason(error)}") from error


def _function(loader: str) -> Callable[[], Any]:
    module, name = _parts(loader)
    try:
        if module.endswith(".py"):
            spec = importlib.util.spec_from_file_location("fedlsa_site_loader", module)
            assert spec is not None
            assert spec.loader is not None
            found = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(found)
        else:
            found = importlib.import_module(module)
    except Exception as error:  # so can its import
        what = f"{type(error).__name__}: {reason(error)}"
        raise SiteDataError(f"loader must be {FORM} that can be imported; {module} cannot: {what}") from error
    function = getattr(found, name, None)
    if not callable(function):
        raise SiteDataError(f"loader must name a function; {module} has no function {name!r}")
    return function
