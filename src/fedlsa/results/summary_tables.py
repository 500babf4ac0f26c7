"""Results in a few numbers, as a data frame, and those numbers as aligned text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..errors import ArgumentError
from . import sweeps
from .recipe import require_result

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


def summary(results: xr.Dataset | Iterable[xr.Dataset]) -> pd.DataFrame:
    """A data frame with a row per result, at its last recorded round; its index is the method, of a sweep its options.

    rounds, communications, samples (per agent, mean over seeds), mse and its standard_error (over the seeds that did
    not diverge; NaN where there are too few), diverged (how many seeds did), seeds (how many there are)

    >>> p = fl.problems.garnet(agents=4, seed=1)
    >>> runs = fl.simulate_grid(p, [fl.FedLSA(0.1, 10), fl.SCAFFLSA(0.1, 10)], rounds=20, seeds=3)
    >>> fl.results.summary(runs)["samples"].tolist()
    [200.0, 200.0]
    """
    import pandas as pd
    import xarray as xr

    given = checks.instances("results", results, xr.Dataset, "a result of simulate")
    frame = pd.DataFrame([_row(r) for r in sweeps.separate(given)])
    swept = sweeps.swept_dimensions(given[0]) if len(given) == 1 else []
    if not swept:
        return frame.set_index("method")
    index = pd.MultiIndex.from_product([given[0][name].values for name in swept], names=swept)
    return frame.drop(columns="method").set_index(index if len(swept) > 1 else index.get_level_values(0))


def table(rows: pd.DataFrame | Sequence[Mapping[str, Any]]) -> str:
    """Text with a line of headings, then a line per row; numbers are aligned to the right.

    rows : a data frame, of which an index with a name is printed first, or mappings with the same keys
    """
    import pandas as pd

    if isinstance(rows, pd.DataFrame):
        rows = (rows if list(rows.index.names) == [None] else rows.reset_index()).to_dict("records")
    rows = checks.entries("rows", rows, "a data frame such as summary returns, or mappings")
    for row in rows:
        checks.instance("rows", row, Mapping, "a data frame such as summary returns, or mappings")
    if len({tuple(row) for row in rows}) > 1:
        raise ArgumentError("rows must all have the same keys; got different ones")
    if not rows:
        return ""
    names = list(rows[0])
    columns = [[str(name).replace("_", " "), *(_show(row[name]) for row in rows)] for name in names]
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
