"""Results on disk: netCDF-4, made in memory, written whole or not at all, and checked before HDF5 sees a byte.

HDF5 limits an attribute to 64 KB, so all attributes travel as JSON text in a compressed variable of bytes. After the
end of the HDF5 file, where its readers do not look, stands the sha256 of all before it: HDF5 may read a damaged file
for ever. Nothing is ever unpickled. h5py itself writes and reads, some ten times faster than by way of xarray; any
netCDF program reads the files. Exact curves, of one method or several, are written in the same way, or as a table.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import checks, files
from ..errors import ArgumentError, FedLSAError, ResultFileError
from ..problems import Problem
from . import recipe, sweeps
from .recipe import abridged, full_text

if TYPE_CHECKING:
    import xarray as xr

FORMAT = 3
ATTRIBUTES = "fedlsa_attributes"
LAYOUT = "fedlsa_layout"  # attribute: every variable's dimensions, and whether it is a coordinate
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. {:10d}"  # netCDF's own words
MAX_COMMAND = 8000  # letters of a command that are shown to other programs, within the limit on an attribute
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
LIBVER = "v108"  # the format of HDF5 1.8, which programs of many years read
SEAL = b"\nfedlsa sha256 %b\n"
SEAL_BYTES = len(SEAL % b"") + 64
CURVE_SUFFIXES = (".csv", ".nc")
CURVE_COLUMNS = ("mse", "start", "drift", "noise", "psi", "samples", "bytes")
OF_THE_PROBLEM = ("agents", "dim")  # attributes; the others are a method's


def save(
    dataset: xr.Dataset, path: str | os.PathLike[str], *, problem: Problem | None = None, command: str | None = None
) -> None:
    """Write a result or a sweep; a file that was there before is replaced only once the new one is complete on disk.

    Rows of sites are never written: a problem made of them is identified by a digest, `attrs["run_again_needs"]` says
    so, and `arguments(result, problem=...)` asks for it.
    problem : the one of the result, to be written with all that it is made of, RAW ROWS OF SITES INCLUDED, so that the
        file can be run again by itself
    command : what a reader types to make it again, an attribute of the file for all programs
    """
    checks.instance("command", command, str | None, "text or None")
    sweeps.require_runs("dataset", dataset)
    if problem is not None:
        if "problem" not in dataset.attrs:
            raise ArgumentError("problem must be None for a sweep over several problems; got one")
        recipe.stored_problem(dataset.attrs["problem"], problem)  # refuses another one
        dataset = dataset.assign_attrs(abridged({"problem": recipe.problem_text(problem, with_data=True)}))
        if recipe.missing(dataset.attrs["problem"]) is None:
            dataset.attrs.pop(recipe.NEEDS, None)
    write(dataset, path, command)


def write(dataset: xr.Dataset, path: str | os.PathLike[str], command: str | None = None) -> None:
    """The same for any dataset of numbers and texts whose attributes a recipe can hold."""
    target = checks.path("path", path)
    if odd := [name for name in dataset.variables if not isinstance(name, str)]:
        raise ArgumentError(f"variables of a dataset must have texts for names; got {odd[0]!r}")
    try:
        content = _encoded(dataset, command or str(full_text(dataset.attrs.get("command", ""))))
    except FedLSAError:
        raise
    except (TypeError, ValueError) as error:  # of HDF5: texts with a zero byte, names such as "."
        raise ArgumentError(f"dataset must hold what a netCDF file can hold; {files.reason(error)}") from error
    files.write(target, content + SEAL % hashlib.sha256(content).hexdigest().encode(), "the result file")


def load(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a result that `save` wrote; it is identical to the one saved, or there is an error.

    Where it cannot be run again by itself, `attrs["run_again_needs"]` says what is missing.
    """
    target = checks.path("path", path)
    try:
        with open(target, "rb") as file:  # of what is no result, however large, only the beginning is read
            content = file.read(len(HDF5_MAGIC))
            content += file.read() if content == HDF5_MAGIC else b""
    except FileNotFoundError:
        raise ResultFileError(f"there is no result file {target}") from None
    except OSError as error:
        raise ResultFileError(f"cannot read the result file {target}: {files.reason(error)}") from error
    if not content.startswith(HDF5_MAGIC):
        raise ResultFileError(f"{target} is not a result file: it is not netCDF-4")
    body, seal = content[:-SEAL_BYTES], content[-SEAL_BYTES:]
    if not seal.startswith(SEAL[:8]):
        raise ResultFileError(f"{target} is not a result file of fedlsa or is cut short: its sha256 is missing")
    if seal != SEAL % hashlib.sha256(body).hexdigest().encode():
        raise ResultFileError(f"{target} is damaged: its bytes do not match its sha256")
    try:
        return _decoded(body, target)
    except (ImportError, MemoryError, ResultFileError):
        raise
    except Exception as error:  # what others have sealed can raise anything at all
        raise ResultFileError(f"{target} is not a result file of fl.results.save: {files.reason(error)}") from error


def _encoded(dataset: xr.Dataset, command: str) -> bytes:
    """A dataset as an HDF5 file; the attributes of fedlsa, which are long, are compressed."""
    import h5py

    # equal datasets give equal bytes, in whatever order xarray has put labels and dimensions
    variables = {str(name): dataset.variables[name] for name in (*dataset.data_vars, *sorted(dataset.coords, key=str))}
    dims = dict.fromkeys(str(dim) for variable in variables.values() for dim in variable.dims)
    attributes = recipe.text({"dataset": dataset.attrs, "variables": {k: v.attrs for k, v in variables.items()}})
    packed = np.frombuffer(attributes.encode(), np.uint8)
    layout: dict[str, Any] = {k: [list(map(str, v.dims)), k in dataset.coords] for k, v in variables.items()}
    layout[ATTRIBUTES] = [[f"{ATTRIBUTES}_byte"], False]
    sizes = {**{dim: dataset.sizes[dim] for dim in dims}, f"{ATTRIBUTES}_byte": len(packed)}
    image = io.BytesIO()
    with h5py.File(image, "w", libver=(LIBVER, LIBVER), track_order=True) as file:
        about: dict[str, Any] = {"fedlsa_format": FORMAT, LAYOUT: json.dumps(layout)}
        known = {"command": command[:MAX_COMMAND], "versions": str(dataset.attrs.get("versions", ""))}
        about |= {key: text for key, text in known.items() if text}  # for programs that do not read our attributes
        if others := [name for name, (_, is_coord) in layout.items() if is_coord and name not in sizes]:
            about["coordinates"] = " ".join(others)  # as xarray itself marks them
        file.attrs.update(about)
        for i, (name, size) in enumerate(sizes.items()):
            if name in variables:
                _put(file, name, variables[name].values).make_scale(name)
            else:
                file.create_dataset(name, (size,), ">f4").make_scale(NO_VARIABLE.format(size))
            file[name].attrs["_Netcdf4Dimid"] = np.int32(i)
        for name, (over, _) in layout.items():
            if name not in sizes:
                stored = _put(file, name, packed if name == ATTRIBUTES else variables[name].values)
                for i, dim in enumerate(over):
                    stored.dims[i].attach_scale(file[dim])
        for name, variable in variables.items():
            file[name].attrs.update({k: v for k, v in variable.attrs.items() if k in ("long_name", "description")})
    return image.getvalue()


def _put(file: Any, name: str, values: NDArray[Any]) -> Any:
    """A new variable of a file."""
    import h5py

    if values.dtype.kind in "fiub":
        return file.create_dataset(name, data=values, compression="gzip" if name == ATTRIBUTES else None)
    if values.dtype.kind not in "OUT" or not all(isinstance(text, str) for text in values.ravel().tolist()):
        raise ArgumentError(f"{name} must hold numbers or texts to be written; got {checks.show(values)}")
    return file.create_dataset(name, data=values.astype(object), dtype=h5py.string_dtype())


def _decoded(content: bytes, path: Path) -> xr.Dataset:
    """The dataset of an HDF5 file: no masking, no dates."""
    import h5py
    import xarray as xr

    with h5py.File(io.BytesIO(content), "r") as file:
        if (written := file.attrs["fedlsa_format"]) != FORMAT:
            raise ResultFileError(f"{path} has format {written}; this version of fedlsa reads format {FORMAT}")
        layout = json.loads(file.attrs[LAYOUT])
        variables = {name: (tuple(dims), _get(file[name])) for name, (dims, _) in layout.items()}
    stored = recipe.value(variables.pop(ATTRIBUTES)[1].tobytes().decode())
    labelled = {name: (*variable, stored["variables"][name]) for name, variable in variables.items()}
    coords = {name: labelled.pop(name) for name in variables if layout[name][1]}
    return xr.Dataset(labelled, coords, abridged(stored["dataset"]))


def _get(stored: Any) -> NDArray[Any]:
    return np.asarray(stored.asstr()[()], str) if stored.dtype.kind == "O" else stored[()]


def save_curves(
    curves: xr.Dataset | Iterable[xr.Dataset], path: str | os.PathLike[str], *, command: str | None = None
) -> None:
    """Write datasets of `theory.exact`, by the suffix of `path`; a file is replaced once the new one is complete.

    .csv : a row per method and round, after a comment with `command`, what a reader types to make it again
    .nc : netCDF-4 with the dimensions (curve, rounds, dim), where `curve` holds the methods' names; NaN where a method
        has no such number or round. Any netCDF program reads it, and `load` gives all its attributes: command,
        versions, and what each method is
    """
    checks.instance("command", command, str | None, "text or None")
    datasets = checked_curves(curves, ("mse", "rounds"), ("method", *OF_THE_PROBLEM))
    target = checks.path("path", path, CURVE_SUFFIXES)
    if target.suffix.lower() == ".csv":
        files.write(target, files.csv_bytes(_rows(datasets), command), "the table")
    else:
        write(_together(datasets, command), target)


def _rows(curves: list[xr.Dataset]) -> Iterator[list[Any]]:
    names = [*CURVE_COLUMNS, *(["mse_error"] if any("mse_error" in c for c in curves) else [])]
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
    out.attrs = {k: curves[0].attrs[k] for k in OF_THE_PROBLEM}
    out.attrs |= {k: [str(full_text(c.attrs.get(k, ""))) for c in curves] for k in ("algorithm", "sampling", "moments")}
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
