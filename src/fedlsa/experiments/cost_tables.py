"""The paper's complexity tables, measured: what an accuracy costs each method under the planner's rule.

The rule: the fewest communications with an exact MSE of at most epsilon^2, and at most four times as many observations
per agent as the fewest that suffice. The first table's instance has two tables of observations (agents of a world are
alike), the second's is the paper's federated TD(0) with an agent per table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .. import theory
from ..algorithms import METHODS
from ..checks import Floats
from ..errors import ArgumentError
from ..figures import theme
from ..figures.lines import Chart, ChartRows, Line, method_line
from ..problems import RankOne
from . import claim_statistics as laws
from .cells import Cell, computes, rows_of
from .computations import How, Settings, problem, scalars
from .experiment import Claim, Scale

# What the paper's two complexity tables print (tab:summary-of-results, tab:summary-of-results-TD).

NAMES = {name: METHODS[name].__name__ for name in ("fedlsa", "scaffnew", "scafflsa")}
COLUMNS = {"rounds": "communication $T$", "local_steps": "local updates $H$", "samples": "sample complexity $TH$"}


@dataclass(frozen=True)
class StatedCosts:
    """A row of the paper's table: T, H and T H as printed; power : of 1/epsilon in T, 0 for a logarithm; agents : the
    power of N in the samples."""

    rounds: str
    local_steps: str
    samples: str
    power: float
    agents: float


def _order(numerator: str, denominator: str, logarithm: bool = True) -> str:
    more = r"\log\frac{1}{\varepsilon}" if logarithm else ""
    return rf"$\mathcal{{O}}(\frac{{{numerator}}}{{{denominator}}}{more})$"


def _stated(rate: str, scaffnew: StatedCosts) -> dict[str, StatedCosts]:
    """The rows of a table; rate : of contraction, a^2 or its bound in TD learning."""
    earlier, new = _order("N^2", rf"{rate}\varepsilon^2"), _order("1", rf"N{rate}\varepsilon^2")
    local = {k: _order("1", rf"N\varepsilon{k}", logarithm=False) for k in ("", "^2")}
    return {
        "synchronous": StatedCosts(earlier, "$1$", earlier, 2.0, 2.0),
        "fedlsa": StatedCosts(_order("1", rf"{rate}\varepsilon"), local[""], new, 1.0, -1.0),
        "scaffnew": scaffnew,
        "scafflsa": StatedCosts(_order("1", rate), local["^2"], new, 0.0, -1.0),
    }


@dataclass(frozen=True)
class PrintedTable:
    """A table of the paper. names : of the methods that have a row of it; rows : every method's."""

    label: str
    names: Mapping[str, str]
    rows: Mapping[str, StatedCosts]

    def quote(self, method: str, cost: str) -> str:
        """An entry, by its row and its column."""
        return f"{self.names[method]}, {COLUMNS[cost]}: {getattr(self.rows[method], cost)}"


NO_ROW = "no row; as for LSA"
PRINTED_LSA = PrintedTable(
    "tab:summary-of-results",
    NAMES,
    _stated(
        "a^2",
        StatedCosts(
            _order("1", r"a\varepsilon"),
            _order("1", r"a\varepsilon", logarithm=False),
            _order("1", r"a^2\varepsilon^2"),
            1.0,
            0.0,
        ),
    ),
)
PRINTED_TD = PrintedTable(
    "tab:summary-of-results-TD",
    {"fedlsa": "FedTD", "scafflsa": "SCAFFTD"},
    _stated(r"(1-\gamma)^2\nu^2", StatedCosts(NO_ROW, NO_ROW, NO_ROW, 1.0, 0.0)),
)


COST_PANELS = ("communications", "samples")  # charts against the accuracy
COST_PANEL = (3.8, 3.2)  # inches of a chart with its labels
TITLES = {"synchronous": "FedLSA, H = 1 (Doan)", **NAMES}
COPIES, QUICK_COPIES = 5, (1, 4)  # of two agents, one of each world
QUICK_EPSILONS = (0.03, 0.003, 0.0005)
QUICK_SIZE = {"states": 10, "features": 2}  # plans are quick; nothing is simulated, so nothing is compiled for it
RULE = "the fewest communications with MSE ≤ ε² and at most four times the fewest observations"
NO_PROMISE = {"promised": "its theorem does not speak of this problem"}
UNCHANGED = {"first_feature": 1, "discount": 0.95}  # where these do not vary
COSTS = {"rounds": "communications", "local_steps": "local updates", "samples": "samples"}


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
    plain = problem({"problem": arguments})
    assert isinstance(plain.observations, RankOne)
    scale, least = np.append(factor, np.ones(plain.dim - 1)), []
    for span in plain.spans():
        phi = plain.observations.rows[plain.observations.left[span]] * scale
        least.append(np.linalg.eigvalsh(phi.T @ (plain.prob[span, None] * phi))[0])
    return float(np.min(least))


@computes("promise")
def promised(settings: Settings, how: How) -> xr.Dataset:
    """What the method's theorem asks for (`fl.theory.complexity`); NaN where it does not speak of the problem."""
    try:
        p = problem(settings)
        found = theory.complexity(p, settings["method"], settings["epsilon"], p.theta_star + 1)
    except ArgumentError:
        return scalars(rounds=math.nan, samples=math.nan)
    return scalars(rounds=found.rounds, samples=found.samples)


@dataclass(frozen=True)
class CostTable:
    """One of the two tables: its instance, its accuracies, and what the paper states."""

    name: str
    printed: PrintedTable
    epsilons: Sequence[float]
    perturbed: bool

    def problem(self, scale: Scale) -> dict[str, Any]:
        """Perturbed: the paper's ten agents; otherwise two worlds with half of the agents each."""
        if self.perturbed and not scale.quick:
            return scale.garnet(10, heterogeneous=True)
        size = {"copies": QUICK_COPIES[-1], **QUICK_SIZE} if scale.quick else {"copies": COPIES}
        return {**scale.garnet(2, heterogeneous=True), "perturbation": 0.0, **UNCHANGED, **size}

    def cells(self, scale: Scale, *methods: str, kinds: Sequence[str] = ("plan", "promise")) -> list[Cell]:
        """Plans and what theorems promise, by accuracy."""
        epsilons = QUICK_EPSILONS if scale.quick else self.epsilons
        return [
            Cell(kind, {"problem": self.problem(scale), "method": method, "epsilon": e})
            for method in methods or self.printed.rows
            for kind in kinds
            for e in epsilons
        ]

    def rows(self, results: pd.DataFrame, scale: Scale) -> pd.DataFrame:
        """What is stated beside what is measured, a row per method."""
        parts = {method: rows_of(results, self.cells(scale, method)) for method in self.printed.rows}
        return pd.DataFrame([self._row(method, part) for method, part in parts.items()])

    def _row(self, method: str, results: pd.DataFrame) -> dict[str, str | int | float]:
        stated, plans = self.printed.rows[method], results[results["kind"] == "plan"]
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

    def claims(self) -> tuple[Claim, ...]:
        """How costs grow with the accuracy."""

        def claim(
            name: str,
            text: str,
            statistic: str,
            measure: laws.Measure,
            what: str = "rounds",
            source: str = self.printed.label,
            **more: Any,
        ) -> Claim:
            method = name.partition("-")[0]
            return Claim(
                f"{self.name}-{name}",
                text,
                source,
                statistic,
                lambda scale: self.cells(scale, method, kinds=("plan",)),
                lambda results: measure(*against_accuracy(results, what)),
                panel=f"{self.name}: {COST_PANELS[0]}",
                **more,
            )

        larger, logarithm = laws.CLEARLY_LARGER, laws.residual_ratio(laws.logarithm, laws.power)
        ratio = "residual of the logarithm over that of the power; root mean square in T"
        last = ("exponent of 1/ε in T; over the smaller half of the accuracies", laws.final_slope)
        steps = ("exponent of 1/ε in H; the local updates of the plan", laws.slope, "local_steps")
        law = {"quote": self.printed.quote("fedlsa", "rounds")}
        if not self.perturbed:
            law = {
                "quote": r"Importantly, the number of communications $T$ required to achieve precision $\varepsilon^2$ "
                r"scales as $\varepsilon^{-1}$",
                "source": "After cor:sample_complexity_lsa",
            }
        both = (
            claim(
                "fedlsa-power",
                "FedLSA's communications grow like 1/ε, up to a logarithm",
                *last,
                at_least=0.9,
                at_most=1.0 + larger,
                quote=self.printed.quote("fedlsa", "rounds"),
            ),
            claim(
                "fedlsa-law",
                "FedLSA's communications follow a power, no logarithm",
                "residual of the power over that of the logarithm; root mean square in T",
                laws.residual_ratio(laws.power, laws.logarithm),
                at_most=1.0,
                **law,
            ),
            claim(
                "scafflsa-power",
                "SCAFFLSA's grow far more slowly than 1/ε",
                *last,
                at_most=0.5,
                quote=self.printed.quote("scafflsa", "rounds"),
            ),
            claim(
                "scaffnew-power",
                "Scaffnew needs fewer communications than its row says: far fewer than 1/ε",
                *last,
                at_most=0.5,
            ),
            claim(
                "fedlsa-local",
                "FedLSA's local updates grow like 1/ε",
                *steps,
                at_least=1.0 - larger,
                at_most=1.0 + larger,
                quote=self.printed.quote("fedlsa", "local_steps"),
            ),
            claim(
                "scafflsa-local",
                "SCAFFLSA's local updates grow like 1/ε²",
                *steps,
                at_least=2.0 - larger,
                at_most=2.0 + larger,
                quote=self.printed.quote("scafflsa", "local_steps"),
            ),
        )
        if self.perturbed:  # four accuracies do not tell a logarithm from a power of 0.2
            return both
        only = r"the total number of communications depends only logarithmically on the precision $\varepsilon$"
        after = "After cor:iteration-complexity-fed-lsa-constant"
        grow = "communications grow like log 1/ε"
        return (
            *both,
            claim("scafflsa-law", f"SCAFFLSA's {grow}", ratio, logarithm, at_most=1.0, quote=only, source=after),
            claim("scaffnew-law", f"Scaffnew's {grow}, too", ratio, logarithm, at_most=1.0),
        )


def against_accuracy(plans: pd.DataFrame, what: str) -> tuple[Floats, Floats]:
    """1/epsilon and a cost of plans."""
    return 1 / plans["epsilon"].to_numpy(float), plans[what].to_numpy(float)


def note(scale: Scale) -> str:
    """Under the figures."""
    return (
        f"Marks: {RULE}, by exact moments.\nLines through "
        f"communications: a power or a logarithm of 1/ε, whichever fits T better. Instance: {scale.preset}."
    )


LSA = CostTable("table1", PRINTED_LSA, tuple(0.2 / 2**k for k in range(8)), perturbed=False)
TD = CostTable("table2", PRINTED_TD, (0.1, 0.025, 0.00625, 0.0015625), perturbed=True)
