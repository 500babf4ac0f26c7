"""A fit on one page, as statsmodels prints it: what was fitted, the coefficients, and what a protocol would give.

And what a user should know beside the iterative answer: protocols of one message, with what they cost and reveal. These
are the averaged system (federated LSTD, normal equations) and the average of local solutions, from the same data, and
for a value function Monte Carlo; docs/one-shot.md says when each is the right choice.

And hypotheses about coefficients: what a line such as "educ = exper, tenure = 0" says, and the Wald test of it.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc, fdtrc

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..value_objects import Displayed, ReadOnly, counted
from .formulas import OPERATORS
from .tasks import QUICK_ON_ROWS, SITES, Regression, quick_on_rows

COLUMN, GAP, CELL = 38, 2, 10  # letters of a column of the head, between two, and of a number in the table
NAME = 2 * COLUMN + GAP - 6 * CELL  # letters of a coefficient's name before the table grows wider than the head
LONGEST = 40  # letters of a name that are shown
MOST = 60  # coefficients that are shown
ITERATIVE, ONE_SHOT, AVERAGE = "iterative", "one-shot system", "average of solutions"
LSTD, LSTD_AVERAGE, MONTE_CARLO = "LSTD", "LSTD per site, averaged", "Monte Carlo"
SYSTEM = "each site sends A_c and b_c: the second moments of its features, and their products with the "
ANSWER = "each site sends its own answer; their average is biased where sites differ"
REVEALS = {
    ITERATIVE: "each site sends a vector in every round; one says little, many together say more about A_c and b_c",
    ONE_SHOT: SYSTEM + "outcome",
    AVERAGE: ANSWER,
    LSTD: SYSTEM + "reward",
    LSTD_AVERAGE: ANSWER,
    MONTE_CARLO: SYSTEM + "discounted returns",
}
LOCAL = {"rows": "rows at random", "log": "rows in their order", "means": "each site's means"}
NUMBER = r"\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?"
QUOTED = r"`([^`]*)`|\"([^\"]*)\"|'([^']*)'"
WORD = r"[^\s=,+*/()-]+(?:\([^()]*\))?(?:\[[^]]*\])?"  # of a name that is not known
SINGULAR = 1e-13  # of the largest eigenvalue of a matrix whose rows have length 1: a rounding error


@dataclass(frozen=True, eq=False, repr=False)
class Baseline(Displayed, ReadOnly):
    """Another way to an answer from the same data.

    name : of the way
    theta : (d,) its answer, on the original scale
    standard_error : (d,) of its answer, because data are finite, and of the run where there is one. An average is about
        the average of what sites would find in endless data, not about the shared solution
    distance : the largest difference of a coefficient from the data's solution, in standard errors of that solution
    numbers : that one site sends; messages : of all sites
    bytes : up and down, all sites: eight per number, and of the run as the network sends them (run_plan.py)
    reveals : what the server learns of a site
    """

    name: str
    theta: Floats
    standard_error: Floats
    distance: float
    numbers: int
    messages: int
    bytes: int
    reveals: str


@dataclass(frozen=True, eq=False, repr=False)
class FitSummary(ReadOnly):
    """A fit on one page; `print` it, or show it in a notebook.

    title : what was fitted; head : labels and values; tables : headings and rows, each after a name; foot : paragraphs
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


def compare(fit: Any, returns: tuple[Floats, Floats] | None) -> tuple[Baseline, ...]:
    """The protocol's answer, where a run was planned, beside those of one message; returns : Monte Carlo's, with its
    standard errors, (d,) each, for a value function"""
    N, d, plan, error = len(fit.per_site), len(fit.theta), fit.plan, fit.standard_error
    system, mean = (ONE_SHOT, AVERAGE) if returns is None else (LSTD, LSTD_AVERAGE)
    weights = np.array([site.weight for site in fit.per_site])
    average = weights @ np.stack([site.theta for site in fit.per_site])
    spread = np.sqrt(weights**2 @ np.stack([np.diag(site.covariance) for site in fit.per_site]))
    once = (d * d + d, N, 8 * N * (d * d + 2 * d))  # numbers of a site, messages, bytes
    answers: dict[str, tuple[Floats, Floats, int, int, int]] = {}
    if plan is not None:
        run_error = np.hypot(error, fit.optimisation)
        answers[ITERATIVE] = (fit.protocol, run_error, d * plan.rounds, plan.uploads, plan.bytes)
    answers |= {system: (fit.theta, error, *once), mean: (average, spread, d, N, 16 * N * d)}
    if returns is not None:
        answers[MONTE_CARLO] = (*returns, *once)
    return tuple(
        Baseline(name, answer, own, _largest(answer - fit.theta, error), numbers, messages, size, REVEALS[name])
        for name, (answer, own, numbers, messages, size) in answers.items()
    )


def _largest(gap: Floats, deviation: Floats) -> float:
    """max |gap| / deviation, where no gap is 0 whatever the deviation; NaN where a gap is."""
    if np.isnan(gap).any():
        return float("nan")
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(gap == 0, 0.0, np.abs(gap) / deviation)))


def summarise(fit: Any, level: float) -> FitSummary:
    """A fit on one page, with intervals of `level`."""
    checks.real("level", level, above=0, below=1)
    title = "Regression over sites" if isinstance(fit.task, Regression) else "Value function over sites"
    head = _regression_head(fit, fit.task) if isinstance(fit.task, Regression) else _value_head(fit, fit.task)
    ends, t = (f"[{(1 - level) / 2:.6g}", f"{(1 + level) / 2:.6g}]"), "z" if math.isinf(fit.degrees_of_freedom) else "t"
    numbers = [_cells(fit.theta, 5), _cells(fit.standard_error), _cells(fit.t_values), map(_p, fit.p_values)]
    intervals = map(_cells, fit.confidence_interval(level).T)
    tables = [_table(fit, ("", "coef", "std err", t, f"P>|{t}|", *ends), *numbers, *intervals)]
    if (b := fit.bootstrap) is not None:
        headings = (f"Bootstrap, {counted(len(b.replicas), 'replica')}", "std err", *ends)
        tables.append(_table(fit, headings, _cells(b.standard_error), *map(_cells, b.interval(level).T)))
    for other in (one for one in fit.baselines if one.name not in (ITERATIVE, ONE_SHOT, LSTD)):
        name = other.name[:1].upper() + other.name[1:]
        tables.append(_table(fit, (name, "coef", "std err"), _cells(other.theta), _cells(other.standard_error)))
    apart = len(fit.per_site) > 1 and "network run" not in fit.made_by  # where sites say nothing of themselves alone
    notes = [f"{fit.heterogeneity().line()}."] if apart else []
    notes += [f"[{i}] {text}" for i, text in enumerate(fit.notes, 1)]
    return FitSummary(title, head, tuple(tables), (*_robust(fit), *_protocol(fit), *notes))


def _regression_head(fit: Any, task: Regression) -> tuple[tuple[str, str], ...]:
    F = p = math.nan
    with suppress(ArgumentError):  # without slopes, without noise, or with fewer clusters than slopes
        F, p = (test := fit.test()).statistic, test.p_value
    weighted = "weighted least squares" if task.row_weights else "least squares"
    how = weighted if not task.ridge else f"{weighted}, ridge {task.ridge:g}"
    left = [("Formula" if task.formula else "Target", task.target)]
    left += [("Method", f"pooled {how}" if fit.weight == "samples" else how), *_common(fit)]
    return (
        *left,
        ("Degrees of freedom", f"{fit.degrees_of_freedom:g}"),
        ("R-squared", _fixed(fit.r_squared)),
        ("Adj. R-squared", _fixed(fit.adjusted_r_squared)),
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
    by = fit.task.row_weights
    weights = counts if by is None else f"rows by {by}" + (f", {counts}" if fit.weight == "sites" else "")
    dropped = sum(s.dropped for s in fit.per_site)
    out = [("Weights", weights), ("Covariance", fit.covariance_kind), ("Sites", f"{len(fit.per_site):,}")]
    rows = "Rows" if isinstance(fit.task, Regression) else "Transitions"
    out += [("Each site's own", fit.task.own)] if fit.task.own else []
    return [*out, (rows, f"{fit.rows:,}"), *([("Rows dropped", f"{dropped:,}")] if dropped else [])]


def _table(fit: Any, headings: tuple[str, ...], *columns: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Headings, and a row for each coefficient; of very many the first, and how many more there are."""
    rows = list(zip(map(_cut, fit.names), *columns, strict=True))
    if len(rows) > MOST:
        rows[MOST - 1 :] = [(f"... {len(rows) - MOST + 1:,} more; to_frame() has all",)]
    return (headings, *rows)


def _cut(name: str) -> str:
    half = LONGEST // 2 - 1
    return name if len(name) <= LONGEST else f"{name[: half - 1]}...{name[-half:]}"


def _robust(fit: Any) -> list[str]:
    """What the standard errors of a regression allow for, and what the intervals of a value function are about."""
    if not isinstance(fit.task, Regression):
        return [
            "Intervals are about the features' fixed point, the solution of the projected Bellman equation: its values "
            "are the true ones only where these are a combination of the features."
        ]
    kind, cluster = fit.covariance_kind.partition(",")[0], fit.cluster
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
    from .run_plan import EXACT, FRAMING  # the planner, which nobody else needs who reads a model

    plan, a = fit.plan, fit.plan.algorithm
    length = getattr(a, a.length)
    steps = f"probability {length:.4g}" if a.random_lengths else counted(length, "local step")
    rounds = f"{counted(plan.rounds, 'communication')} of {steps}"
    off = _largest(fit.protocol - fit.theta, fit.standard_error)
    shared = " Sites must let moments leave for this plan (share_moments = true)." if plan.basis == EXACT else ""
    near = "none of its coefficients is off by more than" if off < math.inf else "its coefficients are off by"
    return [
        "The coefficients solve all sites' data together. A protocol that exchanges parameters alone, "
        f"{type(a).__name__} on {LOCAL[fit.local]} with step size {a.step_size:.3g}, takes {rounds} and {plan.bytes:,} "
        f"bytes of numbers, in messages with up to {FRAMING / 1024:g} kB of names and receipts; {near} "
        f"{max(off, 0.001):.2g} standard errors.{shared}{_why(fit)}"
    ]


def _why(fit: Any) -> str:
    """Why steps use rows or means, where that is what the size of the data decides."""
    d, N, n = QUICK_ON_ROWS
    quick = quick_on_rows(len(fit.theta), len(fit.per_site), fit.rows)
    if fit.local == "rows" and quick:
        return f" Steps use rows by default up to {d} coefficients, {N} sites and {n:,} rows."
    size = f"{d} coefficients, {N} sites or {n:,} rows"
    unplanned = fit.local == "means" and not quick
    return f" Steps use means by default beyond {size}: rows take long to plan for." if unplanned else ""


def _fixed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def _p(value: float) -> str:
    return "-" if math.isnan(value) else "<0.001" if value < 0.0005 else f"{value:.3f}"


def _cells(values: Floats, digits: int = 4) -> Iterator[str]:
    """Numbers to so many digits, or as many as there is room for in the table."""
    for value in values.tolist():
        texts = (significant(value, k) for k in range(digits, 0, -1))
        yield next((text for text in texts if len(text) < CELL), significant(value, digits))


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


@dataclass(frozen=True, eq=False, repr=False)
class WaldTest(Displayed, ReadOnly):
    """The F test that q linear combinations of coefficients have the values that are claimed of them.

    statistic : F = (R theta - r)^T (R Cov R^T)^-1 (R theta - r) / q
    df_num : q; df_denom : the degrees of freedom of the covariance. Where they are infinite, q F is chi squared
    p_value : the probability of a statistic as large as this one if the claims are true
    claims : in words; value : (q,) of the combinations; claimed : (q,) what they would be; standard_error : (q,)
    """

    statistic: float
    df_num: int
    df_denom: float
    p_value: float
    claims: tuple[str, ...]
    value: Floats
    claimed: Floats
    standard_error: Floats

    def _display(self) -> tuple[str, list[tuple[str, Any]]]:
        found = zip(self.claims, self.value, self.claimed, self.standard_error, strict=True)
        return f"F({self.df_num:g}, {self.df_denom:g}) = {self.statistic:.5g}, p = {self.p_value:.3g}", [
            (claim, f"{v:.5g} where {c:.5g} is claimed, standard error {s:.3g}") for claim, v, c, s in found
        ]


def wald_test(fit: Any, hypothesis: str | ArrayLike, values: ArrayLike | None) -> WaldTest:
    """The test of a hypothesis about the coefficients of a fit."""
    names, theta, root = fit.names, fit.theta, fit.root
    if isinstance(hypothesis, (list, tuple)) and hypothesis and all(isinstance(claim, str) for claim in hypothesis):
        hypothesis = ", ".join(hypothesis)
    if isinstance(hypothesis, str):
        if values is not None:
            raise ArgumentError(f"values must not be given beside a text, which says them; got {checks.show(values)}")
        claims, R, r = read_hypothesis(hypothesis, names)
    else:
        R = np.atleast_2d(checks.as_array("hypothesis", hypothesis, "a text or an array (q, d)"))
        R = checks.array("hypothesis", R, ("q", len(names)))
        r = np.zeros(len(R)) if values is None else np.atleast_1d(checks.as_array("values", values, "an array (q,)"))
        r = checks.array("values", r, (len(R),))
        claims = tuple(f"{_combination(row, names)} = {c:g}" for row, c in zip(R, r, strict=True))
    if not len(R):
        raise ArgumentError("hypothesis must claim something; got nothing")
    for row, claim in zip(R, claims, strict=True):
        if not row.any():
            raise ArgumentError(f"hypothesis must be about coefficients, and {claim!r} names none")
    if np.linalg.matrix_rank(R / np.linalg.norm(R, axis=1, keepdims=True), rtol=math.sqrt(SINGULAR)) < len(R):
        raise ArgumentError(
            f"hypothesis must be claims of which none follows from the others, or contradicts them; got "
            f"{', '.join(claims)}"
        )
    spread = np.stack([row[row != 0] @ root[row != 0] for row in R])  # errors of other coefficients need not be known
    error = np.linalg.norm(spread, axis=1)
    for claim, e in zip(claims, error, strict=True):
        if not e > 0:
            has = "none that is known" if math.isnan(e) else "0"
            raise ArgumentError(f"hypothesis must be about coefficients with a standard error; {claim!r} has {has}")
    off, spread = (R @ theta - r) / error, spread / error[:, None]
    left, values, _ = np.linalg.svd(spread)
    if len(values) < len(R) or values[-1] ** 2 <= SINGULAR * values[0] ** 2:
        raise ArgumentError(
            f"hypothesis must have fewer claims, for the covariance of these {len(R)} is singular (as with fewer "
            f"clusters than claims); got {', '.join(claims)}"
        )
    F, q = float(np.sum((off @ left / values) ** 2)) / len(R), len(R)
    degrees = float(fit.degrees_of(R).min())
    p = chdtrc(q, q * F) if math.isinf(degrees) else fdtrc(q, degrees, F)
    return WaldTest(F, q, degrees, float(p), claims, R @ theta, r, error)


def _combination(row: Floats, names: Sequence[str]) -> str:
    parts = [(v, n) for v, n in zip(row, names, strict=True) if v != 0]
    text = " ".join(f"{'-' if v < 0 else '+'} {f'{abs(v):g} * '.removeprefix('1 * ')}{n}" for v, n in parts)
    return text.removeprefix("+ ") or "0"


def read_hypothesis(text: str, names: Sequence[str]) -> tuple[tuple[str, ...], Floats, Floats]:
    """Claims in words, R : (q, d) and r : (q,) with R theta = r.

    Claims are parted by commas; what stands without "=" is claimed to be 0, and a = b = c are two claims. Names may
    stand in backticks or quotes, and must where they look like a number. What is left once names and numbers have
    placeholders is arithmetic as Python has it, and Python reads it.
    """
    longest = sorted((n for n in names if n and not re.fullmatch(NUMBER, n)), key=len, reverse=True)
    tokens = re.compile("|".join([QUOTED, *(f"({_pattern(n)})" for n in longest), f"({NUMBER})", WORD]))
    written: dict[str, str] = {}
    forms: dict[str, Floats] = {}  # (d + 1,) of each placeholder: a combination of coefficients, and a number

    def placeholder(token: re.Match[str]) -> str:
        key, group = f"_{len(forms)}", token.lastindex or 0  # names in quotes, other names, numbers; 0 for what is none
        numeric = group == len(longest) + 4
        name = token[group] if group < 4 or numeric else longest[group - 4]
        if not numeric and name not in names:
            hint = checks.did_you_mean(name, names) or f"; they are {', '.join(names[:8])}"
            raise ArgumentError(f"hypothesis must name coefficients of the fit, and none is called {name!r}{hint}")
        written[key], forms[key] = token[0], np.zeros(len(names) + 1)
        forms[key][-1 if numeric else list(names).index(name)] = float(name) if numeric else 1.0
        return f" {key} "

    def words(side: str) -> str:
        return re.sub(r" (_\d+) ", lambda found: written[found[1]], side).strip()

    def combination(side: str) -> Floats:
        try:
            return _combination_of(ast.parse(" ".join(side.split()), mode="eval").body, forms)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            rule = 'hypothesis must be linear equations such as "educ = 2 * exper, tenure = 0"'
            what = error if isinstance(error, ValueError) else repr(words(side)) if side.strip() else "an empty side"
            raise ArgumentError(f"{rule}; got {what} in {text!r}") from None

    claims: list[tuple[str, Floats]] = []
    for claim in tokens.sub(placeholder, text).split(","):
        first, *others = map(str, claim.split("="))
        if not others:
            claims.append((f"{words(first)} = 0", combination(first)))
        claims += [(f"{words(a)} = {words(b)}", combination(a) - combination(b)) for a, b in pairwise([first, *others])]
    matrix = np.stack([form for _, form in claims])
    return tuple(claim for claim, _ in claims), matrix[:, :-1], 0.0 - matrix[:, -1]


def _combination_of(node: ast.expr, forms: Mapping[str, Floats]) -> Floats:
    """What an expression of placeholders comes to : (d + 1,)."""
    match node:
        case ast.Name(id=key):
            return forms[key]
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=inner):
            return OPERATORS[type(sign)](_combination_of(inner, forms))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as sign, right=right):
            a, b = _combination_of(left, forms), _combination_of(right, forms)
            if isinstance(sign, ast.Mult) and b[:-1].any():
                a, b = b, a
            if isinstance(sign, ast.Mult | ast.Div):
                if b[:-1].any():
                    raise ValueError("a product or ratio of coefficients, which is not linear")
                if isinstance(sign, ast.Div) and b[-1] == 0:
                    raise ValueError("a division by 0")
                b = b[-1]
            return OPERATORS[type(sign)](a, b)
    raise SyntaxError  # other signs


def _pattern(name: str) -> str:
    """A name as it is, and not the beginning of a longer one; spaces within a call such as I(x ** 2) mean nothing."""
    text = re.escape(name)
    if "(" in name:
        text = r"\s*".join(re.escape(part) for part in re.findall(r"\w+|[^\w\s]", name))
    return text + (r"(?![\w.\[(:])" if re.match(r"\w", name[-1]) else "")
