"""Value functions: does the shared parameter represent the agents' worlds better than their own parameters do?

The value error of theta in agent c's world is the root mean square of Phi theta - V_c over its stationary law mu_c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .. import theory
from ..checks import Floats
from ..figures import theme
from ..figures.lines import Chart, ChartRows, Line
from ..problems import Problem, RankOne
from .cells import Cell, computes
from .computations import How, Settings, problem
from .experiment import Experiment, Picture, Scale, Table, claim, grid
from .paper_curves import panel_title

DRAWN = 10  # agents in a panel of the figure, a column each
NOTE = (
    "One column per agent. Value error: root mean square of Φθ \u2212 V over the stationary law of the agent's chain, "
    "in units of that of V itself:\nat the dotted line a parameter represents its world as well as 0 does. "
    "Crosses: the same parameters as the filled circles, root mean square\nover all agents' worlds. "
    "Short lines: the least error that any parameter has in this world. Instance: {preset}."
)


def values_and_features(p: Problem) -> tuple[Floats, Floats, Floats]:
    """V_c and mu_c of every agent, (N, S), and the features Phi, (S, d)."""
    V = theory.value_functions(p)
    assert isinstance(p.observations, RankOne)
    return V, theory.stationary_law(p), p.observations.rows[: V.shape[1]]


def squared_errors(V: Floats, mu: Floats, phi: Floats, theta: Floats) -> Floats:
    """||Phi theta_i - V_c||^2 in mu_c for each parameter and each agent's world; theta : (k, d), returns (k, N)."""
    gap = (theta @ phi.T)[:, None, :] - V[None]
    return np.asarray(np.einsum("cs,kcs->kc", mu, gap**2), np.float64)


def _closest(V: Floats, mu: Floats, phi: Floats) -> Floats:
    """The parameter with the least total squared error in the given worlds; V, mu : (k, S)."""
    root = np.sqrt(mu)
    rows, values = (root[..., None] * phi).reshape(-1, phi.shape[1]), (root * V).ravel()
    return np.asarray(np.linalg.lstsq(rows, values, rcond=None)[0], np.float64)


@computes("values")
def value_errors(settings: Settings, how: How) -> xr.Dataset:
    """Squared value errors in every agent's world: of theta_star, the virtual MDP's solution, each local solution.

    A local solution's own world is "home"; its mean over all worlds is "everywhere". Beside them, as ends of the scale:
    the zero function, the best shared parameter and each agent's own best.
    """
    p = problem(settings)
    V, mu, phi = values_and_features(p)
    shared = {
        "shared": p.theta_star,
        "virtual": theory.virtual_mdp(p).theta_tilde,
        "best_shared": _closest(V, mu, phi),
        "zero": np.zeros(p.dim),
    }
    out: dict[str, Any] = dict(zip(shared, squared_errors(V, mu, phi, np.stack(list(shared.values()))), strict=True))
    local = squared_errors(V, mu, phi, p.theta_star_local)
    best = np.stack([_closest(V[c : c + 1], mu[c : c + 1], phi) for c in range(p.n_agents)])
    out |= {"home": np.diagonal(local).copy(), "everywhere": local.mean(axis=1)}
    out["best_local"] = np.diagonal(squared_errors(V, mu, phi, best)).copy()
    return xr.Dataset({name: ("agent", errors) for name, errors in out.items()})


def all_cells(scale: Scale) -> list[Cell]:
    """Both settings with 10 and 100 agents (quick: 10)."""
    return [scale.cell("values", **place) for place in grid(heterogeneous=(True, False), agents=scale.agents)]


def different_cells(scale: Scale) -> list[Cell]:
    """Those with two worlds."""
    return [cell for cell in all_cells(scale) if cell["heterogeneous"]]


def draw(results: pd.DataFrame, scale: Scale) -> ChartRows:
    """Marks per agent: own value error with theta_star, its own solution and the virtual MDP's."""
    charts = []
    for row in results.itertuples():
        errors, title = row.result, panel_title(row.heterogeneous, row.agents)
        root = {name: np.sqrt(error.values) for name, error in errors.items()}
        unit, overall = root["zero"], np.sqrt(errors["zero"].values.mean())
        agent = np.arange(1.0, len(unit) + 1)
        ends = np.stack([agent - 0.36, agent + 0.36, np.full(len(unit), np.nan)], axis=1).ravel()
        own, virtual = theme.OTHERS[1], theme.OTHERS[0]
        lines = [
            Line(ends, np.repeat(root["best_local"] / unit, 3), "least possible", theme.SOFT, "law"),
            Line(ends[[0, -2]], np.ones(2), "", theme.SOFT, "guide"),
        ]
        for shift, label, y, colour, role, marker in (
            (-0.27, "θ⋆, shared", root["shared"] / unit, theme.INK, "samples", "square"),
            (-0.09, "own solution, at home", root["home"] / unit, own, "marks", "circle"),
            (0.09, "own solution, all worlds", root["everywhere"] / overall, own, "marks", "cross"),
            (0.27, "virtual MDP", root["virtual"] / unit, virtual, "samples", "triangle"),
        ):
            lines.append(Line(agent + shift, y, label, colour, role, marker=marker, size=4.2))
        charts.append(Chart(lines, "agent", "value error / size of the values", title, y_scale="linear", x_ticks=agent))
    values = np.concatenate([line.y for chart in charts for line in chart.lines])
    low, top = float(values.min()), 1.05 * float(values.max())
    limits = (0.97 * low if low > 0.5 else -0.04 * top, top)
    note = NOTE.format(preset=scale.preset)
    return ChartRows([[replace(chart, limits=limits) for chart in charts]], notes=[note], panel=(3.8, 2.8))


def rows(results: pd.DataFrame, scale: Scale) -> pd.DataFrame:
    """Mean squared value errors over the agents' worlds, and how often one parameter beats another."""
    out = []
    for row in results.itertuples():
        errors = row.result
        mean = {name: float(error.mean()) for name, error in errors.items()}
        home, everywhere, shared = (errors[name].values for name in ("home", "everywhere", "shared"))
        out.append(
            {
                "setting": panel_title(row.heterogeneous, row.agents),
                "V itself": mean["zero"],
                "theta_star": mean["shared"],
                "virtual MDP": mean["virtual"],
                "best shared": mean["best_shared"],
                "local, at home": mean["home"],
                "best local, at home": mean["best_local"],
                "local, in all worlds": mean["everywhere"],
                "theta_star beats local in all worlds (share of agents)": float((shared.mean() < everywhere).mean()),
                "local beats theta_star at home (share of agents)": float((home < shared).mean()),
                "share of V explained by theta_star": 1 - mean["shared"] / mean["zero"],
            }
        )
    return pd.DataFrame(out)


def ratio(name: str, other: str) -> Callable[[pd.DataFrame], float]:
    """A mean squared value error over another one: the largest of all settings."""
    return lambda results: float(np.max([float(e[name].mean() / e[other].mean()) for e in results["result"]]))


EXPERIMENT = Experiment(
    "values",
    "What the shared value function represents",
    ("eq:system_matrix", "eq:td_virtual_iterates"),
    (
        Picture(
            "values",
            "Value error of each of ten agents in its own world with the shared solution theta_star, its own "
            "solution and that of the virtual MDP, in two worlds and in one.",
            lambda scale: [cell for cell in all_cells(scale) if cell["agents"] == DRAWN],
            draw,
            lambda scale: [panel_title(True, DRAWN), panel_title(False, DRAWN)],
        ),
    ),
    (
        Table(
            "values",
            "Mean squared value errors over the agents, each weighed by its stationary law. 'At home': each local "
            "solution in its own world; 'in all worlds': each in everybody's. 'Best' minimises the error itself, "
            "which TD(0) does not.",
            all_cells,
            rows,
        ),
    ),
    (
        claim("values-overall", different_cells, ratio("shared", "everywhere")),
        claim("values-home", all_cells, ratio("home", "shared")),
        claim("values-virtual", different_cells, ratio("shared", "virtual")),
    ),
)
