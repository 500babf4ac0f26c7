"""Sites whose data are in memory: columns by name, or tuples of arrays as the problem constructors take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, SiteDataError
from .numbers import ROWS, from_array
from .tasks import Names, Regression, Task


@dataclass(frozen=True, eq=False)
class Arrays:
    """A site whose columns are in memory; each is checked when it is first wanted."""

    name: str
    held: Mapping[str, Any]
    checked: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = {c: np.shape(v) for c, v in self.held.items()}
        if not sizes:
            raise SiteDataError(f"{self.name} must have columns; it has none")
        first = next(iter(sizes))
        for column, shape in sizes.items():
            if len(shape) != 1:
                raise SiteDataError(f"{self.name}: column {column!r} must be one-dimensional; got shape {shape}")
            if shape != sizes[first]:
                raise SiteDataError(
                    f"{self.name}: all columns must have as many rows; "
                    f"{first!r} has {sizes[first][0]} and {column!r} has {shape[0]}"
                )

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.held)

    @property
    def rows(self) -> int | None:
        return len(next(iter(self.held.values())))

    def pieces(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[dict[str, Floats]]:
        """The columns, `rows` rows at a time."""
        for c in columns:
            if c not in self.checked:
                self.checked[c] = from_array(self.name, c, self.held[c])
        for start in range(0, self.rows or 0, rows):
            yield {c: self.checked[c][start : start + rows] for c in columns}


def has_names(table: Any) -> bool:
    """Whether a table gives its columns by name: a mapping, or a data frame."""
    return isinstance(table, Mapping) or (hasattr(table, "columns") and hasattr(table, "__getitem__"))


def by_name(argument: str, table: Any, wanted: Sequence[str], others: Sequence[str]) -> Floats:
    """(n, k): the wanted columns of a table with names, in the order wanted; others : that may be there as well."""
    found = from_columns(argument, table)
    rule = f"{argument} must have the columns {', '.join(wanted)}, in any order"
    for lacking in (c for c in wanted if c not in found.columns):
        raise ArgumentError(f"{rule}; got none called {lacking!r}")
    for extra in (c for c in found.columns if c not in wanted and c not in others):
        raise ArgumentError(f"{rule}, and no others; got {extra!r} as well")
    return np.column_stack([from_array(argument, c, found.held[c]) for c in wanted])


def from_columns(name: str, table: Any) -> Arrays:
    """A site from a mapping of columns, or from a data frame (whatever has `columns` and gives them by name)."""
    labels = list(table) if isinstance(table, Mapping) else list(getattr(table, "column_names", table.columns))
    names = [str(label) for label in labels]
    for column in names:
        if names.count(column) > 1:
            raise SiteDataError(f"{name} must have each column once; {column!r} appears {names.count(column)} times")
    return Arrays(name, {column: table[label] for column, label in zip(names, labels, strict=True)})


def from_tuple(name: str, entry: Sequence[Any], task: Task) -> Arrays:
    """A site from (X, y), or from (phi, r, phi_next, terminated[, truncated[, importance]]), named as the task says."""
    if isinstance(task, Regression):
        if len(entry) != 2:
            raise SiteDataError(f"{name} must be a pair of arrays (X, y); got {len(entry)} entries")
        return from_columns(name, _spread(name, "X", entry[0], task.features, "x") | {task.target: entry[1]})
    if not 4 <= len(entry) <= 6:
        form = "(phi, r, phi_next, terminated[, truncated[, importance]])"
        raise SiteDataError(f"{name} must be a tuple of arrays {form}; got {len(entry)} entries")
    phi, r, following, ended, *more = entry
    out = _spread(name, "phi", phi, task.state) | _spread(name, "phi_next", following, task.next_state)
    out |= {task.reward: r, task.terminated: ended}
    optional = zip((task.truncated, task.importance), more, strict=False)
    return from_columns(name, out | {column: values for column, values in optional if values is not None})


def _spread(site: str, what: str, values: Any, names: Names | None, default: str = "") -> dict[str, Any]:
    """The columns of a matrix by name: those of a list, else a prefix and their numbers; a vector is one column.

    A data frame has names of its own, which a prefix is put before; its order of columns means nothing.
    """
    if has_names(values):
        held = from_columns(f"{site}: {what}", values).held
        if isinstance(names, str):
            return {c if c.startswith(names) else f"{names}_{c}": v for c, v in held.items()}
        if names is not None and set(names) != set(held):
            raise SiteDataError(f"{site}: {what} must have the columns {', '.join(names)}; got {', '.join(held)}")
        return dict(held)
    try:
        given = np.asarray(values) if not isinstance(values, np.ma.MaskedArray) else values
    except ValueError:
        raise SiteDataError(f"{site}: {what} must have rows of one length; got {checks.show(values)}") from None
    if given.ndim not in (1, 2):
        raise SiteDataError(f"{site}: {what} must have the shape (rows, columns); got shape {given.shape}")
    prefix = names if isinstance(names, str) else default
    wide = given if given.ndim == 2 else given[:, None]
    if isinstance(names, str) and given.ndim == 1:
        labels: Sequence[str] = [names]
    elif names is None or isinstance(names, str):
        labels = [f"{prefix}{j}" for j in range(wide.shape[1])]
    else:
        labels = names
    if len(labels) != wide.shape[1]:
        raise SiteDataError(
            f"{site}: {what} must have {len(labels)} columns, as many as are named; got {wide.shape[1]}"
        )
    if not labels:
        raise SiteDataError(f"{site}: {what} must have at least one column; got shape {given.shape}")
    return dict(zip(labels, wide.T, strict=True))
