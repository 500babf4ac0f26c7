"""A cell is one computation of an experiment, described by plain values alone; equal descriptions are one cell.

Its key is derived from the description and from the source code that computes it: a result on disk is found by what it
is, whatever asked for it, and after a change of the code it is not found any more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
# what a result may depend on; drawing, tabulating and deciding are not in it
COMPUTES = ("checks.py", "sampling.py", "problems", "algorithms", "results", "theory", "engine")
COMPUTES_CELLS = ("compute.py", "markov_cells.py", "planning.py", "baselines.py", "value_cells.py")


def source_digest(package: Path) -> str:
    """A digest of the source code that computes cells."""
    found = hashlib.sha256()
    for name in (*COMPUTES, *(f"experiments/{name}" for name in COMPUTES_CELLS)):
        place = package / name
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            text = file.read_bytes().replace(b"\r\n", b"\n")
            found.update(f"{file.relative_to(package).as_posix()} {len(text)}\n".encode() + text)
    return found.hexdigest()[:16]


@cache
def code() -> str:
    """The digest of the code that runs here."""
    return source_digest(PACKAGE)


@dataclass(frozen=True, eq=False)
class Cell:
    """kind : a name in `experiments.compute.KINDS`; settings : JSON values, every choice that the result depends on."""

    kind: str
    settings: Mapping[str, Any]

    @cached_property
    def text(self) -> str:
        """The description, the same for equal cells of equal code."""
        return json.dumps({"code": code(), "kind": self.kind, "settings": self.settings}, sort_keys=True)

    @cached_property
    def key(self) -> str:
        """What the description's file is called: the code's digest first."""
        return f"{code()}-{hashlib.sha256(self.text.encode()).hexdigest()[:32]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @staticmethod
    def from_text(text: str) -> Cell:
        """The inverse of `text`; a text that other code has written is another cell's."""
        held = json.loads(text)
        return Cell(held["kind"], held["settings"])
