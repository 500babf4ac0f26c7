"""A cell is one computation of an experiment, described by plain values alone; equal descriptions are one cell.

Its key is derived from the description, so a result on disk is found by what it is, whatever asked for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

FORMAT = 1  # of descriptions and of what their computations return: a new number forgets all stored results


@dataclass(frozen=True, eq=False)
class Cell:
    """kind : a name in `experiments.compute.KINDS`; settings : JSON values, every choice that the result depends on."""

    kind: str
    settings: Mapping[str, Any]

    @cached_property
    def text(self) -> str:
        """The description, the same for equal cells."""
        return json.dumps({"format": FORMAT, "kind": self.kind, "settings": self.settings}, sort_keys=True)

    @cached_property
    def key(self) -> str:
        """What the description's file is called."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @staticmethod
    def from_text(text: str) -> Cell:
        """The inverse of `text`."""
        held = json.loads(text)
        return Cell(held["kind"], held["settings"])
