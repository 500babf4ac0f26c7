"""How every figure looks, in a paper, on a slide or in a notebook: read without colour vision and in grey print.

Hues are those of Okabe and Ito, which all common kinds of colour vision tell apart. A method keeps its colour in every
figure; several runs of one method differ in dashes and lightness.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from .. import checks
from ..errors import MissingExtraError

INK, SOFT, FAINT = "#222222", "#666666", "#e4e4e4"
ERROR_PARTS = {"noise": "#8c6bb1", "drift": "#e69f00", "start": "#9a9a9a"}  # of an error, from the bottom
METHODS = {"FedLSA": "#d55e00", "SCAFFLSA": "#0072b2", "Scaffnew": "#009e73"}
OTHERS = ("#cc79a7", "#e69f00", "#56b4e9", "#000000")
SEQUENCE = ("#440154", "#31688e", "#35a06b", "#d9a400")  # dark to light, in grey print too: from small to large

DASHES: dict[str, Any] = {  # as matplotlib calls them
    "solid": "-",
    "dashed": (0, (4.5, 2.5)),
    "dotted": (0, (1, 1.4)),
    "dashdot": (0, (6, 1.5, 1, 1.5)),
    "dashdotdot": (0, (6, 1.5, 1, 1.5, 1, 1.5)),
    "none": "none",
}
MARKERS = {"circle": "o", "square": "s", "triangle": "^", "triangle down": "v", "diamond": "D", "cross": "x",
           "star": "*", "filled cross": "X"}  # fmt: skip
METHOD_MARKERS = {"FedLSA": "circle", "SCAFFLSA": "square", "Scaffnew": "triangle"}
OTHER_MARKERS = ("diamond", "triangle down", "star", "filled cross", "cross")
DASHED = DASHES["dashed"]  # for predictions alone
TWIN_DASHES = ("solid", "dashdot", "dotted", "dashdotdot")  # of several runs of one method


@dataclass(frozen=True)
class LineStyle:
    """How a line is drawn. dash : of DASHES; marker : of MARKERS, or "" for none; layer : higher lies on top."""

    dash: str = "solid"
    width: float = 1.8
    marker: str = ""
    size: float = 6.0
    hollow: bool = False
    opacity: float = 1.0
    layer: float = 4


ROLES = {  # what a line can be in a figure
    "curve": LineStyle(),
    "seeds": LineStyle(width=0.7, layer=6),  # their mean, on the exact curve
    "expectation": LineStyle(width=0.6, layer=6),  # exact, on the mean of seeds
    "diverged": LineStyle(width=0.7, opacity=0.7, layer=3),
    "departure": LineStyle("none", marker="cross", layer=6),  # where a run that diverges leaves the figure
    "prediction": LineStyle("dashed", 1.2, layer=5),
    "bound": LineStyle("dashed", layer=3),
    "second bound": LineStyle("dotted", layer=3),
    "guide": LineStyle("dotted", 1.2, layer=2),  # a slope to compare with
    "law": LineStyle(width=1.2, layer=3),  # fitted to marks
    "tint": LineStyle("none", opacity=0.2),  # its band alone
    "part": LineStyle("none", opacity=0.4),  # of an error: the same, where bands stand on one another
    "samples": LineStyle("none", marker="circle", size=3.6, hollow=True, layer=6),  # simulated values on a curve
    "marks": LineStyle("none", marker="circle"),
    "joined": LineStyle(width=1.2, marker="circle"),
    "own solution": LineStyle("none", marker="circle", size=6.5, hollow=True, layer=3),  # of an agent
    "path": LineStyle(width=1.5),  # of an agent within a round
    "thin path": LineStyle(width=0.8, opacity=0.55),  # of one among many
    "arrow": LineStyle("none", size=9, layer=5),  # from its first point to its last: the head alone
    "average": LineStyle(width=2.2, marker="circle", size=4.2, layer=6),  # of the agents, after each round
    "point": LineStyle("none", marker="circle", size=7.5, layer=8),
    "open point": LineStyle("none", marker="circle", size=6.5, hollow=True, layer=8),
}

# Of each style: the width of a figure in inches, and the size of its text in points, alone and in many panels. Small
# text is 0.833 of it: 8 points in a paper. A figure for a notebook may be wider, as it needs.
STYLES = {"paper": (5.5, 9.7, 9.7), "slide": (10.0, 16.0, 15.0), "notebook": (7.0, 9.6, 8.4)}
TEXT, LINE = 9.6, 1.8  # points of text, and of a line, to which all other sizes in this library stand in proportion
STROKES = {  # grow with the text
    "axes.labelpad": 4.0,
    "axes.linewidth": 0.8,
    "axes.titlepad": 6.0,
    "grid.linewidth": 0.7,
    "lines.linewidth": LINE,
    "lines.markersize": 6.0,
    **{f"{x}tick.{key}": points for x in "xy" for key, points in
       (("major.pad", 3.5), ("major.size", 3.5), ("major.width", 0.8), ("minor.size", 2.0), ("minor.width", 0.5))},
}  # fmt: skip
RC = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: the same picture on every machine
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.labelsize": "medium",
    "axes.titlesize": "medium",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.which": "major",
    "axes.unicode_minus": True,
    "grid.color": FAINT,
    **{f"{x}tick.color": SOFT for x in "xy"},
    **{f"{x}tick.labelcolor": INK for x in "xy"},
    **{f"{x}tick.labelsize": "small" for x in "xy"},
    "lines.solid_capstyle": "round",
    "legend.edgecolor": "none",
    "legend.facecolor": "white",
    "legend.fontsize": "small",
    "figure.dpi": 240,  # a figure of 7 inches is crisp in a column of 840 pixels on a screen with two dots for each
    "figure.facecolor": "white",
    "savefig.dpi": "figure",
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "fedlsa",  # names in a file do not change from day to day
}

_style: ContextVar[str] = ContextVar("style", default="notebook")


@contextmanager
def style(name: str) -> Iterator[None]:
    """Sizes of figures, text and lines for a "paper", a "slide" or a "notebook" (the default), inside a `with` block.

    It holds for our figures and for axes that you make yourself. A paper's figure is 5.5 inches wide, with text of at
    least 8 points; a slide's is 10 inches wide, with text of at least 13.

    >>> with fl.figures.style("slide"):
    ...     figure = fl.figures.exact_curves(
    ...         fl.theory.exact(fl.problems.garnet(agents=4, seed=1), fl.FedLSA(0.1, 10), rounds=20)
    ...     )
    >>> float(figure.get_figwidth())
    10.0
    """
    token = _style.set(checks.choice("style", name, STYLES))
    try:
        with matplotlib().rc_context(_sizes(name, False)):
            yield
    finally:
        _style.reset(token)


def _sizes(name: str, many: bool) -> dict[str, Any]:
    width, *text = STYLES[name]
    strokes = {key: points * text[many] / TEXT for key, points in STROKES.items()}
    return {**RC, **strokes, "font.size": text[many], "figure.figsize": (width, 0.6 * width)}


@contextmanager
def new_figure(width: float, many: bool = False) -> Iterator[tuple[float, float, float]]:
    """The style in force, for a figure of our own: its width, and how much higher and larger of text it is than one for
    a notebook, which is `width` inches wide. many : whether it has many panels"""
    name = _style.get()
    (wanted, *text), (usual, *base) = STYLES[name], STYLES["notebook"]
    with matplotlib().rc_context(_sizes(name, many)):
        yield width if name == "notebook" else wanted, wanted / usual, text[many] / base[many]


def stroke() -> float:
    """How much thicker lines and larger marks are, by matplotlib's settings at this moment."""
    return float(matplotlib().rcParams["lines.linewidth"]) / LINE


def text_size() -> float:
    """Points of ordinary text, by matplotlib's settings at this moment."""
    return float(matplotlib().rcParams["font.size"])


def matplotlib() -> Any:
    """The matplotlib package, or an error that says how to get it."""
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError:
        raise MissingExtraError("figures need matplotlib: pip install 'fedlsa[plot]'") from None
    return matplotlib


def colour(name: str, others: list[str]) -> str:
    """The colour of a method; methods from elsewhere take the free ones in the order of `others`."""
    return METHODS.get(name) or OTHERS[others.index(name) % len(OTHERS)]


def mix(colour: str, other: str, share: float) -> str:
    """A colour with a share of another one, both and the result as "#rrggbb"."""
    pairs = [(int(colour[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round((1 - share) * a + share * b):02x}" for a, b in pairs)


def shade(colour: str, step: int) -> str:
    """The colour, lighter by a quarter of the way to white for each step, three at most."""
    return mix(colour, "#ffffff", 0.25 * min(step, 3))
