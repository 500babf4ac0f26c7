"""Error against cost as plain data: lines, and the axes on which they stand.

`matplotlib_figures.draw_charts` draws a `Chart` for files, pages/static/chart.js for a page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..algorithms import PowerLength, PowerStep
from ..checks import Floats
from ..results import recipe
from ..results.recipe import full_text
from ..value_objects import shown as in_short
from .theme import INK, METHOD_MARKERS, METHODS, ROLES, LineStyle

if TYPE_CHECKING:
    import xarray as xr

COSTS = {
    "communications": "communications",
    "samples": "observations per agent",
    "uploads": "messages to the server, all agents",
    "bytes": "bytes, up and down, all agents",
}
SCALES = ("linear", "log")  # of an axis
MSE = "mean squared error"
ERROR = f"{MSE}  ‖θ \u2212 θ⋆‖²"
HEADROOM = 30.0  # how far above the largest sound error the axis may reach for runs that diverge
OUT_OF_SIGHT = 100.0  # times the ceiling: there what is above it is drawn, so that a line leaves the figure
FAR_BELOW = 30.0  # times below all lines a level would press them together


@dataclass(frozen=True, eq=False)
class Line:
    """One line of a figure, or a row of marks.

    x, y : (n,), with NaN where there is a gap; band : lower and upper edge of a tint, (n,) each
    label : its name in the legend, "" for none; colour : "#rrggbb"; role : what it is, of theme.ROLES
    deviation : (n,), half the length of error bars; dash, marker, width, size : where they differ from the role's
    steps : whether y holds until the next x; name : what it is called under the pointer, by default its label
    """

    x: Floats
    y: Floats
    label: str = ""
    colour: str = INK
    role: str = "curve"
    band: tuple[Floats, Floats] | None = None
    deviation: Floats | None = None
    dash: str = ""
    marker: str = ""
    width: float = 0.0
    size: float = 0.0
    steps: bool = False
    name: str = ""

    @property
    def style(self) -> LineStyle:
        given = {"dash": self.dash, "marker": self.marker, "width": self.width, "size": self.size}
        return replace(ROLES[self.role], **{name: value for name, value in given.items() if value})  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Chart:
    """Lines on one pair of axes, which x and y name.

    x_scale, y_scale : "linear" or "log"; where costs start at 0, their logarithmic axis is linear up to the first one
    ceiling : the largest error that is shown; limits, x_limits : of y and x, None for what holds all lines
    x_ticks : where numbers stand on the axis of costs, None for round ones
    corner : words in the lower left corner; title_colour : of the title, where it names a line
    plane : whether it is a map: both axes in one unit, without numbers
    """

    lines: Sequence[Line]
    x: str = COSTS["communications"]
    y: str = ERROR
    title: str = ""
    x_scale: str = "linear"
    y_scale: str = "log"
    ceiling: float = math.inf
    limits: tuple[float, float] | None = None
    x_limits: tuple[float, float] | None = None
    x_ticks: Floats | None = None
    corner: str = ""
    title_colour: str = ""
    plane: bool = False

    @property
    def span(self) -> tuple[float, float]:
        """The first x and the last."""
        if self.x_limits is not None:
            return self.x_limits
        x = np.concatenate([line.x for line in self.lines])
        return float(np.nanmin(x)), float(np.nanmax(x))


@dataclass(frozen=True, eq=False)
class ChartRows:
    """Rows of charts that make one figure.

    notes : what lines, bands and dashes mean; panel : width and height of a chart with its labels, in inches
    share : "row", "all" or "none", for one vertical axis per row, in all, or per chart
    """

    rows: Sequence[Sequence[Chart]]
    notes: Sequence[str] = ()
    panel: tuple[float, float] = (7.0, 3.5)
    share: str = "row"

    def limits(self) -> list[list[tuple[float, float]]]:
        """The vertical limits of every chart: its own, or those that it shares."""
        every = [chart for row in self.rows for chart in row]
        return [
            [c.limits or error_limits({"row": row, "all": every, "none": [c]}[self.share]) for c in row]
            for row in self.rows
        ]


def level(value: float, lines: Sequence[Line], label: str = "", colour: str = INK) -> Line:
    """A prediction: a horizontal line as long as the others."""
    return Line(np.array(Chart(lines).span), np.array([value, value]), label, colour, "prediction")


def add_prediction(chart: Chart, value: float, label: str, symbol: str) -> Chart:
    """The chart with a dashed level, or, where that would lie far below all lines, with its value in the corner."""
    if not value > 0:
        return chart
    y = np.concatenate([line.y for line in chart.lines])
    if value <= y.min(initial=math.inf, where=np.isfinite(y) & (y > 0)) / FAR_BELOW:
        return replace(chart, corner=f"{symbol} = {power(value)}")
    return replace(chart, lines=[*chart.lines, level(value, chart.lines, label)])


def mean_line(x: Floats, values: Floats, label: str, colour: str, width: float = 0.0) -> Line:
    """The mean of values (seed, n), with a band from their 10% to their 90% quantile."""
    low, high = np.quantile(values, (0.1, 0.9), axis=0)
    return Line(x, values.mean(axis=0), label, colour, band=(low, high), width=width)


def method_line(name: str, x: Floats, y: Floats, role: str = "marks") -> Line:
    """Marks in the colour and shape of a method."""
    return Line(x, y, name, METHODS[name], role, marker=METHOD_MARKERS[name])


def error_ceiling(errors: Sequence[Floats], bounded: Sequence[bool] | None = None) -> float:
    """The largest error worth showing: those that grow without bound pass every scale.

    bounded : which do not grow without bound; if not given, those whose last value is not far above all of the first
    half of their curve. An error that rises from 0 to its limit is bounded: it has come most of the way by then.
    """
    keep = [not _grows(e) for e in errors] if bounded is None else bounded
    tops = [float(e[0]) for e in errors if 0 < e[0] < math.inf]
    tops += [float(e.max(initial=0.0, where=np.isfinite(e))) for e, ok in zip(errors, keep, strict=True) if ok]
    return HEADROOM * (max(tops, default=0.0) or 1.0)


def _grows(error: Floats) -> bool:
    early = float(error[: (len(error) + 1) // 2].max())
    return not np.isfinite(error).all() or 0 < HEADROOM * early < float(error[-1])


def first_beyond(error: Floats, ceiling: float) -> int | None:
    """The first recorded place at which an error is beyond the ceiling and from which it does not come back."""
    if error[-1] <= ceiling:
        return None
    inside = np.flatnonzero(error <= ceiling)
    return int(inside[-1]) + 1 if len(inside) else 0


def error_limits(charts: Iterable[Chart]) -> tuple[float, float]:
    """A logarithmic axis for all lines and bands, as far as the ceiling, with a little room on both sides."""
    shown = [np.empty(0)]
    for chart in charts:
        shown += [np.minimum(v, chart.ceiling) for line in chart.lines for v in (line.y, *(line.band or ()))]
    values = np.concatenate(shown)
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return 0.1, 10.0
    room = max((values.max() / values.min()) ** 0.05, 1.05)
    return float(values.min() / room), float(values.max() * room)


def number(value: float) -> str:
    """A cost on an axis: thin spaces between thousands, no digits behind the point but for small fractions."""
    if value < 100 and value != round(value):
        return f"{value:.3g}" if value >= 1e-3 else power(value)
    return f"{value:,.0f}".replace(",", "\u2009")


def power(value: float) -> str:
    """A small number in print: 6 · 10⁻¹⁴."""
    return printed(f"{value:.0e}")


def printed(number: str) -> str:
    """A number as Python writes it, 3.2e-05, in print: 3.2 · 10⁻⁵."""
    digits, e, exponent = number.partition("e")
    if not e:
        return number
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "\u207b⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digits}\u2009·\u200910{raised}"


# What is drawn of the seeds of a result: their mean, two quantiles, and those that diverged.


@dataclass(frozen=True, eq=False)
class SeedSummary:
    """What is drawn of one result: x, mean, low, high (R,); the runs that diverged, (k, R), NaN from there on."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats
    diverged: Floats
    seeds: int
    first_diverged: int

    def line(self, label: str, colour: str, role: str = "curve", dash: str = "") -> Line:
        """The mean over seeds, with the band between the two quantiles."""
        return Line(self.x, self.mean, label, colour, role, (self.low, self.high), dash=dash)

    def diverged_lines(self, colour: str, ceiling: float) -> list[Line]:
        """Each run that diverged as a thin line of its own, with a cross where it leaves the figure."""
        out = []
        for run in self.diverged:
            inside = np.flatnonzero(run <= ceiling)  # NaN is not
            if len(inside):
                last = int(inside[-1])
                out.append(Line(self.x[: last + 2], run[: last + 2], "", colour, "diverged"))
                out.append(Line(self.x[[last]], run[[last]], "", colour, "departure"))
        return out

    def divergence_notes(self, label: str) -> list[str]:
        count = len(self.diverged)
        if not count:
            return []
        note = f"{count} of {self.seeds} seeds of {label} diverged (\u00d7), the first in round {self.first_diverged}"
        return [note + ("; they are not in the mean." if count < self.seeds else ".")]


def summarise_seeds(result: xr.Dataset, band: tuple[float, float], x: str, unit: float = 1.0) -> SeedSummary:
    """The mean and two quantiles over the seeds that did not diverge; if all did, of all up to the first that did.

    unit : in which the cost x is counted
    """
    error = result["squared_error"].values
    at = result["diverged_at"].values
    sound = error[at < 0] if (at < 0).any() else error
    with np.errstate(invalid="ignore", over="ignore"):
        mean = sound.mean(axis=0)
        low, high = np.quantile(sound, band, axis=0)
    first = int(at[at >= 0].min()) if (at >= 0).any() else -1
    return SeedSummary(cost(result, x) / unit, mean, low, high, error[at >= 0], len(error), first)


def cost(result: xr.Dataset, x: str) -> Floats:
    """What a run has cost at its recorded rounds, on average over seeds."""
    if x == "bytes" and "bytes" not in result:  # eight for each number, up and down
        return 2 * 8 * int(result.attrs["dim"]) * np.asarray(result["uploads"].values.mean(axis=0), np.float64)
    return np.asarray(result[x].values.mean(axis=0), np.float64)


# Words for figures and tables: what each result is called, what they share, and how they were made.

SYMBOLS = {"step_size": "η", "local_steps": "H", "probability": "p", "agents": "N"}
UNSET = {"sampling": "i.i.d. sampling", "participation": "all agents", "average_after": "last iterate"}

MADE_FROM = {
    "from_observations": "tables of observations",
    "from_mdps": "decision processes",
    "from_chains": "Markov chains",
    "from_transitions": "logs of transitions",
}


def method_name(result: xr.Dataset) -> str:
    """FedLSA, SCAFFLSA, ...: the name without its parameters."""
    return str(result.attrs["method"]).partition("(")[0]


def names(results: Sequence[xr.Dataset]) -> list[str]:
    """A short name for each result: its method and, where a method occurs more than once, what sets it apart."""
    out = []
    for r in results:
        mine, kin = settings(r), [settings(k) for k in results if method_name(k) == method_name(r)]
        differing = [k for k in mine if any(other.get(k) != mine[k] for other in kin)]
        out.append(", ".join([method_name(r), *(_shown(k, mine[k]) for k in differing)]))
    return [f"{n} ({out[:i].count(n) + 1})" if out.count(n) > 1 else n for i, n in enumerate(out)]


def common_setting(results: Sequence[xr.Dataset]) -> str:
    """What all results share, in one line: N = 100, η = 0.1, ...; then what a method has that another has not."""
    each = [settings(r) for r in results]
    facts = {k: v for mine in each for k, v in mine.items() if v is not None}
    shared = {k: v for k, v in facts.items() if all(other.get(k, v) == v for other in each)}
    shared = dict(sorted(shared.items(), key=lambda fact: isinstance(fact[1], str)))  # symbols first, then words
    own = {k for k in shared if k not in (*SYMBOLS, "method") and any(k not in mine for mine in each)}
    said = {_shown(k, v): None for k, v in shared.items() if k not in own}
    for r, mine in zip(results, each, strict=True):
        if words := ", ".join(_shown(k, v) for k, v in shared.items() if k in own and k in mine):
            said[f"{method_name(r)} ({words})"] = None
    return ",  ".join(said)


def settings(result: xr.Dataset) -> dict[str, Any]:
    """The facts of a result, or of an exact curve, that a reader compares, by name."""
    method = recipe.value(result.attrs["algorithm"])
    facts: dict[str, Any] = {"agents": result.attrs["agents"]}
    if "repr" in method:  # from outside fedlsa
        facts["method"] = result.attrs["method"]
    facts |= {k: v for k, v in method.items() if k not in ("name", "repr", "module", "qualname") and v != []}
    share, count = facts.pop("participation", None), facts.pop("participants", None)
    facts["participation"] = f"participation {share:g}" if share else f"{count} participants" if count else None
    facts["sampling"] = _sampling(full_text(result.attrs["sampling"]))
    facts["problem"] = _problem(result)
    facts["start"] = start_words(result.attrs["start"])
    return facts


def describe(results: Sequence[xr.Dataset]) -> str:
    """How the results were made, as JSON text for the metadata of a file; large arrays are left out."""
    runs = []
    for r in results:
        problem = recipe.value(r.attrs["problem"])
        problem = {"constructor": problem["constructor"], **_plain(problem.get("arguments", {}))}
        run = {"method": r.attrs["method"], "problem": problem, "sampling": recipe.value(r.attrs["sampling"])}
        runs.append(
            {**run, **_plain(recipe.value(r.attrs["arguments"])), "versions": recipe.value(r.attrs["versions"])}
        )
    return recipe.text(runs)


def _sampling(text: str) -> str | None:
    """From the JSON text of a result, or from an exact curve's label such as "Markov(thin=3)"; None for i.i.d."""
    kind, thin = re.search(r"[A-Z]\w+", text), re.search(r"thin\D+(\d+)", text)
    n = int(thin[1]) if thin else 1
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    every = f", every {n}{ending}" if n > 1 else ""
    return f"{kind[0]} sampling{every}" if kind and kind[0] != "IID" else None


def start_words(named: str) -> str:
    """The attribute `start` of a result, a curve or a plan, as figures write it."""
    return f"start: {named}".replace("theta_star", "θ⋆")


def _problem(result: xr.Dataset) -> str | None:
    if "problem" not in result.attrs:  # an exact curve
        return None
    problem = recipe.value(result.attrs["problem"])
    facts = {k: v for k, v in _plain(problem.get("arguments", {})).items() if k not in ("agents", "weights")}
    if problem["constructor"] == "garnet":
        kind = "heterogeneous" if facts["heterogeneous"] else "homogeneous"
        return f"{kind} Garnet, preset {facts['preset']}"
    made = str(problem["constructor"] or "")
    return MADE_FROM.get(made, made.replace("_", " ")) or None


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    def small(entry: Any) -> bool:
        if isinstance(entry, list):
            return len(entry) <= 1000 and all(map(small, entry))
        return not isinstance(entry, (np.ndarray, dict))

    return {k: v for k, v in arguments.items() if v is not None and small(v)}


def _shown(name: str, value: Any) -> str:
    if isinstance(value, PowerStep):
        return f"η = {value.eta_0:g}/(t+1)^{value.power:g}"
    if isinstance(value, PowerLength):
        return f"H = {value.H_0}·(t+1)^{value.power:g}"
    if value is None:
        return UNSET.get(name, f"no {name.replace('_', ' ')}")
    if isinstance(value, str):
        return value
    if name in SYMBOLS:
        small = f"{value:g}" if isinstance(value, float) else str(value)
        return f"{SYMBOLS[name]} = {number(value) if value >= 100_000 else printed(small)}"
    if isinstance(value, bool):
        return f"{name}: {'yes' if value else 'no'}"
    return f"{name.replace('_', ' ')} {f'{value:g}' if isinstance(value, (int, float)) else in_short(value)}"
