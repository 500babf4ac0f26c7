"""One coefficient at every site: the forest plot of meta-analyses, with the shared estimate as a diamond below.

What is drawn is of a room further right, so that only these fields of it are read: names, sites, theta, standard_error,
degrees_of_freedom, shared, shared_covariance, shared_degrees_of_freedom, coefficients, stands_out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, ArgumentTypeError
from . import theme
from .drawing_checks import checked
from .lines import power
from .matplotlib_figures import Drawn, given_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SITE_COLOUR, SHARED_COLOUR, OUTLIER_COLOUR = theme.SOFT, theme.METHODS["SCAFFLSA"], theme.METHODS["FedLSA"]
WIDTH = 7.0  # of the figure, in inches
MAX_NAMED = 60  # sites that can still be named; of more only those that stand out are
WITH_NUMBERS = 25  # sites that have numbers beside them, on lines of 0.25 inches
SAYS_LITTLE = 4.0  # times the typical interval: what is so long may leave the axes, with an arrow
ORDERS = ("given", "estimate")


@checked
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
    found = fit.heterogeneity() if hasattr(fit, "heterogeneity") else fit
    if not hasattr(found, "stands_out"):
        raise ArgumentTypeError(f"fit must be what fl.fit returns, or its heterogeneity(); got {checks.show(fit)}")
    checks.choice("coefficient", coefficient, found.names)
    checks.choice("sort", sort, ORDERS)
    rows = ForestRows(found, coefficient, level, sort)
    about = f"{coefficient} at {len(rows.names)} sites with {100 * level:g}% intervals; {rows.note}"
    if ax is not None:
        (axes,) = given_axes(ax, (1,), title)
        _draw(axes, rows, title)
        axes.set_label(about)
        if legend:
            axes.legend()
        return ax
    N = len(rows.names)
    each = 0.25 if N <= WITH_NUMBERS else 0.17 if N <= MAX_NAMED else 8.0 / N
    with theme.own_figure(WIDTH) as (width, _, em):
        figure = theme.matplotlib().figure.Figure(figsize=(width, em * (1.5 + each * (N + 1.5))), layout="constrained")
        axes = figure.subplots()
        _draw(axes, rows, title)
        if legend:
            figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3, columnspacing=1.3,
                          handletextpad=0.4)  # fmt: skip
        figure.set_label(about)
    return figure


class ForestRows:
    """The numbers of a forest plot: of the sites that determine the coefficient, and of all together."""

    def __init__(self, found: Any, coefficient: str, level: float, sort: str) -> None:
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
        self.apart = np.array([name in found.stands_out for name in self.names])
        half = stdtrit(found.shared_degrees_of_freedom, 0.5 + level / 2) * np.sqrt(found.shared_covariance[j, j])
        self.shared = (found.shared[j] - half, found.shared[j], found.shared[j] + half)
        missing = len(found.sites) - len(chosen)
        self.note = test.line() + (f"; {missing} of {len(found.sites)} sites leave it open" if missing else "")


def _limits(rows: ForestRows) -> tuple[float, float]:
    """All estimates, and most of their intervals, but of sites that say far less than most; the shared interval."""
    length = rows.high - rows.low
    typical = float(np.median(length))
    theta = rows.theta[length <= SAYS_LITTLE * typical]
    low, high = min(theta.min(), rows.shared[0]), max(theta.max(), rows.shared[2])
    low, high = min(low, max(rows.low.min(), low - typical)), max(high, min(rows.high.max(), high + typical))
    room = 0.03 * (high - low) or 0.5
    return float(low - room), float(high + room)


def _draw(axes: Axes, rows: ForestRows, title: str | None) -> None:
    N, larger = len(rows.names), theme.stroke()
    low, high = _limits(rows)
    row = np.arange(N)
    thick = larger * (1.3 if N <= MAX_NAMED else max(0.35, 40 / N))
    axes.axvline(rows.shared[1], color=SHARED_COLOUR, linewidth=larger, linestyle=theme.DASHED, zorder=2)
    if low < 0 < high:
        axes.axvline(0, color=theme.SOFT, linewidth=0.8, zorder=1)
    low_end, high_end = np.clip((rows.low, rows.high), low, high)
    area = _areas(rows.weight, N, larger)
    for colour, group, label in (
        (SITE_COLOUR, ~rows.apart, "site"),
        (OUTLIER_COLOUR, rows.apart, "site that stands out"),
    ):
        if not group.any():
            continue
        axes.hlines(row[group], low_end[group], high_end[group], color=colour, linewidth=thick, zorder=3)
        look: dict[str, Any] = {"color": colour, "linewidths": 0, "zorder": 5}
        axes.scatter(rows.theta[group], row[group], marker="s", s=area[group], label=label, **look)
        for edge, mark, beyond in ((low, "<", group & (rows.low < low)), (high, ">", group & (rows.high > high))):
            if N <= MAX_NAMED and beyond.any():  # marks that are not there would still ask constrained layout for room
                size = 14 * larger**2
                axes.scatter(np.full(beyond.sum(), edge), row[beyond], marker=mark, s=size, clip_on=False, **look)
    line = max(1.0, N / MAX_NAMED)  # the height of a line of text, in rows
    foot = N - 1 + 1.4 * line
    _diamond(axes, rows.shared, foot, 0.34 * line)
    axes.set_xlim(low, high)
    axes.set_ylim(foot + 0.7 * line, -0.8 * line)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    named = row.tolist() if N <= MAX_NAMED else _spaced(row[rows.apart], line)
    axes.set_yticks([*named, foot], [*(_short(rows.names[i]) for i in named), "shared estimate"])
    for text, i in zip(axes.get_yticklabels(), [*named, N], strict=True):
        text.set_color(SHARED_COLOUR if i == N else OUTLIER_COLOUR if rows.apart[i] else theme.INK)
    if N <= WITH_NUMBERS:
        _numbers(axes, rows, foot)
    if N > MAX_NAMED:
        axes.set_ylabel(f"{N:,} sites")
    note = re.sub(r"\b\de-\d+", lambda small: power(float(small[0])), rows.note)
    words = f"{note}\nsquares: inverse variances; lines: {100 * rows.level:g}% intervals"
    axes.set_xlabel(words, color=theme.SOFT, fontsize="small", linespacing=1.5)
    axes.set_title(rows.coefficient if title is None else title, loc="left", fontweight="bold")


def _areas(weight: Floats, N: int, larger: float) -> Floats:
    """In square points: the largest fills most of its line, none vanishes."""
    most = larger**2 * (90.0 if N <= WITH_NUMBERS else 40.0 if N <= MAX_NAMED else max(2.0, 2400 / N))
    return np.asarray(np.maximum(most * weight / weight.max(), most / 9))


def _diamond(axes: Axes, interval: tuple[float, float, float], y: float, half: float) -> None:
    """From one end of the shared interval to the other."""
    low, middle, high = interval
    axes.fill([low, middle, high, middle], [y, y - half, y, y + half], color=SHARED_COLOUR, linewidth=0, zorder=6,
              label="shared estimate")  # fmt: skip


def _numbers(axes: Axes, rows: ForestRows, foot: float) -> None:
    """Estimates with their intervals, right of the axes, with as many decimals as their errors ask for."""
    digits = 1 - int(np.floor(np.log10(np.median(rows.high - rows.low))))
    form = f".{max(digits, 0)}f" if -3 <= digits <= 6 else ".3g"
    for i, (low, middle, high) in enumerate([*zip(rows.low, rows.theta, rows.high, strict=True), rows.shared]):
        last = i == len(rows.names)
        text = f"{middle:{form}} [{low:{form}}, {high:{form}}]".replace("-", "\u2212")
        axes.text(1.03, foot if last else i, text, transform=axes.get_yaxis_transform(), va="center_baseline",
                  fontsize="small", color=SHARED_COLOUR if last else theme.SOFT)  # fmt: skip


def _spaced(places: Any, least: float) -> list[int]:
    """Places with room for a name between them."""
    out: list[int] = []
    for place in places.tolist():
        if not out or place - out[-1] >= least:
            out.append(place)
    return out


def _short(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:12]}...{name[-13:]}"
