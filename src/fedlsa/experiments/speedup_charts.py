"""The error in the long run against the number of agents, as charts: exact lines, simulated marks, the slope of 1/N."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..algorithms import METHODS
from ..figures import theme
from ..figures.lines import Chart, Line
from .cells import Results
from .paper_curves import world

APART = 1.07  # marks of two methods at one N stand beside each other
ABOVE = math.sqrt(10)  # times the second step size's line: there the slope to compare with stands
EXACT_ONLY = "exact only"


def speed_up_charts(results: Results, step_sizes: Sequence[float], simulated: Sequence[int]) -> list[list[Chart]]:
    """A row for each world, a column for each number of local steps; colour : step size, dashed : FedLSA.

    simulated : the numbers of agents at which there is a mark, hollow where a simulation would take too long
    """
    rows: list[list[Chart]] = []
    for heterogeneous, row in results.by("heterogeneous").items():
        rows.append([])
        for H, panel in row.by("local_steps").items():
            parts = panel.by("method", "step_size")
            lines = [_lines(part, theme.SEQUENCE[step_sizes.index(eta)], simulated) for (_, eta), part in parts.items()]
            exact = lines[1][0]
            middle, ends = len(exact.x) // 2, exact.x[[0, -1]]
            slope = ABOVE * float(exact.y[middle] * exact.x[middle]) / ends
            guide = Line(ends, slope, "falls like 1/N", theme.OTHERS[3], "guide")
            title = f"{world(heterogeneous)}, H = {H}"
            drawn = [line for part in lines for line in part]
            rows[-1].append(Chart([*drawn, guide], "agents N", "stationary MSE", title, x_scale="log"))
    alone = any(line.marker == "diamond" and len(line.x) for row in rows for chart in row for line in chart.lines)
    colours = {eta: theme.SEQUENCE[step_sizes.index(eta)] for eta in results.by("step_size")}
    rows[0][0] = replace(rows[0][0], lines=[*_legend(colours, alone), *rows[0][0].lines])
    return rows


def _lines(results: Results, colour: str, simulated: Sequence[int]) -> list[Line]:
    """One method with one step size: exact limits, with gaps where there is none, and marks."""
    limits, method = results.select(kind="limit"), results.cells[0]["method"]
    numbers, mse = limits.column("agents"), limits.values("mse")
    mse = np.where(np.isfinite(mse), mse, np.nan)
    ends = {cell["agents"]: run["squared_error"].values[:, -1] for cell, run in results.select(kind="simulate")}
    marked = np.isin(numbers, simulated) & np.isfinite(mse)
    run = [n for n in numbers[marked] if n in ends]
    alone = marked & ~np.isin(numbers, run)
    mean = np.array([ends[n].mean() for n in run])
    name = f"{METHODS[method].__name__}, η = {results.cells[0]['step_size']:g}"
    error = np.array([ends[n].std(ddof=1) / math.sqrt(len(ends[n])) if len(ends[n]) > 1 else 0.0 for n in run])
    if method == "fedlsa":
        exact, marker, shift = Line(numbers, mse, "", colour, "prediction", name=name), "circle", 1 / APART
    else:  # wide and light, so that a dashed line on top of it is seen
        exact, marker, shift = Line(numbers, mse, "", theme.shade(colour, 2), width=2.8, name=name), "square", APART
    return [
        exact,
        Line(
            shift * np.array(run), mean, "", colour, "marks", None, error, marker=marker, size=3.2, name=f"{name}, runs"
        ),
        Line(numbers[alone], mse[alone], "", colour, "samples", marker="diamond", size=4.0),
    ]


def _legend(colours: dict[float, str], alone: bool) -> list[Line]:
    """Lines without points: step sizes by colour, methods by line and mark."""
    none = np.empty(0)
    steps = [Line(none, none, f"η = {eta:g}", colour, width=3.0) for eta, colour in colours.items()]
    kinds = [
        Line(none, none, "SCAFFLSA", theme.shade(theme.SOFT, 2), marker="square", width=2.8, size=4.0),
        Line(none, none, "FedLSA", role="prediction", marker="circle", size=4.0),
    ]
    return steps + kinds + [Line(none, none, EXACT_ONLY, role="samples", marker="diamond", size=4.0)] * alone
