"""Sites that a column of labels tells apart: their names, in order, and which rows are whose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import SiteDataError


def site_labels(values: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """The sites' names in a column of any labels, and which of them each row has : (n,), -1 where there is no label."""
    import pandas as pd

    codes, found = pd.factorize(values)
    names = [name_of(label) for label in pd.Index(found)]
    distinct = {name: k for k, name in enumerate(dict.fromkeys(names))}  # 1, 1.0 and "1" are one site
    return list(distinct), np.array([*(distinct[name] for name in names), -1], np.int64)[codes]


def name_of(label: Any) -> str:
    """The name of a site from its label: whole numbers without a point, dates without a time that is midnight."""
    if isinstance(label, tuple):
        return ", ".join(map(name_of, label))
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label).removesuffix(" 00:00:00")


def in_order(names: Iterable[str]) -> list[str]:
    """Names sorted: numbers by their size, text with the numbers in it by theirs."""
    held = list(names)
    try:
        return sorted(held, key=float)
    except ValueError:
        parts = {name: re.split(r"(\d+)", name) for name in held}
        return sorted(held, key=lambda name: [int(t) if k % 2 else t for k, t in enumerate(parts[name])])


def parts_of(names: Sequence[str], codes: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """The rows of each site, in their order; codes : which of the names each row has."""
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return {name: order[a:b] for name, a, b in zip(names, cuts, cuts[1:], strict=False)}


def unlabelled_rows(table: str, column: str, lacking: int, rows: int, first: int) -> SiteDataError:
    """The error for rows of no site."""
    return SiteDataError(
        f"{table}: column {column!r} must say of every row what site it is of; {lacking:,} of {rows:,} rows have no "
        f"value, the first is row {first:,}"
    )
