"""What the page knows so far, and the threads that keep it up to date while processes compute.

Each state is a value that is replaced, never changed; marimo draws again whatever reads it.
"""

from __future__ import annotations

import atexit
import math
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Self

import xarray as xr

from ..theory.planner import Plan
from . import answers
from .answers import Floor, Question
from .page_settings import METHODS, OF_PROBLEM, SETTINGS, PageSettings
from .pool import SESSION, Pool
from .pool_worker import LONG_LANE, Answer, Computation
from .words import is_unstable

ORDER = ("FedLSA", "Scaffnew", "SCAFFLSA")  # two processes are then busy for the same time
AGENTS = "agents"  # what is asked after the curves
TOGETHER = 0.1  # seconds within which answers are drawn together, and for which a cell waits for them
CALM = 0.4  # seconds without a newer question before files and addresses are made
REST = 0.8  # seconds more before long work begins, whose process a newer question would end
REDRAW = 0.2  # seconds between two pictures of progress

Put = Callable[[Any], None]
Wanted = Callable[[], bool]  # whether the question is still the page's


@cache
def common_pool() -> Pool:
    """The one pool of this process."""
    pool = Pool(warm=answers.warm)
    atexit.register(pool.close)
    return pool


@dataclass(frozen=True)
class OpenPage:
    """An open page, which asks the pool under a name of its own."""

    pool: Pool
    session: str

    @classmethod
    def of(cls, request: Any) -> OpenPage:
        """The page of a request; its name is the one under which the server hears that it is closed."""
        known = {} if request is None else dict(request.query_params)
        session = str(known.get(SESSION, [uuid.uuid4().hex])[0])
        return cls(common_pool(), session)

    def ask(self, topic: str, function: Callable[..., Any], *given: tuple[Any, ...], **how: Any) -> Iterator[Answer]:
        """Answers of one function to each of the arguments given, as they come; how : see `Pool.ask`."""
        return self.pool.ask(self.session, topic, [(function, arguments) for arguments in given], **how)

    def drop(self, topic: str) -> None:
        """Give up what is still open on a topic."""
        self.pool.drop(self.session, topic)


@dataclass(frozen=True, eq=False)
class MethodAnswers:
    """What is known about one question, by method; failed : why a method has no answer."""

    question: Question | None = None
    by_method: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> PageSettings:
        return PageSettings() if self.question is None else self.question.page

    @property
    def waiting(self) -> list[str]:
        return [n for n in METHODS if n not in self.by_method and n not in self.failed]

    def with_answer(self, name: str, answer: Any) -> Self:
        """The same with the answer of one more method; a text says why there is none."""
        if isinstance(answer, str):
            return replace(self, failed={**self.failed, name: answer})
        return replace(self, by_method={**self.by_method, name: answer})


@dataclass(frozen=True, eq=False)
class Curves(MethodAnswers):
    """Curves of one question, and as far as they are there: stable step sizes, and what more rounds lead to.

    agents : where they go, as JSON, or why that cannot be seen; None as long as neither is known
    """

    limits: dict[str, float] = field(default_factory=dict)
    floors: dict[str, Floor] = field(default_factory=dict)
    agents: bytes | str | None = None

    def with_answer(self, name: str, answer: Any) -> Self:
        return replace(self, agents=answer) if name == AGENTS else super().with_answer(name, answer)

    @property
    def unstable(self) -> list[str]:
        """Methods whose second moments have no limit at this step size, as far as it is known."""
        s, limits, floors = self.settings, self.limits, self.floors
        return [n for n, c in self.by_method.items() if is_unstable(s, c, limits.get(n), floors.get(n))]


@dataclass(frozen=True, eq=False)
class Plans(MethodAnswers):
    """Plans of each method for the accuracy of the settings; points : of the trade-off."""

    points: tuple[Plan, ...] = ()
    busy: str = ""


@dataclass(frozen=True, eq=False)
class Runs:
    """Simulated seeds of one question; done : the share that is finished, None when nothing runs."""

    question: Question | None = None
    results: tuple[xr.Dataset, ...] = ()
    done: float | None = None
    trouble: str = ""

    def of(self, q: Question | None) -> tuple[xr.Dataset, ...]:
        return self.results if q is not None and self.question == q else ()


def ask_curves(page: OpenPage, q: Question) -> Iterator[Answer]:
    """Ask for the three curves and the agents, and drop what is open on older questions.

    Not in a thread, which might begin after that of a newer question and drop it.
    """
    for topic in ("ahead", "limits", "fit"):
        page.drop(topic)
    return page.pool.ask(page.session, "curves", questions(q), pause=TOGETHER)


def questions(q: Question) -> list[Computation]:
    """What the pictures of a question need: the curves in ORDER, then the agents."""
    asked = q.without("seeds") if q.settings.sampling == "iid" else q
    curves: list[Computation] = [(answers.curve, (asked, name)) for name in ORDER]
    return [*curves, (answers.agents, (q.without("seeds", "scale", "probability"),))]


def at_once(q: Question, asked: Iterator[Answer]) -> Curves:
    """What comes within a moment; asked : from `ask_curves`, has the others.

    A cell waits for them: what it puts itself is drawn sooner than what a thread puts.
    """
    state = Curves(q)
    for a in asked:
        if a.kind == "pause":
            break
        state = state.with_answer((*ORDER, AGENTS)[a.index], a.value)
    return state


def question(
    page: OpenPage,
    first: Curves,
    asked: Iterator[Answer],
    wanted: Wanted,
    put: Put,
    put_settled: Put,
    before: Question | None = None,
) -> None:
    """The other curves of a setting, and when sliders rest also what is taken along and the stable step sizes.

    first : from `at_once`; before : the page's last question
    """
    q = first.question
    assert q is not None
    put, put_settled = _while(wanted, put), _while(wanted, put_settled)
    known = curves(first, asked, put)
    time.sleep(CALM)
    if known is None or not wanted():
        return
    put_settled(known)
    if q.settings.sampling != "iid" or not known.by_method:
        return
    known = floors(page, q, known, put)
    for _ in page.pool.ask(page.session, "ahead", [one for n in next_steps(q, before) for one in questions(n)]):
        pass  # the pool remembers them
    time.sleep(REST)
    if wanted():
        limits(page, q, known, put)


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


def _while(wanted: Wanted, put: Put) -> Put:
    """Puts nothing any more once a newer question has come."""
    return lambda state: put(state) if wanted() else None


def curves(state: Curves, asked: Iterator[Answer], put: Put) -> Curves | None:
    """All three curves and the agents, those that are missing drawn as they finish; None if dropped before the last."""
    for a in asked:
        state = state.with_answer((*ORDER, AGENTS)[a.index], a.value)
        put(state)
    return None if state.waiting or state.agents is None else state


def floors(page: OpenPage, q: Question, state: Curves, put: Put) -> Curves:
    """What more rounds lead to, of the methods that have curves; drawn when all are known."""
    q, asked = q.without("rounds", "seeds", "scale"), [n for n in METHODS if n in state.by_method]
    for a in page.ask("limits", answers.floor, *((q, n) for n in asked)):
        if a.kind == "done":
            state = replace(state, floors={**state.floors, asked[a.index]: a.value})
    put(state)
    return state


def fit_question(q: Question) -> Question:
    """What a fit depends on: files and columns."""
    of_files = ("problem", "target", "columns", *OF_PROBLEM["files"])
    return q.without(*(name for name in SETTINGS if name not in of_files))


def fit_table(page: OpenPage, q: Question, wanted: Wanted, put: Put) -> None:
    """The fit of the reader's files with the question that it answers, or why there is none."""
    time.sleep(CALM)
    asked = fit_question(q)
    for a in page.ask("fit", answers.fit_table, (asked,)) if wanted() else ():
        if wanted():
            put((asked, a.value))


def limits(page: OpenPage, q: Question, state: Curves, put: Put) -> None:
    """The step sizes below which methods are stable, as they are found."""
    q = q.without("step_size", "rounds", "seeds", "scale")
    asked = [n for n in METHODS if n in state.by_method]
    for a in page.ask("limits", answers.limit, *((q, n) for n in asked), lane=LONG_LANE, pause=TOGETHER):
        if a.kind != "pause":
            limit = a.value if a.kind == "done" else math.nan
            state = replace(state, limits={**state.limits, asked[a.index]: limit})
        if a.kind == "pause" or len(state.limits) == len(asked):
            put(state)


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


def plans(page: OpenPage, q: Question, wanted: Wanted, put: Put) -> None:
    """A plan for each method, then the points of the trade-off between communications and observations."""
    put = _while(wanted, put)
    q, epsilon = plan_question(q), q.page.epsilon
    state = Plans(q, busy="Looking for the cheapest run of each method …")
    put(state)
    for a in page.ask("plans", answers.plan, *((q, epsilon, n) for n in METHODS), lane=LONG_LANE):
        state = state.with_answer(METHODS[a.index], a.value)
        put(state)
    if state.waiting or not wanted():
        return  # another question has come
    state = replace(state, busy="Looking for the trade-off between communications and observations …")
    put(state)
    for a in page.ask("plans", answers.trade_off, *((q, epsilon, n) for n in state.by_method), lane=LONG_LANE):
        if a.kind == "done":
            state = replace(state, points=(*state.points, *a.value))
            put(state)
    put(replace(state, busy=""))
