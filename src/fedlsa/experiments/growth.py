"""How costs grow with the number of agents, with 1/a, and in TD learning with 1/(1 - gamma) and 1/nu; both tables.

All of it at one accuracy, on the first table's instance: copies of its agents change N alone, a smaller first feature
changes a and nu, and another discount changes 1 - gamma (and theta_star with it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Floats
from ..figures.complexities import CostPanel, cost_panels, marks_of
from . import laws
from .base import Claim, Experiment, Lookup, Panels, Picture, Row, Scale, Table
from .cells import Cell
from .complexities import LSA, NAMES, QUICK_AGENTS, QUICK_EPSILONS, RULE, TD, TITLES, Study, note
from .lower_bound import CLAIMS as LOWER_BOUND_CLAIMS
from .lower_bound import PICTURE as LOWER_BOUND
from .stated import SMALL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILON = 0.025
COSTS = {"rounds": "communications", "local_steps": "local updates", "samples": "samples"}


@dataclass(frozen=True)
class Axis:
    """What grows. symbol : in headings; values : of a setting (quick ones are fewer), by which the problem differs."""

    name: str
    symbol: str
    setting: str
    values: Sequence[float]
    quick: Sequence[float]

    def problems(self, scale: Scale) -> dict[str, dict[str, Any]]:
        """Problems by the value of the setting."""
        values = self.quick if scale.quick else self.values
        if self.setting == "agents":
            return {f"{n:g}": LSA.problem(scale, int(n)) for n in values}
        usual = {"shrunk": 1, "discount": 0.95}[self.setting]  # as the other cells, which do not mention them
        own = {f"{v:g}": {} if v == usual else {self.setting: v} for v in values}
        return {k: {**LSA.problem(scale), **v} for k, v in own.items()}

    def cells(self, scale: Scale) -> Panels:
        """A panel of plans per method."""
        epsilon = QUICK_EPSILONS[0] if scale.quick else EPSILON
        return {
            f"{self.symbol} {method}": {
                v: Cell("plan", {"problem": problem, "method": method, "epsilon": epsilon})
                for v, problem in self.problems(scale).items()
            }
            for method in TITLES
        }

    def measured(self, method: str, what: str, cells: Panels, lookup: Lookup) -> tuple[Floats, Floats]:
        """What grows and a cost."""
        held = cells[f"{self.symbol} {method}"]
        found = [lookup(cell) for cell in held.values()]
        x = {
            "agents": lambda: [float(n) for n in held],
            "a": lambda: [1 / float(f["a"]) for f in found],
            "discount": lambda: [1 / (1 - float(v)) for v in held],
            "nu": lambda: [1 / float(f["nu"]) for f in found],
        }[self.name]()
        return np.array(x), np.array([float(f[what]) for f in found])

    def exponent(self, method: str, what: str, cells: Panels, lookup: Lookup) -> float:
        """The slope of the logarithms."""
        return laws.slope(*self.measured(method, what, cells, lookup))


N = Axis("agents", "N", "agents", (2, 4, 10, 40, 100), QUICK_AGENTS)
A = Axis("a", "1/a", "shrunk", (1, 0.5, 0.25), (1, 0.25))
GAMMA = Axis("discount", "1/(1\u2212\u03b3)", "discount", (0.8, 0.9, 0.95, 0.98), (0.8, 0.95))
NU = Axis("nu", "1/\u03bd", "shrunk", (1, 0.5, 0.25), (1, 0.25))


@dataclass(frozen=True)
class Growth:
    """A table with exponents along some axes."""

    study: Study
    axes: Sequence[Axis]

    def cells(self, scale: Scale) -> Panels:
        return {**self.study.cells(scale), **{k: v for axis in self.axes for k, v in axis.cells(scale).items()}}

    def table(self, cells: Panels, lookup: Lookup, scale: Scale) -> list[Row]:
        rows: list[Row] = []
        for row, (method, stated) in zip(self.study.table(cells, lookup, scale), self.study.rows.items(), strict=True):
            grown: dict[str, str | int | float] = {
                f"exponent of {axis.symbol} in {name}": round(axis.exponent(method, what, cells, lookup), 2)
                for axis in self.axes
                for what, name in COSTS.items()
            }
            exponent = grown["exponent of N in samples"]
            assert isinstance(exponent, float)
            fewer = "fewer than stated" if exponent < stated.agents - SMALL else "as stated"
            rows.append({**row, **grown, "samples with many agents are": fewer})
        return rows

    def claims(self) -> tuple[Claim, ...]:
        """Costs grow no faster than stated along the axes."""
        label = "tab:summary-of-results-TD" if self.study.perturbed else "tab:summary-of-results"
        found = []
        for axis in self.axes[1:]:
            for method in ("fedlsa", "scafflsa"):
                found.append(
                    Claim(
                        f"{self.study.name}-{method}-{axis.name}",
                        f"{NAMES[method]}'s communications grow no faster than the square of {axis.symbol}",
                        label,
                        f"exponent of {axis.symbol} in the communications, at one accuracy",
                        _of(axis, method),
                        _exponent(axis, method, "rounds"),
                        at_most=2.0 + SMALL,
                        kind="paper",
                        quote=f"{NAMES[method]}: communication O({self.study.rows[method].rounds})",
                    )
                )
        return tuple(found)


def _of(axis: Axis, method: str) -> Any:
    return lambda scale: {k: v for k, v in axis.cells(scale).items() if k.endswith(f" {method}")}


def _exponent(axis: Axis, method: str, what: str) -> Any:
    return lambda cells, lookup, scale: axis.exponent(method, what, cells, lookup)


ONE, TWO = Growth(LSA, (N, A)), Growth(TD, (N, GAMMA, NU))


def draw_speed_up(cells: Panels, lookup: Lookup, scale: Scale) -> Figure:
    """Communications and samples against the accuracy, and samples against the number of agents."""
    marks = [marks_of(name, *N.measured(m, "samples", cells, lookup), joined=True) for m, name in NAMES.items()]
    x = marks[0].x
    guide = {"1/N": (x, min(m.y[0] for m in marks) / 2.5 * x[0] / x)}
    title = f"samples, ε = {next(iter(cells['N fedlsa'].values())).settings['epsilon']:g}"
    last = CostPanel(title, "agents N", "observations per agent", marks, guide)
    return cost_panels([*LSA.panels(cells, lookup), last], note=note(scale))


def _drawn(scale: Scale) -> Panels:
    return {**LSA.cells(scale), **N.cells(scale)}


def _speed_up_claim(method: str, text: str, label: str = "tab:summary-of-results", **k: Any) -> Claim:
    statistic = "exponent of N in the observations per agent, at one accuracy"
    bounds: Mapping[str, Any] = {"at_least": -1.2, "at_most": -0.8}
    value = _exponent(N, method, "samples")
    return Claim(f"speed-up-{method}", text, label, statistic, _of(N, method), value, **bounds, **k)


def _said(method: str) -> dict[str, str]:
    return {"kind": "paper", "quote": f"{NAMES[method]}: sample complexity O({LSA.rows[method].samples})"}


EXPERIMENTS = (
    Experiment(
        "table1",
        "What an accuracy costs: communications, local updates and samples of each method",
        ("tab:summary-of-results", "thm:no-speed-up-proxskip"),
        (
            Picture(
                "table1",
                "What an RMSE of ε costs: communications, samples per agent, and samples against the number of agents.",
                _drawn,
                draw_speed_up,
            ),
            LOWER_BOUND,
        ),
        (
            Table(
                "table1",
                f"Stated and measured costs of an accuracy ε; measured: {RULE}. Exponents of N and 1/a: at one "
                "accuracy; a, the least eigenvalue of the symmetric part of an agent's matrix, is lowered by a smaller "
                "first feature.",
                ONE.cells,
                ONE.table,
            ),
        ),
        (
            *LSA.claims(),
            *ONE.claims(),
            _speed_up_claim(
                "synchronous",
                f"{TITLES['synchronous']}: its samples fall like 1/N, where the table's row of earlier work has N²",
                "cor:sample_compl_h_1_proof",
                kind="paper",
                quote="T = O((v_heter or sigma_eps) / (N a² ε²) · log ||theta_0 - theta_star|| / ε)",
            ),
            _speed_up_claim("fedlsa", "FedLSA's samples fall like 1/N", **_said("fedlsa")),
            _speed_up_claim("scafflsa", "SCAFFLSA's samples fall like 1/N", **_said("scafflsa")),
            _speed_up_claim("scaffnew", "Scaffnew's samples fall like 1/N, which its row does not say"),
            *LOWER_BOUND_CLAIMS,
        ),
    ),
    Experiment(
        "table2",
        "What an accuracy costs in federated TD learning",
        ("tab:summary-of-results-TD",),
        (Picture("table2", "What an RMSE of ε costs in federated TD(0) with ten agents.", TD.cells, TD.draw),),
        (
            Table(
                "table2",
                f"Stated and measured costs, federated TD(0); measured: {RULE}. Exponents of N, {GAMMA.symbol} and "
                f"{NU.symbol}: at one accuracy on the first table's instance, for other discounts and with a smaller "
                "first feature.",
                TWO.cells,
                TWO.table,
            ),
        ),
        (*TD.claims(), *TWO.claims()),
    ),
)
