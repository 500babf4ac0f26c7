"""Plain datasets as netCDF-4, written and read by h5py itself: some ten times faster than by way of xarray.

Numbers over named dimensions, as nearly every result is; any netCDF program reads them. The rest is left to xarray.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

LAYOUT = "fedlsa_layout"  # attribute: every variable's dimensions, and whether it is a coordinate
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. {:10d}"  # netCDF's own words


def plain(dataset: xr.Dataset) -> bool:
    """Whether all variables are numbers, and all coordinates belong to a dimension of their name."""
    numbers = all(v.dtype.kind in "fiu" and v.size > 0 for v in dataset.variables.values())
    return numbers and all(dataset.variables[c].dims == (c,) for c in dataset.coords)


def write(dataset: xr.Dataset, path: Path, attributes: Mapping[str, Any], compressed: str) -> None:
    """Write a plain dataset; attributes : of the file; compressed : the variable that is worth it."""
    import h5py

    layout = {str(k): [list(map(str, v.dims)), k in dataset.coords] for k, v in dataset.variables.items()}
    with h5py.File(path, "w", track_order=True) as file:
        for key, value in {**attributes, LAYOUT: json.dumps(layout)}.items():
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
            held = scales.get(name)
            if held is None:
                options = {"compression": "gzip", "shuffle": True} if name == compressed else {}
                held = file.create_dataset(name, data=variable.values, **options)
                for i, dim in enumerate(variable.dims):
                    held.dims[i].attach_scale(scales[dim])
            for key, value in variable.attrs.items():
                held.attrs[key] = value


def read(path: Path) -> xr.Dataset | None:
    """What `write` wrote, with the attributes of the file; None for a file by another writer."""
    import h5py

    with h5py.File(path, "r") as file:
        attributes = {k: v for k, v in file.attrs.items() if k.startswith("fedlsa_")}
        text = attributes.pop(LAYOUT, None)
        if text is None:
            return None
        layout = json.loads(text)
        variables = {name: (tuple(dims), file[name][()]) for name, (dims, _) in layout.items()}
    coords = {name: variables.pop(name) for name, (_, is_coord) in layout.items() if is_coord}
    return xr.Dataset(variables, coords, attributes)
