"""A fit in one picture: coefficients with intervals before the sites' own solutions, and where the error comes from.

A fit is of a room further right, so that only these of its fields are read: names, theta, standard_error,
confidence_interval(level), error, and of each site theta, influence, noise and finite_data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import ArgumentTypeError
from . import theme
from .drawing_checks import checked
from .matplotlib_figures import set_log_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ESTIMATE_COLOUR, SITE_COLOUR = theme.METHODS["SCAFFLSA"], theme.OTHERS[1]
MAX_SCALE_RATIO = 30.0  # coefficients whose standard errors differ by more do not share a scale
MAX_NAMED = 40  # so many coefficients can still be named
WIDTH, HEADER = 7.6, 0.4  # of the figure and of its legend, in inches
PARTS_HEIGHT, SITES_HEIGHT = 1.5, 3.1  # of the axes in the right column with their labels
FIT_FIELDS = ("names", "theta", "standard_error", "confidence_interval", "error", "per_site")
SITES = (("influence", "influence", "o", theme.METHODS["FedLSA"]), ("noise", "noise", "^", theme.METHODS["Scaffnew"]),
         ("finite_data", "finite data", "s", ESTIMATE_COLOUR))  # fmt: skip


@checked
def coefficients(fit: Any, *, level: float = 0.95) -> Figure:
    """Coefficients with intervals of `level`, the parts of the error, and what each site adds to them.

    Dots behind a coefficient are the sites' own solutions, a triangle at the edge those further out. Coefficients of
    very different sizes are each divided by their standard error.
    """
    missing = [name for name in FIT_FIELDS if not hasattr(fit, name)]
    if missing:
        raise ArgumentTypeError(f"fit must be what fl.fit returns; got {checks.show(fit)} without {', '.join(missing)}")
    matplotlib = theme.matplotlib()
    d = len(fit.names)
    height = max(3.7, 1.25 + d * (0.3 if d <= 12 else 0.17 if d <= MAX_NAMED else 6.8 / d))
    with matplotlib.rc_context({**theme.RC, **theme.PANELS_RC}):
        figure = matplotlib.figure.Figure(figsize=(WIDTH, height), layout="constrained")
        rest = height - HEADER - PARTS_HEIGHT - SITES_HEIGHT  # a tall list of coefficients leaves room below the sites
        heights = (PARTS_HEIGHT, SITES_HEIGHT, rest) if rest > 0 else (PARTS_HEIGHT, height - HEADER - PARTS_HEIGHT)
        left, right = figure.subfigures(1, 2, width_ratios=(2, 1))
        main, grid = left.subplots(), right.add_gridspec(len(heights), 1, height_ratios=heights)
        _coefficients(main, fit, level)
        _parts(right.add_subplot(grid[0]), fit.error)
        _sites(right.add_subplot(grid[1]), fit.per_site)
        figure.legend(
            *main.get_legend_handles_labels(), loc="outside upper left", ncols=3, columnspacing=1.3, handletextpad=0.4,
            fontsize=8,
        )  # fmt: skip
        figure.set_label(f"coefficients of a fit to {len(fit.per_site)} sites with {100 * level:g}% intervals")
    return figure


def _coefficients(axes: Axes, fit: Any, level: float) -> None:
    d = len(fit.names)
    theta, deviation = np.asarray(fit.theta), np.asarray(fit.standard_error)
    known = deviation[deviation > 0]
    alike = not len(known) or known.max() <= MAX_SCALE_RATIO * known.min()
    unit: Floats = np.ones(d) if alike else np.where(deviation > 0, deviation, 1.0)
    interval = np.asarray(fit.confidence_interval(level)) / unit[:, None]
    own = np.stack([s.theta for s in fit.per_site]) / unit  # (N, d), NaN where a site leaves it open
    low, high = _limits(interval, own)
    row = np.arange(d)
    dot = 3.2 if len(own) <= 20 else 2.2
    inside = (own >= low) & (own <= high)
    spread = 0.24 * np.linspace(-1, 1, len(own))[:, None] * (len(own) > 1)  # so that dots do not hide one another
    y = np.broadcast_to(row, own.shape) + spread
    look: dict[str, Any] = {"linestyle": "none", "markeredgewidth": 0, "color": SITE_COLOUR, "zorder": 2}
    axes.plot(own[inside], y[inside], "o", markersize=dot, alpha=0.65, label="site's own solution", **look)
    for edge, mark, beyond in ((low, "<", own < low), (high, ">", own > high)):
        out = np.flatnonzero(beyond.any(axis=0))
        axes.plot(np.full(len(out), edge), out, mark, markersize=4.5, clip_on=False, **look)
    thick = 2.2 if d <= MAX_NAMED else 1.2
    axes.hlines(row, *interval.T, color=ESTIMATE_COLOUR, linewidth=thick, zorder=4, label=f"{100 * level:g}% interval")
    axes.plot(
        theta / unit, row, "D", color=ESTIMATE_COLOUR, markersize=4.4 if d <= 12 else 3.4 if d <= MAX_NAMED else 2.2,
        markeredgecolor="white", markeredgewidth=0.6 if d <= MAX_NAMED else 0, linestyle="none", zorder=5,
        label="shared estimate",
    )  # fmt: skip
    if low < 0 < high:
        axes.axvline(0, color=theme.SOFT, linewidth=0.8, zorder=1)
    axes.set_xlim(low, high)
    axes.set_ylim(d - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    if d <= MAX_NAMED:
        axes.set_yticks(row, [_short(n) for n in fit.names])
        for j in range(d):
            text = f"{theta[j]:.3g}".replace("-", "\u2212")
            axes.text(1.015, j, text, transform=axes.get_yaxis_transform(), va="center", fontsize=7, color=theme.SOFT)
        axes.tick_params(axis="y", length=0)
    else:
        axes.set_ylabel("its number")
    axes.set_xlabel("coefficient" if alike else "coefficient / its standard error")


def _limits(interval: Floats, own: Floats) -> tuple[float, float]:
    """All intervals, and the sites' solutions as far as they lie within one and a half times the intervals' range."""
    low, high = float(interval.min()), float(interval.max())
    seen = own[np.isfinite(own)]
    if len(seen):
        reach = 1.5 * max(high - low, 1e-300)
        low, high = min(low, max(float(seen.min()), low - reach)), max(high, min(float(seen.max()), high + reach))
    room = 0.04 * (high - low) or 0.5
    return low - room, high + room


def _parts(axes: Axes, error: dict[str, float]) -> None:
    names, values = list(error), np.array(list(error.values()))
    row = np.arange(len(names))
    drawn = np.where(np.isfinite(values), values, 0.0)  # data without noise have no standard errors to count in
    axes.barh(
        row, drawn, height=0.62, color=[ESTIMATE_COLOUR if n == "finite data" else SITE_COLOUR for n in names], zorder=3
    )
    for j, v, end in zip(row, values, drawn, strict=True):
        axes.annotate(
            f"{v:.2g}", (end, j), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7, color=theme.SOFT
        )
    axes.set_yticks(row, names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1.28 * max(float(drawn.max(initial=0)), 1e-300))
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.grid(visible=False)
    axes.set_title("errors, in standard errors", fontsize=8, loc="left", color=theme.INK, pad=3)


def _sites(axes: Axes, per_site: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    order = sorted(per_site, key=lambda s: -s.influence)
    place = np.arange(1, len(order) + 1)
    size = 4.0 if len(order) <= 20 else 2.6
    known = [v for s in order for name, *_ in SITES if np.isfinite(v := getattr(s, name))]
    largest = max(known, default=0.0)
    for name, label, mark, colour in SITES:
        values = np.array([getattr(s, name) for s in order])
        if np.isfinite(values).all() and values.max(initial=0) > 1e-6 * largest:  # steps on means have no noise
            axes.plot(
                place, values, mark, color=colour, markersize=size, markeredgewidth=0, linestyle="none", label=label
            )
    if largest > 0:
        axes.set_yscale("log")
        set_log_ticks(axes.yaxis)
    axes.set_xlim(0.4, len(order) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlabel("sites, by their influence")
    axes.grid(visible=False, axis="x")
    axes.set_title("sites, in standard errors", fontsize=8, loc="left", color=theme.INK, pad=14)
    if axes.lines:
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=3, fontsize=7, columnspacing=0.6, handletextpad=0.1,
            borderaxespad=0, borderpad=0.2, handlelength=1.2,
        )  # fmt: skip


def _short(name: str) -> str:
    return name if len(name) <= 24 else name[:21] + "..."
