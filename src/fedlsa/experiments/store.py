"""Results of cells on disk: one file per cell, named by its key, written whole or not at all."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import xarray as xr

from ..errors import ResultFileError
from ..results import files
from .cells import Cell, code

CELL = "cell"  # the attribute that holds the description
KEPT = 256 * 2**20  # bytes of results that stay in memory once read


class Store:
    """A folder of cell results. A file that is damaged, or of another cell, counts as missing and is replaced."""

    def __init__(self, folder: Path, kept: int = KEPT) -> None:
        self.folder, self.kept = folder, kept
        self._sound: set[str] = set()  # keys of files that were read, or written, and are right
        self._recent: OrderedDict[str, xr.Dataset] = OrderedDict()
        self._bytes = 0  # of these

    def path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.key}.nc"

    def outdated(self) -> list[Path]:
        """Files of cells that other code has computed: they are never read."""
        return sorted(path for path in self.folder.glob("*.nc") if not path.name.startswith(f"{code()}-"))

    def has(self, cell: Cell) -> bool:
        """Whether a sound result is there; it is read for that."""
        return cell.key in self._sound or self._read(cell) is not None

    def __getitem__(self, cell: Cell) -> xr.Dataset:
        found = self._recent.get(cell.key)
        if found is None:
            found = self._read(cell)
        if found is None:
            raise KeyError(cell.text)
        self._recent.move_to_end(cell.key)
        return found

    def __setitem__(self, cell: Cell, result: xr.Dataset) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        labelled = result.assign_attrs({CELL: cell.text})
        files.write(labelled, self.path(cell))
        self._keep(cell, labelled)

    def _read(self, cell: Cell) -> xr.Dataset | None:
        if not self.path(cell).exists():
            return None
        try:
            found = files.load(self.path(cell))
        except ResultFileError:
            return None
        if found.attrs.get(CELL) != cell.text:
            return None
        self._keep(cell, found)
        return found

    def _keep(self, cell: Cell, result: xr.Dataset) -> None:
        self._sound.add(cell.key)
        old = self._recent.pop(cell.key, None)
        self._bytes += result.nbytes - (0 if old is None else old.nbytes)
        self._recent[cell.key] = result
        while len(self._recent) > 1 and self._bytes > self.kept:
            self._bytes -= self._recent.popitem(last=False)[1].nbytes
