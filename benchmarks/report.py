"""From numbers to tables: pure functions of what was measured, in Markdown, for the screen and the documents alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import machine
from cells import FEDLSA, JAX, JAX_ALIAS, NUMPY, Cell, Entry, Plan
from measure import Record

NAMES = {
    FEDLSA: "fedlsa",
    NUMPY: "NumPy loop, vectorised over agents",
    JAX: "JAX, vmap and scan",
    JAX_ALIAS: "JAX, drawing from our alias tables",
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


def headline(m: Measured) -> str:
    """Who needs how long for an update at the headline cell, and how many times as long as fedlsa."""
    cell = m.plan.headline

    def entry(who: str, cores: str) -> str:
        own, ours = m.best(cell, who, cores), m.best(cell, FEDLSA, cores)
        times = "" if who == FEDLSA or own is None or ours is None else f" ({number(own / ours)}{TIMES})"
        return number(own, " ns") + times

    rows = [[NAMES[who], entry(who, "one"), entry(who, "all")] for who in NAMES]
    setting = (
        f"Time per agent update: d = {cell.d}, N = {cell.N} agents, H = {cell.H} local steps, {cell.seeds} seeds "
        "(the NumPy loop: one), float64; in brackets, how many times as long as fedlsa on the same cores."
    )
    head = ["SCAFFLSA on the paper's Garnet", "one core", m.all_cores]
    return "\n\n".join([setting, table(head, rows), machine.sentence(m.machine)])


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
    head = ["d, N, H"] + [f"{who}, {c}" for c in ("one core", m.all_cores) for who in ("fedlsa", "NumPy", "JAX")]
    rows = []
    for c in m.plan.grid:
        numbers = [number(m.best(c, who, cores)) for cores in ("one", "all") for who in (FEDLSA, NUMPY, JAX)]
        rows.append([f"{c.d}, {c.N}, {c.H}", *numbers])
    spreads = sorted(r.spread for r in m.records)
    note = (
        f"Nanoseconds per agent update, {m.plan.headline.seeds} seeds (NumPy: one); best of {m.plan.repeats} repeats "
        f"in turns. The median repeat is {spreads[len(spreads) // 2]:.0%} above the best in the middle cell, "
        f"{spreads[-1]:.0%} in the worst. {MISSING}: not run."
    )
    return table(head, rows) + "\n\n" + note


def growth(m: Measured) -> str:
    """Nanoseconds per update while one of N, H, d, seeds varies."""
    cell = m.plan.headline
    rows = []
    for name, cells in m.plan.growth.items():
        for c in cells:
            rows.append([f"{name} = {getattr(c, name):,}", number(m.best(c)), number(m.best(c, cores="all"))])
    setting = f"ns per update; otherwise d = {cell.d}, N = {cell.N}, H = {cell.H}, {cell.seeds} seeds"
    return table([setting, "one core", m.all_cores], rows)


def kinds(m: Measured) -> str:
    """Other observations, numbers and ways of sampling at the headline cell."""
    base = m.best(m.plan.headline)
    rows = []
    for c in (m.plan.headline, *m.plan.kinds):
        name = f"{c.observations}, {c.dtype}, {'Markov' if c.sampling == 'markov' else 'i.i.d.'}"
        one = m.best(c)
        rows.append([name, number(one), number(m.best(c, cores="all")), number(ratio(one, base), TIMES)])
    head = ["ns per update at the headline cell", "one core", m.all_cores, "of the first row"]
    return table(head, rows)


def starts(m: Measured) -> str:
    """Seconds until a first small result, without and with a cache on disk; what JAX compiles beside it."""
    rows = []
    for name in ("first", "second"):
        s = None if m.starts is None else m.starts[name]
        numbers = [MISSING] * 3 if s is None else [number(x) for x in (s["import"], s["first call"], sum(s.values()))]
        rows.append([f"{name} start, {'nothing cached' if name == 'first' else 'cache on disk'}", *numbers])
    text = table(["seconds", "import", "first call", "together"], rows)
    compiled = m.record(m.plan.headline, JAX)
    if compiled is not None:
        seconds = number(compiled.compile, " s")
        text += f"\n\nJAX compiles its version of the headline cell in {seconds}, unless its own cache is on."
    return text


BLOCKS = {"headline": headline, "goals": goals, "grid": grid, "growth": growth, "kinds": kinds, "starts": starts}


def blocks(m: Measured) -> dict[str, str]:
    """Every table by the name of its place in the documents."""
    return {name: make(m) for name, make in BLOCKS.items()}
