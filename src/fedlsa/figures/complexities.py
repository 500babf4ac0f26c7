"""What an accuracy costs, measured: marks on logarithmic axes, with fitted laws and guides, panels in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..checks import Floats
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 3.1, 2.75  # of a panel, in inches
GUIDE = (0, (1, 1.5))
Curve = tuple[Floats, Floats]  # x and y


@dataclass(frozen=True, eq=False)
class Marks:
    """Measured values x, y (n,), with a band from low to high; law : the curve of what was fitted to them."""

    label: str
    colour: str
    x: Floats
    y: Floats
    marker: str = "o"
    band: tuple[Floats, Floats] | None = None
    law: Curve | None = None
    joined: bool = False


@dataclass(frozen=True, eq=False)
class CostPanel:
    """guides : dotted lines by what is written beside them; levels : dashed ones, by their label in the legend."""

    title: str
    x: str
    y: str
    marks: Sequence[Marks]
    guides: Mapping[str, Curve] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)


def marks_of(method: str, x: Floats, y: Floats, **more: Any) -> Marks:
    """Marks in the colour and shape of a method."""
    return Marks(method, style.METHODS[method], x, y, style.MARKERS[style.METHOD_MARKERS[method]][0], **more)


def cost_panels(panels: Sequence[CostPanel], *, note: str, width: float = WIDTH, legend: int = 1) -> Figure:
    """Panels in a row, one legend above them; note : what marks, lines and bands mean, under them.

    width : of a panel, in inches; legend : its rows
    """
    matplotlib = style.matplotlib()
    wide = len(panels)
    lines = note.count("\n") + 1
    with matplotlib.rc_context(style.RC):
        gap, foot = 0.72, 0.66 + 0.155 * lines
        head = 0.22 + 0.2 * legend + (0.25 if any(p.title for p in panels) else 0.0)
        across, height = 0.25 + (width + gap) * wide, HEIGHT + head + foot
        figure = matplotlib.figure.Figure(figsize=(across, height))
        handles: dict[str, Any] = {}
        for i, panel in enumerate(panels):
            place = ((0.1 + gap + i * (width + gap)) / across, foot / height, width / across, HEIGHT / height)
            axes = figure.add_axes(place)
            _draw(axes, panel, handles)
        left = (0.1 + gap) / across
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="upper left",
            bbox_to_anchor=(left - 0.08 / across, 1 - 0.04 / height),
            ncols=-(-len(handles) // legend),
            columnspacing=1.4,
            handlelength=1.8,
            borderaxespad=0,
        )
        figure.text(left, 0.08 / height, note, fontsize=7.5, color=style.SOFT, va="bottom", linespacing=1.4)
        figure.set_label(note)
    return figure


def _draw(axes: Axes, panel: CostPanel, handles: dict[str, Any]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for i, m in enumerate(panel.marks):
        if m.band is not None:
            axes.fill_between(m.x, *m.band, color=m.colour, alpha=0.2, linewidth=0, zorder=2)
        if m.law is not None:
            axes.plot(*m.law, color=m.colour, linewidth=1.2, zorder=3)
        (line,) = axes.plot(
            m.x,
            m.y,
            color=m.colour,
            marker=m.marker,
            markersize=6 - 0.5 * i,  # marks that coincide are all seen
            linestyle="-" if m.joined else "none",
            linewidth=1.2,
            zorder=4 + i,
        )
        handles.setdefault(m.label, line)
    for text, (x, y) in panel.guides.items():
        axes.plot(x, y, color=style.SOFT, linestyle=GUIDE, linewidth=1.2, zorder=2)
        middle, up = len(x) // 2, y[-1] >= y[0]
        axes.annotate(
            text,
            (x[middle], y[middle]),
            (-4, 2 if up else -4),
            textcoords="offset points",
            fontsize=8,
            color=style.SOFT,
            ha="right",
            va="bottom" if up else "top",
        )
    for text, level in panel.levels.items():
        line = axes.axhline(level, color=style.INK, linestyle=style.DASHED, linewidth=1.1, zorder=3)
        handles.setdefault(text, line)
    axes.set_title(panel.title, fontsize=9.5, loc="left", color=style.INK, pad=6)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
