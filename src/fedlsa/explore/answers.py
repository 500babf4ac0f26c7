"""What the page asks for, as functions that a worker runs; what computes is loaded where it is first called, or ahead
of all questions (NEEDED) in the processes that answer."""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import engine, theory
from ..checks import Floats
from ..errors import ArgumentError, FedLSAError, FedLSAWarning, PrecisionError
from ..problems import Problem
from .page_settings import METHODS, OF_PROBLEM, SETTINGS, PageSettings, Stamps, call, fit_call, stamps
from .pool import Computation, Unfinished

if TYPE_CHECKING:
    import xarray as xr

    from ..engine.paths import Paths

NEEDED = tuple(f"fedlsa.{name}" for name in ("explore.answers", "theory.stationarity", "figures.agent_plane"))

Progress = Callable[[float, float], None]

AGENTS = "agents"  # beside methods, by whose names answers are known
ORDER = (AGENTS, "Scaffnew", "SCAFFLSA", "FedLSA")  # the longest first: two processes are then busy for the same time
DIGITS = 1e-2  # of a stability limit, relative
SHOWN = 20  # rounds whose inside is saved, or more if the cursor stands there
WALKED = 50  # rounds whose inside the page shows at most, if agents are few
POINTS_SENT = 8000  # of all walks: a tenth of a megabyte
PARTS = ("start", "drift", "noise")  # of an exact error, which is their sum
ROUNDING = 1e-20  # of the error at the start: a drift below it is none
BLOWN_UP = 1e3  # times the error at the start: nobody waits for such a run to come back
FINE = 20_000  # a walk is sent to this part of the picture's width: finer than a pixel, zoomed in as well
DRAWN_WIDTHS = 30.0  # of the picture: what ran further is drawn there, in its direction
MEANS = "Paths are means over the noise: a noisy run scatters about them."
UNSTABLE = "unstable: the noise grows without limit. Only the means are shown"


@dataclass(frozen=True)
class Question:
    """Settings, without the look of the page, and the files they speak of; changed : when these were written; page :
    all settings, with its look, in which equal questions may differ"""

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

    def about(self, name: str) -> Question:
        """The same for one method, whose answer does not depend on what is shown beside it."""
        return self.without("beside") if name in METHODS and self.settings.beside != "none" else self

    def problem(self) -> Problem:
        return call(self.settings, self.files).problem()


@dataclass(frozen=True, eq=False)
class Curve:
    """The error of one method: exact (what `theory.exact` makes its dataset of), or runs; bias : ||bias||^2."""

    method: str
    record: Mapping[str, Mapping[str, Any]] | None
    runs: xr.Dataset | None
    bias: float

    @property
    def exact(self) -> xr.Dataset | None:
        """The same as a dataset."""
        import xarray as xr

        return None if self.record is None else xr.Dataset(**self.record)

    def of(self, name: str) -> Floats:
        """What the exact curve holds under a name, at the recorded rounds."""
        assert self.record is not None
        return np.asarray(self.record["coords"][name] if name == "rounds" else self.record["data_vars"][name][1])

    @cached_property
    def end(self) -> tuple[float, dict[str, float]]:
        """The exact error after the last round, and the start, drift and noise of which it is the sum."""
        mse, *parts = (float(self.of(name)[-1]) for name in ("mse", *PARTS))
        return mse, dict(zip(PARTS, parts, strict=True))

    @cached_property
    def blown_up(self) -> int | None:
        """The first recorded round at which the error is far beyond its start, or not a number."""
        if self.record is None:
            return None
        mse = self.of("mse")
        lost = np.flatnonzero(~(mse <= BLOWN_UP * mse[0]))
        return int(self.of("rounds")[lost[0]]) if len(lost) else None


def curve(q: Question, name: str) -> Curve:
    """The exact error of a method (fl.theory.exact), or its simulation along trajectories, where that takes minutes."""
    from ..figures.agent_plane import squared_bias
    from ..theory.exact_curves import exact_record

    s, p = q.settings, q.problem()
    m = s.method(name, p.n_agents)
    if s.sampling == "markov":
        if p.chain is None:
            raise ArgumentError("observations must be independent for sites without a trajectory; got trajectories")
        return Curve(name, None, simulations(q, [name])[0], math.nan)
    record = exact_record(p, m, rounds=s.rounds, record=s.record())
    bias = squared_bias(p, m, s.order())
    found = Curve(name, record, None, bias)
    return replace(found, bias=0.0) if bias <= ROUNDING * float(found.of("mse")[0]) else found


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
    p = q.problem()
    found = theory.stationary(p, q.settings.method(name, p.n_agents))
    return Floor(found.drift, found.noise)


def limit(q: Question, name: str) -> float:
    """The step size below which the second moments of a method stay bounded, to two digits."""
    p = q.problem()
    return theory.stability_limit(p, q.settings.method(name, p.n_agents), tolerance=DIGITS)


def simulations(q: Question, names: Sequence[str] = (), progress: Progress | None = None) -> list[xr.Dataset]:
    """The seeds of methods, by default of all, at the rounds of their curves."""
    s, p = q.settings, q.problem()
    how: dict[str, Any] = {"sampling": s.order(), "record": s.record(), "progress": progress}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedLSAWarning)  # runs that diverge: the page says so itself
        return engine.simulate_grid(p, [s.method(n, p.n_agents) for n in names or s.shown()], s.rounds, s.seeds, **how)


def agents(q: Question) -> bytes:
    """Where the agents go, FedLSA beside SCAFFLSA, as JSON for scene.js (`plane_data`)."""
    from ..engine.paths import round_paths

    s, p = q.settings, q.problem()
    methods = replace(s, local_steps=s.used_steps).methods()[:2]
    walks = len(methods) * p.n_agents
    rounds = min(s.rounds, max(SHOWN, min(WALKED, POINTS_SENT // (8 * walks))))
    points = min(24, max(2, POINTS_SENT // (walks * rounds)))
    paths = [round_paths(p, m, rounds=rounds, points=points) for m in methods]
    names = [Path(f).stem for f in q.files] or [f"agent {c + 1}" for c in range(p.n_agents)]
    unmoved = q.without("moves").problem() if s.moves else p
    try:
        stable = theory.stationary(p, methods[0]).stable
    except PrecisionError:  # so near to the edge that rounding hides it
        stable = True
    shown = plane_data(paths, names, {"FedLSA": stable}, unmoved)
    return json.dumps(shown, separators=(",", ":")).encode()  # a tenth shorter without blanks


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # of a run that diverges
def plane_data(
    paths: Sequence[Paths], names: Sequence[str], stable: Mapping[str, bool], unmoved: Problem | None = None
) -> dict[str, Any]:
    """Where the agents go (runs of `round_paths` on one problem), in the plane where their own solutions differ most.

    stable : by method, whether second moments have a limit, else no end is marked; unmoved : the problem before a
        reader moved solutions, whose plane stays where it is
    """
    from ..figures import agent_plane

    runs = agent_plane.checked_paths(paths)
    problem = runs[0].problem
    plane = agent_plane.plane_of(problem if unmoved is None else unmoved, [p.theta[0] for p in runs])
    box = agent_plane.view_box(runs, plane, range(1, min(p.rounds for p in runs) + 1))
    width = box[1] - box[0]
    digits = max(0, math.ceil(math.log10(FINE / width)))

    def in_picture(theta: Floats, digits: int) -> Any:
        xy = plane.project(theta)
        far = np.max(np.abs(xy), axis=-1, keepdims=True)
        xy = np.where(far > DRAWN_WIDTHS * width, xy * (DRAWN_WIDTHS * width / far), xy)
        return finite_lists(np.round(xy, digits))

    methods = []
    for p in runs:
        name, end = type(p.algorithm).__name__, agent_plane.fixed_point(p)
        walks = [[list(chain.from_iterable(walk)) for walk in each] for each in in_picture(p.local, digits)]
        shown = {"name": name, "average": in_picture(p.theta, 12), "walks": walks}
        if not stable.get(name, True):
            shown |= {"end": None, "end_reason": UNSTABLE}
        elif end is not None:
            shown["end"] = in_picture(end, 12)
        methods.append(shown)
    own = finite_lists(np.round(plane.project(problem.theta_star_local), 12))
    each = zip(names, own, problem.weights.tolist(), strict=True)
    agents = [{"name": name, "own": None if None in xy else xy, "weight": w} for name, xy, w in each]
    said = f"{MEANS} {agent_plane.plane_words(plane)}".rstrip()
    star = finite_lists(np.round(plane.project(problem.theta_star), 12))
    axes = plane.axes.tolist()  # by which a move in the picture is one of a solution
    return {"theta_star": star, "axes": axes, "agents": agents, "methods": methods, "caption": said}


def finite_lists(xy: Floats) -> Any:
    """Numbers as lists; JSON has no others than finite ones."""
    values: NDArray[np.object_] = xy.astype(object)
    values[~np.isfinite(xy)] = None
    return values.tolist()


def fit_table(q: Question) -> str:
    """The fit of the files' columns, as `fl.fit` sums it up, with its warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", FedLSAWarning)
        found = fit_call(q.settings, q.files).fit()
    told = dict.fromkeys(str(w.message) for w in said if issubclass(w.category, FedLSAWarning))
    return "\n".join([str(found.summary()), *told])


def plan(q: Question, epsilon: float, name: str) -> theory.Plan | str:
    """The cheapest run of a method that reaches the accuracy, or why there is none."""
    try:
        return theory.plan(q.problem(), epsilon, method=_planned(q, name))
    except ArgumentError as error:
        return str(error)


def trade_off(q: Question, epsilon: float, name: str) -> list[theory.Plan]:
    """Its plans with fewer and with more observations per agent."""
    return theory.trade_off(q.problem(), epsilon, _planned(q, name))


def _planned(q: Question, name: str) -> Any:
    """The method of which a plan finds step size and local steps."""
    return name.lower() if name in METHODS else q.settings.method(name, q.problem().n_agents)


def order(q: Question) -> tuple[str, ...]:
    """What `questions` are about, one by one."""
    return *ORDER, *q.settings.shown()[len(METHODS) :]


def questions(q: Question) -> list[Computation]:
    """What the pictures of a question need, in `order`."""
    asked = q.without("seeds") if q.settings.sampling == "iid" else q
    first = (agents, (q.without("seeds", "scale", "probability", "beside"),))
    return [first, *((curve, (asked.about(name), name)) for name in order(q)[1:])]


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
    return q.without("step_size", "local_steps", "probability", "seeds", "scale", "sampling", "thin", "beside")


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


# ---- the map over step sizes and local steps: which method has the smallest exact error after the rounds of the page.
# All methods send as much in a round, so that the same rounds are the same cost.

STEP_SIZES = tuple(SETTINGS["step_size"].metadata["offers"][::4])
MAP_STEPS = (1, 10, 100, 1000, 10000, 3, 30, 300, 3000)  # coarse first, then what lies between
ROW_SECONDS = 20.0  # of the processor, after which the rest of a row is left out: other long work waits for it
LEFT_OUT = (
    f"Left out: the row has taken {ROW_SECONDS:g} s. Draw the map again and it is tried again; "
    "with fewer agents it is complete."
)
ALIKE = 0.01  # relative: errors that differ by less are no reason to prefer a method


@dataclass(frozen=True)
class MapCell:
    """One place of the map: exact errors by method, the best of those that are stable, and why one is refused."""

    errors: dict[str, float]
    best: str = ""
    why: str = ""


def map_row(q: Question, local_steps: int) -> tuple[MapCell, ...]:
    """The cells of one number of local steps; below the largest step size at which the best method is stable, all are
    taken to be, as `stability_limit` does."""
    from ..theory.exact_curves import exact_record
    from ..theory.problem_moments import moments
    from ..theory.stationarity import margin_at

    m, cells, stable = moments(q.problem()), list[MapCell](), False
    end, row = time.process_time() + ROW_SECONDS, tuple[MapCell, ...]
    for eta in reversed(STEP_SIZES):
        if time.process_time() > end:  # however busy the machine is with others
            cells.append(MapCell({}, why=LEFT_OUT))
            row = Unfinished
            continue
        s = replace(q.settings, step_size=eta, local_steps=local_steps)
        errors, lasting, why = dict[str, float](), list[str](), ""
        for name in METHODS:
            try:
                mse = exact_record(m, s.method(name), s.rounds, record=[0, s.rounds])["data_vars"]["mse"][1]
                errors[name] = float(mse[-1])
                lasting += [name] * bool(mse[-1] <= BLOWN_UP * mse[0])
            except FedLSAError as error:
                why = f"{name}: {error}"
        settled = [n for n in lasting if stable or margin_at(m, s.method(n), eta) > 0]
        least = min((errors[n] for n in settled), default=math.nan)
        best = next((n for n in settled if errors[n] <= (1 + ALIKE) * least), "")  # the simplest of those alike
        stable = stable or bool(best)
        cells.append(MapCell(errors, best, why))
    return row(reversed(cells))


def row_data(row: Sequence[MapCell], steps: int) -> list[list[Any]]:
    """A row as the page draws it: of each cell what is best, the power of ten of its error, and the cell in words."""
    found = []
    for eta, c in zip(STEP_SIZES, row, strict=True):
        power = round(math.log10(c.errors[c.best]), 3) if c.best and c.errors[c.best] > 0 else 0.0
        found.append([c.best or ("unstable" if c.errors else "refused"), power, _describe(c, eta, steps)])
    return found


def _describe(c: MapCell, eta: float, steps: int) -> str:
    """A cell in words, which are shown and read aloud."""
    place = f"Step size {eta:g}, {steps} local step{'s' * (steps > 1)}"
    errors = ", ".join(f"{n} {c.errors[n]:.3g}" for n in METHODS if n in c.errors)
    what = f"{c.best} is best ({errors})" if c.best else f"no method is stable ({errors})" if errors else "refused"
    return f"{place}: {what}.{' ' + c.why if c.why else ''}"
