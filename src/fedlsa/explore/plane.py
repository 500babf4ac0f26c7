"""Where the agents go, to step through and to play: the moving twin of `fedlsa.figures.agent_paths`.

A frame is a moment of a round. Frame "3 a" is round 3 at its end, where the slider stops; "3.1 a", "3.2 a", ... lie on
the way there and are shown in play alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from .. import checks
from ..engine.paths import Paths
from ..errors import ArgumentError
from ..figures import agent_plane, theme
from ..figures.agent_plane import Box, Plane
from .plane_parts import AgentPanel, Json, names, packed
from .plotly_figures import FONT, unchecked

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

WIDTHS = {"wide": 900, "narrow": 358}  # of the figure, in pixels
MAX_PANELS = 3
EDGE, GAP = 8, 18  # around all panels, and between two
MODEBAR = ["toimage", "select2d", "lasso2d", "zoom2d", "pan2d", "zoomin", "zoomout", "autoscale", "resetscale"]
FRAME_MS, REST_FRAMES = 130, 3  # milliseconds a frame, and frames that a round rests at its end
DETAIL = ((36, 6), (24, 6), (12, 4), (8, 2), (6, 1))  # points of a path, moments of a round
CLOSE_UP = 0.2  # of the width that own solutions need: where paths need less, the view leaves own solutions out
MARKS = "abcdefgh"  # in the names of frames
MAX_POINTS = 60_000  # points that all frames together may have


def agents_figure(paths: Sequence[Paths], *, round: int = 1, width: str = "wide") -> Figure:
    """The agents' paths, round after round, a panel for each run, with a slider and a button to play.

    paths : up to three runs of `fedlsa.engine.paths.round_paths` on one problem (FedLSA and SCAFFLSA, say)
    round : the round that is shown first; width : "wide", panels side by side, or "narrow", one above the other
    """
    runs = agent_plane.checked_paths(paths)
    if len(runs) > MAX_PANELS:
        raise ArgumentError(f"paths must hold at most {MAX_PANELS} runs; got {len(runs)}")
    T = min(p.rounds for p in runs)
    round = checks.integer("round", round, at_least=1, at_most=T)
    width = checks.choice("width", width, WIDTHS)
    plane = agent_plane.plane_of(runs[0].problem, [p.theta[0] for p in runs])
    across = len(runs) if width == "wide" else 1
    side = (WIDTHS[width] - 2 * EDGE - GAP * (across - 1)) / across  # of a panel
    high = _height(side)
    box = _fitted(_view(runs, plane, range(1, T + 1)), high / side)
    points, moments = _detail(runs, T)
    keep = [np.rint(np.linspace(0, p.local.shape[2] - 1, points + 1)).astype(int).tolist() for p in runs]
    panels = [AgentPanel(p, plane, box, keep[i], f"{i + 1}" if i else "") for i, p in enumerate(runs)]

    stops = [points * (m + 1) // moments for m in range(moments)]
    data: list[Json] = []
    first: list[int] = []
    for panel in panels:
        traces, still = panel.traces(round - 1, points)
        first.append(len(data) + still)
        data += traces
    frames = [f for t in range(T) for f in _frames(runs, panels, first, t, stops, side)]
    # A page that shows another figure in place of this one keeps the old frames and plays on from one of the same name.
    # So names differ from figure to figure, but not without end: a frame of the same name is replaced.
    mark = f" {MARKS[crc32(b''.join(p.local.tobytes() for p in runs)) % len(MARKS)]}"
    for f in frames:
        f["name"] += mark
    layout = _layout(runs, panels, plane, box, (side, high), round, [f["name"] for f in frames], width)
    return unchecked(data, layout, frames)


def _detail(runs: list[Paths], T: int) -> tuple[int, int]:
    """Points of a path and moments of a round: many for few agents, fewer where there is much to send."""
    agents = len(runs) * runs[0].problem.n_agents * T
    fits = [(P, M) for P, M in DETAIL if P * (M + 1) // 2 * agents <= MAX_POINTS]
    return (fits or [DETAIL[-1]])[0]


def _height(side: float) -> float:
    return side * (0.4 if side > 600 else 0.64 if side > 400 else 0.75)


def _view(runs: list[Paths], plane: Plane, rounds: Sequence[int]) -> Box:
    """Limits that hold own solutions too, unless they lie so far out that nobody could see where agents go."""
    near, whole = (agent_plane.view_box(runs, plane, rounds, with_own=own) for own in (False, True))
    return near if near[1] - near[0] < CLOSE_UP * (whole[1] - whole[0]) else whole


def _fitted(box: Box, ratio: float) -> Box:
    """The box, made wider or higher until its height is `ratio` times its width."""
    left, right, bottom, top = box
    width = max(right - left, (top - bottom) / ratio)
    x, y = (left + right) / 2, (bottom + top) / 2
    return x - width / 2, x + width / 2, y - ratio * width / 2, y + ratio * width / 2


def _words(p: Paths, t: int, side: float) -> str:
    """The numbers of round t + 1, on two lines where a panel is small."""
    said = agent_plane.round_summary(p, t + 1)
    if "nan" in said or "inf" in said:
        said = f"round {t + 1}: the agents have run away"
    return said if side > 400 else said.replace(", which", ",<br>which")


def _frames(
    runs: list[Paths], panels: list[AgentPanel], first: list[int], t: int, stops: list[int], side: float
) -> list[Json]:
    """Round t + 1, moment by moment, and a rest at its end. first : each panel's first trace that moves."""
    said = {"annotations": [{"text": _words(p, t, side)} for p in runs], "sliders": [{"active": t}]}
    out: list[Json] = []
    for m, k in enumerate(stops):
        whole = m in (0, len(stops) - 1)  # what differs from round to round goes with its first frame and its last
        data: list[Json] = []
        places: list[int] = []
        for panel, at in zip(panels, first, strict=True):
            moved = panel.moment(t, k) if whole else panel.walk(t, k)
            at += 0 if whole else panel.before
            data += map(packed, moved)
            places += range(at, at + len(moved))
        name = f"{t + 1}" if k == stops[-1] else f"{t + 1}.{m + 1}"
        out.append({"name": name, "data": data, "traces": places, **({"layout": said} if whole else {})})
    return out + [{"name": f"{t + 1} rest {r + 1}", "data": [], "traces": []} for r in range(REST_FRAMES)]


def _layout(
    runs: list[Paths],
    panels: list[AgentPanel],
    plane: Plane,
    box: Box,
    size: tuple[float, float],
    round: int,
    frames: list[str],
    width: str,
) -> Json:
    (side, high), n, wide = size, len(panels), width == "wide"
    total = WIDTHS[width] - 2 * EDGE
    top = 50 if side > 400 else 66  # words above a panel
    rows = 1 if wide else n
    tall = rows * high + (rows - 1) * (top + 12)
    own = "At the edge" if panels[0].out.all() else "Circles"
    text = agent_plane.caption(runs[0], plane, "the round", own)
    if any(panel.free is not None for panel in panels):
        text += "  Dotted: the round without control variates."
    note = textwrap.wrap(text.replace("  ", " "), 144 if wide else 50)
    below = 16 * len(note) + (86 if wide else 142)
    out: Json = {
        "width": WIDTHS[width], "height": tall + top + below, "autosize": False,
        "margin": {"l": EDGE, "r": EDGE, "t": top, "b": below, "pad": 0},
        "font": {"family": FONT, "size": 13, "color": theme.INK}, "paper_bgcolor": "white", "plot_bgcolor": "white",
        "hovermode": "closest", "dragmode": False, "showlegend": False,
        "modebar": {"remove": MODEBAR},
        "hoverlabel": {"bgcolor": "white", "font": {"family": FONT, "size": 13, "color": theme.INK}},
    }  # fmt: skip
    frame = {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": "", "fixedrange": True,
             "showline": True, "mirror": True, "linecolor": theme.FAINT, "linewidth": 1}  # fmt: skip
    words: list[Json] = []
    heads: list[Json] = []
    labels: list[Json] = []
    lines: list[Json] = []
    for i, (p, panel) in enumerate(zip(runs, panels, strict=True)):
        left = i * (side + GAP) if wide else 0
        floor = 0 if wide else (n - 1 - i) * (high + top + 12)
        domains = [left / total, (left + side) / total], [floor / tall, (floor + high) / tall]
        out[f"xaxis{panel.axis}"] = {**frame, "range": list(box[:2]), "domain": domains[0], "anchor": f"y{panel.axis}"}
        out[f"yaxis{panel.axis}"] = {**frame, "range": list(box[2:]), "domain": domains[1], "anchor": f"x{panel.axis}"}
        place = {"x": left / total, "y": (floor + high) / tall, "xref": "paper", "yref": "paper", "xanchor": "left",
                 "yanchor": "bottom", "align": "left", "showarrow": False, "borderpad": 0}  # fmt: skip
        words.append({**place, "text": _words(p, round - 1, side), "yshift": 2, "font": {"size": 12}})
        heads.append({**place, "text": f"<b>{agent_plane.method_heading(p)}</b>", "yshift": 22 if side > 400 else 38,
                      "font": {"size": 16, "color": panel.colour}})  # fmt: skip
        named, joined = names(panel, box, side / (box[1] - box[0]))
        labels += named
        lines += joined
    key = {"x": 0, "y": 0, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "top", "align": "left",
           "showarrow": False, "yshift": -4, "text": "<br>".join(note),
           "font": {"size": 12, "color": theme.SOFT}}  # fmt: skip
    out["annotations"] = [*words, *heads, *labels, key]  # words first: frames give them new text by their place
    out["shapes"] = lines
    return {**out, **_controls(round, frames, total, 16 * len(note) + 14, wide)}


def _controls(round: int, frames: list[str], total: float, down: float, wide: bool) -> Json:
    """Play, pause and the slider, `down` pixels under the panels."""
    moment = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    play = {**moment, "frame": {"duration": FRAME_MS, "redraw": True}, "fromcurrent": True}
    buttons = [
        {"label": "▶ Play", "method": "animate", "args": [frames, play]},
        {"label": "❚❚ Pause", "method": "animate", "args": [[None], moment]},
    ]
    stops = [name for name in frames if name.split()[0].isdigit() and len(name.split()) == 2]
    steps = [{"label": f"{t}", "method": "animate", "args": [[stop], moment]} for t, stop in enumerate(stops, 1)]
    font = {"size": 14, "color": theme.INK}
    menu = {"type": "buttons", "direction": "left", "x": 0, "y": 0, "xanchor": "left", "yanchor": "top",
            "pad": {"t": down + (14 if wide else 84), "l": 0, "r": 0, "b": 0}, "showactive": False, "buttons": buttons,
            "bgcolor": "white", "bordercolor": "#c8c8c8", "font": font}  # fmt: skip
    aside = 200 if wide else 0
    slider = {"active": round - 1, "steps": steps, "x": aside / total, "y": 0, "len": 1 - aside / total,
              "xanchor": "left", "yanchor": "top", "pad": {"t": down, "l": 14, "r": 14, "b": 0},
              "currentvalue": {"prefix": "round ", "font": font, "offset": 8, "xanchor": "left"},
              "font": {"size": 12, "color": theme.SOFT}, "ticklen": 4, "minorticklen": 0, "tickcolor": "#c8c8c8",
              "bgcolor": "#e9e9e9", "bordercolor": "#c8c8c8", "activebgcolor": "#c8c8c8",
              "transition": {"duration": 0}}  # fmt: skip
    return {"updatemenus": [menu], "sliders": [slider]}
