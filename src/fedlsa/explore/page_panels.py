"""How the page looks: each panel from what it shows."""

from __future__ import annotations

import atexit
import html
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import marimo as mo

from ..algorithms import Scaffnew
from ..figures.theory_figures import trade_off_chart
from ..theory.planner import Plan
from . import answers, take, words
from .error_figure import error_figure
from .page_settings import METHODS, PROBLEMS, PageSettings
from .plotly_figures import plotly_chart, unchecked
from .pool import SESSION, Pool
from .updates import Curves, Plans, Runs, Scene
from .uploads import Sites

BARE = {"displayModeBar": False, "responsive": True}  # pictures without Plotly's own buttons
WELCOME = """
# See client drift

Agents in different worlds look for **one** parameter θ⋆ together. Each takes H local steps, then they average.
Averaging alone (FedLSA) ends beside θ⋆, because each agent walks towards its own solution in between: *drift*. Control
variates (SCAFFLSA, Scaffnew) take the drift out. Move **local steps**, and watch FedLSA's curve stop at a higher floor.
"""
EXPLAINED = {
    "ring": "Least squares with two coefficients. Each site's own solution lies on a ring, and each sees one direction "
    "better than the other.",
    "garnet": "Random decision processes of 30 states; TD(0) with random features. Half of the agents live in one "
    "world, half in another; the perturbation makes each agent's world a little different.",
    "lakes": "Gymnasium's FrozenLake, a lake per agent, each slippery in its own way; TD(0) with one value per region.",
    "cartpoles": "Gymnasium's CartPole, a pole of its own length per agent; TD(0) on logs of 1000 steps.",
    "files": "A CSV or Parquet file per site, read on your machine. Local steps draw rows of the site at random. For a "
    "value function the columns reward and terminated are needed too.",
}
WHERE = """## Where the agents go
The plane through θ⋆ in which the agents' own solutions differ most. Step through the rounds or let them play: each
agent walks from the average (the dot) towards its own solution (its circle); then all are averaged."""


@cache
def pool() -> Pool:
    """The one pool of this process."""
    processes = Pool(warm=answers.warm)
    atexit.register(processes.close)
    return processes


def session(request: Any) -> str:
    """A name for one open page: the one under which the server hears that it is closed."""
    known = {} if request is None else dict(request.query_params)
    return str(known.get(SESSION, [uuid.uuid4().hex])[0])


def width(request: Any) -> str:
    """Panels below each other for those who come with a phone."""
    agent = "" if request is None else str(dict(request.headers).get("user-agent", ""))
    return "narrow" if "Mobi" in agent else "wide"


def write_address(query: Any, s: PageSettings) -> None:
    """Put what differs from the defaults into the page's address, and nothing else of ours."""
    wanted = s.query()
    for name in [k for k in query.to_dict() if k not in wanted]:
        query.remove(name)
    for name, text in wanted.items():
        if query.get(name) != text:
            query.set(name, text)


def problem_panel(kind: Any, worlds: Any, upload: Any, target: Any, sites: Sites) -> Any:
    """The sidebar: what the agents' worlds are."""
    parts = [worlds[name] for name in worlds]
    if kind.value == "files":
        linear = worlds.value["task"] == "regression"
        columns = [target] if linear else [worlds[name] for name in ("state", "next_state", "discount")]
        parts = [upload, *_files(sites), worlds["task"], *columns, worlds["weight"]]
    return mo.vstack([mo.md("## The problem"), kind, *parts, mo.md(EXPLAINED[kind.value])], gap=1)


def _files(sites: Sites) -> list[Any]:
    if sites.trouble:
        return []  # said at the top of the page
    names = ", ".join(f.replace("\\", "/").rsplit("/", 1)[-1] for f in sites.files)
    many = "1 site" if len(sites.files) == 1 else f"{len(sites.files)} sites"
    return [mo.md(f"{many}: {plain(names)}" if names else "No files yet: drop some above.")]


def target_choice(sites: Sites, wanted: str) -> Any:
    """The column to be explained, among those of the files."""
    if not sites.columns:
        return mo.ui.text(wanted, label="column to be explained", full_width=True)
    value = wanted if wanted in sites.columns else sites.columns[-1]
    return mo.ui.dropdown(list(sites.columns), value=value, label="column to be explained", full_width=True)


def method_panel(method: Any) -> Any:
    """The sliders of the methods; what is rarely touched lies behind a fold."""
    main = box("row", *(method[name] for name in ("step_size", "local_steps", "rounds")))
    rest = box("row", *(method[name] for name in ("sampling", "thin", "own", "probability")))
    return mo.vstack([main, mo.accordion({"Trajectories, and Scaffnew's own rate": rest})])


def error_panel(known: Curves, runs: Runs) -> Any:
    """The stable step sizes, small under the sliders, the picture of the error, and what it says, in words."""
    figure = mo.ui.plotly(error_figure(known.settings, known.shown, runs.of(known.question), known.width), config=BARE)
    lines = words.verdict(known.settings, known.shown, known.limits)
    if runs.of(known.question):
        lines.append(f"Dotted: the mean of {known.settings.seeds} simulated seeds; tinted: four fifths of them.")
    lines += [f"**{n}**: {plain(why)}" for n, why in _once(known.failed).items()]
    lines += [f"**{n}**: computing …" for n in known.waiting] if known.question is not None else []
    said = mo.md("\n".join(f"- {line}" for line in lines)) if lines else mo.md("Computing …")
    return mo.vstack([box("quiet", words.limits_line(known.limits)), figure, said])


def _once(failed: Mapping[str, str]) -> dict[str, str]:
    """Why methods have no curve; a reason that all share is said once."""
    if len(failed) == len(METHODS) and len(set(failed.values())) == 1:
        return {"No curves": next(iter(failed.values()))}
    return dict(failed)


def view_panel(view: Any, simulate: Any, stop: Any) -> Any:
    """The axis, and the simulation on top."""
    return box("line", view["x"], view["scale"], view["seeds"], simulate, stop)


def runs_line(runs: Runs, known: Curves) -> Any:
    """How far a simulation is; nothing of one whose question is no longer the page's."""
    if runs.done is None or runs.question != known.question:
        return box("quiet", mo.md(plain(runs.trouble)) if runs.question == known.question else "")
    bar = f'<progress value="{runs.done:.3f}" max="1"></progress>'
    return box("quiet", mo.Html(f"simulating {bar} {runs.done:.0%}"))


def where_panel(opens: Any) -> Any:
    """What the next picture shows, and with which round it opens."""
    return mo.vstack([mo.md(WHERE), box("line", opens["round"])])


def agents_panel(scene: Scene) -> Any:
    """Where the agents go."""
    if scene.figure is None:
        return mo.md(plain(scene.trouble) or "…")
    figure = unchecked(scene.figure["data"], scene.figure["layout"], scene.figure["frames"])
    return box("picture", mo.ui.plotly(figure, config={**BARE, "responsive": False}))


def checked(make: Callable[[], PageSettings], otherwise: PageSettings) -> tuple[PageSettings, str]:
    """PageSettings, or the last good ones and why these cannot be."""
    try:
        return make(), ""
    except ValueError as error:
        return otherwise, str(error)


def notes(*lines: str) -> Any:
    """Complaints, one line each; nothing where there are none."""
    kept = [line for line in lines if line]
    return mo.callout(mo.md("\n\n".join(map(plain, kept))), kind="warn") if kept else None


def ask_panel(accuracy: Any, find: Any) -> Any:
    """The accuracy that is asked for."""
    heading = mo.md(
        "## The plan\nSay how accurate the answer must be; exact errors then decide step size, local steps and rounds."
    )
    return mo.vstack([heading, box("line", accuracy["epsilon"], find)])


def plan_panel(known: Plans, use: Any) -> Any:
    """The plans, a button for each that takes it over, and the trade-off."""
    parts: list[Any] = []
    if known.found or known.refused:
        what = f"{PROBLEMS[known.settings.problem]}, independent observations:"
        parts += [box("quiet", what), mo.md(_table(known))]
        parts += [box("line", *(use[name] for name in known.found))] if known.found else []
    if known.points or known.found:
        chart = trade_off_chart([*known.points, *known.found.values()])
        low, high = chart.span
        chart = replace(chart, x_limits=(low / 1.25, high * 1.25))
        parts.append(mo.ui.plotly(plotly_chart(chart, height=320), config=BARE))
    return mo.vstack([*parts, mo.md(known.busy)])


def _table(known: Plans) -> str:
    rows = [
        f"| RMSE ≤ {known.settings.epsilon:g} | step size | local steps | rounds | observations per agent | bytes |"
    ]
    rows += ["|---|---|---|---|---|---|"]
    for name in METHODS:
        if name in known.found:
            p = known.found[name]
            a: Any = p.algorithm
            steps = f"1/p = {1 / a.probability:.0f}" if isinstance(a, Scaffnew) else str(a.local_steps)
            rows.append(f"| **{name}** | {a.step_size:.3g} | {steps} | {p.rounds} | {p.samples:,.0f} | {p.bytes:,} |")
        elif name in known.refused:
            rows.append(f"| **{name}** | {plain(known.refused[name])} | | | | |")
    return "\n".join(rows)


def use_buttons(now: Mapping[str, Any], put: Callable[[PageSettings], None]) -> Any:
    """A button per method, which carries its plan into the sliders; now : the page's settings and plans at a click."""

    def button(name: str) -> Any:
        def adopt(_: int) -> None:
            if name in now["plans"].found:  # else they went while the click was on its way
                put(adopted(now["settings"], now["plans"].found[name]))

        return mo.ui.button(value=0, on_click=lambda n: n + 1, on_change=adopt, label=f"Use {name}'s plan")

    return mo.ui.dictionary({name: button(name) for name in METHODS})


def adopted(s: PageSettings, p: Plan) -> PageSettings:
    """The settings with those of a plan, which is made for independent observations."""
    s = replace(s, sampling="iid")
    a: Any = p.algorithm
    eta: float = a.step_size
    if isinstance(a, Scaffnew):
        steps = max(1, round(1 / a.probability))
        return replace(s, step_size=eta, local_steps=steps, probability=a.probability, rounds=p.rounds)
    return replace(s, step_size=eta, local_steps=a.local_steps, probability=None, rounds=p.rounds)


def take_panel(files: tuple[str, ...], known: Curves, runs: Runs) -> Any:
    """The lines, the command, the pictures and the data; files are made when they are asked for."""
    heading = mo.md(
        "## Take it with you\nThe address of this page holds every setting: copy it, and it opens with what you see."
    )
    if known.question is None or not known.shown:
        return heading
    s, seeds = known.settings, runs.of(known.question)
    predicted = any(curve.bias > 0 for curve in known.shown.values())
    lines = take.script(s, files, bool(seeds), predicted)

    def error(name: str) -> Callable[[], bytes]:
        return lambda: take.as_bytes(name, lambda path: take.write(path, s, files, known.shown, seeds))

    def agents(name: str) -> Callable[[], bytes]:
        q = known.question
        assert q is not None
        return lambda: take.as_bytes(name, lambda path: take.write_agents(path, q, s))

    error_files = [_file(error, f"error{kind}") for kind in (*take.PICTURES, *take.DATA)]
    agents_files = [_file(agents, f"agents{kind}") for kind in take.PICTURES]
    tabs = {
        "The error": mo.vstack([code(lines), code(take.command(s, files, bool(seeds))), box("line", *error_files)]),
        "The agents": mo.vstack(
            [
                code(take.agents_script(s, files)),
                code(take.command(s, files, save="agents.png", agents=True)),
                box("line", *agents_files),
            ]
        ),
    }
    return mo.vstack([heading, mo.ui.tabs(tabs)])


def _file(contents: Callable[[str], Callable[[], bytes]], name: str) -> Any:
    return mo.download(contents(name), filename=name, label=name)


def box(kind: str, *parts: Any) -> Any:
    """Parts in a row of the kind that explore.css knows."""
    return mo.Html(f'<div class="explore-{kind}">{"".join(f"<div>{mo.as_html(p).text}</div>" for p in parts)}</div>')


def plain(text: str) -> str:
    """Text from files, links and errors as Markdown that shows it letter by letter."""
    return re.sub(r"([\\`*_\[\]$|#~])", r"\\\1", html.escape(text, quote=False))


def code(text: str) -> Any:
    """Lines to copy: Python, or a command."""
    kind = "python" if text.startswith("import") else "bash"
    return mo.md(f"```{kind}\n{text}\n```")
