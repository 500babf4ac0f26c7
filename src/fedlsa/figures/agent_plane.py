"""What every picture of the agents' paths shares: the plane, its limits, colours, and the words around a panel.

The plane passes through theta_star; its axes are the first two principal directions of theta_star_c - theta_star,
weighted as the agents are. Agents without a solution of their own have no say in it, but their paths are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from .. import checks, results, theory
from ..algorithms import Algorithm, FedLSA
from ..checks import Floats
from ..engine.paths import Paths
from ..errors import ArgumentError
from ..problems import Problem
from ..results import recipe
from ..sampling import IID, Sampling
from . import theme

# What theory says about a result: the drift, ||bias||^2, at which FedLSA must stall.


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
    return level(run["problem"], run["algorithm"], run["sampling"])


def level(p: Problem, a: Algorithm, sampling: Sampling) -> float:
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


MAX_NAMED_AGENTS = 6  # agents, or groups of equal ones, that get a colour and a name each
AGENT_COLOURS = ("#cc79a7", "#e69f00", "#56b4e9", "#009e73", "#8c6bb1", "#7f7f7f")
COLOUR_WHEEL = (
    "#b5508a",
    "#7b5fc0",
    "#3f8fd2",
    "#159a8c",
    "#6f9a1f",
    "#d99a00",
    "#d0663f",
    "#b5508a",
)  # a closed circle
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
    own = problem.theta_star_local
    has = np.isfinite(own).all(axis=1)
    X = np.sqrt(problem.weights[has])[:, None] * (own[has] - origin)
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


def names_agents(problem: Problem) -> bool:
    """Whether each agent can have a colour and a name of its own."""
    return problem.n_agents <= MAX_NAMED_AGENTS


def method_colour(p: Paths) -> str:
    """The colour of the method."""
    name = type(p.algorithm).__name__
    return theme.colour(name, [name])


def agent_colours(problem: Problem, plane: Plane) -> list[Any]:
    """A colour for each agent: of its group, if groups of equal agents are few, else by where its own solution lies."""
    if names_agents(problem):
        return list(AGENT_COLOURS[: problem.n_agents])
    _, group = np.unique(problem.assignment, return_inverse=True)
    if group.max() < MAX_NAMED_AGENTS:
        return [AGENT_COLOURS[g] for g in group]
    x, y = plane.project(problem.theta_star_local).T
    turn = np.nan_to_num(np.arctan2(y, x)) / (2 * np.pi) % 1
    wheel = theme.matplotlib().colors.LinearSegmentedColormap.from_list("directions", COLOUR_WHEEL)
    return [wheel(v) for v in turn]


@np.errstate(over="ignore", invalid="ignore")  # of a run that diverges
def view_box(runs: Sequence[Paths], plane: Plane, rounds: Sequence[int]) -> Box:
    """Limits that hold what matters in these rounds; what ran away, or lies very far out, does not shrink the rest."""
    own = plane.project(runs[0].problem.theta_star_local)
    own = own[np.isfinite(own).all(axis=1)]
    starts = np.array([plane.project(p.theta[0]) for p in runs])
    typical = float(np.median(np.linalg.norm(own, axis=1))) if len(own) else 0.0
    reach = max(MAX_REACH * typical, 1.2 * float(np.linalg.norm(starts, axis=1).max()), 1e-12)
    seen = [np.zeros((1, 2)), starts, own]
    for p in runs:
        inside = p.local[np.asarray(rounds) - 1]
        seen += [plane.project(p.theta), plane.project(inside).reshape(-1, 2)]
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


def caption(p: Paths, plane: Plane, when: str) -> str:
    """What is drawn. when : the agents' curves are"""
    curves = "Curve: the agent" if p.problem.n_agents == 1 else f"Curves: the {p.problem.n_agents} agents"
    text = f"Circles: own solutions.  {curves} during {when}.  Line with dots: their average, round after round."
    return f"{text}  {plane_words(plane)}".rstrip()


def plane_words(plane: Plane) -> str:
    """How much of the agents' differences the plane shows, where it may not be all."""
    if len(plane.origin) == 2 or math.isnan(plane.share):
        return ""
    return f"Plane: {100 * plane.share:.0f} % of how own solutions differ."
