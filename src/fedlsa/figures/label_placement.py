"""Where a label beside a point stands best: close to it, clear of what is drawn, and inside the panel."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Floats
from . import theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENOUGH_ROOM = 0.12  # inches around a label that count as clear; more is no better
LETTER_WIDTH, LINE_HEIGHT = 0.0088, 0.0185  # of a letter, in inches per point of font size
DISTANCE_PENALTY = 0.05  # of an inch between point and label, in inches of clear space
DISTANCES = (0.11, 0.2, 0.35, 0.55, 0.8, 1.1, 1.5)  # from the point, in inches; beyond the second with a line to it
DIRECTIONS = [np.array([np.cos(a), np.sin(a)]) for a in np.linspace(0, 2 * np.pi, 16, endpoint=False)]


class Placer:
    """Labels of one panel. box : its limits; inches : of paper for one unit of data; taken : (n, 2) points to avoid."""

    def __init__(self, box: tuple[float, float, float, float], inches: float, taken: Floats) -> None:
        self.inches = inches
        self.low, self.high = inches * np.array(box[::2]), inches * np.array(box[1::2])
        seen = ((taken >= box[::2]) & (taken <= box[1::2])).all(axis=1)  # NaN is not
        self.taken = np.unique(np.round(inches * taken[seen], 2), axis=0)

    def place(self, at: Floats, text: str, size: float) -> tuple[Floats, Floats | None] | None:
        """Where the middle of `text` belongs beside one of the points `at` : (k, 2), to disturb least, and, if that is
        far from its point, the line (2, 2) that joins them; None where no point is in sight or nothing is free."""
        lines = text.split("\n")
        half = size * np.array([LETTER_WIDTH * max(map(len, lines)), LINE_HEIGHT * len(lines)]) / 2
        grid = np.stack(np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 4)), axis=-1).reshape(-1, 2) * half
        points = self.inches * np.atleast_2d(at)
        seen = points[((points >= self.low) & (points <= self.high)).all(axis=1)]
        best: tuple[float, Floats, Floats, float] | None = None
        for far, point, way in product(DISTANCES, seen, DIRECTIONS):
            if best is not None and best[0] >= ENOUGH_ROOM - DISTANCE_PENALTY * far:
                break  # no label from here on can be better
            middle = point + way * far + half * np.clip(way / 0.7, -1, 1)
            spots = middle + grid
            outside = float(np.maximum(self.low + 0.04 - spots, spots - self.high + 0.04).max())
            if outside > 0:
                continue
            away = np.sqrt(np.min(np.sum((self.taken[:, None] - spots) ** 2, axis=-1), initial=1.0))
            score = min(float(away), ENOUGH_ROOM) - DISTANCE_PENALTY * far
            if best is None or score > best[0] + 1e-9:
                best = score, point, middle, far
        if best is None:
            return None
        _, point, middle, far = best
        self.taken = np.concatenate([self.taken, middle + grid])
        toward = np.clip(point - middle, -half, half) + middle
        return middle / self.inches, np.stack([point, toward]) / self.inches if far > DISTANCES[1] else None

    def label(self, axes: Axes, at: Floats, text: str, colour: Any, relative: float = 0.9, **kind: Any) -> None:
        """Write `text` where it belongs, so large beside ordinary text; nowhere to put it, no label."""
        from matplotlib.patheffects import withStroke

        size = relative * theme.text_size()
        place = self.place(at, text, size)
        if place is None:
            return
        (x, y), line = place
        if line is not None:
            axes.plot(*line.T, color=theme.SOFT, linewidth=0.6, zorder=8.5)
        look = {"color": colour, "fontsize": size, "ha": "center", "va": "center", "linespacing": 1.1, "zorder": 10}
        halo = [withStroke(linewidth=2, foreground="white")]
        axes.text(x, y, text, path_effects=halo, **{**look, **kind})
