"""What a page asks while its settings change: a moment's work at once, the rest in threads that put what they hear.

A thread ends when its page asks something else: what it would put is no longer shown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from . import answers
from .answers import Question
from .open_page import AGENTS, Curves, OpenPage, Plans, Runs
from .page_settings import METHODS, OF_PROBLEM, SETTINGS
from .pool_worker import LONG_LANE, Computation, Progress

ORDER = ("FedLSA", "Scaffnew", "SCAFFLSA")  # two processes are then busy for the same time
TOGETHER = 0.1  # seconds within which answers are drawn together, and for which a cell waits for them
CALM = 0.4  # seconds without a newer question before files and addresses are made
REST = 0.8  # seconds more before long work begins, whose process a newer question would end
REDRAW = 0.2  # seconds between two pictures of progress

Put = Callable[[Any], None]


def begin(page: OpenPage, q: Question, trouble: str = "") -> Iterator[Progress]:
    """The page asks q from now on and forgets older questions; its curves and agents, as far as a moment brings them.

    The others are in what is returned, for `follow`. Not in a thread, which might begin after that of a newer question
    and drop it, and whose picture would be drawn later. trouble : why there is nothing to ask
    """
    page.question, page.first = q, Curves(q)
    for topic in ("ahead", "limits", "fit"):
        page.drop(topic)
    if trouble:
        page.first = replace(page.first, failed=dict.fromkeys(METHODS, "the files cannot be used"), agents="no files")
        return iter(())
    asked = page.pool.ask(page.session, "curves", questions(q), pause=TOGETHER)
    for a in asked:
        if a.kind == "pause":
            break
        page.first = _with_answer(page.first, a)
    return asked


def questions(q: Question) -> list[Computation]:
    """What the pictures of a question need: the curves in ORDER, then the agents."""
    asked = q.without("seeds") if q.settings.sampling == "iid" else q
    curves: list[Computation] = [(answers.curve, (asked, name)) for name in ORDER]
    return [*curves, (answers.agents, (q.without("seeds", "scale", "probability"),))]


def _with_answer(known: Curves, a: Progress) -> Curves:
    return known.with_answer((*ORDER, AGENTS)[a.index], a.value)


def follow(
    page: OpenPage, known: Curves, asked: Iterator[Progress], draw: Put, settle: Put, before: Question | None = None
) -> None:
    """The other answers, drawn as they come; when sliders rest, what is taken along and what the next steps would ask.

    known, asked : of `begin`; before : the page's question before this one
    """
    q = known.question
    assert q is not None

    def put(state: Curves) -> Curves:
        if page.question is q:
            draw(state)
        return state

    for a in asked:
        known = put(_with_answer(known, a))
    time.sleep(CALM)
    if known.waiting or known.agents is None or page.question is not q:
        return
    settle(known)
    if q.settings.sampling != "iid" or not known.by_method:
        return
    known = put(replace(known, floors=floors(page, q, list(known.by_method))))
    for _ in page.pool.ask(page.session, "ahead", [one for n in next_steps(q, before) for one in questions(n)]):
        pass  # the pool remembers them
    time.sleep(REST)
    for found in limits(page, q, list(known.by_method)) if page.question is q else ():
        put(replace(known, limits=found))


def next_steps(q: Question, before: Question | None) -> list[Question]:
    """What the slider that was moved last would ask one step further, and one step back."""
    now, old = q.page, q.page if before is None else before.page
    sliders = [name for name, about in SETTINGS.items() if about.metadata["element"] == "slider"]
    moved = [name for name in sliders if getattr(now, name) != getattr(old, name)]
    name = moved[0] if len(moved) == 1 else "local_steps"
    value = getattr(now, name)
    places = sorted({*SETTINGS[name].metadata["offers"], value}, reverse=value < getattr(old, name))
    i = places.index(value)
    asked = [replace(q.page, **{name: v}) for v in (*places[i + 1 : i + 2], *places[max(i - 1, 0) : i])]
    return [Question.of(s, q.files) for s in asked]


def floors(page: OpenPage, q: Question, names: list[str]) -> dict[str, answers.Floor]:
    """What more rounds lead to, by method."""
    q = q.without("rounds", "seeds", "scale")
    asked = page.ask("limits", answers.floor, *((q, n) for n in names))
    return {names[a.index]: a.value for a in asked if a.kind == "done"}


def limits(page: OpenPage, q: Question, names: list[str]) -> Iterator[dict[str, float]]:
    """The step sizes below which methods are stable: those that a moment brings, then all; NaN where none is found."""
    q, found = q.without("step_size", "rounds", "seeds", "scale"), dict[str, float]()
    for a in page.ask("limits", answers.limit, *((q, n) for n in names), lane=LONG_LANE, pause=TOGETHER):
        if a.kind != "pause":
            found = {**found, names[a.index]: a.value if a.kind == "done" else math.nan}
        if a.kind == "pause" or len(found) == len(names):
            yield found


def fit_question(q: Question) -> Question:
    """What a fit depends on: files and columns."""
    of_files = ("problem", "target", "columns", *OF_PROBLEM["files"])
    return q.without(*(name for name in SETTINGS if name not in of_files))


def fit_table(page: OpenPage, q: Question, put: Put) -> None:
    """The fit of the reader's files with the question that it answers, or why there is none."""
    time.sleep(CALM)
    asked = fit_question(q)
    for a in page.ask("fit", answers.fit_table, (asked,)) if page.question is q else ():
        if page.question is q:
            put((asked, a.value))


def runs(page: OpenPage, q: Question, put: Put) -> None:
    """A simulation with its progress."""
    put(Runs(q, done=0.0))
    last = 0.0
    for a in page.ask("runs", answers.simulations, (q,), lane=LONG_LANE):
        if a.kind != "progress":
            put(Runs(q, tuple(a.value)) if a.kind == "done" else Runs(q, trouble=a.value))
            return
        now, (done, total) = time.monotonic(), a.value
        if now - last > REDRAW:
            last = now
            put(Runs(q, done=done / total if total else 0.0))
    put(Runs(q, trouble="Stopped; nothing is kept of it."))


def plan_question(q: Question) -> Question:
    """What a plan depends on: the problem alone. It is made for independent observations."""
    return q.without("step_size", "local_steps", "probability", "rounds", "seeds", "scale", "sampling", "thin")


def plans(page: OpenPage, q: Question, draw: Put) -> None:
    """A plan for each method, then the points of the trade-off between communications and observations."""
    q, epsilon = plan_question(q), q.page.epsilon

    def wanted() -> bool:
        return page.question is not None and plan_question(page.question) == q

    def put(state: Plans) -> Plans:
        if wanted():
            draw(state)
        return state

    state = put(Plans(q, busy="Looking for the cheapest run of each method …"))
    for a in page.ask("plans", answers.plan, *((q, epsilon, n) for n in METHODS), lane=LONG_LANE):
        state = put(state.with_answer(METHODS[a.index], a.value))
    if state.waiting or not wanted():
        return
    state = put(replace(state, busy="Looking for the trade-off between communications and observations …"))
    for a in page.ask("plans", answers.trade_off, *((q, epsilon, n) for n in state.by_method), lane=LONG_LANE):
        if a.kind == "done":
            state = put(replace(state, points=(*state.points, *a.value)))
    put(replace(state, busy=""))
