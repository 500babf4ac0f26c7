"""How costs grow with the number of agents, with 1/a, and in TD learning with 1/(1 - gamma) and 1/nu; both tables.

All of it at one accuracy, on the first table's instance: copies of its agents change N alone, a smaller first feature
changes a and nu, and another discount changes 1 - gamma (and theta_star with it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import xarray as xr

from .. import theory
from ..algorithms import Scaffnew
from ..checks import Floats
from ..figures import theme
from ..figures.lines import Chart, ChartRows, Line, method_line
from . import claim_statistics as laws
from .cells import Cell, computes, rows_of
from .claim_statistics import slope
from .computations import How, Settings, scalars
from .cost_tables import (
    COST_PANEL,
    COST_PANELS,
    COSTS,
    LSA,
    NAMES,
    NO_PROMISE,
    QUICK_COPIES,
    QUICK_EPSILONS,
    RULE,
    TD,
    TITLES,
    CostTable,
    note,
)
from .counterexamples import no_speed_up_example
from .experiment import Claim, Experiment, Picture, Scale, Table

# Scaffnew's lower bound (thm:no-speed-up-proxskip): what does not fall with the number of agents, and what does.

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
    Claim(
        "lower-bound-psi",
        "In the example of the lower bound ψ does not fall with the number of agents",
        LABEL,
        "smallest ψ over numbers of agents; exact, relative to that of one agent",
        cells,
        lambda results: float(results["psi"].min() / results["psi"].iloc[0]),
        at_least=1 - 1e-9,
        panel=f"{PICTURE.name}: ",
        quote="The bounds obtained in thm:potential_psi_t_sto_com_appendix are minimax optimal up to constants that "
        "are independent from the problem",
    ),
    Claim(
        "lower-bound-server",
        "In the same example the MSE of the server, which averages the agents, falls with their number; the theorem is "
        "about ψ, a mean over all agents at every iteration",
        LABEL,
        "exponent of N in the server's MSE; exact",
        cells,
        lambda results: slope(results["agents"].to_numpy(float), results["mse"].to_numpy()),
        at_most=-0.5,
        panel=f"{PICTURE.name}: ",
    ),
)


EPSILON = 0.025
BY_AGENTS = "samples by N"  # a chart


@dataclass(frozen=True)
class Axis:
    """What grows. symbol : in headings; setting, values : of the problem (quick ones are fewer); x : of plans."""

    name: str
    symbol: str
    setting: str
    x: Callable[[pd.DataFrame], pd.Series]
    values: Sequence[float]
    quick: Sequence[float]

    def cells(self, scale: Scale, *methods: str) -> list[Cell]:
        """Plans of the methods at one accuracy, along the axis."""
        settings = {"epsilon": QUICK_EPSILONS[0] if scale.quick else EPSILON}
        return [
            Cell("plan", {"problem": {**LSA.problem(scale), self.setting: value}, "method": method, **settings})
            for method in methods or TITLES
            for value in (self.quick if scale.quick else self.values)
        ]

    def against(self, plans: pd.DataFrame, what: str) -> tuple[Floats, Floats]:
        """What grows and a cost of one method."""
        return self.x(plans).to_numpy(float), plans[what].to_numpy(float)

    def exponent_claim(
        self, name: str, text: str, source: str, method: str, what: str, table: str = "table1", **more: Any
    ) -> Claim:
        """On the exponent with which a cost of a method grows."""
        cost = {"rounds": "communications", "samples": "observations per agent"}[what]
        return Claim(
            name,
            text,
            source,
            f"exponent of {self.symbol} in the {cost}; at one accuracy",
            lambda scale: self.cells(scale, method),
            lambda results: laws.slope(*self.against(results, what)),
            panel=f"table1: {BY_AGENTS}" if self.name == "agents" else f"{table}: {COST_PANELS[0]}",
            **more,
        )


FACTORS, QUICK_FACTORS = (1, 0.5, 0.25), (1, 0.25)  # of the first feature
N = Axis("agents", "N", "copies", lambda plans: plans["agents"] * plans["copies"], (1, 2, 5, 20, 50), QUICK_COPIES)
A = Axis("a", "1/a", "first_feature", lambda plans: 1 / plans["a"], FACTORS, QUICK_FACTORS)
NU = Axis("nu", "1/\u03bd", "first_feature", lambda plans: 1 / plans["nu"], FACTORS, QUICK_FACTORS)
DISCOUNTS, QUICK_DISCOUNTS = (0.8, 0.9, 0.95, 0.98), (0.8, 0.95)
GAMMA = Axis(
    "discount", "1/(1\u2212\u03b3)", "discount", lambda plans: 1 / (1 - plans["discount"]), DISCOUNTS, QUICK_DISCOUNTS
)


@dataclass(frozen=True)
class Growth:
    """A table of costs with exponents along some axes."""

    table: CostTable
    axes: Sequence[Axis]

    def cells(self, scale: Scale) -> list[Cell]:
        return [*self.table.cells(scale), *(cell for axis in self.axes for cell in axis.cells(scale))]

    def rows(self, results: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """The table's rows, each with the exponents."""
        rows, stated = self.table.rows(results, scale), self.table.printed.rows
        for axis in self.axes:
            plans = [rows_of(results, axis.cells(scale, method)) for method in stated]
            for what, name in COSTS.items():
                exponents = [round(laws.slope(*axis.against(part, what)), 2) for part in plans]
                rows[f"exponent of {axis.symbol} in {name}"] = exponents
        fewer = rows["exponent of N in samples"] < [c.agents - laws.CLEARLY_SMALLER for c in stated.values()]
        return rows.assign(
            **{"samples with many agents are": fewer.map({True: "fewer than stated", False: "as stated"})}
        )

    def claims(self) -> tuple[Claim, ...]:
        """Costs grow no faster than stated along the axes."""
        return tuple(
            axis.exponent_claim(
                f"{self.table.name}-{method}-{axis.name}",
                f"{NAMES[method]}'s communications grow no faster than the square of {axis.symbol}",
                self.table.printed.label,
                method,
                "rounds",
                self.table.name,
                at_most=2.0 + laws.CLEARLY_SMALLER,
                quote=self.table.printed.quote(method, "rounds"),
            )
            for axis in self.axes[1:]
            for method in ("fedlsa", "scafflsa")
        )


LSA_GROWTH, TD_GROWTH = Growth(LSA, (N, A)), Growth(TD, (N, GAMMA, NU))


def draw_speed_up(results: pd.DataFrame, scale: Scale) -> ChartRows:
    """Communications and samples against the accuracy, and samples against the number of agents."""
    along = {name: rows_of(results, N.cells(scale, method)) for method, name in NAMES.items()}
    lines = [method_line(name, *N.against(plans, "samples"), "joined") for name, plans in along.items()]
    x, height = lines[0].x, min(line.y[0] for line in lines) / 2.5
    lines.append(Line(x, height * x[0] / x, "falls like 1/N", theme.SOFT, "guide"))
    last = Chart(lines, "agents N", "observations per agent", BY_AGENTS, x_scale="log")
    more = f"{note(scale)} Against N: ε = {along['FedLSA']['epsilon'].iloc[0]:g}."
    return ChartRows([[*LSA.charts(results, scale), last]], notes=[more], panel=COST_PANEL, share="none")


def _speed_up_claim(method: str, text: str, source: str = LSA.printed.label, **more: Any) -> Claim:
    bounds: dict[str, Any] = {"at_least": -1.2, "at_most": -0.8}
    return N.exponent_claim(f"speed-up-{method}", text, source, method, "samples", **bounds, **more)


EXPERIMENTS = (
    Experiment(
        "table1",
        "What an accuracy costs: communications, local updates and samples of each method",
        (LSA.printed.label, "thm:no-speed-up-proxskip"),
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
                LSA_GROWTH.cells,
                LSA_GROWTH.rows,
                NO_PROMISE,
            ),
        ),
        (
            *LSA.claims(),
            *LSA_GROWTH.claims(),
            _speed_up_claim(
                "synchronous",
                f"{TITLES['synchronous']}: its samples fall like 1/N, where the table's row of earlier work has N²",
                "cor:sample_compl_h_1_proof",
                quote=r"$T = \mathcal{O}(\frac{\tilde v_{\mathrm{heter}}\vee\bar\sigma_\varepsilon}{Na^2\varepsilon^2}"
                r"\log\frac{\Vert\theta_0-\theta_\star\Vert}{\varepsilon})$",
            ),
            _speed_up_claim("fedlsa", "FedLSA's samples fall like 1/N", quote=LSA.printed.quote("fedlsa", "samples")),
            _speed_up_claim(
                "scafflsa", "SCAFFLSA's samples fall like 1/N", quote=LSA.printed.quote("scafflsa", "samples")
            ),
            _speed_up_claim("scaffnew", "Scaffnew's samples fall like 1/N, which its row does not say"),
            *CLAIMS,
        ),
    ),
    Experiment(
        "table2",
        "What an accuracy costs in federated TD learning",
        (TD.printed.label,),
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
                TD_GROWTH.cells,
                TD_GROWTH.rows,
                NO_PROMISE,
            ),
        ),
        (*TD.claims(), *TD_GROWTH.claims()),
    ),
)
