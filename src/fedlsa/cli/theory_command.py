"""The commands `fedlsa theory` and `fedlsa plan`: exact errors and cheapest runs, without a simulation."""

from __future__ import annotations

import math
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .. import checks, figures, results
from .. import theory as exactly
from ..algorithms import FAMILY, FedLSA, supporting
from ..engine.progress import live_bar
from ..errors import ArgumentError
from ..figures.lines import SCALES, names, start_words
from ..results.recipe import fields_of
from ..results.result_files import CURVE_SUFFIXES
from .options import AS_JSON, FORCE, App, Given, in_words_of, option, switch, takes
from .outputs import Outputs, number, print_all, print_json, table
from .problem_options import BASIC_METHODS, PROBLEM, REPEATED, as_options, chosen_methods, described, method_word

if TYPE_CHECKING:
    import xarray as xr

    from ..theory.planner import Plan

ERROR_PARTS = ("start", "drift", "noise")  # of an exact error
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
    force: bool = FORCE,
    json: bool = AS_JSON,
) -> None:
    """The exact expected error of methods, split into start, drift and noise, for i.i.d. observations."""
    chosen = methods()
    checks.integer("--rounds", rounds, at_least=1)
    files = Outputs(context.obj, force)
    files.check("--plot", plot)
    files.check("--out", out, CURVE_SUFFIXES)
    made = problem()
    kept = sorted({*range(min(rounds, EARLY) + 1), *(round(k * rounds / 200) for k in range(201))})
    curves, ends, limits = [], [], []
    with live_bar(" + ".join(a.name for a in chosen), updates=False) as progress:
        for i, algorithm in enumerate(chosen, 1):
            curves.append(exactly.exact(made, algorithm, rounds=rounds, record=kept))
            ends.append(exactly.stationary(made, algorithm))
            known = limit or isinstance(algorithm, FedLSA) or len(exactly.moments(made).table) <= MAX_GROUPS
            limits.append(exactly.stability_limit(made, algorithm, tolerance=DIGITS) if known else math.nan)
            if progress is not None:
                progress(i, len(chosen))
    files.save(out, partial(results.save_curves, curves, command=context.obj))
    files.draw(plot, partial(figures.exact_curves, curves, scale=scale, parts=True))
    if json:
        rows = []
        for a, c, end, eta in zip(chosen, curves, ends, limits, strict=True):
            law = {name: getattr(end, name) for name in ("mse", "drift", "noise", "bias")} if end.stable else None
            of_end = {"stable": end.stable, "radius": end.radius, "stationary": law, "unstable_from": eta}
            rows.append(described(a) | {part: c[part][-1].item() for part in ("mse", *ERROR_PARTS)} | of_end)
        print_json(rounds=rounds, methods=rows, saved=files.saved)
    else:
        _print_exact(curves, ends, limits, [a.step_size for a in chosen])
        files.print_saved()


def _print_exact(
    curves: list[xr.Dataset], ends: list[exactly.Stationary], limits: list[float], step_sizes: list[Any]
) -> None:
    """Exact errors at the last round and in the limit, with their parts, and how far each method is from unstable."""
    errors, stability, notes = [], [], []
    for name, c, end, limit, eta in zip(names(curves), curves, ends, limits, step_sizes, strict=True):
        values = [float(c[part][-1]) for part in ("mse", *ERROR_PARTS)]
        final = [end.mse, 0.0, end.drift, end.noise] if end.stable else [math.nan] * 4
        errors += [[name, int(c["rounds"][-1]), *values], [name, "limit", *final]]
        stability.append([name, number(end.radius, 6), limit])
        if not end.stable:
            unstable = f"{name} is unstable with step size {eta:g}: its second moment grows without bound"
            notes.append(f"{unstable} (mean-square radius {end.radius:.4g}, not below 1).")
    if any(math.isnan(limit) for limit in limits):
        notes.append("Step sizes that take minutes to find are left out; --limit finds them.")
    by_parts = table("method", "round", "exact MSE", *(f"of it\n{part}" for part in ERROR_PARTS), rows=errors)
    limits_found = table("method", "mean-square\nradius", "unstable from\nstep size", rows=stability)
    attrs = curves[0].attrs
    setting = f"N = {attrs['agents']},  d = {attrs['dim']},  i.i.d. sampling,  {start_words(attrs['start'])},  exact"
    print_all(by_parts, limits_found, *notes, heading=setting)


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
    method: list[str] | None = option(f"{REPEATED} By default those of the paper.", None, "Method", names=FAMILY),
    plot: Path | None = option("With --epsilon: draw communications against observations.", None, "Output"),
    force: bool = FORCE,
    json: bool = AS_JSON,
) -> None:
    """The cheapest run of each method that reaches a target, by exact errors, and the command that runs it."""
    chosen = chosen_methods("--method", method or list(supporting("plan")))
    several: list[Any] = [kind.with_steps(0.1, 1, **own) for kind, own in chosen]
    given = [f"--{k}" for k, v in (("epsilon", epsilon), ("rounds", rounds), ("samples", samples)) if v is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise ArgumentError(f"plan needs exactly one of --epsilon, --rounds and --samples; got {got}")
    if samples is not None and max_samples is not None:
        raise ArgumentError("--max-samples goes with --epsilon or --rounds; got --samples")
    if plot is not None and epsilon is None:
        raise ArgumentError(f"--plot needs --epsilon: the trade-off is that of an accuracy; got {given[0]}")
    files = Outputs(context.obj, force)
    files.check("--plot", plot)
    made = problem()
    plans: dict[str, Plan] = {}
    refused: list[ArgumentError] = []
    target: Any = {"rounds": rounds, "samples": samples, "max_samples": max_samples}
    with live_bar("plan " + " + ".join(a.name for a in several), updates=False) as progress:
        for i, wanted in enumerate(several, 1):
            try:
                plans[wanted.name] = exactly.plan(made, epsilon, method=wanted, **target)
            except ArgumentError as error:
                refused.append(error)
            if progress is not None:
                progress(i, len(several))
    if not plans:
        raise refused[0]
    for why in refused:
        print(f"fedlsa: warning: {in_words_of(context.command, str(why))}", file=sys.stderr)
    costs = {name: (p.rounds, p.samples, float(f"{p.rmse:.3g}")) for name, p in plans.items()}  # noise does not decide
    best = min(plans, key=lambda name: costs[name] if epsilon is not None else (costs[name][2], *costs[name][:2]))
    a, length = plans[best].algorithm, "--" + plans[best].algorithm.length.replace("_", "-")
    how = ["--method", method_word(a), "--step-size", repr(a.step_size), length, repr(_length(plans[best]))]
    how += ["--rounds", str(plans[best].rounds)]
    run = shlex.join(["fedlsa", "simulate", *as_options(**problem.arguments), *how])
    if plot is not None and epsilon is not None:
        with live_bar("trade-off", updates=False) as progress:
            points = exactly.trade_off(made, epsilon, [a for a in several if a.name in plans], progress=progress)
        files.draw(plot, partial(figures.trade_off, [*points, *plans.values()], epsilon))
    if json:
        rows = [fields_of(p) | described(p.algorithm) for p in plans.values()]
        print_json(plans=rows, recommended=best, command=run, saved=files.saved)
    else:
        _print_plans(list(plans.values()))
        print(f"recommended: {best}; run it:\n{run}")
        files.print_saved()


def _print_plans(plans: list[Plan]) -> None:
    """One row per plan: how to run it, what it costs, and how close it gets."""
    headings = ["step size", "local steps or\nprobability", "communi-\ncations", "samples\nper agent"]
    rows = []
    for p in plans:
        eta, length = number(p.algorithm.step_size, 4), number(_length(p), 4)
        length = f"p = {length}" if p.algorithm.random_lengths else length
        rows.append([type(p.algorithm).__name__, eta, length, p.rounds, round(p.samples), p.rmse, p.bytes])
    bases = ", ".join(dict.fromkeys(p.basis for p in plans))
    found = table("method", *headings, "predicted\nRMSE", "bytes", rows=rows)
    cautions = [f"{type(p.algorithm).__name__}: plan {p.caution}" for p in plans if p.caution]
    offers = [f"{type(p.algorithm).__name__} instead: {line}" for p in plans for line in p.offer]
    starts = ", ".join(start_words(named) for named in dict.fromkeys(p.start for p in plans))
    heading = "\n".join([*cautions, f"by {bases},  i.i.d. sampling,  {starts}"])
    print_all(found, *offers, heading=heading)


def _length(plan: Plan) -> Any:
    return getattr(plan.algorithm, plan.algorithm.length)
