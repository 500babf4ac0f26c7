"""The exact error of a method and what it is made of: a transient that fades, a bias and a variance that stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..results import recipe
from ..results.curves import checked_curves
from ..theory.stationary import Stationary
from . import style
from .doors import checked
from .labels import method_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRANSIENT, VARIANCE = (0, (1, 1.3)), (0, (6, 1.5, 1, 1.5))
NEGLIGIBLE = 1e-6  # times the smallest error: a bias that is not worth the room below the curve


@checked
def exact_parts(
    curves: xr.Dataset | Sequence[xr.Dataset],
    stationary: Stationary | Sequence[Stationary],
    *,
    title: str | None = None,
    scale: str = "log",
) -> Figure:
    """The exact mean squared error of `theory.exact` with its parts, one panel per method, on a logarithmic axis.

    stationary : the limit of each, from `theory.stationary`. With mean m_t and limit m of the mean, the parts are the
    transient ||m_t - m||^2, the squared bias ||m - theta_star||^2 and the variance; where there is no limit, only the
    variance is drawn. scale : of the horizontal axis, "linear" or "log" (linear up to round 1, so that 0 is seen)
    """
    held = checked_curves(curves, ("mse", "variance", "mean", "round"), ("method", "agents", "dim"))
    ends = checks.instances("stationary", stationary, Stationary, "a limit of theory.stationary")
    if len(held) != len(ends):
        raise ArgumentError(f"stationary must hold one limit per curve, {len(held)}; got {len(ends)}")
    matplotlib = style.matplotlib()
    with matplotlib.rc_context(style.RC):
        width = 7.0 if len(held) < 3 else 9.0
        figure = matplotlib.figure.Figure(figsize=(width, 4.0))
        panels = figure.subplots(1, len(held), sharey=True, squeeze=False)[0]
        for axes, c, end in zip(panels, held, ends, strict=True):
            _draw(axes, c, end, scale)
        panels[0].set_ylabel("exact mean squared error and its parts")
        panels[0].set_ylim(*_limits(held, ends))
        top = 0.82 if title else 0.87
        notes = _notes(held, ends)
        left = 0.67 / width
        bottom = 0.2 + 0.04 * len(notes)
        figure.subplots_adjust(left=left, right=0.97, top=top, bottom=bottom, wspace=0.1)
        entries = {text: line for p in panels for line, text in zip(*p.get_legend_handles_labels(), strict=True)}
        kinds = {k: v for k, v in entries.items() if k != "mean squared error"}
        proxy = matplotlib.lines.Line2D([], [], color=style.SOFT, linewidth=2.2)
        figure.legend(
            [proxy, *kinds.values()],
            ["mean squared error", *kinds],
            loc="lower left",
            bbox_to_anchor=(left - 0.012, 0.025 + 0.04 * len(notes)),
            ncols=4,
            handlelength=3.2,
            borderaxespad=0,
        )
        if title:
            figure.text(left, 0.985, title, fontsize=11.5, fontweight="bold", va="top")
        first = held[0].attrs
        heading = f"N = {first['agents']},  d = {first['dim']},  i.i.d. sampling,  no simulation"
        figure.text(left, top + 0.075, heading, fontsize=8.5, color=style.SOFT, va="bottom")
        figure.text(left, 0.012, "\n".join(notes), fontsize=7.5, color=style.SOFT, va="bottom", linespacing=1.4)
        figure.set_label(recipe.text([dict(c.attrs) for c in held]))
    return figure


def transient(curve: xr.Dataset, end: Stationary) -> Floats:
    """||E theta_t - m||^2 : (R,), where m is the limit of the mean."""
    return np.sum((curve["mean"].values - end.mean) ** 2, axis=1)


def _draw(axes: Axes, c: xr.Dataset, end: Stationary, scale: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    t, hue = c["round"].values, style.colour(method_name(c), [method_name(c)])
    axes.set_yscale("log", nonpositive="mask")
    axes.plot(t, c["mse"].values, color=hue, linewidth=2.2, label="mean squared error", zorder=3)
    axes.plot(t, c["variance"].values, color=style.INK, linestyle=VARIANCE, linewidth=1.2, label="variance", zorder=4)
    if end.stable:
        fades = transient(c, end)
        axes.plot(t, fades, color=style.INK, linestyle=TRANSIENT, linewidth=1.4, label="transient", zorder=4)
        bias = float(end.bias @ end.bias)
        if bias > 0:
            axes.axhline(bias, color=style.INK, linestyle=style.DASHED, linewidth=1.2, label="squared bias", zorder=4)
    if scale == "log":
        axes.set_xscale("symlog", linthresh=1, linscale=0.35)
        decades = 10 ** np.arange(0, max(np.log10(t[-1]) - 0.25, 0.01))
        axes.set_xticks([0, *decades, t[-1]])
        axes.set_xticks([k * d for d in decades for k in range(2, 10) if k * d < t[-1]], minor=True)
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}".replace(",", "\u2009")))
    axes.set_xlim(0, t[-1])
    axes.set_xlabel("communications")
    axes.set_title(_panel_name(c), fontsize=9.5, color=hue, loc="left", fontweight="bold")


def _panel_name(c: xr.Dataset) -> str:
    name, _, inside = str(c.attrs["method"]).partition("(")
    for word, symbol in (("step_size=", "η = "), ("local_steps=", "H = "), ("probability=", "p = ")):
        inside = inside.replace(word, symbol)
    return f"{name}  ({inside}"


def _limits(held: Sequence[xr.Dataset], ends: Sequence[Stationary]) -> tuple[float, float]:
    """Room for every error and for every part that stays; the transient may leave below, and what diverges above."""
    mse = np.concatenate([c["mse"].values for c in held])
    mse = mse[np.isfinite(mse) & (mse > 0)]
    if not len(mse):
        return 0.1, 10.0
    stays = [v for e in ends if e.stable for v in (float(e.bias @ e.bias), e.variance)]
    low = min([mse.min(), *(v for v in stays if v > NEGLIGIBLE * mse.min())])
    start = max(float(c["mse"][0]) for c in held)
    return float(low / 3), float(min(mse.max(), 1e6 * start) * 2)


def _notes(held: Sequence[xr.Dataset], ends: Sequence[Stationary]) -> list[str]:
    notes = [
        "Mean squared error = variance + ‖mean \u2212 θ*‖².  Transient: ‖mean \u2212 limit‖².  "
        "Squared bias: ‖limit \u2212 θ*‖².",
    ]
    for c, end in zip(held, ends, strict=True):
        if not end.stable:
            notes.append(
                f"{method_name(c)} is unstable (mean-square radius {end.radius:.4g}): it has no limit and no bias."
            )
    clean = [method_name(c) for c, e in zip(held, ends, strict=True) if e.stable and not float(e.bias @ e.bias) > 0]
    if clean:
        notes.append(f"{' and '.join(clean)}: no bias, so no dashed line.")
    return notes
