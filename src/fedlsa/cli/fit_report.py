"""What `fedlsa fit` and `fedlsa evaluate` show: stages of the work as a bar, then tables."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..algorithms import Scaffnew
from ..files import replacing
from ..fit import Baseline, Fit, Residuals, TDErrors

COEFFICIENTS, SITES = 64, 20  # rows that are shown at most
LOCAL = {"rows": "rows at random", "log": "rows in their order", "means": "each site's means"}


@contextmanager
def stages(*, shown: bool = True) -> Iterator[Callable[[str, float, float], None] | None]:
    """A callback for `fl.fit` that shows what is being done, on standard error; None unless that is a terminal."""
    console = Console(file=sys.stderr)
    if not shown or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description:<10}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total or None)


def print_fit(fit: Fit, level: float) -> None:
    """Coefficients, the run, the parts of the error, the sites, and baselines where there are some."""
    console = _console()
    rows = sum(s.rows for s in fit.per_site)
    weights = "a site counts as 1/N" if fit.weight == "sites" else "a site counts as its share of rows"
    console.print(f"{_many(len(fit.per_site), 'site')}, {_many(rows, 'row')}; {weights}", style="dim")
    console.print(_coefficients(fit, level))
    if len(fit.names) > COEFFICIENTS:
        console.print(f"and {len(fit.names) - COEFFICIENTS} more; --out keeps all")
    console.print(
        "The estimate is the solution of all sites' data together. The protocol's answer is where this run ends:"
    )
    console.print(_run(fit))
    console.print(_parts(fit))
    console.print(_sites(fit))
    console.print("Distance, influence, noise and finite data are in standard errors of the estimate.")
    if len(fit.per_site) > SITES:
        console.print(f"the {SITES} sites furthest away; {len(fit.per_site) - SITES} more, --out keeps all")
    if fit.baselines:
        console.print(_baselines(fit.baselines))
        for r in fit.baselines:
            console.print(f"{r.name}: {r.reveals}")


def _coefficients(fit: Fit, level: float) -> Table:
    percent = f"{100 * level:g}%"
    table = _table(
        "coefficient", "estimate", "standard\nerror", f"{percent} interval,\nfrom", "\nto", "by the\nprotocol"
    )
    columns: list[Any] = [fit.theta, fit.standard_error, *fit.confidence_interval(level).T, fit.protocol]
    if fit.bootstrap is not None:
        for heading in ("bootstrap\nerror", f"bootstrap {percent},\nfrom", "\nto"):
            table.add_column(heading, justify="right", no_wrap=True)
        columns += [fit.bootstrap.standard_error, *fit.bootstrap.interval(level).T]
    for j, name in list(enumerate(fit.names))[:COEFFICIENTS]:
        table.add_row(name, *(number(c[j], 5) for c in columns))
    return table


def _run(fit: Fit) -> str:
    p, a = fit.plan, fit.plan.algorithm
    steps = f"probability {a.probability:.4g}" if isinstance(a, Scaffnew) else _many(a.local_steps, "local step")  # type: ignore[attr-defined]
    by = p.basis if fit.epsilon is None else f"planned by {p.basis} for epsilon = {fit.epsilon:.3g}"
    return (
        f"{type(a).__name__} from 0 on {LOCAL[fit.local]}: step size {a.step_size:.4g}, {steps}, "
        f"{_many(p.rounds, 'communication')}, {_many(p.uploads, 'message')}, {p.bytes:,} bytes up and down; {by}"
    )


def _parts(fit: Fit) -> Table:
    """The squares of the parts add up, so shares are of squares."""
    table = _table("error of the protocol's answer, by origin", "standard\nerrors", "share")
    total = sum(e**2 for e in fit.error.values())
    for name, e in fit.error.items():
        table.add_row(name, number(e), f"{100 * e**2 / total:.1f}%" if 0 < total < math.inf else "-")
    return table


def _sites(fit: Fit) -> Table:
    table = _table("site", "rows", "weight", "own solution,\ndistance", "influence", "noise", "finite\ndata")
    far = sorted(fit.per_site, key=lambda s: -math.inf if math.isnan(s.distance) else -s.distance)
    kept = {id(s) for s in far[:SITES]}
    for s in fit.per_site:
        if id(s) in kept:
            values = (number(v) for v in (s.weight, s.distance, s.influence, s.noise, s.finite_data))
            table.add_row(s.name, f"{s.rows:,}", *values)
    return table


def _baselines(baselines: Sequence[Baseline]) -> Table:
    table = _table(
        "way to an answer",
        "from the data's solution,\nstandard errors",
        "numbers that\na site sends",
        "messages",
        "bytes",
    )
    for r in baselines:
        table.add_row(r.name, number(r.distance), f"{r.numbers:,}", f"{r.messages:,}", f"{r.bytes:,}")
    return table


def print_evaluation(found: Sequence[Residuals] | Sequence[TDErrors]) -> None:
    """A row for each file, and what the columns do not say."""
    console, notes = _console(), []
    if isinstance(found[0], Residuals):
        table = _table("hold-out", "rows", "R²", "RMSE", "spread of\nthe target", "mean\nresidual")
        for r in found:
            assert isinstance(r, Residuals)
            table.add_row(r.name, f"{r.rows:,}", *map(number, (r.r_squared, r.rmse, r.spread, r.mean)))
        if any(math.isnan(r.r_squared) for r in found if isinstance(r, Residuals)):
            notes.append("R² is missing where the target does not vary.")
    else:
        table = _table(
            "hold-out", "rows", "mean squared\nTD error", "norm of mean\nTD update", "RMSE against\nreturns",
            "spread of\nreturns", "mean\nreturn", "episodes", "of them\ncut", "put in\nfor cuts",
        )  # fmt: skip
        for t in found:
            assert isinstance(t, TDErrors)
            table.add_row(
                t.name, f"{t.rows:,}", *map(number, (t.td_error, t.update, t.return_rmse, t.return_spread)),
                number(t.return_mean), f"{t.episodes:,}", "-" if math.isnan(t.cut) else f"{t.cut:.0%}",
                number(t.remainder),
            )  # fmt: skip
        notes.append(
            "The TD error is not the error of the values: it holds the noise of transitions. The update is 0 for the "
            "solution of these data."
        )
        notes.append(
            "The RMSE against returns holds their own noise. Episodes that were cut before they ended are counted with "
            "the model's own value of the state at the cut, whose root mean square over all rows is what was put in."
        )
    console.print(table)
    for note in notes:
        console.print(note)


def save_evaluation(found: Sequence[Residuals] | Sequence[TDErrors], path: Path, command: str) -> None:
    """The table as CSV, after a comment with the command that makes it."""
    rows = [asdict(row) for row in found]
    with replacing(path, "the table") as part, open(part, "w", encoding="utf-8", newline="") as file:
        file.write(f"# {command}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow("" if isinstance(v, float) and math.isnan(v) else v for v in row.values())


def number(value: float, digits: int = 3) -> str:
    """A number to so many digits; a dash for none."""
    return "-" if math.isnan(value) else f"{value:.{digits}g}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("s" if count != 1 else "")


def _table(first: str, *headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _console() -> Console:
    console = Console(file=sys.stdout, highlight=False, markup=False)
    return console if console.is_terminal else Console(file=sys.stdout, highlight=False, markup=False, width=120)
