"""A site's data: as their owner names them, a file or a function, and as local steps read them, kept on the disk.

Data are opened when they are first read. What local steps need of them lies in a folder of its own, mode 700, under a
digest of what it was made from: raw numbers that are mapped into memory, not read, so that a restarted process need not
read the data again. The folder gets its name only when all of it is on the disk.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...engine.local import Means, Rows, alias_slots
from ...errors import ArgumentError, ArgumentTypeError, SiteDataError
from ...files import reason
from ...fitting.reading import read_scaled
from ...fitting.rows import Columns, FeatureScale, choose_columns, feature_count
from ...fitting.run_plan import RowSizes, row_sizes
from ...fitting.sites import open_table
from ...fitting.sums import Systems, refuse_empty
from ...fitting.tables import DataTable
from ...fitting.tasks import Task, shared_intercept
from .. import disk
from ..folder.config import task_text
from ..protocol.agreed_design import AgreedDesign

Steps = Rows | Means
LOADER_FORM = "package.module:function or file.py:function"
FORMAT = 5  # of prepared data
PREPARED = "prepared"  # the folder's name


@dataclass(frozen=True)
class SiteData:
    """A site in a file or from a loader; nothing is read before `opened` is asked for."""

    path: Path | None
    loader: str | None
    task: Task

    @property
    def name(self) -> str:
        return self.path.name if self.path is not None else str(self.loader)

    @cached_property
    def opened(self) -> DataTable:
        """The data themselves."""
        entry = self.path if self.path is not None else _load_entry(str(self.loader))
        try:
            return open_table(self.name, entry, self.task, f"what {self.name} returns")
        except ArgumentTypeError as error:
            raise SiteDataError(str(error)) from None

    def stamp(self) -> list[str | int]:
        """What tells these data from others without reading them: where they are, their size and when they changed.

        Of a loader it is its name alone: its rows are those of the day on which the site joined (clear_prepared).
        """
        if self.path is None:
            return ["loader", str(self.loader)]
        try:
            there = self.path.stat()
        except OSError as error:
            raise SiteDataError(f"{self.path} cannot be read: {reason(error)}") from None
        return ["file", str(self.path.resolve()), there.st_size, there.st_mtime_ns]


def open_data(path: Path | str | None, loader: str | None, task: Task) -> SiteData:
    """A site's data, from a Parquet or CSV file or from a loader; loader : package.module:function or file.py:function.

    A loader takes no arguments and returns what fl.fit takes for one site: columns by name, a tuple of arrays, a path.
    """
    if (path is None) == (loader is None):
        raise ArgumentError(f"exactly one of data and loader must be given; got {path!r} and {loader!r}")
    if loader is not None:
        module, _, function = loader.rpartition(":") if isinstance(loader, str) else ("", "", "")
        if not module or not function.isidentifier():
            raise ArgumentError(f"loader must be {LOADER_FORM}; got {checks.show(loader)}")
        return SiteData(None, loader, task)
    return SiteData(checks.path("data", path), None, task)


def _load_entry(loader: str) -> Any:
    """What a loader returns; code of the site's own, and its import, can fail in any way."""
    place, _, name = loader.rpartition(":")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location("fedlsa_site_loader", place)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except Exception as error:
        what = f"{type(error).__name__}: {reason(error)}"
        raise SiteDataError(f"loader must be {LOADER_FORM} that can be imported; {place} cannot: {what}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise SiteDataError(f"loader must name a function; {place} has no function {name!r}")
    try:
        return function()
    except Exception as error:
        raise SiteDataError(f"{loader} failed with {type(error).__name__}: {reason(error)}") from error


def prepare_steps(
    site: SiteData,
    task: Task,
    scale: FeatureScale,
    folder: Path,
    local: str = "rows",
    row_clip: float | None = None,
    design: AgreedDesign | None = None,
) -> tuple[Steps, RowSizes]:
    """What the site's local steps run on, in the run's coordinates, and what the policy asks of it.

    local : "rows" drawn at random, or its "means"; row_clip : longest gradient of a row (engine/local.py)
    folder : the site's own, beneath which the numbers are kept until its file, the task or the scale changes
    design : what all sites agreed on; by default the columns as this table has them
    """
    kept = "rows" if row_clip is not None else local  # clipped rows have no means that could be kept
    made_from = [FORMAT, sys.byteorder, kept, site.stamp(), task_text(task), scale_to_json(scale)]
    made_from.append("" if design is None else design.text())
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:32]
    place = folder / PREPARED / digest
    found = _load_steps(place, kept)
    if found is None:
        _write_steps(site, task, scale, place, kept, design)
        found = _load_steps(place, kept)
        if found is None:
            raise SiteDataError(f"cannot read the prepared rows back from {place}")
    steps, sizes = found
    if row_clip is None or not isinstance(steps, Rows):
        return steps, sizes
    return replace(steps, row_clip=row_clip, averaged=local == "means"), sizes


def scale_to_json(scale: FeatureScale) -> dict[str, Any]:
    """A scale as JSON holds it, to the last bit."""
    return {k: np.asarray(v).tolist() for k, v in asdict(scale).items()}


def scale_from_json(content: Mapping[str, Any]) -> FeatureScale:
    """The scale that `scale_to_json` wrote."""
    values: dict[str, Any] = {k: np.array(v, np.float64) if isinstance(v, list) else v for k, v in content.items()}
    return FeatureScale(**values)


def clear_prepared(folder: Path) -> None:
    """Forget what was prepared: when a run is over, and when a site joins with a loader, whose data may be others."""
    shutil.rmtree(folder / PREPARED, ignore_errors=True)


def site_columns(site: DataTable, task: Task, design: AgreedDesign | None) -> Columns:
    """The columns of a site's table, as all sites agreed to read them."""
    own = choose_columns(task, [site])
    return own if design is None else design.chosen(own, task)


def check_scale(task: Task, columns: Columns, scale: FeatureScale) -> None:
    """Refuse coordinates that are not those of the task's features, for they come over the wire."""
    k, intercept = feature_count(task, columns), shared_intercept(task)
    if scale.centre.shape != (k,) or scale.spread.shape != (k,) or scale.intercept != intercept:
        got = f"got one of {len(scale.centre)}, with intercept={scale.intercept}"
        raise ArgumentError(f"scale must be that of {k} features, with intercept={intercept}; {got}")
    if not (np.isfinite(scale.centre).all() and (scale.spread > 0).all() and scale.y_spread > 0):
        raise ArgumentError("scale must have finite centres and positive spreads; it has others")


def _load_steps(place: Path, local: str) -> tuple[Rows | Means, RowSizes] | None:
    """What lies there; None where nothing does, or not all of it."""
    try:
        about = json.loads((place / "about.json").read_text(encoding="utf-8"))
        arrays: dict[str, Any] = {}
        for name, (kind, shape) in about["arrays"].items():
            if (place / name).stat().st_size != int(np.prod(shape)) * np.dtype(kind).itemsize:
                return None
            arrays[name] = np.memmap(place / name, kind, "r", shape=tuple(shape))
        sizes = RowSizes(**about["sizes"])
        if local == "means":
            return Means(**arrays), sizes
        u, ridge = arrays["u"], float(about["ridge"])
        return Rows(u, arrays.get("v", u), arrays["y"], ridge, arrays["slots"]), sizes
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_steps(
    site: SiteData, task: Task, scale: FeatureScale, place: Path, local: str, design: AgreedDesign | None
) -> None:
    columns = site_columns(site.opened, task, design)
    check_scale(task, columns, scale)
    ridge, pieces = task.ridge, partial(read_scaled, site.opened, task, columns, scale)
    arrays: dict[str, tuple[str, list[int]]] = {}  # dtype and shape of what each file holds so far
    shutil.rmtree(place, ignore_errors=True)  # damaged
    with disk.new_folder(place) as part:

        def append(name: str, values: np.ndarray) -> None:
            with os.fdopen(os.open(part / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
                np.ascontiguousarray(values).tofile(file)
                os.fsync(file.fileno())
            before = arrays[name][1][0] if name in arrays else 0
            arrays[name] = str(values.dtype), [before + len(values), *values.shape[1:]]

        if local == "means":
            means = Systems.of(pieces(), [site.name], ridge)
            append("A", means.A[0])
            append("b", means.b[0])
        else:
            for piece in pieces():
                for name in ("u", "y") if piece.u is piece.v else ("u", "v", "y"):
                    append(name, getattr(piece, name))
            refuse_empty([site.name], np.array([len(arrays)]))
            append("slots", alias_slots(arrays["y"][1][0]))
        about = json.dumps({"ridge": ridge, "arrays": arrays, "sizes": asdict(row_sizes(pieces))})
        disk.create(part / "about.json", about.encode(), secret=True)
    for other in place.parent.iterdir():  # of earlier runs, and of processes that died while they wrote
        if other != place:
            shutil.rmtree(other, ignore_errors=True)
