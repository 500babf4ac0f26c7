"""One panel of the picture of the agents' paths, as plain Plotly dictionaries: its traces, moment by moment, and names.

Traces keep their places: a moment gives new coordinates to those that move, in the order of `AgentPanel.traces`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..engine.paths import Paths, uncorrected
from ..figures import agent_plane, theme
from ..figures.agent_plane import Box, Plane
from ..figures.label_placement import Placer

Json = dict[str, Any]
DRAWN_WIDTHS = 30.0  # widths of the box: what ran further is drawn there, in its direction
EDGE_INSET = 0.03  # of the box's width: how far inside it marks stand for what lies outside
SAME_PLACE = 4.0  # pixels: points as close as this count as one where names look for room
COLOURS = 12  # for directions, so that many agents need few traces


class AgentPanel:
    """What one method's panel shows of a run, in the plane.

    keep : the points of a round that are drawn; axis : its number, as Plotly counts
    own : (N, 2), at the edge if out of sight; own_far : (N,), from theta_star; out : (N,), whether out of sight
    theta : (T + 1, 2); local : (T, N, points + 1, 2); far : (T, N, points + 1), from theta_star
    groups : agents of one colour; free : (T, groups, points + 1, 2), their mean path without control variates
    end : (2,), where FedLSA ends
    """

    @np.errstate(over="ignore", invalid="ignore")  # of a run that diverges
    def __init__(self, p: Paths, plane: Plane, box: Box, keep: Sequence[int], axis: str) -> None:
        problem, to_hex = p.problem, theme.matplotlib().colors.to_hex
        limit = DRAWN_WIDTHS * (box[1] - box[0])

        def seen(theta: Floats) -> Floats:
            xy = plane.project(theta)
            far = np.max(np.abs(xy), axis=-1, keepdims=True)
            return np.where(far > limit, xy * (limit / far), xy)

        self.name, self.colour, self.axis = type(p.algorithm).__name__, agent_plane.method_colour(p), axis
        self.named = agent_plane.names_agents(problem)
        self.colours = [to_hex(c) for c in agent_plane.agent_colours(problem, plane, COLOURS)]
        self.groups = [[c for c, one in enumerate(self.colours) if one == each] for each in dict.fromkeys(self.colours)]
        self.own, self.out = _at_edge(plane.project(problem.theta_star_local), box)
        self.own_far = np.linalg.norm(problem.theta_star_local - problem.theta_star, axis=-1)
        local, end = p.local[:, :, keep], agent_plane.fixed_point(p)
        self.theta, self.local = seen(p.theta), seen(local)
        self.far = np.linalg.norm(local - problem.theta_star, axis=-1)
        self.end = None if end is None else plane.project(end)
        self.free: Floats | None = None
        corrected = not p.noise and np.any(np.nan_to_num(p.xi[:-1]))
        if len(self.groups) <= agent_plane.MAX_NAMED_AGENTS and corrected:
            alone = uncorrected(p)[:, :, keep]
            self.free = seen(np.stack([np.mean(alone[:, g], axis=1) for g in self.groups], axis=1))

    def traces(self, t: int, k: int) -> tuple[list[Json], int]:
        """All traces when round t + 1 has come to its point k, and how many of the first ones never move."""
        axes = {"xaxis": f"x{self.axis}", "yaxis": f"y{self.axis}", "type": "scatter"}
        agents = [f"agent {c + 1}" for c in range(len(self.own))]
        size, stroke, head = (11, 2.2, 12) if self.named else (7, 1.3, 8)
        line = {"width": 2.4 if self.named else 1.2}
        own_at = {"symbol": ["arrow" if o else "circle" for o in self.out], "angle": _angles(self.own), "size": size,
                  "color": [c if o else "white" for c, o in zip(self.colours, self.out, strict=True)],
                  "line": {"color": self.colours, "width": stroke}}  # fmt: skip
        still = [
            {**self._xy(self.own), "mode": "markers", "text": agents, "customdata": _short(self.own_far),
             "hovertemplate": "%{text}: its own solution<br>is %{customdata} from θ*<extra></extra>", "marker": own_at},
        ]  # fmt: skip
        look: list[Json] = []
        look.append({"mode": "lines+markers", "line": {"width": 3, "color": self.colour},
                     "marker": {"size": 6, "color": self.colour, "line": {"color": "white", "width": 1}}})  # fmt: skip
        if self.free is not None:
            look += [{"line": {"width": 1.6, "dash": "dot", "color": self.colours[g[0]]}, "opacity": 0.75}
                     for g in self.groups]  # fmt: skip
        look += [{"line": {**line, "color": self.colours[g[0]]}, "opacity": 1 if self.named else 0.6}
                 for g in self.groups]  # fmt: skip
        look = [{"mode": "lines", "hoverinfo": "skip", **one} for one in look]
        heads = {"symbol": "arrow", "size": head, "color": self.colours, "opacity": 1, "line": {"width": 0}}
        look += [
            {"mode": "markers", "marker": heads, "text": agents,
             "hovertemplate": "%{text}<br>is %{customdata} from θ*<extra></extra>"},
            {"mode": "markers", "hoverinfo": "skip",
             "marker": {"size": 9, "color": "white", "line": {"color": self.colour, "width": 2.4}}},
            {"mode": "markers", "hoverinfo": "skip",
             "marker": {"size": 12, "color": self.colour, "line": {"color": "white", "width": 1.2}}},
        ]  # fmt: skip
        after: list[Json] = []
        if self.end is not None:
            cross = {"symbol": "x", "size": 12, "color": self.colour, "line": {"color": "white", "width": 1.2}}
            after = [{**self._xy(self.end[None]), "mode": "markers", "hoverinfo": "skip", "marker": cross}]
        star = {"symbol": "star", "size": 15, "color": theme.INK, "line": {"color": "white", "width": 1}}
        after.append({"x": [0], "y": [0], "mode": "markers", "hoverinfo": "skip", "marker": star})
        marks = {"cliponaxis": True, "showlegend": False, **axes}
        moving = self.moment(t, k)
        out = [*still, *({**m, **one, "marker": {**one.get("marker", {}), **m.get("marker", {})}}
                         for m, one in zip(moving, look, strict=True)), *after]  # fmt: skip
        return [{**marks, **one} for one in out], len(still)

    def moment(self, t: int, k: int) -> list[Json]:
        """The traces that move, when round t + 1 has come to its point k: all of them, in their order."""
        done = k == self.local.shape[2] - 1
        none: Json = {"x": [None], "y": [None]}
        free = [] if self.free is None else [self._xy(path) for path in self.free[t]]
        upto = t + 2 if done else t + 1
        average, begin = self._xy(self.theta[:upto]), self._xy(self.theta[t : t + 1])
        return [average, *free, *self.walk(t, k), begin, self._xy(self.theta[t + 1 : t + 2]) if done else none]

    def walk(self, t: int, k: int) -> list[Json]:
        """The agents' paths up to point k, and their heads: what moves between two points of one round."""
        local = self.local[t, :, : k + 1]
        with np.errstate(invalid="ignore", over="ignore"):  # of a run that diverges
            way = local[:, k] - local[:, max(k - 1, 0)]
        marker = {"angle": _angles(way)}
        heads = {**self._xy(local[:, k]), "customdata": _short(self.far[t, :, k]), "marker": marker}
        return [*(self._lines(local, g) for g in self.groups), heads]

    @property
    def before(self) -> int:
        """How many moving traces come before those of `walk`."""
        return 1 + (0 if self.free is None else len(self.groups))

    def _lines(self, points: Floats, group: list[int]) -> Json:
        """points : (N, k, 2); those of the group one after the other, with gaps."""
        gap = np.full((len(group), 1, 2), np.nan)
        return self._xy(np.concatenate([points[group], gap], axis=1).reshape(-1, 2)[:-1])

    def _xy(self, points: Floats) -> Json:
        x, y = points.T
        return {"x": x.astype(np.float32), "y": y.astype(np.float32)}


def packed(trace: Json) -> Json:
    """A trace with its arrays as Plotly takes them from JSON; its own way of writing them takes a third of a second."""

    def pack(value: Any) -> Any:
        if isinstance(value, dict):
            return packed(value)
        if not isinstance(value, np.ndarray):
            return value
        return {"dtype": f"{value.dtype.kind}{value.itemsize}", "bdata": b64encode(value.tobytes()).decode()}

    return {key: pack(value) for key, value in trace.items()}


def names(panel: AgentPanel, box: Box, pixels: float) -> tuple[list[Json], list[Json]]:
    """Annotations that name what is drawn, each once, and lines to names that stand far from it.

    pixels : of the screen for one unit of the plane
    """
    line = np.concatenate([np.linspace(a, b, 12) for a, b in pairwise(panel.theta)])
    rounds = sorted({0, 1, len(panel.local) - 1} & set(range(len(panel.local))))
    inside = panel.local[rounds][:, :, ::2].reshape(-1, 2)
    ends = [panel.end[None]] if panel.end is not None else []
    taken = np.concatenate([np.zeros((1, 2)), *ends, panel.own, line, inside])
    coarse = (
        np.unique(np.rint(taken[np.isfinite(taken).all(axis=1)] * pixels / SAME_PLACE), axis=0) * SAME_PLACE / pixels
    )
    placer = Placer(box, pixels / 72, coarse)  # a point of the font is a pixel here
    wanted: list[tuple[Floats, str, str, int]] = [(np.zeros(2), "θ*", theme.INK, 16)]
    if panel.named:
        wanted += [(own, _own_name(panel, c), panel.colours[c], 13) for c, own in enumerate(panel.own)]
    else:
        text = "agents' own\nsolutions"
        if panel.out.any():
            low, high = _short(np.array([panel.own_far[panel.out].min(), panel.own_far[panel.out].max()]))
            text = f"own solutions,\n{low if low == high else f'{low} to {high}'} from θ*"
        outer = np.argsort(-np.nan_to_num(np.linalg.norm(panel.own, axis=1)))[:8]
        wanted.append((panel.own[outer], text, theme.SOFT, 12))
    if panel.end is not None:
        wanted.append((panel.end, f"{panel.name}\nends here", panel.colour, 13))
    wanted.append((panel.theta[0], "start", panel.colour, 13))
    out: list[Json] = []
    lines: list[Json] = []
    for at, text, colour, size in wanted:
        place = placer.place(at, text, size)
        if place is None:
            continue
        (x, y), join = place
        refs = {"xref": f"x{panel.axis}", "yref": f"y{panel.axis}"}
        if join is not None:
            (x0, y0), (x1, y1) = join.tolist()
            lines.append({"type": "line", "x0": x0, "y0": y0, "x1": x1, "y1": y1, **refs,
                          "line": {"color": theme.SOFT, "width": 0.9}})  # fmt: skip
        if size > 13 or "ends" in text:
            text = f"<b>{text}</b>"
        look = {"font": {"color": colour, "size": size}, "bgcolor": "rgba(255,255,255,0.7)", "borderpad": 0}
        text = text.replace("\n", "<br>")
        out.append({"x": float(x), "y": float(y), **refs, "text": text, "showarrow": False, **look})
    return out, lines


def _own_name(panel: AgentPanel, c: int) -> str:
    name = f"agent {c + 1}"
    return f"{name}, {panel.own_far[c]:.2g} away" if panel.out[c] else name


def _at_edge(own: Floats, box: Box) -> tuple[Floats, NDArray[np.bool_]]:
    """Own solutions (N, 2), those out of sight drawn in towards theta_star as far as the edge, and which these are."""
    inset = EDGE_INSET * (box[1] - box[0])
    limits = np.where(own > 0, np.array(box[1::2]) - inset, np.array(box[::2]) + inset)
    with np.errstate(divide="ignore", invalid="ignore"):
        shrink = np.min(np.where(own == 0, np.inf, limits / own), axis=1, keepdims=True)
    out = (shrink < 1)[:, 0]
    return np.where(out[:, None], own * shrink, own), out


def _angles(way: Floats) -> NDArray[np.int16]:
    """Directions (N, 2) as Plotly wants them: degrees, clockwise from upwards."""
    return np.rint(np.nan_to_num(np.degrees(np.arctan2(way[:, 0], way[:, 1])))).astype(np.int16)


def _short(values: Floats) -> list[str]:
    return [f"{v:.2g}" for v in values.tolist()]
