"""Value errors of agents as dots: one column per agent, one mark per parameter."""

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

SHARED, LOCAL, VIRTUAL = style.INK, style.OTHERS[1], style.OTHERS[0]


@dataclass(frozen=True, eq=False)
class Dots:
    """Relative value errors of one panel, each (N,); abroad : of the local solutions over all worlds."""

    title: str
    shared: Floats
    local: Floats
    virtual: Floats
    abroad: Floats
    least: Floats


def dots(panels: Sequence[Dots], *, note: str) -> Figure:
    """A row of panels; note : what marks and lines mean, under it."""
    matplotlib = style.matplotlib()
    width, height = 7.6, 3.7
    with matplotlib.rc_context({**style.RC, "font.size": 8.5}):
        figure = matplotlib.figure.Figure(figsize=(width, height))
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, panel in zip(grid, panels, strict=True):
            _draw(axes, panel)
        grid[0].set_ylabel("value error / size of the values")
        top = max(float(v.max()) for p in panels for v in (p.shared, p.local, p.virtual, p.abroad))
        top, low = 1.05 * max(top, 1.0), min(float(p.least.min()) for p in panels)
        grid[0].set_ylim(0.97 * low if low > 0.5 else -0.04 * top, top)
        figure.subplots_adjust(
            left=0.6 / width, right=1 - 0.1 / width, top=1 - 0.68 / height, bottom=0.98 / height, wspace=0.07
        )
        figure.legend(
            *grid[0].get_legend_handles_labels(),
            loc="upper left",
            bbox_to_anchor=(0.5 / width, 1.0),
            ncols=5,
            columnspacing=1.1,
            fontsize=8,
            handletextpad=0.4,
        )
        figure.text(0.6 / width, 0.06 / height, note, fontsize=7, color=style.SOFT, va="bottom", linespacing=1.4)
        figure.set_label(note)
    return figure


def _draw(axes: Axes, p: Dots) -> None:
    agent = np.arange(1, len(p.shared) + 1)
    hollow: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 1.1}
    axes.axhline(1.0, color=style.SOFT, linestyle=(0, (1, 1.6)), linewidth=1.0, zorder=1)
    axes.hlines(p.least, agent - 0.36, agent + 0.36, color=style.SOFT, linewidth=1.2, zorder=2, label="least possible")
    marks: tuple[tuple[str, Floats, str, str, dict[str, Any], float], ...] = (
        ("θ*, shared", p.shared, "s", SHARED, hollow, -0.27),
        ("own solution, at home", p.local, "o", LOCAL, {}, -0.09),
        ("own solution, all worlds", p.abroad, "x", LOCAL, {"markeredgewidth": 1.2}, 0.09),
        ("virtual MDP", p.virtual, "^", VIRTUAL, hollow, 0.27),
    )
    for label, value, mark, hue, look, shift in marks:
        axes.plot(
            agent + shift, value, mark, color=hue, markersize=4.2, linestyle="none", label=label, zorder=4, **look
        )
    axes.set_title(p.title, fontsize=8.5, color=style.INK, pad=4)
    axes.set_xlabel("agent")
    axes.set_xticks(agent)
    axes.grid(visible=False, axis="x")
