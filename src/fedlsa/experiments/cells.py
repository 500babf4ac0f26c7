"""A cell is one cached computation of an experiment, described by plain values; equal descriptions are one cell.

Its key is derived from the description, from the source code that computes it and from the versions of libraries: a
result on disk is found by what it is, whatever asked for it, and after a change of either it is not found any more.
`Store` keeps results on disk; `tabulate` makes the pandas frame that figures, tables and claims are functions of.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import xarray as xr

from .. import checks
from ..errors import ResultFileError
from ..results import result_files

Compute = Callable[[Mapping[str, Any], Mapping[str, Any]], xr.Dataset]  # of settings, and of how to simulate
KINDS: dict[str, Compute] = {}  # what each kind of cell computes
F = TypeVar("F", bound=Compute)

PACKAGE = Path(__file__).parents[1]
# what every result may depend on; beside them it depends on the file that computes its kind
ROOMS = ("problems", "algorithms", "results", "theory", "engine")
SHARED_FILES = ("experiments/computations.py", "experiments/counterexamples.py")
LIBRARIES = {name: version(name) for name in ("numpy", "scipy", "numba")}  # which compute, too
CELL = "cell"  # the attribute of a stored result that holds its description
KEPT = 500  # results that have been read stay in memory, about 100 megabytes: a large figure's


def computes(kind: str) -> Callable[[F], F]:
    """Have a function compute the cells of a kind: computes("limit")(function of settings and how)."""

    def register(function: F) -> F:
        KINDS[kind] = function
        return function

    return register


def source_digest(package: Path, kind: str) -> str:
    """A digest of the source code, in a folder like `PACKAGE`, that computes a kind of cell."""
    digest, source = hashlib.sha256(), Path(inspect.getfile(inspect.unwrap(KINDS[kind])))
    source = package / source.relative_to(PACKAGE) if source.is_relative_to(PACKAGE) else source
    shared = [*package.glob("*.py"), *(file for room in ROOMS for file in (package / room).rglob("*.py"))]
    for file in (*sorted(shared), *(package / name for name in SHARED_FILES), source):
        text = file.read_bytes().replace(b"\r\n", b"\n")
        name = file.relative_to(package).as_posix() if file.is_relative_to(package) else file.name
        digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:16]


@cache
def code(kind: str) -> str:
    """The digest of the code that computes a kind of cell here."""
    return source_digest(PACKAGE, kind)


@dataclass(frozen=True, eq=False)
class Cell:
    """kind : a name in `KINDS`; settings : JSON values, every choice that the result depends on.

    A setting "problem" holds the arguments of the problem. As a row of a table, a cell has its kind, its settings and
    those of its problem as columns: cell["agents"].
    """

    kind: str
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        checks.choice("kind", self.kind, tuple(KINDS))

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Every setting by its name."""
        others = {name: value for name, value in self.settings.items() if name != "problem"}
        return {"kind": self.kind, **self.settings.get("problem", {}), **others}

    def __getitem__(self, column: str) -> Any:
        return self.columns[column]

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    @cached_property
    def text(self) -> str:
        """The description, the same for equal cells of equal code."""
        settings = dict(self.settings)
        if settings.get("method") == "scafflsa" and 1 in (self.columns.get("agents"), settings.get("local_steps")):
            settings["method"] = "fedlsa"  # one agent, or one local step, makes all methods the same
        made_by = {"code": code(self.kind), "libraries": LIBRARIES}
        return json.dumps({**made_by, "kind": self.kind, "settings": settings}, sort_keys=True)

    @cached_property
    def key(self) -> str:
        """What the description's file is called: the code's digest first."""
        return f"{code(self.kind)}-{hashlib.sha256(self.text.encode()).hexdigest()[:32]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @staticmethod
    def from_text(text: str) -> Cell:
        """The inverse of `text`; a text that other code has written is another cell's."""
        description = json.loads(text)
        return Cell(description["kind"], description["settings"])


def compute(cell: Cell, how: Mapping[str, Any] | None = None) -> xr.Dataset:
    """The result of a cell; how : engine, threads and progress of a simulation, on which no result depends."""
    return KINDS[cell.kind](json.loads(cell.text)["settings"], how or {})


class Store:
    """A folder of cell results. A file that is damaged, or of another cell, counts as missing and is replaced."""

    def __init__(self, folder: Path, kept: int = KEPT) -> None:
        self.folder = folder
        most = checks.integer("kept", kept, at_least=0, at_most=2**20)
        self._read = lru_cache(most)(self._load)  # what is missing is looked for again

    def path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.key}.nc"

    def outdated(self) -> list[Path]:
        """Files of cells that other code has computed: they are never read."""
        current = {code(kind) for kind in KINDS}
        return sorted(path for path in self.folder.glob("*.nc") if path.name.partition("-")[0] not in current)

    def has(self, cell: Cell) -> bool:
        """Whether a sound result is there; it is read for that."""
        try:
            self._read(cell)
        except KeyError:
            return False
        return True

    def __getitem__(self, cell: Cell) -> xr.Dataset:
        return self._read(cell)

    def __setitem__(self, cell: Cell, result: xr.Dataset) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        result_files.write(result.assign_attrs({CELL: cell.text}), self.path(cell))

    def _load(self, cell: Cell) -> xr.Dataset:
        with contextlib.suppress(ResultFileError):  # missing, or damaged
            result = result_files.load(self.path(cell))
            if result.attrs.get(CELL) == cell.text:
                return result
        raise KeyError(cell.text)


Lookup = Callable[[Cell], xr.Dataset]  # the result of a cell


def tabulate(cells: Iterable[Cell], lookup: Lookup) -> pd.DataFrame:
    """A row per cell, by its key: its settings, the numbers of its result (of a curve, at the last round), the result.

    Settings and numbers are columns by their names; the result itself, a dataset, is the column "result".
    """
    rows, keys = [], []
    for cell in cells:
        result = lookup(cell)
        numbers = {str(k): v.values.flat[-1] for k, v in result.items() if v.dims in ((), ("rounds",))}
        rows.append({**numbers, **cell.columns, "result": result})
        keys.append(cell.key)
    return pd.DataFrame(rows, keys)


def rows_of(results: pd.DataFrame, cells: Iterable[Cell]) -> pd.DataFrame:
    """The rows of some cells, each once, in their order."""
    return results[~results.index.duplicated()].loc[[cell.key for cell in cells]]
