"""What an accuracy costs: communications against observations, for each method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import checks
from ..theory.planner import Plan, pareto_front
from . import style
from .doors import checked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = {"FedLSA": "o", "SCAFFLSA": "s", "Scaffnew": "^"}


@checked
def trade_off(plans: Sequence[Plan], epsilon: float, *, title: str | None = None) -> Figure:
    """Communications against observations per agent of plans that all reach the RMSE epsilon, a line per method.

    Both axes are logarithmic; a plan that another of the same method beats in both is left out.
    """
    epsilon = checks.real("epsilon", epsilon, above=0)
    plans = checks.instances("plans", plans, Plan, "a plan of fl.plan")
    matplotlib = style.matplotlib()
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    with matplotlib.rc_context(style.RC):
        figure, axes = style.canvas()
        methods = list(dict.fromkeys(type(p.algorithm).__name__ for p in plans))
        for i, method in enumerate(methods):
            kept = pareto_front([p for p in plans if type(p.algorithm).__name__ == method])
            axes.plot(
                [p.samples for p in kept],
                [p.rounds for p in kept],
                color=style.colour(method, methods),
                marker=MARKERS.get(method, "D"),
                markersize=7.5 - 2 * i,  # methods that agree are all seen
                drawstyle="steps-post",  # until the next mark nothing better was found
                label=method,
                zorder=3 + i,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain = FuncFormatter(lambda v, _: f"{v:,.0f}".replace(",", "\u2009"))
        for axis in (axes.xaxis, axes.yaxis):
            first, last = axis.get_view_interval()
            between = (1.0, 2.0, 5.0) if last > 8 * first else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
            axis.set_major_locator(LogLocator(subs=between))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(plain)
        axes.set_xlabel("observations per agent")
        axes.set_ylabel("communications")
        high = axes.get_ylim()[1]
        axes.set_ylim(0.92, max(high, 2.5))
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.2)
        top = 0.86 if title else 0.93
        figure.subplots_adjust(left=0.095, right=0.97, top=top, bottom=0.18)
        if title:
            figure.text(0.095, 0.985, title, fontsize=11.5, fontweight="bold", va="top")
        heading = f"What an RMSE of {epsilon:g} costs, by exact errors"
        figure.text(0.095, top + 0.02, heading, fontsize=8.5, color=style.SOFT, va="bottom")
        note = (
            "Mark: the fewest communications found with that many observations; the line holds it until the next mark."
        )
        figure.text(0.095, 0.012, note, fontsize=7.5, color=style.SOFT, va="bottom")
        figure.set_label(f"trade-off for RMSE {epsilon:g}")
    return figure
