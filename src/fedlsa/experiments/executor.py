"""Runs the cells that are missing, and stores each as soon as it is done: kill it at any moment and start it again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import xarray as xr

from .. import checks
from .cells import Cell, Store, compute
from .compute import updates

Tick = Callable[[Cell, float], None]  # told how far a cell is, as a share, where that is known
Done = tuple[Cell, xr.Dataset, float]  # a cell, its result, and the seconds that it took


@dataclass
class RunProgress:
    """Where a run stands. groups : of cells, by name in their order, each with those done and those in all."""

    groups: dict[str, list[int]]
    waiting: dict[Cell, float]  # cells not yet stored, and the share of each that is made
    current: str = ""  # the group in work
    updates: float = 0.0  # agent updates of cells that this run has finished
    computed: int = 0  # cells that this run has finished
    started: float = field(default_factory=time.monotonic)
    spent: dict[str, list[float]] = field(default_factory=dict)  # by kind of cell: how many, and their seconds

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self.started

    @property
    def speed(self) -> float:
        """Agent updates per second of simulation; while cells run side by side, of all together."""
        seconds = self.spent.get("simulate", [0.0, 0.0])[1]
        return self.updates * self._abreast() / seconds if seconds > 0 else math.nan

    @property
    def seconds_left(self) -> float:
        """An estimate: simulations by their updates, other cells by the mean time of their kind; NaN at first.

        A kind of which none is done yet counts like the mean of all others.
        """
        if not self.spent:
            return math.nan
        count, seconds = (sum(column) for column in zip(*self.spent.values(), strict=True))
        per_update = self.spent.get("simulate", [0.0, 0.0])[1] / self.updates if self.updates else math.nan
        left = 0.0
        for cell, share in self.waiting.items():
            work = updates(cell)
            if work and not math.isnan(per_update):
                left += (1 - share) * work * per_update
            else:
                own = self.spent.get(cell.kind, (count, seconds))
                left += (1 - share) * own[1] / own[0]
        return left / self._abreast()

    def _abreast(self) -> float:
        """How many cells run side by side: seconds of cells per second of the clock, one at the least."""
        seconds = sum(s for _, s in self.spent.values())
        return max(1.0, seconds / self.seconds) if self.seconds > 0 else 1.0


Watch = Callable[[RunProgress], None]


class Executor(Protocol):
    """Computes cells in some order, and hands each result over once."""

    def __call__(self, cells: Sequence[Cell], tick: Tick) -> Iterator[Done]: ...


class Local:
    """One cell after the other in this process; a simulation uses all threads. how : its engine and threads."""

    def __init__(self, how: Mapping[str, Any] | None = None) -> None:
        checks.instance("how", how, (Mapping, type(None)), "a mapping of simulate's engine and threads, or None")
        self.how = dict(how or {})

    def __call__(self, cells: Sequence[Cell], tick: Tick) -> Iterator[Done]:
        for cell in cells:
            tick(cell, 0.0)
            began = time.monotonic()
            result = compute(cell, {**self.how, "progress": lambda done, total, cell=cell: tick(cell, done / total)})
            yield cell, result, time.monotonic() - began


def run(
    groups: Mapping[str, Iterable[Cell]], store: Store, executor: Executor, watch: Watch | None = None
) -> RunProgress:
    """Compute every cell of every group that the store lacks, the same cell once; groups : names and their cells."""
    members = {name: list(dict.fromkeys(cells)) for name, cells in groups.items()}
    belongs: dict[Cell, list[str]] = {}
    for name, cells in members.items():
        for cell in cells:
            belongs.setdefault(cell, []).append(name)
    missing = [cell for cell in belongs if not store.has(cell)]
    progress = RunProgress({name: [0, len(cells)] for name, cells in members.items()}, dict.fromkeys(missing, 0.0))

    def arrived(cell: Cell) -> None:
        for name in belongs[cell]:
            progress.groups[name][0] += 1

    def tick(cell: Cell, share: float) -> None:
        progress.current, progress.waiting[cell] = belongs[cell][0], share
        if watch is not None:
            watch(progress)

    for cell in belongs.keys() - progress.waiting.keys():
        arrived(cell)
    for cell, result, seconds in executor(missing, tick):
        store[cell] = result
        arrived(cell)
        del progress.waiting[cell]
        progress.updates += updates(cell)
        progress.computed += 1
        tally = progress.spent.setdefault(cell.kind, [0, 0.0])
        tally[0] += 1
        tally[1] += seconds
        if watch is not None:
            watch(progress)
    return progress
