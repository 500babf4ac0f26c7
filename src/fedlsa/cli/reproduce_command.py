"""The command `fedlsa reproduce`: the paper's experiments, their report, and a verdict per claim.

While it computes it shows a live table on a terminal, and a line now and then elsewhere.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .. import checks, experiments
from ..experiments import Local, Outcome, Scale, Store
from ..experiments.cluster import Cluster
from ..experiments.executor import Executor, RunProgress, Watch
from ..experiments.experiment import SOURCES
from ..experiments.report_page import COUNTED, FAILED, counts, elsewhere, interval, number, verdict_words
from ..figures import style
from ..problems.garnet import PRESETS
from ..theory.threads import cores
from .derived import Option, takes
from .display import print_all
from .parsing import check_folder

ENGINES = ("cpu", "cuda", "auto")
SEEDS, QUICK_SEEDS = 10, 3
INSTANCES, QUICK_INSTANCES = 10, 0
MOST_DRAWERS = 4  # processes that draw: each holds matplotlib
SECONDS_BETWEEN_LINES = 10.0  # where there is no terminal
MOST_PANELS = 10  # of the experiment in work, shown at once
EXAMPLES = """[bold]Examples[/bold]

fedlsa reproduce --quick

fedlsa reproduce fig1 debiased --preset paper

fedlsa reproduce all --ray local --out out"""


@takes(
    {
        "name": Option(
            f"What to make: all, or any of {', '.join(experiments.EXPERIMENTS)}.",
            shown="all",
            metavar="NAME",
            positional=True,
        ),
        "Run": {
            "preset": "paper: as its text says; authors: as their code does; both.",
            "seeds": Option("Simulations of each setting.", shown=f"{SEEDS}; quick: {QUICK_SEEDS}"),
            "quick": "Few agents, short runs: all of it in under a minute.",
            "instances": Option(
                "Other Garnet problems on which claims without simulations are decided, too.",
                shown=f"{INSTANCES}; quick: {QUICK_INSTANCES}",
            ),
            "engine": "What simulates: cpu, cuda (an NVIDIA GPU), or auto: whichever is quicker.",
            "threads": "Of a simulation; by default all cores, on Ray one.",
            "ray": Option(
                "Compute on a Ray cluster: its address, or local for one on this machine.", metavar="ADDRESS|local"
            ),
        },
        "Output": {
            "out": "Folder of cells, figures, tables and report.",
            "clean": "Remove cells that other code has computed.",
        },
    }
)
def reproduce(
    name: list[str] | None = None,
    preset: str = "both",
    seeds: int | None = None,
    quick: bool = False,
    instances: int | None = None,
    engine: str = "cpu",
    threads: int | None = None,
    ray: str | None = None,
    out: Path = Path("out"),
    clean: bool = False,
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
    how = {"engine": engine, "threads": threads and checks.integer("--threads", threads, at_least=1)}
    check_folder("--out", out / "report")
    style.matplotlib()  # now rather than after minutes of work
    executor: Executor = Local(how) if ray is None else Cluster(ray, how)
    scales = [Scale(kind, count, quick, many) for kind in kinds]
    try:
        with display() as watch:
            outcomes, progress = experiments.reproduce(
                names, scales, out, executor, watch, drawers=min(cores(), MOST_DRAWERS), clean=clean
            )
    except KeyboardInterrupt:
        print(f"fedlsa: what is done is kept in {out}; the same command goes on from there", file=sys.stderr)
        raise
    print(f"{len(progress.groups)} groups; {progress.computed} cells computed; {duration(progress.seconds)}")
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
    for heading in ("kind", "instance", "value", "holds if", "verdict", "on others"):
        numeric = heading in ("value", "holds if")
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric)
    for o, v in verdicts:
        words, name = verdict_words(v), f"{o.experiment.name}: {v.claim.name}"
        row = (name, v.claim.kind, o.scale.preset, number(v.value), interval(v.claim), words, elsewhere(v))
        table.add_row(*row, style="bold red" if words == FAILED else None)
    print_all(table, width=160)
    for kind, found in counts(v for _, v in verdicts).items():
        print(f"claims {SOURCES[kind]}: " + ", ".join(f"{n} {COUNTED[k]}" for k, n in found.items() if n))


@contextmanager
def display() -> Iterator[Watch]:
    """A function that shows the progress it is given, on standard error."""
    console = Console(file=sys.stderr, highlight=False)
    if not console.is_terminal:
        yield Lines()
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        last = 0.0

        def watch(progress: RunProgress) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last > 0.2:
                last = now
                live.update(view(progress, console.height), refresh=True)

        yield watch


class Lines:
    """A line every ten seconds."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, progress: RunProgress) -> None:
        now = time.monotonic()
        if now - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            print(f"{progress.current}: {line(progress)}", file=sys.stderr, flush=True)


def line(progress: RunProgress) -> str:
    """All of it in a line: cells, updates per second, time left."""
    panels = progress.groups.values()
    full = sum(done == total for done, total in panels)
    parts = [f"{full} of {len(panels)} panels", f"{progress.computed} cells computed, {len(progress.waiting)} to go"]
    if not math.isnan(progress.speed):
        parts.append(f"{progress.speed / 1e6:,.0f} M updates/s")
    if not math.isnan(progress.seconds_left):
        parts.append(f"{duration(progress.seconds_left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Minutes and seconds."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def view(progress: RunProgress, height: int) -> Group:
    """A row per experiment; under the one in work, a row for each of its panels, as many as there is room for."""
    experiments: dict[str, list[tuple[str, int, int]]] = {}
    for name, (done, total) in progress.groups.items():
        experiment, _, panel = name.partition(": ")
        experiments.setdefault(experiment, []).append((panel, done, total))
    at_work, _, panel_at_work = progress.current.partition(": ")
    room = min(MOST_PANELS, max(0, height - len(experiments) - 2))
    table = Table(box=None, pad_edge=False, show_header=False)
    for experiment, panels in experiments.items():
        done, total = sum(p[1] for p in panels), sum(p[2] for p in panels)
        style = "bold" if experiment == at_work else "dim" if done == total else ""
        _row(table, Text(experiment, style), done, total)
        if experiment == at_work:
            for panel, d, t in _window(panels, panel_at_work, room):
                _row(table, Text(f"  {panel}", "bold" if panel == panel_at_work else ""), d, t)
    return Group(table, Text(line(progress)))


def _row(table: Table, name: Text, done: int, total: int) -> None:
    table.add_row(name, ProgressBar(total=max(total, 1), completed=done, width=24), Text(f"{done}/{total}"))


def _window(panels: list[tuple[str, int, int]], at_work: str, room: int) -> list[tuple[str, int, int]]:
    """The panels round the one in work."""
    names = [p[0] for p in panels]
    here = names.index(at_work) if at_work in names else 0
    first = max(0, min(here - room // 2, len(panels) - room))
    return panels[first : first + room]
