"""The report: one page that needs nothing but itself, with a card per claim, and every figure and table of a run.

Its frame, style and script are report.html: for a phone as for a wide screen, by day and by night; without the script
everything is shown. Equal outcomes give equal bytes: there is no date and no duration in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from importlib import resources
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from .. import files
from ..figures.svg_charts import HEIGHT, WIDTH
from ..paper_items import cite
from .experiment import MARKS, SOURCES, Outcome, Row, Scale, Table, command, in_print, number, verdict_words
from .report_cards import HEADINGS, INSTANCES, Cards, chart_id, in_words, ran, sections, show_chart, smaller, totals

CLAIM_COLUMNS = (
    "experiment preset seeds claim kind source quote value at_least at_most verdict other_instances holds_on"
)
MOST_LISTED = 8  # values of a setting that are listed one by one
MOST_COLUMNS = 9  # of a table that fits a screen
Groups = list[tuple[str, list[Outcome]]]  # experiments by name, each with its outcomes at every scale


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
    groups: Groups = [(name, list(group)) for name, group in groupby(outcomes, lambda o: o.experiment.name)]
    cards = [(claim, group) for _, group in groups for claim in group[0].experiment.claims]
    frame = Template(resources.files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    whole = frame.substitute(
        lead=_lead(outcomes, cards),
        summary=_summary(cards),
        filters=_filters(outcomes),
        cards=sections(cards),
        details="\n".join(_details(group) for _, group in groups),
        symbols="".join(map(_symbols, outcomes)),
    )
    return whole.replace("\u2009", "\u202f")  # thin spaces inside of numbers: no line ends there


def _lead(outcomes: Sequence[Outcome], cards: Cards) -> str:
    scales = list(dict.fromkeys(o.scale for o in outcomes))
    kinds = " and ".join(dict.fromkeys(INSTANCES[s.preset] for s in scales))
    seeds = ", ".join(dict.fromkeys(str(s.seeds) for s in scales))
    text = f"<p>Instances of {escape(kinds)}; {escape(seeds)} seeds per simulation, more where a claim needs them.</p>"
    if any(s.quick for s in scales):
        text += _quick(outcomes, cards)
    if any(s.instances for s in scales):
        text += (
            "<p>Claims that need no simulation are also decided on other instances: Garnet problems with the seeds 1 "
            f"to {max(s.instances for s in scales)}, at the size of a quick run.</p>"
        )
    return text


def _quick(outcomes: Sequence[Outcome], cards: Cards) -> str:
    """What a quick run has run, and what can be said of its verdicts."""
    here = in_words(ran(cell for o in outcomes for cell in o.experiment.cells(o.scale)))
    below = sum(any(smaller(claim, o.scale) for o in group) for claim, group in cards)
    undecided = {v.claim.name for o in outcomes for v in o.verdicts if not math.isfinite(v.value)}
    lacking = f"Not to be decided at this size: {', '.join(sorted(undecided))}" if undecided else "All were decided"
    return (
        f'<p class="warn"><strong>Quick run.</strong> It ran {in_print(here)}. Claims that were put to the same test '
        f"as in a full run: {len(cards) - below} of {len(cards)}; to a smaller one, which their cards describe: "
        f"{below}, and those verdicts speak of that size alone. {escape(lacking)}. Leave out <code>--quick</code> for "
        "the paper's sizes.</p>"
    )


def _summary(cards: Cards) -> str:
    """The totals of the kinds of claims, side by side and never in one sum."""
    boxes = []
    for kind in SOURCES:
        own = [card for card in cards if card[0].kind == kind]
        if own:
            boxes.append(f'<a class="box" href="#{kind}"><b>{HEADINGS[kind][0]}</b>{totals(own)}</a>')
    return f'<nav class="boxes" aria-label="Totals">{"".join(boxes)}</nav>'


def _filters(outcomes: Sequence[Outcome]) -> str:
    """Choices for the page's script, which shows them."""
    words = {MARKS[verdict_words(v)]: verdict_words(v) for o in outcomes for v in o.verdicts}
    kinds = {v.claim.kind: HEADINGS[v.claim.kind][0] for o in outcomes for v in o.verdicts}
    names = {o.experiment.name: f"{o.experiment.name}: {o.experiment.title}" for o in outcomes if o.experiment.claims}
    chosen = {"verdict": words, "kind": kinds, "experiment": names}
    parts = []
    for name, options in chosen.items():
        listed = "".join(f'<option value="{escape(v)}">{escape(text)}</option>' for v, text in options.items())
        parts.append(
            f'<label>{name.capitalize()} <select name="{name}"><option value="">all</option>{listed}</select></label>'
        )
    fold = '<button type="button" id="fold" aria-pressed="false">Open all</button>'
    return f'<form id="filters" hidden>{"".join(parts)}{fold}<output></output></form>'


def _symbols(outcome: Outcome) -> str:
    """Every chart once."""
    return "".join(
        f'<symbol id="{escape(chart_id(outcome, name, i))}" viewBox="0 0 {WIDTH} {HEIGHT}" {about}>{inside}</symbol>\n'
        for name, made in outcome.sheets.items()
        for i, (_, about, inside) in enumerate(made.panels)
    )


def _details(group: Sequence[Outcome]) -> str:
    """All pictures, tables and settings of an experiment, folded."""
    experiment = group[0].experiment
    items = ", ".join(dict.fromkeys(map(cite, experiment.labels)))
    inside = "\n".join(map(_at_one_scale, group))
    count = ", ".join(
        _counted(len(x), w) for x, w in ((experiment.pictures, "picture"), (experiment.tables, "table")) if x
    )
    return (
        f'<section class="experiment" id="{escape(experiment.name)}"><h3>{escape(experiment.title)}</h3>'
        f'<p class="soft">{escape(experiment.name)}{f" · {escape(items)} in the paper" if items else ""}</p>'
        f"<details><summary>{count + ' and settings' if count else 'Settings'}</summary>{inside}</details></section>"
    )


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count > 1)}"


def _at_one_scale(outcome: Outcome) -> str:
    e, scale = outcome.experiment, outcome.scale
    parts = [f"<h4>Instance of {INSTANCES[scale.preset]}</h4>"]
    for picture in e.pictures:
        made = outcome.sheets[picture.name]
        link = _link("figures", scale, f"{picture.name}.pdf")
        charts = "".join(
            show_chart(chart_id(outcome, picture.name, i), title) for i, (title, *_) in enumerate(made.panels)
        )
        settings = in_words(ran(picture.cells(scale)))
        notes = " ".join([_caption(picture.caption, scale), *made.notes, f"Ran: {settings}." if settings else ""])
        parts.append(
            f'<div class="picture"><div class="panels">{charts}</div><p class="legend">{made.legend}</p>'
            f'<p class="soft">{in_print(notes)} {link}</p></div>'
        )
    for table in e.tables:
        caption = f"{in_print(_caption(table.caption, scale))} {_link('tables', scale, f'{table.name}.csv')}"
        parts.append(_table(table, outcome.tables[table.name], caption))
    settings = "".join(f"<dt>{escape(k)}</dt><dd>{in_print(v)}</dd>" for k, v in parameters(outcome).items())
    parts.append(f"<details><summary>All settings</summary><dl>{settings}</dl></details>")
    parts.append(f'<p class="soft">Made alone by</p><pre>{escape(command(e, scale))}</pre>')
    return "\n".join(parts)


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
    if len(ordered) <= MOST_LISTED:
        return ", ".join(map(number, ordered))
    return f"{len(ordered)} values" + (f" from {number(ordered[0])} to {number(ordered[-1])}" if numeric else "")


def _table(table: Table, rows: Sequence[Row], caption: str) -> str:
    """caption : HTML; numbers stand at the right, and what is none has its reason. What is wide stands on its side."""
    turned = len(rows[0]) > max(MOST_COLUMNS, len(rows) + 1)
    if turned:
        rows = _turned(rows)
    reasons: dict[str, None] = {}

    def cell(tag: str, heading: str, value: str | int | float) -> str:
        shown = in_print(number(value))
        if isinstance(value, float) and not math.isfinite(value):
            why = table.reason(heading) or "no finite number"
            reasons[f"{heading}: {why}"] = None
            shown = f'<span title="{escape(why)}">—</span>'
        kind = ' class="n"' if isinstance(value, int | float) and not turned else ""  # one side for all of a column
        return f"<{tag}{kind}>{shown}</{tag.split()[0]}>"

    every = [] if turned else [k for k in rows[0] if all(isinstance(row[k], int | float) for row in rows)]
    numeric = dict.fromkeys(every, ' class="n"')
    head = "".join(f'<th scope="col"{numeric.get(k, "")}>{in_print(k)}</th>' for k in rows[0])
    body = ""
    for row in rows:
        (first, begins), *rest = row.items()
        body += "<tr>" + cell('th scope="row"', first, begins)
        body += "".join(cell("td", str(begins) if turned else k, v) for k, v in rest) + "</tr>"
    notes = f'<p class="soft">— {escape("; ".join(reasons))}.</p>' if reasons else ""
    return (
        f'<p class="soft">{caption}</p><p class="hint" hidden>The table is wider than the page: scroll sideways →</p>'
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(table.name)}"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>{notes}"
    )


def _turned(rows: Sequence[Row]) -> list[Row]:
    """Columns as rows; what the first column holds, once each, is the new head."""
    first, *rest = rows[0]
    return [{first: key, **{str(row[first]): row[key] for row in rows}} for key in rest]


def _caption(text: str, scale: Scale) -> str:
    return text.replace("{preset}", scale.preset).replace("{seeds}", str(scale.seeds))


def _link(kind: str, scale: Scale, file: str) -> str:
    return f'<a href="../{kind}/{escape(scale.preset)}/{escape(file)}">{Path(file).suffix[1:].upper()}</a>'
