"""Where the agents go: their paths within a round, in the plane in which their own solutions differ most."""

from __future__ import annotations

import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..engine.paths import Paths
from ..results import recipe
from . import agent_plane, theme
from .agent_plane import Box, Plane
from .drawing_checks import checked
from .label_placement import Placer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL, GAP, LEFT = 4.3, 0.12, 0.12  # width of a panel, space between two and at the edges, in inches
LETTERS = 16.5  # of a note in an inch
ARROW_LENGTH = 0.03  # inches of path that give an arrow its direction; a shorter path gets none


@checked
def agent_paths(*paths: Paths, round: int = 1, title: str | None = None) -> Figure:
    """The agents' paths within one round and the path of their average over all, a panel for each of `paths`.

    paths : from `fedlsa.engine.paths.round_paths`, all on one problem (FedLSA and SCAFFLSA, say)
    round : the round whose inside is shown, 1 for the first
    """
    runs = agent_plane.checked_paths(paths)
    round = checks.integer("round", round, at_least=1, at_most=min(p.rounds for p in runs))
    problem = runs[0].problem
    plane = agent_plane.plane_of(problem, [p.theta[0] for p in runs])
    matplotlib = theme.matplotlib()
    with matplotlib.rc_context(theme.RC):
        box = agent_plane.view_box(runs, plane, [round])
        wide, high = PANEL, PANEL * (box[3] - box[2]) / (box[1] - box[0])
        width = 2 * LEFT + wide * len(runs) + GAP * (len(runs) - 1)
        note = textwrap.wrap(agent_plane.caption(runs[0], plane, f"round {round}"), int(LETTERS * width))
        above, below = 0.92 if title else 0.5, 0.2 + 0.156 * len(note)
        height = high + above + below
        figure = matplotlib.figure.Figure(figsize=(width, height))
        colours = agent_plane.agent_colours(problem, plane)
        for i, p in enumerate(runs):
            corner = (LEFT + i * (wide + GAP)) / width, below / height
            axes = figure.add_axes((*corner, wide / width, high / height))
            _draw(axes, p, plane, round, colours, box, wide / (box[1] - box[0]))
        if title:
            figure.text(LEFT / width, 1 - 0.1 / height, title, fontsize=12.5, fontweight="bold", va="top")
        figure.text(LEFT / width, 0.1 / height, "\n".join(note), fontsize=8, color=theme.SOFT, linespacing=1.4)
        figure.set_label(recipe.text([_description(p, round) for p in runs]))
    return figure


def _description(p: Paths, round: int) -> dict[str, Any]:
    noise = {"noise": p.noise, "seed": p.seed}
    return {"method": repr(p.algorithm), "agents": p.problem.n_agents, "dim": p.problem.dim, "round": round, **noise}


def _draw(axes: Axes, p: Paths, plane: Plane, round: int, colours: list[Any], box: Box, inches: float) -> None:
    colour = agent_plane.method_colour(p)
    axes.set(xlim=box[:2], ylim=box[2:], xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="box")
    axes.spines[["left", "bottom", "top", "right"]].set(visible=True, color=theme.FAINT)
    _draw_agents(axes, p, plane, round, colours, inches)
    x, y = plane.project(p.theta).T
    axes.plot(x, y, color=colour, linewidth=2.2, zorder=6, label="average")
    axes.plot(x, y, "o", color=colour, markersize=4.2, markeredgecolor="white", markeredgewidth=0.7, zorder=7)
    axes.plot(x[round - 1], y[round - 1], "o", color="white", markersize=6, markeredgecolor=colour, markeredgewidth=1.8,
              zorder=8, label="round begins")  # fmt: skip
    axes.plot(
        x[round], y[round], "o", color=colour, markersize=7.5, markeredgecolor="white", zorder=8, label="round ends"
    )
    axes.plot(0, 0, "*", color=theme.INK, markersize=14, markeredgecolor="white", zorder=9, label="solution")
    end = agent_plane.fixed_point(p)
    if end is not None:
        axes.plot(*plane.project(end), "X", color=colour, markersize=9, markeredgecolor="white", zorder=9,
                  label="fixed point")  # fmt: skip
    _labels(axes, p, plane, round, colours, box, inches)
    above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(agent_plane.method_heading(p), (0, 1), (0, 17), color=colour, fontsize=11, fontweight="bold", **above)
    axes.annotate(agent_plane.round_summary(p, round), (0, 1), (0, 5), color=theme.INK, fontsize=8.2, **above)


@np.errstate(over="ignore", invalid="ignore")
def _draw_agents(axes: Axes, p: Paths, plane: Plane, round: int, colours: list[Any], inches: float) -> None:
    named = agent_plane.names_agents(p.problem)
    strength, width = (1.0, 1.5) if named else (0.55, 0.8)
    own = plane.project(p.problem.theta_star_local)
    local = plane.project(p.local[round - 1])
    for c, colour in enumerate(colours):
        axes.plot(*own[c], "o", color="white", markersize=6.5 if named else 4, markeredgecolor=colour,
                  markeredgewidth=1.5 if named else 0.9, zorder=3)  # fmt: skip
        axes.plot(*local[c].T, color=colour, linewidth=width, alpha=strength, zorder=4)
        head = local[c, -1]
        behind = np.flatnonzero(np.linalg.norm(local[c] - head, axis=1) > ARROW_LENGTH / inches)
        if len(behind):
            tail = local[c, behind[-1]]
            arrow = {"arrowstyle": "-|>", "color": colour, "lw": 0, "shrinkA": 0, "shrinkB": 0,
                     "mutation_scale": 11 if named else 7}  # fmt: skip
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
    names.label(axes, np.zeros(2), "θ*", theme.INK, 11, fontweight="bold")
    if end is not None:
        names.label(axes, plane.project(end), "fixed point\nθ* + bias", colour, fontweight="bold")
    names.label(axes, theta[0], "start", colour)
    if agent_plane.names_agents(problem):
        for c, colour in enumerate(colours):
            names.label(axes, own[c], f"agent {c + 1}", colour)
    else:
        outer = np.argsort(-np.nan_to_num(np.linalg.norm(own, axis=1)))[:8]
        names.label(axes, own[outer], "agents' own\nsolutions", theme.SOFT)
