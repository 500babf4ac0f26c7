"""Exact error against cost: the mean squared error of each method, without simulation, and simulated seeds on top."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..results import recipe
from ..results.curves import checked_curves
from . import style
from .curves import (
    HEADROOM,
    Curve,
    curve,
    draw_lost,
    finish_axes,
    frame,
    limits,
    set_limits,
)
from .doors import checked, checked_levels, checked_results
from .labels import common_setting, describe, method_name, names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {
    "communications": "communications",
    "samples": "observations per agent",
    "bytes": "{unit}, up and down, all agents",
}
UNITS = {"bytes": 1, "kilobytes": 1e3, "megabytes": 1e6, "gigabytes": 1e9, "terabytes": 1e12}


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
) -> Figure:
    """The exact mean squared error of each method against what it costs, on a logarithmic axis.

    curves : datasets of `theory.exact`; bias : ||bias||^2 as predicted for each (NaN for none), drawn dashed
    runs : results of `simulate` of the same methods, any of them: the mean over seeds as a thin line, and a tint
        between the two quantiles of `band`
    x : "communications", "samples" (per agent, expected) or "bytes" (both ways)
    scale : of this axis, "linear" or "log"

    A method that diverges leaves the figure at its top, and a note names it.
    """
    held = checked_curves(curves, ("mse", *AXES), ("method", "algorithm", "sampling", "moments"))
    levels = checked_levels(bias, len(held), "curve")
    simulated = [] if runs is None else checked_results(runs, "runs")
    owners = [_owner(r, held) for r in simulated]
    checks.choice("x", x, AXES)
    unit, size = _unit(held) if x == "bytes" else ("", 1.0)
    exact = [_exact(c, x, size) for c in held]
    seeds = [_simulated(r, band, x, size) for r in simulated]
    labels, methods = names(held), [method_name(c) for c in held]
    others = list(dict.fromkeys(m for m in methods if m not in style.METHODS))
    several = sum(level > 0 for level in levels) > 1
    matplotlib = style.matplotlib()
    with matplotlib.rc_context(style.RC):
        figure, axes = style.canvas()
        axes.set_yscale("log", nonpositive="mask")
        ceiling = _ceiling([c.mean for c in exact])
        ends: list[tuple[float, str, Any]] = []
        hues = []
        for i, (c, label, method) in enumerate(zip(exact, labels, methods, strict=True)):
            twin = methods[:i].count(method)
            hue = style.shade(style.colour(method, others), twin)
            hues.append(hue)
            stroke = style.STROKES[twin % len(style.STROKES)]
            axes.plot(c.x, np.minimum(c.mean, 100 * ceiling), color=hue, linestyle=stroke, label=label, zorder=4)
            lost = leaves(c.mean, ceiling) is not None
            ends.append((ceiling, f"{label} diverges", hue) if lost else (float(c.mean[-1]), label, hue))
            if levels[i] > 0:
                colour = hue if several else style.INK
                axes.axhline(levels[i], color=colour, linestyle=style.DASHED, linewidth=1.2, zorder=5)
                if not several:
                    ends.append((levels[i], f"predicted ‖bias‖²\nof {label}", style.INK))
        for c, i in zip(seeds, owners, strict=True):
            _draw_seeds(axes, c, hues[i], ceiling)
        finish_axes(axes, exact, AXES[x].format(unit=unit), scale)
        set_limits(axes, *limits([*exact, *seeds], levels, ceiling))
        notes = _notes(held, exact, seeds, [labels[i] for i in owners], ceiling, band, several)
        heading = ",  ".join([common_setting(held), *_foundation(held, simulated)])
        frame(axes, ends, title, heading, notes)
        made = {"curves": [dict(c.attrs) for c in held], "versions": recipe.versions()}
        figure.set_label(recipe.text(made | ({"runs": recipe.value(describe(simulated))} if simulated else {})))
    return figure


def leaves(mse: Floats, ceiling: float) -> int | None:
    """The first recorded place at which an error is beyond the ceiling, from which it does not come back."""
    return None if mse[-1] <= ceiling else int(np.flatnonzero(mse <= ceiling)[-1] + 1) if (mse <= ceiling).any() else 0


def _exact(c: xr.Dataset, x: str, size: float) -> Curve:
    mse = np.asarray(c["mse"].values, np.float64)
    return Curve(c[x].values / size, mse, mse, mse, np.empty((0, len(mse))), 0, -1)


def _simulated(r: xr.Dataset, band: tuple[float, float], x: str, size: float) -> Curve:
    if x == "bytes":
        r = r.assign(bytes=2 * 8 * int(r.attrs["dim"]) * r["uploads"] / size)
    return curve(r, band, x)


def _draw_seeds(axes: Axes, c: Curve, hue: Any, ceiling: float) -> None:
    low, mean, high = (np.minimum(v, 100 * ceiling) for v in (c.low, c.mean, c.high))
    axes.fill_between(c.x, low, high, color=hue, alpha=0.2, linewidth=0, zorder=2)
    ink = tuple(0.55 * part for part in hue)  # darker, for it lies on the exact line
    axes.plot(c.x, mean, color=ink, linewidth=0.7, zorder=6)
    draw_lost(axes, c, hue, ceiling)


def _ceiling(errors: Sequence[Floats]) -> float:
    """The largest error worth showing: those that grow without bound pass every scale.

    An error grows without bound where its last value is far above all of the first half of its curve. An error that
    rises from 0 to its limit does not: it has come most of the way by then.
    """
    starts = [float(e[0]) for e in errors if 0 < e[0] < math.inf]
    kept = [float(e.max()) for e in errors if np.isfinite(e).all() and not _grows(e)]
    top = max([*starts, *kept], default=0.0)
    return HEADROOM * (top if top > 0 else 1.0)


def _grows(mse: Floats) -> bool:
    early = float(mse[: (len(mse) + 1) // 2].max())
    return 0 < HEADROOM * early < float(mse[-1])


def _unit(held: Sequence[xr.Dataset]) -> tuple[str, float]:
    """The largest unit of which the dearest curve takes ten."""
    most = max(float(c["bytes"][-1]) for c in held)
    return next(((u, size) for u, size in reversed(UNITS.items()) if most >= 10 * size), ("bytes", 1.0))


def _foundation(held: Sequence[xr.Dataset], simulated: Sequence[xr.Dataset]) -> list[str]:
    """How errors were found, where that is not plain to see: a closure is no exact result."""
    if any("closure" in str(c.attrs["moments"]) for c in held):
        return ["closure over pairs of agents"]
    return [] if simulated else ["exact, no simulation"]


def _notes(
    held: Sequence[xr.Dataset],
    exact: Sequence[Curve],
    seeds: Sequence[Curve],
    owners: Sequence[str],
    ceiling: float,
    band: tuple[float, float],
    several: bool,
) -> list[str]:
    notes = []
    if seeds:
        counts = sorted({c.seeds for c in seeds})
        many = f"{counts[0]} simulated seeds" if len(counts) == 1 else "simulated seeds"
        low, high = (f"{100 * q:g}%" for q in band)
        notes.append(
            "Thick: exact. Thin: one simulated seed."
            if counts == [1]
            else f"Thick: exact. Thin: mean over {many}; tint: from their {low} to their {high} quantile."
        )
    if several:
        notes.append("Dashed: predicted ‖bias‖² of the method of the same colour.")
    gone: dict[int, list[str]] = {}
    for c, e, label in zip(held, exact, names(held), strict=True):
        at = leaves(e.mean, ceiling)
        if at is not None:
            gone.setdefault(int(c["round"][at]), []).append(label)
    for t, labels in gone.items():
        one, listed = len(labels) == 1, "; ".join(labels)
        what = "diverges: its error is" if one else "diverge: their errors are"
        notes.append(f"{listed} {what} beyond the figure from round {t:,} on.")
    for s, label in zip(seeds, owners, strict=True):
        if len(s.lost):
            lost = f"{len(s.lost)} of {s.seeds} seeds of {label} diverged (\u00d7), the first in round {s.first_lost}"
            notes.append(lost + ("; they are not in the mean." if len(s.lost) < s.seeds else "."))
    return notes


def _owner(run: xr.Dataset, held: Sequence[xr.Dataset]) -> int:
    """The curve that a run belongs to: of the same method, on as many agents, in the same dimension."""
    key = ("method", "agents", "dim")
    for i, c in enumerate(held):
        if all(run.attrs[k] == c.attrs[k] for k in key):
            return i
    listed = "; ".join(f"{c.attrs['method']}, {c.attrs['agents']} agents, d = {c.attrs['dim']}" for c in held)
    got = f"{run.attrs['method']}, {run.attrs['agents']} agents, d = {run.attrs['dim']}"
    raise ArgumentError(f"runs must be of the methods and the problem of the curves ({listed}); got {got}")
