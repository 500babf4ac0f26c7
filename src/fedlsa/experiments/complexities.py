"""The paper's complexity tables, measured: what an accuracy costs each method under the planner's rule.

The rule: the fewest communications with an exact MSE of at most epsilon^2, and at most four times as many observations
per agent as the fewest that suffice. The first table's instance has two tables of observations (agents of a world are
alike), the second's is the paper's federated TD(0) with an agent per table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Floats
from ..figures.complexities import CostPanel, cost_panels, marks_of
from . import laws
from .base import Claim, Experiment, Lookup, Panels, Picture, Row, Scale, Table
from .cells import Cell
from .lower_bound import CLAIMS as LOWER_BOUND_CLAIMS
from .lower_bound import PICTURE as LOWER_BOUND
from .stated import LARGE, ROWS_LSA, ROWS_TD, SMALL, Stated, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"fedlsa": "FedLSA", "scaffnew": "Scaffnew", "scafflsa": "SCAFFLSA"}
AGENTS = (2, 4, 10, 40, 100)
QUICK_AGENTS, QUICK_EPSILONS = (2, 8), (0.03, 0.003, 0.0005)
QUICK_SIZE = {"states": 10, "features": 2}  # plans are quick; nothing is simulated, so nothing is compiled for it
TITLES = {"synchronous": "FedLSA, H = 1 (Doan)", **NAMES}
RULE = "the fewest communications with MSE ≤ ε² and at most four times the fewest observations"


@dataclass(frozen=True)
class Study:
    """One of the two tables: its instance, its accuracies, and what the paper states."""

    name: str
    rows: Mapping[str, Stated]
    epsilons: Sequence[float]
    perturbed: bool

    def problem(self, scale: Scale, agents: int | None = None) -> dict[str, Any]:
        """Perturbed: the paper's ten agents; otherwise two worlds with half of the agents each."""
        if self.perturbed and not scale.quick:
            return scale.garnet(10, heterogeneous=True)
        n = agents or self.agents(scale)
        small = QUICK_SIZE if scale.quick else {}
        return {**scale.garnet(2, heterogeneous=True), "perturbation": 0.0, "copies": n // 2, **small}

    def agents(self, scale: Scale) -> int:
        return QUICK_AGENTS[-1] if scale.quick else 10

    def accuracies(self, scale: Scale) -> list[float]:
        return list(QUICK_EPSILONS if scale.quick else self.epsilons)

    def cells(self, scale: Scale) -> Panels:
        """A panel of plans and one of promises per method, by accuracy."""
        out: dict[str, dict[str, Cell]] = {}
        for method in self.rows:
            for kind in ("plan", "promise"):
                where = {"problem": self.problem(scale), "method": method}
                out[f"{kind} {method}"] = {
                    f"{e:g}": Cell(kind, {**where, "epsilon": e}) for e in self.accuracies(scale)
                }
        return out

    def measured(self, kind: str, method: str, what: str, cells: Panels, lookup: Lookup) -> tuple[Floats, Floats]:
        """1/epsilon and a cost, in the order of the accuracies."""
        held = cells[f"{kind} {method}"]
        return np.array([1 / float(e) for e in held]), np.array([float(lookup(c)[what]) for c in held.values()])

    def table(self, cells: Panels, lookup: Lookup, scale: Scale) -> list[Row]:
        every = self.accuracies(scale)
        shown = sorted({0, len(every) // 2, len(every) - 1})
        return [self._row(method, [every[i] for i in shown], shown, cells, lookup) for method in self.rows]

    def _row(self, method: str, epsilons: list[float], at: list[int], cells: Panels, lookup: Lookup) -> Row:
        stated = self.rows[method]
        row: dict[str, str | int | float] = {"method": TITLES[method], "communications, stated": stated.rounds}
        x, T = self.measured("plan", method, "rounds", cells, lookup)
        _, n = self.measured("plan", method, "samples", cells, lookup)
        _, bound = self.measured("promise", method, "rounds", cells, lookup)
        for e, i in zip(epsilons, at, strict=True):
            row[f"communications at ε = {e:g}"] = int(T[i])
            row[f"promised by its theorem at ε = {e:g}"] = f"{bound[i]:.3g}"
        found = laws.better(x, T)
        row["law of communications"] = f"{found.name}: {found}"
        row["last exponent"] = round(laws.final_slope(x, T), 2)
        row["samples per agent, stated"] = stated.samples
        for e, i in zip(epsilons, at, strict=True):
            row[f"samples at ε = {e:g}"] = f"{n[i]:.3g}"
        row["exponent of samples"] = round(laws.slope(x, n), 2)
        row["communications are"] = verdict(stated.power, found.name, laws.final_slope(x, T))
        return row

    def panels(self, cells: Panels, lookup: Lookup) -> list[CostPanel]:
        rounds, samples = [], []
        for method, name in NAMES.items():
            x, T = self.measured("plan", method, "rounds", cells, lookup)
            fine = np.geomspace(x[0], x[-1], 100)
            law = laws.better(x, T)
            rounds.append(marks_of(name, x, T, law=(fine, law(fine))))
            samples.append(marks_of(name, *self.measured("plan", method, "samples", cells, lookup), joined=True))
        y = samples[0].y[-1] * 3
        return [
            CostPanel("communications", "1 / ε", "communications T", rounds),
            CostPanel("samples", "1 / ε", "observations per agent", samples, {"1/ε²": (x, y * (x / x[-1]) ** 2)}),
        ]

    def draw(self, cells: Panels, lookup: Lookup, scale: Scale) -> Figure:
        return cost_panels(self.panels(cells, lookup), note=_note(scale))

    def claims(self) -> tuple[Claim, ...]:
        def claim(name: str, text: str, statistic: str, measure: Callable[[Floats, Floats], float], **k: Any) -> Claim:
            method = name.split("-")[0]

            def value(cells: Panels, lookup: Lookup, scale: Scale) -> float:
                return measure(*self.measured("plan", method, "rounds", cells, lookup))

            label = "tab:summary-of-results-TD" if self.perturbed else "tab:summary-of-results"
            return Claim(f"{self.name}-{name}", text, label, statistic, self.cells, value, **k)

        ratio = "residual of the logarithm over that of the power, root mean square in T"
        half = "exponent of 1/ε in T over the smaller half of the accuracies"
        better = "residual of the power over that of the logarithm, root mean square in T"
        grows = "FedLSA's communications grow like 1/ε, up to a logarithm"
        log = "communications grow like log 1/ε"
        beats = "Scaffnew needs fewer communications than its row says: far fewer than 1/ε"
        both = (
            claim("fedlsa-power", grows, half, laws.final_slope, at_least=0.9, at_most=1.0 + LARGE),
            claim(
                "fedlsa-law", "FedLSA's communications follow a power, no logarithm", better, power_wins, at_most=1.0
            ),
            claim("scafflsa-power", "SCAFFLSA's grow far more slowly than 1/ε", half, laws.final_slope, at_most=0.5),
            claim("scaffnew-power", beats, half, laws.final_slope, at_most=0.5),
        )
        if self.perturbed:  # four accuracies do not tell a logarithm from a power of 0.2
            return both
        return (
            *both,
            claim("scafflsa-law", f"SCAFFLSA's {log}", ratio, logarithm_wins, at_most=1.0),
            claim("scaffnew-law", f"Scaffnew's {log}, too", ratio, logarithm_wins, at_most=1.0),
        )


def logarithm_wins(x: Floats, y: Floats) -> float:
    """Below 1 where the logarithm fits better than the power."""
    return laws.logarithm(x, y).residual / laws.power(x, y).residual


def power_wins(x: Floats, y: Floats) -> float:
    """Below 1 where the power fits better than the logarithm."""
    return laws.power(x, y).residual / laws.logarithm(x, y).residual


def _note(scale: Scale) -> str:
    return (
        f"Marks: {RULE}, by exact moments.\nLines through "
        f"communications: a power or a logarithm of 1/ε, whichever fits T better. Instance: {scale.preset}."
    )


LSA = Study("table1", ROWS_LSA, tuple(0.2 / 2**k for k in range(8)), perturbed=False)
TD = Study("table2", ROWS_TD, (0.1, 0.025, 0.00625, 0.0015625), perturbed=True)


def speed_up_cells(scale: Scale) -> Panels:
    """Plans at one accuracy for more and more agents, of the same two worlds."""
    epsilon = QUICK_EPSILONS[0] if scale.quick else 0.025
    out: dict[str, dict[str, Cell]] = {}
    for method in TITLES:
        out[f"speed-up {method}"] = {
            str(n): Cell("plan", {"problem": LSA.problem(scale, n), "method": method, "epsilon": epsilon})
            for n in (QUICK_AGENTS if scale.quick else AGENTS)
        }
    return out


def speed_up(method: str, cells: Panels, lookup: Lookup) -> tuple[Floats, Floats]:
    """Numbers of agents and observations of each."""
    held = cells[f"speed-up {method}"]
    return np.array([float(n) for n in held]), np.array([float(lookup(c)["samples"]) for c in held.values()])


def draw_speed_up(cells: Panels, lookup: Lookup, scale: Scale) -> Figure:
    """Communications and samples against the accuracy, and samples against the number of agents."""
    marks = [marks_of(name, *speed_up(method, cells, lookup), joined=True) for method, name in NAMES.items()]
    N = marks[0].x
    guide = {"1/N": (N, min(m.y[0] for m in marks) / 2.5 * N[0] / N)}
    title = f"samples, ε = {next(iter(cells['speed-up fedlsa'].values())).settings['epsilon']:g}"
    last = CostPanel(title, "agents N", "observations per agent", marks, guide)
    return cost_panels([*LSA.panels(cells, lookup), last], note=_note(scale))


def _speed_up_claim(method: str, text: str, **k: Any) -> Claim:
    def value(cells: Panels, lookup: Lookup, scale: Scale) -> float:
        return laws.slope(*speed_up(method, cells, lookup))

    statistic = "exponent of N in the observations per agent, at one accuracy"
    return Claim(f"speed-up-{method}", text, "tab:summary-of-results", statistic, speed_up_cells, value, **k)


def table1_cells(scale: Scale) -> Panels:
    """Those of the accuracies and those of the numbers of agents."""
    return {**LSA.cells(scale), **speed_up_cells(scale)}


def table1(cells: Panels, lookup: Lookup, scale: Scale) -> list[Row]:
    """The first table, with how samples depend on N."""
    rows: list[Row] = []
    for row, (method, stated) in zip(LSA.table(cells, lookup, scale), LSA.rows.items(), strict=True):
        exponent = laws.slope(*speed_up(method, cells, lookup))
        fewer = "fewer than stated" if exponent < stated.agents - SMALL else "as stated"
        rows.append({**row, "exponent of N in samples": round(exponent, 2), "samples with many agents are": fewer})
    return rows


NEAR: dict[str, Any] = {"at_least": -1.2, "at_most": -0.8}
EXPERIMENTS = (
    Experiment(
        "table1",
        "What an accuracy costs: communications and samples of each method",
        ("tab:summary-of-results", "thm:no-speed-up-proxskip"),
        (
            Picture(
                "table1",
                "What an RMSE of ε costs: communications, samples per agent, and samples against the number of agents.",
                table1_cells,
                draw_speed_up,
            ),
            LOWER_BOUND,
        ),
        (Table("table1", f"Stated and measured costs of an accuracy ε; measured: {RULE}.", table1_cells, table1),),
        (
            *LSA.claims(),
            _speed_up_claim(
                "synchronous", f"{TITLES['synchronous']}: its samples fall like 1/N, where the table has N²", **NEAR
            ),
            _speed_up_claim("fedlsa", "FedLSA's samples fall like 1/N", **NEAR),
            _speed_up_claim("scafflsa", "SCAFFLSA's samples fall like 1/N", **NEAR),
            _speed_up_claim("scaffnew", "Scaffnew's samples fall like 1/N, which its row does not say", **NEAR),
            *LOWER_BOUND_CLAIMS,
        ),
    ),
    Experiment(
        "table2",
        "What an accuracy costs in federated TD learning",
        ("tab:summary-of-results-TD",),
        (Picture("table2", "What an RMSE of ε costs in federated TD(0) with ten agents.", TD.cells, TD.draw),),
        (Table("table2", f"Stated and measured costs, federated TD(0); measured: {RULE}.", TD.cells, TD.table),),
        TD.claims(),
    ),
)
