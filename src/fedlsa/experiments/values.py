"""Value functions: does the shared parameter represent the agents' worlds better than their own parameters do?

The value error of theta in agent c's world is the root mean square of Phi theta - V_c over its stationary law mu_c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ..checks import Floats
from ..figures.values import Dots, dots
from .base import Claim, Experiment, Lookup, Panels, Picture, Row, Scale, Table
from .cells import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW, MANY = 10, 100
WORLDS = {True: "heterogeneous", False: "homogeneous"}
NOTE = (
    "One column per agent. Value error: root mean square of Φθ \u2212 V over the stationary law of the agent's chain, "
    "in units of that of V itself:\nat the dotted line a parameter represents its world as well as 0 does. "
    "Crosses: the same parameters as the filled circles, root mean square\nover all agents' worlds. "
    "Short lines: the least error that any parameter has in this world. Instance: {preset}."
)
SOURCE = "sec:numerical; eq:system_matrix"


def _cell(scale: Scale, agents: int, heterogeneous: bool) -> Cell:
    return Cell("values", {"problem": scale.garnet(agents, heterogeneous)})


def drawn_cells(scale: Scale) -> Panels:
    """Ten agents, in two worlds and in one."""
    return {f"{name}, N = {FEW}": {"values": _cell(scale, FEW, h)} for h, name in WORLDS.items()}


def all_cells(scale: Scale) -> Panels:
    """Both settings with few agents and, unless it is to be quick, with many."""
    sizes = (FEW,) if scale.quick else (FEW, MANY)
    return {f"{name}, N = {n}": {"values": _cell(scale, n, h)} for h, name in WORLDS.items() for n in sizes}


def different_cells(scale: Scale) -> Panels:
    """Those with two worlds."""
    return {k: v for k, v in all_cells(scale).items() if k.startswith(WORLDS[True])}


def at_home(values: xr.Dataset) -> Floats:
    """Squared error of each local solution in its own world, (N,)."""
    return np.asarray(np.diagonal(values["local"].values), np.float64)


def everywhere(values: xr.Dataset) -> Floats:
    """Mean over all worlds of the squared error of each local solution, (N,)."""
    return np.asarray(values["local"].values.mean(axis=1), np.float64)


def draw(cells: Panels, lookup: Lookup, scale: Scale) -> Figure:
    """Dots per agent: own value error with theta_star, its own solution and the virtual MDP's."""
    panels = []
    for title, held in cells.items():
        v = lookup(held["values"])
        unit = np.sqrt(v["zero"].values)
        overall = np.sqrt(v["zero"].values.mean())
        panels.append(
            Dots(
                title,
                shared=np.sqrt(v["shared"].values) / unit,
                local=np.sqrt(at_home(v)) / unit,
                virtual=np.sqrt(v["virtual"].values) / unit,
                abroad=np.sqrt(everywhere(v)) / overall,
                least=np.sqrt(v["best_local"].values) / unit,
            )
        )
    return dots(panels, note=NOTE.format(preset=scale.preset))


def rows(cells: Panels, lookup: Lookup, scale: Scale) -> list[Row]:
    """Mean squared value errors over the agents' worlds, and how often one parameter beats another."""
    out: list[Row] = []
    for name, held in cells.items():
        v = lookup(held["values"])
        home, away = at_home(v), everywhere(v)
        shared = v["shared"].values
        out.append(
            {
                "setting": name,
                "V itself": float(v["zero"].mean()),
                "theta_star": float(shared.mean()),
                "virtual MDP": float(v["virtual"].mean()),
                "best shared": float(v["best_shared"].mean()),
                "local, at home": float(home.mean()),
                "best local, at home": float(v["best_local"].mean()),
                "local, in all worlds": float(away.mean()),
                "theta_star beats local in all worlds (share of agents)": float((shared.mean() < away).mean()),
                "local beats theta_star at home (share of agents)": float((home < shared).mean()),
                "share of V explained by theta_star": 1 - float(shared.mean() / v["zero"].mean()),
            }
        )
    return out


def shared_to_local(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """Over all worlds, theta_star's mean squared value error over that of the local solutions."""
    held = [lookup(c["values"]) for c in cells.values()]
    return float(np.max([float(v["shared"].mean() / everywhere(v).mean()) for v in held]))


def local_to_shared(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """At home, the local solutions' mean squared value error over that of theta_star."""
    held = [lookup(c["values"]) for c in cells.values()]
    return float(np.max([float(at_home(v).mean() / v["shared"].mean()) for v in held]))


def shared_to_virtual(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """Over all worlds, theta_star's mean squared value error over that of the virtual MDP's solution."""
    held = [lookup(c["values"]) for c in cells.values()]
    return float(np.max([float(v["shared"].mean() / v["virtual"].mean()) for v in held]))


EXPERIMENTS = (
    Experiment(
        "values",
        "What the shared value function represents",
        ("eq:system_matrix", "eq:td_virtual_iterates"),
        pictures=(
            Picture(
                "values",
                "Value error of each of ten agents in its own world with the shared solution theta_star, its own "
                "solution and that of the virtual MDP, in two worlds and in one.",
                drawn_cells,
                draw,
            ),
        ),
        tables=(
            Table(
                "values",
                "Mean squared value errors over the agents, each weighed by its stationary law. 'At home': each local "
                "solution in its own world; 'in all worlds': each in everybody's. 'Best' minimises the error itself, "
                "which TD(0) does not.",
                all_cells,
                rows,
            ),
        ),
        claims=(
            Claim(
                "values-overall",
                "With different agents, the shared parameter represents the worlds of all agents better than the "
                "agents' own parameters do on average.",
                SOURCE,
                "mean squared value error over all worlds: theta_star's over the mean of the local solutions' (largest "
                "over N)",
                different_cells,
                shared_to_local,
                at_most=1.0,
                kind="paper",
                quote="learning a shared value function gives a better representation of the overall reality",
            ),
            Claim(
                "values-home",
                "In its own world an agent's own parameter is better than the shared one, on average.",
                "",
                "mean squared value error at home: the local solutions' over theta_star's (largest over settings)",
                all_cells,
                local_to_shared,
                at_most=1.0,
            ),
            Claim(
                "values-virtual",
                "With different agents, theta_star represents the worlds of all agents at least as well as the "
                "solution of the virtual MDP.",
                "",
                "mean squared value error over all worlds: theta_star's over that of the virtual MDP's solution "
                "(largest over N)",
                different_cells,
                shared_to_virtual,
                at_most=1.0,
            ),
        ),
    ),
)
