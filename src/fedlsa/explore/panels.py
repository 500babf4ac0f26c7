"""How the page looks: each panel from what it shows."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import marimo as mo

from . import words
from .desk import Desk
from .error import error_figure, plotly
from .follow import Curves, Runs, Scene
from .layout import BARE, box
from .settings import METHODS, Settings
from .sites import Sites

WELCOME = """
# See client drift

Agents in different worlds look for **one** parameter θ⋆ together. Each takes H local steps, then they average.
Averaging alone (FedLSA) ends beside θ⋆, because each agent walks towards its own solution in between: *drift*. Control
variates (SCAFFLSA, Scaffnew) take the drift out. Move **local steps**, and watch FedLSA's curve stop at a higher floor.
"""
UNIT = 4e-9  # seconds that an update takes, about

_desk: Desk | None = None


def desk() -> Desk:
    """The one desk of this process."""
    global _desk
    if _desk is None:
        _desk = Desk()
    return _desk


def newcomer() -> str:
    """A name for one open page."""
    return uuid.uuid4().hex


def width(request: Any) -> str:
    """Panels below each other for those who come with a phone."""
    agent = "" if request is None else str(dict(request.headers).get("user-agent", ""))
    return "narrow" if "Mobi" in agent else "wide"


def write_address(query: Any, s: Settings) -> None:
    """Put what differs from the defaults into the page's address, and nothing else of ours."""
    wanted = s.query()
    for name in [k for k in query.to_dict() if k not in wanted]:
        query.remove(name)
    for name, text in wanted.items():
        if query.get(name) != text:
            query.set(name, text)


def problem_panel(kind: Any, c: Any, s: Settings, upload: Any, target: Any, sites: Sites) -> Any:
    """The sidebar: what the agents' worlds are."""
    shown: dict[str, list[Any]] = {
        "ring": [c[k] for k in ("agents", "spread", "noise")],
        "garnet": [c[k] for k in ("preset", "heterogeneous", "perturbation", "agents", "features", "discount", "seed")],
        "lakes": [c[k] for k in ("agents", "spread", "discount")],
        "cartpoles": [c[k] for k in ("agents", "spread", "discount")],
        "files": [upload, _files(sites), c["task"], *_columns(c, s, target), c["weight"]],
    }
    return mo.vstack([mo.md("## The problem"), kind, *shown[s.problem], mo.md(EXPLAINED[s.problem])], gap=1)


EXPLAINED = {
    "ring": "Least squares with two coefficients. Each site's own solution lies on a ring, and each sees one direction "
    "better than the other.",
    "garnet": "Random decision processes of 30 states; TD(0) with random features. Half of the agents live in one "
    "world, half in another; the perturbation makes each agent's world a little different.",
    "lakes": "Gymnasium's FrozenLake, a lake per agent, each slippery in its own way; TD(0) with one value per region.",
    "cartpoles": "Gymnasium's CartPole, a pole of its own length per agent; TD(0) on logs of 1000 steps.",
    "files": "A CSV or Parquet file per site, read on your machine. Local steps draw rows of the site at random.",
}


def _files(sites: Sites) -> Any:
    names = ", ".join(f.replace("\\", "/").rsplit("/", 1)[-1] for f in sites.files)
    return mo.md(f"{len(sites.files)} sites: {names}" if names else "No files yet: drop some above.")


def _columns(c: Any, s: Settings, target: Any) -> list[Any]:
    if s.task == "value":
        return [c["state"], c["next_state"], c["discount"]]
    return [target if target is not None else c["target"]]


def method_panel(c: Any, s: Settings) -> Any:
    """The sliders of the methods."""
    rates = [c["own"], *([c["probability"]] if s.probability is not None else [])]
    order = [c["sampling"], *([c["thin"]] if s.sampling == "markov" else [])]
    rows = [c["step_size"], c["local_steps"], c["rounds"], mo.vstack(order), mo.vstack(rates)]
    return box("row", *rows)


def error_panel(known: Curves, runs: Runs) -> Any:
    """The picture of the error and what it says, in words."""
    figure = mo.ui.plotly(error_figure(known.settings, known.shown, runs.of(known.question)), config=BARE)
    lines = words.verdict(known.settings, known.shown, known.limits)
    lines += [f"**{n}**: {why}" for n, why in _once(known.failed).items()]
    lines += [f"**{n}**: computing …" for n in known.waiting] if known.question is not None else []
    return mo.vstack([figure, mo.md("\n".join(f"- {line}" for line in lines)) if lines else mo.md("Computing …")])


def _once(failed: Mapping[str, str]) -> dict[str, str]:
    """Why methods have no curve; a reason that all share is said once."""
    if len(failed) == len(METHODS) and len(set(failed.values())) == 1:
        return {"No curves": next(iter(failed.values()))}
    return dict(failed)


def limits_line(known: Curves) -> Any:
    """The stable step sizes, small under the sliders."""
    return box("quiet", words.limits_line(known.limits))


def view_panel(c: Any, simulate: Any, stop: Any, runs: Runs) -> Any:
    """The axis, and the simulation on top."""
    state: Any = mo.md("")
    if runs.done is not None:
        state = mo.md(f"simulating: {runs.done:.0%}")
    elif runs.trouble:
        state = mo.md(runs.trouble)
    return mo.vstack([box("line", c["x"], c["scale"]), box("line", c["seeds"], simulate, stop, state)])


def agents_panel(scene: Scene) -> Any:
    """Where the agents go."""
    heading = mo.md(
        "## Where the agents go\nThe plane through θ⋆ in which the agents' own solutions differ most. "
        "Step through the rounds or let them play: each agent walks from the average (the dot) towards its own "
        "solution (its circle); then all are averaged."
    )
    if scene.figure is None:
        return mo.vstack([heading, mo.md(scene.trouble or "Computing …")])
    return mo.vstack([heading, mo.ui.plotly(plotly().Figure(scene.figure), config={**BARE, "responsive": False})])


def checked(make: Callable[[], Settings], otherwise: Settings) -> tuple[Settings, str]:
    """Settings, or the last good ones and why these cannot be."""
    try:
        return make(), ""
    except ValueError as error:
        return otherwise, str(error)


def notes(*lines: str) -> Any:
    """Complaints, one line each; nothing where there are none."""
    kept = [line for line in lines if line]
    return mo.callout(mo.md("\n\n".join(kept)), kind="warn") if kept else None


def target_choice(sites: Sites, wanted: str) -> Any:
    """The column to be explained, among those of the files."""
    if not sites.columns:
        return None
    value = wanted if wanted in sites.columns else sites.columns[-1]
    return mo.ui.dropdown(list(sites.columns), value=value, label="column to be explained", full_width=True)


def duration(updates: float) -> str:
    """About how long a simulation will take."""
    seconds = updates * UNIT
    return (
        "a moment"
        if seconds < 1
        else f"about {seconds:.0f} s"
        if seconds < 90
        else f"about {math.ceil(seconds / 60)} min"
    )
