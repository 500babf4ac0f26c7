"""Many small error curves in one figure: rows and columns of panels, one legend, one scale per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Floats
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 1.95, 1.85  # of a panel, in inches
FAR = 30  # times below the smallest mean a level is not drawn
EXACT = "exact expectation"


@dataclass(frozen=True, eq=False)
class Series:
    """One line of a panel with its band: x, mean, low, high (R,); exact : (x, mse) of the expected curve on top."""

    label: str
    colour: str
    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    exact: tuple[Floats, Floats] | None = None


@dataclass(frozen=True, eq=False)
class Panel:
    """title : above it; levels : dashed lines by their label, or a word in a corner if far below all curves."""

    title: str
    series: Sequence[Series]
    levels: Mapping[str, float] = field(default_factory=dict)


def panel_grid(rows: Sequence[Sequence[Panel]], *, note: str, x: str = "communications", title: str = "") -> Figure:
    """A figure of panels; note : what lines, bands and dashes mean, under it."""
    matplotlib = style.matplotlib()
    high, wide = len(rows), max(map(len, rows))
    with matplotlib.rc_context({**style.RC, **style.PANELS_RC}):
        width, height = 0.75 + WIDTH * wide, 1.25 + HEIGHT * high
        figure = matplotlib.figure.Figure(figsize=(width, height))
        grid = figure.subplots(high, wide, squeeze=False, sharey="row")
        handles: dict[str, Any] = {}
        for i, row in enumerate(rows):
            for axes, panel in zip(grid[i], row, strict=True):
                _draw(axes, panel, handles)
            grid[i, 0].set_ylim(*_limits(row))
            grid[i, 0].set_ylabel("mean squared error")
        for axes in grid[-1]:
            axes.set_xlabel(x)
        figure.subplots_adjust(
            left=0.62 / width,
            right=1 - 0.12 / width,
            top=1 - 0.68 / height,
            bottom=0.86 / height,
            wspace=0.12,
            hspace=0.52,
        )
        order = sorted(handles, key=lambda label: label == EXACT)  # the thin line last
        figure.legend(
            [handles[label] for label in order],
            order,
            loc="upper left",
            bbox_to_anchor=(0.5 / width, 1.0),
            ncols=len(handles),
            columnspacing=1.4,
            handlelength=1.8,
        )
        figure.text(0.62 / width, 0.06 / height, note, fontsize=7, color=style.SOFT, va="bottom", linespacing=1.4)
        figure.set_label(title or note)
    return figure


def _draw(axes: Axes, panel: Panel, handles: dict[str, Any]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_yscale("log", nonpositive="mask")
    widths = np.linspace(2.6, 1.0, max(len(panel.series), 2))  # where lines coincide, all are seen
    for s, width in zip(panel.series, widths, strict=False):
        axes.fill_between(s.x, s.low, s.high, color=s.colour, alpha=0.22, linewidth=0, zorder=2)
        (line,) = axes.plot(s.x, s.mean, color=s.colour, linewidth=width, zorder=3)
        handles.setdefault(s.label, line)
        if s.exact is not None:
            (line,) = axes.plot(*s.exact, color=style.INK, linewidth=0.6, zorder=5)
            handles.setdefault(EXACT, line)
    shown = near(panel)
    for label, level in panel.levels.items():
        if level > 0 and label not in shown:
            word = f"{label.partition(' of ')[0].removeprefix('predicted ')} = {power(level)}"
            paper = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 1.0}
            axes.text(0.04, 0.04, word, transform=axes.transAxes, fontsize=6.5, va="bottom", zorder=6, bbox=paper)
        elif level > 0:
            line = axes.axhline(level, color=style.INK, linestyle=style.DASHED, linewidth=1.1, zorder=4)
            handles.setdefault(label, line)
    axes.set_title(panel.title, fontsize=8, color=style.INK, pad=4)
    end = max(float(s.x[-1]) for s in panel.series)
    axes.set_xlim(0, end)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}".replace(",", "\u2009")))


def near(panel: Panel) -> dict[str, float]:
    """The levels that are drawn: those not far below every curve."""
    curves = np.concatenate([s.mean for s in panel.series])
    curves = curves[np.isfinite(curves) & (curves > 0)]
    lowest = float(curves.min()) if len(curves) else 0.0
    return {label: level for label, level in panel.levels.items() if level > lowest / FAR}


def power(value: float) -> str:
    """A small number in print: 6 × 10⁻¹⁴."""
    digits, _, exponent = f"{value:.0e}".partition("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "\u207b⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digits}\u2009·\u200910{raised}"


def _limits(row: Sequence[Panel]) -> tuple[float, float]:
    """One scale for a row: every mean, exact curve and level, and bands as far as they stay near them."""
    firm = [v for p in row for s in p.series for v in (s.mean, s.exact[1] if s.exact is not None else s.mean)]
    values = np.concatenate([*firm, np.array([v for p in row for v in near(p).values()], dtype=float)])
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return 0.1, 10.0
    bands = np.concatenate([v for p in row for s in p.series for v in (s.low, s.high)])
    bands = bands[np.isfinite(bands) & (bands > values.min() / 4) & (bands < values.max() * 4)]
    shown = np.concatenate([values, bands])
    room = max((shown.max() / shown.min()) ** 0.05, 1.05)
    ends = [float(s.mean[-1]) for p in row for s in p.series if np.isfinite(s.mean[-1])]  # where a line ends is seen
    top = max(1e3 * float(np.median(values)), 1.5 * max(ends, default=0.0))
    return float(shown.min() / room), float(min(shown.max(), top) * room)
