"""The command `fedlsa reproduce`: the paper's experiments, their report, and a verdict per claim.

While it computes it shows a live table on a terminal, and a line now and then elsewhere.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from .. import checks, experiments
from ..experiments import LocalExecutor, Outcome, Scale, Store, experiment, report
from ..experiments.executor import FOLDERS, Cluster, Executor, RunProgress, Watch, processes
from ..figures import theme
from ..problems.garnets import PRESETS
from ..theory.threads import cores
from . import complain
from .options import AS_JSON, App, named, option, switch
from .outputs import Outputs, print_all, print_json

WHAT = f"What to make: all, or any of {', '.join(experiments.EXPERIMENTS)}."
ENGINES = ("cpu", "cuda", "auto")
SEEDS, QUICK_SEEDS = 10, 3
INSTANCES, QUICK_INSTANCES = 10, 0
MOST_PROCESSES = 4  # that compute and draw: each holds NumPy, Numba and matplotlib
SECONDS_BETWEEN_TABLES, SECONDS_BETWEEN_LINES = 0.2, 10.0  # on a terminal, and elsewhere
MOST_PANELS = 10  # of the experiment in work, shown at once
REPRODUCE_EXAMPLES = (
    "fedlsa reproduce --quick",
    "fedlsa reproduce fig1 debiased --preset paper",
    "fedlsa reproduce all --ray local --out out",
)
app = App()


@app.command(examples=REPRODUCE_EXAMPLES)
def reproduce(
    name: list[str] | None = typer.Argument(
        None, show_default="all", metavar="NAME", **named(WHAT, ("all", *experiments.EXPERIMENTS))
    ),
    preset: str = option(
        "paper: as its text says; authors: as their code does; both.", "both", "Run", names=(*PRESETS, "both")
    ),
    seeds: int | None = option("Simulations of each setting.", None, "Run", shown=f"{SEEDS}; quick: {QUICK_SEEDS}"),
    quick: bool = switch("--quick", "Few agents, short runs: all of it in minutes.", "Run"),
    instances: int | None = option(
        "Other Garnet problems on which claims without simulations are decided, too.",
        None,
        "Run",
        shown=f"{INSTANCES}; quick: {QUICK_INSTANCES}",
    ),
    engine: str = option(
        "What simulates: cpu, cuda (an NVIDIA GPU), or auto, the quicker.", "cpu", "Run", names=ENGINES
    ),
    threads: int | None = option("Of a simulation; by default one, more where processes leave cores.", None, "Run"),
    ray: str | None = option(
        "Compute on a Ray cluster: its address, or local for one on this machine.", None, "Run", metavar="ADDRESS|local"
    ),
    out: Path = option("Folder of cells, figures, tables and report.", Path("out"), "Output"),
    force: bool = switch("--force", "Replace files in a folder of somebody else.", "Output"),
    clean: bool = switch("--clean", "Remove cells that other code has computed.", "Output"),
    json: bool = AS_JSON,
) -> None:
    """Reproduce the paper: compute what is missing, draw every figure, decide every claim, write the report.

    Stop it at any moment: the same command goes on where it was. Exit code 1: a claim came out otherwise than expected.
    """
    asked = name or ["all"]
    names = [n for n in experiments.EXPERIMENTS if n in asked or "all" in asked]
    kinds = PRESETS if preset == "both" else (preset,)
    count = checks.integer("--seeds", seeds if seeds is not None else QUICK_SEEDS if quick else SEEDS, at_least=1)
    wanted = instances if instances is not None else QUICK_INSTANCES if quick else INSTANCES
    many = checks.integer("--instances", wanted, at_least=0)
    abreast = min(cores(), MOST_PROCESSES)
    own = None if threads is None else checks.integer("--threads", threads, at_least=1)
    how = {"engine": engine, "threads": own or (cores() // abreast if ray is None else None)}
    ours = out / "cells" / ".fedlsa"  # by which a folder is known as ours; those of before have cells alone
    replaced = force or ours.exists() or any((out / "cells").glob("*.nc"))
    for folder in FOLDERS[1:]:
        Outputs("", replaced).check("--out", out / folder, ())
    theme.matplotlib()  # now rather than after minutes of work
    ours.parent.mkdir(parents=True, exist_ok=True)
    ours.touch()
    scales = [Scale(kind, count, quick, many) for kind in kinds]
    try:
        with display() as watch, processes(abreast) as pool:
            executor: Executor = LocalExecutor(how, pool) if ray is None else Cluster(ray, how)
            outcomes, progress = experiments.reproduce(names, scales, out, executor, watch, pool=pool, clean=clean)
    except KeyboardInterrupt:
        print(f"fedlsa: what is done is kept in {out}; the same command goes on from there", file=sys.stderr)
        raise
    outdated, report = len(Store(out / "cells").outdated()), out / "report" / "index.html"
    if json:
        cost = {"cells_computed": progress.computed, "cells_outdated": outdated, "seconds": progress.seconds}
        print_json(claims=[_described(o, v) for o in outcomes for v in o.verdicts], **cost, report=report)
    else:
        print(f"{len(progress.groups)} groups; {progress.computed} cells computed; {duration(progress.seconds)}")
        if outdated:
            print(f"{outdated} cells of other code in {out / 'cells'} are not used; --clean removes them")
        print_verdicts(outcomes)
        print(f"report: {report}")
    failed = sum(not v.ok for o in outcomes for v in o.verdicts)
    if failed:
        counted = f"{failed} {'claims' if failed > 1 else 'claim'}"
        raise typer.Exit(complain(f"{counted} came out otherwise than expected", 1))


def _described(outcome: Outcome, verdict: experiment.Verdict) -> dict[str, Any]:
    """A claim with its number, for programs."""
    names = ("name", "text", "kind", "source", "statistic", "at_least", "at_most", "expected")
    claim = {"experiment": outcome.experiment.name, "preset": outcome.scale.preset}
    claim |= {name: getattr(verdict.claim, name) for name in names}
    return claim | {name: getattr(verdict, name) for name in ("value", "holds", "ok", "others", "holds_elsewhere")}


def print_verdicts(outcomes: list[Outcome]) -> None:
    """A row per claim and instance: its number, where that must lie, and what follows; then how many there are."""
    verdicts = [(o, v) for o in outcomes for v in o.verdicts]
    if not verdicts:
        return
    value, rule = (Column(heading, justify="right", no_wrap=True) for heading in ("value", "holds if"))
    claim = Column("claim", overflow="fold")
    table = Table(claim, "kind", "instance", value, rule, "verdict", "on others", box=SIMPLE_HEAD, pad_edge=False)
    for o, v in verdicts:
        words, name = report.said(v), f"{o.experiment.name}: {v.claim.name}"
        numbers = experiment.number(v.value), experiment.interval(v.claim)
        row = (name, v.claim.kind, o.scale.preset, *numbers, words, experiment.elsewhere(v))
        table.add_row(*row, style="bold red" if words == experiment.FAILED else None)
    print_all(table, width=160)
    for sentence in experiment.summary(outcomes):
        print(sentence)


@contextmanager
def display() -> Iterator[Watch]:
    """A function that shows the progress it is given, on standard error: a live table, or lines where nobody looks."""
    console = Console(file=sys.stderr, highlight=False)
    pause = SECONDS_BETWEEN_TABLES if console.is_terminal else SECONDS_BETWEEN_LINES
    live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
    last = time.monotonic()

    def watch(progress: RunProgress) -> None:
        nonlocal last
        if time.monotonic() - last < pause:
            return
        last = time.monotonic()
        if live is None:
            print(f"{progress.current}: {line(progress)}", file=sys.stderr, flush=True)
        else:
            live.update(view(progress, console.height), refresh=True)

    with live or nullcontext():
        yield watch


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
    panels: dict[str, list[tuple[str, int, int]]] = {}
    for group, (done, total) in progress.groups.items():
        name, _, panel = group.partition(": ")
        panels.setdefault(name, []).append((panel, done, total))
    at_work, _, panel_at_work = progress.current.partition(": ")
    room = min(MOST_PANELS, max(0, height - len(panels) - 2))
    table = Table(box=None, pad_edge=False, show_header=False)

    def add(name: str, look: str, done: int, total: int) -> None:
        bar = ProgressBar(total=max(total, 1), completed=done, width=24)
        table.add_row(Text(name, look), bar, Text(f"{done}/{total}"))

    for name, own in panels.items():
        done, total = sum(p[1] for p in own), sum(p[2] for p in own)
        add(name, "bold" if name == at_work else "dim" if done == total else "", done, total)
        if name == at_work:  # the panels round the one in work
            here = next((i for i, p in enumerate(own) if p[0] == panel_at_work), 0)
            first = max(0, min(here - room // 2, len(own) - room))
            for panel, done, total in own[first : first + room]:
                add(f"  {panel}", "bold" if panel == panel_at_work else "", done, total)
    return Group(table, Text(line(progress)))
