"""A card per claim: the paper's sentence with its number, the chart that decides it, the verdict, and the way there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape
from typing import Any
from urllib.parse import urlencode

from ..figures.lines import number as axis_number
from ..figures.svg_charts import HEIGHT, WIDTH
from ..paper_items import cite
from .cells import Cell
from .experiment import (
    COUNTED,
    FAILED,
    HOLDS,
    MARKS,
    NOT_AS_STATED,
    SOURCES,
    Claim,
    Outcome,
    Row,
    Scale,
    Verdict,
    elsewhere,
    in_print,
    interval,
    number,
    verdict_words,
)
from .paper_curves import FEWEST, STEPS, world

# What a claim ran, in words; which chart shows it; and where the explorer shows the same setting.

EXPLORER_PORT = 8765  # of the addresses in the report; `fedlsa explore` takes a free one unless it is told
EXPLORED = ("simulate", "exact", "limit", "law")  # kinds of cells that are runs
OF_GARNET = {"agents", "heterogeneous", "preset", "seed", "features", "perturbation", "discount"}  # on the page
MOST_AGENTS, MOST_ROUNDS, SHOWN_ROUNDS = 200, 100_000, 5_000  # of the page; and of a limit, which has none
RUN = {"agents": "N", "local_steps": "H", "step_size": "η", "rounds": "rounds", "epsilon": "ε", "seeds": "seeds"}
MOST_LISTED = 4  # values of a setting that are listed one by one


def ran(cells: Iterable[Cell]) -> dict[str, str]:
    """The agents, steps, rounds and seeds of some cells, by the symbol: all values, or the first and the last."""
    found: dict[str, set[Any]] = {}
    for cell in cells:
        for name, symbol in RUN.items():
            if name in cell:
                copies = cell.columns.get("copies", 1) if name == "agents" else 1
                found.setdefault(symbol, set()).add(cell[name] * copies)
    return {symbol: listed(sorted(found[symbol])) for symbol in RUN.values() if symbol in found}


def listed(values: Sequence[float]) -> str:
    """Numbers in a row, or from the first to the last."""
    words = [axis_number(v) for v in values]
    return ", ".join(words) if len(words) <= MOST_LISTED else f"{words[0]} to {words[-1]}"


def in_words(settings: dict[str, str]) -> str:
    """N = 10, 100; 200 rounds; 3 seeds."""
    counted = ("rounds", "seeds")
    return "; ".join(f"{v} {k}" if k in counted else f"{k} = {v}" for k, v in settings.items())


def smaller(claim: Claim, scale: Scale) -> str | None:
    """How a quick run differs from a full one for a claim, in words; None where it does not."""
    full = replace(scale, quick=False)
    here, there = (list(claim.cells(s)) for s in (scale, full))
    if not scale.quick or {c.text for c in here} == {c.text for c in there}:
        return None
    quick, whole = ran(here), ran(there)
    differ = {k: f"{v} (full run: {whole[k]})" for k, v in quick.items() if k in whole and whole[k] != v}
    return in_words(differ) or "a smaller instance"


def deciding_chart(claim: Claim, outcome: Outcome) -> tuple[str, int] | None:
    """The name of the picture and the place of the chart in it that show a claim; None where there is no picture.

    It is the chart that the claim names, or else the one of whose title its cells have most: N, H and the world. Of
    several it is that of different agents, with the most of them and the longest rounds.
    """
    charts = [(name, i, panel[0]) for name, made in outcome.sheets.items() for i, panel in enumerate(made.panels)]
    if not charts:
        return None
    if claim.panel:
        return next(((name, i) for name, i, title in charts if claim.panel in f"{name} {title}"), charts[0][:2])
    cells = [_title_words(cell) for cell in claim.cells(outcome.scale)]

    def likeness(chart: tuple[str, int, str]) -> tuple[int, bool, int]:
        words = _chart_words(chart[0], chart[2])
        alike = max((len(words & own) for own in cells), default=0)
        return alike, world(True) in words, charts.index(chart)

    name, i, title = max(charts, key=likeness)
    sizes = {word for word in _chart_words(name, title) if word.startswith("N = ")}
    if sizes and not any(sizes & own for own in cells):  # it is about other numbers of agents
        return None
    return name, i


def _chart_words(picture: str, title: str) -> set[str]:
    return set(re.split(r",\s+", f"{picture.rpartition('-')[2]}, {title}"))


def _title_words(cell: Cell) -> set[str]:
    words = {"agents": "N = {}", "local_steps": "H = {:,}"}
    named = {text.format(cell[name]) for name, text in words.items() if name in cell}
    named |= {world(cell["heterogeneous"])} if "heterogeneous" in cell else set()
    return named | ({str(cell["step_size"])} if "step_size" in cell else set())


def explorer_settings(claim: Claim, outcome: Outcome) -> str:
    """The explorer's settings, as in its address, of a cell that it can show; or nothing.

    Of the claim's cells it is the one that is most like the chart in its card, of several the last.
    """
    chart = deciding_chart(claim, outcome)
    words = _chart_words(chart[0], outcome.sheets[chart[0]].panels[chart[1]][0]) if chart else set()
    cells = list(claim.cells(outcome.scale))
    if any("skip" in cell for cell in cells):  # about trajectories, and not about what they are compared with
        cells = [cell for cell in cells if "skip" in cell]
    found = [(cell, settings) for cell in cells if (settings := _address(cell))]
    ordered = sorted(found, key=lambda pair: len(words & _title_words(pair[0])))
    return urlencode(ordered[-1][1]) if ordered else ""


def _address(cell: Cell) -> dict[str, Any]:
    problem, here = cell.settings.get("problem", {}), cell.columns
    if cell.kind not in EXPLORED or not set(problem) <= OF_GARNET or problem.get("agents", 0) > MOST_AGENTS:
        return {}
    settings = {name: ("yes" if value else "no") if value in (True, False) and name == "heterogeneous" else value
                for name, value in problem.items()}  # fmt: skip
    steps = here.get("local_steps")
    if "skip" in here:  # whose number of observations the problem decides, unless all are used
        if here["skip"] != 1:
            return {}
        settings["sampling"], steps = "markov", here["updates"]
    if steps is None:
        return {}
    rounds = here.get("rounds", min(SHOWN_ROUNDS, max(FEWEST, STEPS // steps)))
    if rounds > MOST_ROUNDS:
        return {}
    return {"problem": "garnet", **settings, "step_size": here["step_size"], "local_steps": steps, "rounds": rounds}


HEADINGS = {
    "paper": (
        "What the paper says",
        "Each sentence of the paper with the number that decides it, and a verdict per instance.",
    ),
    "printed": (
        "Printed statements that are corrected",
        "Theorems, lemmas, formulas and steps of proofs that fail as printed on a counterexample, with exact numbers.",
    ),
    "check": ("Self-checks", "The library against itself: two ways to one number must agree."),
    "beyond": ("Beyond the paper", "What nobody has claimed in print, and what corrects it."),
}
ORDER = (FAILED, NOT_AS_STATED, HOLDS)  # the worst first
INSTANCES = {"paper": "the paper's text", "authors": "the authors' code"}
Cards = Sequence[tuple[Claim, Sequence[Outcome]]]  # every claim, with the experiment's outcome at every scale


def chart_id(outcome: Outcome, picture: str, place: int) -> str:
    """What a chart's symbol is called in the page."""
    return f"{picture}-{outcome.scale.preset}-{place}"


def show_chart(identity: str, title: str) -> str:
    """A chart by its symbol, with its title above."""
    named = escape(title or "chart")
    return (
        f'<figure class="panel">{f"<figcaption>{named}</figcaption>" if title else ""}'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" tabindex="0" aria-label="{named}: arrow keys read values">'
        f'<use href="#{escape(identity)}"/></svg></figure>'
    )


def sections(cards: Cards) -> str:
    """Claims of the paper, self-checks and what lies beyond, apart; in each, contradictions first."""
    parts = []
    for kind in SOURCES:
        own = [card for card in cards if card[0].kind == kind]
        if own:
            heading, about = HEADINGS[kind]
            shown = "".join(_card(*card) for card in sorted(own, key=_contradicted))
            total = totals(own)
            begin = f'<section class="kind" id="{kind}"><h2>{heading}</h2><p class="soft">{about}</p>'
            parts.append(f"{begin}{total}{shown}</section>")
    return "\n".join(parts)


def totals(cards: Cards) -> str:
    """How many claims there are of each sort, each by its worst verdict: what contradicts comes first."""
    found = [ORDER[_contradicted(card)] for card in cards]
    counted = {w: f"{found.count(w)} {w if (w, found.count(w)) == (HOLDS, 1) else COUNTED[w]}" for w in ORDER}
    chips = "".join(f'<span class="chip {MARKS[w]}">{counted[w]}</span>' for w in ORDER if w in found)
    return f'<p class="total">{chips}</p>'


def _verdicts(claim: Claim, outcomes: Sequence[Outcome]) -> list[Verdict]:
    return [o.verdicts[o.experiment.claims.index(claim)] for o in outcomes]


def _contradicted(card: tuple[Claim, Sequence[Outcome]]) -> int:
    return min(ORDER.index(verdict_words(v)) for v in _verdicts(*card))


def _card(claim: Claim, outcomes: Sequence[Outcome]) -> str:
    if claim.row:  # a counterexample is the same on every instance
        outcomes = outcomes[:1]
    verdicts, name, row = _verdicts(claim, outcomes), outcomes[0].experiment.name, _row(claim, outcomes[0])
    words = list(dict.fromkeys(map(verdict_words, verdicts)))
    contradicted, marks = any(w != HOLDS for w in words), " ".join(MARKS[w] for w in words)
    explained = "".join(f'<p class="why">{in_print(t)}</p>' for t in dict.fromkeys(map(_explained, verdicts)) if t)
    below = next((s for o in outcomes if (s := smaller(claim, o.scale))), "")
    size = f'<p class="soft">Quick run, decided at a smaller size: {in_print(below)}.</p>' if below else ""
    chart = deciding_chart(claim, outcomes[0])
    keys = f'<p class="legend">{outcomes[0].sheets[chart[0]].legend}</p>' if chart else ""
    small = _thumbnail(chart_id(outcomes[0], *chart)) if chart else ""
    instances = "".join(_instance(claim, o, v) for o, v in zip(outcomes, verdicts, strict=True))
    text = f'<p class="claim">{in_print(claim.text)}</p>' if claim.quote and not claim.row else ""
    about = f'data-verdict="{marks}" data-kind="{claim.kind}" data-experiment="{escape(name)}"'
    return (
        f'<article class="card {marks}" id="claim-{escape(claim.name)}" {about}>'
        f"<details{' open' * (contradicted and not claim.row)}><summary>{_head(claim, verdicts, row)}"
        f'{small}</summary><div class="body"><div class="said">{text}{explained}'
        f'<p class="soft">Number: {in_print(claim.statistic)}.</p>'
        f"{size}{keys}"
        f'<p class="soft">All pictures and tables: <a href="#{escape(name)}">{escape(name)}</a></p></div>'
        f'<div class="instances">{instances}</div></div></details></article>'
    )


def _head(claim: Claim, verdicts: Sequence[Verdict], row: Row) -> str:
    """What is seen of a folded card: the sentence with its number in the paper, and the verdict on each instance.

    On a counterexample it is one verdict, with the number that is printed beside the exact one.
    """
    source = f'<span class="where">{escape(cite(claim.source))}</span>' if claim.source else ""
    said = in_print(cite(claim.quote or claim.text))
    said = f"<q>{said}</q>" if claim.kind == "paper" else said
    shown, needed = "", interval(claim)
    for v in verdicts:
        words, place, value = verdict_words(v), _place(claim, v.scale.preset), _value(v)
        if row:
            place, value = "exact, on a counterexample", in_print(number(row["exact"]))
            needed = f"{'=' if claim.at_least == 0 else '≤'} {number(row['printed'])}, as printed"
        place = f'<span class="soft">{place}</span>'
        if v.others:
            few = " few" * (v.holds and v.holds_elsewhere < len(v.others))
            place += f' <span class="soft{few}">holds on {elsewhere(v)} others</span>'
        shown += f'<span><span class="chip {MARKS[words]}">{words}</span><b>{value}</b> {place}</span>'
    needed = f'<span class="soft">holds if {in_print(needed)}</span>'
    return f'{source}<span class="sentence">{said}</span><span class="verdicts">{shown}{needed}</span>'


def _place(claim: Claim, preset: str) -> str:
    return "a counterexample" if claim.row else INSTANCES[preset]


def _value(verdict: Verdict) -> str:
    return (
        in_print(number(verdict.value)) if math.isfinite(verdict.value) else '<span title="no finite number">—</span>'
    )


def _thumbnail(identity: str) -> str:
    return (
        f'<svg class="thumb" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true"><use href="#{escape(identity)}"/></svg>'
    )


def _explained(verdict: Verdict) -> str:
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


def _instance(claim: Claim, outcome: Outcome, verdict: Verdict) -> str:
    chart = deciding_chart(claim, outcome)
    shown = show_chart(chart_id(outcome, *chart), outcome.sheets[chart[0]].panels[chart[1]][0]) if chart else ""
    return (
        f'<div class="instance"><p class="soft">{"" if claim.row else "Instance of "}'
        f'{_place(claim, outcome.scale.preset)}: <b class="value">{_value(verdict)}</b></p>{shown}'
        f"{_numbers(claim, outcome)}{_explore(claim, outcome)}</div>"
    )


def _row(claim: Claim, outcome: Outcome) -> Row:
    """The row of the experiment's first table that has the numbers of a claim; of most claims there is none."""
    rows = outcome.tables.get(outcome.experiment.tables[0].name, ()) if claim.row else ()
    return next((row for row in rows if next(iter(row.values())) == claim.row), {})


def _numbers(claim: Claim, outcome: Outcome) -> str:
    known = [(k, v) for k, v in list(_row(claim, outcome).items())[1:] if isinstance(v, str) or math.isfinite(v)]
    listed = "".join(f"<dt>{in_print(k)}</dt><dd>{in_print(number(v))}</dd>" for k, v in known)
    return f"<dl>{listed}</dl>" if listed else ""


def _explore(claim: Claim, outcome: Outcome) -> str:
    """A command that opens the explorer at the claim's setting, and the address that it then has."""
    settings = explorer_settings(claim, outcome)
    if not settings:
        return ""
    command = f'fedlsa explore --port {EXPLORER_PORT} "{settings}"'
    link = f"http://127.0.0.1:{EXPLORER_PORT}/?{settings}"
    return (
        f'<details class="explore"><summary>Explore this setting</summary><pre>{escape(command)}</pre>'
        f'<p><button type="button" class="copy" hidden>Copy the command</button> '
        f'<a href="{escape(link)}">Open it</a> <span class="soft">while the explorer runs</span></p></details>'
    )
