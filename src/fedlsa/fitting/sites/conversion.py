"""Columns of anything as float64 numbers, NaN where a value is missing; what is no number gets an error with its place.

Infinities are errors everywhere: nothing that is computed from them is a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import checks
from ...checks import Floats
from ...errors import SiteDataError

Rows = int | NDArray[np.int64]  # the rows that a piece holds, counted from 0: the first of consecutive ones, or all


def row_number(rows: Rows, i: int) -> int:
    """The row of entry i of a piece as people count, from 1 and the header left out."""
    return int(rows if isinstance(rows, int) else rows[i]) + (i if isinstance(rows, int) else 0) + 1


def not_a_number(site: str, column: str, got: str, row: int) -> SiteDataError:
    """The error for an entry of another kind; row counts from 0, in the message from 1, the header left out."""
    return SiteDataError(f"{site}: column {column!r} must hold numbers; got {got} in row {row + 1} of the data")


def missing(site: str, column: str, row: int) -> SiteDataError:
    """The error for an entry that is not there; row counts from 1."""
    return SiteDataError(f"{site}: column {column!r} must have a value in every row; row {row} of the data has none")


def refuse(bad: NDArray[np.bool_], site: str, column: str, values: Floats, rule: str, rows: Rows) -> None:
    """The error for the first of the bad entries, if there is one; rows : that the values are of."""
    if bad.any():
        at = int(np.argmax(bad))
        raise SiteDataError(
            f"{site}: column {column!r} must hold {rule}; got {values[at]:g} in row {row_number(rows, at)} of the data"
        )


def refuse_infinite(site: str, column: str, values: Floats, rows: Rows) -> None:
    """The error for the first infinite entry; NaN stands for a value that is missing."""
    refuse(np.isinf(values), site, column, values, "finite numbers", rows)


def from_array(site: str, column: str, values: Any) -> Floats:
    """A column of anything that NumPy or narwhals reads, (n,), NaN where missing; text and dates are refused."""
    given = plain_array(values)
    if given.ndim != 1:
        raise SiteDataError(f"{site}: column {column!r} must be one-dimensional; got shape {given.shape}")
    if given.dtype.kind == "O":
        return _from_objects(site, column, given)
    if given.dtype.kind not in "fiub":
        if not len(given):
            raise SiteDataError(f"{site}: column {column!r} must hold numbers; got dtype {given.dtype}")
        raise not_a_number(site, column, _shown(given[0].item()), 0)
    with np.errstate(over="ignore"):  # beyond float64 is infinite, which is refused later
        return given.astype(np.float64, copy=False)


def finite_array(site: str, column: str, values: Any) -> Floats:
    """The same where nothing may be missing."""
    out = from_array(site, column, values)
    refuse_infinite(site, column, out, 0)
    if np.isnan(out).any():
        raise missing(site, column, int(np.argmax(np.isnan(out))) + 1)
    return out


def plain_array(values: Any, labels: bool = False) -> NDArray[Any]:
    """A column as an array; missing entries are NaN, NaT or None. labels : integers stay integers where some are
    missing, and all are then objects."""
    if isinstance(values, np.ma.MaskedArray):
        hidden, held = np.ma.getmaskarray(values), np.asarray(values.data)
        if hidden.any():
            held = held.astype(object)
            held[hidden] = None
        return held
    if _nulls(values) and (labels or not _is_plain_number(values)):
        entries = values.to_pylist() if hasattr(values, "to_pylist") else values.to_list()
        out = np.empty(len(entries), object)
        out[:] = entries
        return out
    return np.asarray(values)


def _nulls(values: Any) -> int:
    """How many entries are null in a column of narwhals or Arrow; 0 for all others, which NumPy reads rightly."""
    if not (hasattr(values, "to_list") or hasattr(values, "to_pylist")):
        return 0
    count = getattr(values, "null_count", 0)
    return int(count() if callable(count) else count)


def _is_plain_number(values: Any) -> bool:
    """Whether a column with nulls is one of integers or floats, which NumPy reads with NaN in their place."""
    dtype = getattr(values, "dtype", None)
    return bool(getattr(dtype, "is_float", bool)() or getattr(dtype, "is_integer", bool)())


def is_categorical(values: Any) -> bool:
    """Whether a column of a table is a category by its type: pandas' category, polars' Enum, a dictionary of Arrow."""
    kind = getattr(values, "dtype", getattr(values, "type", None))
    return type(kind).__name__ in ("CategoricalDtype", "Categorical", "Enum", "DictionaryType")


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,): which labels are missing: None, NaN, NaT or pandas' NA."""
    if values.dtype.kind in "iubSU":
        return np.zeros(len(values), np.bool_)
    if values.dtype.kind in "fc":
        return np.isnan(values)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    import pandas as pd

    return np.asarray(pd.isna(values), np.bool_)


def _missing(entry: Any) -> bool:
    return (
        entry is None
        or (isinstance(entry, float) and entry != entry)
        or type(entry).__name__ in ("NAType", "NaTType")
        or (type(entry).__name__ == "Decimal" and entry.is_nan())
    )


def from_arrow(site: str, column: str, values: Any, start: int) -> NDArray[Any]:
    """An Arrow array of numbers, (n,), NaN where missing; start : the row of the first, counted from 0."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind):
        return np.full(len(values), np.nan)
    if pa.types.is_decimal(kind) or (pa.types.is_boolean(kind) and values.null_count):
        values = values.cast(pa.float64(), safe=False)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        entries = values.is_valid().to_numpy(zero_copy_only=False)
        first = int(np.argmax(entries))
        if not entries.any():
            return np.full(len(values), np.nan)
        raise not_a_number(site, column, f"{_shown(values[first].as_py())} ({kind})", start + first)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def labels_from_arrow(values: Any) -> NDArray[Any]:
    """An Arrow array as it is, (n,): numbers, text or dates; None where missing."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return plain_array(values, labels=True) if values.null_count else values.to_numpy(zero_copy_only=False)


def _shown(value: Any) -> str:
    """Text in quotes, dates as they are written."""
    return checks.show(value) if isinstance(value, (str, bytes, list, dict, complex)) else str(value)


def _from_objects(site: str, column: str, given: NDArray[Any]) -> Floats:
    out = np.empty(len(given))
    for i, entry in enumerate(given.tolist()):
        if _missing(entry):
            out[i] = np.nan
            continue
        try:
            if isinstance(entry, (str, bytes)):
                raise TypeError
            out[i] = float(entry)
        except (TypeError, ValueError, OverflowError):
            raise not_a_number(site, column, _shown(entry), i) from None
    return out
