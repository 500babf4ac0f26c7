"""Layouts that depend on the figure alone.

The last bits of Matplotlib's constrained layout may differ from process to process. A PDF holds ten decimals, so that
equal figures could have unequal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib.layout_engine import LayoutEngine

DECIMALS = 9  # of positions, in parts of the figure: a millionth of a point


class SteadyLayout(LayoutEngine):
    """Another engine's layout, with the positions of axes rounded.

    engine : lays out the figure
    """

    def __init__(self, engine: Any) -> None:
        super().__init__()
        self.engine = engine

    adjust_compatible = property(lambda self: self.engine.adjust_compatible)
    colorbar_gridspec = property(lambda self: self.engine.colorbar_gridspec)

    def execute(self, fig: Any) -> None:
        """Lay out the figure."""
        self.engine.execute(fig)
        for axes in fig.axes:
            moves = axes.get_in_layout()
            axes.set_position([round(v, DECIMALS) for v in axes.get_position(original=True).bounds])
            axes.set_in_layout(moves)  # which set_position would end


@contextmanager
def steady(figure: Any) -> Iterator[None]:
    """Such a layout for as long as the figure is saved."""
    engine = figure.get_layout_engine()
    if engine is not None:
        figure.set_layout_engine(SteadyLayout(engine))
    try:
        yield
    finally:
        if engine is not None:
            figure.set_layout_engine(engine)
