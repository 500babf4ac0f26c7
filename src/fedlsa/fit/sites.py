"""Where a site's observations come from: a file read in pieces, or arrays in memory; columns by name, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..checks import Floats
from .tasks import Regression, Task

ROWS = 2**16  # of a piece


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

    def pieces(self, columns: Sequence[str]) -> Iterator[dict[str, Floats]]:
        """The columns, about ROWS rows at a time, as finite float64 arrays (n,); SiteDataError for what is not one."""
        ...


def open_sites(sites: Sequence[Any], task: Task) -> list[Site]:
    """A site for each entry of a list: a path to a Parquet or CSV file, a mapping of columns, or a tuple of arrays."""
    out: list[Site] = []
    for c, entry in enumerate(sites):
        columns = dict(entry) if isinstance(entry, Mapping) else _named(entry, task)
        out.append(Arrays(f"site {c}", {k: np.asarray(v, np.float64) for k, v in columns.items()}))
    return out


@dataclass(frozen=True, eq=False)
class Arrays:
    """A site whose columns are in memory."""

    name: str
    held: dict[str, Floats]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.held)

    @property
    def rows(self) -> int | None:
        return len(next(iter(self.held.values())))

    def pieces(self, columns: Sequence[str]) -> Iterator[dict[str, Floats]]:
        """The columns, ROWS rows at a time."""
        for start in range(0, self.rows or 0, ROWS):
            yield {c: self.held[c][start : start + ROWS] for c in columns}


def _named(entry: Any, task: Task) -> dict[str, Any]:
    if isinstance(task, Regression):
        X, y = entry
        return {f"x{j}": column for j, column in enumerate(np.asarray(X).T)} | {task.target: y}
    phi, r, following, ended, *more = entry
    out = {f"{task.state}{j}": column for j, column in enumerate(np.asarray(phi).T)}
    out |= {f"{task.next_state}{j}": column for j, column in enumerate(np.asarray(following).T)}
    out |= {task.reward: r, task.terminated: ended}
    return out | dict(zip((task.truncated, task.importance), more, strict=False))
