"""An open page and what it knows so far. Each answer is a value that is replaced, never changed."""

from __future__ import annotations

import atexit
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Self

import xarray as xr

from ..theory.planner import Plan
from . import answers
from .answers import Floor, Question
from .page_settings import METHODS, PageSettings
from .pool import SESSION, Pool
from .pool_worker import Progress
from .words import is_unstable

AGENTS = "agents"  # beside methods, by whose names answers are known


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


@cache
def common_pool() -> Pool:
    """The one pool of this process."""
    pool = Pool(warm=answers.warm)
    atexit.register(pool.close)
    return pool


@dataclass(eq=False)
class OpenPage:
    """An open page, which asks the pool under a name of its own.

    question, plans : its newest, for what must not run again with them; first : what a moment brought of the question
    values : of its sliders; sent : the number of the message that brought them
    """

    pool: Pool
    session: str
    question: Question | None = None
    first: Curves = field(default_factory=Curves)
    plans: Plans = field(default_factory=Plans)
    values: dict[str, Any] = field(default_factory=dict)
    sent: int = 0

    @classmethod
    def of(cls, request: Any) -> OpenPage:
        """The page of a request; its name is the one under which the server hears that it is closed."""
        known = {} if request is None else dict(request.query_params)
        session = str(known.get(SESSION, [uuid.uuid4().hex])[0])
        return cls(common_pool(), session)

    def newest(self, known: Curves) -> Curves:
        """The curves that a thread has put, unless they are those of an older question."""
        return known if known.question is self.question else self.first

    def ask(self, topic: str, function: Callable[..., Any], *given: tuple[Any, ...], **how: Any) -> Iterator[Progress]:
        """Answers of one function to each of the arguments given, as they come; how : see `Pool.ask`."""
        return self.pool.ask(self.session, topic, [(function, arguments) for arguments in given], **how)

    def drop(self, topic: str) -> None:
        """Give up what is still open on a topic."""
        self.pool.drop(self.session, topic)
