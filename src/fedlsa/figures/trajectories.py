"""Error against two costs on logarithmic axes: communications, and the observations that they took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Floats
from . import style
from .panels import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 1.95, 1.8  # of a panel, in inches


@dataclass(frozen=True, eq=False)
class Costs:
    """One panel; cost : what its axis counts; exact : (x, mse) of the expected curve on top."""

    title: str
    cost: str
    lines: Sequence[Series]
    exact: tuple[Floats, Floats]


def costs_grid(rows: Sequence[Sequence[Costs]], *, note: str) -> Figure:
    """Rows of panels that share their vertical scale; note : what lines and bands mean, under it."""
    matplotlib = style.matplotlib()
    high, wide = len(rows), max(map(len, rows))
    with matplotlib.rc_context({**style.RC, **style.PANELS_RC}):
        width, height = 0.75 + WIDTH * wide, 1.4 + HEIGHT * high
        figure = matplotlib.figure.Figure(figsize=(width, height))
        grid = figure.subplots(high, wide, squeeze=False, sharey="row", sharex="col")
        handles: dict[str, Any] = {}
        for i, row in enumerate(rows):
            for axes, panel in zip(grid[i], row, strict=True):
                _draw(axes, panel, handles)
                axes.tick_params(labelbottom=True)
            grid[i, 0].set_ylabel("mean squared error")
        for axes, panel in zip(grid[-1], rows[-1], strict=True):
            axes.set_xlabel(panel.cost)
        figure.subplots_adjust(
            left=0.62 / width,
            right=1 - 0.15 / width,
            top=1 - 0.58 / height,
            bottom=0.98 / height,
            wspace=0.12,
            hspace=0.42,
        )
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="upper left",
            bbox_to_anchor=(0.5 / width, 1.0),
            ncols=len(handles),
            columnspacing=1.4,
            handlelength=1.8,
        )
        figure.text(0.62 / width, 0.06 / height, note, fontsize=7, color=style.SOFT, va="bottom", linespacing=1.4)
        figure.set_label(note)
    return figure


def _draw(axes: Axes, panel: Costs, handles: dict[str, Any]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log", nonpositive="mask")
    for line in panel.lines:
        axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.2, linewidth=0, zorder=2)
        (drawn,) = axes.plot(line.x, line.mean, color=line.colour, zorder=3)
        handles.setdefault(line.label, drawn)
    (drawn,) = axes.plot(*panel.exact, color=style.INK, linewidth=0.6, zorder=5)
    handles.setdefault("exact, i.i.d.", drawn)
    ends = [float(v) for line in panel.lines for v in (line.x[0], line.x[-1])]
    axes.set_xlim(min(ends), max(ends))
    decades = np.arange(np.ceil(np.log10(min(ends))), np.floor(np.log10(max(ends))) + 1)
    axes.set_xticks(10.0 ** decades[:: 1 + len(decades) // 6])
    axes.minorticks_off()
    axes.set_title(panel.title, fontsize=8, color=style.INK, pad=4)
