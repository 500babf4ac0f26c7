"""Linear speed-up (fig:show-speed-up): the error in the stationary regime against the number of agents."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ..algorithms import METHODS
from ..figures import theme
from ..figures.lines import Chart, ChartRows, Line
from .cells import Cell
from .claim_statistics import least_p_value, slope
from .computations import problem, updates
from .experiment import Cells, Experiment, Picture, Scale, claim, grid
from .paper_curves import panel_title

AGENTS, SIMULATED = (1, 3, 10, 30, 100, 300, 1000), (1, 10, 100, 1000)
STEP_SIZES, LOCAL_STEPS = (0.001, 0.01, 0.1, 1.0), (1, 10, 100)
QUICK_AGENTS, QUICK_STEP_SIZES, QUICK_LOCAL_STEPS = (1, 2, 10), (0.01, 0.1), (1, 100)
RELAXED = 1.5  # times 1 / (eta lambda): the variance is then within exp(-3) of its limit
FEWEST_ROUNDS = 20  # which control variates need where one round already forgets where it began
MOST_UPDATES, QUICK_MOST_UPDATES = 1e9, 1e7  # of a simulated point
RUNS = 30  # of a simulated point, at least: fewer would not tell its variance from twice as much
NOTE = (
    "Lines: exact stationary mean squared error (MSE). Marks: mean over {seeds} simulated runs, with its standard "
    "error. They start at the limit of the mean,\nθ⋆ plus bias or (θ⋆, ξ⋆), and take 3/(2ηλ) local steps, at least "
    "{fewest} rounds, with λ the smallest real part of an eigenvalue of the averaged Ā:\nwhat their variance still "
    "lacks fades like exp(\u22123), 5%. With H = 1 the methods are one. Instance: {preset}.{more}"
)
BOTH_ENVIRONMENTS = 2  # from so many agents on, heterogeneous ones live in both environments
APART = 1.07  # marks of two methods at one N stand beside each other
ABOVE = math.sqrt(10)  # times the second step size's line: there the slope to compare with stands


def _colour(step_size: float) -> str:
    return theme.SEQUENCE[STEP_SIZES.index(step_size)]


def _chart(results: pd.DataFrame) -> Chart:
    """One setting with one number of local steps."""
    parts = [_lines(part) for _, part in results.groupby(["method", "step_size"], sort=False)]
    exact, place = parts[1][0], results.iloc[0]
    middle, ends = len(exact.x) // 2, exact.x[[0, -1]]
    slope = ABOVE * float(exact.y[middle] * exact.x[middle]) / ends
    guide = Line(ends, slope, "falls like 1/N", theme.OTHERS[3], "guide")
    title = panel_title(place["heterogeneous"], local_steps=place["local_steps"])
    return Chart([*itertools.chain(*parts), guide], "agents N", "stationary MSE", title, x_scale="log")


def _lines(results: pd.DataFrame) -> list[Line]:
    """One method with one step size: exact limits, with gaps where there is none, and marks, hollow where a simulation
    would take too long."""
    limits, (method, step_size) = results[results["kind"] == "limit"], results.iloc[0][["method", "step_size"]]
    numbers, mse, colour = limits["agents"].to_numpy(float), limits["mse"].to_numpy(), _colour(step_size)
    mse = np.where(np.isfinite(mse), mse, np.nan)
    runs = results[results["kind"] == "simulate"].set_index("agents")["result"]
    ends = {agents: run["squared_error"].values[:, -1] for agents, run in runs.items()}
    marked = np.isin(numbers, SIMULATED) & np.isfinite(mse)
    run = [n for n in numbers[marked] if n in ends]
    exact_only = marked & ~np.isin(numbers, run)
    mean = np.array([ends[n].mean() for n in run])
    name = f"{METHODS[method].__name__}, η = {step_size:g}"
    error = np.array([ends[n].std(ddof=1) / math.sqrt(len(ends[n])) if len(ends[n]) > 1 else 0.0 for n in run])
    if method == "fedlsa":
        exact, marker, shift = Line(numbers, mse, "", colour, "prediction", name=name), "circle", 1 / APART
    else:  # wide and light, so that a dashed line on top of it is seen
        exact, marker, shift = Line(numbers, mse, "", theme.shade(colour, 2), width=2.8, name=name), "square", APART
    return [
        exact,
        Line(
            shift * np.array(run), mean, "", colour, "marks", None, error, marker=marker, size=3.2, name=f"{name}, runs"
        ),
        Line(numbers[exact_only], mse[exact_only], "", colour, "samples", marker="diamond", size=4.0),
    ]


def _legend(step_sizes: Iterable[float], exact_only: bool) -> list[Line]:
    """Lines without points: step sizes by colour, methods by line and mark."""
    none = np.empty(0)
    steps = [Line(none, none, f"η = {eta:g}", _colour(eta), width=3.0) for eta in step_sizes]
    kinds = [
        Line(none, none, "SCAFFLSA", theme.shade(theme.SOFT, 2), marker="square", width=2.8, size=4.0),
        Line(none, none, "FedLSA", role="prediction", marker="circle", size=4.0),
    ]
    return steps + kinds + [Line(none, none, "exact only", role="samples", marker="diamond", size=4.0)] * exact_only


@functools.cache
def _slowest_mode(preset: str, agents: int, heterogeneous: bool) -> float:
    """lambda: the smallest real part of an eigenvalue of the averaged A_bar."""
    p = problem({"problem": Scale(preset).garnet(agents, heterogeneous)})
    return float(np.linalg.eigvals(np.average(p.A_bar, axis=0, weights=p.weights)).real.min())


def relaxing_rounds(preset: str, agents: int, heterogeneous: bool, step_size: float, local_steps: int) -> int:
    """Rounds of about 3 / (2 eta lambda) local steps, up to the second digit, so that rounding never changes them."""
    rounds = RELAXED / (step_size * _slowest_mode(preset, agents, heterogeneous) * local_steps)
    unit = 10.0 ** max(math.floor(math.log10(rounds)) - 1, 0)
    return max(FEWEST_ROUNDS, int(math.ceil(rounds / unit) * unit))


def runs(scale: Scale) -> int:
    """Seeds of a simulated point."""
    return max(RUNS, scale.seeds)


def _lengths(scale: Scale) -> tuple[int, ...]:
    return QUICK_LOCAL_STEPS if scale.quick else LOCAL_STEPS


def _numbers(scale: Scale) -> tuple[int, ...]:
    return QUICK_AGENTS if scale.quick else AGENTS


def limit_cells(scale: Scale) -> list[Cell]:
    """Exact limits: with one local step the methods are one."""
    step_sizes = QUICK_STEP_SIZES if scale.quick else STEP_SIZES
    axes = {"heterogeneous": (True, False), "local_steps": _lengths(scale), "method": ("scafflsa", "fedlsa")}
    places = grid(**axes, step_size=step_sizes, agents=_numbers(scale))
    return [scale.cell("limit", **p) for p in places if p["local_steps"] > 1 or p["method"] == "fedlsa"]


def simulated(scale: Scale) -> list[tuple[Cell, Cell]]:
    """Limits and runs that start where the mean rests, until their variance has settled, where that is not too long."""
    found = []
    for limit in limit_cells(scale):
        if limit["agents"] in SIMULATED:
            place = [limit[name] for name in ("agents", "heterogeneous", "step_size", "local_steps")]
            rounds = relaxing_rounds(scale.preset, *place)
            run = {"rounds": rounds, "record": 2, "seeds": runs(scale), "start": "limit"}
            found.append((limit, Cell("simulate", {**limit.settings, **run})))
    most = QUICK_MOST_UPDATES if scale.quick else MOST_UPDATES
    return [(limit, run) for limit, run in found if updates(run) <= most]


def all_cells(scale: Scale) -> list[Cell]:
    """Limits and simulations."""
    return [*limit_cells(scale), *(run for _, run in simulated(scale))]


def draw(results: pd.DataFrame, scale: Scale) -> ChartRows:
    """A row for each setting, a column for each number of local steps; colour : step size, dashed : FedLSA.

    Settings without a limit are named in the note.
    """
    settings = results.groupby("heterogeneous", sort=False)
    rows = [[_chart(panel) for _, panel in row.groupby("local_steps", sort=False)] for _, row in settings]
    exact_only = any(line.marker == "diamond" and len(line.x) for row in rows for chart in row for line in chart.lines)
    rows[0][0] = replace(rows[0][0], lines=[*_legend(results["step_size"].unique(), exact_only), *rows[0][0].lines])
    more = " For each N it is another one." if scale.preset == "authors" else ""
    if exact_only:
        more += f"\n◇: no simulation, which would take more than {'10⁷' if scale.quick else '10⁹'} updates."
    endless = results[(results["kind"] == "limit") & ~np.isfinite(results["mse"])]
    unstable = {
        f"{r.method}, η = {r.step_size:g}, {panel_title(r.heterogeneous, local_steps=r.local_steps)}": None
        for r in endless.itertuples()
    }
    if unstable:
        more += "\nLines end where there is no limit (unstable): " + "; ".join(unstable) + "."
    note = NOTE.format(seeds=runs(scale), preset=scale.preset, fewest=FEWEST_ROUNDS, more=more)
    return ChartRows(rows, notes=[note], panel=(2.35, 2.1), share="all")


def _from_both_environments(test: Callable[[Cell], bool]) -> Cells:
    """Limits with at least one agent of each environment."""
    return lambda scale: [c for c in limit_cells(scale) if c["agents"] >= BOTH_ENVIRONMENTS and test(c)]


def _slopes(results: pd.DataFrame, what: str) -> Sequence[float]:
    """Slopes of log value against log N, one for each setting."""
    settings = results.groupby(["heterogeneous", "local_steps", "method", "step_size"], sort=False)
    return [slope(group["agents"].to_numpy(float), group[what].to_numpy()) for _, group in settings]


def furthest_slope(results: pd.DataFrame) -> float:
    """The slope of the MSE furthest from -1."""
    return max(_slopes(results, "mse"), key=lambda s: abs(s + 1))


def _tenfold(scale: Scale) -> list[Cell]:
    """Limits of homogeneous agents, step sizes up to 0.1, that have a partner with ten times both, or a tenth."""
    cells = [c for c in limit_cells(scale) if not c["heterogeneous"] and c["step_size"] <= 0.1]
    places = {(c["agents"], c["step_size"]) for c in cells}

    def paired(n: int, eta: float) -> bool:
        return (10 * n, 10 * eta) in places or any((10 * m, 10 * e) == (n, eta) for m, e in places)

    return [c for c in cells if paired(c["agents"], c["step_size"])]


def larger_steps(results: pd.DataFrame) -> float:
    """MSE with (10 eta, 10 N) over MSE with (eta, N): a geometric mean over N, the furthest from 1."""
    places = ["local_steps", "method", "step_size", "agents"]
    tenth = results.assign(step_size=results["step_size"] / 10, agents=results["agents"] / 10)
    larger, mse = (rows.set_index(places)["mse"] for rows in (tenth, results))
    means = np.log(larger / mse).groupby(places[:3]).mean()
    return float(np.exp(means.abs().max()))


EXPERIMENT = Experiment(
    "fig2",
    "The more agents, the smaller the error: linear speed-up",
    ("fig:show-speed-up",),
    (
        Picture(
            "fig2",
            "Mean squared error in the stationary regime against the number of agents, for several step sizes "
            "and numbers of local steps H; dotted: a line that falls like 1/N.",
            all_cells,
            draw,
            lambda scale: [panel_title(h, local_steps=H) for h in (True, False) for H in _lengths(scale)],
        ),
    ),
    claims=(
        claim("scafflsa-speed-up", _from_both_environments(lambda c: c["method"] == "scafflsa"), furthest_slope),
        claim(
            "fedlsa-speed-up",
            _from_both_environments(
                lambda c: c["method"] == "fedlsa" and (not c["heterogeneous"] or c["local_steps"] == 1)
            ),
            furthest_slope,
        ),
        claim(
            "bias-ignores-agents",
            _from_both_environments(
                lambda c: c["method"] == "fedlsa" and c["heterogeneous"] and c["local_steps"] == 100
            ),
            lambda results: float(np.min(_slopes(results, "drift"))),
        ),
        claim(
            "speed-up-ends",
            lambda scale: [
                scale.cell("limit", _numbers(scale)[-1], True, method="fedlsa", step_size=0.1, local_steps=100)
            ],
            lambda results: float((results["agents"] * results["noise"] / results["drift"]).iloc[0]),
        ),
        claim("larger-steps", _tenfold, larger_steps),
        claim(
            "simulation-agrees-speed-up",
            lambda scale: [cell for pair in simulated(scale) for cell in pair],
            least_p_value,
            statistic=f"least p-value of simulated means and spreads; {RUNS} runs or more of each simulated point, "
            "under the normal law with the exact stationary mean and covariance, times the number of comparisons; "
            "twice the variance in any one point is found with a probability above 0.99 (the runs' own variance lacks "
            "up to 5%)",
        ),
    ),
)
