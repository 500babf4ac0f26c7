"""Plotly figures from plain dictionaries, as quickly as they can be had, and charts as Plotly figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import Floats
from ..errors import MissingExtraError
from ..figures import theme
from ..figures.lines import OUT_OF_SIGHT, Chart, Line, error_limits, number

FONT = "Inter, system-ui, sans-serif"
CLEAR, GRID, GREY = "rgba(0,0,0,0)", "rgba(128,128,128,0.25)", "#7a7a7a"  # on a page that is light or dark


def plotly() -> Any:
    """Plotly's graph objects, or an error that says how to get them."""
    try:
        import plotly.graph_objects
    except ImportError:
        raise MissingExtraError("the explorer needs marimo and plotly: pip install 'fedlsa[explore]'") from None
    return plotly.graph_objects


def unchecked(data: Sequence[dict[str, Any]], layout: dict[str, Any]) -> Any:
    """A figure whose parts Plotly does not check again, which would take longer than all the rest; tests check them.

    Nor does it have Plotly's template, half of what would be sent: layouts here say all that they want.
    """
    return plotly().Figure(data=list(data), layout={"template": {"layout": {}}, **layout}, _validate=False)


def plotly_chart(chart: Chart, *, height: float = 400) -> Any:
    """A chart of `figures.lines` as a Plotly figure of `height` pixels; its colours can be read in the dark too."""
    low, high = chart.limits or error_limits([chart])
    legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12.5}}
    layout = {
        "xaxis": _axis(chart.x, chart.x_scale, chart.span if chart.x_limits else None),
        "yaxis": _axis(chart.y, chart.y_scale, (low, high)),
        "legend": {**legend, "traceorder": "normal"},
        # margins that are given need no second pass of drawing
        "margin": {"l": 68, "r": 14, "t": 34, "b": 52, "autoexpand": False},
        "height": height, "autosize": True, "hovermode": "x unified", "dragmode": False,
        "font": {"family": FONT, "size": 13, "color": GREY},
        "plot_bgcolor": CLEAR, "paper_bgcolor": CLEAR,
    }  # fmt: skip
    return unchecked([trace for line in chart.lines for trace in _traces(line, chart.ceiling)], layout)


def _axis(title: str, scale: str, limits: tuple[float, float] | None) -> dict[str, Any]:
    """An axis; where a logarithmic one spans less than two powers of ten, with plain numbers between them."""
    axis: dict[str, Any] = {
        "title": {"text": title, "standoff": 8}, "type": scale, "linecolor": GREY, "gridcolor": GRID,
        "zeroline": False, "ticks": "outside", "tickcolor": GREY,
    }  # fmt: skip
    if scale != "log":
        return {**axis, "rangemode": "tozero", "separatethousands": True}
    if limits is None:
        return {**axis, "exponentformat": "power"}
    low, high = (math.log10(v) for v in limits)
    axis |= {"range": [low, high], "exponentformat": "power"}
    if high - low > 2:
        return {**axis, "dtick": 1}
    ticks = [k * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for k in (1, 2, 5)]
    return {**axis, "tickvals": ticks, "ticktext": [number(v) for v in ticks]}


def _traces(line: Line, ceiling: float) -> list[dict[str, Any]]:
    """The line, and before it the two edges of its band."""
    look, traces = line.look, []
    if line.band is not None:
        edge = {"type": "scatter", "mode": "lines", "x": line.x, "line": {"width": 0}, "hoverinfo": "skip"}
        tint = f"rgba{(*(int(line.colour[i : i + 2], 16) for i in (1, 3, 5)), 0.2)}"
        low, high = ({**edge, "y": _inside(v, ceiling), "showlegend": False} for v in line.band)
        traces += [low, {**high, "name": f"{line.label.partition(',')[0]}, band", "fill": "tonexty", "fillcolor": tint}]
    if line.role != "tint":
        mode = "markers" if look.dash == "none" else "lines+markers" if look.marker else "lines"
        marker = {"marker": {"size": 3 + look.size, "symbol": theme.MARKERS[look.marker][1]}} if look.marker else {}
        drawn = {"color": line.colour, "width": 1.45 * look.width, "dash": theme.DASHES[look.dash][1]}
        traces.append({
            "type": "scatter", "mode": mode, "name": line.label, "x": line.x, "y": _inside(line.y, ceiling),
            "line": {**drawn, "shape": "hv" if line.steps else "linear"}, **marker, "opacity": look.opacity,
            "showlegend": bool(line.label) and line.role != "seeds",  # seeds have the colour of their exact curve
            **({"hovertemplate": f"{line.label}: %{{y:.3g}}<extra></extra>"} if line.label else {"hoverinfo": "skip"}),
        })  # fmt: skip
    return traces


def _inside(y: Floats, ceiling: float) -> list[float | None]:
    """Values that the figure shows: a line that leaves it ends with one point above its upper edge."""
    out = np.flatnonzero(y > ceiling) if math.isfinite(ceiling) else np.empty(0, int)
    until = int(out[0]) if len(out) else len(y)
    values = [float(v) if math.isfinite(v) else None for v in y[:until]]
    return values + [OUT_OF_SIGHT * ceiling] * (until < len(y)) + [None] * (len(y) - until - 1)
