"""The commands `fedlsa theory` and `fedlsa plan`: exact errors and cheapest runs, without a simulation."""

from __future__ import annotations

import math
import shlex
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import typer

from .. import checks, figures, results
from .. import theory as exactly
from ..algorithms import METHODS, FedLSA, supporting
from ..errors import ArgumentError
from ..figures.drawing_checks import SCALES
from ..results.result_files import CURVE_SUFFIXES
from ..theory.planner import Plan
from . import parsing
from .choices import BASIC_METHODS, PROBLEM, REPEATED_METHODS, as_options, check_methods, described
from .display import live_bar, print_json
from .options import AS_JSON, App, Given, in_words_of, option, switch, takes
from .summaries import ERROR_PARTS, print_exact, print_plans

DIGITS = 5e-4  # relative, of the stability limit: as many as the table shows
EARLY = 50  # rounds that are all drawn: on a logarithmic axis they take most of the room
MAX_GROUPS = 8  # of different agents, up to which a stability limit with control variates takes seconds
THEORY_EXAMPLES = (
    "fedlsa theory --perturbation 0 --local-steps 1000 --plot parts.png",
    "fedlsa theory --agents 10 --method scafflsa --method scaffnew --step-size 0.2",
)
PLAN_EXAMPLES = (
    "fedlsa plan --perturbation 0 --epsilon 0.1 --method fedlsa --method scafflsa --plot trade-off.png",
    "fedlsa plan --perturbation 0 --rounds 50 --max-samples 5000 --method scafflsa",
    "fedlsa plan --perturbation 0 --samples 10000 --method fedlsa",
)


app = App()


@app.command(examples=THEORY_EXAMPLES)
@takes(problem=PROBLEM, methods=BASIC_METHODS)
def theory(
    context: typer.Context,
    problem: Given,
    methods: Given,
    rounds: int = option("Communications T.", 500, "Method"),
    plot: Path | None = option(
        "Draw exact errors, split into start, drift and noise: .png, .pdf, .svg.", None, "Output"
    ),
    out: Path | None = option("Save the curves: a table, FILE.csv, or netCDF, FILE.nc.", None, "Output"),
    scale: str = option("Of the horizontal axis: linear or log.", "log", "Output", names=SCALES),
    limit: bool = switch("--limit", "Find the unstable step size of many different agents too: minutes."),
    force: bool = switch("--force", "Replace a file that exists.", "Output"),
    json: bool = AS_JSON,
) -> None:
    """The exact expected error of methods, split into start, drift and noise, for i.i.d. observations."""
    chosen = methods()
    checks.integer("--rounds", rounds, at_least=1)
    checks.choice("--scale", scale, SCALES)
    picture = parsing.target("--plot", plot, force, context.obj)
    out = parsing.target("--out", out, force, context.obj, CURVE_SUFFIXES)
    moments = exactly.moments(problem())
    kept = sorted({*range(min(rounds, EARLY) + 1), *(round(k * rounds / 200) for k in range(201))})
    curves, ends, limits = [], [], []
    with live_bar(" + ".join(a.name for a in chosen), updates=False) as progress:
        for i, algorithm in enumerate(chosen, 1):
            curves.append(exactly.exact(moments, algorithm, rounds=rounds, record=kept))
            ends.append(exactly.stationary(moments, algorithm))
            quick = isinstance(algorithm, FedLSA) or len(moments.table) <= MAX_GROUPS
            known = quick or limit
            limits.append(exactly.stability_limit(moments, algorithm, tolerance=DIGITS) if known else math.nan)
            if progress is not None:
                progress(i, len(chosen))
    parsing.write(out, partial(results.save_curves, curves, command=context.obj), force=force)
    drawn = partial(figures.exact_curves, curves, scale=scale, parts=True)
    parsing.write_picture(picture, drawn, context.obj, force=force)
    if json:
        found = zip(chosen, curves, ends, limits, strict=True)
        rows = [
            {**described(a), **{part: c[part][-1].item() for part in ("mse", *ERROR_PARTS)}, **_limit(end, eta)}
            for a, c, end, eta in found
        ]
        print_json(rounds=rounds, methods=rows, saved=[path for path in (out, picture) if path is not None])
    else:
        print_exact(curves, ends, limits, [a.step_size for a in chosen])
        parsing.tell_saved(out, picture)


def _limit(end: exactly.Stationary, unstable_from: float) -> dict[str, Any]:
    """The limit law of a method, for programs; None where there is none."""
    names = ("mse", "drift", "noise", "bias") if end.stable else ()
    law = {name: getattr(end, name) for name in names}
    return {"stable": end.stable, "radius": end.radius, "stationary": law or None, "unstable_from": unstable_from}


@app.command(examples=PLAN_EXAMPLES)
@takes(problem=PROBLEM)
def plan(
    context: typer.Context,
    problem: Given,
    epsilon: float | None = option("Fewest communications with at most this RMSE.", None, "Target"),
    rounds: int | None = option("Smallest RMSE with so many communications; needs --max-samples.", None, "Target"),
    samples: float | None = option("Smallest RMSE with so many observations per agent.", None, "Target"),
    max_samples: float | None = option(
        "Most observations per agent. By default, with --epsilon, 4 times the fewest that reach it.", None, "Target"
    ),
    method: list[str] | None = option(f"{REPEATED_METHODS} By default all.", None, "Method", names=METHODS),
    plot: Path | None = option("With --epsilon: draw communications against observations.", None, "Output"),
    force: bool = switch("--force", "Replace a file that exists.", "Output"),
    json: bool = AS_JSON,
) -> None:
    """The cheapest run of each method that reaches a target, by exact errors, and the command that runs it."""
    names = check_methods(method or list(supporting("plan")))
    given = [f"--{k}" for k, v in (("epsilon", epsilon), ("rounds", rounds), ("samples", samples)) if v is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise ArgumentError(f"plan needs exactly one of --epsilon, --rounds and --samples; got {got}")
    if samples is not None and max_samples is not None:
        raise ArgumentError("--max-samples goes with --epsilon or --rounds; got --samples")
    if plot is not None and epsilon is None:
        raise ArgumentError(f"--plot needs --epsilon: the trade-off is that of an accuracy; got {given[0]}")
    picture, made = parsing.target("--plot", plot, force, context.obj), problem()
    plans: dict[str, Plan] = {}
    refused: list[ArgumentError] = []
    target: Any = {"rounds": rounds, "samples": samples, "max_samples": max_samples}
    with live_bar("plan " + " + ".join(names), updates=False) as progress:
        for i, name in enumerate(names, 1):
            try:
                plans[name] = exactly.plan(made, epsilon, method=name, **target)
            except ArgumentError as error:
                refused.append(error)
            if progress is not None:
                progress(i, len(names))
    if not plans:
        raise refused[0]
    for why in refused:
        print(f"fedlsa: warning: {in_words_of(context.command, str(why))}", file=sys.stderr)
    best = min(plans, key=lambda name: _cost(plans[name], by_rounds=epsilon is not None))
    run = shlex.join(["fedlsa", "simulate", *as_options(**problem.arguments), *_as_options(plans[best])])
    if json:
        costs = [{f.name: getattr(p, f.name) for f in fields(p)} | described(p.algorithm) for p in plans.values()]
        print_json(plans=costs, recommended=best, command=run, saved=[picture] if picture is not None else [])
    else:
        print_plans(list(plans.values()))
        print(f"recommended: {best}; run it:\n{run}")
    if picture is not None and epsilon is not None:
        with live_bar("trade-off", updates=False) as progress:
            points = exactly.trade_off(made, epsilon, list(plans), progress=progress)
        draw = partial(figures.trade_off, [*points, *plans.values()], epsilon)
        parsing.write_picture(picture, draw, context.obj, force=force)
        if not json:
            parsing.tell_saved(picture)


def _cost(plan: Plan, by_rounds: bool) -> tuple[float, float, float]:
    """What the recommended plan has least of; RMSE to three digits, so that noise does not decide."""
    rmse = float(f"{plan.rmse:.3g}")
    return (plan.rounds, plan.samples, rmse) if by_rounds else (rmse, plan.rounds, plan.samples)


def _as_options(plan: Plan) -> list[str]:
    """The options of `fedlsa simulate` that run a plan."""
    a = plan.algorithm
    length = ["--" + a.length.replace("_", "-"), repr(getattr(a, a.length))]
    return ["--method", a.name, "--step-size", repr(a.step_size), *length, "--rounds", str(plan.rounds)]
