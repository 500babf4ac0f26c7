"""Exact curves on disk, of one method or several: a table as CSV, or labelled arrays as netCDF-4."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import checks, files
from ..errors import ArgumentError
from . import recipe
from .long_values import whole
from .result_files import write

if TYPE_CHECKING:
    import xarray as xr

SUFFIXES = (".csv", ".nc")
COLUMNS = ("mse", "start", "drift", "noise", "psi", "samples", "bytes")
OF_THE_PROBLEM = ("agents", "dim")  # attributes; the others are a method's


def save_curves(
    curves: xr.Dataset | Iterable[xr.Dataset], path: str | os.PathLike[str], *, command: str | None = None
) -> None:
    """Write datasets of `theory.exact`, by the suffix of `path`; a file is replaced once the new one is complete.

    .csv : a row per method and round, after a comment with `command`, what a reader types to make it again
    .nc : netCDF-4 with the dimensions (curve, rounds, dim), where `curve` holds the methods' names; NaN where a method
        has no such number or round. Any netCDF program reads it, and `load` gives all its attributes: command,
        versions, and what each method is
    """
    checks.text("command", command)
    datasets = checked_curves(curves, ("mse", "rounds"), ("method", *OF_THE_PROBLEM))
    target = checks.path("path", path, SUFFIXES)
    if target.suffix.lower() == ".csv":
        files.write(target, files.csv_bytes(_rows(datasets), command), "the table")
    else:
        write(_together(datasets, command), target)


def _rows(curves: list[xr.Dataset]) -> Iterator[list[Any]]:
    names = [*COLUMNS, *(["mse_error"] if any("mse_error" in c for c in curves) else [])]
    yield ["method", "rounds", *names]
    for c in curves:
        columns = [c[name].values if name in c else None for name in names]
        for i, t in enumerate(c["rounds"].values):
            yield [c.attrs["method"], int(t), *("" if v is None else repr(v[i].item()) for v in columns)]


def _together(curves: list[xr.Dataset], command: str | None) -> xr.Dataset:
    """One dataset over (curve, rounds, dim); what the methods' attributes say stands in lists."""
    import xarray as xr

    for c in curves[1:]:
        for key in OF_THE_PROBLEM:
            if c.attrs[key] != curves[0].attrs[key]:
                rule = f"curves must be of one problem to share a file, with {key} = {curves[0].attrs[key]}"
                raise ArgumentError(f"{rule}; got {c.attrs[key]}")
    # not "method": xarray's own argument of that name would catch d.sel(method=...)
    labels = xr.Variable("curve", [str(c.attrs["method"]) for c in curves])
    out = xr.concat(
        [c.drop_attrs(deep=False) for c in curves],
        labels,
        data_vars="all",
        coords="minimal",
        compat="override",
        join="outer",
        combine_attrs="drop",
    )
    for name, variable in out.variables.items():
        variable.attrs = next((dict(c[name].attrs) for c in curves if name in c), {})  # psi: of those who have it
    own = {k: [str(whole(c.attrs.get(k, ""))) for c in curves] for k in ("algorithm", "sampling", "moments")}
    out.attrs = {k: curves[0].attrs[k] for k in OF_THE_PROBLEM} | own
    out.attrs |= {"command": command or "", "versions": recipe.text(recipe.versions())}
    return out


def checked_curves(
    curves: Any, variables: Sequence[str], attributes: Sequence[str], name: str = "curves"
) -> list[xr.Dataset]:
    """Datasets of `theory.exact`, each with these variables and attributes; one alone is a list of one."""
    import xarray as xr

    datasets = checks.instances(name, curves, xr.Dataset, "a dataset of theory.exact")
    for c in datasets:
        recipe.require_numbers(name, c, "a dataset of theory.exact", variables, attributes)
    return datasets
