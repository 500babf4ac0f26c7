"""Results of cells on disk: one file per cell, named by its key, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import xarray as xr

from ..errors import ResultFileError
from ..results import files
from .cells import Cell

CELL = "cell"  # the attribute that holds the description


class Store:
    """A folder of cell results. A file that is damaged, or of another cell, counts as missing and is replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, xr.Dataset] = {}

    def path(self, cell: Cell) -> Path:
        return self.folder / f"{cell.key}.nc"

    def has(self, cell: Cell) -> bool:
        """Whether a sound result is there; it is read for that, and kept."""
        if cell.key in self._known:
            return True
        if not self.path(cell).exists():
            return False
        try:
            found = files.load(self.path(cell))
        except ResultFileError:
            return False
        if found.attrs.get(CELL) != cell.text:
            return False
        self._known[cell.key] = found
        return True

    def __getitem__(self, cell: Cell) -> xr.Dataset:
        if not self.has(cell):
            raise KeyError(cell.text)
        return self._known[cell.key]

    def __setitem__(self, cell: Cell, result: xr.Dataset) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        labelled = result.assign_attrs({CELL: cell.text})
        files.write(labelled, self.path(cell))
        self._known[cell.key] = labelled

    def tidy(self) -> None:
        """Remove what an interrupted writer left behind."""
        for part in self.folder.glob(".*.part"):
            part.unlink(missing_ok=True)
