"""Error against cost: of simulated results with their spread over seeds, and of exact curves with seeds on top."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..results import recipe
from ..results.curve_files import checked_curves
from . import theme
from .drawing_checks import checked, checked_levels, checked_results
from .labels import common_setting, describe, method_name, names
from .lines import COSTS, Chart, Line, error_ceiling, first_beyond, level
from .matplotlib_figures import Drawn, draw_charts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EXACT_COSTS = ("communications", "samples", "bytes")
SMALL_BAND = 1e-3  # of the smallest error: a part that ends below it is not seen
UNITS = {"bytes": 1, "kilobytes": 1e3, "megabytes": 1e6, "gigabytes": 1e9, "terabytes": 1e12}


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


@checked
def error_curves(
    results: xr.Dataset | Iterable[xr.Dataset],
    *,
    bias: float | Sequence[float] | None = None,
    title: str | None = None,
    band: tuple[float, float] = (0.1, 0.9),
    x: str = "communications",
    scale: str = "linear",
    legend: bool = True,
    ax: Axes | None = None,
) -> Drawn:
    """The mean squared error of each result against what it cost, on a logarithmic axis.

    results : of `simulate`, or sweeps, each run of which has its line
    bias : ||bias||^2 as predicted for each result (NaN for none; see `predicted_bias`), drawn as a dashed line
    band : the two quantiles over seeds between which the area is tinted; the figure says which
    x : "communications", "samples" (per agent), "uploads" (messages) or "bytes" (both ways)
    scale : of this axis, "linear" or "log"

    A seed that diverges leaves the mean and is drawn on its own, with a cross where it leaves the figure.
    """
    runs = checked_results(results)
    levels = checked_levels(bias, len(runs))
    checks.choice("x", x, COSTS)
    summaries = [summarise_seeds(r, band, x) for r in runs]
    labels, strokes = names(runs), _distinct_strokes(runs)
    ceiling = error_ceiling([s.mean for s in summaries], [len(s.diverged) < s.seeds for s in summaries])
    lines = [s.line(n, colour, dash=dash) for s, n, (colour, dash) in zip(summaries, labels, strokes, strict=True)]
    for s, (colour, _) in zip(summaries, strokes, strict=True):
        lines += s.diverged_lines(colour, ceiling)
    lines += _bias_lines(levels, lines, labels)
    notes = [_seeds_note(summaries, band, "One seed: no band.", "Line: mean over {seeds}. Band")]
    for s, label in zip(summaries, labels, strict=True):
        notes += s.divergence_notes(label)
    return draw_charts(
        [[Chart(lines, COSTS[x], x_scale=scale, ceiling=ceiling)]],
        title=title,
        heading=common_setting(runs),
        notes=notes,
        legend="right" * legend,
        description=describe(runs),
        ax=ax,
    )


@checked
def exact_curves(
    curves: xr.Dataset | Iterable[xr.Dataset],
    *,
    bias: float | Sequence[float] | None = None,
    runs: xr.Dataset | Iterable[xr.Dataset] | None = None,
    x: str = "communications",
    scale: str = "linear",
    title: str | None = None,
    band: tuple[float, float] = (0.1, 0.9),
    parts: bool = False,
    legend: bool = True,
    ax: Axes | None = None,
) -> Drawn:
    """The exact mean squared error of each method against what it costs, on a logarithmic axis.

    curves : datasets of `theory.exact`; bias : ||bias||^2 as predicted for each (NaN for none), drawn dashed
    runs : results of `simulate` of the same methods, any of them: the mean over seeds as a thin line, and a tint
        between the two quantiles of `band`
    x : "communications", "samples" (per agent, expected) or "bytes" (both ways)
    scale : of this axis, "linear" or "log"
    parts : whether the error of the first curve, of independent observations, is split into bands: noise at the bottom,
        on it drift, on that what is left of the start. On a logarithmic axis a band is as thick as the factor by which
        the error would fall without it and what stands on it

    A method that diverges leaves the figure at its top, and a note names it.
    """
    exact = checked_curves(curves, ("mse", *EXACT_COSTS), ("method", "algorithm", "sampling", "moments"))
    levels = checked_levels(bias, len(exact), "curve")
    simulated = [] if runs is None else checked_results(runs, "runs")
    owners = [_owner(r, exact) for r in simulated]
    checks.choice("x", x, EXACT_COSTS)
    unit, size = _unit(exact) if x == "bytes" else ("", 1.0)
    errors = [np.asarray(c["mse"].values, np.float64) for c in exact]
    labels, strokes = names(exact), _distinct_strokes(exact)
    ceiling = error_ceiling(errors)
    departures = [first_beyond(e, ceiling) for e in errors]
    shown = [n if at is None else f"{n} diverges" for n, at in zip(labels, departures, strict=True)]
    lines = [
        Line(c[x].values / size, e, n, colour, dash=dash)
        for c, e, n, (colour, dash) in zip(exact, errors, shown, strokes, strict=True)
    ]
    lines += _bias_lines(levels, lines, labels)
    if checks.boolean("parts", parts):
        lines = [*_bands(exact[0], exact[0][x].values / size, errors), *lines]
    summaries = [summarise_seeds(r, band, x, size) for r in simulated]
    one, many = "Thick: exact. Thin: one simulated seed.", "Thick: exact. Thin: mean over {simulated}; tint"
    notes = [_seeds_note(summaries, band, one, many)] if summaries else []
    notes += _leaving_notes(exact, labels, departures)
    for s, i in zip(summaries, owners, strict=True):
        colour, _ = strokes[i]
        lines += [s.line("", colour, "tint"), Line(s.x, s.mean, "", theme.mix(colour, "#000000", 0.45), "seeds")]
        lines += s.diverged_lines(colour, ceiling)
        notes += s.divergence_notes(labels[i])
    chart = Chart(lines, COSTS[x].replace("bytes", unit), x_scale=scale, ceiling=ceiling)
    origin = {"curves": [dict(c.attrs) for c in exact], "versions": recipe.versions()}
    return draw_charts(
        [[chart]],
        title=title,
        heading=",  ".join([common_setting(exact), *_foundation(exact, simulated)]),
        notes=notes,
        legend="right" * legend,
        description=recipe.text(origin | ({"runs": recipe.value(describe(simulated))} if simulated else {})),
        ax=ax,
    )


def _bands(curve: xr.Dataset, x: Floats, errors: Sequence[Floats]) -> list[Line]:
    """The parts of an error, one on the other, down to the smallest error or the smallest part that lasts."""
    if "drift" not in curve:
        raise ArgumentError("parts must be False along trajectories, whose errors are not split; got True")
    stacked = np.cumsum([curve[part].values for part in ("variance", "drift", "start")], axis=0)
    seen = np.concatenate([*errors, stacked[:, -1]])
    least = min((e.min(initial=math.inf, where=e > 0) for e in errors), default=math.inf)
    bottom = seen.min(initial=least, where=seen > SMALL_BAND * least) / 3  # below it there is room for the lowest band
    edges = np.maximum(np.concatenate([np.zeros((1, len(x))), stacked]), bottom)
    named = zip(theme.PARTS.items(), edges[:-1], edges[1:], strict=True)
    of = f"of {method_name(curve)}"
    return [Line(x, high, f"{part} {of}", colour, "tint", band=(low, high)) for (part, colour), low, high in named]


def _distinct_strokes(results: Sequence[xr.Dataset]) -> list[tuple[str, str]]:
    """Colour and dash of each: a method has its colour, and its further runs are lighter and dashed."""
    methods = [method_name(r) for r in results]
    others = list(dict.fromkeys(m for m in methods if m not in theme.METHODS))
    out = []
    for i, method in enumerate(methods):
        twin = methods[:i].count(method)
        dash = theme.TWIN_DASHES[twin % len(theme.TWIN_DASHES)]
        out.append((theme.shade(theme.colour(method, others), twin), dash))
    return out


def _bias_lines(levels: Sequence[float], lines: Sequence[Line], labels: Sequence[str]) -> list[Line]:
    """Predictions: in ink with a name of its own, or, where there are several, in the colours of their curves."""
    if sum(value > 0 for value in levels) > 1:
        wanted = [
            (value, "predicted ‖bias‖²\nof the same colour", line.colour)
            for value, line in zip(levels, lines, strict=False)
        ]
    else:
        wanted = [(value, f"predicted ‖bias‖²\nof {n}", theme.INK) for value, n in zip(levels, labels, strict=True)]
    return [level(value, lines, label, colour) for value, label, colour in wanted if value > 0]


def _seeds_note(summaries: Sequence[SeedSummary], band: tuple[float, float], one: str, several: str) -> str:
    counts = {s.seeds for s in summaries}
    if counts == {1}:
        return one
    many = str(*counts) if len(counts) == 1 else "the"
    low, high = (f"{100 * q:g}%" for q in band)
    who = several.format(seeds=f"{many} seeds", simulated=f"{many} simulated seeds".removeprefix("the "))
    return f"{who}: from their {low} to their {high} quantile."


def _leaving_notes(exact: Sequence[xr.Dataset], labels: Sequence[str], left: Sequence[int | None]) -> list[str]:
    """Which methods diverge, by the round from which on they are out of sight."""
    gone: dict[int, list[str]] = {}
    for c, label, at in zip(exact, labels, left, strict=True):
        if at is not None:
            gone.setdefault(int(c["rounds"][at]), []).append(label)
    notes = []
    for t, named in gone.items():
        what = "diverges: its error is" if len(named) == 1 else "diverge: their errors are"
        notes.append(f"{'; '.join(named)} {what} beyond the figure from round {t:,} on.")
    return notes


def _unit(curves: Sequence[xr.Dataset]) -> tuple[str, float]:
    """The largest unit of which the dearest curve takes ten."""
    most = max(float(c["bytes"][-1]) for c in curves)
    return next(((u, size) for u, size in reversed(UNITS.items()) if most >= 10 * size), ("bytes", 1.0))


def _foundation(exact: Sequence[xr.Dataset], simulated: Sequence[xr.Dataset]) -> list[str]:
    """How errors were computed, where that is not plain to see: a closure is no exact result."""
    if any("closure" in str(c.attrs["moments"]) for c in exact):
        return ["closure over pairs of agents"]
    return [] if simulated else ["exact, no simulation"]


def _owner(run: xr.Dataset, exact: Sequence[xr.Dataset]) -> int:
    """The curve that a run belongs to: of the same method, on as many agents, in the same dimension."""
    known = ["{method}, {agents} agents, d = {dim}".format(**c.attrs) for c in (*exact, run)]
    if known[-1] not in known[:-1]:
        listed = "; ".join(known[:-1])
        raise ArgumentError(f"runs must be of the methods and the problem of the curves ({listed}); got {known[-1]}")
    return known.index(known[-1])
