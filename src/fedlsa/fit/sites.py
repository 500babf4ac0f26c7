"""Where a site's observations come from: a file read in pieces, or arrays in memory; columns by name, checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ..checks import Floats

ROWS = 2**16  # of a piece


class Site(Protocol):
    """One site's data: named columns of numbers, in the order in which they were recorded."""

    name: str
    columns: tuple[str, ...]
    rows: int | None  # where it is known without reading

    def pieces(self, columns: Sequence[str]) -> Iterator[dict[str, Floats]]:
        """The columns, about ROWS rows at a time, as finite float64 arrays (n,); what is not one raises SiteDataError."""
        ...


def open_sites(sites: Any, task: Any) -> list[Site]:
    """A site for each entry of a list: a path to a Parquet or CSV file, a mapping of columns, or a tuple of arrays."""
    raise NotImplementedError
