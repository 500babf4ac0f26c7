"""Results in a few numbers, and those numbers as aligned text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..errors import ArgumentError
from .recipe import require_result

if TYPE_CHECKING:
    import xarray as xr


def summary(results: xr.Dataset | Iterable[xr.Dataset]) -> list[dict[str, Any]]:
    """One row per result, at its last recorded round.

    method, rounds, communications, samples (per agent, mean over seeds), mse and its standard_error (over the seeds
    that did not diverge; NaN where there are too few), diverged (how many seeds did), seeds (how many there are)
    """
    import xarray as xr

    return [_row(r) for r in checks.instances("results", results, xr.Dataset, "a result of simulate")]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys as text: a line of headings, then a line per row; numbers are aligned to the right."""
    rows = checks.entries("rows", rows, "mappings such as summary returns")
    for row in rows:
        checks.instance("rows", row, Mapping, "mappings such as summary returns")
    if len({tuple(row) for row in rows}) > 1:
        raise ArgumentError("rows must all have the same keys; got different ones")
    if not rows:
        return ""
    names = list(rows[0])
    columns = [[name.replace("_", " "), *(_show(row[name]) for row in rows)] for name in names]
    widths = [max(map(len, column)) for column in columns]
    left = [all(isinstance(row[name], str) for row in rows) for name in names]
    aligned = [
        [cell.ljust(width) if is_text else cell.rjust(width) for cell in column]
        for column, width, is_text in zip(columns, widths, left, strict=True)
    ]
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))


def _row(result: xr.Dataset) -> dict[str, Any]:
    require_result("results", result)
    last = result.isel(rounds=-1)
    diverged = last["diverged_at"].values >= 0
    errors = last["squared_error"].values[~diverged]
    n = len(errors)
    return {
        "method": result.attrs["method"],
        "rounds": int(last["rounds"]),
        "communications": int(last["communications"].max()),
        "samples": float(last["samples"].mean()),
        "mse": float(errors.mean()) if n else float("nan"),
        "standard_error": float(errors.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan"),
        "diverged": int(diverged.sum()),
        "seeds": len(diverged),
    }


def _show(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        if np.isnan(value):
            return "-"
        number = float(value)
        return f"{number:.0f}" if number.is_integer() and abs(number) < 1e15 else f"{number:.3g}"
    return str(value)
