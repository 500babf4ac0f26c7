"""What the page asks for, as functions that a worker runs: curves, limits, paths, simulations and plans."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from .. import theory
from ..algorithms import Algorithm
from ..engine import simulate_grid
from ..engine.paths import round_paths
from ..errors import ArgumentError, FedLSAWarning, PrecisionError
from ..figures.agent_plane import level
from ..problems import Problem
from ..theory.planner import Plan
from .page_problem import Stamps, call, fit_call, stamps
from .page_settings import METHODS, OF_PROBLEM, SETTINGS, PageSettings
from .pool_worker import Computation
from .scene_plane import plane_data

Progress = Callable[[float, float], None]

ORDER = ("FedLSA", "Scaffnew", "SCAFFLSA")  # two processes are then busy for the same time
AGENTS = "agents"  # beside methods, by whose names answers are known
DIGITS = 1e-2  # of a stability limit, relative
SHOWN = 20  # rounds whose inside is saved, or more if the cursor stands there
WALKED = 50  # rounds whose inside the page shows at most, if agents are few
POINTS_SENT = 8000  # of all walks: a tenth of a megabyte
PARTS = ("start", "drift", "noise")  # of an exact error, which is their sum
ROUNDING = 1e-20  # of the error at the start: a drift below it is none
BLOWN_UP = 1e3  # times the error at the start: nobody waits for such a run to come back


@dataclass(frozen=True)
class Question:
    """Settings and the files they speak of; what is only about the look of the page is left at its default.

    changed : when the files were written, so that files with other contents are another question
    page : all settings of the page, with its look; questions that differ in nothing else are equal
    """

    settings: PageSettings
    files: tuple[str, ...] = ()
    changed: Stamps = ()
    page: PageSettings = field(default=PageSettings(), compare=False)

    @classmethod
    def of(cls, s: PageSettings, files: tuple[str, ...] = ()) -> Question:
        named = files if s.problem == "files" else ()
        return cls(s, named, stamps(named), s).without("x", "epsilon", "round")

    def without(self, *names: str) -> Question:
        """The same with some settings at their defaults: what an answer does not depend on is asked once."""
        defaults = {name: SETTINGS[name].default for name in names}
        return replace(self, settings=replace(self.settings, **defaults))

    def problem(self) -> Problem:
        return call(self.settings, self.files).problem()


@dataclass(frozen=True, eq=False)
class Curve:
    """The error of one method: exact, or the runs where there is no exact curve; bias : ||bias||^2 where predicted."""

    method: str
    exact: xr.Dataset | None
    runs: xr.Dataset | None
    bias: float

    @cached_property
    def end(self) -> tuple[float, dict[str, float]]:
        """The exact error after the last round, and the start, drift and noise of which it is the sum."""
        assert self.exact is not None
        mse, *parts = (float(self.exact[name].values[-1]) for name in ("mse", *PARTS))
        return mse, dict(zip(PARTS, parts, strict=True))

    @cached_property
    def blown_up(self) -> int | None:
        """The first recorded round at which the error is far beyond its start, or not a number."""
        if self.exact is None:
            return None
        mse = self.exact["mse"].values
        lost = np.flatnonzero(~(mse <= BLOWN_UP * mse[0]))
        return int(self.exact["rounds"].values[lost[0]]) if len(lost) else None


def curve(q: Question, name: str) -> Curve:
    """The exact error of a method (fl.theory.exact), or its simulation along trajectories, where exact curves take
    minutes."""
    s, p = q.settings, q.problem()
    m = s.method(name)
    if s.sampling == "markov":
        if p.chain is None:
            raise ArgumentError("observations must be independent for sites without a trajectory; got trajectories")
        return Curve(name, None, simulations(q, [name])[0], math.nan)
    e = theory.exact(p, m, rounds=s.rounds, record=s.record())
    bias = level(p, m, s.order())
    found = Curve(name, e, None, 0.0 if bias <= ROUNDING * float(e["mse"][0]) else bias)
    _ = found.end, found.blown_up  # known from here on: the page, which draws at once, need not look
    return found


@dataclass(frozen=True)
class Floor:
    """What more and more rounds lead to: drift and noise in the limit, infinite where there is none."""

    drift: float
    noise: float

    @property
    def mse(self) -> float:
        return self.drift + self.noise


def floor(q: Question, name: str) -> Floor:
    """The error of a method that more rounds do not remove (fl.theory.stationary)."""
    found = theory.stationary(q.problem(), q.settings.method(name))
    return Floor(found.drift, found.noise)


def limit(q: Question, name: str) -> float:
    """The step size below which the second moments of a method stay bounded, to two digits."""
    return theory.stability_limit(q.problem(), q.settings.method(name), tolerance=DIGITS)


def simulations(q: Question, names: Sequence[str] = METHODS, progress: Progress | None = None) -> list[xr.Dataset]:
    """The seeds of methods, at the rounds of their curves; progress : called with updates done and in all."""
    s = q.settings
    how: dict[str, Any] = {"sampling": s.order(), "record": s.record(), "progress": progress}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedLSAWarning)  # runs that diverge: the page says so itself
        return simulate_grid(q.problem(), [s.method(n) for n in names], s.rounds, s.seeds, **how)


def agents(q: Question) -> bytes:
    """Where the agents go, FedLSA beside SCAFFLSA, as JSON for scene.js (`plane_data`)."""
    s, p = q.settings, q.problem()
    methods = replace(s, local_steps=s.used_steps).methods()[:2]
    walks = len(methods) * p.n_agents
    rounds = min(s.rounds, max(SHOWN, min(WALKED, POINTS_SENT // (8 * walks))))
    points = min(24, max(2, POINTS_SENT // (walks * rounds)))
    paths = [round_paths(p, m, rounds=rounds, points=points) for m in methods]
    names = [Path(f).stem for f in q.files] or [f"agent {c + 1}" for c in range(p.n_agents)]
    unmoved = q.without("moves").problem() if s.moves else p
    shown = plane_data(paths, names, {"FedLSA": _settles(p, methods[0])}, unmoved)
    return json.dumps(shown, separators=(",", ":")).encode()  # a tenth shorter without blanks


def _settles(p: Problem, m: Algorithm) -> bool:
    """Whether second moments have a limit; so near to the edge that rounding hides it, they are taken to have one."""
    try:
        return theory.stationary(p, m).stable
    except PrecisionError:
        return True


def fit_table(q: Question) -> str:
    """The fit of the files' columns, as `fl.fit` sums it up, with its warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", FedLSAWarning)
        found = fit_call(q.settings, q.files).fit()
    told = dict.fromkeys(str(w.message) for w in said if issubclass(w.category, FedLSAWarning))
    return "\n".join([str(found.summary()), *told])


def plan(q: Question, epsilon: float, name: str) -> Plan | str:
    """The cheapest run of a method that reaches the accuracy, or why there is none."""
    try:
        return theory.plan(q.problem(), epsilon, method=name.lower())
    except ArgumentError as error:
        return str(error)


def trade_off(q: Question, epsilon: float, name: str) -> list[Plan]:
    """Its plans with fewer and with more observations per agent."""
    return theory.trade_off(q.problem(), epsilon, name.lower())


def questions(q: Question) -> list[Computation]:
    """What the pictures of a question need: the curves in ORDER, then the agents."""
    asked = q.without("seeds") if q.settings.sampling == "iid" else q
    curves: list[Computation] = [(curve, (asked, name)) for name in ORDER]
    return [*curves, (agents, (q.without("seeds", "scale", "probability"),))]


def next_steps(q: Question, moved: str = "", before: str = "") -> list[Question]:
    """What the slider that was moved last would ask one step further, and one step back; before : its value then."""
    name = moved if moved in SETTINGS and SETTINGS[moved].metadata["element"] == "slider" else "local_steps"
    value = getattr(q.page, name)
    if value is None:
        return []
    falls = name == moved and before.replace(".", "", 1).isdecimal() and value < float(before)
    places = sorted({*SETTINGS[name].metadata["offers"], value}, reverse=falls)
    i = places.index(value)
    asked = [replace(q.page, **{name: v}) for v in (*places[i + 1 : i + 2], *places[max(i - 1, 0) : i])]
    return [Question.of(s, q.files) for s in asked]


def plan_question(q: Question) -> Question:
    """What a plan depends on: the problem alone. It is made for independent observations."""
    return q.without("step_size", "local_steps", "probability", "rounds", "seeds", "scale", "sampling", "thin")


def map_question(q: Question) -> Question:
    """What the map depends on: the problem and the rounds. It is made for independent observations."""
    return q.without("step_size", "local_steps", "probability", "seeds", "scale", "sampling", "thin")


def fit_question(q: Question) -> Question:
    """What a fit depends on: files and columns."""
    of_files = ("problem", "target", "columns", *OF_PROBLEM["files"])
    return q.without(*(name for name in SETTINGS if name not in of_files))


DEPENDS_ON: dict[str, Callable[[Question], Any]] = {
    "curves": lambda q: q, "simulate": lambda q: q, "map": map_question, "fit": fit_question,
    "plans": lambda q: (plan_question(q), q.page.epsilon),
}  # fmt: skip


def key(asked: Any) -> str:
    """A short name of what is asked, by which the page knows whether something else is."""
    q, *more = asked if isinstance(asked, tuple) else (asked,)
    return hashlib.sha256(repr((q.settings, q.files, q.changed, more)).encode()).hexdigest()[:12]


def warm() -> None:
    """Load what a process's first question would otherwise wait for."""
    q = Question(PageSettings(rounds=10))
    for name in METHODS:
        curve(q, name)
    agents(q)
