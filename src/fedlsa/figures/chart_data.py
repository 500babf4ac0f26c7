"""Charts as JSON for a page, where pages/static/chart.js draws them: the same lines, thinned, with few digits."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import Floats
from .lines import Chart, ChartRows, Line
from .theme import INK, METHODS, OTHERS, SOFT, LineStyle

MOST_POINTS = 101  # of a line
DIGITS = 3  # of a value; more where an axis shows a small part of its numbers
COLOURS = {INK: "ink", OTHERS[-1]: "ink", SOFT: "soft"} | {colour: name for name, colour in METHODS.items()}


def chart_data(charts: ChartRows) -> dict[str, list[Any]]:
    """All charts of a figure, row after row, and its notes."""
    pairs = [pair for row in zip(charts.rows, charts.limits(), strict=True) for pair in zip(*row, strict=True)]
    return {"charts": [_chart(*pair) for pair in pairs], "notes": [" ".join(note.split()) for note in charts.notes]}


def _chart(chart: Chart, limits: tuple[float, float]) -> dict[str, Any]:
    x: dict[str, Any] = {"label": _plain(chart.x), "scale": chart.x_scale} | _ends(*_x_limits(chart))
    if chart.x_ticks is not None:
        x["ticks"] = [float(v) for v in chart.x_ticks]
    y: dict[str, Any] = {"label": _plain(chart.y), "scale": chart.y_scale} | _ends(*limits)
    lines: list[dict[str, Any]] = []
    before: list[float | None] = []
    for line in chart.lines:
        lines.append(_line(line, x, y))
        if lines[-1]["x"] == before:  # chart.js takes that of the line before
            del lines[-1]["x"]
        else:
            before = lines[-1]["x"]
    named = {"title": _plain(chart.title), "colour": _colour(chart.title_colour), "corner": _plain(chart.corner)}
    return {**{k: v for k, v in named.items() if v}, "x": x, "y": y, "lines": lines}


def _ends(low: float, high: float) -> dict[str, float]:
    return {"low": float(f"{low:.6g}"), "high": float(f"{high:.6g}")}


def _x_limits(chart: Chart) -> tuple[float, float]:
    """The axis of costs with a little room; a logarithmic one begins at the first cost that is not 0."""
    low, high = chart.span
    if chart.x_scale == "log":
        x = np.concatenate([line.x for line in chart.lines])
        low = float(np.nanmin(x[x > 0]))
        room = (high / low) ** 0.03 if high > low else 2.0  # about a single point too
        return low / room, high * room
    if any(line.style.marker and len(line.x) for line in chart.lines):
        room = 0.03 * (high - low)
        low, high = low - room, high + room
    return low, high if high > low else low + 1


def _line(line: Line, x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    keep = _some(len(line.x))
    out: dict[str, Any] = {"x": _numbers(line.x[keep], x, 1), "y": _numbers(line.y[keep], y)}
    if line.band is not None:
        out["band"] = [_numbers(edge[keep], y) for edge in line.band]
    if line.deviation is not None:
        out["deviation"] = _numbers(line.deviation[keep], y)
    usual, style = LineStyle(), line.style
    out |= {name: getattr(style, name) for name in vars(style) if getattr(style, name) != getattr(usual, name)}
    more = {"label": _plain(line.label), "name": _plain(line.name), "colour": _colour(line.colour), "steps": line.steps}
    return out | {name: value for name, value in more.items() if value not in ("", "ink", False)}


def _some(count: int) -> Sequence[int]:
    """Indices of at most MOST_POINTS points, the last among them."""
    stride = max(1, -(-(count - 1) // (MOST_POINTS - 1)))
    return [*range(0, count - 1, stride), count - 1] if count else []


def _numbers(values: Floats, axis: dict[str, Any], more: int = 0) -> list[float | None]:
    """Digits finer than a chart shows them, `more` of them where asked for; None for what is no number."""
    low, high = axis["low"], axis["high"]
    largest = max(abs(low), abs(high)) or 1.0
    share = math.log(high / low) / 2 if axis["scale"] == "log" else (high - low) / largest
    digits = DIGITS + more + max(0, math.ceil(-math.log10(share or 1.0)))
    rounded = [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in np.asarray(values, np.float64)]
    return [int(v) if v is not None and v.is_integer() and abs(v) < 1e6 else v for v in rounded]


def _colour(colour: str) -> str:
    """A method's name, "ink" or "soft", of which a page has a light and a dark one; others are their own."""
    return COLOURS.get(colour, colour)


def _plain(text: str) -> str:
    """In one line, without the marks of mathematics."""
    return re.sub(r"\\mathrm|[${}]", "", " ".join(text.split()))
