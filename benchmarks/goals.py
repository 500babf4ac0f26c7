"""The goals as plain numbers in one table: what is measured, its limit, and the bottleneck where it is missed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cells import CPP, FEDLSA, JAX, NUMPY, Cell
from measure import Measured

TIMES = "\N{MULTIPLICATION SIGN}"
Value = Callable[[Measured], float | None]


@dataclass(frozen=True)
class Goal:
    """value : what was measured, None if it was not; met if at most `limit`, or at least where `at_least` says so."""

    what: str
    limit: float
    unit: str
    value: Value
    bottleneck: str
    at_least: bool = False

    def met(self, m: Measured) -> bool | None:
        value = self.value(m)
        return None if value is None else value >= self.limit if self.at_least else value <= self.limit


def ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def _start(process: str, what: str) -> Value:
    """Seconds in a fresh process."""
    return lambda m: None if m.starts is None else m.starts.get(process, {}).get(what)


def _others(who: str, cores: str = "one") -> Value:
    """How many times as long as fedlsa somebody takes at the headline cell."""
    return lambda m: ratio(m.best(m.plan.headline, who, cores), m.best(m.plan.headline, FEDLSA, cores))


def _against(cell: Cell, base: Cell, scale: float = 1.0) -> Value:
    """Time per update of a cell over that of another, on one core."""
    return lambda m: ratio(m.best(cell), m.best(base, scale=scale))


def _speed_up(cell: Cell, cores: float = 1.0) -> Value:
    """Of two threads over one; cores=2: the share of two cores that is busy."""
    return lambda m: ratio(m.best(cell), m.best(cell, cores=m.two, scale=cores))


INSTRUCTIONS = "instructions; a draw, two loads of rows and their arithmetic are about all that is left"
LOADING = "loading Python packages (Numba, LLVM, xarray) and compiling the engine once"
SERVER = "beginning and ending a round; with one step in it, rows are fetched and stored as often as they are moved"
ROWS = "rows of observations come from memory; they do not fit in the first-level cache"
BARRIER = "threads wait for one another at the end of every round"

GOALS = (
    Goal("`import fedlsa`", 0.4, " s", _start("first", "import"), LOADING),
    Goal("first `simulate`, nothing cached", 3, " s", _start("first", "first call"), LOADING),
    Goal("then another dimension, type or sampling, the slowest", 1, " s", _start("first", "another"), LOADING),
    Goal("first `fit`, nothing cached", 3, " s", _start("fit", "first call"), LOADING),
    Goal("ns per update, one core", 3, " ns", lambda m: m.best(m.plan.headline), INSTRUCTIONS),
    Goal("NumPy loop / fedlsa, one core", 300, TIMES, _others(NUMPY), INSTRUCTIONS, True),
    Goal("JAX / fedlsa, one core", 20, TIMES, _others(JAX), INSTRUCTIONS, True),
    Goal("JAX / fedlsa, all cores", 20, TIMES, _others(JAX, "all"), INSTRUCTIONS, True),
    Goal("fedlsa / C++, one core", 0.5, TIMES, lambda m: ratio(1.0, _others(CPP)(m)), INSTRUCTIONS),
    Goal("H = 1 / H = 1000, N = 100", 2, TIMES, _against(Cell(H=1), Cell()), SERVER),
    Goal("H = 1 / H = 1000, N = 1000", 2.5, TIMES, _against(Cell(N=1000, H=1), Cell(N=1000)), SERVER),
    Goal("d = 32 / d = 8, per number", 0.8, TIMES, _against(Cell(d=32), Cell(), 4), ROWS),
    Goal("d = 128 / d = 8, per number", 1, TIMES, _against(Cell(d=128), Cell(), 16), ROWS),
    Goal("two threads, ten seeds", 1.6, TIMES, _speed_up(Cell()), BARRIER, True),
    Goal("two threads, one seed, N = 100, H = 1000", 1.7, TIMES, _speed_up(Cell(seeds=1)), BARRIER, True),
    Goal("two threads, one seed, N = 1000, H = 10", 1.7, TIMES, _speed_up(Cell(N=1000, H=10, seeds=1)), BARRIER, True),
    Goal("two threads, one seed, N = 1000, H = 1000", 1.7, TIMES, _speed_up(Cell(N=1000, seeds=1)), BARRIER, True),
    Goal("three seeds on two cores: share that is busy", 0.9, "", _speed_up(Cell(seeds=3), 2), BARRIER, True),
    Goal("Markov / i.i.d. sampling", 2, TIMES, _against(Cell(sampling="markov"), Cell()), "draws wait for one another"),
    Goal("memory of 100,000 agents", 100, " MB", lambda m: m.memory and m.memory["MB"], "rows of agents"),
)
