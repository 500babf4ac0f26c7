"""Observations along trajectories (algo:fed-lsa-markov): what skipping costs, and what it is worth.

Every curve makes ten updates a round and uses one observation in q, so that a round takes H = 10 q of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import stdtr

from ..figures import theme
from ..figures.lines import Chart, ChartRows, Line, mean_line
from .cells import Cell
from .experiment import Cells, Experiment, Picture, Scale, Table, claim, grid
from .paper_curves import NAMES

STEP_SIZE, UPDATES, EPSILON = 0.1, 10, 0.1
ROUNDS, QUICK_ROUNDS = 2_000, 20
THEOREM_ROUNDS = 100  # simulated with the theorem's q, with which a round takes thousands of observations
AGENTS, QUICK_AGENTS = (10, 100), (4, 10)
QUICK_SINGLE_ROUNDS, QUICK_FEATURES = 400, 4  # rounds and dimension of one agent, of which everything is known
# of a setting, at least: standard errors are then below 5%, of a margin of 20%; with 20 runs noise hid the answer
RUNS, QUICK_RUNS = 80, 20
LABELS: dict[int | str, str] = {
    "": "i.i.d.",
    1: "q = 1",
    "tau_mix": "q = τ_mix",
    "theorem": "q of the theorem",
}  # by the setting "skip", "" without it
COLOURS = {"": theme.SOFT, 1: theme.OTHERS[0], "tau_mix": theme.OTHERS[1], "theorem": theme.OTHERS[2]}
NOTE = (
    "Line: mean of the squared error over {seeds} seeds; band: from their 10% to their 90% quantile. Thin black line: "
    "its exact expectation for i.i.d. observations.\n"
    "Every curve makes 10 updates a round and uses one observation in q: a round takes 10 q of them (i.i.d.: 10). "
    "q of the theorem: for T = {planned:,} and ε = {epsilon:g};\n"
    "only its first {rounds:,} rounds are simulated, and at η = {step_size:g} the theorem's conditions are not met. "
    "Instance: {preset}, heterogeneous."
)
MARGIN = 0.2  # relative, of simulated errors: runs in the number we make tell this from none
REACHED = 2.0  # what is to be reached: so many times the last i.i.d. error
COROLLARY = "cor:sample_complexity_lsa_Markov"


def recorded(rounds: int) -> list[int]:
    """Two hundred rounds in equal steps, and some early ones, as a logarithmic axis needs them."""
    return sorted({*range(0, rounds + 1, max(1, rounds // 200)), *_drawn_rounds(rounds), rounds})


def _drawn_rounds(rounds: int) -> set[int]:
    return {int(t) for t in np.geomspace(1, rounds, 40).round()}


def _runs(scale: Scale) -> int:
    return max(QUICK_RUNS if scale.quick else RUNS, scale.seeds)


def _sampling(skip: int | str) -> dict[str, Any]:
    """Settings of a cell: i.i.d. observations, or one in q of a trajectory."""
    if skip == "":
        return {"local_steps": UPDATES}
    planned = {"planned_rounds": ROUNDS, "epsilon": EPSILON} if skip == "theorem" else {}
    return {"updates": UPDATES, "skip": skip, **planned}


def simulated_cells(scale: Scale) -> list[Cell]:
    """Both methods with both numbers of agents: exact if i.i.d., and simulations with all kinds of sampling."""
    cells, planned = [], QUICK_ROUNDS if scale.quick else ROUNDS
    for place in grid(agents=QUICK_AGENTS if scale.quick else AGENTS, method=tuple(NAMES)):
        place |= {"heterogeneous": True, "step_size": STEP_SIZE}
        every = recorded(planned)
        cells.append(scale.cell("exact", rounds=planned, record=every, **_sampling(""), **place))
        for skip in LABELS:
            rounds = min(planned, THEOREM_ROUNDS) if skip == "theorem" else planned
            same = [t for t in every if t <= rounds]  # as the exact curve, to which it is compared
            run = {**_sampling(skip), "rounds": rounds, "record": same, "seeds": _runs(scale)}
            cells.append(scale.cell("simulate", **run, **place))
    return cells


def single_cells(*skips: int | str) -> Cells:
    """One agent, whose errors along trajectories are known exactly (quick: with fewer features)."""

    def cells(scale: Scale) -> list[Cell]:
        problem = scale.garnet(1, True) | ({"features": QUICK_FEATURES} if scale.quick else {})
        rounds = QUICK_SINGLE_ROUNDS if scale.quick else ROUNDS
        run = {"method": "fedlsa", "step_size": STEP_SIZE, "rounds": rounds, "record": rounds + 1}  # all of them
        return [Cell("exact", {"problem": problem, **run, **_sampling(skip)}) for skip in skips]

    return cells


def _skips(results: pd.DataFrame) -> pd.Series:
    """The setting "skip" of every row, "" where there is none."""
    return results["skip"].astype(object).fillna("")


def _title(method: str, agents: int) -> str:
    return f"{NAMES[method]}, N = {agents}"


def draw(results: pd.DataFrame, scale: Scale) -> ChartRows:
    """Error against communications and against observations, a row for each number of agents."""
    rows = []
    for agents, row in results.groupby("agents", sort=False):
        titles = {_title(method, agents): part for method, part in row.groupby("method", sort=False)}
        axes = (("communications", 0), ("observations per agent", UPDATES))
        rows.append([_chart(title, cost, per, part) for title, part in titles.items() for cost, per in axes])
    last = min(THEOREM_ROUNDS, QUICK_ROUNDS) if scale.quick else THEOREM_ROUNDS
    values = {"preset": scale.preset, "planned": ROUNDS, "epsilon": EPSILON, "rounds": last, "step_size": STEP_SIZE}
    note = NOTE.format(seeds=_runs(scale), **values)
    return ChartRows(rows, notes=[note], panel=(1.95, 2.0))


def _chart(title: str, cost: str, per_round: int, results: pd.DataFrame) -> Chart:
    """A panel; per_round : observations that a round costs with q = 1, or 0 for communications."""
    lines, exact = [], _exact(results)
    t, runs = exact["rounds"].values, results[results["kind"] == "simulate"]
    for skip, run in zip(_skips(runs), runs["result"], strict=True):
        recorded = run["rounds"].values
        shown = (recorded > 0) & np.isin(recorded, list(_drawn_rounds(int(t[-1])) | {int(recorded[-1])}))
        label = LABELS[skip].replace("τ_mix", "$τ_{\\mathrm{mix}}$")
        x = recorded[shown] * (per_round * _block(run) or 1)
        lines.append(mean_line(x, run["squared_error"].values[:, shown], label, COLOURS[skip]))
    lines.append(Line(t[1:] * (per_round or 1), exact["mse"].values[1:], "exact, i.i.d.", role="expectation"))
    return Chart(lines, cost, "mean squared error", title, x_scale="log")


def _exact(results: pd.DataFrame) -> xr.Dataset:
    """The exact curve for i.i.d. observations."""
    return results[(results["kind"] == "exact") & (_skips(results) == "")]["result"].item()


def _block(run: xr.Dataset) -> int:
    """q; 1 if observations are i.i.d."""
    return int(run["q"]) if "q" in run else 1


def late(run: xr.Dataset, exact: xr.Dataset) -> tuple[float, float, float]:
    """Over the last half of a run: mean squared error, its standard error over seeds, and the exact one if i.i.d."""
    t = run["rounds"].values
    t = t[t > t[-1] // 2]
    each = run["squared_error"].sel(rounds=t).mean("rounds").values
    expected = float(exact["mse"].sel(rounds=t).mean())
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(len(each))), expected


def rows(results: pd.DataFrame, scale: Scale) -> pd.DataFrame:
    """The error in the last half of the rounds, beside the exact one of i.i.d. observations; one agent: in the last."""
    out = []
    for (agents, method), part in results.groupby(["agents", "method"], sort=False):
        exact, single = _exact(part), agents == 1
        runs = part[part["kind"] == ("exact" if single else "simulate")]
        for skip, run in zip(_skips(runs), runs["result"], strict=True):
            q = _block(run)
            mse, error, expected = (float(run["mse"][-1]), 0.0, float(exact["mse"][-1])) if single else late(run, exact)
            out.append(
                {
                    "setting": "one agent, exact" if single else _title(method, agents),
                    "sampling": LABELS[skip],
                    "q": q,
                    "observations per round": UPDATES * q,
                    "rounds": int(run["rounds"][-1]),
                    "mean squared error": mse,
                    "standard error": error,
                    "over exact i.i.d.": mse / expected,
                    "squared bias": float(np.sum((run["mean"][-1] - run["theta_star"]) ** 2)) if single else math.nan,
                }
            )
    return pd.DataFrame(out)


def inequivalence(results: pd.DataFrame) -> float:
    """The largest p-value of "the error is off the i.i.d. one by the margin or more" (two one-sided Student tests)."""
    found = []
    for _, part in results.groupby(["agents", "method"], sort=False):
        exact = _exact(part)
        for run in part[part["kind"] == "simulate"]["result"]:
            mse, error, expected = late(run, exact)
            inside = (math.log1p(MARGIN) - abs(math.log(mse / expected))) / (error / mse)
            found.append(float(stdtr(len(run["seed"]) - 1, -inside)))  # Student's upper tail
    return float(np.max(found))


def difference(skip: int | str) -> Callable[[pd.DataFrame], float]:
    """|error with this skipping / i.i.d. error - 1| of one agent after the last round, exact."""

    def measure(results: pd.DataFrame) -> float:
        mse = results.set_index(_skips(results))["mse"]
        return float(abs(mse[skip] / mse[""] - 1))

    return measure


def rounds_to(curve: xr.Dataset, level: float) -> float:
    """When the error first reaches a level, between recorded rounds by the logarithm; infinite if it never does."""
    t, mse = curve["rounds"].values, curve["mse"].values
    below = np.flatnonzero(mse <= level)
    if not len(below):
        return math.inf
    i = int(below[0])
    if i == 0:
        return float(t[0])
    fall = np.log(mse[i - 1 : i + 1])
    return float(t[i - 1] + (t[i] - t[i - 1]) * (fall[0] - math.log(level)) / (fall[0] - fall[1]))


def price(results: pd.DataFrame) -> float:
    """Observations to twice the last i.i.d. error with q = tau_mix, over tau_mix times those of i.i.d. sampling."""
    run, iid = (results.set_index(_skips(results))["result"][skip] for skip in ("tau_mix", ""))
    level = REACHED * float(iid["mse"][-1])
    return rounds_to(run, level) / rounds_to(iid, level)


EXPERIMENT = Experiment(
    "markov",
    "Trajectories, and the price of skipping",
    (COROLLARY, "algo:fed-lsa-markov"),
    (
        Picture(
            "markov",
            "Mean squared error on trajectories of which one observation in q is used, against communications and "
            "against observations, beside i.i.d. sampling; heterogeneous agents, step size 0.1, ten updates a "
            "round.",
            simulated_cells,
            draw,
            lambda scale: [
                _title(place["method"], place["agents"])  # against communications, and against observations
                for place in grid(agents=QUICK_AGENTS if scale.quick else AGENTS, method=tuple(NAMES), axis=(0, 1))
            ],
        ),
    ),
    (
        Table(
            "markov",
            "Mean squared error in the last half of the rounds and its standard error over seeds, beside the exact "
            "expectation for i.i.d. observations in the same rounds. One agent: exact values after the last round.",
            lambda scale: [*simulated_cells(scale), *single_cells(*LABELS)(scale)],
            rows,
            {"squared bias": "a simulation does not know the mean of its law; exact curves do"},
        ),
    ),
    (
        claim(
            "markov-iid",
            lambda scale: [
                c for c in simulated_cells(scale) if {c.kind, c.columns.get("skip")} & {"exact", "tau_mix", "theorem"}
            ],
            inequivalence,
            statistic=f"p-value of a mean squared error that is off the i.i.d. one by {MARGIN:.0%} or more; {RUNS} "
            f"runs or more (quick: {QUICK_RUNS}), in the last half of the rounds, against the exact one (two one-sided "
            "Student tests of its logarithm), the largest over methods, N and both q; large where noise hides the "
            "answer",
        ),
        claim("markov-mixing-time", single_cells("", "tau_mix"), difference("tau_mix")),
        claim("markov-theorem", single_cells("", "theorem"), difference("theorem")),
        claim("markov-whole", single_cells("", 1), difference(1)),
        claim("markov-price", single_cells("", "tau_mix"), price),
    ),
)
