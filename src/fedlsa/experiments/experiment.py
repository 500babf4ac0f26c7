"""What an experiment is: data. Figures, tables and claims, each with its cells and a function of their results.

    Experiment("fig1", "FedLSA stalls, SCAFFLSA does not", ("fig:show-bias",), pictures=(...), claims=(...))

Cells follow from a scale. Their results are one pandas frame (`tabulate`: settings as columns), of which drawing,
tabulating and deciding are functions; they never compute.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from .. import checks
from ..errors import ArgumentError
from ..figures.lines import ChartRows
from .cells import Cell


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

    @property
    def agents(self) -> tuple[int, ...]:
        """Numbers of agents of the error curves."""
        return (10,) if self.quick else (10, 100)

    def garnet(self, agents: int, heterogeneous: bool) -> dict[str, Any]:
        """The arguments of the paper's Garnet problem (sec:appendix_numerics)."""
        seed = {} if self.garnet_seed is None else {"seed": self.garnet_seed}
        return {"agents": agents, "heterogeneous": heterogeneous, "preset": self.preset, **seed}

    def cell(self, kind: str, agents: int, heterogeneous: bool, **settings: Any) -> Cell:
        """A cell of the paper's Garnet problem."""
        return Cell(kind, {"problem": self.garnet(agents, heterogeneous), **settings})


Cells = Callable[[Scale], Iterable[Cell]]


def grid(**axes: Sequence[Any]) -> list[dict[str, Any]]:
    """Every combination of the axes' values, the last axis fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


@dataclass(frozen=True)
class Picture:
    """A figure. caption : what a reader sees; {preset} and {seeds} stand for the run's; panels : their titles."""

    name: str
    caption: str
    cells: Cells
    draw: Callable[[pd.DataFrame, Scale], ChartRows]
    panels: Callable[[Scale], Sequence[str]] = lambda scale: [""]


@dataclass(frozen=True)
class Table:
    """A table, in the report and as CSV.

    rows : the frame that is shown, from that of the results; missing : why a column may have no number, by its
    heading's beginning
    """

    name: str
    caption: str
    cells: Cells
    rows: Callable[[pd.DataFrame, Scale], pd.DataFrame]
    missing: Mapping[str, str] = field(default_factory=dict)

    def reason(self, heading: str) -> str:
        """Why there may be no number in a column; "" where there always is one."""
        return next((why for begins, why in self.missing.items() if heading.startswith(begins)), "")


SOURCES = {  # of a claim, and what is counted of each
    "paper": "sentences of the paper",  # or entries of its tables
    "printed": "printed statements",  # a formula or a statement that fails on a counterexample
    "check": "self-checks",  # two ways to one number agree
    "beyond": "claims beyond the paper",
}
INSTANCES = {"paper": "the paper's text", "authors": "the authors' code"}


@dataclass(frozen=True)
class Claim:
    """Something that is said, as a number that can be wrong.

    text : the claim in words; source : its label in the paper
    statistic : its number, in words: a short name, then, after a semicolon, how it is made
    cells : those that decide it and no others; at_least, at_most : where the number must lie for the claim to hold
    quote : the paper's own words or formula, for a claim of the paper; kind : who says it, one of `SOURCES`, by default
        the paper where it is quoted and nobody ("beyond") where it is not
    expected : False for a claim that is not true as the paper states it: the report says so, with the number, and `why`
    panel : the chart that shows it, "picture: title"; {N} in it is the most agents of a run; "" for none
    row : the first cell of the row, in the experiment's first table, that has its numbers
    """

    name: str
    text: str
    source: str
    statistic: str
    cells: Cells
    measure: Callable[[pd.DataFrame], float]
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

    @property
    def number_name(self) -> str:
        """What its number is, in a few words."""
        return self.statistic.partition("; ")[0]

    def panel_at(self, scale: Scale) -> tuple[str, str] | None:
        """The picture that shows it and the title of the chart in it; None where there is none."""
        if not self.panel:
            return None
        picture, _, title = self.panel.format(N=scale.agents[-1]).partition(": ")
        return picture, title

    def other_scales(self, scale: Scale) -> list[Scale]:
        """The other instances on which it is decided, Garnet problems with the seeds 1, 2, ...: none if its cells are
        random, or the same on all of them."""
        others = [replace(scale, quick=True, instances=0, garnet_seed=seed) for seed in range(1, scale.instances + 1)]
        cells = self.cells(replace(scale, quick=True))
        return others if all("problem" in c.settings and "seeds" not in c for c in cells) else []


CLAIMS = tomllib.loads(resources.files(__package__).joinpath("claims.toml").read_text(encoding="utf-8"))


def claim(name: str, cells: Cells, measure: Callable[[pd.DataFrame], float], **more: Any) -> Claim:
    """A claim of claims.toml, which says it in words, with what decides it. more : fields that are not given there"""
    return Claim(name, cells=cells, measure=measure, **more | CLAIMS[name])


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

    def __post_init__(self) -> None:
        for claim, scale in itertools.product(self.claims, (Scale(), Scale(quick=True))):
            there = [(p.name, title) for p in self.pictures for title in p.panels(scale)]
            if (panel := claim.panel_at(scale)) is not None and panel not in there:
                raise ArgumentError(f"panel must name a chart of {self.name} ({there}); got {claim.panel!r}")

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
    charts: Mapping[str, Mapping[str, Any]]  # by the name of the picture: the same for the report (`chart_data`)
    tables: Mapping[str, pd.DataFrame]  # by the name of the table
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
        return f"≤ {high}"
    return f"≥ {low}" if math.isinf(claim.at_most) else f"{low} … {high}"


def number(value: Any) -> str:
    """A value as the report shows it: four digits of a number that is not whole."""
    if isinstance(value, bool) or not isinstance(value, float):
        return f"{value:,}".replace(",", "\u2009") if isinstance(value, int) and abs(value) >= 10_000 else str(value)
    return f"{value + 0.0:.4g}"  # no minus before a zero


def by_sentence(outcomes: Sequence[Outcome]) -> dict[str, list[list[Verdict]]]:
    """By kind of claim: the verdicts on each sentence of the paper (or entry of a table); others stand one by one."""
    found: dict[str, dict[str, list[Verdict]]] = {kind: {} for kind in SOURCES}
    for o in outcomes:
        for v in o.verdicts:
            said = v.claim.quote if v.claim.kind == "paper" else v.claim.name
            found[v.claim.kind].setdefault(f"{o.experiment.name} {said}", []).append(v)
    return {kind: list(sentences.values()) for kind, sentences in found.items() if sentences}


def worst(verdicts: Iterable[Verdict]) -> str:
    """What is said of a sentence with several verdicts."""
    return min(map(verdict_words, verdicts), key=(FAILED, NOT_AS_STATED, HOLDS).index)


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """How many sentences of the paper hold, on how many instances, and what became of the other claims: a line each."""
    presets = list(dict.fromkeys(o.scale.preset for o in outcomes))
    where = "both instances" if len(presets) > 1 else "".join(f"the instance of {INSTANCES[p]}" for p in presets)
    lines = []
    for kind, sentences in by_sentence(outcomes).items():
        words = list(map(worst, sentences))
        otherwise = [vs[0].claim.name for vs, w in zip(sentences, words, strict=True) if w == NOT_AS_STATED]
        line = f"{words.count(HOLDS)} of {len(words)} {SOURCES[kind]} hold on {where}"
        if kind == "printed":
            line = f"{len(otherwise)} {SOURCES[kind]} are corrected: each fails on an exact counterexample"
        elif otherwise:
            line += f", {len(otherwise)} not as stated ({', '.join(otherwise)})"
        lines.append(line + f"; {words.count(FAILED)} FAILED" * (FAILED in words))
    return lines


def elsewhere(verdict: Verdict) -> str:
    """On how many other instances a claim holds, in words; nothing where it was not decided on others."""
    return f"{verdict.holds_elsewhere} of {len(verdict.others)}" if verdict.others else ""
