"""The tables of commands: results of simulations, exact errors, plans, fits, predictions and evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from .. import results
from ..figures.lines import common_setting, names, start, start_words
from ..files import csv_bytes, write
from .display import number, print_all, table

if TYPE_CHECKING:  # a command that prints one of them has loaded it, and needs none of the others
    import xarray as xr

    from ..algorithms import Algorithm
    from ..fitting import Fit, Prediction, Residuals, TDErrors, WaldTest
    from ..theory.planner import Plan
    from ..theory.stationary import Stationary

ROWS = SITES = 20  # that are shown at most
ERROR_PARTS = ("start", "drift", "noise")  # of an exact error


def print_table(runs: Sequence[xr.Dataset], bias: Sequence[float]) -> None:
    """One row per result: what it cost, its final error with a standard error, and what theory predicts for FedLSA."""
    rows = results.summary(runs).to_dict("records")
    headings = ["communi-\ncations", "samples\nper agent", "final MSE ±\nstandard error", "predicted\ndrift"]
    cells = [
        [
            name,
            f"{row['communications']:,}",
            f"{row['samples']:,.0f}",
            number(row["mse"]) + ("" if math.isnan(row["mse"]) else f" ± {number(row['standard_error'], 2)}"),
            number(level),
        ]
        for name, row, level in zip(names(runs), rows, bias, strict=True)
    ]
    if any(row["diverged"] for row in rows):
        headings.append("seeds that\ndiverged")
        cells = [[*line, f"{row['diverged']} of {row['seeds']}"] for line, row in zip(cells, rows, strict=True)]
    print_all(table("method", *headings, rows=cells), heading=common_setting(runs))


def print_exact(
    curves: Sequence[xr.Dataset], ends: Sequence[Stationary], limits: Sequence[float], step_sizes: Sequence[float]
) -> None:
    """Exact errors at the last round and in the limit, with their parts, and how far each method is from unstable."""
    errors, stability, notes = [], [], []
    for name, c, end, limit, eta in zip(names(curves), curves, ends, limits, step_sizes, strict=True):
        values = [float(c[part][-1]) for part in ("mse", *ERROR_PARTS)]
        final = [end.mse, 0.0, end.drift, end.noise] if end.stable else [math.nan] * 4
        errors.append([name, f"{int(c['rounds'][-1]):,}", *map(number, values)])
        errors.append([name, "limit", *map(number, final)])
        stability.append([name, f"{end.radius:.6g}", number(limit)])
        if not end.stable:
            notes.append(
                f"{name} is unstable with step size {eta:g}: its second moment grows without bound"
                f" (mean-square radius {end.radius:.4g}, not below 1)."
            )
    if any(math.isnan(limit) for limit in limits):
        notes.append("Step sizes that take minutes to find are left out; --limit finds them.")
    found = [
        table("method", "round", "exact MSE", *(f"of it\n{part}" for part in ERROR_PARTS), rows=errors),
        table("method", "mean-square\nradius", "unstable from\nstep size", rows=stability),
    ]
    attrs = curves[0].attrs
    setting = f"N = {attrs['agents']},  d = {attrs['dim']},  i.i.d. sampling,  {start(curves[0])},  exact"
    print_all(*found, *notes, heading=setting)


def print_plans(plans: Sequence[Plan]) -> None:
    """One row per plan: how to run it, what it costs, and how close it gets."""
    headings = ["step size", "local steps or\nprobability", "communi-\ncations", "samples\nper agent"]
    rows = [
        [
            type(p.algorithm).__name__,
            f"{p.algorithm.step_size:.4g}",
            f"p = {_length(p.algorithm):.4g}" if p.algorithm.random_lengths else f"{_length(p.algorithm):,}",
            f"{p.rounds:,}",
            f"{p.samples:,.0f}",
            number(p.rmse),
            f"{p.bytes:,}",
        ]
        for p in plans
    ]
    bases = ", ".join(dict.fromkeys(p.basis for p in plans))
    found = table("method", *headings, "predicted\nRMSE", "bytes", rows=rows)
    cautions = [f"{type(p.algorithm).__name__}: plan {p.caution}" for p in plans if p.caution]
    offers = [f"{type(p.algorithm).__name__} instead: {line}" for p in plans for line in p.offer]
    starts = ", ".join(start_words(named) for named in dict.fromkeys(p.start for p in plans))
    heading = "\n".join([*cautions, f"by {bases},  i.i.d. sampling,  {starts}"])
    print_all(found, *offers, heading=heading)


def _length(algorithm: Algorithm) -> Any:
    return getattr(algorithm, algorithm.length)


def print_fit(fit: Fit, tests: Sequence[WaldTest], level: float) -> None:
    """The summary, tests where there are some, then the parts of the error, the sites, and baselines."""
    far = len(fit.per_site) - SITES
    parts: list[str | Table] = [
        *([] if fit.plan is None else [_parts(fit)]),
        _sites(fit),
        "Distance, influence, noise and finite data are in standard errors of the estimate.",
        *([f"the {SITES} sites furthest away; {far} more, --out keeps all"] if far > 0 else []),
    ]
    if fit.baselines:
        headings = ["from the data's solution,\nstandard errors", "numbers that\na site sends", "messages", "bytes"]
        ways = [
            [r.name, number(r.distance), f"{r.numbers:,}", f"{r.messages:,}", f"{r.bytes:,}"] for r in fit.baselines
        ]
        parts += [table("way to an answer", *headings, rows=ways), *(f"{r.name}: {r.reveals}" for r in fit.baselines)]
    print(fit.summary(level), *tests, sep="\n\n", end="\n\n")
    print_all(*parts)


def _parts(fit: Fit) -> Table:
    """The squares of the parts add up, so shares are of squares."""
    total = sum(e**2 for e in fit.error.values())
    shares = {n: f"{100 * e**2 / total:.1f}%" if 0 < total < math.inf else "-" for n, e in fit.error.items()}
    rows = [[name, number(e), shares[name]] for name, e in fit.error.items()]
    return table("error of the protocol's answer, by origin", "standard\nerrors", "share", rows=rows)


def _sites(fit: Fit) -> Table:
    far = sorted(fit.per_site, key=lambda s: -math.inf if math.isnan(s.distance) else -s.distance)
    kept = {id(s) for s in far[:SITES]}
    rows = [
        [s.name, f"{s.rows:,}", *map(number, (s.weight, s.distance, s.influence, s.noise, s.finite_data))]
        for s in fit.per_site
        if id(s) in kept
    ]
    headings = ["rows", "weight", "own solution,\ndistance", "influence", "noise", "finite\ndata"]
    return table("site", *headings, rows=rows)


def print_evaluation(found: Sequence[Residuals] | Sequence[TDErrors]) -> None:
    """A row for each file, and what the columns do not say."""
    from ..fitting import Residuals, TDErrors

    residuals = [r for r in found if isinstance(r, Residuals)]
    if residuals:
        headings = ["rows", "R²", "RMSE", "spread of\nthe target", "mean\nresidual"]
        rows = [[r.name, f"{r.rows:,}", *map(number, (r.r_squared, r.rmse, r.spread, r.mean))] for r in residuals]
        missing = any(math.isnan(r.r_squared) for r in residuals)
        notes = ["R² is missing where the target does not vary."] * missing
    else:
        headings = [
            "rows", "mean squared\nTD error", "norm of mean\nTD update", "RMSE against\nreturns", "spread of\nreturns",
            "mean\nreturn", "episodes", "of them\ncut", "put in\nfor cuts",
        ]  # fmt: skip
        rows = [
            [
                t.name,
                f"{t.rows:,}",
                *map(number, (t.td_error, t.update, t.return_rmse, t.return_spread, t.return_mean)),
                f"{t.episodes:,}",
                "-" if math.isnan(t.cut) else f"{t.cut:.0%}",
                number(t.remainder),
            ]
            for t in found
            if isinstance(t, TDErrors)
        ]
        notes = [
            "The TD error is not the error of the values: it holds the noise of transitions. The update is 0 for the "
            "solution of these data.",
            "The RMSE against returns holds their own noise. Episodes that were cut before they ended are counted with "
            "the model's own value of the state at the cut, whose root mean square over all rows is what was put in.",
        ]
    print_all(table("hold-out", *headings, rows=rows), *notes)


def print_predictions(found: Prediction, level: float) -> None:
    """The first rows of what a model predicts."""
    interval = f"{100 * level:g}% interval"
    headings = ["value", "standard\nerror", f"{interval},\nfrom", "\nto", "of an observation,\nfrom", "\nto"]
    rows = [[str(i + 1), *(number(v, 5) for v in row)] for i, row in enumerate(found.to_frame()[:ROWS].to_numpy())]
    more = len(found.value) - ROWS
    print_all(table("row", *headings, rows=rows), *([f"and {more:,} more; --out keeps all"] if more > 0 else []))


def save_table(rows: Sequence[Mapping[str, Any]], command: str, path: Path) -> None:
    """Rows as CSV, after a comment with the command that makes them; NaN is left empty."""
    cells = [["" if isinstance(v, float) and math.isnan(v) else v for v in row.values()] for row in rows]
    write(path, csv_bytes([*rows[:1], *cells], command), "the table")
