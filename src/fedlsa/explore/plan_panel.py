"""The plan: an accuracy in, the cheapest run of each method out, and the trade-off between its two costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import marimo as mo

from ..algorithms import Scaffnew
from ..figures.style import FAINT, INK, SOFT
from ..figures.style import METHODS as HUES
from ..theory.planner import Plan, pareto_front
from .follow import Plans
from .layout import BARE, box, plain
from .plots import FONT, unchecked
from .settings import METHODS, PROBLEMS, Settings


def ask_panel(accuracy: Any, find: Any) -> Any:
    """The accuracy that is asked for."""
    heading = mo.md(
        "## The plan\nSay how accurate the answer must be; exact errors then decide step size, local steps and rounds."
    )
    return mo.vstack([heading, box("line", accuracy["epsilon"], find)])


def plan_panel(known: Plans, use: Any) -> Any:
    """The plans, a button for each that takes it over, and the trade-off."""
    parts: list[Any] = []
    if known.found or known.refused:
        what = f"{PROBLEMS[known.settings.problem]}, independent observations:"
        parts += [box("quiet", what), mo.md(_table(known))]
        parts += [box("line", *(use[name] for name in known.found))] if known.found else []
    if known.points or known.found:
        parts.append(mo.ui.plotly(_trade_off(known), config=BARE))
    return mo.vstack([*parts, mo.md(known.busy)])


def _table(known: Plans) -> str:
    rows = [
        f"| RMSE ≤ {known.settings.epsilon:g} | step size | local steps | rounds | observations per agent | bytes |"
    ]
    rows += ["|---|---|---|---|---|---|"]
    for name in METHODS:
        if name in known.found:
            p = known.found[name]
            a: Any = p.algorithm
            steps = f"1/p = {1 / a.probability:.0f}" if isinstance(a, Scaffnew) else str(a.local_steps)
            rows.append(f"| **{name}** | {a.step_size:.3g} | {steps} | {p.rounds} | {p.samples:,.0f} | {p.bytes:,} |")
        elif name in known.refused:
            rows.append(f"| **{name}** | {plain(known.refused[name])} | | | | |")
    return "\n".join(rows)


def use_buttons(now: Mapping[str, Any], put: Callable[[Settings], None]) -> Any:
    """A button per method, which carries its plan into the sliders; now : the page's settings and plans at a click."""

    def button(name: str) -> Any:
        def adopt(_: int) -> None:
            if name in now["plans"].found:  # else they went while the click was on its way
                put(adopted(now["settings"], now["plans"].found[name]))

        return mo.ui.button(value=0, on_click=lambda n: n + 1, on_change=adopt, label=f"Use {name}'s plan")

    return mo.ui.dictionary({name: button(name) for name in METHODS})


def adopted(s: Settings, p: Plan) -> Settings:
    """The settings with those of a plan, which is made for independent observations."""
    s = replace(s, sampling="iid")
    a: Any = p.algorithm
    eta: float = a.step_size
    if isinstance(a, Scaffnew):
        steps = max(1, round(1 / a.probability))
        return replace(s, step_size=eta, local_steps=steps, probability=a.probability, rounds=p.rounds)
    return replace(s, step_size=eta, local_steps=a.local_steps, probability=None, rounds=p.rounds)


def _trade_off(known: Plans) -> Any:
    traces = []
    for name in METHODS:
        mine = [p for p in (*known.points, *known.found.values()) if type(p.algorithm).__name__ == name]
        kept = pareto_front(mine)
        traces.append(
            {
                "type": "scatter", "name": name, "mode": "lines+markers",
                "x": [p.samples for p in kept], "y": [p.rounds for p in kept],
                "line": {"color": HUES[name], "shape": "hv"}, "marker": {"size": 8},
                "hovertemplate": "%{y} communications, %{x:.3g} observations<extra>" + name + "</extra>",
            }
        )  # fmt: skip
    drawn = [*known.points, *known.found.values()]
    axis = {"type": "log", "gridcolor": FAINT, "linecolor": SOFT, "ticks": "outside"}
    across, up = _ticks([p.samples for p in drawn]), _ticks([p.rounds for p in drawn])
    return unchecked(
        traces,
        {
            "xaxis": {**axis, **across, "title": {"text": "observations per agent"}},
            "yaxis": {**axis, **up, "title": {"text": "communications"}},
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "height": 340, "margin": {"l": 68, "r": 14, "t": 34, "b": 52}, "dragmode": False,
            "font": {"family": FONT, "size": 13, "color": INK}, "plot_bgcolor": "white", "paper_bgcolor": "white",
        },
    )  # fmt: skip


def _ticks(values: Sequence[float]) -> dict[str, Any]:
    """An axis over the values with plain numbers at 1, 2 and 5 times the powers of ten."""
    low, high = math.log10(min(values) / 1.25), math.log10(max(values) * 1.25)
    steps = [k * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for k in (1, 2, 5)]
    return {"range": (low, high), "tickvals": steps, "ticktext": [f"{v:,.0f}" if v >= 1 else f"{v:g}" for v in steps]}
