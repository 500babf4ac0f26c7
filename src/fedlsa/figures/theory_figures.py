"""What theory says, drawn: a theorem's bound beside what happens, and what plans cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..paper_items import item
from ..results import recipe
from ..results.recipe import require_result
from ..results.result_files import checked_curves
from ..theory.bounds.theorems import Bound
from ..theory.planner import Plan
from ..theory.trade_offs import pareto_front
from . import theme
from .drawing_checks import checked
from .lines import COSTS, ERROR, Chart, Line, common_setting, describe, method_name, start, start_words, summarise_seeds
from .matplotlib_figures import Drawn, draw_charts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BOUND_ROLES = ("bound", "second bound")
SAMPLED_ROUNDS = 24  # at which the mean of simulations is marked: more marks would hide the exact curve


@checked
def bound_and_curve(
    bounds: Bound | Sequence[Bound],
    exact: xr.Dataset | None = None,
    result: xr.Dataset | None = None,
    *,
    title: str | None = None,
    band: tuple[float, float] = (0.1, 0.9),
    x: str = "communications",
    scale: str = "linear",
    legend: bool = True,
    ax: Axes | None = None,
) -> Drawn:
    """The bound of a theorem at several rounds, the exact error, and simulations, on a logarithmic axis.

    bounds : one or two of `theory.bound`, `td_bound` or `markov_bound` with `record`, of which the MSE is drawn
    exact : of `theory.exact`, or of `theory.exact_iterations` with x="samples"; where a bound is on psi it is drawn too
    result : of `simulate`: marks at the mean over seeds, and between the two quantiles of `band` the area is tinted
    x : "communications" or "samples" (observations of an agent); scale : of this axis, "linear" or "log"
    """
    drawn = checks.instances("bounds", bounds, Bound, "a bound of fedlsa.theory")
    _check_bounds(drawn, exact, result, x)
    data = [d for d in (result, exact) if d is not None]
    name = method_name(data[0])
    colour = theme.colour(name, [name])
    lines = [
        Line(
            _bound_costs(b, x),
            b.mse,
            f"bound on ψ ({item(b.label)})" if "psi" in b.bounds else f"bound ({item(b.label)})",
            role=role,
        )
        for b, role in zip(drawn, BOUND_ROLES, strict=False)
    ]
    end = max(float(line.x[-1]) for line in lines)
    psi = exact is not None and "psi" in drawn[0].bounds and "psi" in exact
    if exact is not None:
        at = _exact_costs(drawn[0], exact, x)
        if psi:
            lines.append(Line(at, exact["psi"].values, "exact ψ", theme.shade(colour, 2)))
        lines.append(Line(at, exact["mse"].values, "exact mean squared error", colour))
    if result is not None:
        s = summarise_seeds(result, band, x)
        seen = int(np.sum(s.x <= end))
        some = np.unique(np.linspace(0, seen - 1, min(SAMPLED_ROUNDS, seen)).round().astype(int))
        lines.append(s.line(f"{s.seeds} simulations", colour, "tint"))
        lines.append(Line(s.x[some], s.mean[some], "their mean", colour, "samples"))
    per_iteration = psi and x == "samples"
    chart = Chart(
        lines,
        COSTS[x] + (" (iterations)" if per_iteration else ""),
        "ψ and mean squared error" if psi else ERROR,
        x_scale=scale,
        x_limits=(0.0, end),
    )
    return draw_charts(
        [[chart]],
        title=title,
        heading=_heading(data[0]),
        notes=_bound_notes(drawn, result, band, per_iteration),
        legend="above" * legend,
        description=describe([result]) if result is not None else recipe.text(dict(data[0].attrs)),
        ax=ax,
    )


def _bound_costs(b: Bound, x: str) -> Floats:
    return np.asarray(b.rounds if x == "communications" else b.samples, np.float64)


def _exact_costs(b: Bound, exact: xr.Dataset, x: str) -> Floats:
    """Where the exact values stand on the axis; both costs grow in proportion."""
    if "iteration" in exact.coords:
        return np.asarray(exact["iteration"].values, np.float64)
    rounds = exact["rounds"].values.astype(np.float64)
    return rounds if x == "communications" else rounds * float(b.samples[-1] / _bound_costs(b, "communications")[-1])


def _heading(data: xr.Dataset) -> str:
    if "squared_error" in data:
        return f"{method_name(data)},  {common_setting([data])}"
    return _joined(f"{data.attrs['method']},  N = {data.attrs['agents']},  d = {data.attrs['dim']}", start(data))


def _joined(*parts: str | None) -> str:
    return ",  ".join(filter(None, parts))


def _bound_notes(
    drawn: Sequence[Bound], result: xr.Dataset | None, band: tuple[float, float], per_iteration: bool
) -> list[str]:
    notes = []
    if result is not None:
        low, high = (f"{100 * q:g}%" for q in band)
        notes.append(f"Band: from the {low} to the {high} quantile of the squared error over seeds.")
    if result is not None and per_iteration:
        notes.append("Simulations: the server's error at its communications, each at its mean iteration.")
    failed = {item(b.label): [rule for rule, met in b.conditions.items() if not met] for b in drawn}
    notes += [f"{label}: conditions not met: {'; '.join(rules)}." for label, rules in failed.items() if rules]
    if not any(failed.values()):
        notes.append(f"All conditions of {'the theorem' if len(drawn) == 1 else 'both bounds'} are met.")
    if not all(b.proved for b in drawn):
        notes.append("Not proved here: the bound rests on a statement that the paper cites.")
    return notes


def _check_bounds(drawn: Sequence[Any], exact: Any, result: Any, x: str) -> None:
    checks.choice("x", x, ("communications", "samples"))
    if not 1 <= len(drawn) <= len(BOUND_ROLES):
        raise ArgumentError(f"bounds must hold one bound or two; got {len(drawn)}")
    for b in drawn:
        if isinstance(b.rounds, int):
            raise ArgumentError("bounds must be computed at several rounds, with record; got a single round")
    if exact is None and result is None:
        raise ArgumentError("exact or result must be given, or there is nothing that the bound bounds; got neither")
    if exact is not None:
        checked_curves(exact, ("mse",), ("method", "agents", "dim"), "exact")
        if "iteration" in exact.coords and x != "samples":
            raise ArgumentError('x must be "samples" where exact errors are those per iteration; got "communications"')
    if result is not None:
        require_result("result", result)


@checked
def trade_off(
    plans: Sequence[Plan], epsilon: float, *, title: str | None = None, legend: bool = True, ax: Axes | None = None
) -> Drawn:
    """Communications against observations per agent of plans that all reach the RMSE epsilon, a line per method.

    Both axes are logarithmic; a plan that another of the same method beats in both is left out.
    """
    epsilon = checks.real("epsilon", epsilon, above=0)
    plans = checks.instances("plans", plans, Plan, "a plan of fl.plan")
    return draw_charts(
        [[trade_off_chart(plans)]],
        title=title,
        heading=_joined(
            f"What an RMSE of {epsilon:g} costs, by {', '.join(dict.fromkeys(p.basis for p in plans))}",
            *(start_words(named) for named in dict.fromkeys(p.start for p in plans) if named),
        ),
        notes=[
            "Mark: the fewest communications found with that many observations; the line holds it until the next mark."
        ],
        legend="above" * legend,
        description=f"trade-off for RMSE {epsilon:g}",
        ax=ax,
    )


def trade_off_chart(plans: Sequence[Plan]) -> Chart:
    """The plans that no other of the same method beats in both costs."""
    methods = list(dict.fromkeys(type(p.algorithm).__name__ for p in plans))
    lines = []
    for i, name in enumerate(methods):
        front = pareto_front([p for p in plans if type(p.algorithm).__name__ == name])
        lines.append(
            Line(
                np.array([float(p.samples) for p in front]),
                np.array([float(p.rounds) for p in front]),
                name,
                theme.colour(name, methods),
                "joined",
                marker=theme.METHOD_MARKERS.get(name, "diamond"),
                size=7.5 - 2 * min(i, 2),  # methods that agree are all seen
                steps=True,  # until the next mark nothing better was found
            )
        )
    most = max(float(line.y.max()) for line in lines)
    return Chart(lines, COSTS["samples"], "communications", x_scale="log", limits=(0.92, max(1.25 * most, 2.5)))
