"""What an experiment is: data. Figures, tables and claims, each with its cells and a function of their results.

    Experiment("fig1", "FedLSA stalls, SCAFFLSA does not", ("fig:show-bias",), pictures=(...), claims=(...))

Cells follow from a scale. Their results are one tidy table (`Results`: settings as columns), of which drawing,
tabulating and deciding are functions; they never compute.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

from .. import checks
from ..errors import ArgumentError
from ..figures.lines import ChartRows
from ..figures.svg_charts import SvgSheet
from ..mathml import INLINE, inline, mathml
from .cells import Cell, Results

Row = Mapping[str, str | int | float]  # of a table that is shown: values by the heading of their column


@dataclass(frozen=True)
class Scale:
    """How much of the paper is run: which instance, how many seeds, and whether only to see that all of it works.

    instances : on how many other instances (quick ones) claims without simulations are decided, too
    garnet_seed : of such an instance; None: the preset's own
    """

    preset: str = "paper"
    seeds: int = 10
    quick: bool = False
    instances: int = 0
    garnet_seed: int | None = None

    def garnet(self, agents: int, heterogeneous: bool) -> dict[str, Any]:
        """The arguments of the paper's Garnet problem (sec:appendix_numerics)."""
        own = {} if self.garnet_seed is None else {"seed": self.garnet_seed}
        return {"agents": agents, "heterogeneous": heterogeneous, "preset": self.preset, **own}

    def cell(self, kind: str, agents: int, heterogeneous: bool, **settings: Any) -> Cell:
        """A cell of the paper's Garnet problem."""
        return Cell(kind, {"problem": self.garnet(agents, heterogeneous), **settings})

    def others(self) -> list[Scale]:
        """The other instances: Garnet problems with the seeds 1, 2, ..."""
        seeds = range(1, self.instances + 1)
        return [replace(self, quick=True, instances=0, garnet_seed=seed) for seed in seeds]


Cells = Callable[[Scale], Iterable[Cell]]


def grid(**axes: Sequence[Any]) -> list[dict[str, Any]]:
    """Every combination of the axes' values, the last axis fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


@dataclass(frozen=True)
class Picture:
    """A figure. caption : what a reader sees; {preset} and {seeds} stand for the run's."""

    name: str
    caption: str
    cells: Cells
    draw: Callable[[Results, Scale], ChartRows]


@dataclass(frozen=True)
class Table:
    """A table, in the report and as CSV.

    rows : from the results; all rows have the same columns; missing : why a column may have no number, by its heading's
    beginning
    """

    name: str
    caption: str
    cells: Cells
    rows: Callable[[Results, Scale], Sequence[Row]]
    missing: Mapping[str, str] = field(default_factory=dict)

    def reason(self, heading: str) -> str:
        """Why there may be no number in a column; "" where there always is one."""
        return next((why for begins, why in self.missing.items() if heading.startswith(begins)), "")


SOURCES = {
    "paper": "of the paper",  # a sentence or a table of the paper says it
    "printed": "of the paper, corrected here",  # a formula or a statement that fails on a counterexample
    "check": "of the library itself",  # two ways to one number agree
    "beyond": "beyond the paper",
}


@dataclass(frozen=True)
class Claim:
    """Something that is said, as a number that can be wrong.

    text : the claim in words; source : its label in the paper; statistic : its number, in words
    cells : those that decide it and no others; at_least, at_most : where the number must lie for the claim to hold
    quote : the paper's own words or formula, for a claim of the paper; kind : who says it, one of `SOURCES`, by default
        the paper where it is quoted and nobody ("beyond") where it is not
    expected : False for a claim that is not true as the paper states it: the report says so, with the number, and `why`
    panel : words in the name or the title of the chart that shows it, where its cells do not tell
    row : the first cell of the row, in the experiment's first table, that has its numbers
    """

    name: str
    text: str
    source: str
    statistic: str
    cells: Cells
    measure: Callable[[Results], float]
    at_least: float = -math.inf
    at_most: float = math.inf
    expected: bool = True
    kind: str = ""
    quote: str = ""
    why: str = ""
    panel: str = ""
    row: str = ""

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", "paper" if self.quote else "beyond")
        checks.choice("kind", self.kind, tuple(SOURCES))
        if (self.kind in ("paper", "printed")) != bool(self.quote):
            raise ArgumentError(f"quote must hold the words of a claim of the paper, and nothing else; got {self}")
        if self.expected == bool(self.why):
            raise ArgumentError(f"why must say why a claim is not expected to hold, and nothing else; got {self}")
        if not self.at_least > -math.inf and not self.at_most < math.inf:
            raise ArgumentError(f"at_least or at_most must be finite, or the claim could not fail; got {self}")

    def other_scales(self, scale: Scale) -> list[Scale]:
        """The other instances on which it is decided: none if its cells are random, or the same on all of them."""
        cells = self.cells(replace(scale, quick=True))
        return scale.others() if all("problem" in c.settings and "seeds" not in c for c in cells) else []


@dataclass(frozen=True)
class Verdict:
    """A claim with its number. holds : whether that lies where the claim says; ok : whether so it was expected.

    others : the number on other instances; what is expected of the preset's own is not expected of all of them.
    What is no finite number decides nothing, and is not ok whatever was expected.
    """

    claim: Claim
    scale: Scale
    value: float
    others: tuple[float, ...] = ()

    @property
    def holds(self) -> bool:
        return self._holds(self.value)

    @property
    def ok(self) -> bool:
        return all(map(math.isfinite, (self.value, *self.others))) and self.holds == self.claim.expected

    @property
    def holds_elsewhere(self) -> int:
        """On how many of the other instances the claim holds."""
        return sum(map(self._holds, self.others))

    def _holds(self, value: float) -> bool:
        return math.isfinite(value) and self.claim.at_least <= value <= self.claim.at_most


@dataclass(frozen=True)
class Experiment:
    """name : what `fedlsa reproduce` is given; labels : what of the paper it reproduces."""

    name: str
    title: str
    labels: tuple[str, ...]
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    claims: tuple[Claim, ...] = ()

    def cells(self, scale: Scale) -> list[Cell]:
        """All that it needs at a scale, each once; not those of other instances."""
        parts: tuple[Picture | Table | Claim, ...] = (*self.pictures, *self.tables, *self.claims)
        return list(dict.fromkeys(cell for part in parts for cell in part.cells(scale)))

    def groups(self, scale: Scale) -> dict[str, list[Cell]]:
        """All its cells, by the names of groups that a display shows: the kinds of cells, and other instances."""
        name = f"{self.name}, {scale.preset}"
        groups: dict[str, list[Cell]] = {}
        for cell in self.cells(scale):
            groups.setdefault(f"{name}: {cell.kind}", []).append(cell)
        others = [cell for claim in self.claims for other in claim.other_scales(scale) for cell in claim.cells(other)]
        return {**groups, f"{name}: {scale.instances} other instances": others} if others else groups


@dataclass(frozen=True)
class Outcome:
    """What there is to show of one experiment at one scale: files of figures and tables, rows, verdicts."""

    experiment: Experiment
    scale: Scale
    figures: Mapping[str, Path]  # by the name of the picture; the PNG, the PDF stands beside it
    sheets: Mapping[str, SvgSheet]  # the same charts for the report
    tables: Mapping[str, Sequence[Row]]  # by the name of the table
    values: Sequence[Sequence[float]]  # of the claims: here, and on other instances

    @property
    def verdicts(self) -> list[Verdict]:
        pairs = zip(self.experiment.claims, self.values, strict=True)
        return [Verdict(claim, self.scale, here, tuple(others)) for claim, (here, *others) in pairs]


def command(experiment: Experiment, scale: Scale) -> str:
    """What a reader types to make one experiment alone."""
    quick = " --quick" if scale.quick else ""
    run = f"--seeds {scale.seeds} --instances {scale.instances}{quick}"
    return f"fedlsa reproduce {experiment.name} --preset {scale.preset} {run}"


# Verdicts and their numbers in words, for the report, its table and the command line.

HOLDS, NOT_AS_STATED, FAILED = "holds", "does not hold as stated", "FAILED"
MARKS = {HOLDS: "good", NOT_AS_STATED: "note", FAILED: "bad"}
COUNTED = {HOLDS: "hold", NOT_AS_STATED: "not as stated", FAILED: "FAILED"}

NAMED = {  # symbols by their names in code and in charts
    "theta_star": r"\theta_\star", "theta_t": r"\theta_t", "eta": r"\eta", "psi": r"\psi",
    **dict.fromkeys(("tau_mix", "τ_mix"), r"\tau_{\mathrm{mix}}"),
    **dict.fromkeys(("||bias||^2", "‖bias‖²"), r"\Vert\mathrm{bias}\Vert^2"),
}  # fmt: skip
SYMBOL = rf"(?<![\w.])({'|'.join(map(re.escape, NAMED))}|[NHTKdnpqεηψ\u03b3\u03bd]|(?<=1/)a)(?![A-Za-z0-9_])"
FORMULA = re.compile(f"{INLINE}|{SYMBOL}")
POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e\+?(-?)0*(\d+)(?!\w)")
RAISED = re.compile(r"(?<=\S)\^(-?\d+(?:\.\d+)?)")
NEGATIVE = re.compile(r"(?<![\w)])-(?=\d)")


def in_print(text: str) -> str:
    """A text as HTML: its formulas and its symbols are MathML, its numbers have powers of ten and a minus sign.

    >>> in_print("N agents").replace(in_print("N"), "symbol")
    'symbol agents'
    >>> in_print("-1.2e-05").replace("\u202f", " ")
    '\u22121.2 · 10<sup>\u22125</sup>'
    """
    parts, end = [], 0
    for found in FORMULA.finditer(text):
        shown = inline(found) if found[1] else mathml(NAMED.get(found[3], found[3]), "inline")
        parts += [_with_powers(text[end : found.start()]), shown]
        end = found.end()
    return "".join([*parts, _with_powers(text[end:])])


def _with_powers(text: str) -> str:
    text = POWER.sub(lambda found: _times(found[1]) + f"10^{found[2]}{found[3]}", escape(text))
    return NEGATIVE.sub("\u2212", RAISED.sub(r"<sup>\1</sup>", text))


def _times(digits: str) -> str:
    return "" if digits == "1" else f"{digits}\u202f·\u202f"


def verdict_words(verdict: Verdict) -> str:
    """What is said of a claim: it holds, it does not hold as stated (as we know), or it came out otherwise.

    A number that is not finite came out otherwise.
    """
    if not verdict.ok:
        return FAILED
    return HOLDS if verdict.holds else NOT_AS_STATED


def interval(claim: Claim) -> str:
    """Where the number of a claim must lie for it to hold."""
    low, high = number(claim.at_least), number(claim.at_most)
    if math.isinf(claim.at_least):
        return "any" if math.isinf(claim.at_most) else f"≤ {high}"
    return f"≥ {low}" if math.isinf(claim.at_most) else f"{low} … {high}"


def number(value: Any) -> str:
    """A value as the report shows it: four digits of a number that is not whole."""
    if isinstance(value, bool) or not isinstance(value, float):
        return f"{value:,}".replace(",", "\u2009") if isinstance(value, int) and abs(value) >= 10_000 else str(value)
    return f"{value + 0.0:.4g}"  # no minus before a zero


def counts(verdicts: Iterable[Verdict]) -> dict[str, dict[str, int]]:
    """How many claims of each kind hold, do not hold as stated, or came out otherwise."""
    found: dict[str, dict[str, int]] = {kind: dict.fromkeys(MARKS, 0) for kind in SOURCES}
    for v in verdicts:
        found[v.claim.kind][verdict_words(v)] += 1
    return {kind: group for kind, group in found.items() if any(group.values())}


def elsewhere(verdict: Verdict) -> str:
    """On how many other instances a claim holds, in words; nothing where it was not decided on others."""
    return f"{verdict.holds_elsewhere} of {len(verdict.others)}" if verdict.others else ""
