"""The error of all methods in one picture: exact curves, the predicted bias, simulated seeds on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ..checks import Floats
from ..figures.curves import cost
from ..figures.labels import method_name
from ..figures.style import FAINT, INK, METHODS, SOFT
from .answers import Curve
from .plots import FONT, unchecked
from .settings import AXES, Settings

HEADROOM = 30.0  # how far above the start the axis may reach for methods that diverge
BAND = (0.1, 0.9)  # quantiles over seeds


def error_figure(s: Settings, curves: Mapping[str, Curve], runs: Sequence[xr.Dataset] = (), width: str = "wide") -> Any:
    """Mean squared error against communications, observations or bytes, as a Plotly figure.

    curves : those that are there yet, by method; runs : simulated seeds that are laid on top, one result per method
    width : "wide" or "narrow", where the legend takes more lines
    """
    ceiling = _ceiling(curves, runs)
    traces: list[dict[str, Any]] = []
    simulated = {method_name(r): r for r in runs} | {n: c.runs for n, c in curves.items() if c.runs is not None}
    for name, result in simulated.items():
        traces += _seeds(s, name, result, ceiling, thick=name not in curves or curves[name].exact is None)
    levels = []
    for name, c in ((name, curves[name]) for name in METHODS if name in curves):
        if c.exact is not None:
            x, y = c.exact[s.x].values, c.exact["mse"].values
            traces.append(_line(name, x, _inside(y, ceiling), METHODS[name], 2.6))
            levels += [y]
        if c.bias > 0:
            end = [float(v) for v in c.exact[s.x].values[[0, -1]]] if c.exact is not None else []
            label = f"predicted ‖bias‖² of {name}"
            traces.append(_line(label, end, [c.bias] * len(end), INK, 1.4, dash="dash"))
            levels += [np.array([c.bias])]
    levels += [np.quantile(r["squared_error"].values, BAND, axis=0).ravel() for r in simulated.values()]
    return unchecked(traces, _layout(s, _limits(levels, ceiling), _lines(width)))


def _seeds(s: Settings, name: str, result: xr.Dataset, ceiling: float, thick: bool) -> list[dict[str, Any]]:
    """The mean over seeds and the band between two quantiles."""
    error, x = result["squared_error"].values, cost(result, s.x)
    with np.errstate(invalid="ignore", over="ignore"):
        low, high = np.quantile(error, BAND, axis=0)
        mean = error.mean(axis=0)
    hue, count = METHODS[name], len(error)
    quiet = {"hoverinfo": "skip", "showlegend": False, "mode": "lines", "line": {"width": 0}}
    title = f"{name}, mean of {count} seeds"
    return [
        {"type": "scatter", "x": x, "y": _inside(low, ceiling), **quiet},
        {
            "type": "scatter", "x": x, "y": _inside(high, ceiling), **quiet,
            "name": f"{name}, band", "fill": "tonexty", "fillcolor": _tint(hue, 0.2),
        },
        {
            **_line(title, x, _inside(mean, ceiling), hue, 2.6 if thick else 1.2, dash="solid" if thick else "dot"),
            "showlegend": thick,  # on top of an exact curve its colour says whose it is
        },
    ]  # fmt: skip


def _line(name: str, x: Any, y: Any, hue: str, width: float, dash: str = "solid") -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": x, "y": y,
        "line": {"color": hue, "width": width, "dash": dash},
        "hovertemplate": f"{name}: %{{y:.3g}}<extra></extra>",
    }  # fmt: skip


def _inside(y: Floats, ceiling: float) -> list[float | None]:
    """Values that the picture shows: a curve that leaves it ends with one point above its upper edge."""
    out = np.flatnonzero(~(y <= ceiling))
    until = int(out[0]) if len(out) else len(y)
    kept: list[float | None] = [float(v) for v in y[:until]]
    return kept + ([100 * ceiling] if until < len(y) else []) + [None] * (len(y) - until - 1)


def _ceiling(curves: Mapping[str, Curve], runs: Sequence[xr.Dataset]) -> float:
    starts = [float(c.exact["mse"].values[0]) for c in curves.values() if c.exact is not None]
    held = [*runs, *(c.runs for c in curves.values() if c.runs is not None)]
    starts += [float(r["squared_error"].values[:, 0].mean()) for r in held]
    return HEADROOM * max(starts, default=1.0)


def _limits(levels: Sequence[Floats], ceiling: float) -> tuple[float, float]:
    """The vertical axis, in powers of ten, with a little room on both sides."""
    shown = np.concatenate([np.ravel(v) for v in levels]) if levels else np.ones(1)
    shown = np.minimum(shown[np.isfinite(shown) & (shown > 0)], ceiling)
    if not len(shown):
        return -1.0, 1.0
    low, high = np.log10(shown.min()), np.log10(shown.max())
    room = max(0.05 * (high - low), 0.05)
    return float(low - room), float(high + room)


def _lines(width: str) -> int:
    """Of the legend: three methods and a bias."""
    return 4 if width == "narrow" else 1


def _layout(s: Settings, limits: tuple[float, float], lines: int) -> dict[str, Any]:
    plain = {"linecolor": SOFT, "gridcolor": FAINT, "zeroline": False, "ticks": "outside", "tickcolor": SOFT}
    return {
        "xaxis": {
            **plain, "title": {"text": AXES[s.x], "standoff": 8}, "type": s.scale,
            **({"exponentformat": "power"} if s.scale == "log" else {"rangemode": "tozero", "separatethousands": True}),
        },
        "yaxis": {
            **plain, "title": {"text": "mean squared error  ‖θ \u2212 θ⋆‖²", "standoff": 6}, "type": "log",
            "range": limits, "exponentformat": "power",
            "dtick": 1 if limits[1] - limits[0] > 2 else "D2",
        },
        "legend": {
            "orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12.5}, "traceorder": "normal",
        },
        # margins that are given need no second pass of drawing
        "margin": {"l": 68, "r": 14, "t": 14 + 20 * lines, "b": 52, "autoexpand": False},
        "height": 380 + 20 * lines, "autosize": True, "hovermode": "x unified", "dragmode": False,
        "font": {"family": FONT, "size": 13, "color": INK},
        "plot_bgcolor": "white", "paper_bgcolor": "white",
        "uirevision": f"{s.x} {s.scale}",
    }  # fmt: skip


def _tint(hue: str, alpha: float) -> str:
    r, g, b = (int(hue[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({r},{g},{b},{alpha})"
