"""Results on disk: netCDF-4, written whole or not at all, and checked when read.

HDF5 limits an attribute to 64 KB, so all attributes travel as JSON text in a compressed variable of bytes. A sha256
over names, dimensions, types, bytes and attributes tells a damaged file from a sound one. Nothing is ever unpickled.
Plain datasets, numbers over named dimensions as nearly every result is, are written and read by h5py itself, some ten
times faster than by way of xarray; any netCDF program reads them. The rest is left to xarray.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..errors import ArgumentError, ResultFileError
from ..files import reason, replacing
from ..problems import Problem
from . import recipe, sweeps
from .long_values import abridged, whole

if TYPE_CHECKING:
    import xarray as xr

FORMAT = 2  # in format 1 the dimension "rounds" was called "round", which is also a function of xarray
ATTRIBUTES = "fedlsa_attributes"
LAYOUT = "fedlsa_layout"  # attribute: every variable's dimensions, and whether it is a coordinate
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. {:10d}"  # netCDF's own words
MAX_COMMAND = 8000  # letters of a command that are shown to other programs, within the limit on an attribute
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"


def save(dataset: xr.Dataset, path: str | os.PathLike[str], *, problem: Problem | None = None) -> None:
    """Write a result or a sweep; a file that was there before is replaced only once the new one is complete on disk.

    Rows of sites are never written: a problem made of them is identified by a digest, `attrs["run_again_needs"]` says
    so, and `arguments(result, problem=...)` asks for it.
    problem : the one of the result, to be written with all that it is made of, RAW ROWS OF SITES INCLUDED, so that the
        file can be run again by itself
    """
    sweeps.require_runs("dataset", dataset)
    if problem is not None:
        if "problem" not in dataset.attrs:
            raise ArgumentError("problem must be None for a sweep over several problems; got one")
        recipe.stored_problem(dataset.attrs["problem"], problem)  # refuses another one
        dataset = dataset.assign_attrs(abridged({"problem": recipe.problem_text(problem, with_data=True)}))
        if recipe.missing(dataset.attrs["problem"]) is None:
            dataset.attrs.pop(recipe.NEEDS, None)
    write(dataset, path)


def write(dataset: xr.Dataset, path: str | os.PathLike[str]) -> None:
    """The same for any dataset whose attributes a recipe can hold."""
    target = checks.path("path", path)
    attributes = _attributes(dataset)
    packed = np.frombuffer(attributes.encode(), np.uint8)
    bare = dataset.assign({ATTRIBUTES: ((f"{ATTRIBUTES}_byte",), packed)})
    bare.attrs = {"fedlsa_format": FORMAT, "fedlsa_sha256": _checksum(dataset, attributes)}
    if dataset.attrs.get("command"):
        bare.attrs["command"] = str(whole(dataset.attrs["command"]))[:MAX_COMMAND]
    for name, variable in bare.variables.items():
        variable.encoding = {}
        if name in dataset.variables:  # for other programs, which do not read our attributes
            labels = dataset.variables[name].attrs
            variable.attrs = {k: labels[k] for k in ("long_name", "description") if k in labels}
    with replacing(target, "the result file") as part:
        if _is_plain(bare):
            write_plain(bare, part)
        else:
            bare.to_netcdf(str(part), engine="h5netcdf", encoding={ATTRIBUTES: {"zlib": True}})


def load(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a result that `save` wrote; it is identical to the one saved, or there is an error.

    Where it cannot be run again by itself, `attrs["run_again_needs"]` says what is missing.
    """
    target = checks.path("path", path)
    try:
        with open(target, "rb") as file:
            magic = file.read(len(HDF5_MAGIC))
    except FileNotFoundError:
        raise ResultFileError(f"there is no result file {target}") from None
    except OSError as error:
        raise ResultFileError(f"cannot read the result file {target}: {reason(error)}") from error
    if magic != HDF5_MAGIC:
        raise ResultFileError(f"{target} is not a result file: it is not netCDF-4")
    try:
        dataset = _read(target)
    except ImportError:  # h5py is missing: no fault of the file
        raise
    except Exception as error:  # a damaged file can raise anything at all
        raise ResultFileError(f"{target} is damaged or cut short: {reason(error)}") from error
    if "fedlsa_format" not in dataset.attrs or ATTRIBUTES not in dataset:
        raise ResultFileError(f"{target} is not a result file of fedlsa, as fl.results.save writes them")
    written, expected = dataset.attrs["fedlsa_format"], dataset.attrs.get("fedlsa_sha256")
    if written not in (1, FORMAT):
        raise ResultFileError(f"{target} has format {written}; this version of fedlsa reads formats up to {FORMAT}")
    packed = dataset[ATTRIBUTES].values
    dataset = dataset.drop_vars(ATTRIBUTES)
    try:
        attributes = packed.tobytes().decode()
        sound = _checksum(dataset, attributes) == expected
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise ResultFileError(f"{target} is damaged: its content does not match its checksum")
    content = recipe.value(attributes)
    dataset.attrs, dataset.encoding = abridged(content["dataset"]), {}
    for name, variable in dataset.variables.items():
        variable.attrs, variable.encoding = content["variables"][str(name)], {}
    return dataset.rename(round="rounds") if written == 1 and "round" in dataset.dims else dataset


def _read(path: Path) -> xr.Dataset:
    """Every variable as it is on disk: no masking, no dates."""
    import xarray as xr

    fast = _read_plain(path)
    if fast is not None:
        return fast
    with xr.open_dataset(str(path), engine="h5netcdf", mask_and_scale=False, decode_times=False) as opened:
        return opened.load()


def _is_plain(dataset: xr.Dataset) -> bool:
    """Whether all variables are numbers, and all coordinates belong to a dimension of their name."""
    numbers = all(v.dtype.kind in "fiu" and v.size > 0 for v in dataset.variables.values())
    return numbers and all(dataset.variables[c].dims == (c,) for c in dataset.coords)


def write_plain(dataset: xr.Dataset, path: Path) -> None:
    """Write a plain dataset with the attributes of the file; those of fedlsa, which are long, are compressed."""
    import h5py

    layout = {str(k): [list(map(str, v.dims)), k in dataset.coords] for k, v in dataset.variables.items()}
    with h5py.File(path, "w", track_order=True) as file:
        for key, value in {**dataset.attrs, LAYOUT: json.dumps(layout)}.items():
            file.attrs[key] = value
        scales: dict[Any, Any] = {}
        for i, (name, size) in enumerate(dataset.sizes.items()):
            if name in dataset.variables:
                scale = file.create_dataset(name, data=dataset.variables[name].values)
                scale.make_scale(name)
            else:
                scale = file.create_dataset(name, (size,), ">f4")
                scale.make_scale(NO_VARIABLE.format(size))
            scale.attrs["_Netcdf4Dimid"] = np.int32(i)
            scales[name] = scale
        for name, variable in dataset.variables.items():
            stored = scales.get(name)
            if stored is None:
                options = {"compression": "gzip", "shuffle": True} if name == ATTRIBUTES else {}
                stored = file.create_dataset(name, data=variable.values, **options)
                for i, dim in enumerate(variable.dims):
                    stored.dims[i].attach_scale(scales[dim])
            for key, value in variable.attrs.items():
                stored.attrs[key] = value


def _read_plain(path: Path) -> xr.Dataset | None:
    """What `write_plain` wrote, with the attributes of the file; None for a file by another writer."""
    import h5py
    import xarray as xr

    with h5py.File(path, "r") as file:
        attributes = {k: v for k, v in file.attrs.items() if k.startswith("fedlsa_")}
        text = attributes.pop(LAYOUT, None)
        if text is None:
            return None
        layout = json.loads(text)
        variables = {name: (tuple(dims), file[name][()]) for name, (dims, _) in layout.items()}
    coords = {name: variables.pop(name) for name, (_, is_coord) in layout.items() if is_coord}
    return xr.Dataset(variables, coords, attributes)


def _attributes(dataset: xr.Dataset) -> str:
    variables = {str(name): variable.attrs for name, variable in dataset.variables.items()}
    return recipe.text({"dataset": dataset.attrs, "variables": variables})


def _checksum(dataset: xr.Dataset, attributes: str) -> str:
    digest = hashlib.sha256(attributes.encode())
    for name in sorted(map(str, dataset.variables)):
        variable = dataset.variables[name]
        kind, data = _canonical(variable.values)
        digest.update(json.dumps([name, variable.dims, variable.shape, kind, name in dataset.coords]).encode())
        digest.update(data)
    return digest.hexdigest()


def _canonical(values: NDArray[Any]) -> tuple[str, Any]:
    """A name for the type and the bytes, the same on every machine; text as JSON."""
    if values.dtype.kind in "OUT":
        return "text", json.dumps([str(v) for v in values.ravel()]).encode()
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return little.dtype.str, little.tobytes()
