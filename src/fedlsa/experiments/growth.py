"""What an accuracy costs: the paper's two complexity tables, and the example behind Scaffnew's lower bound."""

from __future__ import annotations

import pandas as pd
import xarray as xr

from .. import theory
from ..algorithms import Scaffnew
from ..figures import theme
from ..figures.lines import Chart, ChartRows, Line, method_line
from .cells import Cell, computes, rows_of
from .claim_statistics import slope
from .computations import How, Settings, scalars
from .cost_tables import (
    BY_AGENTS,
    COST_PANEL,
    COST_PANELS,
    GAMMA,
    LSA,
    NAMES,
    NO_PROMISE,
    NU,
    RULE,
    TD,
    N,
    note,
)
from .counterexamples import no_speed_up_example
from .experiment import Experiment, Picture, Scale, Table, claim

# Scaffnew's lower bound (thm:no-speed-up-proxskip): what does not fall with the number of agents, and what does.

AGENTS, QUICK_AGENTS = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8)
RUN = {"step_size": 0.05, "probability": 0.2, "iterations": 500}  # what is left of the start: 0.96^500
NOTE = """Scaffnew, exact values after {iterations} iterations; η = {step_size}, p = {probability}.
ψ: mean squared error of the agents, each where it is, plus (η/p)² times that of their control variates."""


@computes("lower-bound")
def errors(settings: Settings, how: How) -> xr.Dataset:
    """psi (all agents, at an iteration) and the server's MSE of Scaffnew in the example, after "iterations"."""
    method, last = Scaffnew(settings["step_size"], settings["probability"]), settings["iterations"]
    p = no_speed_up_example(settings["agents"])
    curve = theory.exact_iterations(p, method, last, p.theta_star + 1, record=[0, last])
    return scalars(psi=float(curve["psi"][-1]), mse=float(curve["mse"][-1]))


def cells(scale: Scale) -> list[Cell]:
    """The example with more and more agents."""
    return [Cell("lower-bound", {"agents": n, **RUN}) for n in (QUICK_AGENTS if scale.quick else AGENTS)]


def draw(results: pd.DataFrame, scale: Scale) -> ChartRows:
    """psi and the server's error against the number of agents."""
    N, psi, mse = (results[name].to_numpy(float) for name in ("agents", "psi", "mse"))
    lines = [
        Line(N, psi, "ψ, what the theorem is about", theme.OTHERS[0], "joined", marker="diamond"),
        Line(N, mse, "MSE of the server", theme.METHODS["Scaffnew"], "joined", marker="triangle"),
        Line(N, mse[0] / N / 2, "falls like 1/N", theme.SOFT, "guide"),
    ]
    chart = Chart(lines, "agents N", "exact value", x_scale="log")
    return ChartRows([[chart]], notes=[NOTE.format(**RUN)], panel=(5.4, 3.2))


PICTURE = Picture(
    "lower-bound",
    "The example behind Scaffnew's lower bound: ψ does not fall with the number of agents, the server's error does.",
    cells,
    draw,
)
CLAIMS = (
    claim("lower-bound-psi", cells, lambda results: float(results["psi"].min() / results["psi"].iloc[0])),
    claim(
        "lower-bound-server",
        cells,
        lambda results: slope(results["agents"].to_numpy(float), results["mse"].to_numpy()),
    ),
)


def draw_speed_up(results: pd.DataFrame, scale: Scale) -> ChartRows:
    """Communications and samples against the accuracy, and samples against the number of agents."""
    along = {name: rows_of(results, N.cells(scale, method)) for method, name in NAMES.items()}
    lines = [method_line(name, *N.against(plans, "samples"), "joined") for name, plans in along.items()]
    x, height = lines[0].x, min(line.y[0] for line in lines) / 2.5
    lines.append(Line(x, height * x[0] / x, "falls like 1/N", theme.SOFT, "guide"))
    last = Chart(lines, "agents N", "observations per agent", BY_AGENTS, x_scale="log")
    more = f"{note(scale)} Against N: ε = {along['FedLSA']['epsilon'].iloc[0]:g}."
    return ChartRows([[*LSA.charts(results, scale), last]], notes=[more], panel=COST_PANEL, share="none")


EXPERIMENTS = (
    Experiment(
        "table1",
        "What an accuracy costs: communications, local updates and samples of each method",
        (LSA.label, "thm:no-speed-up-proxskip"),
        (
            Picture(
                "table1",
                "What an RMSE of ε costs: communications, samples per agent, and samples against the number of agents.",
                lambda scale: [*LSA.cells(scale, kinds=("plan",)), *N.cells(scale)],
                draw_speed_up,
                lambda scale: [*COST_PANELS, BY_AGENTS],
            ),
            PICTURE,
        ),
        (
            Table(
                "table1",
                f"Stated and measured costs of an accuracy ε; measured: {RULE}. Exponents of N and 1/a: at one "
                "accuracy; $a$, the least eigenvalue of the symmetric part of an agent's matrix, is lowered by a "
                "smaller first feature.",
                LSA.all_cells,
                LSA.rows,
                NO_PROMISE,
            ),
        ),
        (
            *LSA.claims(),
            *(N.claim(f"speed-up-{m}", LSA, m, "samples") for m in ("synchronous", "fedlsa", "scafflsa", "scaffnew")),
            *CLAIMS,
        ),
    ),
    Experiment(
        "table2",
        "What an accuracy costs in federated TD learning",
        (TD.label,),
        (
            Picture(
                "table2",
                "What an RMSE of ε costs in federated TD(0).",
                lambda scale: TD.cells(scale, kinds=("plan",)),
                TD.draw,
                lambda scale: COST_PANELS,
            ),
        ),
        (
            Table(
                "table2",
                f"Stated and measured costs, federated TD(0); measured: {RULE}. Exponents of N, {GAMMA.symbol} and "
                f"{NU.symbol}: at one accuracy on the first table's instance, for other discounts and with a smaller "
                "first feature.",
                TD.all_cells,
                TD.rows,
                NO_PROMISE,
            ),
        ),
        tuple(TD.claims()),
    ),
)
