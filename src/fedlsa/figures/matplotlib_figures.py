"""Charts as matplotlib figures, and figures on disk.

A figure has a strip above its axes for title, heading and legend, and one below for notes; both are as high as their
text, and constrained layout gives the axes what is left between them. Files are written whole or not at all, with how
the figure was made. At the end: the checks of arguments that drawing functions share.
"""

from __future__ import annotations

import io
import math
import os
import re
import textwrap
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks, files
from ..errors import ArgumentError, ArgumentTypeError
from ..results.recipe import require_result
from ..results.sweeps import separate
from . import theme
from .lines import OUT_OF_SIGHT, SCALES, Chart, ChartRows, Line, error_limits, number

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Drawn = Any  # a Figure, or the Axes that were given
EDGE = 0.1  # inches around text
TITLE, HEADING, ENTRY, NOTE = 0.27, 0.2, 0.19, 0.156  # heights of a line of each, in inches
LETTERS = 16.4  # of a note in an inch
TICKS = 1.65  # on an inch of an axis of costs
SUFFIXES = (".png", ".pdf", ".svg")
BANDS = ("tint", "part")  # roles of lines of which only the band is drawn


def draw_charts(
    charts: ChartRows,
    *,
    title: str | None = None,
    heading: str = "",
    legend: str = "above",
    description: str = "",
    ax: Any = None,
) -> Drawn:
    """Charts as one figure, or in `ax`, as many axes as there are charts.

    heading : what all of it shares; legend : "above" the charts, "right" of the only one, or "" for none
    description : how it was made, which `save` writes into the file
    """
    lines = [line for row in charts.rows for chart in row for line in chart.lines]
    entries = _legend_entries(lines) if legend else {}
    if ax is not None:
        return _draw_into(ax, [chart for row in charts.rows for chart in row], title, entries, [heading, *charts.notes])
    high, wide = len(charts.rows), max(map(len, charts.rows))
    with theme.new_figure(wide * charts.panel[0], many=high * wide > 2) as (width, tall, em):
        letters = (width - 2 * EDGE) / em
        columns = _legend_columns(list(entries), letters)
        wrapped = [_wrapped(words, int(LETTERS * letters)) for words in (heading, *charts.notes)]
        notes = [line for note in wrapped[1:] for line in note]
        above = EDGE + em * (TITLE * bool(title) + HEADING * len(wrapped[0]))
        below = EDGE + em * NOTE * len(notes)
        legend_top, above = above, above + (em * ENTRY * -(-len(entries) // columns) if legend == "above" else 0)
        left, height = EDGE / width, above + high * tall * charts.panel[1] + below
        figure = theme.matplotlib().figure.Figure(figsize=(width, height), layout="constrained")
        figure.get_layout_engine().set(rect=(left / 2, below / height, 1 - left, 1 - (above + below) / height))
        grid = figure.subplots(high, wide, squeeze=False, sharey=charts.share)
        for i, (row, limits) in enumerate(zip(charts.rows, charts.limits(), strict=True)):
            for j, (axes, chart) in enumerate(zip(grid[i], row, strict=True)):
                _draw_chart(axes, chart, limits[j])
                axes.set_xlabel(chart.x if i == high - 1 else "")
                axes.set_ylabel(chart.y if j == 0 or charts.share == "none" else "")
                axes.set_title(chart.title, loc="left", **_title_style(chart))
        if title:
            figure.text(left, 1 - EDGE / height, title, fontsize="large", fontweight="bold", va="top")
        y = 1 - (EDGE + em * TITLE * bool(title)) / height
        figure.text(left, y, "\n".join(wrapped[0]), fontsize="small", color=theme.SOFT, va="top")
        figure.text(left, EDGE / 2 / height, "\n".join(notes), fontsize="small", color=theme.SOFT, va="bottom",
                    linespacing=1.4)  # fmt: skip
        if legend == "right":
            ceiling = charts.rows[0][0].ceiling
            order = sorted(entries, key=lambda label: -_end(lines, label, ceiling))  # as the lines end
            grid[0, 0].legend([entries[label] for label in order], order, loc="upper left", bbox_to_anchor=(1.01, 1.02))
        elif entries:
            figure.legend(list(entries.values()), list(entries), loc="upper left", ncols=columns, borderaxespad=0,
                          borderpad=0.1, columnspacing=1.5, handlelength=2.4,
                          bbox_to_anchor=(left, 1 - legend_top / height))  # fmt: skip
        figure.set_label(description or "\n".join(charts.notes))
    return figure


def _wrapped(words: str, letters: int) -> list[str]:
    """Lines of at most so many letters; none ends at a sign between two numbers, or at a colon."""
    lines = textwrap.wrap(re.sub(r" (?=[=+·] )|(?<= [=+·]) |(?<=:) ", "\u00a0", words), letters)
    return [line.replace("\u00a0", " ") for line in lines]


def _draw_into(
    ax: Any, charts: Sequence[Chart], title: str | None, entries: dict[str, Any], caption: Sequence[str]
) -> Any:
    """Charts in the user's axes, with the settings that matplotlib has at this moment."""
    several = given_axes(ax, (len(charts),), title)
    for axes, chart in zip(several, charts, strict=True):
        _draw_chart(axes, chart, chart.limits or error_limits([chart]))
        axes.set(xlabel=chart.x, ylabel=chart.y, label="\n".join(caption))
        if title or chart.title:
            axes.set_title(title or chart.title, **({} if title else _title_style(chart)))
    if entries:
        several[0].legend(list(entries.values()), list(entries))
    return ax


def _title_style(chart: Chart) -> dict[str, Any]:
    return {"color": chart.title_colour, "fontweight": "bold"} if chart.title_colour else {}


def given_axes(ax: Any, panels: Sequence[int], title: str | None = None) -> list[Axes]:
    """The user's axes as a list. panels : how many there may be; a title is that of a lone one"""
    flat = ax.ravel() if isinstance(ax, np.ndarray) and ax.dtype == object else ax
    several: list[Axes] = checks.instances("ax", flat, theme.matplotlib().axes.Axes, "matplotlib Axes")
    if len(several) not in panels:
        raise ArgumentError(f"ax must hold {' or '.join(map(str, panels))} Axes, one per panel; got {len(several)}")
    if title and len(several) > 1:
        raise ArgumentError(f"title must be None where ax holds several Axes: their figure is yours; got {title!r}")
    return several


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
            if line.role in BANDS:
                entries[line.label] = matplotlib.patches.Patch(color=colour, alpha=line.style.opacity, linewidth=0)
            else:
                entries[line.label] = matplotlib.lines.Line2D([], [], **_line_style(line, colour))
    return entries


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """As many as fit: a handle and its spaces take 0.55 inches, a letter 0.06."""
    needs = [0.55 + 0.06 * len(label) for label in labels]
    for columns in range(len(labels), 1, -1):
        if sum(float(part.max()) for part in np.array_split(needs, columns)) <= width:
            return columns
    return 1


def _end(lines: Sequence[Line], label: str, ceiling: float) -> float:
    """The height at which the line of this label ends: at the top if it has left the figure."""
    y = next(line.y for line in lines if line.label == label)
    return float(y[-1]) if len(y) and y[-1] <= ceiling else ceiling


def _line_style(line: Line, colour: str) -> dict[str, Any]:
    style = line.style
    marker = theme.MARKERS[style.marker] if style.marker else ""
    fill = {"markerfacecolor": "white"} if style.hollow else {}
    if line.role == "point":  # stands off from the lines below it
        fill = {"markeredgecolor": "white"}
    larger = theme.stroke()
    return {
        "color": colour, "alpha": style.opacity, "linestyle": theme.DASHES[style.dash],
        "linewidth": larger * style.width, "marker": marker, "markersize": larger * style.size,
        "markeredgewidth": larger * (1.5 if marker == "x" else 1.0), **fill,
        "zorder": style.layer, "clip_on": line.role != "samples", "in_layout": False,
        "drawstyle": "steps-post" if line.steps else "default",
    }  # fmt: skip


def draw_line(axes: Axes, line: Line, ceiling: float = np.inf) -> None:
    """A line with its band and error bars."""
    top = OUT_OF_SIGHT * ceiling
    if line.band is not None:
        low, high = (np.minimum(edge, top) for edge in line.band)
        label, alpha = (line.label, line.style.opacity) if line.role in BANDS else (None, theme.ROLES["tint"].opacity)
        axes.fill_between(line.x, low, high, color=line.colour, alpha=alpha, linewidth=0, zorder=2, label=label)
    y = np.minimum(line.y, top)
    if line.role == "arrow":
        tail, head = np.stack([line.x, y], axis=1)[[0, -1]]
        size = theme.stroke() * line.style.size
        style = {"arrowstyle": "-|>", "color": line.colour, "lw": 0, "shrinkA": 0, "shrinkB": 0, "mutation_scale": size}
        axes.annotate("", head, tail, arrowprops=style, zorder=line.style.layer)
    elif line.role not in BANDS and len(line.x):  # without points there is only its entry in the legend
        axes.plot(line.x, y, label=line.label or None, **_line_style(line, line.colour))
    if line.deviation is not None:
        thick = 0.9 * theme.stroke()
        axes.errorbar(line.x, y, yerr=line.deviation, color=line.colour, linestyle="none", elinewidth=thick, zorder=5)


def _draw_chart(axes: Axes, chart: Chart, limits: tuple[float, float]) -> None:
    axes.set_yscale(chart.y_scale, **({"nonpositive": "mask"} if chart.y_scale == "log" else {}))
    span = chart.span
    shared_x, shared_y = axes.get_shared_x_axes(), axes.get_shared_y_axes()
    if any(one.has_data() for one in shared_x.get_siblings(axes)):  # what is there stays in sight
        span = _union(span, axes.get_xlim(), chart.x_scale == "log" and span[0] > 0)
    if any(one.has_data() for one in shared_y.get_siblings(axes)):
        limits = _union(limits, axes.get_ylim(), chart.y_scale == "log")
    for line in chart.lines:
        draw_line(axes, line, chart.ceiling)
    axes.set_ylim(*limits)
    if chart.y_scale == "log":
        set_log_ticks(axes.yaxis)
    if chart.plane:
        axes.set(xlim=span, xticks=[], yticks=[], aspect="equal")
        axes.spines[:].set(visible=True, color=theme.FAINT)
    else:
        _scale_costs(axes, chart, *span)
    if chart.corner:
        paper = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 1.0}
        axes.text(0.04, 0.04, chart.corner, transform=axes.transAxes, fontsize="small", va="bottom", zorder=7,
                  bbox=paper)  # fmt: skip


def _union(limits: tuple[float, float], old: tuple[float, float], positive: bool) -> tuple[float, float]:
    return min(limits[0], *(v for v in old if v > 0 or not positive), limits[0]), max(limits[1], *old)


def _scale_costs(axes: Axes, chart: Chart, start: float, end: float) -> None:
    """The axis of costs: linear, logarithmic, or logarithmic after the first cost where costs start at 0."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

    marked = any(line.style.marker and line.role in ("marks", "joined") for line in chart.lines)
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
        inches = axes.get_window_extent().width / axes.figure.dpi
        ticks = max(3, int(TICKS * inches * theme.TEXT / theme.text_size()))
        integer = all((line.x == np.rint(line.x)).all() for line in chart.lines)
        axes.xaxis.set_major_locator(MaxNLocator(ticks, steps=(1, 2, 2.5, 5, 10), integer=integer))
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


def save(figure: Figure, path: str | os.PathLike[str], *, command: str | None = None) -> None:
    """Write a figure as PNG, PDF or SVG, by the suffix of `path`.

    The file's metadata holds the figure's description (results, problem, seeds, versions) and `command`, what a reader
    types to draw it again, and no date.
    """
    check_options(command=command)
    matplotlib = theme.matplotlib()
    checks.instance("figure", figure, matplotlib.figure.Figure, "a matplotlib figure")
    target, drawn = checks.path("path", path, SUFFIXES), io.BytesIO()
    kind = target.suffix.lower()[1:]
    with matplotlib.rc_context(theme.RC):
        figure.savefig(drawn, format=kind, metadata=_metadata(kind, str(figure.get_label()), command))
    files.write(target, drawn.getbuffer(), "the figure")


def _metadata(kind: str, description: str, command: str | None) -> dict[str, str | None]:
    """Who made it, from what, by which command, under the names of the format; a date that is None is left out."""
    names = {"pdf": ("Creator", "Subject", "Keywords"), "svg": ("Creator", "Description", "Source")}
    maker, about, source = names.get(kind, ("Software", "Description", "Source"))
    entries = {maker: f"fedlsa {version('fedlsa')}", about: description, source: command}
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    return {**{name: text for name, text in entries.items() if text}, **dates.get(kind, {})}


# What several drawing functions take, checked by the name of the argument


def _check_band(value: Any) -> None:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) or len(value) != 2:
        raise ArgumentTypeError(f"band must be two quantiles such as (0.1, 0.9); got {checks.show(value)}")
    low, high = (checks.real("band", q, at_least=0, at_most=1) for q in value)
    if low >= high:
        raise ArgumentError(f"band must be two increasing quantiles; got ({low:g}, {high:g})")


CHECKS: dict[str, Callable[[Any], Any]] = {
    "title": lambda value: checks.instance("title", value, str | None, "text or None"),
    "legend": lambda value: checks.boolean("legend", value),
    "command": lambda value: checks.instance("command", value, str | None, "text or None"),
    "scale": lambda value: checks.choice("scale", value, SCALES),
    "level": lambda value: checks.real("level", value, above=0, below=1),
    "band": _check_band,
}


def check_options(**given: Any) -> None:
    """Refuse a title, legend, command, scale, level or band that breaks its rule."""
    for name, value in given.items():
        CHECKS[name](value)


def drawing_options(title: Any, legend: Any, ax: Any, place: str = "above", **more: Any) -> dict[str, Any]:
    """What `draw_charts` is told by whoever draws, checked, with more options. place : where a legend stands"""
    check_options(title=title, legend=legend, **more)
    return {"title": title, "legend": place if legend else "", "ax": ax}


def checked_results(results: Any, name: str = "results") -> list[xr.Dataset]:
    """One result of simulate or several, as a list; of a sweep, its runs."""
    import xarray as xr

    runs = separate(checks.instances(name, results, xr.Dataset, "a result of simulate"))
    for r in runs:
        require_result(name, r)
    return runs


def checked_levels(bias: Any, count: int, of: str = "result") -> list[float]:
    """The levels of dashed lines, one for each result or curve; NaN for none."""
    if bias is None:
        return [math.nan] * count
    rule = f"one number per {of}, {count}"
    levels = checks.entries("bias", bias, rule) if checks.is_sequence(bias) else [bias]
    if len(levels) != count:
        raise ArgumentError(f"bias must hold {rule}; got {len(levels)}")
    unknown = [isinstance(b, (float, np.floating)) and math.isnan(b) for b in levels]
    return [math.nan if nan else checks.real("bias", b, at_least=0) for b, nan in zip(levels, unknown, strict=True)]
