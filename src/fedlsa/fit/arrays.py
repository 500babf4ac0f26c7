"""Sites in memory, and their columns as finite float64 numbers; what cannot be one gets an error with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, SiteDataError
from .tasks import Names, Regression, Task

NUMBERS = 2**21  # that a piece of a site holds at most, as long as it has some hundred rows
CACHED_NUMBERS = 2**17  # of a piece that sums over it find in the cache
ROWS = 2**16  # of a piece, at most


def piece_rows(width: int, cached: int = CACHED_NUMBERS) -> int:
    """How many rows of `width` numbers make a piece, so that memory stays bounded however wide they are.

    A piece fits into the cache unless it would then be hardly larger than its sums, of width^2 numbers.
    """
    numbers = min(NUMBERS, max(cached, 4 * width**2))
    return max(256, min(ROWS, numbers // max(width, 1)))


@dataclass(frozen=True, eq=False)
class ColumnBlock:
    """Consecutive rows of a site by column; values : (k + 1, n), the k columns of numbers that are wanted, and ones.

    labels : columns that are wanted as they are, numbers or not, (n,) each
    """

    place: Mapping[str, int]
    values: Floats
    labels: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __getitem__(self, column: str) -> Floats:
        return self.values[self.place[column]]


def blocks(
    site: str,
    columns: Sequence[str],
    numbers: Sequence[NDArray[Any]],
    rows: int,
    start: int,
    labels: Mapping[str, NDArray[Any]],
) -> Iterator[ColumnBlock]:
    """Columns of numbers, (n,) each, `rows` rows at a time and checked to be finite; start : the row of the first.

    labels : columns that go along as they are.

    All blocks are parts of one array, which takes memory in few large pages; each is filled just before it is used, so
    that sums over it find it in the cache.
    """
    place, n = {c: j for j, c in enumerate(columns)}, len(numbers[0])
    values = np.empty((len(columns) + 1, n))
    for at in range(0, n, rows):
        block = values[:, at : at + rows]
        np.stack([v[at : at + rows] for v in numbers], out=block[:-1])
        block[-1] = 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            suspect = not np.isfinite(block.sum())  # finite unless an entry is not, or the sum is beyond all numbers
        for column, row in zip(columns, block, strict=False) if suspect else ():
            finite(site, column, row, start + at)
        yield ColumnBlock(place, block, {c: v[at : at + rows] for c, v in labels.items()})


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

    def pieces(self, columns: Sequence[str], rows: int = ROWS, labels: Sequence[str] = ()) -> Iterator[ColumnBlock]:
        """The columns, `rows` rows at a time."""
        for c in columns:
            if c not in self.checked:
                self.checked[c] = from_array(self.name, c, self.held[c])
        step = piece_rows(len(columns), NUMBERS)
        for start in range(0, self.rows or 0, step):
            numbers = [self.checked[c][start : start + step] for c in columns]
            beside = {c: np.asarray(self.held[c])[start : start + step] for c in labels}
            yield from blocks(self.name, columns, numbers, rows, start, beside)


def has_names(table: Any) -> bool:
    """Whether a table gives its columns by name: a mapping, or a data frame."""
    return isinstance(table, Mapping) or (hasattr(table, "columns") and hasattr(table, "__getitem__"))


def by_name(argument: str, table: Any, wanted: Sequence[str]) -> Floats:
    """(n, k): the wanted columns of a table with names, in the order wanted; others may be there as well."""
    found = from_columns(argument, table)
    for lacking in (c for c in wanted if c not in found.columns):
        hint = checks.did_you_mean(lacking, found.columns)
        rule = f"{argument} must have the columns {', '.join(wanted)}, in any order"
        raise ArgumentError(f"{rule}; got none called {lacking!r}{hint}")
    return np.column_stack([from_array(argument, c, found.held[c]) for c in wanted])


def from_columns(name: str, table: Any) -> Arrays:
    """A site from a mapping of columns, or from a data frame (whatever has `columns` and gives them by name)."""
    labels = list(table) if isinstance(table, Mapping) else list(getattr(table, "column_names", table.columns))
    names = [str(label) for label in labels]
    check_unique(name, names)
    return Arrays(name, {column: table[label] for column, label in zip(names, labels, strict=True)})


def check_unique(site: str, names: Sequence[str]) -> None:
    """Refuse columns of one name."""
    for column in names:
        if names.count(column) > 1:
            raise SiteDataError(f"{site} must have each column once; {column!r} appears {names.count(column)} times")


def from_tuple(name: str, entry: Sequence[Any], task: Task) -> Arrays:
    """A site from (X, y), or from (phi, r, phi_next, terminated[, truncated[, importance]]), named as the task says."""
    if isinstance(task, Regression):
        if len(entry) != 2:
            raise SiteDataError(f"{name} must be a pair of arrays (X, y); got {len(entry)} entries")
        return from_columns(name, _spread(name, "X", entry[0], task.columns, "x") | {task.target: entry[1]})
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


def not_a_number(site: str, column: str, got: str, row: int) -> SiteDataError:
    """The error for an entry of another kind; row counts from 0, in the message from 1, the header left out."""
    return SiteDataError(f"{site}: column {column!r} must hold numbers; got {got} in row {row + 1} of the data")


def missing(site: str, column: str, row: int) -> SiteDataError:
    """The error for an entry that is not there."""
    return SiteDataError(
        f"{site}: column {column!r} must have a number in every row; row {row + 1} of the data has none"
    )


def finite(site: str, column: str, values: Floats, start: int = 0) -> Floats:
    """The values themselves, all of them finite; start : the row of the first, counted from 0."""
    refuse(~np.isfinite(values), site, column, values, "finite numbers", start)
    return values


def refuse(bad: NDArray[np.bool_], site: str, column: str, values: Floats, rule: str, start: int) -> None:
    """The error for the first of the bad entries, if there is one; start : the row of the first entry, from 0."""
    if bad.any():
        at = int(np.argmax(bad))
        raise SiteDataError(
            f"{site}: column {column!r} must hold {rule}; got {values[at]:g} in row {start + at + 1} of the data"
        )


def from_array(site: str, column: str, values: Any) -> Floats:
    """A column of anything that NumPy reads, (n,), as finite numbers; text, dates and missing entries are refused."""
    hidden = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    if hidden is not None and hidden.any():
        raise missing(site, column, int(np.argmax(hidden)))
    given = np.asarray(values)
    if given.ndim != 1:
        raise SiteDataError(f"{site}: column {column!r} must be one-dimensional; got shape {given.shape}")
    if given.dtype.kind == "O":
        return finite(site, column, _from_objects(site, column, given))
    if given.dtype.kind not in "fiub":
        if not len(given):
            raise SiteDataError(f"{site}: column {column!r} must hold numbers; got dtype {given.dtype}")
        raise not_a_number(site, column, _shown(given[0].item()), 0)
    return finite(site, column, given.astype(np.float64, copy=False))


def from_arrow(site: str, column: str, values: Any, start: int) -> NDArray[Any]:
    """An Arrow array of numbers, (n,), finite or not; start : the row of the first, counted from 0."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if values.null_count:
        raise missing(site, column, start + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))))
    if pa.types.is_decimal(kind):
        values = values.cast(pa.float64(), safe=False)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise not_a_number(site, column, f"{_shown(values[0].as_py())} ({kind})", start)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _shown(value: Any) -> str:
    """Text in quotes, dates as they are written."""
    return checks.show(value) if isinstance(value, (str, bytes, list, dict, complex)) else str(value)


def _from_objects(site: str, column: str, given: NDArray[Any]) -> Floats:
    out = np.empty(len(given))
    for i, entry in enumerate(given.tolist()):
        if entry is None or type(entry).__name__ in ("NAType", "NaTType"):
            raise missing(site, column, i)
        try:
            if isinstance(entry, (str, bytes)):
                raise TypeError
            out[i] = float(entry)
        except (TypeError, ValueError, OverflowError):
            raise not_a_number(site, column, _shown(entry), i) from None
    return out
