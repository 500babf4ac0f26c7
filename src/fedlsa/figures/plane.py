"""Where the agents go: their paths within a round, in the plane in which their own solutions differ most.

The plane passes through theta_star; its axes are the first two principal directions of theta_star_c - theta_star,
weighted as the agents are. Agents without a solution of their own have no say in it, but their paths are drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks, theory
from ..algorithms import FedLSA
from ..checks import Floats
from ..engine.paths import Paths
from ..errors import ArgumentError, TheoryWarning
from ..problems import Problem
from ..results import recipe
from . import style
from .placing import Placer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL, GAP = 4.3, 0.12  # width of a panel and space between two, in inches
ARROW = 0.03  # inches of path that give an arrow its direction; a shorter path gets none
FEW = 6  # agents, or groups of equal ones, that get a hue each and a name
HUES = ("#cc79a7", "#e69f00", "#56b4e9", "#009e73", "#8c6bb1", "#7f7f7f")
WHEEL = ("#b5508a", "#7b5fc0", "#3f8fd2", "#159a8c", "#6f9a1f", "#d99a00", "#d0663f", "#b5508a")  # a closed circle
FAR = 2.5  # times the typical distance from theta_star: what lies further out may leave the picture

Box = tuple[float, float, float, float]  # left, right, bottom, top


@dataclass(frozen=True, eq=False)
class Plane:
    """origin : (d,), theta_star; axes : (2, d), orthonormal; share : of the weighted variation of the agents' own
    solutions around theta_star that the two axes show (1 where the solutions do not differ)."""

    origin: Floats
    axes: Floats
    share: float

    def project(self, theta: Floats) -> Floats:
        """Coordinates (..., 2) of points (..., d) in the plane."""
        return np.asarray((theta - self.origin) @ self.axes.T, np.float64)


def plane_of(problem: Problem, towards: Iterable[Floats] = ()) -> Plane:
    """The plane of theta_star and the agents' own solutions.

    towards : points (d,) whose directions from theta_star fill up the axes where own solutions span less than a plane
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    d, origin = problem.dim, problem.theta_star
    if d < 2:
        raise ArgumentError(f"problem must have at least 2 dimensions to be seen in a plane; got {d}")
    own = problem.theta_star_local
    has = np.isfinite(own).all(axis=1)
    X = np.sqrt(problem.weights[has])[:, None] * (own[has] - origin)
    _, s, Vt = np.linalg.svd(X, full_matrices=False) if len(X) else (None, np.zeros(0), np.zeros((0, d)))
    size = float(np.linalg.norm(origin)) + 1
    kept = [v for v, length in zip(Vt[:2], s[:2], strict=True) if length > 1e-10 * size]
    total = float(np.sum(s**2))
    share = float(np.sum(s[:2] ** 2)) / total if kept else 1.0
    for candidate in (*(np.asarray(p) - origin for p in towards), *np.eye(d)):
        if len(kept) == 2:
            break
        left = candidate - sum((v @ candidate) * v for v in kept)
        length = float(np.linalg.norm(left))
        if length > 1e-8 * max(float(np.linalg.norm(candidate)), 1e-300):
            kept.append(left / length)
    axes = np.stack([v * np.sign(v[np.argmax(np.abs(v))]) for v in kept])  # a singular vector has no sign of its own
    return Plane(origin, axes, share)


def agent_paths(*paths: Paths, round: int = 1, title: str | None = None) -> Figure:
    """The agents' paths within one round and the path of their average over all, a panel for each of `paths`.

    paths : from `fedlsa.engine.paths.round_paths`, all on one problem (FedLSA and SCAFFLSA, say)
    round : the round whose inside is shown, 1 for the first
    """
    held = _checked(paths)
    round = checks.integer("round", round, at_least=1, at_most=min(p.rounds for p in held))
    problem = held[0].problem
    plane = plane_of(problem, [p.theta[0] for p in held])
    matplotlib = style.matplotlib()
    with matplotlib.rc_context(style.RC):
        box = _box(held, plane, round)
        wide, high = PANEL, PANEL * (box[3] - box[2]) / (box[1] - box[0])
        above, below, left = 0.92 if title else 0.5, 0.36, 0.12
        width, height = 2 * left + wide * len(held) + GAP * (len(held) - 1), high + above + below
        figure = matplotlib.figure.Figure(figsize=(width, height))
        hues = _hues(problem, plane)
        for i, p in enumerate(held):
            corner = (left + i * (wide + GAP)) / width, below / height
            axes = figure.add_axes((*corner, wide / width, high / height))
            _draw(axes, p, plane, round, hues, box, wide / (box[1] - box[0]))
        if title:
            figure.text(left / width, 1 - 0.1 / height, title, fontsize=12.5, fontweight="bold", va="top")
        figure.text(left / width, 0.13 / height, _note(held[0], plane, round), fontsize=8, color=style.SOFT)
        figure.set_label(recipe.text([_description(p, round) for p in held]))
    return figure


def _checked(paths: tuple[Paths, ...]) -> list[Paths]:
    if not paths:
        raise ArgumentError("paths must hold at least one run of round_paths; got none")
    for p in paths:
        checks.instance("paths", p, Paths, "what round_paths returns")
        if p.problem is not paths[0].problem:
            raise ArgumentError("paths must all be on the same problem; got different ones")
    return list(paths)


def _description(p: Paths, round: int) -> dict[str, Any]:
    noise = {"noise": p.noise, "seed": p.seed}
    return {"method": repr(p.algorithm), "agents": p.problem.n_agents, "dim": p.problem.dim, "round": round, **noise}


def _note(p: Paths, plane: Plane, round: int) -> str:
    curves = "Curve: the agent" if p.problem.n_agents == 1 else f"Curves: the {p.problem.n_agents} agents"
    note = f"Circles: own solutions.  {curves} during round {round}.  Line with dots: their average, round after round."
    if p.problem.dim > 2:
        note += f"  Plane: {100 * plane.share:.0f} % of how own solutions differ."
    return note


def fixed_point(p: Paths) -> Floats | None:
    """theta_star + bias (th:2nd_moment_no_cv), where FedLSA ends : (d,); None where the theorem does not speak."""
    a, problem = p.algorithm, p.problem
    if not isinstance(a, FedLSA) or not isinstance(a.step_size, float) or a.projection is not None:
        return None
    if a.participants(problem.n_agents) < problem.n_agents:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error", TheoryWarning)
        try:
            return np.asarray(problem.theta_star + theory.bias(problem, a.step_size, a.local_steps), np.float64)
        except TheoryWarning:
            return None


def _few(problem: Problem) -> bool:
    """Whether each agent can have a hue and a name of its own."""
    return problem.n_agents <= FEW


def _hue(p: Paths) -> str:
    name = type(p.algorithm).__name__
    return style.colour(name, [name])


def _hues(problem: Problem, plane: Plane) -> list[Any]:
    """A colour for each agent: of its group, if groups of equal agents are few, else by where its own solution lies."""
    if _few(problem):
        return list(HUES[: problem.n_agents])
    _, group = np.unique(problem.assignment, return_inverse=True)
    if group.max() < FEW:
        return [HUES[g] for g in group]
    x, y = plane.project(problem.theta_star_local).T
    turn = np.nan_to_num(np.arctan2(y, x)) / (2 * np.pi) % 1
    wheel = style.matplotlib().colors.LinearSegmentedColormap.from_list("directions", WHEEL)
    return [wheel(v) for v in turn]


def _box(held: list[Paths], plane: Plane, round: int) -> Box:
    """Limits that hold what matters; what ran away, or an own solution very far out, does not shrink the rest."""
    own = plane.project(held[0].problem.theta_star_local)
    own = own[np.isfinite(own).all(axis=1)]
    starts = np.array([plane.project(p.theta[0]) for p in held])
    typical = float(np.median(np.linalg.norm(own, axis=1))) if len(own) else 0.0
    reach = max(FAR * typical, 1.2 * float(np.linalg.norm(starts, axis=1).max()), 1e-12)
    seen = [np.zeros((1, 2)), own, starts]
    for p in held:
        seen += [plane.project(p.theta), plane.project(p.local[round - 1]).reshape(-1, 2)]
        end = fixed_point(p)
        if end is not None:
            seen.append(plane.project(end)[None])
    points = np.concatenate(seen)
    points = points[np.abs(points).max(axis=1) <= reach]  # NaN is not
    low, high = points.min(axis=0), points.max(axis=0)
    width, height = (high - low) * 1.2
    width = max(width, height / 1.1) or 1.0  # neither a tower
    height = max(height, 0.6 * width)  # nor a strip
    x, y = (low + high) / 2
    return float(x - width / 2), float(x + width / 2), float(y - height / 2), float(y + height / 2)


def _draw(axes: Axes, p: Paths, plane: Plane, round: int, hues: list[Any], box: Box, inches: float) -> None:
    hue = _hue(p)
    axes.set(xlim=box[:2], ylim=box[2:], xticks=[], yticks=[])
    axes.set_aspect("equal", adjustable="box")
    axes.spines[["left", "bottom", "top", "right"]].set(visible=True, color=style.FAINT)
    _draw_agents(axes, p, plane, round, hues, inches)
    x, y = plane.project(p.theta).T
    axes.plot(x, y, color=hue, linewidth=2.2, zorder=6, label="average")
    axes.plot(x, y, "o", color=hue, markersize=4.2, markeredgecolor="white", markeredgewidth=0.7, zorder=7)
    axes.plot(x[round - 1], y[round - 1], "o", color="white", markersize=6, markeredgecolor=hue, markeredgewidth=1.8,
              zorder=8, label="round begins")  # fmt: skip
    axes.plot(x[round], y[round], "o", color=hue, markersize=7.5, markeredgecolor="white", zorder=8, label="round ends")
    axes.plot(0, 0, "*", color=style.INK, markersize=14, markeredgecolor="white", zorder=9, label="solution")
    end = fixed_point(p)
    if end is not None:
        axes.plot(*plane.project(end), "X", color=hue, markersize=9, markeredgecolor="white", zorder=9,
                  label="fixed point")  # fmt: skip
    _labels(axes, p, plane, round, hues, box, inches)
    above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(_heading(p), (0, 1), (0, 17), color=hue, fontsize=11, fontweight="bold", **above)
    axes.annotate(_numbers(p, round), (0, 1), (0, 5), color=style.INK, fontsize=8.2, **above)


@np.errstate(over="ignore", invalid="ignore")
def _draw_agents(axes: Axes, p: Paths, plane: Plane, round: int, hues: list[Any], inches: float) -> None:
    few = _few(p.problem)
    strength, width = (1.0, 1.5) if few else (0.55, 0.8)
    own = plane.project(p.problem.theta_star_local)
    local = plane.project(p.local[round - 1])
    for c, hue in enumerate(hues):
        axes.plot(*own[c], "o", color="white", markersize=6.5 if few else 4, markeredgecolor=hue,
                  markeredgewidth=1.5 if few else 0.9, zorder=3)  # fmt: skip
        axes.plot(*local[c].T, color=hue, linewidth=width, alpha=strength, zorder=4)
        head = local[c, -1]
        behind = np.flatnonzero(np.linalg.norm(local[c] - head, axis=1) > ARROW / inches)
        if len(behind):
            tail = local[c, behind[-1]]
            arrow = {"arrowstyle": "-|>", "color": hue, "lw": 0, "shrinkA": 0, "shrinkB": 0,
                     "mutation_scale": 11 if few else 7}  # fmt: skip
            axes.annotate("", head, tail, arrowprops=arrow, zorder=5)


def _labels(axes: Axes, p: Paths, plane: Plane, round: int, hues: list[Any], box: Box, inches: float) -> None:
    """Names beside what is drawn, each once."""
    problem, hue = p.problem, _hue(p)
    own, theta = plane.project(problem.theta_star_local), plane.project(p.theta)
    line = np.concatenate([np.linspace(a, b, 12) for a, b in pairwise(theta)])
    local = plane.project(p.local[round - 1]).reshape(-1, 2)
    end = fixed_point(p)
    marks = [np.zeros((1, 2)), *([] if end is None else [plane.project(end)[None]])]
    names = Placer(axes, box, inches, np.concatenate([own, line, local, *marks]))
    names.label(np.zeros(2), "θ*", style.INK, 11, fontweight="bold")
    if end is not None:
        names.label(plane.project(end), "fixed point\nθ* + bias", hue, fontweight="bold")
    names.label(theta[0], "start", hue)
    if _few(problem):
        for c, colour in enumerate(hues):
            names.label(own[c], f"agent {c + 1}", colour)
    else:
        outer = np.argsort(-np.nan_to_num(np.linalg.norm(own, axis=1)))[:8]
        names.label(own[outer], "agents' own\nsolutions", style.SOFT)


@np.errstate(over="ignore", invalid="ignore")  # of a run that diverges
def _numbers(p: Paths, round: int) -> str:
    """What the round did, in numbers: how far agents ended from their average, and it from theta_star."""
    theta_hat, w = p.local[round - 1, :, -1], p.problem.weights
    active = ~np.isnan(p.local[round - 1, :, 0, 0])
    share = w[active] / w[active].sum()
    spread = share @ np.linalg.norm(theta_hat[active] - share @ theta_hat[active], axis=1)
    error = np.linalg.norm(p.theta[round] - p.problem.theta_star)
    return f"round {round}: agents end {spread:.2g} from their average, which is {error:.2g} from θ*"


def _heading(p: Paths) -> str:
    a = p.algorithm
    steps, probability = getattr(a, "local_steps", None), getattr(a, "probability", None)
    inside = [f"η = {a.step_size:g}"] if isinstance(a.step_size, float) else []
    inside += [f"H = {steps}"] if steps is not None else [f"p = {probability:g}"] if probability is not None else []
    return f"{type(a).__name__}  ({', '.join(inside)})" if inside else type(a).__name__
