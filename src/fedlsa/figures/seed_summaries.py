"""What is drawn of the seeds of a result: their mean, two quantiles, and those that diverged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from ..checks import Floats
from .lines import Line


@dataclass(frozen=True, eq=False)
class SeedSummary:
    """What is drawn of one result: x, mean, low, high (R,); the runs that diverged, (k, R), NaN from there on."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    diverged: Floats
    seeds: int
    first_diverged: int

    def line(self, label: str, colour: str, role: str = "curve", dash: str = "") -> Line:
        """The mean over seeds, with the band between the two quantiles."""
        return Line(self.x, self.mean, label, colour, role, (self.low, self.high), dash=dash)

    def diverged_lines(self, colour: str, ceiling: float) -> list[Line]:
        """Each run that diverged as a thin line of its own, with a cross where it leaves the figure."""
        out = []
        for run in self.diverged:
            inside = np.flatnonzero(run <= ceiling)  # NaN is not
            if len(inside):
                last = int(inside[-1])
                out.append(Line(self.x[: last + 2], run[: last + 2], "", colour, "diverged"))
                out.append(Line(self.x[[last]], run[[last]], "", colour, "departure"))
        return out

    def divergence_notes(self, label: str) -> list[str]:
        """How many seeds diverged, if any did."""
        count = len(self.diverged)
        if not count:
            return []
        note = f"{count} of {self.seeds} seeds of {label} diverged (\u00d7), the first in round {self.first_diverged}"
        return [note + ("; they are not in the mean." if count < self.seeds else ".")]


def summarise_seeds(result: xr.Dataset, band: tuple[float, float], x: str, unit: float = 1.0) -> SeedSummary:
    """The mean and two quantiles over the seeds that did not diverge; if all did, of all up to the first that did.

    unit : in which the cost x is counted
    """
    error = result["squared_error"].values
    at = result["diverged_at"].values
    sound = error[at < 0] if (at < 0).any() else error
    with np.errstate(invalid="ignore", over="ignore"):
        mean = sound.mean(axis=0)
        low, high = np.quantile(sound, band, axis=0)
    first = int(at[at >= 0].min()) if (at >= 0).any() else -1
    return SeedSummary(cost(result, x) / unit, mean, low, high, error[at >= 0], len(error), first)


def cost(result: xr.Dataset, x: str) -> Floats:
    """What a run has cost at its recorded rounds, on average over seeds."""
    if x == "bytes" and "bytes" not in result:  # eight for each number, up and down
        return 2 * 8 * int(result.attrs["dim"]) * np.asarray(result["uploads"].values.mean(axis=0), np.float64)
    return np.asarray(result[x].values.mean(axis=0), np.float64)
