"""A site's rows as its local steps read them, kept on its own disk: a restarted process need not read the data again.

They lie in a folder of their own, mode 700, under a digest of what they were made from: raw float64 numbers that are
mapped into memory, not read. The folder gets its name only when all of it is on the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ...engine.local import Means, Rows, alias_slots
from ...errors import ArgumentError, SiteDataError
from ...files import reason
from ...fit.columns import Columns, choose_columns
from ...fit.observe import FeatureScale, Piece, observations
from ...fit.site_sums import SystemSums, no_rows
from ...fit.tasks import Regression, Task
from ...problems.features import FeatureMap
from ..folder.config import task_text
from .source import SiteData

FORMAT = 1
HELD = 4  # prepared data that are kept: of the latest runs
FOLDER = "prepared"
ABANDONED = 86400  # seconds after which an unfinished folder is nobody's


def prepared(site: SiteData, task: Task, scale: FeatureScale, folder: Path, local: str = "rows") -> Rows | Means:
    """What the site's local steps run on, in the run's coordinates; local : "rows" drawn at random, or its "means".

    folder : the site's own, beneath which the numbers are kept until its file, the task or the scale changes.
    """
    home = folder / FOLDER
    place = home / _digest(site, task, scale, local)
    found = _load(place, local)
    if found is None:
        _write(site, task, scale, home, place, local)
        found = _load(place, local)
        if found is None:
            raise SiteDataError(f"cannot read the prepared rows back from {place}")
    return found


def clear(folder: Path) -> None:
    """Forget what was prepared: done when a site with a loader joins, for its data may be others than last time."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def ridge_of(task: Task) -> float:
    """The ridge of the task, in the run's coordinates."""
    return task.ridge if isinstance(task, Regression) else 0.0


def check_scale(task: Task, columns: Columns, scale: FeatureScale) -> None:
    """Refuse coordinates that are not those of the task's features, for they come over the wire."""
    k = len(columns.state)
    if not isinstance(task, Regression) and task.features is not None:
        k = task.features.dim if isinstance(task.features, FeatureMap) else np.shape(task.features)[-1]
    if scale.centre.shape != (k,) or scale.spread.shape != (k,) or scale.intercept != task.intercept:
        raise ArgumentError(f"scale must be that of {k} features; got one of {len(scale.centre)}")
    if not (np.isfinite(scale.centre).all() and (scale.spread > 0).all() and scale.y_spread > 0):
        raise ArgumentError("scale must have finite centres and positive spreads; it has others")


def _digest(site: SiteData, task: Task, scale: FeatureScale, local: str) -> str:
    coordinates = {k: np.asarray(v).tolist() for k, v in asdict(scale).items()}
    made_from = [FORMAT, sys.byteorder, local, site.stamp(), task_text(task), coordinates]
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:32]


def _load(place: Path, local: str) -> Rows | Means | None:
    """What lies there; None where nothing does, or not all of it."""
    try:
        held = json.loads((place / "about.json").read_text(encoding="utf-8"))
        n, d, slots = int(held["n"]), int(held["d"]), int(held["slots"])
        if local == "means":
            return Means(_mapped(place / "A", (d, d)), _mapped(place / "b", (d,)))
        u = _mapped(place / "u", (n, d))
        v = u if held["same"] else _mapped(place / "v", (n, d))
        return Rows(
            u, v, _mapped(place / "y", (n,)), float(held["ridge"]), _mapped(place / "slots", (slots,), "uint32")
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _mapped(path: Path, shape: tuple[int, ...], kind: str = "float64") -> Any:
    if path.stat().st_size != int(np.prod(shape)) * np.dtype(kind).itemsize:
        raise ValueError(path.name)
    return np.memmap(path, kind, "r", shape=shape)


def _write(site: SiteData, task: Task, scale: FeatureScale, home: Path, place: Path, local: str) -> None:
    columns = choose_columns(task, [site])
    check_scale(task, columns, scale)
    part = home / f".{place.name}.{secrets.token_hex(4)}.part"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.mkdir(mode=0o700)
        pieces = observations(site, task, columns, scale)
        about = (
            _means(pieces, site.name, ridge_of(task), part)
            if local == "means"
            else _rows(pieces, site.name, ridge_of(task), part)
        )
        with _new(part / "about.json") as file:
            file.write(json.dumps(about).encode())
        for name in os.listdir(part):
            with open(part / name, "rb+") as file:
                os.fsync(file.fileno())
        if _load(place, local) is None:  # else another process was as quick, with the same rows
            shutil.rmtree(place, ignore_errors=True)
            os.rename(part, place)
        _tidy(home)
    except OSError as error:
        raise SiteDataError(f"cannot keep the prepared rows in {home}: {reason(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(part)


def _tidy(home: Path) -> None:
    """Leave the latest runs' rows, and nothing of processes that died while they wrote."""
    finished: list[tuple[float, Path]] = []
    parts: list[tuple[float, Path]] = []
    for path in home.iterdir():
        with contextlib.suppress(OSError):  # gone meanwhile
            (parts if path.suffix == ".part" else finished).append((path.stat().st_mtime, path))
    for _, path in sorted(finished, reverse=True)[HELD:]:
        shutil.rmtree(path, ignore_errors=True)
    for changed, path in parts:
        if changed < time.time() - ABANDONED:
            shutil.rmtree(path, ignore_errors=True)


def _rows(pieces: Iterable[Piece], name: str, ridge: float, part: Path) -> dict[str, Any]:
    n, d, same = 0, 0, True
    with _new(part / "u") as u, _new(part / "v") as v, _new(part / "y") as y:
        for piece in pieces:
            d, same = piece.u.shape[1], piece.u is piece.v
            np.ascontiguousarray(piece.u).tofile(u)
            if not same:
                np.ascontiguousarray(piece.v).tofile(v)
            np.ascontiguousarray(piece.y).tofile(y)
            n += len(piece.y)
    if n == 0:
        raise no_rows(name)
    slots = alias_slots(n)
    with _new(part / "slots") as file:
        slots.tofile(file)
    return {"n": n, "d": d, "same": same, "ridge": ridge, "slots": len(slots)}


def _means(pieces: Iterable[Piece], name: str, ridge: float, part: Path) -> dict[str, Any]:
    total: SystemSums | None = None
    for piece in pieces:
        total = SystemSums.of(piece) if total is None else total + SystemSums.of(piece)
    if total is None:
        raise no_rows(name)
    means = total.system(ridge)
    for letter, values in (("A", means.A), ("b", means.b)):
        with _new(part / letter) as file:
            np.ascontiguousarray(values).tofile(file)
    return {"n": total.n, "d": len(total.b), "slots": 0}


def _new(path: Path) -> BinaryIO:
    """A new file that only its owner can read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
