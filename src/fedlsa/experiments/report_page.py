"""The report: one page that needs nothing but itself, with every figure, table and verdict of a run.

Its frame and its style are report.html: for a phone as for a wide screen, by day and by night.
Equal outcomes give equal bytes: there is no date and no duration in it.
"""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from ..files import replacing
from .experiment import SOURCES, Claim, Outcome, Scale, Verdict, command

HOLDS, NOT_AS_STATED, FAILED = "holds", "does not hold as stated", "FAILED"
MARKS = {HOLDS: "good", NOT_AS_STATED: "note", FAILED: "bad"}
COUNTED = {HOLDS: "hold", NOT_AS_STATED: "not as stated", FAILED: "FAILED"}
CLAIM_COLUMNS = (
    "experiment preset seeds claim kind source quote value at_least at_most verdict other_instances holds_on"
)
MOST_LISTED = 8  # values of a setting that are listed one by one
Sections = list[tuple[str, list[Outcome]]]  # experiments by name, each with its outcomes at every scale


def write(outcomes: Sequence[Outcome], out: Path) -> Path:
    """Write `out`/report/index.html and, for programs, claims.csv beside it; the path of the page."""
    write_text(out / "report" / "claims.csv", claims(outcomes), "the report")
    return write_text(out / "report" / "index.html", page(outcomes), "the report")


def write_text(path: Path, text: str, what: str) -> Path:
    """A text on disk, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, what) as part:
        part.write_bytes(text.encode())
    return path


def csv_text(headings: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([list(headings), *rows])
    return text.getvalue()


def page(outcomes: Sequence[Outcome]) -> str:
    """The whole page."""
    sections: Sections = [(name, list(group)) for name, group in groupby(outcomes, lambda o: o.experiment.name)]
    scales = list(dict.fromkeys(o.scale for o in outcomes))
    frame = Template(resources.files(__package__).joinpath("report.html").read_text(encoding="utf-8"))
    return frame.substitute(
        lead=_lead(scales),
        summary=_summary(sections, scales),
        sections="\n".join(_section(group) for _, group in sections),
    )


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
    return f"{value:.4g}"


def claims(outcomes: Sequence[Outcome]) -> str:
    """Every verdict as CSV."""
    rows = []
    for o in outcomes:
        for v in o.verdicts:
            c = v.claim
            first = [o.experiment.name, o.scale.preset, o.scale.seeds, c.name, c.kind, c.source, c.quote]
            bounds = [float(x) for x in (v.value, c.at_least, c.at_most)]
            rows.append([*first, *bounds, verdict_words(v), len(v.others), v.holds_elsewhere])
    return csv_text(CLAIM_COLUMNS.split(), rows)


def counts(verdicts: Iterable[Verdict]) -> dict[str, dict[str, int]]:
    """How many claims of each kind hold, do not hold as stated, or came out otherwise."""
    found: dict[str, dict[str, int]] = {kind: dict.fromkeys(MARKS, 0) for kind in SOURCES}
    for v in verdicts:
        found[v.claim.kind][verdict_words(v)] += 1
    return {kind: group for kind, group in found.items() if any(group.values())}


def elsewhere(verdict: Verdict) -> str:
    """On how many other instances a claim holds, in words; nothing where it was not decided on others."""
    return f"{verdict.holds_elsewhere} of {len(verdict.others)}" if verdict.others else ""


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


def _lead(scales: Sequence[Scale]) -> str:
    seeds = ", ".join(dict.fromkeys(f"{s.seeds} seeds" for s in scales))
    kinds = " and ".join(dict.fromkeys(s.preset for s in scales))
    text = f"<p>Instance: {escape(kinds)}; {escape(seeds)} per simulation.</p>"
    if any(s.quick for s in scales):
        text += (
            '<p class="warn"><strong>Quick run.</strong> Few agents and short runs: it shows that everything works, '
            "not what the paper shows. Leave out <code>--quick</code> for that.</p>"
        )
    if any(s.instances for s in scales):
        text += (
            "<p>Claims that need no simulation are also decided on other instances: Garnet problems with the seeds 1 "
            f"to {max(s.instances for s in scales)}, at the size of a quick run.</p>"
        )
    return text


def _summary(sections: Sections, scales: Sequence[Scale]) -> str:
    presets = list(dict.fromkeys(s.preset for s in scales))
    rows = []
    for name, group in sections:
        verdicts = {o.scale.preset: o.verdicts for o in group}
        link = f'<a href="#{escape(name)}">{escape(group[0].experiment.title)}</a>'
        rows.append([link, *(_counts(verdicts.get(preset, ())) for preset in presets)])
    every = [v for _, group in sections for o in group for v in o.verdicts]
    return f'<div class="total">{_counts(every)}</div>{_table(["experiment", *presets], rows)}'


def _counts(verdicts: Iterable[Verdict]) -> str:
    """A line per kind of claim."""
    lines = []
    for kind, found in counts(verdicts).items():
        shown = (f'<span class="{MARKS[k]}">{n} {COUNTED[k]}</span>' for k, n in found.items() if n)
        lines.append(f'<div><span class="soft">{SOURCES[kind]}:</span> {" ".join(shown)}</div>')
    return "".join(lines) or '<span class="soft">no claims</span>'


def _section(group: Sequence[Outcome]) -> str:
    experiment = group[0].experiment
    labels = ", ".join(f"<code>{escape(label)}</code>" for label in experiment.labels)
    parts = [f'<section id="{escape(experiment.name)}"><h2>{escape(experiment.title)}</h2>']
    if labels:
        parts.append(f'<p class="soft">In the paper: {labels}</p>')
    if experiment.claims:
        parts.append(_verdicts(group))
    parts += map(_at_one_scale, group)
    return "\n".join([*parts, "</section>"])


def _verdicts(group: Sequence[Outcome]) -> str:
    out = []
    for i, claim in enumerate(group[0].experiment.claims):
        verdicts = [o.verdicts[i] for o in group]
        values = "".join(
            f'<li><span class="{MARKS[verdict_words(v)]}">{verdict_words(v)}</span> '
            f"{escape(v.scale.preset)}: <b>{escape(number(v.value))}</b>"
            + (f'<span class="soft">; holds on {elsewhere(v)} other instances</span>' if v.others else "")
            + "</li>"
            for v in verdicts
        )
        said = f'<p class="soft">“{escape(claim.quote)}” ({escape(claim.source)})</p>' if claim.quote else ""
        note = "" if said else f' <span class="soft">({SOURCES[claim.kind]})</span>'
        out.append(
            f"<li><p>{escape(claim.text)}{note}</p>{said}<ul>{values}</ul>"
            f'<p class="soft">{escape(claim.statistic)}; holds if {escape(interval(claim))}</p></li>'
        )
    return f'<h3>Claims</h3><ol class="claims">{"".join(out)}</ol>'


def _at_one_scale(outcome: Outcome) -> str:
    e, scale = outcome.experiment, outcome.scale
    parts = [f"<h3>Instance: {escape(scale.preset)}</h3>"]
    for picture in e.pictures:
        path = outcome.figures[picture.name]
        image = base64.b64encode(path.read_bytes()).decode()
        caption, link = escape(_caption(picture.caption, scale)), _link("figures", scale, f"{picture.name}.pdf")
        parts.append(
            f'<figure><img alt="{caption}" src="data:image/png;base64,{image}">'
            f"<figcaption>{caption} {link}</figcaption></figure>"
        )
    for table in e.tables:
        rows = outcome.tables[table.name]
        caption = f"{escape(_caption(table.caption, scale))} {_link('tables', scale, f'{table.name}.csv')}"
        parts.append(_table(rows[0], [[escape(number(v)) for v in row.values()] for row in rows], caption))
    settings = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in parameters(outcome).items())
    parts.append(f"<details><summary>Parameters</summary><dl>{settings}</dl></details>")
    parts.append(f'<p class="soft">Made alone by</p><pre>{escape(command(e, scale))}</pre>')
    return "\n".join(parts)


def _table(headings: Iterable[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """caption, rows : HTML."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = ""
    for first, *rest in rows:
        body += f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>"
    above = f"<caption>{caption}</caption>" if caption else ""
    return f'<div class="wide"><table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _caption(text: str, scale: Scale) -> str:
    return text.replace("{preset}", scale.preset).replace("{seeds}", str(scale.seeds))


def _link(kind: str, scale: Scale, file: str) -> str:
    return f'<a href="../{kind}/{escape(scale.preset)}/{escape(file)}">{Path(file).suffix[1:].upper()}</a>'
