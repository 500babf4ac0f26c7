"""Charts as small SVG symbols for a page: light or dark by the page's style, and with values that a script reads back.

A symbol is shown by <use>, so that a chart may stand in several places and costs its bytes once. Its curves are paths
in fine whole units: `data-x` and `data-y` say how units become values, to three digits, which the page shows under the
pointer. Colours are the custom property --c, which the page mixes with white by night.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from ..checks import Floats
from .lines import Chart, ChartRows, Line, number, printed

WIDTH, HEIGHT = 26_000, 19_000  # of a symbol; a hundred units are a pixel or more on the screen
LEFT, TOP, RIGHT, BOTTOM = 4_300, 2_000, 900, 3_500  # around the axes
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
OUTSIDE = 2_000  # units: so far beyond the axes a curve that leaves them is followed
MOST_POINTS, MOST_BAND_POINTS = 101, 51  # of a curve, and of each edge of its band
MOST_TICKS = 5
MOST_LETTERS = 6  # of a number beside the vertical axis: 50 000, but 10⁵
RAISED = str.maketrans("-0123456789", "\u207b⁰¹²³⁴⁵⁶⁷⁸⁹")
DASHES = {"dashed": "900 500", "dotted": "200 300", "dashdot": "1200 300 200 300", "dashdotdot": "1200 300 200 300 200"}


@dataclass(frozen=True)
class SvgSheet:
    """A figure for a page. panels : a title and the inside of a symbol each; legend : HTML; notes : what lines mean."""

    panels: tuple[tuple[str, str, str], ...]  # title, the symbol's attributes, its content
    legend: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Scaled:
    """An axis: from values to whole units. kind : "linear" or "log"."""

    kind: str
    low: float
    high: float
    length: int

    def units(self, values: Floats) -> Floats:
        """Whole units from the axis' lower end; NaN where there is no place."""
        bend: Callable[[Floats], Floats] = np.log10 if self.kind == "log" else np.asarray
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = bend(np.array([self.low, self.high]))
            share = (bend(np.asarray(values, np.float64)) - low) / (high - low)
        share[~np.isfinite(values)] = math.nan
        return np.rint(np.clip(share * self.length, -OUTSIDE, self.length + OUTSIDE))

    def ticks(self) -> list[tuple[float, str]]:
        """Round values on the axis, as they are printed."""
        if self.kind == "linear":
            return [(v, number(v) if v >= 0 else f"{v:g}") for v in _round_values(self.low, self.high)]
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        if last - first >= 2:
            every = -(-(last - first + 1) // MOST_TICKS)
            return [(10.0**k, _decade(k)) for k in range(first, last + 1, every)]
        for digits in ((1, 2, 5), (1, 3), (1,)):
            fine = [m * 10.0**k for k in range(first - 1, last + 1) for m in digits]
            inside = [v for v in fine if self.low <= v <= self.high]
            if len(inside) <= MOST_TICKS:
                break
        if len(inside) < 2:
            inside = _round_values(self.low, self.high)
        return [(v, f"{v:.3g}" if v < 100 else number(v)) for v in inside]

    @property
    def described(self) -> str:
        """For the page's script."""
        return f"{self.kind} {self.low:.6g} {self.high:.6g}"


def _round_values(low: float, high: float) -> list[float]:
    rough = (high - low) / (MOST_TICKS - 1) or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    return [round(k * step, 12) for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _decade(k: int) -> str:
    return number(10.0**k) if -2 <= k <= 4 else "10" + str(k).translate(RAISED)


def sheet(charts: ChartRows) -> SvgSheet:
    """All charts of a figure."""
    panels = []
    for row, limits in zip(charts.rows, charts.limits(), strict=True):
        panels += [(" ".join(c.title.split()), *_symbol(c, limit)) for c, limit in zip(row, limits, strict=True)]
    lines = [line for row in charts.rows for chart in row for line in chart.lines]
    return SvgSheet(tuple(panels), _legend(lines), tuple(" ".join(note.split()) for note in charts.notes))


def _symbol(chart: Chart, limits: tuple[float, float]) -> tuple[str, str]:
    x, y = _x_axis(chart), Scaled(chart.y_scale, *limits, PLOT_HEIGHT)
    parts = [f'<path class="g" d="M{LEFT},{TOP}v{PLOT_HEIGHT}h{PLOT_WIDTH}"/>']
    for value, text in x.ticks():
        place = LEFT + int(x.units(np.array([value]))[0])
        parts.append(f'<text x="{place}" y="{HEIGHT - BOTTOM + 1500}" text-anchor="middle">{text}</text>')
    for value, text in y.ticks():
        if len(text) > MOST_LETTERS:
            text = printed(f"{value:.3g}").removeprefix("1\u2009·\u2009")
        place = HEIGHT - BOTTOM - int(y.units(np.array([value]))[0])
        parts.append(f'<path class="g" d="M{LEFT},{place}h{PLOT_WIDTH}"/>')
        parts.append(f'<text x="{LEFT - 400}" y="{place + 400}" text-anchor="end">{text}</text>')
    below = f'x="{LEFT + PLOT_WIDTH // 2}" y="{HEIGHT - 500}" text-anchor="middle"'
    parts.append(f'<text class="a" {below}>{escape(chart.x)}</text>')
    parts.append(f'<text class="a" x="300" y="1100">{escape(chart.y)}</text>')
    parts.append(f'<svg x="{LEFT}" y="{TOP}" width="{PLOT_WIDTH}" height="{PLOT_HEIGHT}">')
    parts += [_drawn(line, x, y) for line in sorted(chart.lines, key=lambda line: line.style.layer) if len(line.x)]
    if chart.corner:
        parts.append(f'<text x="400" y="{PLOT_HEIGHT - 500}">{escape(chart.corner)}</text>')
    return f'data-x="{x.described}" data-y="{y.described}"', "".join([*parts, "</svg>"])


def _x_axis(chart: Chart) -> Scaled:
    low, high = chart.span
    if chart.x_scale == "log":
        positive = np.concatenate([line.x for line in chart.lines])
        low = float(np.nanmin(positive[positive > 0]))
        room = (high / low) ** 0.03 if high > low else 2.0  # about a single point too
        return Scaled("log", low / room, high * room, PLOT_WIDTH)
    marked = any(line.style.marker and len(line.x) for line in chart.lines)
    room = 0.6 if marked else 0.0
    return Scaled("linear", low - room, high + room if high + room > low - room else low + 1, PLOT_WIDTH)


def _drawn(line: Line, x: Scaled, y: Scaled) -> str:
    """A line with its band, its error bars and its marks; its points stand in the path of class l, seen or not."""
    style, parts = line.style, []
    if line.band is not None:
        keep = _some(len(line.x), MOST_BAND_POINTS)
        low, high = (edge[keep] for edge in line.band)
        X = np.concatenate([line.x[keep], line.x[keep][::-1]])
        parts.append(f'<path class="b" d="{_path(x.units(X), y, np.concatenate([low, high[::-1]]))}z"/>')
    if line.deviation is not None:
        for place, value, error in zip(x.units(line.x), line.y, line.deviation, strict=True):
            ends = PLOT_HEIGHT - y.units(np.array([max(value - error, y.low), value + error]))
            if np.isfinite([place, *ends]).all():
                parts.append(f'<path class="l" d="M{place:.0f},{ends[0]:.0f}V{ends[1]:.0f}"/>')
    keep = _some(len(line.x), MOST_POINTS)
    X, Y = line.x[keep], line.y[keep]
    if line.steps:  # each value holds until the next
        X, Y = np.repeat(X, 2)[1:], np.repeat(Y, 2)[:-1]
    path = _path(x.units(X), y, Y)
    drawn = f' stroke-dasharray="{DASHES[style.dash]}"' if style.dash in DASHES else ""
    name = escape(_plain(line.name or line.label))
    named = f' data-n="{name}"' if name else ""
    hidden = ' stroke="none"' if style.dash == "none" else ""
    if path:
        kind = "p" if hidden else "l"
        parts.append(f'<path class="{kind}"{named} d="{path}"{drawn}{hidden}/>')
    if style.marker:
        hollow = "h" if style.hollow else "m"
        shapes = "".join(_mark(style.marker, 55 * style.size, X, Y) for X, Y in _places(x, y, line))
        parts.append(f'<path class="{hollow}" d="{shapes}"/>' if shapes else "")
    return f'<g style="--c:{_colour(line.colour)};--w:{round(90 * style.width)}">{"".join(parts)}</g>'


def _some(count: int, most: int) -> Floats:
    """Indices of at most so many points, the last among them."""
    stride = max(1, -(-(count - 1) // (most - 1)))
    return np.array([*range(0, count - 1, stride), count - 1])


def _places(x: Scaled, y: Scaled, line: Line) -> list[tuple[int, int]]:
    pairs = zip(x.units(line.x), PLOT_HEIGHT - y.units(line.y), strict=True)
    return [(int(X), int(Y)) for X, Y in pairs if math.isfinite(X) and math.isfinite(Y)]


def _path(X: Floats, y: Scaled, values: Floats) -> str:
    """Straight lines through points, in steps from one to the next; a gap where there is none."""
    out, old, broken = [], (0, 0), True
    for u, v in zip(X, PLOT_HEIGHT - y.units(values), strict=True):
        if not (math.isfinite(u) and math.isfinite(v)):
            broken = True
            continue
        step = f"{int(u) - old[0]} {int(v) - old[1]}".replace(" -", "-")
        out.append(("m" if broken else "l") + step)
        old, broken = (int(u), int(v)), False
    return "".join(out)


def _mark(marker: str, r: float, X: int, Y: int) -> str:
    r = round(r)
    if marker == "circle":
        return f"M{X - r},{Y}a{r},{r} 0 1 0 {2 * r},0a{r},{r} 0 1 0 {-2 * r},0"
    if marker == "cross":
        return f"M{X - r},{Y - r}l{2 * r},{2 * r}m{-2 * r},0l{2 * r},{-2 * r}"
    corners = {
        "square": f"m{-r},{-r}h{2 * r}v{2 * r}h{-2 * r}z",
        "diamond": f"m0,{-r}l{r},{r} {-r},{r} {-r},{-r}z",
        "triangle": f"m0,{-r}l{r},{2 * r}h{-2 * r}z",
        "triangle down": f"m0,{r}l{r},{-2 * r}h{-2 * r}z",
    }
    return f"M{X},{Y}{corners[marker]}"


def _colour(colour: str) -> str:
    """Inks follow the page's; other colours are their own."""
    return {"#222222": "var(--ink)", "#000000": "var(--ink)", "#666666": "var(--soft)"}.get(colour, colour)


def _plain(text: str) -> str:
    """A label without the marks of mathematics."""
    return re.sub(r"\\mathrm|[${}]", "", text)


def _legend(lines: Sequence[Line]) -> str:
    """Every label once, with how its line is drawn."""
    entries: dict[str, str] = {}
    for line in lines:
        if line.label and line.label not in entries:
            style = line.style
            dash = f' stroke-dasharray="{DASHES[style.dash]}"' if style.dash in DASHES else ""
            drawn = "" if style.dash == "none" else f'<path class="l" d="M0,600h2400"{dash}/>'
            if line.role == "tint":
                drawn = '<path class="b" d="M0,0h2400v1200h-2400z"/>'
            if style.marker:
                drawn += f'<path class="{"h" if style.hollow else "m"}" d="{_mark(style.marker, 330, 1200, 600)}"/>'
            own = f"--c:{_colour(line.colour)};--w:{round(110 * style.width)}"
            entries[line.label] = (
                f'<span><svg viewBox="0 0 2400 1200" style="{own}" aria-hidden="true">{drawn}</svg>'
                f"{escape(_plain(line.label))}</span>"
            )
    return "".join(entries.values())
