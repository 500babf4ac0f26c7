"""The plan: an accuracy in, the cheapest run of each method out, and the trade-off between its two costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import marimo as mo

from ..algorithms import Scaffnew
from ..figures.theory_figures import trade_off_chart
from ..theory.planner import Plan
from .layout import BARE, box, plain
from .plotly_figures import plotly_chart
from .settings import METHODS, PROBLEMS, Settings
from .updates import Plans


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
        chart = trade_off_chart([*known.points, *known.found.values()])
        low, high = chart.span
        chart = replace(chart, x_limits=(low / 1.25, high * 1.25))
        parts.append(mo.ui.plotly(plotly_chart(chart, height=320), config=BARE))
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
