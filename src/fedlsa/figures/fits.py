"""A fit in one picture: coefficients with intervals before the sites' own solutions, and where the error comes from.

A fit is of a room further right, so that only these of its fields are read: names, theta, standard_error,
confidence_interval(level), error, and of each site theta, influence, noise and finite_data.

And one coefficient at every site: the forest plot of meta-analyses, with the shared estimate as a diamond below. Of its
heterogeneity these fields are read: names, sites, theta, standard_error, degrees_of_freedom, shared, shared_covariance,
shared_degrees_of_freedom, coefficients, stands_out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError
from . import theme
from .lines import power
from .matplotlib_figures import Drawn, check_options, given_axes, set_log_ticks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

ESTIMATE_COLOUR, SITE_COLOUR = theme.METHODS["SCAFFLSA"], theme.OTHERS[1]
MAX_SCALE_RATIO = 30.0  # coefficients whose standard errors differ by more do not share a scale
MAX_NAMED = 40  # so many coefficients can still be named
WIDTH, HEADER = 7.0, 0.4  # of the figure and of its legend, in inches; a row of coefficients takes 0.17 to 0.3
PARTS_HEIGHT, SITES_HEIGHT = 1.5, 3.1  # of the axes in the right column with their labels
FIT_FIELDS = ("names", "theta", "standard_error", "confidence_interval", "error", "per_site")
SITES = (("influence", "influence", "o", theme.METHODS["FedLSA"]), ("noise", "noise", "^", theme.METHODS["Scaffnew"]),
         ("finite_data", "finite data", "s", ESTIMATE_COLOUR))  # fmt: skip


def coefficients(
    fit: Any, *, level: float = 0.95, legend: bool = True, ax: Axes | Sequence[Axes] | None = None
) -> Drawn:
    """Coefficients with intervals of `level`, the parts of the error, and what each site adds to them.

    ax : three Axes, or one for the coefficients alone

    Dots behind a coefficient are the sites' own solutions, a triangle at the edge those further out. Coefficients of
    very different sizes are each divided by their standard error.
    """
    check_options(level=level, legend=legend)
    missing = [name for name in FIT_FIELDS if not hasattr(fit, name)]
    if missing:
        raise ArgumentTypeError(f"fit must be what fl.fit returns; got {checks.show(fit)} without {', '.join(missing)}")
    about = f"coefficients of a fit to {len(fit.per_site)} sites with {100 * level:g}% intervals"
    if ax is not None:
        several = given_axes(ax, (1, 3))
        _draw_panels(several, fit, level, legend)
        return _finish(ax, several[0], legend, about)
    d = len(fit.names)
    height = max(3.7, 1.25 + d * (0.3 if d <= 12 else 0.17 if d <= MAX_NAMED else 6.8 / d))
    with theme.new_figure(WIDTH) as (width, _, em):
        figure = theme.matplotlib().figure.Figure(figsize=(width, em * height), layout="constrained")
        parts = [] if np.isnan([*fit.error.values()]).any() else [PARTS_HEIGHT]  # without a run there are none
        rest = height - HEADER - sum(parts) - SITES_HEIGHT  # a tall list of coefficients leaves room below the sites
        heights = [*parts, SITES_HEIGHT, rest] if rest > 0 else [*parts, height - HEADER - sum(parts)]
        left, right = figure.subfigures(1, 2, width_ratios=(3, 2))
        grid = right.add_gridspec(len(heights), 1, height_ratios=heights)
        main, *others = left.subplots(), *(right.add_subplot(grid[k]) for k in range(len(parts) + 1))
        _draw_panels([main, *others], fit, level, legend)
        return _finish(figure, main, legend, about)


def _finish(drawn: Drawn, axes: Axes, legend: bool, about: str) -> Drawn:
    """The legend, in axes that were given or above a figure of our own, and what is shown, for its file."""
    own = isinstance(drawn, theme.matplotlib().figure.Figure)
    (drawn if own else axes).set_label(about)
    if legend:
        above = {"loc": "outside upper left", "ncols": 3, "columnspacing": 1.3, "handletextpad": 0.4}
        drawn.legend(*axes.get_legend_handles_labels(), **above) if own else axes.legend()
    return drawn


def _arrows(axes: Axes, limits: tuple[float, float], beyond: Sequence[ArrayLike], colour: str, size: float) -> None:
    """A triangle at the left and at the right edge, in the rows of which something lies beyond it."""
    for edge, mark, rows in zip(limits, "<>", map(np.flatnonzero, beyond), strict=True):
        if len(rows):  # marks that are not there would still ask constrained layout for room
            axes.plot(np.full(len(rows), edge), rows, mark, linestyle="none", clip_on=False, color=colour,
                      markersize=size * theme.stroke(), markeredgewidth=0, zorder=5)  # fmt: skip


def _draw_panels(several: Sequence[Axes], fit: Any, level: float, legend: bool) -> None:
    _draw_coefficients(several[0], fit, level)
    if len(several) > 2:
        _draw_error_parts(several[1], fit.error)
    if len(several) > 1:
        _draw_sites(several[-1], fit.per_site, legend)


def _draw_coefficients(axes: Axes, fit: Any, level: float) -> None:
    d, larger = len(fit.names), theme.stroke()
    theta, deviation = np.asarray(fit.theta), np.asarray(fit.standard_error)
    known = deviation[deviation > 0]
    alike = not len(known) or known.max() <= MAX_SCALE_RATIO * known.min()
    unit: Floats = np.ones(d) if alike else np.where(deviation > 0, deviation, 1.0)
    interval = np.asarray(fit.confidence_interval(level)) / unit[:, None]
    sites = np.stack([s.theta for s in fit.per_site]) / unit  # (N, d), NaN where a site leaves it open
    low, high = _limits(interval, sites)
    row = np.arange(d)
    inside = (sites >= low) & (sites <= high)
    spread = 0.24 * np.linspace(-1, 1, len(sites))[:, None] * (len(sites) > 1)  # so that dots do not hide one another
    y = np.broadcast_to(row, sites.shape) + spread
    axes.plot(sites[inside], y[inside], "o", markersize=larger * (3.2 if len(sites) <= 20 else 2.2), alpha=0.65,
              color=SITE_COLOUR, markeredgewidth=0, zorder=2, label="site's own solution")  # fmt: skip
    _arrows(axes, (low, high), [(sites < low).any(axis=0), (sites > high).any(axis=0)], SITE_COLOUR, 4.5)
    thick = larger * (2.2 if d <= MAX_NAMED else 1.2)
    axes.hlines(row, *interval.T, color=ESTIMATE_COLOUR, linewidth=thick, zorder=4, label=f"{100 * level:g}% interval")
    axes.plot(
        theta / unit, row, "D", color=ESTIMATE_COLOUR,
        markersize=larger * (4.4 if d <= 12 else 3.4 if d <= MAX_NAMED else 2.2),
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
            right = axes.get_yaxis_transform()
            axes.text(1.015, j, text, transform=right, va="center", fontsize="small", color=theme.SOFT)
        axes.tick_params(axis="y", length=0)
    else:
        axes.set_ylabel("its number")
    axes.set_xlabel("coefficient" if alike else "coefficient / its standard error")


def _limits(interval: Floats, sites: Floats) -> tuple[float, float]:
    """All intervals, and the sites' solutions as far as they lie within one and a half times the intervals' range."""
    low, high = float(interval.min()), float(interval.max())
    known = sites[np.isfinite(sites)]
    if len(known):
        reach = 1.5 * max(high - low, 1e-300)
        low, high = min(low, max(float(known.min()), low - reach)), max(high, min(float(known.max()), high + reach))
    room = 0.04 * (high - low) or 0.5
    return low - room, high + room


def _draw_error_parts(axes: Axes, error: dict[str, float]) -> None:
    error = {name: value for name, value in error.items() if not np.isnan(value)}
    names, values = list(error), np.array(list(error.values()))
    row = np.arange(len(names))
    drawn = np.where(np.isfinite(values), values, 0.0)  # data without noise have no standard errors to count in
    colours = [ESTIMATE_COLOUR if n == "finite data" else SITE_COLOUR for n in names]
    axes.barh(row, drawn, height=0.62, color=colours, zorder=3)
    for j, v, end in zip(row, values, drawn, strict=True):
        axes.annotate(f"{v:.2g}", (end, j), xytext=(3, 0), textcoords="offset points", va="center", fontsize="small",
                      color=theme.SOFT)  # fmt: skip
    axes.set_yticks(row, names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1.28 * max(float(drawn.max(initial=0)), 1e-300))
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.grid(visible=False)
    axes.set_title("error / std. error", loc="left", pad=3)


def _draw_sites(axes: Axes, per_site: Any, legend: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    order = sorted(per_site, key=lambda s: -s.influence)
    place = np.arange(1, len(order) + 1)
    size = theme.stroke() * (4.0 if len(order) <= 20 else 2.6)
    known = [v for s in order for name, *_ in SITES if np.isfinite(v := getattr(s, name))]
    largest = max(known, default=0.0)
    for name, label, mark, colour in SITES:
        values = np.array([getattr(s, name) for s in order])
        if np.isfinite(values).all() and values.max(initial=0) > 1e-6 * largest:  # steps on means have no noise
            axes.plot(place, values, mark, color=colour, markersize=size, markeredgewidth=0, linestyle="none",
                      label=label)  # fmt: skip
    if largest > 0:
        axes.set_yscale("log")
        axes.margins(y=0.1)  # no mark lies on the edge
        set_log_ticks(axes.yaxis)
    axes.set_xlim(0.4, len(order) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlabel("sites, by influence")
    axes.grid(visible=False, axis="x")
    axes.set_title("site / std. error", loc="left", pad=1.7 * theme.text_size() * legend or None)
    if legend and axes.lines:
        axes.legend(loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=3, columnspacing=0.6, handletextpad=0.1,
                    borderaxespad=0, borderpad=0.2, handlelength=1.2)  # fmt: skip


def _short(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:12]}...{name[-13:]}"


OUTLIER_COLOUR = theme.METHODS["FedLSA"]
MAX_NAMED_SITES = 60  # sites that can still be named; of more only those that stand out are
WITH_NUMBERS = 25  # sites that have numbers beside them, on lines of 0.25 inches
SAYS_LITTLE = 4.0  # times the typical interval: what is so long may leave the axes, with an arrow
ORDERS = ("given", "estimate")


def forest(
    fit: Any,
    coefficient: str,
    *,
    level: float = 0.95,
    sort: str = "given",
    title: str | None = None,
    legend: bool = True,
    ax: Axes | None = None,
) -> Drawn:
    """Each site's own estimate of a coefficient with its interval of `level`, and the shared one: a forest plot.

    fit : what fl.fit returns for several sites, or its `heterogeneity()`
    coefficient : its name; sort : sites in the order "given", or by their "estimate"
    title : in place of the coefficient's name; ax : an Axes of your own

    Areas of squares are inverse variances, the weights in Cochran's Q. Sites that stand out, in all coefficients
    together, are orange. Up to 60 sites are named; of more, those that stand out. A site that leaves the coefficient
    open has no row, and is counted in the note.
    """
    check_options(level=level, title=title, legend=legend)
    found = fit.heterogeneity() if hasattr(fit, "heterogeneity") else fit
    if not hasattr(found, "stands_out"):
        raise ArgumentTypeError(f"fit must be what fl.fit returns, or its heterogeneity(); got {checks.show(fit)}")
    checks.choice("coefficient", coefficient, found.names)
    checks.choice("sort", sort, ORDERS)
    rows = ForestRows(found, coefficient, level, sort)
    about = f"{coefficient} at {len(rows.names)} sites with {100 * level:g}% intervals; {rows.note}"
    if ax is not None:
        (axes,) = given_axes(ax, (1,), title)
        _draw_forest(axes, rows, title)
        return _finish(ax, axes, legend, about)
    N = len(rows.names)
    each = 0.25 if N <= WITH_NUMBERS else 0.17 if N <= MAX_NAMED_SITES else 8.0 / N
    with theme.new_figure(WIDTH) as (width, _, em):
        figure = theme.matplotlib().figure.Figure(figsize=(width, em * (1.5 + each * (N + 1.5))), layout="constrained")
        axes = figure.subplots()
        _draw_forest(axes, rows, title)
        return _finish(figure, axes, legend, about)


class ForestRows:
    """The numbers of a forest plot: of the sites that determine the coefficient, and of all together."""

    def __init__(self, found: Any, coefficient: str, level: float, sort: str) -> None:
        from scipy.special import stdtrit

        j, test = found.names.index(coefficient), found.coefficients[coefficient]
        theta, error = found.theta[:, j], found.standard_error[:, j]
        chosen = np.flatnonzero(np.isfinite(theta) & (error > 0) & (found.degrees_of_freedom >= 1))
        if not len(chosen):
            rule = f"coefficient must be one that the rows of some site determine, with an error; got {coefficient!r}"
            raise ArgumentError(rule)
        if sort == "estimate":
            chosen = chosen[np.argsort(theta[chosen], kind="stable")]
        reach = stdtrit(found.degrees_of_freedom[chosen], 0.5 + level / 2) * error[chosen]
        self.coefficient, self.level = coefficient, level
        self.names = [found.sites[c] for c in chosen]
        self.theta, self.weight = theta[chosen], 1 / error[chosen] ** 2
        self.low, self.high = self.theta - reach, self.theta + reach
        self.outlier = np.array([name in found.stands_out for name in self.names])
        half = stdtrit(found.shared_degrees_of_freedom, 0.5 + level / 2) * np.sqrt(found.shared_covariance[j, j])
        self.shared = (found.shared[j] - half, found.shared[j], found.shared[j] + half)
        missing = len(found.sites) - len(chosen)
        self.note = test.line() + (f"; {missing} of {len(found.sites)} sites leave it open" if missing else "")


def _forest_limits(rows: ForestRows) -> tuple[float, float]:
    """All estimates, and most of their intervals, but of sites that say far less than most; the shared interval."""
    length = rows.high - rows.low
    typical = float(np.median(length))
    theta = rows.theta[length <= SAYS_LITTLE * typical]
    low, high = min(theta.min(), rows.shared[0]), max(theta.max(), rows.shared[2])
    low, high = min(low, max(rows.low.min(), low - typical)), max(high, min(rows.high.max(), high + typical))
    room = 0.03 * (high - low) or 0.5
    return float(low - room), float(high + room)


def _draw_forest(axes: Axes, rows: ForestRows, title: str | None) -> None:
    N, larger = len(rows.names), theme.stroke()
    low, high = _forest_limits(rows)
    row = np.arange(N)
    thick = larger * (1.3 if N <= MAX_NAMED_SITES else max(0.35, 40 / N))
    axes.axvline(rows.shared[1], color=ESTIMATE_COLOUR, linewidth=larger, linestyle=theme.DASHED, zorder=2)
    if low < 0 < high:
        axes.axvline(0, color=theme.SOFT, linewidth=0.8, zorder=1)
    low_end, high_end = np.clip((rows.low, rows.high), low, high)
    # in square points: the largest fills most of its line, none vanishes
    most = larger**2 * (90.0 if N <= WITH_NUMBERS else 40.0 if N <= MAX_NAMED_SITES else max(2.0, 2400 / N))
    area = np.maximum(most * rows.weight / rows.weight.max(), most / 9)
    groups = (theme.SOFT, ~rows.outlier, "site"), (OUTLIER_COLOUR, rows.outlier, "site that stands out")
    for colour, group, label in groups:
        if group.any():
            axes.hlines(row[group], low_end[group], high_end[group], color=colour, linewidth=thick, zorder=3)
            axes.scatter(rows.theta[group], row[group], marker="s", s=area[group], label=label, color=colour,
                         linewidths=0, zorder=5)  # fmt: skip
            if N <= MAX_NAMED_SITES:
                _arrows(axes, (low, high), [group & (rows.low < low), group & (rows.high > high)], colour, 3.7)
    line = max(1.0, N / MAX_NAMED_SITES)  # the height of a line of text, in rows
    foot = N - 1 + 1.4 * line
    diamond = [*rows.shared, rows.shared[1]], [foot, foot - 0.34 * line, foot, foot + 0.34 * line]
    axes.fill(*diamond, color=ESTIMATE_COLOUR, linewidth=0, zorder=6, label="shared estimate")
    axes.set_xlim(low, high)
    axes.set_ylim(foot + 0.7 * line, -0.8 * line)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    named = row.tolist() if N <= MAX_NAMED_SITES else _spaced(row[rows.outlier], line)
    axes.set_yticks([*named, foot], [*(_short(rows.names[i]) for i in named), "shared estimate"])
    for text, i in zip(axes.get_yticklabels(), [*named, N], strict=True):
        text.set_color(ESTIMATE_COLOUR if i == N else OUTLIER_COLOUR if rows.outlier[i] else theme.INK)
    if N <= WITH_NUMBERS:
        _write_numbers(axes, rows, foot)
    if N > MAX_NAMED_SITES:
        axes.set_ylabel(f"{N:,} sites")
    note = re.sub(r"\b\de-\d+", lambda small: power(float(small[0])), rows.note)
    words = f"{note}\nsquares: inverse variances; lines: {100 * rows.level:g}% intervals"
    axes.set_xlabel(words, color=theme.SOFT, fontsize="small", linespacing=1.5)
    axes.set_title(rows.coefficient if title is None else title, loc="left", fontweight="bold")


def _write_numbers(axes: Axes, rows: ForestRows, foot: float) -> None:
    """Estimates with their intervals, right of the axes, with as many decimals as their errors ask for."""
    digits = 1 - int(np.floor(np.log10(np.median(rows.high - rows.low))))
    form = f".{max(digits, 0)}f" if -3 <= digits <= 6 else ".3g"
    for i, (low, middle, high) in enumerate([*zip(rows.low, rows.theta, rows.high, strict=True), rows.shared]):
        last = i == len(rows.names)
        text = f"{middle:{form}} [{low:{form}}, {high:{form}}]".replace("-", "\u2212")
        axes.text(1.03, foot if last else i, text, transform=axes.get_yaxis_transform(), va="center_baseline",
                  fontsize="small", color=ESTIMATE_COLOUR if last else theme.SOFT)  # fmt: skip


def _spaced(places: Any, least: float) -> list[int]:
    """Places with room for a name between them."""
    out: list[int] = []
    for place in places.tolist():
        if not out or place - out[-1] >= least:
            out.append(place)
    return out
