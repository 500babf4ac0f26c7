"""The paper's complexity tables, measured: what an accuracy costs each method under the planner's rule; and the example
behind Scaffnew's lower bound.

The rule: the fewest communications with an exact MSE of at most epsilon^2, and at most four times as many observations
per agent as the fewest that suffice. The first table's instance has two tables of observations (agents of a world are
alike), the second's is the paper's federated TD(0) with an agent per table. How costs grow with the number of agents,
with 1/a, and in TD learning with 1/(1 - gamma) and 1/nu is measured at one accuracy on the first table's instance:
copies of its agents change N alone, a smaller first feature changes a and nu, and another discount changes 1 - gamma
(and theta_star with it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .. import theory
from ..algorithms import METHODS, Scaffnew
from ..checks import Floats
from ..errors import ArgumentError
from ..figures import theme
from ..figures.lines import Chart, ChartRows, Line, method_line
from . import claim_statistics as laws
from .cells import Cell, computes, rows_of
from .computations import How, Settings, problem, scalars
from .counterexamples import no_speed_up_example
from .experiment import CLAIMS, Claim, Experiment, Picture, Scale, Table, claim

# What the paper's two complexity tables print (tab:summary-of-results, tab:summary-of-results-TD).

NAMES = {name: METHODS[name].__name__ for name in ("fedlsa", "scaffnew", "scafflsa")}
COLUMNS = {"rounds": "communication $T$", "local_steps": "local updates $H$", "samples": "sample complexity $TH$"}


# A row per method; row : its name there, "" where it has none; power : of 1/epsilon in T, 0 for a logarithm; agents :
# the power of N in the samples.
STATED = pd.read_csv(Path(__file__).with_name("stated_costs.csv"), keep_default_na=False, index_col=("table", "method"))
COST_PANELS, BY_AGENTS = ("communications", "samples"), "samples by N"  # charts against the accuracy, and another
COST_PANEL = (3.8, 3.2)  # inches of a chart with its labels
TITLES = {"synchronous": "FedLSA, H = 1 (Doan)", **NAMES}
COPIES, QUICK_COPIES = 5, (1, 4)  # of two agents, one of each world
QUICK_EPSILONS = (0.03, 0.003, 0.0005)
EPSILON = 0.025  # at which costs are measured along an axis
QUICK_SIZE = {"states": 10, "features": 2}  # plans are quick; nothing is simulated, so nothing is compiled for it
RULE = "the fewest communications with MSE ≤ ε² and at most four times the fewest observations"
NO_PROMISE = {"promised": "its theorem does not speak of this problem"}
UNCHANGED = {"first_feature": 1, "discount": 0.95}  # where these do not vary
COSTS = {"rounds": "communications", "local_steps": "local updates", "samples": "samples"}


MEASURES: dict[str, tuple[laws.Measure, str]] = {  # of a claim, by what it is about, and of which cost
    "power": (laws.final_slope, "rounds"),
    "fedlsa-law": (laws.residual_ratio(laws.power, laws.logarithm), "rounds"),
    "law": (laws.residual_ratio(laws.logarithm, laws.power), "rounds"),
    "local": (laws.slope, "local_steps"),
}


@computes("plan")
def planned(settings: Settings, how: How) -> xr.Dataset:
    """`fl.plan` for the accuracy "epsilon"; the method "synchronous" is FedLSA with one local step (row of Doan)."""
    p, epsilon = problem(settings), settings["epsilon"]
    if settings["method"] == "synchronous":
        plan = theory.synchronous_plan(p, epsilon, p.theta_star + 1)
    else:
        plan = theory.plan(p, epsilon, method=settings["method"], theta_0=p.theta_star + 1)
    return scalars(
        rounds=plan.rounds,
        samples=plan.samples,
        local_steps=plan.samples / plan.rounds,
        rmse=plan.rmse,
        a=theory.constants(p).a_sym,
        nu=least_feature(settings),
    )


def least_feature(settings: Settings) -> float:
    """nu, the smallest eigenvalue of an agent's E[phi phi^T] (assum:feature_design)."""
    arguments = dict(settings["problem"])
    factor = arguments.pop("first_feature", 1)
    features = theory.constants(problem({"problem": arguments})).table_features
    scale = np.append(factor, np.ones(features.shape[-1] - 1))
    return float(np.linalg.eigvalsh(scale[:, None] * features * scale).min())


@computes("promise")
def promised(settings: Settings, how: How) -> xr.Dataset:
    """What the method's theorem asks for (`fl.theory.complexity`); NaN where it does not speak of the problem."""
    try:
        p = problem(settings)
        found = theory.complexity(p, settings["method"], settings["epsilon"], p.theta_star + 1)
    except ArgumentError:
        return scalars(rounds=math.nan, samples=math.nan)
    return scalars(rounds=found.rounds, samples=found.samples)


def two_worlds(scale: Scale) -> dict[str, Any]:
    """The first table's instance: two worlds with half of the agents each."""
    size = {"copies": QUICK_COPIES[-1], **QUICK_SIZE} if scale.quick else {"copies": COPIES}
    return {**scale.garnet(2, heterogeneous=True), "perturbation": 0.0, **UNCHANGED, **size}


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
            Cell("plan", {"problem": {**two_worlds(scale), self.setting: value}, "method": method, **settings})
            for method in methods or TITLES
            for value in (self.quick if scale.quick else self.values)
        ]

    def against(self, plans: pd.DataFrame, what: str) -> tuple[Floats, Floats]:
        """What grows and a cost of one method."""
        return self.x(plans).to_numpy(float), plans[what].to_numpy(float)

    def claim(self, name: str, table: CostTable, method: str, what: str) -> Claim:
        return claim(
            name,
            lambda scale: self.cells(scale, method),
            lambda results: laws.slope(*self.against(results, what)),
            quote=table.quote(method, what),
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
class CostTable:
    """One of the two tables: the instance and the accuracies at which what the paper states is measured.

    axes : along which costs at one accuracy are measured, too
    """

    name: str
    label: str
    epsilons: Sequence[float]
    axes: Sequence[Axis]
    perturbed: bool

    @property
    def stated(self) -> pd.DataFrame:
        """What the paper states, a row per method."""
        return STATED.loc[self.name]

    def quote(self, method: str, cost: str) -> str:
        """An entry, by its row and its column; nothing where the paper has no such row."""
        row, entry = self.stated.loc[method, ["row", cost]]
        return f"{row}, {COLUMNS[cost]}: {entry}" if row else ""

    def problem(self, scale: Scale) -> dict[str, Any]:
        """Perturbed: the paper's ten agents."""
        return scale.garnet(10, heterogeneous=True) if self.perturbed and not scale.quick else two_worlds(scale)

    def cells(self, scale: Scale, *methods: str, kinds: Sequence[str] = ("plan", "promise")) -> list[Cell]:
        """Plans and what theorems promise, by accuracy."""
        epsilons = QUICK_EPSILONS if scale.quick else self.epsilons
        return [
            Cell(kind, {"problem": self.problem(scale), "method": method, "epsilon": e})
            for method in methods or self.stated.index
            for kind in kinds
            for e in epsilons
        ]

    def all_cells(self, scale: Scale) -> list[Cell]:
        """By accuracy, and along the axes."""
        return [*self.cells(scale), *(cell for axis in self.axes for cell in axis.cells(scale))]

    def rows(self, results: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """What is stated beside what is measured, a row per method, with the exponents along the axes."""
        parts = {method: rows_of(results, self.cells(scale, method)) for method in self.stated.index}
        rows = pd.DataFrame([self._row(method, part) for method, part in parts.items()])
        for axis in self.axes:
            plans = [rows_of(results, axis.cells(scale, method)) for method in self.stated.index]
            for what, name in COSTS.items():
                exponents = [round(laws.slope(*axis.against(part, what)), 2) for part in plans]
                rows[f"exponent of {axis.symbol} in {name}"] = exponents
        fewer = rows["exponent of N in samples"] < self.stated["agents"].to_numpy() - laws.CLEARLY_SMALLER
        words = fewer.map({True: "fewer than stated", False: "as stated"})
        return rows.assign(**{"samples with many agents are": words})

    def _row(self, method: str, results: pd.DataFrame) -> dict[str, str | int | float]:
        stated, plans = self.stated.loc[method], results[results["kind"] == "plan"]
        x, every = against_accuracy(plans, "rounds")[0], plans["epsilon"].to_numpy(float)
        T, H, n = (plans[cost].to_numpy(float) for cost in COSTS)
        promise = results[results["kind"] == "promise"]["rounds"].to_numpy(float)
        shown = [(f" at ε = {every[i]:g}", i) for i in sorted({0, len(every) // 2, len(every) - 1})]
        law, last = laws.better(x, T), laws.final_slope(x, T)
        row: dict[str, str | int | float] = {"method": TITLES[method], "communications, stated": stated.rounds}
        for at, i in shown:
            row |= {f"communications{at}": int(T[i]), f"promised by its theorem{at}": float(f"{promise[i]:.3g}")}
        row |= {"law of communications": f"{law.name}: {law}", "last exponent": round(last, 2)}
        row |= {"local updates, stated": stated.local_steps, **{f"local updates{at}": f"{H[i]:.3g}" for at, i in shown}}
        row |= {"exponent of local updates": round(laws.slope(x, H), 2), "samples per agent, stated": stated.samples}
        row |= {f"samples{at}": f"{n[i]:.3g}" for at, i in shown}
        row["exponent of samples"] = round(laws.slope(x, n), 2)
        return {**row, "communications are": laws.compare_with_stated(stated.power, law.name, last)}

    def charts(self, results: pd.DataFrame, scale: Scale) -> list[Chart]:
        """Communications and samples against the accuracy."""
        rounds, samples = [], []
        for method, name in NAMES.items():
            plans = rows_of(results, self.cells(scale, method, kinds=("plan",)))
            x, T = against_accuracy(plans, "rounds")
            fine, law = np.geomspace(x[0], x[-1], 100), laws.better(x, T)
            rounds += [method_line(name, x, T), Line(fine, law(fine), colour=theme.METHODS[name], role="law")]
            samples.append(method_line(name, x, plans["samples"].to_numpy(float), "joined"))
        samples.append(Line(x, samples[0].y[-1] * 3 * (x / x[-1]) ** 2, "grows like 1/ε²", theme.SOFT, "guide"))
        return [
            Chart(rounds, "1 / ε", "communications T", COST_PANELS[0], x_scale="log"),
            Chart(samples, "1 / ε", "observations per agent", COST_PANELS[1], x_scale="log"),
        ]

    def draw(self, results: pd.DataFrame, scale: Scale) -> ChartRows:
        return ChartRows([self.charts(results, scale)], notes=[note(scale)], panel=COST_PANEL, share="none")

    def claims(self) -> list[Claim]:
        """Those called TABLE-METHOD-WHAT in claims.toml: how a cost grows with the accuracy, or along an axis."""
        axes = {axis.name: axis for axis in self.axes}
        found = []
        for name in (name for name in CLAIMS if name.startswith(f"{self.name}-")):
            _, method, what = name.split("-")
            found.append(
                axes[what].claim(name, self, method, "rounds")
                if what in axes
                else self._claim(name, method, *MEASURES.get(f"{method}-{what}", MEASURES[what]))
            )
        return found

    def _claim(self, name: str, method: str, measure: laws.Measure, what: str) -> Claim:
        return claim(
            name,
            lambda scale: self.cells(scale, method, kinds=("plan",)),
            lambda results: measure(*against_accuracy(results, what)),
            quote=self.quote(method, what),
        )


def against_accuracy(plans: pd.DataFrame, what: str) -> tuple[Floats, Floats]:
    """1/epsilon and a cost of plans."""
    return 1 / plans["epsilon"].to_numpy(float), plans[what].to_numpy(float)


def note(scale: Scale) -> str:
    return (
        f"Marks: {RULE}, by exact moments.\nLines through "
        f"communications: a power or a logarithm of 1/ε, whichever fits T better. Instance: {scale.preset}."
    )


LSA = CostTable("table1", "tab:summary-of-results", tuple(0.2 / 2**k for k in range(8)), (N, A), perturbed=False)
TD_EPSILONS = (0.1, 0.025, 0.00625, 0.0015625)
TD = CostTable("table2", "tab:summary-of-results-TD", TD_EPSILONS, (N, GAMMA, NU), perturbed=True)


# Scaffnew's lower bound (thm:no-speed-up-proxskip): what does not fall with the number of agents, and what does.

AGENTS, QUICK_AGENTS = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8)
RUN = {"step_size": 0.05, "probability": 0.2, "iterations": 500}  # what is left of the start: 0.96^500
LOWER_BOUND_NOTE = """Scaffnew, exact values after {iterations} iterations; η = {step_size}, p = {probability}.
ψ: mean squared error of the agents, each where it is, plus (η/p)² times that of their control variates."""


@computes("lower-bound")
def lower_bound(settings: Settings, how: How) -> xr.Dataset:
    """psi (all agents, at an iteration) and the server's MSE of Scaffnew in the example, after "iterations"."""
    method, last = Scaffnew(settings["step_size"], settings["probability"]), settings["iterations"]
    p = no_speed_up_example(settings["agents"])
    curve = theory.exact_iterations(p, method, last, p.theta_star + 1, record=[0, last])
    return scalars(psi=float(curve["psi"][-1]), mse=float(curve["mse"][-1]))


def lower_bound_cells(scale: Scale) -> list[Cell]:
    """The example with more and more agents."""
    return [Cell("lower-bound", {"agents": n, **RUN}) for n in (QUICK_AGENTS if scale.quick else AGENTS)]


def draw_lower_bound(results: pd.DataFrame, scale: Scale) -> ChartRows:
    """psi and the server's error against the number of agents."""
    N, psi, mse = (results[name].to_numpy(float) for name in ("agents", "psi", "mse"))
    lines = [
        Line(N, psi, "ψ, what the theorem is about", theme.OTHERS[0], "joined", marker="diamond"),
        Line(N, mse, "MSE of the server", theme.METHODS["Scaffnew"], "joined", marker="triangle"),
        Line(N, mse[0] / N / 2, "falls like 1/N", theme.SOFT, "guide"),
    ]
    chart = Chart(lines, "agents N", "exact value", x_scale="log")
    return ChartRows([[chart]], notes=[LOWER_BOUND_NOTE.format(**RUN)], panel=(5.4, 3.2))


LOWER_BOUND = Picture(
    "lower-bound",
    "The example behind Scaffnew's lower bound: ψ does not fall with the number of agents, the server's error does.",
    lower_bound_cells,
    draw_lower_bound,
)
LOWER_BOUND_CLAIMS = (
    claim("lower-bound-psi", lower_bound_cells, lambda results: float(results["psi"].min() / results["psi"].iloc[0])),
    claim(
        "lower-bound-server",
        lower_bound_cells,
        lambda results: laws.slope(results["agents"].to_numpy(float), results["mse"].to_numpy()),
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
            LOWER_BOUND,
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
            *LOWER_BOUND_CLAIMS,
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
