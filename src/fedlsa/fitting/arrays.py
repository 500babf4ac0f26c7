"""Columns of anything as arrays: float64 numbers, NaN where a value is missing, or labels, which stay what they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..errors import SiteDataError
from .formulas import plain_level


def as_numbers(site: str, column: str, values: Any, start: int = 0) -> Floats:
    """A column of anything that NumPy, narwhals or Arrow reads, (n,), NaN where missing; text and dates are refused.

    start : where its first row stands
    """
    given = plain_array(values)
    if given.dtype.kind == "O":
        return _from_objects(site, column, given, start)
    if given.dtype.kind not in "fiub" or given.ndim > 1:
        if not len(given):
            raise SiteDataError(f"{site}: column {column!r} must hold numbers; got dtype {given.dtype}")
        raise not_a_number(site, column, shown(given[0].tolist()), start)
    with np.errstate(over="ignore"):  # beyond float64 is infinite, which is refused later
        return given.astype(np.float64, copy=False)


def _from_objects(site: str, column: str, given: NDArray[Any], start: int) -> Floats:
    out = np.empty(len(given))
    for i, (entry, lacks) in enumerate(zip(given.tolist(), is_missing(given), strict=True)):
        try:
            if isinstance(entry, (str, bytes)):
                raise TypeError
            out[i] = np.nan if lacks else float(entry)
        except (TypeError, ValueError, OverflowError):
            raise not_a_number(site, column, shown(entry), start + i) from None
    return out


def as_labels(site: str, column: str, values: Any) -> NDArray[Any]:
    """A column of anything as labels, (n,), which stay what they are; lists and structures are refused."""
    from pandas.api.types import infer_dtype

    given = plain_array(values, True)
    nested = [given[0].tolist()] if given.ndim > 1 and len(given) else []
    if given.dtype.kind == "O" and infer_dtype(given) == "mixed":  # neither text nor numbers nor dates alone
        nested = [v for v in given.tolist() if isinstance(v, (list, dict, set, np.ndarray))]
    if nested:
        rule = f"{site}: column {column!r} must hold one value in each row, as a label"
        raise SiteDataError(f"{rule}; got {shown(nested[0])}")
    return given


def distinct(labels: NDArray[Any]) -> tuple[NDArray[np.intp], list[Any]]:
    """(n,): places of labels among those that there are, -1 where one is missing; and these."""
    import pandas as pd

    codes, found = pd.factorize(labels)
    return codes, (pd.Index(found) if found.dtype.kind in "mM" else found).tolist()  # dates stay dates


def not_a_number(site: str, column: str, got: str, row: int) -> SiteDataError:
    """The error for an entry of another kind; row counts from 0, in the message from 1, the header left out."""
    return SiteDataError(f"{site}: column {column!r} must hold numbers; got {got} in row {row + 1} of the data")


def shown(value: Any) -> str:
    """Text in quotes, dates as they are written."""
    return checks.show(value) if isinstance(value, (str, bytes, list, dict, complex)) else str(value)


def plain_array(values: Any, labels: bool = False) -> NDArray[Any]:
    """A column as an array; missing entries are NaN, NaT or None. labels : integers stay integers where some are
    missing, and all are then objects."""
    if isinstance(values, np.ma.MaskedArray):
        hidden, held = np.ma.getmaskarray(values), np.asarray(values.data)
        if hidden.any():
            held = held.astype(object)
            held[hidden] = None
        return held
    if hasattr(values, "dictionary_decode"):
        values = values.dictionary_decode()
    nulls = getattr(values, "null_count", 0)  # of narwhals and Arrow; NumPy reads the others rightly
    dtype = getattr(values, "dtype", None)
    is_number = bool(getattr(dtype, "is_float", bool)() or getattr(dtype, "is_integer", bool)())
    too_wide = type(dtype).__name__ in ("Int128", "UInt128")  # for NumPy
    if too_wide or ((nulls() if callable(nulls) else nulls) and (labels or not is_number)):
        entries = values.to_pylist() if hasattr(values, "to_pylist") else values.to_list()
        out = np.empty(len(entries), object)
        out[:] = entries
        return out
    return np.asarray(values)


def is_categorical(values: Any) -> bool:
    """Whether a column of a table is a category by its type: pandas' category, polars' Enum, a dictionary of Arrow."""
    kind = getattr(values, "dtype", getattr(values, "type", None))
    return type(kind).__name__ in ("CategoricalDtype", "Categorical", "Enum", "DictionaryType")


def declared_levels(values: Any, by_pandas: bool = False) -> tuple[Any, ...] | None:
    """The levels of a categorical column in the order that its type declares: of pandas' category, polars' Enum, and
    ordered dictionaries of Arrow; None for others. by_pandas : whether pandas made a dictionary of its category."""
    values = values.to_native() if hasattr(values, "to_native") else values
    kind: Any = getattr(values, "dtype", getattr(values, "type", None))
    if type(kind).__name__ in ("CategoricalDtype", "Enum"):
        return tuple(kind.categories.to_list())
    if type(kind).__name__ != "DictionaryType" or not (kind.ordered or by_pandas):
        return None
    if hasattr(values, "unify_dictionaries"):
        values = values.unify_dictionaries().combine_chunks()
    return tuple(values.dictionary.to_pylist())


def pandas_categories(schema: Any) -> set[str]:
    """The columns of an Arrow schema that were categories of pandas, numbers or not."""
    columns = (getattr(schema, "pandas_metadata", None) or {}).get("columns", ())
    return {c["name"] for c in columns if c.get("pandas_type") == "categorical"}


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,): which labels are missing: None, NaN, NaT or pandas' NA."""
    import pandas as pd

    return np.asarray(pd.isna(values), np.bool_)


def typed_labels(texts: Iterable[str], kind: str | None = None) -> dict[str, Any]:
    """What texts of files without types stand for: numbers, or true and false, where all are; else what is written.

    Only what is written as one writes a number is one, so that 01067 and 1067 stay two levels. kind : that other sites
    declare, which decides

    >>> from fedlsa.fitting.arrays import typed_labels
    >>> typed_labels(["7", "8.0"]), typed_labels(["7", "07"])
    ({'7': 7, '8.0': 8}, {'7': '7', '07': '07'})
    """
    texts = list(texts)
    for name in READERS if kind is None else [kind]:
        levels = {text: READERS[name](text) for text in texts} if name in READERS else {}
        if levels and None not in levels.values():
            return levels
    return {text: str(text) for text in texts}


def _number(text: str) -> Any:
    """The number that a text is the usual way to write, but for blanks around it; 3.0 is 3, for so are integers
    written beside missing ones."""
    text = text.strip(" ")
    if re.fullmatch(r"(0|-?[1-9]\d{0,19})(\.0)?", text, re.ASCII):
        whole = int(text.removesuffix(".0"))
        return whole if -(2**63) <= whole < 2**64 else None
    if not re.fullmatch(r"-?\d+(\.\d+)?(e[+-]\d+)?", text, re.ASCII) or str(float(text)) != text:
        return None
    return plain_level(float(text))


def _flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


READERS: dict[str, Callable[[str], Any]] = {"numbers": _number, "true and false": _flag}
