"""The command `fedlsa reproduce`: the paper's experiments, their report, and a verdict per claim.

While it computes it shows a bar per experiment on a terminal, and a line now and then elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from .. import checks, experiments
from ..engine.progress import Bars
from ..experiments import LocalExecutor, Outcome, Scale, Store, experiment, report
from ..experiments.executor import FOLDERS, Cluster, Executor, RunProgress, Watch, processes
from ..figures import theme
from ..problems.garnets import PRESETS
from ..threads import cores
from . import complain
from .options import AS_JSON, App, named, option, switch
from .outputs import Outputs, print_all, print_json

WHAT = f"What to make: all, or any of {', '.join(experiments.EXPERIMENTS)}."
ENGINES = ("cpu", "cuda", "auto")
SEEDS, QUICK_SEEDS = 10, 3
INSTANCES, QUICK_INSTANCES = 10, 0
MOST_PROCESSES = 4  # that compute and draw: each holds NumPy, Numba and matplotlib
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
        if outdated:
            print(f"{outdated} cells of other code in {out / 'cells'} are not used; --clean removes them")
        print_verdicts(outcomes)
        print(f"{progress.computed:,} cells in {timedelta(seconds=round(progress.seconds))}")
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
        words, name = report.shown_words(v), f"{o.experiment.name}: {v.claim.name}"
        numbers = experiment.number(v.value), experiment.interval(v.claim)
        row = (name, v.claim.kind, o.scale.preset, *numbers, words, experiment.elsewhere(v))
        table.add_row(*row, style="bold red" if words == experiment.FAILED else None)
    print_all(table, width=160)
    for sentence in experiment.summary(outcomes):
        print(sentence)


@contextmanager
def display() -> Iterator[Watch]:
    """A function that shows its progress on standard error: a bar per experiment, or a line now and then."""
    bars = Bars(lines=True)

    def watch(progress: RunProgress) -> None:
        counted: dict[str, list[int]] = {}
        for group, found in progress.groups.items():
            total = counted.setdefault(group.partition(": ")[0], [0, 0])
            total[0], total[1] = total[0] + found[0], total[1] + found[1]
        everything = [sum(column) for column in zip(*counted.values(), strict=True)]
        for name, (done, total) in {"all": everything, **counted}.items():  # lines are about the first
            what = progress.current if progress.current.startswith(f"{name}: ") else name
            bars.show(f"{what}, {done} of {total} cells", done, total, name)

    try:
        yield watch
    finally:
        bars.close()
