"""Error against cost: simulated results with their spread over seeds, exact curves, theorems' bounds, and plans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..mathml import cite
from ..results import recipe
from ..results.recipe import require_result
from ..results.result_files import checked_curves
from ..value_objects import fields_of
from ..value_objects import shown as in_short
from . import theme
from .lines import (
    COSTS,
    ERROR,
    MSE,
    Chart,
    ChartRows,
    Line,
    SeedSummary,
    common_setting,
    describe,
    error_ceiling,
    error_limits,
    first_beyond,
    level,
    method_name,
    names,
    start_words,
    summarise_seeds,
)
from .matplotlib_figures import Drawn, checked_levels, checked_results, draw_charts, drawing_options

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..theory.bounds import Bound
    from ..theory.planner import Plan

EXACT_COSTS = ("communications", "samples", "bytes")
RUN_COSTS = ("communications", "bytes")  # of a plan, against its observations
PREDICTED = "predicted drift\n‖bias‖²"
SMALL_BAND = 1e-3  # of the smallest error: a part that ends below it is not seen
UNITS = {"bytes": 1, "kilobytes": 1e3, "megabytes": 1e6, "gigabytes": 1e9, "terabytes": 1e12}


def error_curves(
    results: xr.Dataset | Iterable[xr.Dataset],
    *,
    bias: float | Sequence[float] | None = None,
    title: str | None = None,
    band: tuple[float, float] = (0.1, 0.9),
    x: str = "communications",
    scale: str = "linear",
    legend: bool = True,
    ax: Axes | None = None,
) -> Drawn:
    """The mean squared error of each result against what it cost, on a logarithmic axis.

    results : of `simulate`, or sweeps, each run of which has its line
    bias : ||bias||^2, as predicted for each result (NaN for none; see `predicted_bias`), drawn as a dashed line
    band : the two quantiles over seeds between which the area is tinted; the figure says which
    x : "communications", "samples" (per agent), "uploads" (messages) or "bytes" (both ways)
    scale : of this axis, "linear" or "log"

    A seed that diverges leaves the mean and is drawn on its own, with a cross where it leaves the figure.
    """
    look = drawing_options(title, legend, ax, "right", band=band, scale=scale)
    runs = checked_results(results)
    levels = checked_levels(bias, len(runs))
    checks.choice("x", x, COSTS)
    summaries = [summarise_seeds(r, band, x) for r in runs]
    labels, strokes = names(runs), _distinct_strokes([method_name(r) for r in runs])
    ceiling = error_ceiling([s.mean for s in summaries], [len(s.diverged) < s.seeds for s in summaries])
    lines = [s.line(n, colour, dash=dash) for s, n, (colour, dash) in zip(summaries, labels, strokes, strict=True)]
    predicted = _bias_lines(levels, lines, labels)
    for s, (colour, _) in zip(summaries, strokes, strict=True):
        lines += s.diverged_lines(colour, ceiling)
    lines += chain.from_iterable(predicted)
    notes = [_seeds_note(summaries, band, "One seed: no band.", "Line: mean over {seeds}. Band")]
    for s, label in zip(summaries, labels, strict=True):
        notes += s.divergence_notes(label)
    charts = ChartRows([[Chart(lines, COSTS[x], x_scale=scale, ceiling=ceiling)]], notes)
    return draw_charts(charts, heading=common_setting(runs), description=describe(runs), **look)


def exact_curves(
    curves: xr.Dataset | Iterable[xr.Dataset],
    *,
    bias: float | Sequence[float] | None = None,
    runs: xr.Dataset | Iterable[xr.Dataset] | None = None,
    x: str = "communications",
    scale: str = "linear",
    title: str | None = None,
    band: tuple[float, float] = (0.1, 0.9),
    parts: bool = False,
    legend: bool = True,
    ax: Axes | Sequence[Axes] | None = None,
) -> Drawn:
    """The exact mean squared error of each method against what it costs, on a logarithmic axis.

    curves : datasets of `theory.exact`
    bias : ||bias||^2, the drift in the limit, as predicted for each (NaN for none), drawn dashed
    runs : results of `simulate` of the same methods, any of them: the mean over seeds as a thin line, and a tint
        between the two quantiles of `band`
    x : "communications", "samples" (per agent, expected) or "bytes" (both ways)
    scale : of this axis, "linear" or "log"
    parts : whether errors of independent observations are split into bands, one panel per curve: noise at the bottom,
        on it drift, on that what is left of the start. On a logarithmic axis a band is as thick as the factor by which
        the error would fall without it and what stands on it

    A method that diverges leaves the figure at its top, and a note names it.
    """
    split = checks.boolean("parts", parts)
    look = drawing_options(title, legend, ax, "above" if split else "right", band=band, scale=scale)
    exact = checked_curves(curves, ("mse", *EXACT_COSTS), ("method", "algorithm", "sampling", "moments", "start"))
    levels = checked_levels(bias, len(exact), "curve")
    simulated = [] if runs is None else checked_results(runs, "runs")
    owners = [_owner(r, exact) for r in simulated]
    checks.choice("x", x, EXACT_COSTS)
    most = max(float(c[x][-1]) for c in exact) if x == "bytes" else 0.0
    unit, size = next(((u, n) for u, n in reversed(UNITS.items()) if most >= 10 * n), ("bytes", 1.0))  # ten of it
    errors = [np.asarray(c["mse"].values, np.float64) for c in exact]
    labels, strokes = names(exact), _distinct_strokes([method_name(c) for c in exact])
    ceiling = error_ceiling(errors)
    departures = [first_beyond(e, ceiling) for e in errors]
    shown = [n if at is None else f"{n} diverges" for n, at in zip(labels, departures, strict=True)]
    totals = [
        Line(c[x].values / size, e, MSE if split else n, colour, dash=dash)
        for c, e, n, (colour, dash) in zip(exact, errors, shown, strokes, strict=True)
    ]
    predicted = _bias_lines(levels, totals, labels)
    seeds: list[list[Line]] = [[] for _ in exact]
    summaries = [summarise_seeds(r, band, x, size) for r in simulated]
    one, many = "Thick: exact. Thin: one simulated seed.", "Thick: exact. Thin: mean over {simulated}; tint"
    notes = [_seeds_note(summaries, band, one, many)] if summaries else []
    notes += _leaving_notes(exact, labels, departures)
    for s, i in zip(summaries, owners, strict=True):
        colour, _ = strokes[i]
        seeds[i] += [s.line("", colour, "tint"), Line(s.x, s.mean, "", theme.mix(colour, "#000000", 0.45), "seeds")]
        seeds[i] += s.diverged_lines(colour, ceiling)
        notes += s.divergence_notes(labels[i])
    chart = Chart([], COSTS[x].replace("bytes", unit), x_scale=scale, ceiling=ceiling)
    if split:
        bottom, bands = _bands(exact, errors, x, size)
        chart = replace(chart, limits=(bottom, error_limits([replace(chart, lines=totals)])[1]))
        for drawn in predicted:  # each panel has one, and the legend above them is one line high
            drawn[:] = [replace(line, label=PREDICTED.replace("\n", " "), colour=theme.INK) for line in drawn]
        charts = [
            replace(chart, lines=[*bands[i], totals[i], *predicted[i], *seeds[i]], title=n, title_colour=strokes[i][0])
            for i, n in enumerate(shown)
        ]
    else:
        charts = [replace(chart, lines=[*totals, *chain.from_iterable((*predicted, *seeds))])]
    foundation = [] if simulated else ["exact, no simulation"]
    if any("closure" in str(c.attrs["moments"]) for c in exact):  # not plain to see: a closure is no exact result
        foundation = ["closure over pairs of agents"]
    origin = {"curves": [dict(c.attrs) for c in exact], "versions": recipe.versions()}
    origin |= {"runs": recipe.value(describe(simulated))} if simulated else {}
    heading, count = ",  ".join([common_setting(exact), *foundation]), len(charts)
    panel = (7.0, 3.5) if count == 1 else ((7.0 if count < 3 else 9.0) / count, 3.2)
    return draw_charts(ChartRows([charts], notes, panel), heading=heading, description=recipe.text(origin), **look)


def _bands(
    exact: Sequence[xr.Dataset], errors: Sequence[Floats], x: str, size: float
) -> tuple[float, list[list[Line]]]:
    """The parts of each error, one on the other, down to below the smallest error or the smallest part that lasts."""
    if any("drift" not in c for c in exact):
        raise ArgumentError("parts must be False along trajectories, whose errors are not split; got True")
    stacked = [np.cumsum([c[part].values for part in theme.ERROR_PARTS], axis=0) for c in exact]
    known = np.concatenate([*errors, *(s[:, -1] for s in stacked)])
    least = min(e.min(initial=math.inf, where=e > 0) for e in errors)
    least = least if least < math.inf else 1.0  # nothing is off
    bottom = float(known.min(initial=least, where=known > SMALL_BAND * least)) / 3  # there is room for the lowest band
    out = []
    for c, sums in zip(exact, stacked, strict=True):
        edges = np.maximum(np.concatenate([np.zeros((1, sums.shape[1])), sums]), bottom)
        named = zip(theme.ERROR_PARTS.items(), edges[:-1], edges[1:], strict=True)
        at = c[x].values / size
        out.append([Line(at, high, part, colour, "part", band=(low, high)) for (part, colour), low, high in named])
    return bottom, out


def _distinct_strokes(methods: Sequence[str]) -> list[tuple[str, str]]:
    """Colour and dash of each: a method has its colour, and its further runs are lighter and dashed."""
    others = list(dict.fromkeys(m for m in methods if m not in theme.METHODS))
    out = []
    for i, method in enumerate(methods):
        twin = methods[:i].count(method)
        dash = theme.TWIN_DASHES[twin % len(theme.TWIN_DASHES)]
        out.append((theme.shade(theme.colour(method, others), twin), dash))
    return out


def _bias_lines(levels: Sequence[float], lines: Sequence[Line], labels: Sequence[str]) -> list[list[Line]]:
    """The prediction of each curve, or none: in ink with its name, or, where several are, in the colours of curves."""
    several = sum(value > 0 for value in levels) > 1
    out = []
    for value, line, n in zip(levels, lines, labels, strict=True):
        name = f"{PREDICTED} of {'the same colour' if several else n}"
        out.append([level(value, lines, name, line.colour if several else theme.INK)] if value > 0 else [])
    return out


def _seeds_note(summaries: Sequence[SeedSummary], band: tuple[float, float], one: str, several: str) -> str:
    counts = {s.seeds for s in summaries}
    if counts == {1}:
        return one
    many = str(*counts) if len(counts) == 1 else "the"
    low, high = (f"{100 * q:g}%" for q in band)
    who = several.format(seeds=f"{many} seeds", simulated=f"{many} simulated seeds".removeprefix("the "))
    return f"{who}: from their {low} to their {high} quantile."


def _leaving_notes(exact: Sequence[xr.Dataset], labels: Sequence[str], left: Sequence[int | None]) -> list[str]:
    """Which methods diverge, by the round from which on they are out of sight."""
    named_by_round: dict[int, list[str]] = {}
    for c, label, at in zip(exact, labels, left, strict=True):
        if at is not None:
            named_by_round.setdefault(int(c["rounds"][at]), []).append(label)
    notes = []
    for t, named in named_by_round.items():
        what = "diverges: its error is" if len(named) == 1 else "diverge: their errors are"
        notes.append(f"{'; '.join(named)} {what} beyond the figure from round {t:,} on.")
    return notes


def _owner(run: xr.Dataset, exact: Sequence[xr.Dataset]) -> int:
    """The curve that a run belongs to: of the same method, on as many agents, in the same dimension."""
    known = ["{method}, {agents} agents, d = {dim}".format(**c.attrs) for c in (*exact, run)]
    if known[-1] not in known[:-1]:
        listed = "; ".join(known[:-1])
        raise ArgumentError(f"runs must be of the methods and the problem of the curves ({listed}); got {known[-1]}")
    return known.index(known[-1])


# What theory says, drawn: a theorem's bound beside what happens, and what plans cost.

BOUND_ROLES = ("bound", "second bound")
SAMPLED_ROUNDS = 24  # at which the mean of simulations is marked: more marks would hide the exact curve


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
    from ..theory.bounds import Bound  # what is saved is drawn without it

    look = drawing_options(title, legend, ax, band=band, scale=scale)
    drawn = checks.instances("bounds", bounds, Bound, "a bound of fedlsa.theory")
    _check_bounds(drawn, exact, result, x)
    data = [d for d in (result, exact) if d is not None]
    name = method_name(data[0])
    colour = theme.colour(name, [name])
    lines = [
        Line(
            _bound_costs(b, x),
            b.mse,
            f"bound on ψ ({cite(b.label)})" if "psi" in b.bounds else f"bound ({cite(b.label)})",
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
        count = int(np.sum(s.x <= end))
        some = np.unique(np.linspace(0, count - 1, min(SAMPLED_ROUNDS, count)).round().astype(int))
        lines.append(s.line(f"{s.seeds} simulations", colour, "tint"))
        lines.append(Line(s.x[some], s.mean[some], "their mean", colour, "samples"))
    if result is not None:
        heading = f"{name},  {common_setting([result])}"
    else:
        attrs = data[0].attrs
        heading = "{method},  N = {agents},  d = {dim},  ".format(**attrs) + start_words(attrs["start"])
    per_iteration = psi and x == "samples"
    chart = Chart(
        lines,
        COSTS[x] + (" (iterations)" if per_iteration else ""),
        "ψ and mean squared error" if psi else ERROR,
        x_scale=scale,
        x_limits=(0.0, end),
    )
    charts = ChartRows([[chart]], _bound_notes(drawn, result, band, per_iteration))
    about = describe([result]) if result is not None else recipe.text(dict(data[0].attrs))
    return draw_charts(charts, heading=heading, description=about, **look)


def _bound_costs(b: Bound, x: str) -> Floats:
    return np.asarray(b.rounds if x == "communications" else b.samples, np.float64)


def _exact_costs(b: Bound, exact: xr.Dataset, x: str) -> Floats:
    """Where the exact values stand on the axis; both costs grow in proportion."""
    if "iteration" in exact.coords:
        return np.asarray(exact["iteration"].values, np.float64)
    rounds = exact["rounds"].values.astype(np.float64)
    return rounds if x == "communications" else rounds * float(b.samples[-1] / _bound_costs(b, "communications")[-1])


def _bound_notes(
    drawn: Sequence[Bound], result: xr.Dataset | None, band: tuple[float, float], per_iteration: bool
) -> list[str]:
    notes = []
    if result is not None:
        low, high = (f"{100 * q:g}%" for q in band)
        notes.append(f"Band: from the {low} to the {high} quantile of the squared error over seeds.")
    if result is not None and per_iteration:
        notes.append("Simulations: the server's error at its communications, each at its mean iteration.")
    failed = {cite(b.label): [rule for rule, met in b.conditions.items() if not met] for b in drawn}
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
        checked_curves(exact, ("mse",), ("method", "agents", "dim", "start"), "exact")
        if "iteration" in exact.coords and x != "samples":
            raise ArgumentError('x must be "samples" where exact errors are those per iteration; got "communications"')
    if result is not None:
        require_result("result", result)


def trade_off(
    plans: Sequence[Plan],
    epsilon: float,
    *,
    y: str = "communications",
    title: str | None = None,
    legend: bool = True,
    ax: Axes | None = None,
) -> Drawn:
    """Communications against observations per agent of plans that all reach the RMSE epsilon, a line per method.

    Both axes are logarithmic; a plan that another of the same method beats in both is left out. y : "communications",
    or "bytes" (both ways), of which a round has fewer where less is sent
    """
    from ..theory.planner import Plan

    look = drawing_options(title, legend, ax)
    epsilon = checks.real("epsilon", epsilon, above=0)
    plans = checks.instances("plans", plans, Plan, "a plan of fl.plan")
    bases = ", ".join(dict.fromkeys(p.basis for p in plans))
    starts = [start_words(named) for named in dict.fromkeys(p.start for p in plans) if named]
    note = f"Mark: the fewest {y} found with that many observations; the line holds it until the next mark."
    heading = ",  ".join([f"What an RMSE of {epsilon:g} costs, by {bases}", *starts])
    charts = ChartRows([[trade_off_chart(plans, checks.choice("y", y, RUN_COSTS))]], [note])
    return draw_charts(charts, heading=heading, description=f"trade-off for RMSE {epsilon:g}", **look)


def trade_off_chart(plans: Sequence[Plan], y: str = "communications") -> Chart:
    """The plans that no other of the same method beats in both costs."""
    from ..theory.planner import pareto_front

    by_method = _by_method(plans)
    kinds = [label.partition(",")[0] for label in by_method]
    others = [kind for kind in dict.fromkeys(kinds) if kind not in theme.METHODS]
    marks = theme.METHOD_MARKERS | dict(zip(others, cycle(theme.OTHER_MARKERS), strict=False))
    lines = []
    for i, (label, (colour, dash)) in enumerate(zip(by_method, _distinct_strokes(kinds), strict=True)):
        front = pareto_front(by_method[label])
        lines.append(
            Line(
                np.array([float(p.samples) for p in front]),
                np.array([float(p.bytes if y == "bytes" else p.rounds) for p in front]),
                label,
                colour,
                "joined",
                marker=marks[kinds[i]],
                dash=dash,
                size=7.5 - 2 * min(i, 2),  # methods that agree are all seen
                steps=True,  # until the next mark nothing better was found
            )
        )
    most = max(float(line.y.max()) for line in lines)
    least = min(float(line.y.min()) for line in lines) if y == "bytes" else 1.0
    limits = 0.92 * least, max(1.25 * most, 2.5 * least)
    return Chart(lines, COSTS["samples"], COSTS[y], x_scale="log", limits=limits)


def _by_method(plans: Sequence[Plan]) -> dict[str, list[Plan]]:
    """Plans by the name of their method and, where it occurs with several settings, those that set it apart."""
    settings = [dict(fields_of(p.algorithm)) for p in plans]
    out: dict[str, list[Plan]] = {}
    for p, mine in zip(plans, settings, strict=True):
        kind = type(p.algorithm)
        kin = [other for q, other in zip(plans, settings, strict=True) if type(q.algorithm) is kind]
        own = {k: v for k, v in mine.items() if k not in ("step_size", p.algorithm.length)}
        differing = [f"{k.replace('_', ' ')} {in_short(v)}" for k, v in own.items() if any(o[k] != v for o in kin)]
        out.setdefault(", ".join([kind.__name__, *differing]), []).append(p)
    return out
