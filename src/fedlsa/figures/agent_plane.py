"""Where the agents go: their paths within a round, in the plane in which their own solutions differ most.

The plane passes through theta_star; its axes are the first two principal directions of theta_star_c - theta_star,
weighted as the agents are. Agents without a solution of their own have no say in it, but their paths are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks, results, theory
from ..algorithms import Algorithm, FedLSA
from ..checks import Floats
from ..engine.paths import Paths
from ..errors import ArgumentError
from ..problems import Problem
from ..results import recipe
from ..sampling import IID, Sampling
from . import theme
from .lines import Chart, ChartRows, Line
from .matplotlib_figures import Drawn, draw_charts, drawing_options

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes


def predicted_bias(result: xr.Dataset, problem: Problem | None = None) -> float:
    """||bias||^2 of FedLSA (th:2nd_moment_no_cv) for the setting of a result; NaN where the theorem does not speak.

    It speaks of FedLSA with a constant step and independent observations whose mean recursion is stable; agents that
    do not take part do not change the mean as long as all weigh the same.
    problem : needed only if the result cannot hold it
    """
    recipe.require_result("result", result)
    try:
        run = results.arguments(result, problem=problem)
    except ArgumentError:
        if problem is not None:
            raise
        return math.nan  # a large problem, or a method from elsewhere
    return squared_bias(run["problem"], run["algorithm"], run["sampling"])


def squared_bias(p: Problem, a: Algorithm, sampling: Sampling) -> float:
    """||bias||^2 of a method on a problem, NaN where the theorem does not speak."""
    bias = limit_bias(p, a) if isinstance(sampling, IID) else None
    return math.nan if bias is None else float(bias @ bias)


def limit_bias(p: Problem, a: Algorithm) -> Floats | None:
    """The limit bias (d,) of FedLSA with independent observations; None where the theorem does not speak."""
    if not isinstance(a, FedLSA) or not isinstance(a.step_size, float) or a.projection is not None:
        return None
    try:
        return theory.bias(p, a.step_size, a.local_steps)
    except ArgumentError:  # the recursion has no limit
        return None


PANEL = 3.5  # inches, of a panel: two are as wide as a page
MAX_NAMED_AGENTS = 6  # agents, or groups of equal ones, that get a colour and a name each
AGENT_COLOURS = ("#cc79a7", "#e69f00", "#56b4e9", "#009e73", "#8c6bb1", "#7f7f7f")
COLOUR_WHEEL = ("#b5508a", "#7b5fc0", "#3f8fd2", "#159a8c", "#6f9a1f", "#d99a00", "#d0663f", "#b5508a")  # closed
MAX_REACH = 2.5  # times the typical distance from theta_star: what lies further out may leave the picture

Box = tuple[float, float, float, float]  # left, right, bottom, top


@dataclass(frozen=True, eq=False)
class Plane:
    """origin : (d,), theta_star; axes : (2, d), orthonormal; share : of the weighted variation of the agents' own
    solutions around theta_star that the two axes show (not a number where the solutions do not differ)."""

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
    solutions = problem.theta_star_local
    has = np.isfinite(solutions).all(axis=1)
    X = np.sqrt(problem.weights[has])[:, None] * (solutions[has] - origin)
    _, s, Vt = np.linalg.svd(X, full_matrices=False) if len(X) else (None, np.zeros(0), np.zeros((0, d)))
    size = float(np.linalg.norm(origin)) + 1
    kept = [v for v, length in zip(Vt[:2], s[:2], strict=True) if length > 1e-10 * size]
    total = float(np.sum(s**2))
    share = float(np.sum(s[:2] ** 2)) / total if kept else math.nan
    for candidate in (*(np.asarray(p) - origin for p in towards), *np.eye(d)):
        if len(kept) == 2:
            break
        left = candidate - sum((v @ candidate) * v for v in kept)
        length = float(np.linalg.norm(left))
        if length > 1e-8 * max(float(np.linalg.norm(candidate)), 1e-300):
            kept.append(left / length)
    axes = np.stack([v * np.sign(v[np.argmax(np.abs(v))]) for v in kept])  # a singular vector has no sign of its own
    return Plane(origin, axes, share)


def checked_paths(paths: Sequence[Paths]) -> list[Paths]:
    """The runs of one picture, all on one problem."""
    if not paths:
        raise ArgumentError("paths must hold at least one run of round_paths; got none")
    for p in paths:
        checks.instance("paths", p, Paths, "what round_paths returns")
        if p.problem is not paths[0].problem:
            raise ArgumentError("paths must all be on the same problem; got different ones")
    return list(paths)


def fixed_point(p: Paths) -> Floats | None:
    """theta_star + bias (th:2nd_moment_no_cv), where FedLSA ends : (d,); None where the theorem does not speak."""
    if p.algorithm.taking_part(p.problem.n_agents) < p.problem.n_agents:
        return None
    bias = limit_bias(p.problem, p.algorithm)
    return None if bias is None else np.asarray(p.problem.theta_star + bias, np.float64)


def agent_colours(problem: Problem, plane: Plane) -> list[str]:
    """A colour for each agent: of its group, if groups of equal agents are few, else by where its own solution lies."""
    if problem.n_agents <= MAX_NAMED_AGENTS:
        return list(AGENT_COLOURS[: problem.n_agents])
    _, group = np.unique(problem.assignment, return_inverse=True)
    if group.max() < MAX_NAMED_AGENTS:
        return [AGENT_COLOURS[g] for g in group]
    x, y = plane.project(problem.theta_star_local).T
    angle = np.nan_to_num(np.arctan2(y, x)) / (2 * np.pi) % 1
    colors = theme.matplotlib().colors
    wheel = colors.LinearSegmentedColormap.from_list("directions", COLOUR_WHEEL)
    return [colors.to_hex(wheel(v)) for v in angle]


@np.errstate(over="ignore", invalid="ignore")  # of a run that diverges
def view_box(runs: Sequence[Paths], plane: Plane, rounds: Sequence[int]) -> Box:
    """Limits that hold what matters in these rounds; what ran away, or lies very far out, does not shrink the rest."""
    solutions = plane.project(runs[0].problem.theta_star_local)
    solutions = solutions[np.isfinite(solutions).all(axis=1)]
    starts = np.array([plane.project(p.theta[0]) for p in runs])
    typical = float(np.median(np.linalg.norm(solutions, axis=1))) if len(solutions) else 0.0
    reach = max(MAX_REACH * typical, 1.2 * float(np.linalg.norm(starts, axis=1).max()), 1e-12)
    drawn = [np.zeros((1, 2)), starts, solutions]
    for p in runs:
        inside = p.local[np.asarray(rounds) - 1]
        drawn += [plane.project(p.theta), plane.project(inside).reshape(-1, 2)]
        end = fixed_point(p)
        if end is not None:
            drawn.append(plane.project(end)[None])
    points = np.concatenate(drawn)
    points = points[np.abs(points).max(axis=1) <= reach]  # NaN is not
    low, high = points.min(axis=0), points.max(axis=0)
    width, height = (high - low) * 1.2
    width = max(width, height / 1.1) or 1.0  # neither a tower
    height = max(height, 0.6 * width)  # nor a strip
    x, y = (low + high) / 2
    return float(x - width / 2), float(x + width / 2), float(y - height / 2), float(y + height / 2)


@np.errstate(over="ignore", invalid="ignore")  # of a run that diverges
def round_summary(p: Paths, round: int) -> str:
    """What the round did, in numbers: how far agents ended from their average, and it from theta_star."""
    theta_hat, w = p.local[round - 1, :, -1], p.problem.weights
    active = ~np.isnan(p.local[round - 1, :, 0, 0])
    share = w[active] / w[active].sum()
    spread = share @ np.linalg.norm(theta_hat[active] - share @ theta_hat[active], axis=1)
    error = np.linalg.norm(p.theta[round] - p.problem.theta_star)
    return f"round {round}: agents end {spread:.2g} from their average, which is {error:.2g} from θ⋆"


def method_heading(p: Paths) -> str:
    """The method with its step size and the length of its rounds."""
    a = p.algorithm
    steps, probability = getattr(a, "local_steps", None), getattr(a, "probability", None)
    inside = [f"η = {a.step_size:g}"] if isinstance(a.step_size, float) else []
    inside += [f"H = {steps}"] if steps is not None else [f"p = {probability:g}"] if probability is not None else []
    return f"{type(a).__name__}  ({', '.join(inside)})" if inside else type(a).__name__


def plane_words(plane: Plane) -> str:
    """How much of the agents' differences the plane shows, where it may not be all."""
    if len(plane.origin) == 2 or math.isnan(plane.share):
        return ""
    return f"Plane: {100 * plane.share:.0f} % of how own solutions differ."


ARROW_LENGTH = 0.01  # of a panel's width: path that gives an arrow its direction; a shorter path gets none


def agent_paths(
    *paths: Paths,
    round: int = 1,
    title: str | None = None,
    legend: bool = True,
    ax: Axes | Sequence[Axes] | None = None,
) -> Drawn:
    """The agents' paths within one round and the path of their average over all, a panel for each of `paths`.

    paths : from `fedlsa.engine.paths.round_paths`, all on one problem (FedLSA and SCAFFLSA, say)
    round : the round whose inside is shown, 1 for the first
    """
    look = drawing_options(title, legend, ax)
    runs = checked_paths(paths)
    round = checks.integer("round", round, at_least=1, at_most=min(p.rounds for p in runs))
    problem = runs[0].problem
    plane = plane_of(problem, [p.theta[0] for p in runs])
    box, colours = view_box(runs, plane, [round]), agent_colours(problem, plane)
    charts = [_chart(p, plane, round, colours, box) for p in runs]
    who = "the agent" if problem.n_agents == 1 else f"the {problem.n_agents} agents"
    words = f"Circles: own solutions.  Arrows: {who} during round {round}.  {plane_words(plane)}".rstrip()
    notes = [*(f"{type(p.algorithm).__name__}, {round_summary(p, round)}." for p in runs), words]
    facts = {"agents": problem.n_agents, "dim": problem.dim, "round": round}
    panel = PANEL, 0.25 + (PANEL - 0.15) * (box[3] - box[2]) / (box[1] - box[0])
    about = [facts | {"method": repr(p.algorithm), "noise": p.noise, "seed": p.seed} for p in runs]
    return draw_charts(ChartRows([charts], notes, panel), description=recipe.text(about), **look)


@np.errstate(over="ignore", invalid="ignore")  # of a run that diverges
def _chart(p: Paths, plane: Plane, round: int, colours: Sequence[str], box: Box) -> Chart:
    """One method in the plane, with nothing on the axes: their units are those of theta in two directions."""
    name = type(p.algorithm).__name__
    colour, few = theme.colour(name, [name]), p.problem.n_agents <= MAX_NAMED_AGENTS
    solutions, local = plane.project(p.problem.theta_star_local), plane.project(p.local[round - 1])
    lines = []
    for c, hue in enumerate(colours):
        label = f"agent {c + 1}" if few else "agents"
        size = {} if few else {"size": 4.0}
        lines.append(_point(solutions[c], label, hue, "own solution", **size))
        lines.append(_path(local[c], "", hue, "path" if few else "thin path"))
        far = np.flatnonzero(np.linalg.norm(local[c] - local[c, -1], axis=1) > ARROW_LENGTH * (box[1] - box[0]))
        if len(far):
            lines.append(_path(local[c, [far[-1], -1]], "", hue, "arrow"))
    theta = plane.project(p.theta)
    lines.append(_path(theta, "average", colour, "average"))
    lines.append(_point(theta[0], "start", colour, "point", marker="square", size=5.5))
    lines.append(_point(theta[round - 1], "round begins", colour, "open point"))
    lines.append(_point(theta[round], "round ends", colour, "point"))
    lines.append(_point(np.zeros(2), "θ⋆", theme.INK, "point", marker="star", size=13.0))
    end = fixed_point(p)
    if end is not None:
        style: dict[str, Any] = {"marker": "filled cross", "size": 9.0}
        lines.append(_point(plane.project(end), "fixed point θ⋆ + bias", colour, "point", **style))
    scales: dict[str, Any] = {"x_scale": "linear", "y_scale": "linear", "x_limits": box[:2], "limits": box[2:]}
    return Chart(lines, "", "", method_heading(p), title_colour=colour, plane=True, **scales)


def _path(points: Floats, label: str, colour: str, role: str) -> Line:
    return Line(points[:, 0], points[:, 1], label, colour, role)


def _point(at: Floats, label: str, colour: str, role: str, **style: Any) -> Line:
    return Line(at[:1], at[1:], label, colour, role, **style)
