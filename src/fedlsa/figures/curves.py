"""Error against cost: the mean squared error of each result, its spread over seeds, and the predicted bias."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from .. import checks
from ..checks import Floats
from . import style
from .doors import checked, checked_levels, checked_results
from .labels import common_setting, describe, method_name, names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {
    "communications": "communications",
    "samples": "observations per agent",
    "uploads": "messages to the server, all agents",
    "bytes": "bytes, up and down, all agents",
}
NARROW = 20.0  # largest over smallest error up to which powers of ten are too few ticks
HEADROOM = 30.0  # how far above the largest sound error the axis may reach for runs that diverge


@dataclass(frozen=True, eq=False)
class Curve:
    """What is drawn of one result: x, mean, low, high (R,); the runs that diverged, (k, R), NaN from there on."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    lost: Floats
    seeds: int
    first_lost: int


def curve(result: xr.Dataset, band: tuple[float, float], x: str) -> Curve:
    """The mean and two quantiles over the seeds that did not diverge; if all did, of all up to the first that did."""
    error = result["squared_error"].values
    at = result["diverged_at"].values
    sound = error[at < 0] if (at < 0).any() else error
    with np.errstate(invalid="ignore", over="ignore"):
        mean = sound.mean(axis=0)
        low, high = np.quantile(sound, band, axis=0)
    first = int(at[at >= 0].min()) if (at >= 0).any() else -1
    return Curve(cost(result, x), mean, low, high, error[at >= 0], len(error), first)


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
) -> Figure:
    """The mean squared error of each result against what it cost, on a logarithmic axis.

    bias : ||bias||^2 as predicted for each result (NaN for none; see `predicted_bias`), drawn as a dashed line
    band : the two quantiles over seeds between which the area is tinted; the figure says which
    x : "communications", "samples" (per agent), "uploads" (messages) or "bytes" (both ways)
    scale : of this axis, "linear" or "log"

    A seed that diverges leaves the mean and is drawn on its own, with a cross where it leaves the figure.
    """
    held = checked_results(results)
    levels = checked_levels(bias, len(held))
    checks.choice("x", x, AXES)
    matplotlib = style.matplotlib()
    curves = [curve(r, band, x) for r in held]
    labels, methods = names(held), [method_name(r) for r in held]
    others = list(dict.fromkeys(m for m in methods if m not in style.METHODS))
    with matplotlib.rc_context(style.RC):
        figure, axes = style.canvas()
        axes.set_yscale("log", nonpositive="mask")
        ceiling = _ceiling(curves)
        ends: list[tuple[float, str, Any]] = []
        several = sum(level > 0 for level in levels) > 1
        for i, (c, label, method) in enumerate(zip(curves, labels, methods, strict=True)):
            twin = methods[:i].count(method)
            hue = style.shade(style.colour(method, others), twin)
            low, mean, high = (np.minimum(v, 100 * ceiling) for v in (c.low, c.mean, c.high))
            axes.fill_between(c.x, low, high, color=hue, alpha=0.2, linewidth=0, zorder=2)
            axes.plot(c.x, mean, color=hue, linestyle=style.STROKES[twin % len(style.STROKES)], label=label, zorder=4)
            draw_lost(axes, c, hue, ceiling)
            ends.append((_last(c.mean, ceiling), label, hue))
            if levels[i] > 0:
                axes.axhline(
                    levels[i], color=hue if several else style.INK, linestyle=style.DASHED, linewidth=1.2, zorder=5
                )
                if not several:
                    ends.append((levels[i], f"predicted ‖bias‖²\nof {label}", style.INK))
        finish_axes(axes, curves, AXES[x], scale)
        set_limits(axes, *limits(curves, levels, ceiling))
        notes = _notes(curves, labels, band)
        if several:
            notes.append("Dashed: predicted ‖bias‖² of the run of the same colour.")
        frame(axes, ends, title, common_setting(held), notes)
        figure.set_label(describe(held))  # `save` writes it into the file
    return figure


def frame(
    axes: Axes, ends: list[tuple[float, str, Any]], title: str | None, heading: str, notes: Sequence[str]
) -> None:
    """The margins around the axes, and what stands in them: title and heading, names at the ends of lines, notes."""
    figure: Any = axes.figure
    left, top = 0.095, 0.86 if title else 0.93
    longest = max(len(line) for _, text, _ in ends for line in text.split("\n"))
    right = max(0.6, 0.965 - 0.0097 * longest)
    figure.subplots_adjust(left=left, right=right, top=top, bottom=0.135 + 0.04 * len(notes))
    label_ends(axes, ends)
    if title:
        figure.text(left, 0.985, title, fontsize=11.5, fontweight="bold", va="top")
    figure.text(left, top + 0.02, heading, fontsize=8.5, color=style.SOFT, va="bottom")
    figure.text(left, 0.012, "\n".join(notes), fontsize=7.5, color=style.SOFT, va="bottom", linespacing=1.4)


def number(value: float) -> str:
    """A cost on an axis: thin spaces between thousands, no digits behind the point but for small fractions."""
    if value < 100 and value != round(value):
        return f"{value:.3g}"
    return f"{value:,.0f}".replace(",", "\u2009")


def draw_lost(axes: Axes, c: Curve, hue: Any, ceiling: float) -> None:
    """Each run that diverged as a thin line of its own, with a cross where it leaves the figure."""
    for run in c.lost:
        inside = np.flatnonzero(run <= ceiling)  # NaN is not
        if len(inside):
            until = int(inside[-1])
            axes.plot(
                c.x[: until + 2],
                np.minimum(run[: until + 2], 100 * ceiling),
                color=hue,
                linewidth=0.7,
                alpha=0.7,
                zorder=3,
            )
            axes.plot(c.x[until], run[until], "x", color=hue, markersize=6, markeredgewidth=1.6, zorder=6)


def finish_axes(axes: Axes, curves: Sequence[Curve], label: str, scale: str) -> None:
    """Names, ticks and limits of the axis of costs, and the name of the axis of errors."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_xlabel(label)
    axes.set_ylabel("mean squared error  ‖θ \u2212 θ*‖²")
    plain = FuncFormatter(lambda v, _: number(v))
    start, end = min(float(c.x[0]) for c in curves), max(float(c.x[-1]) for c in curves)
    if scale == "log":  # linear up to the first recorded cost, so that the start, at 0, is seen
        first = min((float(c.x[c.x > 0].min()) for c in curves if (c.x > 0).any()), default=1.0)
        axes.set_xscale("symlog", linthresh=first, linscale=0.35)
        decades = 10.0 ** np.arange(math.ceil(math.log10(first)), math.log10(max(end, first)) - 0.25)
        axes.set_xticks([start, *decades, end])
        axes.set_xticks([d * k for d in decades for k in range(2, 10) if d * k < end], minor=True)
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(plain)
    axes.set_xlim(start, end if end > start else start + 1)


def set_limits(axes: Axes, low: float, high: float) -> None:
    """The limits of the axis of errors; over little more than a decade, its ticks are written as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_ylim(low, high)
    if high < NARROW * low:
        for subs, axis in (((1.0,), axes.yaxis.set_major_locator), ((2.0, 3.0, 5.0), axes.yaxis.set_minor_locator)):
            axis(LogLocator(subs=subs))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda v, _: f"{v:g}"))


def limits(curves: Sequence[Curve], levels: Sequence[float], ceiling: float) -> tuple[float, float]:
    """The vertical axis: all bands, means and predictions, as far as the ceiling, with a little room on both sides."""
    shown = np.concatenate(
        [v for c in curves for v in (c.low, c.mean, c.high, c.lost.ravel())] + [np.array(levels, np.float64)]
    )
    shown = np.minimum(shown[np.isfinite(shown) & (shown > 0)], ceiling)
    if not len(shown):
        return 0.1, 10.0
    room = max((shown.max() / shown.min()) ** 0.05, 1.05)
    return float(shown.min() / room), float(shown.max() * room)


def _ceiling(curves: list[Curve]) -> float:
    """The largest error worth showing: runs that diverge pass every scale."""
    kept = [c.mean[np.isfinite(c.mean)] for c in curves if len(c.lost) < c.seeds]
    kept += [c.mean[:1][np.isfinite(c.mean[:1])] for c in curves]
    return HEADROOM * max((float(k.max()) for k in kept if len(k)), default=1.0)


def _last(mean: Floats, ceiling: float) -> float:
    inside = mean[mean <= ceiling]
    return float(inside[-1]) if len(inside) else math.nan


def label_ends(axes: Axes, ends: list[tuple[float, str, Any]]) -> None:
    """Names beside the ends of their lines, moved apart where they would overlap."""
    bottom, top = (math.log10(y) for y in axes.get_ylim())
    height = axes.get_position().height * axes.figure.get_size_inches()[1]  # type: ignore[union-attr]
    line = 8.5 * 1.3 / 72 / height  # of text, in parts of the axis
    wanted = []
    for value, text, hue in ends:
        share = (math.log10(value) - bottom) / (top - bottom) if value > 0 else 0.5
        wanted.append((min(max(share, 0.0), 1.0), (text.count("\n") + 1) * line, text, hue))
    wanted.sort(key=lambda w: w[0])
    places = [w[0] for w in wanted]
    for _ in range(200):  # each pass pushes overlapping neighbours apart by half their overlap
        for i in range(len(places) - 1):
            overlap = (wanted[i][1] + wanted[i + 1][1]) / 2 - (places[i + 1] - places[i])
            if overlap > 1e-4:
                places[i] -= overlap / 2
                places[i + 1] += overlap / 2
        places[0], places[-1] = max(places[0], 0.0), min(places[-1], 1.0)
    for place, (_, _, text, hue) in zip(places, wanted, strict=True):
        axes.text(1.015, place, text, color=hue, fontsize=8.5, va="center", linespacing=1.2, transform=axes.transAxes)


def _notes(curves: list[Curve], labels: list[str], band: tuple[float, float]) -> list[str]:
    low, high = (f"{100 * q:g}%" for q in band)
    counts = sorted({c.seeds for c in curves})
    seeds = f"{counts[0]} seeds" if len(counts) == 1 else "the seeds"
    notes = [
        "One seed: no band."
        if counts == [1]
        else f"Line: mean over {seeds}. Band: from their {low} to their {high} quantile."
    ]
    for c, label in zip(curves, labels, strict=True):
        if len(c.lost):
            many = f"{len(c.lost)} of {c.seeds} seeds of {label} diverged (\u00d7), the first in round {c.first_lost}"
            notes.append(many + ("; they are not in the mean." if len(c.lost) < c.seeds else "."))
    return notes
