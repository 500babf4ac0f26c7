"""The error in the long run against the number of agents: exact lines, simulated marks, and the slope of 1/N."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Floats
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 2.35, 2.1  # of a panel, in inches
RAMP = ("#440154", "#31688e", "#35a06b", "#d9a400")  # dark to light, in grey print too: from small to large
APART = 1.07  # marks of two methods at one N stand beside each other


@dataclass(frozen=True, eq=False)
class Line:
    """One method with one step size; infinite values are left out.

    rank : of the step size, for the colour; agents, mse : exact (K,); marks, mean, error : simulated (M,)
    alone : (L,) numbers of agents where a simulation would take too long, so that there is the exact value alone
    """

    label: str
    rank: int
    dashed: bool
    agents: Floats
    mse: Floats
    marks: Floats
    mean: Floats
    error: Floats
    alone: Floats


@dataclass(frozen=True, eq=False)
class SpeedPanel:
    """title : above it; guide : height of the 1/N line at N = 1; methods : drawn apart, or one line for both."""

    title: str
    lines: Sequence[Line]
    guide: float


def speed_up(rows: Sequence[Sequence[SpeedPanel]], *, note: str, title: str = "") -> Figure:
    """fig:show-speed-up: stationary error against agents; colour : step size; solid : SCAFFLSA, dashed : FedLSA."""
    matplotlib = style.matplotlib()
    high, wide = len(rows), max(map(len, rows))
    with matplotlib.rc_context({**style.RC, **style.PANELS_RC}):
        below = 0.52 + 0.14 * (1 + note.count("\n"))
        width, height = 0.75 + WIDTH * wide, 0.6 + below + HEIGHT * high
        figure = matplotlib.figure.Figure(figsize=(width, height))
        grid = figure.subplots(high, wide, squeeze=False, sharex=True, sharey=True)
        for i, row in enumerate(rows):
            for axes, panel in zip(grid[i], row, strict=True):
                _draw(axes, panel)
            grid[i, 0].set_ylabel("stationary MSE")
        for axes in grid[-1]:
            axes.set_xlabel("agents N")
        figure.subplots_adjust(
            left=0.62 / width,
            right=1 - 0.12 / width,
            top=1 - 0.72 / height,
            bottom=below / height,
            wspace=0.08,
            hspace=0.22,
        )
        lines = [line for row in rows for p in row for line in p.lines]
        for place, handles in zip((1.0, 1 - 0.22 / height), _handles(matplotlib, lines), strict=True):
            figure.legend(
                list(handles.values()),
                list(handles),
                loc="upper left",
                bbox_to_anchor=(0.5 / width, place),
                ncols=len(handles),
                columnspacing=1.6,
                handlelength=2.6,
            )
        figure.text(0.62 / width, 0.06 / height, note, fontsize=7, color=style.SOFT, va="bottom", linespacing=1.4)
        figure.set_label(title or note)
    return figure


def _draw(axes: Axes, panel: SpeedPanel) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log", nonpositive="mask")
    for line in panel.lines:
        hue = RAMP[line.rank]
        stable = np.isfinite(line.mse)
        look: dict[str, Any] = {"color": hue, "linestyle": style.DASHED, "linewidth": 1.3, "zorder": 4}
        if not line.dashed:  # wide and light, so that a dashed line on top of it is seen
            look = {"color": style.shade(hue, 2), "linestyle": "-", "linewidth": 2.8, "zorder": 3}
        axes.plot(line.agents[stable], line.mse[stable], **look)
        marker, shift = ("o", 1 / APART) if line.dashed else ("s", APART)
        seen = np.isfinite(line.mean)
        axes.errorbar(
            line.marks[seen] * shift,
            line.mean[seen],
            yerr=line.error[seen],
            color=hue,
            marker=marker,
            markersize=3.2,
            linestyle="none",
            elinewidth=0.9,
            markeredgecolor="white",
            markeredgewidth=0.4,
            zorder=6,
        )
        held = [float(line.mse[line.agents == n][0]) for n in line.alone]
        axes.plot(
            line.alone, held, marker="D", markersize=4, color=hue, mfc="white", mew=0.9, linestyle="none", zorder=5
        )
    ends = np.array([min(map(_first, panel.lines)), max(float(line.agents[-1]) for line in panel.lines)])
    if np.isfinite(panel.guide):
        axes.plot(ends, panel.guide / ends, color="black", linestyle=style.DASHES["dotted"][0], linewidth=1.1, zorder=2)
    axes.set_title(panel.title, fontsize=8, color=style.INK, pad=4)
    axes.minorticks_off()


def _first(line: Line) -> float:
    return float(line.agents[0])


def _handles(matplotlib: Any, lines: Sequence[Line]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The legend in two rows: step sizes by colour; methods by line and mark, and what is neither."""

    def mark(**look: Any) -> Any:
        return matplotlib.lines.Line2D([], [], **look)

    steps = {line.label: mark(color=RAMP[line.rank], linewidth=3) for line in lines}
    pale = style.shade(style.SOFT, 2)
    kinds = {
        "SCAFFLSA": mark(color=pale, linewidth=2.8, marker="s", ms=4, mfc=style.INK, mec="white"),
        "FedLSA": mark(color=style.INK, linestyle=style.DASHED, linewidth=1.3, marker="o", ms=4, mec="white"),
    }
    if any(len(line.alone) for line in lines):
        kinds["exact only"] = mark(color=style.INK, marker="D", markersize=4, mfc="white", linestyle="none")
    kinds["falls like 1/N"] = mark(color="black", linestyle=style.DASHES["dotted"][0], linewidth=1.1)
    return steps, kinds
