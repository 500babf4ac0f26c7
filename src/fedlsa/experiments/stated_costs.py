"""What the paper's two complexity tables print (tab:summary-of-results, tab:summary-of-results-TD)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..algorithms import METHODS

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
LSA = PrintedTable(
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
TD = PrintedTable(
    "tab:summary-of-results-TD",
    {"fedlsa": "FedTD", "scafflsa": "SCAFFTD"},
    _stated(r"(1-\gamma)^2\nu^2", StatedCosts(NO_ROW, NO_ROW, NO_ROW, 1.0, 0.0)),
)
