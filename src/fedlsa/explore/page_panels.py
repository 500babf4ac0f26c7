"""How the page looks: each panel from what it shows."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import marimo as mo

from ..algorithms import Scaffnew
from ..figures.cost_curves import trade_off_chart
from ..figures.lines import Chart, ChartRows
from ..figures.svg_charts import HEIGHT, WIDTH, sheet
from ..files import as_bytes
from ..theory.planner import Plan, pareto_front
from . import controls, take, words
from .answers import Question
from .open_page import Curves, OpenPage, Plans, Runs
from .page_problem import fit_call
from .page_settings import METHODS, OF_PROBLEM, PROBLEMS, PageSettings
from .scene_data import scene_text
from .uploads import Sites

WELCOME = """
# See client drift

Agents look for **one** θ⋆: each takes H local steps towards its own solution, then they average. Averaging alone
(FedLSA) ends beside θ⋆: *drift*. Control variates (SCAFFLSA, Scaffnew) take it out. Move **local steps**.
"""
EXPLAINED = {
    "ring": "Least squares with two coefficients. Each site's own solution lies on a ring, and each sees one direction "
    "better than the other.",
    "garnet": "Random decision processes of 30 states; TD(0) with random features. Half of the agents live in one "
    "world, half in another; the perturbation makes each agent's world a little different.",
    "lakes": "Gymnasium's FrozenLake, a lake per agent, each slippery in its own way; TD(0) with one value per region.",
    "cartpoles": "Gymnasium's CartPole, a pole of its own length per agent; TD(0) on logs of 1000 steps.",
    "files": "A CSV or Parquet file per site, read on your machine. Local steps draw rows of the site at random; "
    f"{words.MEANS}, which have no noise. For a value function the columns reward and terminated are needed too.",
}
FIT = """## The fit
One model from all of these files, in the columns that you chose: what the agents above are looking for."""
PLAN = """## The plan
Say how accurate the answer must be; exact errors then decide step size, local steps and rounds."""
TAKE = """## Take it with you
The address of this page holds every setting: copy it, and it opens with what you see."""


def problem_panel(kind: Any, worlds: Any, upload: Any, target: Any, columns: Any, sites: Sites) -> Any:
    """The sidebar: what the agents' worlds are."""
    parts = controls.show(worlds, *OF_PROBLEM[kind.value])
    if kind.value == "files":
        if worlds.value["task"] == "regression":
            asked = [target, *([columns, *_left_out(columns, sites)] if sites.files else []), worlds["missing"]]
        else:
            asked = controls.show(worlds, "state", "next_state", "discount")
        parts = [upload, *_files(sites), worlds["task"], *asked, worlds["weight"]]
    return mo.vstack([mo.md("## The problem"), kind, *parts, mo.md(EXPLAINED[kind.value])], gap=1)


def _left_out(columns: Any, sites: Sites) -> list[Any]:
    """A line on columns of text that are not used."""
    texts = [name for name in sites.texts if f"C({name})" not in columns.value]
    return [box("quiet", mo.md(f"Text, left out: {plain(', '.join(texts))}"))] if texts else []


def _files(sites: Sites) -> list[Any]:
    if sites.trouble:
        return []  # said at the top of the page
    names = ", ".join(f.replace("\\", "/").rsplit("/", 1)[-1] for f in sites.files)
    many = "1 site" if len(sites.files) == 1 else f"{len(sites.files)} sites"
    return [mo.md(f"{many}: {plain(names)}" if names else "No files yet: drop some above.")]


def method_panel(method: Any, reset: Any) -> Any:
    """The sliders of the methods; what is rarely touched lies behind a fold."""
    main = box("row", *controls.show(method, "step_size", "local_steps", "rounds"), reset)
    rest = box("row", *controls.show(method, "sampling", "thin", "probability"))
    return mo.vstack([main, mo.accordion({"Trajectories, and a rate of Scaffnew's own": rest})])


def scene_panel(known: Curves, runs: Runs, *complaints: str) -> Any:
    """The picture of the agents and the error, the stable step sizes, and what it says, in words."""
    s, seeds = known.settings, runs.of(known.question)
    text = scene_text(s, known.by_method, known.agents, seeds, known.unstable, hash(known.question))
    picture = f'<fedlsa-scene data-scene="{html.escape(text)}"></fedlsa-scene>'
    lines = words.verdict(s, known.by_method, known.limits, known.floors)
    if seeds:
        lines.append(f"Dotted: the mean of {s.seeds} simulated seeds; tinted: four fifths of them.")
    failed = known.failed
    if len(failed) == len(METHODS) and len(set(failed.values())) == 1:  # a reason that all share is said once
        failed = {"No curves": next(iter(failed.values()))}
    elif isinstance(known.agents, str):
        failed = {**failed, "No picture of the agents": known.agents}
    lines += [f"**{n}**: {plain(why)}" for n, why in failed.items()]
    lines += [f"**{n}**: computing …" for n in known.waiting] if known.question is not None else []
    said = mo.md("\n".join(f"- {line}" for line in lines)) if lines else mo.md("Computing …")
    said_small = box("quiet", words.limits_line(known.limits), words.start_line(known.by_method))
    noted = mo.Html(f"<div><div>{notes(complaints)}</div>{picture}</div>")
    return WithoutHeadings(mo.vstack([noted, said_small, said]))


def runs_line(runs: Runs, known: Curves) -> Any:
    """How far a simulation is; nothing of one whose question is no longer the page's."""
    if runs.done is None or runs.question != known.question:
        return box("quiet", mo.md(plain(runs.trouble)) if runs.question == known.question else "")
    bar = f'<progress value="{runs.done:.3f}" max="1"></progress>'
    return box("quiet", mo.Html(f"simulating {bar} {runs.done:.0%}"))


def fit_panel(q: Question | None, table: str) -> Any:
    """The fit of the reader's files: its summary, and the lines that make it."""
    if q is None or not table:
        return None
    lines = f"import fedlsa as fl\n\nfit = {fit_call(q.settings, q.files)}\nprint(fit.summary())"
    shown = mo.Html(f'<pre class="explore-fit" tabindex="0" aria-label="the fit">{html.escape(table)}</pre>')
    return mo.vstack([mo.md(FIT), shown, code(lines)])


@dataclass(frozen=True)
class WithoutHeadings:
    """HTML in which marimo looks for no headings: whenever its cell runs, that would hold up a large picture."""

    shown: Any

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.shown.text}


def notes(lines: Sequence[str]) -> str:
    """Complaints, one line each; nothing where there are none."""
    kept = [plain(line) for line in lines if line]
    return str(mo.callout(mo.md("\n\n".join(kept)), kind="warn").text) if kept else ""


def plan_panel(known: Plans) -> Any:
    """The plans and the trade-off; explore.css shows the button of each plan that is there."""
    parts: list[Any] = []
    if known.by_method or known.failed:
        what = f"{PROBLEMS[known.settings.problem]}, independent observations:"
        found = "".join(f'<i class="explore-found {name}"></i>' for name in known.by_method)
        lines = [_line(n, known.by_method.get(n), known.failed.get(n, "…")) for n in METHODS]
        parts += [mo.Html(found), box("quiet", what), mo.md(_table(known.settings, lines))]
    if drawn := [*known.points, *known.by_method.values()]:
        parts.append(_picture(trade_off_chart(drawn)))
        if not known.busy:  # else it would close in the reader's hands
            parts.append(mo.accordion({"Every mark in numbers": mo.md(marks_table(known))}))
    return mo.vstack([*parts, mo.md(known.busy)])


def marks_table(known: Plans) -> str:
    """The marks of the trade-off's picture, method by method."""
    drawn = [*known.points, *known.by_method.values()]
    fronts = {n: pareto_front([p for p in drawn if type(p.algorithm).__name__ == n]) for n in METHODS}
    return _table(known.settings, [_line(n, p) for n, front in fronts.items() for p in front])


def _picture(chart: Chart) -> Any:
    """A chart in the colours of the page."""
    drawn = sheet(ChartRows([[chart]]))
    inside, named = drawn.panels[0][2], html.escape(f"{chart.y} against {chart.x}")
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{named}">{inside}</svg>'
    return mo.Html(f'<figure class="explore-chart">{svg}<figcaption>{drawn.legend}</figcaption></figure>')


def _table(s: PageSettings, lines: Sequence[str]) -> str:
    head = f"| RMSE ≤ {s.epsilon:g} | step size | local steps | rounds | observations per agent | bytes |"
    return "\n".join([head, "|---|---|---|---|---|---|", *lines])


def _line(name: str, p: Plan | None, why: str = "") -> str:
    """A plan as a line of the table; why : there is none."""
    if p is None:
        return f"| **{name}** | {plain(why)} | | | | |"
    a: Any = p.algorithm
    steps = f"1/p = {1 / a.probability:.0f}" if isinstance(a, Scaffnew) else str(a.local_steps)
    return f"| **{name}** | {a.step_size:.3g} | {steps} | {p.rounds} | {p.samples:,.0f} | {p.bytes:,} |"


def use_buttons(page: OpenPage, put: Callable[[PageSettings], None]) -> Any:
    """A button per method, which carries its plan into the sliders."""

    def button(name: str) -> Any:
        def adopt(_: Any) -> None:
            if page.question is not None and name in page.plans.by_method:  # else they went while the click was coming
                put(_with_plan(page.question.page, page.plans.by_method[name]))

        return mo.ui.button(on_change=adopt, label=f"Use {name}'s plan")

    return mo.ui.dictionary({name: button(name) for name in METHODS})


def use_panel(use: Any) -> Any:
    """All of these buttons, each seen once its plan is there."""
    return box("line", *(box(f"use {name}", use[name]) for name in METHODS))


def _with_plan(s: PageSettings, p: Plan) -> PageSettings:
    """The settings with those of a plan, which is made for independent observations."""
    a: Any = p.algorithm
    probability = a.probability if isinstance(a, Scaffnew) else None
    steps = a.local_steps if probability is None else max(1, round(1 / probability))
    own = {"step_size": a.step_size, "local_steps": steps, "probability": probability, "rounds": p.rounds}
    return replace(s, sampling="iid", **own)


def take_panel(known: Curves, runs: Runs) -> Any:
    """The lines, the command, the pictures and the data; files are made when they are asked for."""
    q, curves, seeds = known.question, known.by_method, runs.of(known.question)
    if q is None or not curves:
        return mo.md(TAKE)

    def tab(name: str, kinds: Sequence[str], script: str, command: str, write: Callable[[Path], None]) -> Any:
        files = [
            mo.download(partial(as_bytes, name + kind, write), filename=name + kind, label=name + kind)
            for kind in kinds
        ]
        return mo.vstack([code(script), code(command), box("line", *files)])

    error = tab(
        "error",
        (*take.PICTURES, *take.DATA),
        take.script(q, bool(seeds), any(curve.bias > 0 for curve in curves.values())),
        take.command(q, bool(seeds)),
        lambda path: take.write(path, q, curves, seeds),
    )
    agents = tab(
        "agents",
        take.PICTURES,
        take.agents_script(q),
        take.command(q, save="agents.png", agents=True),
        lambda path: take.write_agents(path, q),
    )
    return mo.vstack([mo.md(TAKE), mo.md("### The error"), error, mo.md("### The agents"), agents])


def code(text: str) -> Any:
    """A block of code, with a button that copies it."""
    return mo.Html(f"<fedlsa-code><pre>{html.escape(text)}</pre></fedlsa-code>")


def box(kind: str, *parts: Any) -> Any:
    """Parts in a row of the kind that explore.css knows."""
    return mo.Html(f'<div class="explore-{kind}">{"".join(f"<div>{mo.as_html(p).text}</div>" for p in parts)}</div>')


def plain(text: str) -> str:
    """Text from files, links and errors as Markdown that shows it letter by letter."""
    return re.sub(r"([\\`*_\[\]$|#~])", r"\\\1", html.escape(text, quote=False))
