"""From numbers to tables: pure functions of what was measured, in Markdown, for the screen and the documents alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import machine
from cells import CPP, FEDLSA, JAX, JAX_ALIAS, NUMPY, Cell, Entry, Plan
from measure import Record

NAMES = {
    FEDLSA: "fedlsa",
    NUMPY: "NumPy loop, vectorised over agents",
    JAX: "JAX, vmap and scan",
    JAX_ALIAS: "JAX, drawing from our alias tables",
    CPP: "C++, vectorised, without branches",
}
MISSING, TIMES = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Measured:
    """All that one run of the benchmark found out."""

    plan: Plan
    machine: dict[str, Any]
    records: Sequence[Record]
    memory: dict[str, Any] | None
    starts: dict[str, Any] | None

    def record(self, cell: Cell, who: str = FEDLSA, cores: str = "one") -> Record | None:
        wanted = Entry(cell, who, cores)
        return next((r for r in self.records if r.entry == wanted), None)

    def best(self, cell: Cell, who: str = FEDLSA, cores: str = "one") -> float | None:
        found = self.record(cell, who, cores)
        return None if found is None else found.best

    @property
    def name(self) -> str:
        """The processor in a few words, for the head of a column."""
        kind = re.sub(r"\(R\)|\(TM\)|Processor|CPU", "", self.machine["processor"])
        return f"{' '.join(kind.split())}, {self.machine['vectors']}"

    @property
    def two(self) -> str:
        """The set of cores that is two threads."""
        return "all" if self.machine["cores"] == 2 else "two"

    @property
    def all_cores(self) -> str:
        n = self.machine["cores"]
        return {1: "no more cores", 2: "both cores"}.get(n, f"all {n} cores")


def number(x: float | None, unit: str = "") -> str:
    """Three digits, or all of them before the point."""
    if x is None:
        return MISSING
    return (f"{x:.3g}" if x < 100 else f"{x:,.0f}") + unit


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first column reads from the left and whose other columns are numbers."""
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def _columns(measured: Sequence[Measured]) -> list[str]:
    return [f"{m.name}: {cores}" for m in measured for cores in ("one core", m.all_cores)]


def headline(measured: Sequence[Measured]) -> str:
    """Who needs how long for an update at the headline cell, and how many times as long as fedlsa."""
    cell = measured[0].plan.headline

    def entry(m: Measured, who: str, cores: str) -> str:
        own, ours = m.best(cell, who, cores), m.best(cell, FEDLSA, cores)
        times = "" if who == FEDLSA or own is None or ours is None else f" ({number(own / ours)}{TIMES})"
        return number(own, " ns") + times

    rows = [[NAMES[who], *(entry(m, who, cores) for m in measured for cores in ("one", "all"))] for who in NAMES]
    setting = (
        f"SCAFFLSA on the paper's Garnet, d = {cell.d}, N = {cell.N} agents, H = {cell.H} local steps, {cell.seeds} "
        "seeds (the NumPy loop: one), float64; in brackets, how many times as long as fedlsa on the same cores."
    )
    sentences = "\n".join(machine.sentence(m.machine) for m in measured)
    return "\n\n".join([setting, table(["time per agent update", *_columns(measured)], rows), sentences])


def growth(measured: Sequence[Measured]) -> str:
    """Nanoseconds per update while one of N, H, d, seeds varies, and for other observations, numbers, samplings."""
    plan = measured[0].plan
    base = plan.headline
    cells = [(f"{name} = {getattr(c, name):,}", c) for name, row in plan.growth.items() for c in row]
    names = {"float32": "float32", "markov": "Markov sampling", "dense": "dense observations"}
    for c in plan.kinds:
        cells.append((next(names[v] for v in (c.dtype, c.sampling, c.observations) if v in names), c))
    rows = [[name, *(number(m.best(c, cores=k)) for m in measured for k in ("one", "all"))] for name, c in cells]
    setting = f"ns per update; otherwise d = {base.d}, N = {base.N}, H = {base.H}, {base.seeds} seeds"
    return table([setting, *_columns(measured)], rows)


def starts(measured: Sequence[Measured]) -> str:
    """Seconds until a first small result, without and with a cache on disk; what JAX compiles beside it."""
    rows = []
    for name, cached in (("first", "nothing cached"), ("second", "cache on disk")):
        seconds = [None if m.starts is None else m.starts[name] for m in measured]
        said = [MISSING if s is None else f"{number(s['import'])} + {number(s['first call'])}" for s in seconds]
        rows.append([f"{name} start, {cached}: import + first call", *said])
    compiled = [m.record(m.plan.headline, JAX) for m in measured]
    rows.append(["JAX compiles the headline cell, without its own cache", *(number(c and c.compile) for c in compiled)])
    return table(["seconds", *(m.name for m in measured)], rows)


def goals(m: Measured) -> str:
    """Each goal, what was measured, and whether it is met on this processor."""
    cell, short, chain = m.plan.headline, m.plan.short_rounds, m.plan.trajectory
    ours = m.best(cell)
    rows = []

    def add(what: str, value: float | None, unit: str, limit: float, at_least: bool) -> None:
        met = MISSING if value is None else "met" if (value >= limit if at_least else value <= limit) else "not met"
        rows.append([what, f"{'at least' if at_least else 'at most'} {limit:g}{unit}", number(value, unit), met])

    add("one core, ns per update", ours, " ns", 3, False)
    add("NumPy loop / fedlsa, one core", ratio(m.best(cell, NUMPY), ours), TIMES, 300, True)
    add("JAX / fedlsa, one core", ratio(m.best(cell, JAX), ours), TIMES, 20, True)
    add("fedlsa / C++, one core", ratio(ours, m.best(cell, CPP)), TIMES, 0.5, False)
    on_all = m.best(cell, cores="all")
    add(f"JAX / fedlsa, {m.all_cores}", ratio(m.best(cell, JAX, "all"), on_all), TIMES, 20, True)
    add(f"H = 1 / H = {cell.H}, one core", ratio(m.best(short), ours), TIMES, 2.5, False)
    add("two threads, speed-up over one", ratio(ours, m.best(cell, cores=m.two)), TIMES, 1.6, True)
    add("Markov / i.i.d., one core", ratio(m.best(chain), ours), TIMES, 2, False)
    agents = m.memory["agents"] if m.memory else 100_000
    used = m.memory["MB"] if m.memory else None
    add(f"memory of {agents:,} agents over two tables, one seed", used, " MB", 100, False)
    head = ["goal", "limit", "measured", "on this processor"]
    spreads = [f"{NAMES[r.entry.who]} {r.spread:.0%}" for w in NAMES if (r := m.record(cell, w))]
    note = f"Medians lie above the best repeats, which are shown, by (one core): {', '.join(spreads)}."
    return table(head, rows) + "\n\n" + note


def grid(m: Measured) -> str:
    """Nanoseconds per update over d, N and H."""
    head = ["d, N, H"] + [f"{who}, {c}" for c in ("one core", m.all_cores) for who in ("fedlsa", "NumPy", "JAX", "C++")]
    rows = []
    for c in m.plan.grid:
        numbers = [number(m.best(c, who, cores)) for cores in ("one", "all") for who in (FEDLSA, NUMPY, JAX, CPP)]
        rows.append([f"{c.d}, {c.N}, {c.H}", *numbers])
    spreads = sorted(r.spread for r in m.records)
    note = (
        f"Nanoseconds per agent update, {m.plan.headline.seeds} seeds (NumPy: one); best of {m.plan.repeats} repeats "
        f"in turns. The median repeat is {spreads[len(spreads) // 2]:.0%} above the best in the middle cell, "
        f"{spreads[-1]:.0%} in the worst. {MISSING}: not run."
    )
    return table(head, rows) + "\n\n" + note


PAGE_BLOCKS = {"headline": headline, "growth": growth, "starts": starts}  # processors are columns
SCREEN_BLOCKS = {"goals": goals, "grid": grid}  # of the run at hand


def page_blocks(measured: Sequence[Measured]) -> dict[str, str]:
    """Every table of the page by the name of its place."""
    return {name: make(measured) for name, make in PAGE_BLOCKS.items()}


def screen_blocks(m: Measured) -> dict[str, str]:
    """Every table of one run."""
    return page_blocks([m]) | {name: make(m) for name, make in SCREEN_BLOCKS.items()}
