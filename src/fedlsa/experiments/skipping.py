"""Cells, figure and table of the experiment on trajectories (algo:fed-lsa-markov) with observations skipped.

Every curve makes ten updates a round and uses one observation in q, so that a round takes H = 10 q of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..figures import style
from ..figures.panels import Series
from ..figures.trajectories import Costs, costs_grid
from .base import Lookup, Panels, Row, Scale
from .cells import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP_SIZE, UPDATES, EPSILON = 0.1, 10, 0.1
ROUNDS, LONG_ROUNDS = 2_000, 200  # the second for the theorem's q, with which a round takes thousands of observations
QUICK_ROUNDS, QUICK_AGENTS = 20, {10: 4, 100: 10}
QUICK_SINGLE, QUICK_FEATURES = 400, 4  # rounds and dimension of one agent, of which everything is known
RUNS = 20  # of a setting, at least
AGENTS = (10, 100)
NAMES = {"fedlsa": "FedLSA", "scafflsa": "SCAFFLSA"}
SKIPS = {"none": "q = 1", "tau_mix": "q = τ_mix", "theorem": "q of the theorem"}
HUES = {"iid": style.SOFT, "none": style.OTHERS[0], "tau_mix": style.OTHERS[1], "theorem": style.OTHERS[2]}
BAND = (0.1, 0.9)
NOTE = (
    "Line: mean of the squared error over {seeds} seeds; band: from their 10% to their 90% quantile. Thin black line: "
    "its exact expectation for i.i.d. observations.\n"
    "Every curve makes 10 updates a round and uses one observation in q: a round takes 10 q of them (i.i.d.: 10). "
    "q of the theorem: for T = {planned:,} and ε = {epsilon:g};\n"
    "only its first {rounds:,} rounds are simulated, and at η = {step_size:g} the theorem's conditions are not met. "
    "Instance: {preset}, heterogeneous."
)


def recorded(rounds: int) -> list[int]:
    """Two hundred rounds in equal steps, and some early ones, as a logarithmic axis needs them."""
    return sorted({*range(0, rounds + 1, max(1, rounds // 200)), *_spread(rounds), rounds})


def _spread(rounds: int) -> set[int]:
    return {int(t) for t in np.geomspace(1, rounds, 40).round()}


def runs(scale: Scale) -> int:
    """Seeds of a simulation: enough to show that two errors are the same."""
    return max(RUNS, scale.seeds)


def _simulated(scale: Scale, agents: int, method: str) -> dict[str, Cell]:
    planned = QUICK_ROUNDS if scale.quick else ROUNDS
    agents = QUICK_AGENTS[agents] if scale.quick else agents
    common: dict[str, Any] = {"problem": scale.garnet(agents, True), "method": method, "step_size": STEP_SIZE}
    plain = {**common, "local_steps": UPDATES, "rounds": planned, "record": recorded(planned)}
    cells = {"iid": Cell("simulate", {**plain, "seeds": runs(scale)}), "exact": Cell("exact", plain)}
    for skip in SKIPS:
        rounds = min(planned, LONG_ROUNDS) if skip == "theorem" else planned
        same = [t for t in recorded(planned) if t <= rounds]  # as the i.i.d. curve, to which it is compared
        own = {**common, "updates": UPDATES, "skip": skip, "rounds": rounds, "record": same}
        if skip == "theorem":
            own |= {"planned_rounds": ROUNDS, "epsilon": EPSILON}
        cells[skip] = Cell("markov", {**own, "seeds": runs(scale)})
    return cells


def simulated_cells(scale: Scale) -> Panels:
    """Both methods with both numbers of agents: i.i.d., exact i.i.d., and the three ways of skipping."""
    return {f"{name}, N = {n}": _simulated(scale, n, method) for n in AGENTS for method, name in NAMES.items()}


def single_cells(scale: Scale) -> Panels:
    """One agent, whose errors along trajectories are known exactly (quick: with fewer features)."""
    problem = scale.garnet(1, True) | ({"features": QUICK_FEATURES} if scale.quick else {})
    rounds = QUICK_SINGLE if scale.quick else ROUNDS
    common = {
        "problem": problem,
        "method": "fedlsa",
        "step_size": STEP_SIZE,
        "rounds": rounds,
        "record": rounds + 1,  # all of them
    }
    cells = {"iid": Cell("exact", {**common, "local_steps": UPDATES})}
    for skip in SKIPS:
        own = {"planned_rounds": ROUNDS, "epsilon": EPSILON} if skip == "theorem" else {}
        cells[skip] = Cell("markov-exact", {**common, "updates": UPDATES, "skip": skip, **own})
    return {"one agent, exact": cells}


def draw(cells: Panels, lookup: Lookup, scale: Scale) -> Figure:
    """Error against communications and against observations, a row for each number of agents."""
    rows = []
    for agents in AGENTS:
        row = []
        for name in NAMES.values():
            held = {role: lookup(cell) for role, cell in cells[f"{name}, N = {agents}"].items()}
            many = QUICK_AGENTS[agents] if scale.quick else agents
            for per, factor in (("communications", 0), ("observations per agent", UPDATES)):
                row.append(_costs(f"{name}, N = {many}", per, factor, held))
        rows.append(row)
    last = min(LONG_ROUNDS, QUICK_ROUNDS) if scale.quick else LONG_ROUNDS
    values = {"preset": scale.preset, "planned": ROUNDS, "epsilon": EPSILON, "rounds": last, "step_size": STEP_SIZE}
    return costs_grid(rows, note=NOTE.format(seeds=runs(scale), **values))


def _costs(title: str, per: str, factor: int, held: Mapping[str, xr.Dataset]) -> Costs:
    """A panel; factor : observations that an update's round costs with q = 1, or 0 for communications."""
    lines = []
    for role, label in {"iid": "i.i.d.", **SKIPS}.items():
        run, label = held[role], label.replace("τ_mix", "$τ_{\\mathrm{mix}}$")
        t = run["round"].values
        seen = (t > 0) & np.isin(t, list(_spread(int(held["iid"]["round"][-1])) | {int(t[-1])}))
        q = int(run["q"]) if "q" in run else 1
        error = run["squared_error"].values[:, seen]
        low, high = np.quantile(error, BAND, axis=0)
        lines.append(Series(label, HUES[role], t[seen] * (factor * q or 1), error.mean(axis=0), low, high))
    t = held["exact"]["round"].values
    return Costs(title, per, lines, (t[1:] * (factor or 1), held["exact"]["mse"].values[1:]))


def late(run: xr.Dataset, exact: xr.Dataset) -> tuple[float, float, float]:
    """Over the last half of a run: mean squared error, its standard error over seeds, and the exact one if i.i.d."""
    t = run["round"].values
    t = t[t > t[-1] // 2]
    each = run["squared_error"].sel(round=t).mean("round").values
    expected = float(exact["mse"].sel(round=t).mean())
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(len(each))), expected


def rows(cells: Panels, lookup: Lookup, scale: Scale) -> list[Row]:
    """The error in the last half of the rounds, beside the exact one of i.i.d. observations; one agent: in the last."""
    out: list[Row] = []
    for name, held in cells.items():
        for role, label in {"iid": "i.i.d.", **SKIPS}.items():
            run = lookup(held[role])
            if "squared_error" in run:
                mse, error, expected = late(run, lookup(held["exact"]))
            else:
                mse, error, expected = float(run["mse"][-1]), 0.0, float(lookup(held["iid"])["mse"][-1])
            q = int(run["q"]) if "q" in run else 1
            out.append(
                {
                    "setting": name,
                    "sampling": label,
                    "q": q,
                    "observations per round": UPDATES * q,
                    "rounds": int(run["round"][-1]),
                    "mean squared error": mse,
                    "standard error": error,
                    "over exact i.i.d.": mse / expected,
                    "squared bias": float(run["squared_bias"][-1]) if "squared_bias" in run else math.nan,
                }
            )
    return out


def table_cells(scale: Scale) -> Panels:
    """The simulated settings and the exact one."""
    return {**simulated_cells(scale), **single_cells(scale)}
