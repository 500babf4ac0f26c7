"""The command `fedlsa reproduce`: the paper's experiments, their report, and a verdict per claim."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from .. import checks, experiments
from ..experiments import Local, Outcome, Scale, Store
from ..experiments.cluster import Cluster
from ..experiments.executor import Executor
from ..experiments.experiment import SOURCES
from ..experiments.report_page import COUNTED, FAILED, counts, elsewhere, interval, number, verdict_words
from ..figures import style
from ..theory.threads import cores
from . import live, options

PRESETS = ("paper", "authors")
ENGINES = ("cpu", "cuda", "auto")
SEEDS, QUICK_SEEDS = 10, 3
INSTANCES, QUICK_INSTANCES = 10, 0
MOST_DRAWERS = 4
RUN, OUTPUT = "Run", "Output"

EXAMPLES = """[bold]Examples[/bold]

fedlsa reproduce --quick

fedlsa reproduce fig1 debiased --preset paper

fedlsa reproduce all --ray local --out out"""


def reproduce(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"What to make: all, or any of {', '.join(experiments.EXPERIMENTS)}.",
            show_default="all",
            metavar="NAME",
        ),
    ] = None,
    preset: Annotated[
        str, typer.Option(help="paper: as its text says; authors: as their code does; both.", rich_help_panel=RUN)
    ] = "both",
    seeds: Annotated[
        int | None, typer.Option(help="Simulations of each setting.", show_default="10; quick: 3", rich_help_panel=RUN)
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Few agents, short runs: all of it in under a minute.", rich_help_panel=RUN),
    ] = False,
    instances: Annotated[
        int | None,
        typer.Option(
            help="Other Garnet problems on which claims without simulations are decided, too.",
            show_default="10; quick: 0",
            rich_help_panel=RUN,
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="What simulates: cpu, cuda (an NVIDIA GPU), or auto: whichever is quicker.", rich_help_panel=RUN
        ),
    ] = "cpu",
    threads: Annotated[
        int | None,
        typer.Option(
            help="Of a simulation; by default all cores, on Ray one.", show_default=False, rich_help_panel=RUN
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Compute on a Ray cluster: its address, or local for one on this machine.",
            metavar="ADDRESS|local",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of cells, figures, tables and report.", rich_help_panel=OUTPUT)
    ] = Path("out"),
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove cells that other code has computed.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Reproduce the paper: compute what is missing, draw every figure, decide every claim, write the report.

    Stop it at any moment: the same command goes on where it was. Exit code 1: a claim came out otherwise than expected.
    """
    names = chosen(name or ["all"])
    kinds = PRESETS if checks.choice("--preset", preset, (*PRESETS, "both")) == "both" else (preset,)
    count = checks.integer("--seeds", seeds if seeds is not None else QUICK_SEEDS if quick else SEEDS, at_least=1)
    wanted = instances if instances is not None else QUICK_INSTANCES if quick else INSTANCES
    many = checks.integer("--instances", wanted, at_least=0)
    checks.choice("--engine", engine, ENGINES)
    how = {
        "engine": engine,
        "threads": threads if threads is None else checks.integer("--threads", threads, at_least=1),
    }
    options.check_folder("--out", out / "report")
    style.matplotlib()  # now rather than after minutes of work
    executor: Executor = Local(how) if ray is None else Cluster(ray, how)
    scales = [Scale(kind, count, quick, many) for kind in kinds]
    try:
        with live.display() as watch:
            outcomes, progress = experiments.reproduce(
                names, scales, out, executor, watch, drawers=min(cores(), MOST_DRAWERS), clean=clean
            )
    except KeyboardInterrupt:
        print(f"fedlsa: what is done is kept in {out}; the same command goes on from there", file=sys.stderr)
        raise
    print(f"{len(progress.groups)} groups; {progress.computed} cells computed; {live.duration(progress.seconds)}")
    outdated = len(Store(out / "cells").outdated())
    if outdated:
        print(f"{outdated} cells of other code in {out / 'cells'} are not used; --clean removes them")
    print_verdicts(outcomes)
    print(f"report: {out / 'report' / 'index.html'}")
    failed = sum(not v.ok for o in outcomes for v in o.verdicts)
    if failed:
        print(
            f"fedlsa: {failed} {'claims' if failed > 1 else 'claim'} came out otherwise than expected", file=sys.stderr
        )
        raise typer.Exit(1)


def chosen(names: list[str]) -> list[str]:
    """The experiments that are asked for, each once, in the order of the catalogue."""
    known = list(experiments.EXPERIMENTS)
    asked = {checks.choice("NAME", n, ("all", *known)) for n in names}
    return known if "all" in asked else [n for n in known if n in asked]


def print_verdicts(outcomes: list[Outcome]) -> None:
    """A row per claim and instance: its number, where that must lie, and what follows; then how many there are."""
    verdicts = [(o, v) for o in outcomes for v in o.verdicts]
    if not verdicts:
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim", overflow="fold")
    table.add_column("kind")
    table.add_column("instance")
    for heading in ("value", "holds if"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    table.add_column("on others")
    for o, v in verdicts:
        words, name = verdict_words(v), f"{o.experiment.name}: {v.claim.name}"
        row = (name, v.claim.kind, o.scale.preset, number(v.value), interval(v.claim), words, elsewhere(v))
        table.add_row(*row, style="bold red" if words == FAILED else None)
    console = Console(file=sys.stdout, highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, markup=False, width=160)
    console.print(table)
    for kind, found in counts(v for _, v in verdicts).items():
        print(f"claims {SOURCES[kind]}: " + ", ".join(f"{n} {COUNTED[k]}" for k, n in found.items() if n))
