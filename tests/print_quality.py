"""What keeps a picture of the documentation from print: small text, few pixels, keys for names, words behind lines."""

import re

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

PRINTED = 7.0  # inches: the width of a page's text
SMALLEST = 8.0  # points, at the printed width
PIXELS = 1680  # twice the 840 of a page's column
KEYS = re.compile(r"\b(?:th|thm|lem|lemma|cor|coro|prop|assum|algo|fig|tab|eq|sec):\w|\bfrom_\w")


def faults(figure: Figure) -> list[str]:
    """None, or each with the words that it is about."""
    figure.draw_without_rendering()
    out = (
        []
        if figure.get_figwidth() * figure.dpi >= PIXELS
        else [f"{figure.get_figwidth() * figure.dpi:.0f} pixels wide"]
    )
    shrunk = min(PRINTED / figure.get_figwidth(), 1.0)
    shown = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    for text in shown:
        if text.get_fontsize() * shrunk < SMALLEST - 0.01:
            out.append(f"{text.get_fontsize() * shrunk:.1f} points: {text.get_text()!r}")
        if KEYS.search(text.get_text()):
            out.append(f"a key for a name: {text.get_text()!r}")
    edge = figure.bbox.padded(1)
    for text in (*figure.texts, *(t for legend in figure.legends for t in legend.get_texts()), *_inside(figure)):
        if text.get_text() and not all(edge.contains(*corner) for corner in text.get_window_extent().corners()):
            out.append(f"cut off: {text.get_text()!r}")
    return out + [f"struck: {text.get_text()!r}" for text in _inside(figure) if _struck(text)]


def _inside(figure: Figure) -> list[Text]:
    """Words in axes, those of legends too."""
    legends = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    return [t for axes in figure.axes for t in axes.texts] + [t for legend in legends for t in legend.get_texts()]


def _struck(text: Text) -> bool:
    """Whether a line or a mark of its axes runs through the words."""
    box = text.get_window_extent()
    box = Bbox.from_extents(*(box.p0 + 0.1 * box.size), *(box.p1 - 0.1 * box.size))  # without the rim
    axes = text.axes
    if not text.get_text().strip() or not axes.bbox.overlaps(box):
        return False
    for line in axes.lines:
        path = line.get_transform().transform_path(line.get_path())
        if line.get_linestyle() not in ("None", "none", "") and path.intersects_bbox(box, filled=False):
            return True
        if line.get_marker() not in ("None", "none", "", None) and any(box.contains(*at) for at in path.vertices):
            return True
    return False
