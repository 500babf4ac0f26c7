"""What the page knows so far, and the threads that keep it up to date while processes compute.

Each state is a value that is replaced, never changed; marimo draws again whatever reads it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import xarray as xr

from ..theory.planner import Plan
from . import answers
from .answers import Curve, Question
from .page_settings import METHODS, PageSettings
from .pool import LONG_LANE, Pool

ORDER = ("FedLSA", "Scaffnew", "SCAFFLSA")  # two processes are then busy for the same time
TOGETHER = 0.2  # seconds within which curves that arrive are drawn together
CALM = 0.4  # seconds without a newer question before the large pictures are drawn
REDRAW = 0.2  # seconds between two pictures of progress

Put = Callable[[Any], None]
Wanted = Callable[[], bool]  # whether the question is still the page's


@dataclass(frozen=True, eq=False)
class Curves:
    """Curves of one question, as far as they are there; failed : why a method has none."""

    question: Question | None = None
    settings: PageSettings = field(default_factory=PageSettings)
    shown: dict[str, Curve] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    width: str = "wide"

    @property
    def waiting(self) -> list[str]:
        return [n for n in METHODS if n not in self.shown and n not in self.failed]


@dataclass(frozen=True, eq=False)
class Scene:
    """Where the agents go, or why that cannot be seen."""

    figure: dict[str, Any] | None = None
    trouble: str = ""


@dataclass(frozen=True, eq=False)
class Runs:
    """Simulated seeds of one question; done : the share that is finished, None when nothing runs."""

    question: Question | None = None
    results: tuple[xr.Dataset, ...] = ()
    done: float | None = None
    trouble: str = ""

    def of(self, q: Question | None) -> tuple[xr.Dataset, ...]:
        return self.results if q is not None and self.question == q else ()


@dataclass(frozen=True, eq=False)
class Plans:
    """Plans of each method for the accuracy of the settings; points : of the trade-off; refused : why there is none."""

    question: Question | None = None
    settings: PageSettings = field(default_factory=PageSettings)
    found: dict[str, Plan] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    points: tuple[Plan, ...] = ()
    busy: str = ""


def question(
    pool: Pool, session: str, q: Question, s: PageSettings, width: str, wanted: Wanted, put: Put, put_settled: Put
) -> None:
    """The curves of a setting, and when sliders rest also what is taken along and the stable step sizes."""
    put, put_settled = _while(wanted, put), _while(wanted, put_settled)
    pool.drop(session, "limits")  # of an older question
    known = curves(pool, session, q, s, width, put)
    time.sleep(CALM)
    if known is None or not wanted():
        return
    put_settled(known)
    if s.sampling == "iid" and known.shown:
        limits(pool, session, known, put)


def _while(wanted: Wanted, put: Put) -> Put:
    """Puts nothing any more once a newer question has come."""
    return lambda state: put(state) if wanted() else None


def curves(pool: Pool, session: str, q: Question, s: PageSettings, width: str, put: Put) -> Curves | None:
    """The three curves, drawn together if they come soon, else as they finish; None if dropped before the last."""
    state, began = Curves(q, s, width=width), time.monotonic()
    asked = q.without("seeds") if s.sampling == "iid" else q
    for a in pool.ask(session, "curves", [(answers.curve, (asked, name)) for name in ORDER], pause=TOGETHER):
        if a.kind == "done":
            state = replace(state, shown={**state.shown, ORDER[a.index]: a.value})
        elif a.kind == "failed":
            state = replace(state, failed={**state.failed, ORDER[a.index]: a.value})
        if a.kind == "pause" or time.monotonic() - began > TOGETHER or not state.waiting:
            put(state)
    return None if state.waiting else state


def agents(pool: Pool, session: str, q: Question, round: int, width: str, wanted: Wanted, put: Put) -> None:
    """The picture of where the agents go: a large one, so not while a slider is being dragged."""
    put = _while(wanted, put)
    pool.drop(session, "agents")  # of an older question
    time.sleep(CALM)
    if not wanted():
        return
    asked = q.without("seeds", "scale", "probability")
    for a in pool.ask(session, "agents", [(answers.agents, (asked, width, round))]):
        put(Scene(a.value) if a.kind == "done" else Scene(None, a.value))


def limits(pool: Pool, session: str, state: Curves, put: Put) -> None:
    """The step sizes below which methods are stable, as they are found."""
    assert state.question is not None
    q = state.question.without("step_size", "rounds", "seeds", "scale")
    asked = [n for n in METHODS if n in state.shown]
    for a in pool.ask(session, "limits", [(answers.limit, (q, n)) for n in asked], lane=LONG_LANE, pause=TOGETHER):
        if a.kind != "pause":
            found = a.value if a.kind == "done" else math.nan
            state = replace(state, limits={**state.limits, asked[a.index]: found})
        if a.kind == "pause" or len(state.limits) == len(asked):
            put(state)


def runs(pool: Pool, session: str, q: Question, put: Put) -> None:
    """A simulation with its progress."""
    put(Runs(q, done=0.0))
    last = 0.0
    for a in pool.ask(session, "runs", [(answers.simulations, (q,))], lane=LONG_LANE):
        if a.kind == "done":
            put(Runs(q, tuple(a.value)))
            return
        if a.kind == "failed":
            put(Runs(q, trouble=a.value))
            return
        now, (done, total) = time.monotonic(), a.value
        if now - last > REDRAW:
            last = now
            put(Runs(q, done=done / total if total else 0.0))
    put(Runs(q, trouble="Stopped; nothing is kept of it."))


def plan_question(q: Question) -> Question:
    """What a plan depends on: the problem alone. It is made for independent observations."""
    return q.without("step_size", "local_steps", "probability", "rounds", "seeds", "scale", "sampling", "thin")


def plans(pool: Pool, session: str, q: Question, s: PageSettings, wanted: Wanted, put: Put) -> None:
    """A plan for each method, then the points of the trade-off between communications and observations."""
    put = _while(wanted, put)
    q, epsilon = plan_question(q), s.epsilon
    state = Plans(q, s, busy="Looking for the cheapest run of each method …")
    put(state)
    for a in pool.ask(session, "plans", [(answers.plan, (q, epsilon, n)) for n in METHODS], lane=LONG_LANE):
        name = METHODS[a.index]
        if a.kind == "failed" or isinstance(a.value, str):
            state = replace(state, refused={**state.refused, name: a.value})
        else:
            state = replace(state, found={**state.found, name: a.value})
        put(state)
    if len(state.found) + len(state.refused) < len(METHODS) or not wanted():
        return  # another question has come
    state = replace(state, busy="Looking for the trade-off between communications and observations …")
    put(state)
    for a in pool.ask(session, "plans", [(answers.trade_off, (q, epsilon, n)) for n in state.found], lane=LONG_LANE):
        if a.kind == "done":
            state = replace(state, points=(*state.points, *a.value))
            put(state)
    put(replace(state, busy=""))
