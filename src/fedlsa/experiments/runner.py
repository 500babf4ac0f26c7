"""Runs the cells that are missing, and stores each as soon as it is done: kill it at any moment and start it again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import xarray as xr

from .cells import Cell
from .compute import compute, updates
from .store import Store


@dataclass
class Progress:
    """Where a run stands. Groups are the experiments' panels, in their order: cells done and in all."""

    groups: dict[str, list[int]]
    updates: float = 0.0  # made so far in this run
    to_do: float = 0.0
    started: float = field(default_factory=time.monotonic)
    current: str = ""
    part: float = 0.0  # of the current cell


Watch = Callable[[Progress], None]


class Executor(Protocol):
    """Computes cells in some order, and hands each result over once."""

    def __call__(self, cells: Sequence[Cell], tick: Callable[[Cell, float], None]) -> Iterator[tuple[Cell, xr.Dataset]]:
        """tick : told how far a cell is, as a share, where that is known."""


class Local:
    """One cell after the other in this process; a simulation uses all threads."""

    def __init__(self, how: Mapping[str, Any] | None = None) -> None:
        self.how = dict(how or {})

    def __call__(self, cells: Sequence[Cell], tick: Callable[[Cell, float], None]) -> Iterator[tuple[Cell, xr.Dataset]]:
        for cell in cells:
            tick(cell, 0.0)
            yield cell, compute(cell, self.how, lambda done, total, cell=cell: tick(cell, done / total))  # type: ignore[misc]


def run(groups: Mapping[str, Iterable[Cell]], store: Store, executor: Executor, watch: Watch | None = None) -> Progress:
    """Compute every cell of every group that the store lacks, the same cell once; groups : panels and their cells."""
    members = {name: list(dict.fromkeys(cells)) for name, cells in groups.items()}
    belongs: dict[Cell, list[str]] = {}
    for name, cells in members.items():
        for cell in cells:
            belongs.setdefault(cell, []).append(name)
    store.tidy()
    missing = [cell for cell in belongs if not store.has(cell)]
    progress = Progress({name: [0, len(cells)] for name, cells in members.items()})
    progress.to_do = sum(map(updates, missing))
    absent = set(missing)
    for cell, names in belongs.items():
        if cell not in absent:
            for name in names:
                progress.groups[name][0] += 1
    made = 0.0

    def tick(cell: Cell, share: float) -> None:
        progress.current, progress.part = belongs[cell][0], share
        progress.updates = made + share * updates(cell)
        if watch is not None:
            watch(progress)

    for cell, result in executor(missing, tick):
        store[cell] = result
        made += updates(cell)
        for name in belongs[cell]:
            progress.groups[name][0] += 1
        progress.updates, progress.part = made, 1.0
        if watch is not None:
            watch(progress)
    return progress
