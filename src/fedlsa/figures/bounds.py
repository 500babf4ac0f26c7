"""What a theorem promises beside what happens: its bound, the exact error, and simulations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..results import recipe
from ..results.curves import checked_curves
from ..results.recipe import require_result
from ..theory.bounds.theorems import Bound
from . import style
from .curves import AXES, curve
from .doors import checked
from .labels import common_setting, describe, method_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTTED = (0, (1, 1.6))  # the second bound
STROKES = (style.DASHED, DOTTED)
MARKS = 24  # simulated means that are marked


@checked
def bound_and_curve(
    bounds: Bound | Sequence[Bound],
    exact: xr.Dataset | None = None,
    result: xr.Dataset | None = None,
    *,
    title: str | None = None,
    band: tuple[float, float] = (0.1, 0.9),
    x: str = "communications",
    scale: str = "linear",
) -> Figure:
    """The bound of a theorem at several rounds, the exact error, and simulations, on a logarithmic axis.

    bounds : one or two of `theory.bound`, `td_bound` or `markov_bound` with `record`, of which the MSE is drawn
    exact : of `theory.exact`, or of `theory.exact_iterations` with x="samples"; where a bound is on psi it is drawn too
    result : of `simulate`: marks at the mean over seeds, and between the two quantiles of `band` the area is tinted
    x : "communications" or "samples" (observations of an agent); scale : of this axis, "linear" or "log"
    """
    held = checks.instances("bounds", bounds, Bound, "a bound of fedlsa.theory")
    _check(held, exact, result, x)
    matplotlib = style.matplotlib()
    shown = [d for d in (result, exact) if d is not None]
    name = method_name(shown[0])
    hue = style.colour(name, [name])
    with matplotlib.rc_context(style.RC):
        figure, axes = style.canvas(7.0, 4.2)
        axes.set_yscale("log", nonpositive="mask")
        for b, stroke in zip(held, STROKES, strict=False):
            axes.plot(_places(b, x), b.mse, color=style.INK, linestyle=stroke, label=_bound_name(b), zorder=3)
        psi = exact is not None and "psi" in held[0].bounds and "psi" in exact
        if exact is not None:
            at = _exact_places(held[0], exact, x)
            if psi:
                axes.plot(at, exact["psi"].values, color=style.shade(hue, 2), label="exact ψ", zorder=4)
            axes.plot(at, exact["mse"].values, color=hue, label="exact mean squared error", zorder=4)
        end = max(float(_places(b, x)[-1]) for b in held)
        if result is not None:
            _draw_runs(axes, result, band, x, hue, end)
        rows = math.ceil(len(axes.get_legend_handles_labels()[0]) / 2)
        _finish(axes, end, AXES[x] + (" (iterations)" if psi and x == "samples" else ""), scale)
        axes.set_ylabel("ψ and mean squared error" if psi else "mean squared error  ‖θ \u2212 θ*‖²")
        notes = _notes(held, result, band, between=psi and x == "samples")
        top, left = 0.85 if title else 0.92, 0.1
        figure.subplots_adjust(left=left, right=0.97, top=top, bottom=0.145 + 0.045 * rows + 0.037 * len(notes))
        figure.legend(
            loc="lower left", bbox_to_anchor=(left - 0.012, 0.02 + 0.037 * len(notes)), ncols=2, borderaxespad=0
        )
        if title:
            figure.text(left, 0.985, title, fontsize=11.5, fontweight="bold", va="top")
        figure.text(left, top + 0.02, _heading(shown[0]), fontsize=8.5, color=style.SOFT, va="bottom")
        figure.text(left, 0.012, "\n".join(notes), fontsize=7.5, color=style.SOFT, va="bottom", linespacing=1.4)
        figure.set_label(describe([result]) if result is not None else recipe.text(dict(shown[0].attrs)))
    return figure


def _bound_name(b: Bound) -> str:
    return f"bound on ψ ({b.label})" if "psi" in b.bounds else f"bound ({b.label})"


def _places(b: Bound, x: str) -> Floats:
    return np.asarray(b.rounds if x == "communications" else b.samples, np.float64)


def _exact_places(b: Bound, exact: xr.Dataset, x: str) -> Floats:
    """Where the exact values stand on the axis; both costs grow in proportion."""
    if "iteration" in exact.coords:
        return np.asarray(exact["iteration"].values, np.float64)
    rounds = exact["round"].values.astype(np.float64)
    return rounds if x == "communications" else rounds * float(b.samples[-1] / _places(b, "communications")[-1])


def _draw_runs(axes: Axes, result: xr.Dataset, band: tuple[float, float], x: str, hue: str, end: float) -> None:
    c = curve(result, band, x)
    axes.fill_between(c.x, c.low, c.high, color=hue, alpha=0.2, linewidth=0, zorder=2, label=f"{c.seeds} simulations")
    seen = int(np.sum(c.x <= end))
    some = np.unique(np.linspace(0, seen - 1, min(MARKS, seen)).round().astype(int))
    marks: dict[str, Any] = {"markersize": 3.6, "markerfacecolor": "white", "markeredgewidth": 1.0}
    axes.plot(c.x[some], c.mean[some], "o", color=hue, label="their mean", zorder=5, clip_on=False, **marks)


def _finish(axes: Axes, end: float, label: str, scale: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    if scale == "log":
        axes.set_xscale("symlog", linthresh=1, linscale=0.35)
        decades = 10.0 ** np.arange(0, max(np.log10(end) - 0.25, 0.01))
        axes.set_xticks([0, *decades, end])
        axes.set_xticks([k * d for d in decades for k in range(2, 10) if k * d < end], minor=True)
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}".replace(",", "\u2009")))
    axes.set_xlim(0, end)
    axes.set_xlabel(label)


def _heading(data: xr.Dataset) -> str:
    if "squared_error" in data:
        return f"{method_name(data)},  {common_setting([data])}"
    return f"{data.attrs['method']},  N = {data.attrs['agents']},  d = {data.attrs['dim']}"


def _notes(held: Sequence[Bound], result: xr.Dataset | None, band: tuple[float, float], between: bool) -> list[str]:
    notes = []
    if result is not None:
        low, high = (f"{100 * q:g}%" for q in band)
        notes.append(f"Band: from the {low} to the {high} quantile of the squared error over seeds.")
    if result is not None and between:
        notes.append("Simulations: the server's error at its communications, each at its mean iteration.")
    for b in held:
        failed = [rule for rule, met in b.conditions.items() if not met]
        if failed:
            notes.append(f"{b.label}: conditions not met: {'; '.join(failed)}.")
    if not any("not met" in note for note in notes):
        word = "All conditions of the theorem are met." if len(held) == 1 else "All conditions of both bounds are met."
        notes = [*notes[1:], " ".join([*notes[:1], word])]
    if not all(b.proved for b in held):
        notes.append("Not proved here: the bound rests on a statement that the paper cites.")
    return notes


def _check(held: Sequence[Any], exact: Any, result: Any, x: str) -> None:
    checks.choice("x", x, ("communications", "samples"))
    if not 1 <= len(held) <= len(STROKES):
        raise ArgumentError(f"bounds must hold one bound or two; got {len(held)}")
    for b in held:
        if isinstance(b.rounds, int):
            raise ArgumentError("bounds must be computed at several rounds, with record; got a single round")
    if exact is None and result is None:
        raise ArgumentError("exact or result must be given, or there is nothing that the bound bounds; got neither")
    if exact is not None:
        checked_curves(exact, ("mse",), ("method", "agents", "dim"), "exact")
        if "iteration" in exact.coords and x != "samples":
            raise ArgumentError('x must be "samples" where exact errors are those per iteration; got "communications"')
    if result is not None:
        require_result("result", result)
