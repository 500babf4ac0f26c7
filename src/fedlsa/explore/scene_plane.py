"""Where the agents go, as the JSON that scene.js draws (its first lines describe it)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..engine.paths import Paths
from ..figures import agent_plane
from ..problems import Problem

FINE = 20_000  # a walk is sent to this part of the picture's width: finer than a pixel, zoomed in as well
DRAWN_WIDTHS = 30.0  # of the picture: what ran further is drawn there, in its direction
MEANS = "Paths are means over the noise: a noisy run scatters about them."
UNSTABLE = "unstable: the noise grows without limit. Only the means are shown"


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of a run that diverges
def plane_data(
    paths: Sequence[Paths], names: Sequence[str], stable: Mapping[str, bool], unmoved: Problem | None = None
) -> dict[str, Any]:
    """Where the agents go, in the plane through theta_star in which their own solutions differ most.

    paths : runs of `fedlsa.engine.paths.round_paths` on one problem; names : of the N agents
    stable : by method, whether second moments have a limit; where they have none, no end is marked
    unmoved : the problem before a reader moved solutions, whose plane stays where it is
    """
    runs = agent_plane.checked_paths(paths)
    problem = runs[0].problem
    plane = agent_plane.plane_of(problem if unmoved is None else unmoved, [p.theta[0] for p in runs])
    box = agent_plane.view_box(runs, plane, range(1, min(p.rounds for p in runs) + 1))
    width = box[1] - box[0]
    digits = max(0, math.ceil(math.log10(FINE / width)))

    def in_picture(theta: Floats, digits: int) -> Any:
        xy = plane.project(theta)
        far = np.max(np.abs(xy), axis=-1, keepdims=True)
        xy = np.where(far > DRAWN_WIDTHS * width, xy * (DRAWN_WIDTHS * width / far), xy)
        return finite_lists(np.round(xy, digits))

    methods = []
    for p in runs:
        name, end = type(p.algorithm).__name__, agent_plane.fixed_point(p)
        shown = {"name": name, "average": in_picture(p.theta, 12), "walks": _flat(in_picture(p.local, digits))}
        if not stable.get(name, True):
            shown |= {"end": None, "end_reason": UNSTABLE}
        elif end is not None:
            shown["end"] = in_picture(end, 12)
        methods.append(shown)
    own = finite_lists(np.round(plane.project(problem.theta_star_local), 12))
    each = zip(names, own, problem.weights.tolist(), strict=True)
    agents = [{"name": name, "own": None if None in xy else xy, "weight": w} for name, xy, w in each]
    said = f"{MEANS} {agent_plane.plane_words(plane)}".rstrip()
    star = finite_lists(np.round(plane.project(problem.theta_star), 12))
    axes = plane.axes.tolist()  # by which a move in the picture is one of a solution
    return {"theta_star": star, "axes": axes, "agents": agents, "methods": methods, "caption": said}


def finite_lists(xy: Floats) -> Any:
    """Numbers as lists; JSON has no others than finite ones."""
    values: NDArray[np.object_] = xy.astype(object)
    values[~np.isfinite(xy)] = None
    return values.tolist()


def _flat(walks: Any) -> Any:
    """(T, N, points, 2) as flat lists of coordinates, (T, N, 2 points)."""
    return [[[v for point in walk for v in point] for walk in each] for each in walks]
