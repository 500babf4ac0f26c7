"""Charts as matplotlib figures, and figures on disk.

A figure has a strip above its axes for title, heading and legend, and one below for notes; both are as high as their
text, and constrained layout gives the axes what is left between them. Files are written whole or not at all, with the
same bytes for the same figure, and with how it was made.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..files import replacing
from . import theme
from .drawing_checks import checked
from .lines import OUT_OF_SIGHT, Chart, Line, error_limits, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

EDGE = 0.1  # inches around text
TITLE, HEADING, ENTRY, NOTE = 0.27, 0.2, 0.19, 0.146  # heights of a line of each, in inches
LETTERS = 17.5  # of a note in an inch
SUFFIXES = (".png", ".pdf", ".svg")


def draw_charts(
    rows: Sequence[Sequence[Chart]],
    *,
    title: str | None = None,
    heading: str = "",
    notes: Sequence[str] = (),
    panel: tuple[float, float] = (7.0, 3.5),
    share: str = "row",
    legend: str = "above",
    description: str = "",
) -> Figure:
    """Rows of charts as one figure.

    heading : what all of it shares; notes : what lines, bands and dashes mean, under it
    panel : width and height of a chart with its labels, in inches; share : "row", "all" or "none", for one vertical
    axis per row, in all, or per chart; legend : "above" the charts or "right" of the only one
    description : how it was made, which `save` writes into the file
    """
    matplotlib = theme.matplotlib()
    high, wide = len(rows), max(map(len, rows))
    width = wide * panel[0]
    lines = [line for row in rows for chart in row for line in chart.lines]
    with matplotlib.rc_context({**theme.RC, **(theme.PANELS_RC if high * wide > 2 else {})}):
        entries = _legend_entries(lines)
        columns = _legend_columns(list(entries), width - 2 * EDGE)
        said = [part for note in notes for part in textwrap.wrap(note, int(LETTERS * (width - 2 * EDGE)))]
        above = EDGE + TITLE * bool(title) + HEADING * bool(heading)
        below = EDGE + NOTE * len(said)
        legend_top, above = above, above + (ENTRY * -(-len(entries) // columns) if legend == "above" else 0)
        left, height = EDGE / width, above + high * panel[1] + below
        figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
        figure.get_layout_engine().set(rect=(left / 2, below / height, 1 - left, 1 - (above + below) / height))
        grid = figure.subplots(high, wide, squeeze=False, sharey=share)
        for i, row in enumerate(rows):
            group = {"row": row, "all": [chart for each in rows for chart in each], "none": None}[share]
            for j, (axes, chart) in enumerate(zip(grid[i], row, strict=True)):
                _draw_chart(axes, chart, error_limits(group or [chart]), panel[0])
                axes.set_xlabel(chart.x if i == high - 1 else "")
                axes.set_ylabel(chart.y if j == 0 or share == "none" else "")
        if title:
            figure.text(left, 1 - EDGE / height, title, fontsize=11.5, fontweight="bold", va="top")
        y = 1 - (EDGE + TITLE * bool(title)) / height
        figure.text(left, y, heading, fontsize=8.5, color=theme.SOFT, va="top")
        figure.text(left, EDGE / 2 / height, "\n".join(said), fontsize=7.5, color=theme.SOFT, va="bottom",
                    linespacing=1.4)  # fmt: skip
        if legend == "right":
            order = sorted(entries, key=lambda label: -_end(lines, label, rows[0][0].ceiling))  # as the lines end
            grid[0, 0].legend([entries[label] for label in order], order, loc="upper left", bbox_to_anchor=(1.01, 1.02))
        elif entries:
            figure.legend(list(entries.values()), list(entries), loc="upper left", ncols=columns, borderaxespad=0,
                          borderpad=0.1, columnspacing=1.5, handlelength=2.4,
                          bbox_to_anchor=(left, 1 - legend_top / height))  # fmt: skip
        figure.set_label(description or "\n".join(notes))
    return figure


def _legend_entries(lines: Sequence[Line]) -> dict[str, Any]:
    """A handle for each label; grey where lines of one label differ in colour. What lies on top of lines comes last."""
    matplotlib = theme.matplotlib()
    colours: dict[str, set[str]] = {}
    for line in lines:
        colours.setdefault(line.label, set()).add(line.colour)
    entries: dict[str, Any] = {}
    for line in sorted(lines, key=lambda line: line.role in ("expectation", "guide")):
        if line.label and line.label not in entries:
            colour = line.colour if len(colours[line.label]) == 1 else theme.SOFT
            if line.role == "tint":
                entries[line.label] = matplotlib.patches.Patch(color=colour, alpha=0.2, linewidth=0)
            else:
                entries[line.label] = matplotlib.lines.Line2D([], [], **_look(line, colour))
    return entries


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """As many as fit: a handle and its spaces take 0.55 inches, a letter 0.062."""
    needs = [0.55 + 0.062 * len(label) for label in labels]
    for columns in range(len(labels), 1, -1):
        if sum(float(part.max()) for part in np.array_split(needs, columns)) <= width:
            return columns
    return 1


def _end(lines: Sequence[Line], label: str, ceiling: float) -> float:
    """The height at which the line of this label ends: at the top if it has left the figure."""
    y = next(line.y for line in lines if line.label == label)
    return float(y[-1]) if len(y) and y[-1] <= ceiling else ceiling


def _look(line: Line, colour: str) -> dict[str, Any]:
    look = line.look
    marker = theme.MARKERS[look.marker][0] if look.marker else ""
    fill = {"markerfacecolor": "white"} if look.hollow else {}
    return {
        "color": colour, "linestyle": theme.DASHES[look.dash][0], "linewidth": look.width, "alpha": look.opacity,
        "marker": marker, "markersize": look.size, "markeredgewidth": 1.5 if marker == "x" else 1.0, **fill,
        "zorder": look.layer, "clip_on": line.role != "samples", "in_layout": False,
        "drawstyle": "steps-post" if line.steps else "default",
    }  # fmt: skip


def draw_line(axes: Axes, line: Line, ceiling: float = np.inf) -> None:
    """A line with its band and error bars."""
    top = OUT_OF_SIGHT * ceiling
    if line.band is not None:
        low, high = (np.minimum(edge, top) for edge in line.band)
        axes.fill_between(line.x, low, high, color=line.colour, alpha=0.2, linewidth=0, zorder=2)
    y = np.minimum(line.y, top)
    if line.role != "tint" and len(line.x):  # without points there is only its entry in the legend
        axes.plot(line.x, y, label=line.label or None, **_look(line, line.colour))
    if line.deviation is not None:
        axes.errorbar(line.x, y, yerr=line.deviation, color=line.colour, linestyle="none", elinewidth=0.9, zorder=5)


def _draw_chart(axes: Axes, chart: Chart, limits: tuple[float, float], width: float) -> None:
    axes.set_yscale(chart.y_scale, **({"nonpositive": "mask"} if chart.y_scale == "log" else {}))
    for line in chart.lines:
        draw_line(axes, line, chart.ceiling)
    axes.set_ylim(*(chart.limits or limits))
    if chart.y_scale == "log":
        set_log_ticks(axes.yaxis)
    _scale_costs(axes, chart, width)
    axes.set_title(
        chart.title,
        fontsize=theme.matplotlib().rcParams["axes.labelsize"],
        loc="left",
        color=chart.title_colour or theme.INK,
        fontweight="bold" if chart.title_colour else "normal",
    )
    if chart.corner:
        paper = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 1.0}
        axes.text(0.04, 0.04, chart.corner, transform=axes.transAxes, fontsize=6.5, va="bottom", zorder=7, bbox=paper)


def _scale_costs(axes: Axes, chart: Chart, width: float) -> None:
    """The axis of costs: linear, logarithmic, or logarithmic after the first cost where costs start at 0."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

    start, end = chart.span
    marked = any(line.look.marker and line.role in ("marks", "joined") for line in chart.lines)
    axes.set_xlim(start, end if end > start else start + 1)
    if chart.x_scale == "log" and start > 0:
        axes.set_xscale("log")
        room = (end / start) ** 0.04 if marked else 1.0
        axes.set_xlim(start / room, end * room if end > start else 10 * start)
        set_log_ticks(axes.xaxis)
        return
    if chart.x_scale == "log":
        x = np.concatenate([line.x for line in chart.lines])
        first = float(x[x > 0].min(initial=max(end, 1.0)))
        axes.set_xscale("symlog", linthresh=first, linscale=0.35)
        decades = 10.0 ** np.arange(np.ceil(np.log10(first)), np.log10(max(end, first)) - 0.25)
        axes.set_xticks([start, *decades, end])
        axes.set_xticks([d * k for d in decades for k in range(2, 10) if d * k < end], minor=True)
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        whole = all((line.x == np.rint(line.x)).all() for line in chart.lines)
        axes.xaxis.set_major_locator(MaxNLocator(max(3, int(1.2 * width)), steps=(1, 2, 2.5, 5, 10), integer=whole))
        if marked:
            axes.set_xlim(start - 0.6, end + 0.6)
        if chart.x_ticks is not None:
            axes.set_xticks(chart.x_ticks)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))


def set_log_ticks(axis: Axis) -> None:
    """Powers of ten, or plain numbers between them where the axis spans less than two."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    if high < 100 * low:
        between = (1.0, 2.0, 5.0) if high > 8 * low else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
        axis.set_major_locator(LogLocator(subs=between) if high > 3 * low else MaxNLocator(5))
        axis.set_minor_locator(NullLocator())
    if high < 100 * low or (low >= 0.1 and high < 1e5):
        axis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))


def checked_path(path: str | os.PathLike[str]) -> Path:
    """A path with a suffix that `save` knows."""
    target = checks.path("path", path)
    checks.choice(f"the suffix of {str(target)!r}", target.suffix.lower(), SUFFIXES)
    return target


@checked
def save(figure: Figure, path: str | os.PathLike[str], *, command: str | None = None) -> None:
    """Write a figure as PNG, PDF or SVG, by the suffix of `path`.

    The file's metadata holds the figure's description (results, problem, seeds, versions) and `command`, what a reader
    types to draw it again; there is no date, so equal figures give equal bytes.
    """
    matplotlib = theme.matplotlib()
    checks.instance("figure", figure, matplotlib.figure.Figure, "a matplotlib figure")
    target = checked_path(path)
    kind = target.suffix.lower()[1:]
    with replacing(target, "the figure") as part, matplotlib.rc_context(theme.RC):
        figure.savefig(part, format=kind, metadata=_metadata(kind, str(figure.get_label()), command))


def _metadata(kind: str, description: str, command: str | None) -> dict[str, str | None]:
    """Who made it, from what, by which command, under the names of the format; a date that is None is left out."""
    names = {"pdf": ("Creator", "Subject", "Keywords"), "svg": ("Creator", "Description", "Source")}
    maker, about, source = names.get(kind, ("Software", "Description", "Source"))
    entries = {maker: f"fedlsa {version('fedlsa')}", about: description, source: command}
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    return {**{name: text for name, text in entries.items() if text}, **dates.get(kind, {})}
