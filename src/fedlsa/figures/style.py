"""One style for every figure: a column of a journal, read without colour vision and in grey print.

Hues are those of Okabe and Ito, which all common kinds of colour vision tell apart. A method keeps its colour in every
figure; several runs of one method differ in line style and lightness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, FAINT = "#222222", "#666666", "#e4e4e4"
METHODS = {"FedLSA": "#d55e00", "SCAFFLSA": "#0072b2", "Scaffnew": "#009e73"}
OTHERS = ("#cc79a7", "#e69f00", "#56b4e9", "#000000")
STROKES: tuple[Any, ...] = ("-", (0, (6, 1.5, 1, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5, 1, 1.5)))
DASHED = (0, (4.5, 2.5))  # for predictions alone

RC = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same picture on every machine
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.which": "major",
    "axes.unicode_minus": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.minor.width": 0.5,
    "ytick.minor.width": 0.5,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.dpi": 200,
    "figure.facecolor": "white",
    "savefig.dpi": "figure",
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "fedlsa",  # equal figures give equal files
}

SMALL = {  # on top of it, for figures of many panels
    "font.size": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "lines.linewidth": 1.5,
}


def matplotlib() -> Any:
    """The matplotlib package, or an error that says how to get it."""
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError:
        raise MissingExtraError("figures need matplotlib: pip install 'fedlsa[plot]'") from None
    return matplotlib


def canvas(width: float = 7.0, height: float = 4.0) -> tuple[Figure, Axes]:
    """A figure of the house, in inches, with one set of axes; it belongs to nobody's global state."""
    figure = matplotlib().figure.Figure(figsize=(width, height))
    return figure, figure.add_subplot()


def colour(name: str, others: list[str]) -> str:
    """The colour of a method; methods from elsewhere take the free ones in the order of `others`."""
    return METHODS.get(name) or OTHERS[others.index(name) % len(OTHERS)]


def shade(hue: str, step: int) -> tuple[float, float, float]:
    """The hue, lighter by a quarter of the way to white for each step, three at most."""
    light = 0.25 * min(step, 3)
    r, g, b = matplotlib().colors.to_rgb(hue)
    return r + light * (1 - r), g + light * (1 - g), b + light * (1 - b)
