"""A fit on one page, as statsmodels prints it: what was fitted, the coefficients, and what a protocol would give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..formatting import counted
from ..frozen import ReadOnly
from .inference import quantile
from .one_message import ITERATIVE, LSTD, ONE_SHOT, Baseline
from .tasks import QUICK_ON_ROWS, SITES, Regression, quick_on_rows

COLUMN, GAP, CELL = 38, 2, 10  # letters of a column of the head, between two, and of a number in the table
NAME = 2 * COLUMN + GAP - 6 * CELL  # letters of a coefficient's name before the table grows wider than the head
LONGEST = 40  # letters of a name that are shown
MOST = 60  # coefficients that are shown
LOCAL = {"rows": "rows at random", "log": "rows in their order", "means": "each site's means"}


@dataclass(frozen=True, eq=False, repr=False)
class FitSummary(ReadOnly):
    """A fit on one page; `print` it, or show it in a notebook.

    title : what was fitted
    head : labels and values
    tables : each with its headings and its rows, the first entry of each a name
    foot : paragraphs
    """

    title: str
    head: tuple[tuple[str, str], ...]
    tables: tuple[tuple[tuple[str, ...], ...], ...]
    foot: tuple[str, ...]

    def __str__(self) -> str:
        width = max(NAME, *(len(name) + 1 for name, *cells in self.tables[0] if cells)) + 6 * CELL
        lines = [self.title.center(width).rstrip(), "=" * width, *_two_columns(self.head, width), "=" * width]
        for headings, *rows in self.tables:
            first = width - CELL * (len(headings) - 1)
            cells = [r[0].ljust(first) + "".join(f" {cell:>{CELL - 1}}" for cell in r[1:]) for r in (headings, *rows)]
            lines += [cells[0].rstrip(), "-" * width, *(cell.rstrip() for cell in cells[1:]), "=" * width]
        return "\n".join([*lines, *(line for text in self.foot for line in wrap(text, width, subsequent_indent="  "))])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<tr><th>{escape(label)}</th><td>{escape(value)}</td></tr>" for label, value in self.head)
        tables = "".join(
            f"<table>{_html_row(headings, 'th')}{''.join(_html_row(row, 'td') for row in rows)}</table>"
            for headings, *rows in self.tables
        )
        foot = "".join(f"<p>{escape(text)}</p>" for text in self.foot)
        return f"<div><strong>{escape(self.title)}</strong><table>{head}</table>{tables}{foot}</div>"


def summarise(fit: Any, level: float) -> FitSummary:
    """A fit on one page, with intervals of `level`."""
    quantile(level, math.inf)  # refuses what is no level
    regression = isinstance(fit.task, Regression)
    title = "Regression over sites" if regression else "Value function over sites"
    head = _regression_head(fit, fit.task) if isinstance(fit.task, Regression) else _value_head(fit, fit.task)
    tables = [_coefficients(fit, level)]
    if fit.bootstrap is not None:
        tables.append(_bootstrap(fit, level))
    tables += [_baseline(fit, b) for b in fit.baselines if b.name not in (ITERATIVE, ONE_SHOT, LSTD)]
    notes = [f"[{i}] {text}" for i, text in enumerate(fit.notes, 1)]
    return FitSummary(title, head, tuple(tables), (*_robust(fit), *_protocol(fit), *_between(fit), *notes))


def _regression_head(fit: Any, task: Regression) -> tuple[tuple[str, str], ...]:
    n, d = fit.rows, len(fit.theta)
    adjusted = 1 - (1 - fit.r_squared) * (n - task.intercept) / (n - d) if n > d else math.nan
    F, p = _all_slopes(fit, task.intercept)
    weighted = "weighted least squares" if task.row_weights else "least squares"
    how = weighted if not task.ridge else f"{weighted}, ridge {task.ridge:g}"
    left = [("Formula" if task.formula else "Target", task.target)]
    left += [("Method", f"pooled {how}" if fit.weight == "samples" else how), *_common(fit)]
    return (
        *left,
        ("Degrees of freedom", f"{fit.degrees_of_freedom:g}"),
        ("R-squared", _fixed(fit.r_squared)),
        ("Adj. R-squared", _fixed(adjusted)),
        ("Residual std. error", significant(math.sqrt(fit.residual_variance), 5)),
        ("F-statistic", significant(F, 5)),
        ("Prob (F-statistic)", "-" if math.isnan(p) else f"{p:.3g}"),
    )


def _value_head(fit: Any, task: Any) -> tuple[tuple[str, str], ...]:
    ended, episodes = sum(s.terminated for s in fit.per_site), sum(s.episodes for s in fit.per_site)
    left = sum(s.effective_rows for s in fit.per_site)
    return (
        ("Target", f"{task.reward}, discounted by {task.discount:g}"),
        ("Method", f"TD({task.trace:g})"),
        *_common(fit),
        ("Episodes", f"{episodes:,}"),
        ("Terminated", f"{ended:,}"),
        *([("Effective rows, importance", significant(left, 4))] if left < fit.rows * (1 - 1e-9) else []),
    )


def _common(fit: Any) -> list[tuple[str, str]]:
    """What every head has: how sites count, the covariance, and the data."""
    counts = "each row the same" if fit.weight == "samples" else "each site the same"
    by = fit.task.row_weights if isinstance(fit.task, Regression) else None
    weights = counts if by is None else f"rows by {by}" + (f", {counts}" if fit.weight == "sites" else "")
    dropped = sum(s.dropped for s in fit.per_site)
    out = [("Weights", weights), ("Covariance", fit.covariance_kind), ("Sites", f"{len(fit.per_site):,}")]
    rows = "Rows" if isinstance(fit.task, Regression) else "Transitions"
    return [*out, (rows, f"{fit.rows:,}"), *([("Rows dropped", f"{dropped:,}")] if dropped else [])]


def _all_slopes(fit: Any, intercept: bool) -> tuple[float, float]:
    """The F test that every coefficient but the intercept is 0, and its p; NaN where there is none."""
    R = np.eye(len(fit.names))[: len(fit.names) - intercept]
    try:
        found = fit.test(R)
    except ArgumentError:  # without slopes, without noise, or with fewer clusters than slopes
        return math.nan, math.nan
    return found.statistic, found.p_value


def _coefficients(fit: Any, level: float) -> tuple[tuple[str, ...], ...]:
    t = "z" if math.isinf(fit.degrees_of_freedom) else "t"
    headings = ("", "coef", "std err", t, f"P>|{t}|", *_ends(level))
    columns = zip(
        fit.theta, fit.standard_error, fit.t_values, fit.p_values, *fit.confidence_interval(level).T, strict=True
    )
    rows = [(_cell(v, 5), *map(_cell, (s, t)), _p(p), *map(_cell, (a, b))) for v, s, t, p, a, b in columns]
    return (headings, *_named(fit.names, rows))


def _bootstrap(fit: Any, level: float) -> tuple[tuple[str, ...], ...]:
    assert fit.bootstrap is not None
    columns = zip(fit.bootstrap.standard_error, *fit.bootstrap.interval(level).T, strict=True)
    rows = [tuple(map(_cell, row)) for row in columns]
    return (
        (f"Bootstrap, {counted(len(fit.bootstrap.replicas), 'replica')}", "std err", *_ends(level)),
        *_named(fit.names, rows),
    )


def _baseline(fit: Any, other: Baseline) -> tuple[tuple[str, ...], ...]:
    rows = [(_cell(v), _cell(e)) for v, e in zip(other.theta, other.standard_error, strict=True)]
    return ((other.name[:1].upper() + other.name[1:], "coef", "std err"), *_named(fit.names, rows))


def _named(names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Iterable[tuple[str, ...]]:
    """The rows with their names; of very many the first, and how many more there are."""
    few = len(names) if len(names) <= MOST else MOST - 1
    yield from ((_cut(name), *row) for name, row in zip(names[:few], rows, strict=False))
    if few < len(names):
        yield (f"... {len(names) - few:,} more; to_frame() has all",)


def _cut(name: str) -> str:
    half = LONGEST // 2 - 1
    return name if len(name) <= LONGEST else f"{name[: half - 1]}...{name[-half:]}"


def _ends(level: float) -> tuple[str, str]:
    return f"[{(1 - level) / 2:.6g}", f"{(1 + level) / 2:.6g}]"


def _robust(fit: Any) -> list[str]:
    """What the standard errors of a regression allow for."""
    if not isinstance(fit.task, Regression):
        return []
    kind, cluster = fit.covariance_kind.partition(",")[0], fit.task.cluster
    within = "sites" if cluster == SITES else f"clusters by {cluster}"
    says = {
        "cl": "take errors to be independent and of one variance",
        "HC": "are robust to unequal variances",
        "CR": f"are robust to correlation within {within}" + (", which are left out in turn" if kind == "CR3" else ""),
        "HA": "are robust to correlation in time",
    }
    return [f"Standard errors {says[kind[:2]]} ({kind})."] if kind[:2] in says else []


def _protocol(fit: Any) -> list[str]:
    """What sites would get that only exchange parameters."""
    if fit.plan is None:
        return []
    plan, a = fit.plan, fit.plan.algorithm
    length = getattr(a, a.length)
    steps = f"probability {length:.4g}" if a.random_lengths else counted(length, "local step")
    rounds = f"{counted(plan.rounds, 'communication')} of {steps}"
    off = largest_distance(fit)
    near = "none of its coefficients is off by more than" if off < math.inf else "its coefficients are off by"
    return [
        "The coefficients solve all sites' data together. A protocol that exchanges parameters alone, "
        f"{type(a).__name__} on {LOCAL[fit.local]} with step size {a.step_size:.3g}, takes {rounds} and {plan.bytes:,} "
        f"bytes; {near} {max(off, 0.001):.2g} standard errors.{_why(fit)}"
    ]


def _why(fit: Any) -> str:
    """Why steps use rows or means, where that is what the size of the data decides."""
    d, N, n = QUICK_ON_ROWS
    quick = quick_on_rows(len(fit.theta), len(fit.per_site), fit.rows)
    if fit.local == "rows" and quick:
        return f" Steps use rows by default up to {d} coefficients, {N} sites and {n:,} rows."
    if fit.local == "means" and not quick:
        return (
            f" Steps use means by default beyond {d} coefficients, {N} sites or {n:,} rows: rows take long to plan for."
        )
    return ""


def _between(fit: Any) -> list[str]:
    """Whether sites agree."""
    return [f"{fit.heterogeneity().line()}."] if len(fit.per_site) > 1 else []


def largest_distance(fit: Any) -> float:
    """The protocol's answer from the estimate, in standard errors of the coefficient that is furthest off."""
    off, error = np.abs(fit.protocol - fit.theta), fit.standard_error
    return float(np.max(np.where(off > 0, off / np.where(error > 0, error, np.nan), 0.0)))


def _fixed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def _p(value: float) -> str:
    return "-" if math.isnan(value) else "<0.001" if value < 0.0005 else f"{value:.3f}"


def _cell(value: float, digits: int = 4) -> str:
    """A number to so many digits, or as many as there is room for in the table."""
    texts = (significant(value, k) for k in range(digits, 0, -1))
    return next((text for text in texts if len(text) < CELL), significant(value, digits))


def significant(value: float, digits: int) -> str:
    """A number to so many digits, without an exponent where it is of a usual size."""
    if math.isnan(value):
        return "-"
    if value == 0 or not 1e-4 <= abs(value) < 1e8:
        return f"{value:.{digits - 1}g}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def _two_columns(pairs: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Labels and values side by side; what is too long for that stands alone, at the top."""
    half = (width - GAP) // 2
    long = [f"{label}: {value}" for label, value in pairs if len(label) + len(value) + 3 > half]
    short = [f"{one}:{value:>{half - len(one) - 1}}" for one, value in pairs if len(one) + len(value) + 3 <= half]
    rows = (len(short) + 1) // 2
    columns = zip(short[:rows], [*short[rows:], ""], strict=False)
    lines = [line for text in long for line in wrap(text, width, subsequent_indent="  ")]
    return lines + [(left + " " * GAP + right).rstrip() for left, right in columns]


def _html_row(cells: Sequence[str], tag: str) -> str:
    first, *rest = cells
    align = "".join(f'<{tag} style="text-align:right">{escape(cell)}</{tag}>' for cell in rest)
    return f'<tr><th style="text-align:left">{escape(first)}</th>{align}</tr>'
