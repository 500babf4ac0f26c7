"""The paper's error curves: the main figure, more local steps, smaller steps, and FedLSA with its bias removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Floats
from ..figures import style
from ..figures.panels import Panel, Series, panel_grid
from . import appendix_claims, curve_claims, speedup, speedup_claims
from .base import Experiment, Lookup, Panels, Picture, Scale, grid
from .cells import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS, FEWEST = 500_000, 50  # T H of every run, and the fewest rounds (the authors' protocol)
QUICK_STEPS, QUICK_AGENTS = 2_000, 10  # where only the path through the code matters
RECORD = 200
NAMES = {"fedlsa": "FedLSA", "scafflsa": "SCAFFLSA"}
DEBIASED = "FedLSA, bias removed"
BAND = (0.1, 0.9)
NOTE = (
    "Line: mean of the squared error over {seeds} seeds; band: from their 10% to their 90% quantile. Thin black line: "
    "its exact expectation.\nDashed: squared bias of FedLSA as predicted by theory; far below the curves, its value is "
    "in the corner. Instance: {preset}; step size η = {step_size}."
)
CURVES = "Mean squared error against communications"
MAIN = {"agents": (10, 100), "local_steps": (10, 1000)}
WORLDS = {"heterogeneous": (True, False)}
LENGTHS = {"local_steps": (1, 10, 100, 1000, 10_000)}


def world(heterogeneous: bool) -> str:
    """The setting in a word."""
    return "heterogeneous" if heterogeneous else "homogeneous"


def place_name(place: Mapping[str, Any]) -> str:
    """A place of the grid in words: the title of its panel."""
    return f"{world(place['heterogeneous'])}, N = {place['agents']}, H = {place['local_steps']:,}"


def curve_cells(scale: Scale, agents: int, heterogeneous: bool, local_steps: int, step_size: float) -> dict[str, Cell]:
    """Simulation and exact curve of both methods at one place of the grid."""
    rounds = max(FEWEST, STEPS // local_steps)
    if scale.quick:
        agents, rounds = min(agents, QUICK_AGENTS), max(5, QUICK_STEPS // local_steps)
    cells = {}
    for method in NAMES:
        settings = {
            "problem": scale.garnet(agents, heterogeneous),
            "method": method,
            "step_size": step_size,
            "local_steps": local_steps,
            "rounds": rounds,
            "record": RECORD,
        }
        cells[f"simulated {method}"] = Cell("simulate", {**settings, "seeds": scale.seeds})
        cells[f"exact {method}"] = Cell("exact", settings)
    return cells


def debiased(run: Floats, exact: Any) -> tuple[Floats, Floats]:
    """Squared errors (seed, round) of theta_t minus the limit bias, and their exact expectation (round)."""
    centre = exact["theta_star"].values + exact["bias"].values
    expected = exact["variance"].values + np.sum((exact["mean"].values - centre) ** 2, axis=-1)
    return np.sum((run - centre) ** 2, axis=-1), expected


def panel(title: str, cells: Mapping[str, Cell], lookup: Lookup, with_debiased: bool) -> Panel:
    """One panel from what is stored; with_debiased : theta_t minus the limit bias as a third line."""
    lines, levels = [], {}
    for method, name in NAMES.items():
        run, exact = lookup(cells[f"simulated {method}"]), lookup(cells[f"exact {method}"])
        x, rounds = run["round"].values, exact["round"].values
        lines.append(series(name, style.METHODS[name], x, run["squared_error"].values, (rounds, exact["mse"].values)))
        if method == "fedlsa":
            levels["predicted ‖bias‖² of FedLSA"] = float(np.sum(exact["bias"].values ** 2))
            if with_debiased:
                error, expected = debiased(run["theta"].values, exact)
                lines.append(series(DEBIASED, style.OTHERS[0], x, error, (rounds, expected)))
    return Panel(title.replace(", N", ",\nN"), lines, levels)  # two lines: long names stay within their panel


def series(label: str, colour: str, x: Floats, error: Floats, exact: tuple[Floats, Floats]) -> Series:
    """The mean and the band of squared errors (seed, round), with the exact curve."""
    low, high = np.quantile(error, BAND, axis=0)
    return Series(label, colour, x, error.mean(axis=0), low, high, exact)


@dataclass(frozen=True)
class Grid:
    """Panels over rows and columns of settings; fixed : what all panels share."""

    rows: Mapping[str, Sequence[Any]]
    columns: Mapping[str, Sequence[Any]]
    fixed: Mapping[str, Any]
    debiased: bool = False

    def places(self) -> list[dict[str, Any]]:
        """Every setting, row by row."""
        return [{**self.fixed, **row, **column} for row in grid(self.rows) for column in grid(self.columns)]

    def cells(self, scale: Scale) -> Panels:
        return {place_name(p): curve_cells(scale, **p) for p in self.places()}

    def draw(self, cells: Panels, lookup: Lookup, scale: Scale) -> Figure:
        panels = [panel(title, held, lookup, self.debiased) for title, held in cells.items()]
        wide = len(grid(self.columns))
        note = NOTE.format(seeds=scale.seeds, preset=scale.preset, step_size=self.fixed["step_size"])
        if scale.quick:
            note += f" Quick run: at most {QUICK_AGENTS} agents, about {QUICK_STEPS:,} local steps."
        return panel_grid([panels[i : i + wide] for i in range(0, len(panels), wide)], note=note)


def _picture(name: str, caption: str, grid: Grid) -> Picture:
    return Picture(name, caption, grid.cells, grid.draw)


def _lengths(name: str, step_size: float) -> tuple[Picture, ...]:
    return tuple(
        _picture(
            f"{name}-{world(h)}",
            f"{CURVES} for H = 1 to 10,000 local steps, {world(h)} agents, step size {step_size}, T H = 500,000.",
            Grid({"agents": (10, 100)}, LENGTHS, {"heterogeneous": h, "step_size": step_size}),
        )
        for h in (True, False)
    )


FIG1 = Grid(WORLDS, MAIN, {"step_size": 0.1})
LOCAL, SMALL = _lengths("local-steps", 0.1), _lengths("small-steps", 0.01)

EXPERIMENTS = (
    Experiment(
        "fig1",
        "FedLSA stalls at its bias, SCAFFLSA does not",
        ("fig:show-bias",),
        (
            _picture(
                "fig1",
                f"{CURVES} of federated TD(0) with heterogeneous and homogeneous agents, step size 0.1, T H = 500,000.",
                FIG1,
            ),
        ),
        claims=curve_claims.main_claims(),
    ),
    Experiment(
        "fig2",
        "The more agents, the smaller the error: linear speed-up",
        ("fig:show-speed-up",),
        (
            Picture(
                "fig2",
                "Mean squared error in the stationary regime against the number of agents, for four step sizes and "
                "H = 1, 10 and 100 local steps; dotted: a line that falls like 1/N.",
                speedup.all_cells,
                speedup.draw,
            ),
        ),
        claims=speedup_claims.CLAIMS,
    ),
    Experiment(
        "local-steps",
        "From one local step to ten thousand",
        ("fig:show-bias-more-h", "fig:show-bias-more-h-het"),
        LOCAL,
        claims=appendix_claims.local_steps_claims(),
    ),
    Experiment(
        "small-steps",
        "The same with a tenth of the step size",
        ("fig:show-bias-more-small-h", "fig:show-bias-more-small-h-het"),
        SMALL,
        claims=appendix_claims.small_steps_claims(),
    ),
    Experiment(
        "debiased",
        "FedLSA with its bias removed matches SCAFFLSA",
        ("fig:app-show-bias", "fig:app-show-bias-smaller-step"),
        tuple(
            _picture(
                f"debiased-{eta}",
                f"{CURVES}, with theta_t minus the limit bias as a third estimator; step size {eta}, T H = 500,000.",
                Grid(WORLDS, MAIN, {"step_size": eta}, debiased=True),
            )
            for eta in (0.1, 0.01)
        ),
        claims=appendix_claims.debiased_claims(),
    ),
)
