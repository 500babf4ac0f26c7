"""Scaffnew's lower bound (thm:no-speed-up-proxskip): what does not fall with the number of agents, and what does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..checks import Floats
from ..figures import style
from ..figures.complexities import CostPanel, Marks, cost_panels
from . import laws
from .base import Claim, Lookup, Panels, Picture, Scale
from .cells import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGENTS, QUICK_AGENTS = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8)
SETTINGS = {"step_size": 0.05, "probability": 0.2, "iterations": 500}  # what is left of the start: 0.96^500
LABEL = "thm:no-speed-up-proxskip"


def cells(scale: Scale) -> Panels:
    """The example with more and more agents."""
    return {"lower bound": {str(n): Cell("lower-bound", {"agents": n, **SETTINGS}) for n in numbers(scale)}}


def numbers(scale: Scale) -> tuple[int, ...]:
    """Of agents."""
    return QUICK_AGENTS if scale.quick else AGENTS


def against_agents(what: str, cells: Panels, lookup: Lookup) -> tuple[Floats, Floats]:
    """Numbers of agents and a value."""
    held = cells["lower bound"]
    return np.array([float(n) for n in held]), np.array([float(lookup(c)[what]) for c in held.values()])


def draw(cells: Panels, lookup: Lookup, scale: Scale) -> Figure:
    """psi and the server's error against the number of agents."""
    N, psi = against_agents("psi", cells, lookup)
    _, mse = against_agents("mse", cells, lookup)
    marks = [
        Marks("ψ, what the theorem is about", style.OTHERS[0], N, psi, "D", joined=True),
        Marks("MSE of the server", style.METHODS["Scaffnew"], N, mse, "^", joined=True),
    ]
    guide = {"1/N": (N, mse[0] / N / 2)}
    note = (
        "Scaffnew, exact values after {iterations} iterations; η = {step_size}, p = {probability}.\n"
        "ψ: mean squared error of the agents, each where it is, plus (η/p)²\ntimes that of their control variates."
    ).format(**SETTINGS)
    return cost_panels([CostPanel("", "agents N", "exact value", marks, guide)], note=note, width=4.6)


def least_psi(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The smallest psi over numbers of agents, relative to that of one."""
    _, psi = against_agents("psi", cells, lookup)
    return float(psi.min() / psi[0])


def server_slope(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The exponent of N in the server's MSE."""
    return laws.slope(*against_agents("mse", cells, lookup))


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
        least_psi,
        at_least=1 - 1e-9,
        kind="paper",
        quote="The bounds obtained in thm:potential_psi_t_sto_com_appendix are minimax optimal up to constants that "
        "are independent from the problem",
    ),
    Claim(
        "lower-bound-server",
        "No linear speed-up: in the same example more agents do not lower the MSE of the server",
        LABEL,
        "exponent of N in the server's MSE",
        cells,
        server_slope,
        at_least=-0.5,
        expected=False,
        kind="paper",
        quote="No linear speedup in the probabilistic communication setting with control variates",
    ),
)
