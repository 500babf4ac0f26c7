"""The error of all methods in one picture: exact curves, the predicted bias, simulated seeds on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from ..figures.cost_curves import summarise_seeds
from ..figures.labels import method_name
from ..figures.lines import ERROR, Chart, Line, error_ceiling, level
from ..figures.theme import METHODS
from .answers import Curve
from .page_settings import AXES, PageSettings
from .plotly_figures import plotly_chart

BAND = (0.1, 0.9)  # quantiles over seeds
NARROW_LEGEND_ROWS = 4  # three methods and a bias, one below the other


def error_figure(
    s: PageSettings, curves: Mapping[str, Curve], runs: Sequence[xr.Dataset] = (), width: str = "wide"
) -> Any:
    """Mean squared error against communications, observations or bytes, as a Plotly figure.

    curves : those that are there yet, by method; runs : simulated seeds that are laid on top, one result per method
    width : "wide" or "narrow", where the legend takes more lines
    """
    simulated = {method_name(r): r for r in runs} | {n: c.runs for n, c in curves.items() if c.runs is not None}
    seeds = {name: summarise_seeds(r, BAND, s.x) for name, r in simulated.items()}
    exact = {n: e for n in METHODS if n in curves and (e := curves[n].exact) is not None}
    mse = {name: e["mse"].values for name, e in exact.items()}
    sound = {name: one.mean for name, one in seeds.items() if len(one.diverged) < one.seeds}
    ceiling = error_ceiling([*mse.values(), *sound.values()])
    lines: list[Line] = []
    for name, one in seeds.items():
        label, colour = f"{name}, mean of {one.seeds} seeds", METHODS[name]
        lines.append(one.line(label, colour, "seeds", "dotted") if name in exact else one.line(label, colour))
        lines += one.diverged_lines(colour, ceiling)
    for name, e in exact.items():
        lines.append(Line(e[s.x].values, mse[name], name, METHODS[name]))
        if curves[name].bias > 0:
            lines.append(level(curves[name].bias, lines[-1:], f"predicted ‖bias‖² of {name}"))
    chart = Chart(lines, AXES[s.x], ERROR, x_scale=s.scale, ceiling=ceiling)
    rows = NARROW_LEGEND_ROWS if width == "narrow" else 1
    return plotly_chart(chart, height=380, legend_rows=rows, revision=f"{s.x} {s.scale}")
