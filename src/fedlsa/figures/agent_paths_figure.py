"""Where the agents go: their paths within a round, in the plane in which their own solutions differ most."""

from __future__ import annotations

import textwrap
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..engine.paths import Paths
from ..results import recipe
from . import agent_plane, theme
from .agent_plane import Box, Plane
from .drawing_checks import checked
from .matplotlib_figures import Drawn, given_axes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes


# Where a label beside a point stands best: close to it, clear of what is drawn, and inside the panel.

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


PANEL, GAP, LEFT = 3.32, 0.12, 0.12  # width of a panel, space between two and at the edges, in inches: two make 7
LETTERS = 16.5  # of a note in an inch
ARROW_LENGTH = 0.03  # inches of path that give an arrow its direction; a shorter path gets none


@checked
def agent_paths(
    *paths: Paths, round: int = 1, title: str | None = None, ax: Axes | Sequence[Axes] | None = None
) -> Drawn:
    """The agents' paths within one round and the path of their average over all, a panel for each of `paths`.

    paths : from `fedlsa.engine.paths.round_paths`, all on one problem (FedLSA and SCAFFLSA, say)
    round : the round whose inside is shown, 1 for the first
    """
    runs = agent_plane.checked_paths(paths)
    round = checks.integer("round", round, at_least=1, at_most=min(p.rounds for p in runs))
    problem = runs[0].problem
    plane = agent_plane.plane_of(problem, [p.theta[0] for p in runs])
    box, colours = agent_plane.view_box(runs, plane, [round]), agent_plane.agent_colours(problem, plane)
    caption = agent_plane.caption(runs[0], plane, f"round {round}")
    if not agent_plane.names_agents(problem) and any(agent_plane.fixed_point(p) is not None for p in runs):
        caption += "  Cross: fixed point, θ⋆ + bias."  # among many paths there is no room for its name
    if ax is not None:
        for axes, p in zip(given_axes(ax, (len(runs),), title), runs, strict=True):
            _draw(axes, p, plane, round, colours, box)
            axes.set_label(f"{agent_plane.round_summary(p, round)}\n{caption}")
            axes.set_title(title or agent_plane.method_heading(p), **({} if title else _heading_look(p)))
        return ax
    around = 2 * LEFT + GAP * (len(runs) - 1)
    with theme.new_figure(around + PANEL * len(runs)) as (width, _, em):
        wide = (width - around) / len(runs)
        high = wide * (box[3] - box[2]) / (box[1] - box[0])
        note = textwrap.wrap(caption, int(LETTERS * width / em))
        said = [agent_plane.round_summary(p, round) for p in runs]
        long = max(map(len, said)) > LETTERS * wide / em
        summaries = [words.replace(", ", ",\n").split("\n") if long else [words] for words in said]
        lines = max(map(len, summaries))
        above, below = em * (0.3 + 0.16 * lines + 0.36 * bool(title)), em * (0.2 + 0.156 * len(note))
        height = high + above + below
        figure = theme.matplotlib().figure.Figure(figsize=(width, height))
        for i, (p, summary) in enumerate(zip(runs, summaries, strict=True)):
            corner = (LEFT + i * (wide + GAP)) / width, below / height
            axes = figure.add_axes((*corner, wide / width, high / height))
            _draw(axes, p, plane, round, colours, box)
            axes.set_title(agent_plane.method_heading(p), loc="left", pad=em * (5.5 + 11.5 * lines), **_heading_look(p))
            axes.annotate("\n".join(summary), (0, 1), (0, 5 * em), xycoords="axes fraction",
                          textcoords="offset points", fontsize="small")  # fmt: skip
        if title:
            figure.text(LEFT / width, 1 - 0.1 / height, title, fontsize="large", fontweight="bold", va="top")
        figure.text(LEFT / width, 0.1 / height, "\n".join(note), fontsize="small", color=theme.SOFT, linespacing=1.4)
        figure.set_label(recipe.text([_description(p, round) for p in runs]))
    return figure


def _heading_look(p: Paths) -> dict[str, Any]:
    return {"color": agent_plane.method_colour(p), "fontweight": "bold"}


def _description(p: Paths, round: int) -> dict[str, Any]:
    noise = {"noise": p.noise, "seed": p.seed}
    return {"method": repr(p.algorithm), "agents": p.problem.n_agents, "dim": p.problem.dim, "round": round, **noise}


def _draw(axes: Axes, p: Paths, plane: Plane, round: int, colours: list[Any], box: Box) -> None:
    colour, larger = agent_plane.method_colour(p), theme.stroke()
    axes.set(xlim=box[:2], ylim=box[2:], xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="box")
    axes.spines[["left", "bottom", "top", "right"]].set(visible=True, color=theme.FAINT)
    area = axes.get_window_extent()
    inches = min(area.width / (box[1] - box[0]), area.height / (box[3] - box[2])) / axes.figure.dpi
    _draw_agents(axes, p, plane, round, colours, inches)
    x, y = plane.project(p.theta).T

    def mark(
        at: Any, shape: str, size: float, label: str, face: str = colour, edge: str = "white", **look: Any
    ) -> None:
        look = {"zorder": 8, "markeredgewidth": 1.0, **look}
        look["markeredgewidth"] *= larger
        axes.plot(*at, shape, color=face, markersize=larger * size, markeredgecolor=edge, label=label, **look)

    axes.plot(x, y, color=colour, linewidth=2.2 * larger, zorder=6, label="average")
    mark((x, y), "o", 4.2, "_", markeredgewidth=0.7, zorder=7)
    mark((x[round - 1], y[round - 1]), "o", 6, "round begins", "white", colour, markeredgewidth=1.8)
    mark((x[round], y[round]), "o", 7.5, "round ends")
    mark((0, 0), "*", 14, "solution", theme.INK, zorder=9)
    end = agent_plane.fixed_point(p)
    if end is not None:
        mark(plane.project(end), "X", 9, "fixed point", zorder=9)
    _labels(axes, p, plane, round, colours, box, inches)


@np.errstate(over="ignore", invalid="ignore")
def _draw_agents(axes: Axes, p: Paths, plane: Plane, round: int, colours: list[Any], inches: float) -> None:
    named = agent_plane.names_agents(p.problem)
    larger = theme.stroke()
    strength, width = (1.0, 1.5 * larger) if named else (0.55, 0.8 * larger)
    own = plane.project(p.problem.theta_star_local)
    local = plane.project(p.local[round - 1])
    for c, colour in enumerate(colours):
        axes.plot(*own[c], "o", color="white", markersize=larger * (6.5 if named else 4), markeredgecolor=colour,
                  markeredgewidth=larger * (1.5 if named else 0.9), zorder=3)  # fmt: skip
        axes.plot(*local[c].T, color=colour, linewidth=width, alpha=strength, zorder=4)
        head = local[c, -1]
        behind = np.flatnonzero(np.linalg.norm(local[c] - head, axis=1) > ARROW_LENGTH / inches)
        if len(behind):
            tail = local[c, behind[-1]]
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 0, "shrinkA": 0, "shrinkB": 0,
                     "mutation_scale": larger * (11 if named else 7)}  # fmt: skip
            axes.annotate("", head, tail, arrowprops=arrow, zorder=5)


def _labels(axes: Axes, p: Paths, plane: Plane, round: int, colours: list[Any], box: Box, inches: float) -> None:
    """Names beside what is drawn, each once."""
    problem, colour = p.problem, agent_plane.method_colour(p)
    own, theta = plane.project(problem.theta_star_local), plane.project(p.theta)
    line = np.concatenate([np.linspace(a, b, 12) for a, b in pairwise(theta)])
    local = plane.project(p.local[round - 1]).reshape(-1, 2)
    end = agent_plane.fixed_point(p)
    marks = [np.zeros((1, 2)), *([] if end is None else [plane.project(end)[None]])]
    names = Placer(box, inches, np.concatenate([own, line, local, *marks]))
    names.label(axes, np.zeros(2), "θ⋆", theme.INK, 1.2, fontweight="bold")
    named = agent_plane.names_agents(problem)
    if end is not None and named:
        names.label(axes, plane.project(end), "fixed point\nθ⋆ + bias", colour, fontweight="bold")
    names.label(axes, theta[0], "start", colour)
    for c, hue in enumerate(colours if named else ()):
        names.label(axes, own[c], f"agent {c + 1}", hue)
