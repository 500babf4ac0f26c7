"""Small pictures for notebooks, as SVG without scripts: a strip of numbers for each coordinate, or one curve."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

WIDTH, HEIGHT, LABEL = 300, 16, 120  # of a strip, in pixels, and of the text before it
STRIPS, DOTS, POINTS = 8, 60, 100  # that are drawn at most
BLUE, GREY = "#1f5fa8", "#999"


class Strip(NamedTuple):
    """Numbers of one coordinate: a mark, the interval about it, and dots; NaN is left out."""

    label: str
    mark: float
    interval: tuple[float, float] | None = None
    dots: ArrayLike = ()


def strips(rows: Sequence[Strip], caption: str) -> str:
    """A strip for each row, each on a scale of its own; 0 is a grey line where it is within."""
    parts = []
    for i, row in enumerate(rows[:STRIPS]):
        dots = spread_out(row.dots, DOTS)
        numbers = np.array([row.mark, *(row.interval or ()), *dots])
        numbers = numbers[np.isfinite(numbers)]
        if not numbers.size:
            continue
        low, high = float(numbers.min()), float(numbers.max())
        room = (high - low) or 1.0
        y = HEIGHT * (i + 0.5)

        def x(value: float, low: float = low, room: float = room) -> str:
            return f"{LABEL + 5 + (WIDTH - 10) * (value - low) / room:.0f}"

        label = escape(row.label if len(row.label) <= 18 else row.label[:17] + "…")
        parts.append(f'<text x="0" y="{y + 4:.0f}">{label}</text>')
        if low < 0 < high:
            parts.append(_line(x(0.0), x(0.0), y - 7, y + 7, GREY, 1))
        if row.interval and np.isfinite(row.interval).all():
            parts.append(_line(x(row.interval[0]), x(row.interval[1]), y, y, BLUE, 2))
        parts += [f'<circle cx="{x(v)}" cy="{y:.0f}" r="2" fill="{GREY}"/>' for v in dots[np.isfinite(dots)]]
        if np.isfinite(row.mark):
            parts.append(_line(x(row.mark), x(row.mark), y - 6, y + 6, BLUE, 3))
    return _svg(LABEL + WIDTH, HEIGHT * min(len(rows), STRIPS), parts, caption)


def curve(values: ArrayLike, caption: str) -> str:
    """Positive numbers in their order, on a logarithmic scale."""
    y = spread_out(values, POINTS)
    good = np.isfinite(y) & (y > 0)
    if good.sum() < 2:
        return ""
    log = np.log(y[good])
    up = 56 - 50 * (log - log.min()) / (float(np.ptp(log)) or 1.0)
    along = WIDTH * np.flatnonzero(good) / (len(y) - 1)
    points = " ".join(f"{a:.0f},{b:.1f}" for a, b in zip(along, up, strict=True))
    return _svg(WIDTH, 60, [f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="2"/>'], caption)


def spread_out(values: ArrayLike, most: int) -> NDArray[np.float64]:
    """At most so many of the numbers, evenly spaced, with the first and the last."""
    y = np.asarray(values, np.float64)
    return y[np.linspace(0, len(y) - 1, min(len(y), most)).astype(int)]


def _line(x1: str, x2: str, y1: float, y2: float, colour: str, width: int) -> str:
    place = f'x1="{x1}" x2="{x2}" y1="{y1:.0f}" y2="{y2:.0f}"'
    return f'<line {place} stroke="{colour}" stroke-width="{width}"/>'


def _svg(width: int, height: int, parts: Sequence[str], caption: str) -> str:
    style = 'font-family="sans-serif" font-size="11" fill="currentColor"'
    text = escape(caption)
    drawn = f'<svg width="{width}" height="{height}" role="img" aria-label="{text}" {style}>{"".join(parts)}</svg>'
    return f"<figure>{drawn}<figcaption>{text}</figcaption></figure>"
