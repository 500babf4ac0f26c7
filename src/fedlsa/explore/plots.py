"""Plotly figures from plain dictionaries, as quickly as they can be had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import MissingExtraError

FONT = "Inter, system-ui, sans-serif"


def plotly() -> Any:
    """Plotly's graph objects, or an error that says how to get them."""
    try:
        import plotly.graph_objects
    except ImportError:
        raise MissingExtraError("the explorer needs marimo and plotly: pip install 'fedlsa[explore]'") from None
    return plotly.graph_objects


def unchecked(data: Sequence[dict[str, Any]], layout: dict[str, Any], frames: Sequence[dict[str, Any]] = ()) -> Any:
    """A figure whose parts Plotly does not check again, which would take longer than all the rest; tests check them."""
    graph = plotly()
    figure = graph.Figure(data=list(data), layout=layout, _validate=False)
    if frames:
        figure._frame_objs = tuple(graph.Frame(_validate=False, **f) for f in frames)  # there is no other way around it
    return figure
