"""Scaffnew's lower bound (thm:no-speed-up-proxskip): what does not fall with the number of agents, and what does."""

from __future__ import annotations

import xarray as xr

from .. import theory
from ..algorithms import Scaffnew
from ..figures import theme
from ..figures.lines import Chart, ChartRows, Line
from .cells import Cell, Results, computes
from .claim_statistics import slope
from .compute import How, Settings, scalars
from .experiment import Claim, Picture, Scale
from .printed_lemmas import no_speed_up_example

AGENTS, QUICK_AGENTS = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8)
RUN = {"step_size": 0.05, "probability": 0.2, "iterations": 500}  # what is left of the start: 0.96^500
LABEL = "thm:no-speed-up-proxskip"
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


def draw(results: Results, scale: Scale) -> ChartRows:
    """psi and the server's error against the number of agents."""
    N, psi, mse = results.column("agents"), results.values("psi"), results.values("mse")
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
    Claim(
        "lower-bound-psi",
        "In the example of the lower bound ψ does not fall with the number of agents",
        LABEL,
        "smallest ψ over numbers of agents, relative to that of one agent",
        cells,
        lambda results: float(results.values("psi").min() / results.values("psi")[0]),
        at_least=1 - 1e-9,
        panel=PICTURE.name,
        quote="The bounds obtained in thm:potential_psi_t_sto_com_appendix are minimax optimal up to constants that "
        "are independent from the problem",
    ),
    Claim(
        "lower-bound-server",
        "In the same example the MSE of the server, which averages the agents, falls with their number; the theorem is "
        "about ψ, a mean over all agents at every iteration",
        LABEL,
        "exponent of N in the server's MSE",
        cells,
        lambda results: slope(results.column("agents"), results.values("mse")),
        at_most=-0.5,
        panel=PICTURE.name,
    ),
)
