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
from .base import Claim, Lookup, Panels, Row, Scale
from .cells import Cell
from .stated import LARGE, ROWS_LSA, ROWS_TD, Stated, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"fedlsa": "FedLSA", "scaffnew": "Scaffnew", "scafflsa": "SCAFFLSA"}
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
        _, H = self.measured("plan", method, "local_steps", cells, lookup)
        _, bound = self.measured("promise", method, "rounds", cells, lookup)
        for e, i in zip(epsilons, at, strict=True):
            row[f"communications at ε = {e:g}"] = int(T[i])
            row[f"promised by its theorem at ε = {e:g}"] = f"{bound[i]:.3g}"
        found = laws.better(x, T)
        row["law of communications"] = f"{found.name}: {found}"
        row["last exponent"] = round(laws.final_slope(x, T), 2)
        row["local updates, stated"] = stated.local_steps
        for e, i in zip(epsilons, at, strict=True):
            row[f"local updates at ε = {e:g}"] = f"{H[i]:.3g}"
        row["exponent of local updates"] = round(laws.slope(x, H), 2)
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
        return cost_panels(self.panels(cells, lookup), note=note(scale))

    def claims(self) -> tuple[Claim, ...]:
        label = "tab:summary-of-results-TD" if self.perturbed else "tab:summary-of-results"

        def claim(
            name: str, text: str, statistic: str, measure: Callable[[Floats, Floats], float], what: str, **k: Any
        ) -> Claim:
            method = name.split("-")[0]

            def cells(scale: Scale) -> Panels:
                return {f"plan {method}": self.cells(scale)[f"plan {method}"]}

            def value(cells: Panels, lookup: Lookup, scale: Scale) -> float:
                return measure(*self.measured("plan", method, what, cells, lookup))

            kind = "beyond" if method == "scaffnew" else "paper"
            return Claim(f"{self.name}-{name}", text, label, statistic, cells, value, kind=kind, **k)

        ratio = "residual of the logarithm over that of the power, root mean square in T"
        half = "exponent of 1/ε in T over the smaller half of the accuracies"
        better = "residual of the power over that of the logarithm, root mean square in T"
        steps = "exponent of 1/ε in the local updates H of the plan"
        grows = "FedLSA's communications grow like 1/ε, up to a logarithm"
        log = "communications grow like log 1/ε"
        beats = "Scaffnew needs fewer communications than its row says: far fewer than 1/ε"
        fed, scaff = self.rows["fedlsa"], self.rows["scafflsa"]
        said_fed = f"FedLSA: communication O({fed.rounds})"
        said_scaff = f"SCAFFLSA: communication O({scaff.rounds})"
        only = "the total number of communications depends only logarithmically on the precision ε"
        last, T, H = laws.final_slope, "rounds", "local_steps"
        both = (
            claim("fedlsa-power", grows, half, last, T, at_least=0.9, at_most=1.0 + LARGE, quote=said_fed),
            claim(
                "fedlsa-law",
                "FedLSA's communications follow a power, no logarithm",
                better,
                power_wins,
                T,
                at_most=1.0,
                quote="Importantly, the number of communications T required to achieve precision ε² scales as 1/ε",
            ),
            claim(
                "scafflsa-power",
                "SCAFFLSA's grow far more slowly than 1/ε",
                half,
                last,
                T,
                at_most=0.5,
                quote=said_scaff,
            ),
            claim("scaffnew-power", beats, half, last, T, at_most=0.5),
            claim(
                "fedlsa-local",
                "FedLSA's local updates grow like 1/ε",
                steps,
                laws.slope,
                H,
                at_least=1.0 - LARGE,
                at_most=1.0 + LARGE,
                quote=f"FedLSA: local updates O({fed.local_steps})",
            ),
            claim(
                "scafflsa-local",
                "SCAFFLSA's local updates grow like 1/ε²",
                steps,
                laws.slope,
                H,
                at_least=2.0 - LARGE,
                at_most=2.0 + LARGE,
                quote=f"SCAFFLSA: local updates O({scaff.local_steps})",
            ),
        )
        if self.perturbed:  # four accuracies do not tell a logarithm from a power of 0.2
            return both
        return (
            *both,
            claim("scafflsa-law", f"SCAFFLSA's {log}", ratio, logarithm_wins, T, at_most=1.0, quote=only),
            claim("scaffnew-law", f"Scaffnew's {log}, too", ratio, logarithm_wins, T, at_most=1.0),
        )


def logarithm_wins(x: Floats, y: Floats) -> float:
    """Below 1 where the logarithm fits better than the power."""
    return laws.logarithm(x, y).residual / laws.power(x, y).residual


def power_wins(x: Floats, y: Floats) -> float:
    """Below 1 where the power fits better than the logarithm."""
    return laws.power(x, y).residual / laws.logarithm(x, y).residual


def note(scale: Scale) -> str:
    return (
        f"Marks: {RULE}, by exact moments.\nLines through "
        f"communications: a power or a logarithm of 1/ε, whichever fits T better. Instance: {scale.preset}."
    )


LSA = Study("table1", ROWS_LSA, tuple(0.2 / 2**k for k in range(8)), perturbed=False)
TD = Study("table2", ROWS_TD, (0.1, 0.025, 0.00625, 0.0015625), perturbed=True)
