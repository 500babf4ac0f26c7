"""From whatever a column holds to finite float64 numbers; what cannot be one gets a line that names its place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import SiteDataError

NUMBERS = 2**21  # that a piece of a site holds at most, as long as it has some hundred rows
ROWS = 2**16  # of a piece, at most


def piece_rows(width: int) -> int:
    """How many rows of `width` numbers make a piece, so that memory stays bounded however wide they are."""
    return max(256, min(ROWS, NUMBERS // max(width, 1)))


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
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum()  # finite unless an entry is not, or the sum is beyond all numbers: look only then
    if not np.isfinite(total):
        bad = ~np.isfinite(values)
        if bad.any():
            at = int(np.argmax(bad))
            rule = f"{site}: column {column!r} must hold finite numbers"
            raise SiteDataError(f"{rule}; got {values[at]:g} in row {start + at + 1} of the data")
    return values


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


def from_arrow(site: str, column: str, values: Any, start: int) -> Floats:
    """An Arrow array of numbers, (n,), as finite numbers; start : the row of the first, counted from 0."""
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
    return finite(site, column, values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False), start)


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
