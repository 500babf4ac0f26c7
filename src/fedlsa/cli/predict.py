"""The commands `fedlsa theory` and `fedlsa plan`: exact errors and cheapest runs, without a simulation."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from .. import checks, figures, results
from .. import theory as exactly
from ..algorithms import METHODS, FedLSA, Scaffnew
from ..errors import ArgumentError
from ..figures.drawing_checks import SCALES
from ..figures.matplotlib_figures import checked_path
from ..problems import Problem
from ..results.curves import SUFFIXES
from ..theory.planner import Plan
from . import options, report
from .method import METHOD, LocalSteps, Probability, StepSize, method_option
from .problem import as_options

TARGET, OUTPUT = "Target", "Output"
DIGITS = 5e-4  # relative, of the stability limit: as many as the table shows
EARLY = 50  # rounds that are all drawn: on a logarithmic axis they take most of the room
MANY_GROUPS = 8  # of different agents
THEORY_EXAMPLES = """[bold]Examples[/bold]

fedlsa theory --perturbation 0 --local-steps 1000 --plot parts.png

fedlsa theory --agents 10 --method scafflsa --method scaffnew --step-size 0.2"""
PLAN_EXAMPLES = """[bold]Examples[/bold]

fedlsa plan --perturbation 0 --epsilon 0.1 --method fedlsa --method scafflsa --plot trade-off.png

fedlsa plan --perturbation 0 --rounds 50 --max-samples 5000 --method scafflsa

fedlsa plan --perturbation 0 --samples 10000 --method fedlsa"""

Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.", rich_help_panel=OUTPUT)]


def theory(
    context: typer.Context,
    instance: Callable[[], Problem],
    method: Annotated[list[str] | None, method_option("fedlsa and scafflsa")] = None,
    step_size: StepSize = 0.1,
    local_steps: LocalSteps = 10,
    probability: Probability = None,
    rounds: Annotated[int, typer.Option(help="Communications T.", rich_help_panel=METHOD)] = 500,
    plot_to: Annotated[
        Path | None,
        typer.Option("--plot", help="Draw the exact error and its parts: .png, .pdf, .svg.", rich_help_panel=OUTPUT),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Save the curves: a table, FILE.csv, or netCDF, FILE.nc.", rich_help_panel=OUTPUT),
    ] = None,
    scale: Annotated[str, typer.Option(help="Of the horizontal axis: linear or log.", rich_help_panel=OUTPUT)] = "log",
    limit: Annotated[
        bool,
        typer.Option("--limit", help="Find the unstable step size of many different agents too: minutes."),
    ] = False,
    force: Force = False,
) -> None:
    """The exact expected error of methods, round by round and in the limit, for i.i.d. observations."""
    names = method or ["fedlsa", "scafflsa"]
    chosen = options.algorithms(names, step_size, None, local_steps, probability, None, None, None, None)
    checks.integer("--rounds", rounds, at_least=1)
    checks.choice("--scale", scale, SCALES)
    pictures = _pictures(plot_to, force)
    if out is not None:
        checks.choice(f"the suffix of {str(out)!r}", out.suffix.lower(), SUFFIXES)
        options.refuse_to_overwrite([out], force)
        options.check_folder("--out", out)
    moments = exactly.moments(instance())
    kept = sorted({*range(min(rounds, EARLY) + 1), *(round(k * rounds / 200) for k in range(201))})
    curves, ends, limits = [], [], []
    with report.live_bar(" + ".join(names), updates=False) as progress:
        for i, algorithm in enumerate(chosen):
            curves.append(exactly.exact(moments, algorithm, rounds=rounds, record=kept))
            ends.append(exactly.stationary(moments, algorithm))
            quick = isinstance(algorithm, FedLSA) or len(moments.table) <= MANY_GROUPS
            found = exactly.stability_limit(moments, algorithm, tolerance=DIGITS) if quick or limit else math.nan
            limits.append(found)
            if progress is not None:
                progress(i + 1, len(chosen))
    report.print_exact(curves, ends, limits, [step_size] * len(chosen))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        results.save_curves(curves, out, command=context.obj)
        print(f"saved {out}")
    for path in pictures:
        path.parent.mkdir(parents=True, exist_ok=True)
        figures.save(figures.exact_parts(curves, ends, scale=scale), path, command=context.obj)
        print(f"saved {path}")


def plan(
    context: typer.Context,
    instance: Callable[[], Problem],
    epsilon: Annotated[
        float | None, typer.Option(help="Fewest communications with at most this RMSE.", rich_help_panel=TARGET)
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="Smallest RMSE with so many communications; needs --max-samples.", rich_help_panel=TARGET),
    ] = None,
    samples: Annotated[
        float | None, typer.Option(help="Smallest RMSE with so many observations per agent.", rich_help_panel=TARGET)
    ] = None,
    max_samples: Annotated[
        float | None,
        typer.Option(
            help="Most observations per agent. By default, with --epsilon, 4 times the fewest that reach it.",
            rich_help_panel=TARGET,
        ),
    ] = None,
    method: Annotated[list[str] | None, method_option("all three")] = None,
    plot_to: Annotated[
        Path | None,
        typer.Option(
            "--plot", help="With --epsilon: draw communications against observations.", rich_help_panel=OUTPUT
        ),
    ] = None,
    force: Force = False,
) -> None:
    """The cheapest run of each method that reaches a target, by exact errors, and the command that runs it."""
    names = method or list(METHODS)
    options.check_methods(names)
    given = [f"--{k}" for k, v in (("epsilon", epsilon), ("rounds", rounds), ("samples", samples)) if v is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise ArgumentError(f"plan needs exactly one of --epsilon, --rounds and --samples; got {got}")
    if samples is not None and max_samples is not None:
        raise ArgumentError("--max-samples goes with --epsilon or --rounds; got --samples")
    if plot_to is not None and epsilon is None:
        raise ArgumentError(f"--plot needs --epsilon: the trade-off is that of an accuracy; got {given[0]}")
    pictures = _pictures(plot_to, force)
    problem = instance()
    found: dict[str, Plan] = {}
    refused: list[ArgumentError] = []
    with report.live_bar("plan " + " + ".join(names), updates=False) as progress:
        for i, name in enumerate(names):
            try:
                found[name] = exactly.plan(
                    problem, epsilon, method=name, rounds=rounds, samples=samples, max_samples=max_samples
                )
            except ArgumentError as error:
                refused.append(error)
            if progress is not None:
                progress(i + 1, len(names))
        if not found:
            raise refused[0]
    for why in refused:
        print(f"fedlsa: warning: {options.in_words_of_the_command(str(why))}", file=sys.stderr)
    report.print_plans(list(found.values()))
    best = min(found, key=lambda n: _cost(found[n], by_rounds=epsilon is not None))
    print(f"recommended: {best}; run it:")
    print(shlex.join(_simulation(problem, best, found[best])))
    for path in pictures:
        path.parent.mkdir(parents=True, exist_ok=True)
        assert epsilon is not None
        with report.live_bar("trade-off", updates=False) as progress:
            points = exactly.trade_off(problem, epsilon, list(found), progress=progress)
        figures.save(figures.trade_off([*points, *found.values()], epsilon), path, command=context.obj)
        print(f"saved {path}")


def _pictures(plot_to: Path | None, force: bool) -> list[Path]:
    if plot_to is None:
        return []
    path = checked_path(plot_to)
    options.refuse_to_overwrite([path], force)
    options.check_folder("--plot", path)
    return [path]


def _cost(plan: Plan, by_rounds: bool) -> tuple[float, float, float]:
    """What the recommended plan has least of; RMSE to three digits, so that noise does not decide."""
    rmse = float(f"{plan.rmse:.3g}")
    return (plan.rounds, plan.samples, rmse) if by_rounds else (rmse, plan.rounds, plan.samples)


def _simulation(problem: Problem, name: str, plan: Plan) -> list[str]:
    a = plan.algorithm
    words = ["fedlsa", "simulate", *as_options(problem), "--method", name, "--step-size", repr(a.step_size)]
    if isinstance(a, Scaffnew):
        words += ["--probability", repr(a.probability)]
    else:
        words += ["--local-steps", str(a.local_steps)]  # type: ignore[attr-defined]
    return [*words, "--rounds", str(plan.rounds)]
