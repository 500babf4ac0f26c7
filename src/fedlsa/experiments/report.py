"""The report: one page that needs nothing but itself, with an entry per sentence of the paper, and all that was made.

Its text and layout are the template report.html; styles and scripts are those of `fedlsa.pages`, charts are JSON inside
the page. Without scripts text, tables and verdicts are there. Equal outcomes give equal bytes: it holds no date and no
duration.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pandas as pd

from .. import files, pages
from ..errors import MissingExtraError
from ..figures.lines import number as axis_number
from ..mathml import INLINE, cite, inline, mathml
from .cells import Cell
from .experiment import (
    FAILED,
    HOLDS,
    INSTANCES,
    NOT_AS_STATED,
    Claim,
    Outcome,
    Scale,
    Table,
    Verdict,
    by_sentence,
    command,
    elsewhere,
    interval,
    number,
    summary,
    verdict_words,
    worst,
)
from .paper_curves import FEWEST, STEPS, setting_word

CLAIM_COLUMNS = (
    "experiment preset seeds claim kind source quote value at_least at_most verdict other_instances holds_on"
)
HEADINGS = {
    "paper": (
        "What the paper says",
        "Each sentence of the paper with the numbers that decide it, and a verdict per instance.",
    ),
    "printed": (
        "Printed statements that are corrected",
        "Theorems, lemmas, formulas and steps of proofs that fail as printed on a counterexample, with exact numbers.",
    ),
    "check": ("Self-checks", "The library against itself: two ways to one number must agree."),
    "beyond": ("Beyond the paper", "What nobody has claimed in print, and what corrects it."),
}
MARKS = {FAILED: "bad", NOT_AS_STATED: "note", HOLDS: "good"}  # the worst first
PLURALS = {HOLDS: "hold", NOT_AS_STATED: "do not hold as stated"}
CORRECTED = "corrected"  # what NOT_AS_STATED is called on a printed statement
MOST_LISTED, MOST_VALUES = 4, 8  # values of a setting that are listed one by one, in a sentence and in a table
MOST_COLUMNS = 9  # of a table that fits a screen


def write(outcomes: Sequence[Outcome], out: Path) -> Path:
    """Write `out`/report/index.html and, for programs, claims.csv beside it; the path of the page."""
    folder = out / "report"
    folder.mkdir(parents=True, exist_ok=True)
    files.write(folder / "claims.csv", claims(outcomes), "the report")
    files.write(folder / "index.html", page(outcomes).encode(), "the report")
    return folder / "index.html"


def claims(outcomes: Sequence[Outcome]) -> bytes:
    """Every verdict as CSV."""
    rows = []
    for o in outcomes:
        for v in o.verdicts:
            c = v.claim
            first = [o.experiment.name, o.scale.preset, o.scale.seeds, c.name, c.kind, c.source, cite(c.quote)]
            bounds = [float(x) for x in (v.value, c.at_least, c.at_most)]
            rows.append([*first, *bounds, verdict_words(v), len(v.others), v.holds_elsewhere])
    return files.csv_bytes([CLAIM_COLUMNS.split(), *rows])


def page(outcomes: Sequence[Outcome]) -> str:
    """The whole page."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise MissingExtraError("the report needs jinja2: pip install 'fedlsa[cli]'") from None
    entries = [
        ReportEntry(outcomes, verdicts) for sentences in by_sentence(outcomes).values() for verdicts in sentences
    ]
    entries.sort(key=lambda entry: (list(HEADINGS).index(entry.kind), list(MARKS).index(entry.worst)))
    environment = Environment(
        loader=PackageLoader("fedlsa.experiments", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    environment.filters |= {
        "in_print": lambda text: Markup(in_print(str(text))),
        "number": lambda value: Markup(in_print(number(value))),
        "cite": cite, "in_words": in_words,
    }  # fmt: skip
    text = environment.get_template("report.html").render(
        sections=[(kind, *HEADINGS[kind], list(group)) for kind, group in groupby(entries, lambda entry: entry.kind)],
        summary=summary(outcomes),
        scales=list(dict.fromkeys(o.scale for o in outcomes)),
        quick=quick_run(outcomes),
        experiments=[(group[0].experiment, group) for group in by_experiment(outcomes)],
        charts={
            chart_id(o, name, i): chart
            for o in outcomes
            for name, made in o.charts.items()
            for i, chart in enumerate(made["charts"])
        },
        styles=[Markup(pages.static_text(name)) for name in (pages.COLOURS, "report.css")],
        scripts=[Markup(script) for script in pages.scripts("report").values()],
        INSTANCES=INSTANCES, MARKS=MARKS, CORRECTED=CORRECTED, count=count_marks, command=command, shown=ShownTable,
        ran=ran, smaller=smaller, parameters=parameters, finite=math.isfinite, interval=interval, elsewhere=elsewhere,
        shown_words=shown_words, chart_id=chart_id,
    )  # fmt: skip
    return text.replace("\u2009", "\u202f")  # thin spaces inside of numbers: no line ends there


def by_experiment(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Outcomes at all scales, experiment after experiment."""
    return [list(group) for _, group in groupby(outcomes, lambda o: o.experiment.name)]


def chart_id(outcome: Outcome, picture: str, place: int) -> str:
    """What a chart is called in the page."""
    return f"{picture}-{outcome.scale.preset}-{place}"


def shown_words(verdict: Verdict) -> str:
    """The words of a verdict: what fails as printed is corrected, and that is no failure."""
    words = verdict_words(verdict)
    return CORRECTED if verdict.claim.kind == "printed" and words == NOT_AS_STATED else words


def count_marks(entries: Sequence[ReportEntry]) -> list[tuple[str, str]]:
    """How many entries there are of each verdict, in words, with the mark: what contradicts comes first."""
    found = [entry.words for entry in entries]
    counted = {w: (n, PLURALS.get(w, w) if n > 1 else w) for w in (*MARKS, CORRECTED) if (n := found.count(w))}
    return [(MARKS.get(w, "note"), f"{n} {words}") for w, (n, words) in counted.items()]


class ReportEntry:
    """A sentence of the paper, or another claim, with the verdicts on it on every instance.

    colours : of all its verdicts; reasons : why the paper is contradicted, or what came out otherwise than expected
    row : of the table with the numbers of a counterexample, {} if it is none
    legend : all charts of the pictures in which its charts stand: one of them has the names of lines
    """

    def __init__(self, every: Sequence[Outcome], verdicts: Sequence[Verdict]) -> None:
        self.verdicts, self.kind, self.worst = verdicts, verdicts[0].claim.kind, worst(verdicts)
        self.claims = [v.claim for v in verdicts if v.scale == verdicts[0].scale]  # that decide the sentence
        claim = self.claims[0]
        there = [o for o in every if claim in o.experiment.claims]
        self.outcomes = there[:1] if self.kind == "printed" else there  # a counterexample is the same on all instances
        first = there[0]
        self.name, self.experiment = claim.name, first.experiment.name
        self.words = next(shown_words(v) for v in verdicts if verdict_words(v) == self.worst)
        of_each = sorted(map(verdict_words, verdicts), key=list(MARKS).index)
        self.colours = list(dict.fromkeys(MARKS[words] for words in of_each))
        self.reasons = list(dict.fromkeys(filter(None, map(reason, verdicts))))
        rows = first.tables[first.experiment.tables[0].name].to_dict("records") if claim.row else [{}]
        self.row = next(row for row in rows if not claim.row or next(iter(row.values())) == claim.row)
        pictures = dict.fromkeys(name for name, _ in panels(self.claims, first))
        self.legend = [chart_id(first, name, i) for name in pictures for i in range(len(first.charts[name]["charts"]))]

    def of(self, claim: Claim) -> list[Verdict]:
        """The verdicts on one of its claims, instance after instance."""
        return [v for v in self.verdicts if v.claim is claim][: len(self.outcomes)]

    def charts(self, outcome: Outcome) -> list[tuple[str, str, str]]:
        """The charts that decide it on an instance: what each is called, its title, and what a quick one lacks."""
        pictures = {p.name: p for p in outcome.experiment.pictures}
        return [
            (chart_id(outcome, name, i), title, smaller(pictures[name].cells, outcome.scale) or "")
            for (name, i), title in panels(self.claims, outcome).items()
        ]

    def address(self, outcome: Outcome) -> str:
        """The explorer's settings of the first of its claims that it can show; "" if there is none."""
        return next(filter(None, (explorer_settings(claim, outcome.scale) for claim in self.claims)), "")


def panels(claims: Iterable[Claim], outcome: Outcome) -> dict[tuple[str, int], str]:
    """The declared charts of some claims, each once."""
    found = {}
    for claim in claims:
        panel = claim.panel_at(outcome.scale)
        if panel is not None and panel[0] in outcome.charts:
            titles = next(p for p in outcome.experiment.pictures if p.name == panel[0]).panels(outcome.scale)
            found[panel[0], list(titles).index(panel[1])] = panel[1]
    return found


def reason(verdict: Verdict) -> str:
    """Why the paper is contradicted, or what came out otherwise than expected; nothing where all is well."""
    words, claim = verdict_words(verdict), verdict.claim
    if words == NOT_AS_STATED:
        return claim.why
    if words != FAILED:
        return ""
    if not math.isfinite(verdict.value):
        return "There is no finite number: a result that it follows from is missing or infinite, and decides nothing."
    if not all(map(math.isfinite, verdict.others)):
        return "On another instance there is no finite number, which decides nothing."
    lies = "lies where the claim says, though it should not" if verdict.holds else "does not lie where the claim says"
    return f"The number {lies}: {number(verdict.value)} on the instance of {INSTANCES[verdict.scale.preset]}."


# What was run, in words: agents, local steps, rounds, seeds

RUN = {"agents": "N", "local_steps": "H", "step_size": "η", "rounds": "rounds", "epsilon": "ε", "seeds": "seeds"}


def ran(cells: Iterable[Cell]) -> dict[str, str]:
    """The agents, steps, rounds and seeds of some cells, by the symbol: all values, or the first and the last."""
    found: dict[str, set[Any]] = {}
    for cell in cells:
        for name, symbol in RUN.items():
            if name in cell:
                copies = cell.columns.get("copies", 1) if name == "agents" else 1
                found.setdefault(symbol, set()).add(cell[name] * copies)
    words = {symbol: list(map(axis_number, sorted(found[symbol]))) for symbol in RUN.values() if symbol in found}
    return {k: ", ".join(v) if len(v) <= MOST_LISTED else f"{v[0]} to {v[-1]}" for k, v in words.items()}


def in_words(settings: Mapping[str, str]) -> str:
    """N = 10, 100; 200 rounds; 3 seeds."""
    return "; ".join(f"{v} {k}" if k in ("rounds", "seeds") else f"{k} = {v}" for k, v in settings.items())


def smaller(cells: Any, scale: Scale) -> str | None:
    """How a quick run of cells(scale) differs from a full one, in words; None where it does not."""
    here, there = (list(cells(s)) for s in (scale, replace(scale, quick=False)))
    if not scale.quick or {c.text for c in here} == {c.text for c in there}:
        return None
    quick, full = ran(here), ran(there)
    differ = {k: f"{v} (full run: {full[k]})" for k, v in quick.items() if k in full and full[k] != v}
    return in_words(differ) or "a smaller instance"


def quick_run(outcomes: Sequence[Outcome]) -> dict[str, Any] | None:
    """What a quick run has run, and what can be said of its verdicts; None for a full run."""
    if not any(o.scale.quick for o in outcomes):
        return None
    firsts = [group[0] for group in by_experiment(outcomes)]
    below = [smaller(claim.cells, o.scale) for o in firsts for claim in o.experiment.claims]
    undecided = sorted({v.claim.name for o in outcomes for v in o.verdicts if not math.isfinite(v.value)})
    cells = (cell for o in outcomes for cell in o.experiment.cells(o.scale))
    smaller_claims = sum(map(bool, below))
    return {"ran": in_words(ran(cells)), "claims": len(below), "smaller": smaller_claims, "undecided": undecided}


def parameters(outcome: Outcome) -> dict[str, str]:
    """Every setting of the experiment's cells, with the values that it takes."""
    values: dict[str, dict[str, Any]] = {}
    for cells in outcome.experiment.groups(outcome.scale).values():
        for cell in cells:
            for name, value in cell.columns.items():
                values.setdefault(name.replace("_", " "), {})[number(value)] = value
    return {name: _listed(list(listed.values())) for name, listed in sorted(values.items()) if name != "kind"}


def _listed(values: list[Any]) -> str:
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    ordered = sorted(values) if numeric else sorted(values, key=number)
    if len(ordered) <= MOST_VALUES:
        return ", ".join(map(number, ordered))
    return f"{len(ordered)} values" + (f" from {number(ordered[0])} to {number(ordered[-1])}" if numeric else "")


# The explorer at the setting of a claim

EXPLORED = ("simulate", "exact", "limit", "law")  # kinds of cells that are runs
OF_GARNET = {"agents", "heterogeneous", "preset", "seed", "features", "perturbation", "discount"}  # on its page
MOST_AGENTS, MOST_ROUNDS, SHOWN_ROUNDS = 200, 100_000, 5_000  # of its page; and of a limit, which has none


def explorer_settings(claim: Claim, scale: Scale) -> str:
    """The explorer's settings, as in its address, of a cell that it can show; or nothing.

    Of the claim's cells it is the one with most of what the claim's chart is about, of several the last.
    """
    picture, title = claim.panel_at(scale) or ("", "")
    about = {picture.rpartition("-")[2], *title.split(", ")}
    cells = list(claim.cells(scale))
    if any("skip" in cell for cell in cells):  # about trajectories, and not about what they are compared with
        cells = [cell for cell in cells if "skip" in cell]
    found = [(len(about & _title_words(cell)), settings) for cell in cells if (settings := _address(cell))]
    return urlencode(max(reversed(found), key=lambda pair: pair[0])[1]) if found else ""


def _title_words(cell: Cell) -> set[str]:
    """A cell's settings, as titles of charts and names of pictures have them."""
    words = {"agents": "N = {}", "local_steps": "H = {:,}", "step_size": "{}"}
    named = {text.format(cell[name]) for name, text in words.items() if name in cell}
    return named | ({setting_word(cell["heterogeneous"])} if "heterogeneous" in cell else set())


def _address(cell: Cell) -> dict[str, Any]:
    problem, here = cell.settings.get("problem", {}), cell.columns
    if cell.kind not in EXPLORED or not set(problem) <= OF_GARNET or problem.get("agents", 0) > MOST_AGENTS:
        return {}
    settings = {k: ("no", "yes")[value] if k == "heterogeneous" else value for k, value in problem.items()}
    settings |= {"sampling": "markov"} if "skip" in here else {}
    # along trajectories the problem decides how many observations a round takes, unless all are used
    steps = {None: here.get("local_steps"), 1: here.get("updates")}.get(here.get("skip"))
    if steps is None:
        return {}
    rounds = here.get("rounds", min(SHOWN_ROUNDS, max(FEWEST, STEPS // steps)))
    if rounds > MOST_ROUNDS:
        return {}
    return {"problem": "garnet", **settings, "step_size": here["step_size"], "local_steps": steps, "rounds": rounds}


# Tables and text, as the page shows them


class ShownTable:
    """A table for the page: what is wide and low stands on its side, and what is no number has its reason."""

    def __init__(self, table: Table, frame: pd.DataFrame) -> None:
        self.turned = len(frame.columns) > max(MOST_COLUMNS, len(frame) + 1)
        numeric = {str(c): pd.api.types.is_numeric_dtype(frame[c]) and not self.turned for c in frame.columns}
        reasons: dict[str, None] = {}

        def why(heading: str, value: Any) -> str | None:
            if not isinstance(value, float) or math.isfinite(value):
                return None
            said = table.reason(heading) or "no finite number"
            reasons[f"{heading}: {said}"] = None
            return said

        shown = frame.set_index(frame.columns[0]).T.reset_index(names=frame.columns[0]) if self.turned else frame
        self.head = [(str(c), numeric.get(str(c), False)) for c in shown.columns]
        self.rows = [
            [
                (value, why(str(row[0]) if self.turned else str(column), value), numeric.get(str(column), False))
                for column, value in zip(shown.columns, row, strict=True)
            ]
            for row in shown.astype(object).itertuples(index=False, name=None)
        ]
        self.reasons = list(reasons)


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
    times = "\u202f·\u202f"
    text = POWER.sub(lambda n: f"{n[1]}{times}10^{n[2]}{n[3]}".removeprefix(f"1{times}"), escape(text))
    return NEGATIVE.sub("\u2212", RAISED.sub(r"<sup>\1</sup>", text))
