"""Linear speed-up (fig:show-speed-up): the error in the stationary regime against the number of agents."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Floats
from ..figures.speedup import Line, SpeedPanel, speed_up
from .base import Lookup, Panels, Scale
from .cells import Cell
from .compute import problem, updates
from .limits import limit_cell, settings_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGENTS, MARKS = (1, 3, 10, 30, 100, 300, 1000), (1, 10, 100, 1000)
STEP_SIZES, LOCAL_STEPS = (0.001, 0.01, 0.1, 1.0), (1, 10, 100)
QUICK_AGENTS, QUICK_STEP_SIZES, QUICK_LOCAL_STEPS = (1, 2, 10), (0.01, 0.1), (1, 100)
METHODS = ("scafflsa", "fedlsa")
RELAXED = 1.5  # times 1 / (eta lambda): the variance is then within exp(-3) of its limit
FEWEST = 20  # rounds, which control variates need where one round already forgets where it began
MOST, QUICK_MOST = 1e9, 1e7  # updates of a simulated point
RUNS = 30  # of a simulated point, at least: fewer would not tell its variance from twice as much
NOTE = (
    "Lines: exact stationary mean squared error (MSE). Marks: mean over {seeds} simulated runs, with its standard "
    "error. They start at the limit of the mean,\nθ* plus bias or (θ*, ξ*), and take 3/(2ηλ) local steps, at least "
    "{fewest} rounds, with λ the smallest real part of an eigenvalue of the averaged Ā:\nwhat their variance still "
    "lacks fades like exp(\u22123), 5%. With H = 1 the methods are one. Instance: {preset}.{more}"
)


def axes(scale: Scale) -> tuple[Sequence[int], Sequence[float], Sequence[int]]:
    """Numbers of agents, step sizes, and the numbers of agents that are simulated."""
    if not scale.quick:
        return AGENTS, STEP_SIZES, MARKS
    return QUICK_AGENTS, QUICK_STEP_SIZES, [n for n in MARKS if n in QUICK_AGENTS]


@functools.cache
def slowest(preset: str, agents: int, heterogeneous: bool) -> float:
    """lambda: the smallest real part of an eigenvalue of the averaged A_bar."""
    p = problem({"problem": Scale(preset).garnet(agents, heterogeneous)})
    return float(np.linalg.eigvals(np.average(p.A_bar, axis=0, weights=p.weights)).real.min())


def relaxing_rounds(preset: str, agents: int, heterogeneous: bool, step_size: float, local_steps: int) -> int:
    """Rounds of about 3 / (2 eta lambda) local steps, up to the second digit, so that rounding never changes them."""
    rounds = RELAXED / (step_size * slowest(preset, agents, heterogeneous) * local_steps)
    unit = 10.0 ** max(math.floor(math.log10(rounds)) - 1, 0)
    return max(FEWEST, int(math.ceil(rounds / unit) * unit))


def simulated_cell(scale: Scale, method: str, **place: Any) -> Cell:
    """A run that starts where the mean rests, until its variance has settled."""
    rounds = relaxing_rounds(scale.preset, **place)
    settings = {**settings_at(scale, method, **place), "rounds": rounds, "record": 2, "seeds": runs(scale)}
    return Cell("simulate", {**settings, "start": "limit"})


def runs(scale: Scale) -> int:
    """Seeds of a simulated point."""
    return max(RUNS, scale.seeds)


def role(kind: str, method: str, step_size: float, agents: int) -> str:
    """What a cell is in its panel."""
    return f"{kind} {method}, step size {step_size}, N = {agents}"


def limit_cells(scale: Scale, heterogeneous: bool, local_steps: int) -> dict[str, Cell]:
    """Limits of a panel, for every method, step size and N."""
    numbers, step_sizes, _ = axes(scale)
    place = {"heterogeneous": heterogeneous, "local_steps": local_steps}
    return {
        role("limit", m, eta, n): limit_cell(scale, m, agents=n, step_size=eta, **place)
        for m in (METHODS if local_steps > 1 else ("fedlsa",))
        for eta in step_sizes
        for n in numbers
    }


def simulated_cells(scale: Scale, heterogeneous: bool, local_steps: int) -> dict[str, Cell]:
    """Simulations of a panel, where they take at most a thousand million updates (quick: ten million)."""
    _, step_sizes, marks = axes(scale)
    place = {"heterogeneous": heterogeneous, "local_steps": local_steps}
    cells = {
        role("simulated", m, eta, n): simulated_cell(scale, m, agents=n, step_size=eta, **place)
        for m in (METHODS if local_steps > 1 else ("fedlsa",))
        for eta in step_sizes
        for n in marks
    }
    return {k: cell for k, cell in cells.items() if updates(cell) <= (QUICK_MOST if scale.quick else MOST)}


def panel_name(heterogeneous: bool, local_steps: int) -> str:
    """The title of a panel."""
    return f"{'heterogeneous' if heterogeneous else 'homogeneous'}, H = {local_steps}"


def all_limits(scale: Scale) -> Panels:
    """Limits of every panel. Rows: settings; columns: local steps."""
    lengths = QUICK_LOCAL_STEPS if scale.quick else LOCAL_STEPS
    return {panel_name(h, H): limit_cells(scale, h, H) for h in (True, False) for H in lengths}


def all_cells(scale: Scale) -> Panels:
    """Limits and simulations of every panel."""
    lengths = QUICK_LOCAL_STEPS if scale.quick else LOCAL_STEPS
    return {
        panel_name(h, H): {**limit_cells(scale, h, H), **simulated_cells(scale, h, H)}
        for h in (True, False)
        for H in lengths
    }


def values(
    cells: Mapping[str, Cell], lookup: Lookup, method: str, eta: float, numbers: Sequence[int], what: str
) -> Floats:
    """A value of the exact limit for each number of agents : (K,)."""
    return np.array([float(lookup(cells[role("limit", method, eta, n)])[what]) for n in numbers])


def _line(cells: Mapping[str, Cell], lookup: Lookup, scale: Scale, method: str, rank: int, eta: float) -> Line:
    numbers, _, marks = axes(scale)
    exact = dict(zip(numbers, values(cells, lookup, method, eta, numbers, "mse"), strict=True))
    stable = [n for n in marks if math.isfinite(exact[n])]
    run = [n for n in stable if role("simulated", method, eta, n) in cells]
    ends = [lookup(cells[role("simulated", method, eta, n)])["squared_error"].values[:, -1] for n in run]
    return Line(
        f"η = {eta:g}",
        rank,
        method == "fedlsa",
        np.array(numbers, float),
        np.array(list(exact.values())),
        np.array(run, float),
        np.array([e.mean() for e in ends]),
        np.array([e.std(ddof=1) / math.sqrt(len(e)) if len(e) > 1 else 0.0 for e in ends]),
        np.array([n for n in stable if n not in run], float),
    )


def draw(cells: Panels, lookup: Lookup, scale: Scale) -> Figure:
    """The figure from what is stored; settings without a limit are named in the note."""
    numbers, step_sizes, _ = axes(scale)
    panels, unstable = [], []
    for title, held in cells.items():
        methods = [m for m in METHODS if role("limit", m, step_sizes[0], numbers[0]) in held]
        first = STEP_SIZES.index(step_sizes[0])
        lines = [_line(held, lookup, scale, m, first + i, eta) for m in methods for i, eta in enumerate(step_sizes)]
        for m, line in zip(np.repeat(methods, len(step_sizes)), lines, strict=True):
            if not np.isfinite(line.mse).all():
                unstable.append(f"{m}, {line.label}, {title}")
        middle = len(numbers) // 2
        height = float(lines[1].mse[middle] * numbers[middle])
        panels.append(SpeedPanel(title, lines, math.sqrt(10) * height))
    more = (
        f"\n◇: no simulation, which would take more than {'10⁷' if scale.quick else '10⁹'} updates."
        if any(len(x.alone) for p in panels for x in p.lines)
        else ""
    )
    if unstable:
        more += "\nLines end where there is no limit (unstable): " + "; ".join(unstable) + "."
    wide = len(panels) // 2
    if scale.preset == "authors":
        more = f" For each N it is another one.{more}"
    note = NOTE.format(seeds=runs(scale), preset=scale.preset, fewest=FEWEST, more=more)
    return speed_up([panels[i : i + wide] for i in range(0, len(panels), wide)], note=note)
