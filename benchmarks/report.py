"""From numbers to tables: pure functions of what was measured, in Markdown, for the screen and the documents alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import machine
from cells import CPP, FEDLSA, JAX, JAX_ALIAS, NUMPY
from goals import GOALS, TIMES
from measure import Measured

NAMES = {
    FEDLSA: "fedlsa",
    NUMPY: "NumPy loop, vectorised over agents",
    JAX: "JAX, vmap and scan",
    JAX_ALIAS: "JAX, drawing from our alias tables",
    CPP: "C++, vectorised, without branches",
}
MISSING = "\N{EN DASH}"


def number(x: float | None, unit: str = "") -> str:
    """Three digits, or all of them before the point."""
    if x is None:
        return MISSING
    return (f"{x:.3g}" if x < 100 else f"{x:,.0f}") + unit


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first column reads from the left and whose other columns are numbers."""
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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
    if len({m.machine["commit"] for m in measured}) > 1:
        sentences += f"\nThe processors were measured at different commits. {MISSING}: not measured then."
    return "\n\n".join([setting, table(["time per agent update", *_columns(measured)], rows), sentences])


def growth(measured: Sequence[Measured]) -> str:
    """Nanoseconds per update while one of N, H, d, seeds varies, and for other observations, numbers, samplings."""
    plan = measured[0].plan
    base = plan.headline
    cells = [(f"{name} = {getattr(c, name):,}", c) for name, row in plan.growth.items() for c in row]
    names = {"float32": "float32", "markov": "Markov sampling", "dense": "dense observations"}
    cells += [(f"seeds = {c.seeds}, N = {c.N:,}, H = {c.H:,}", c) for c in plan.threads]
    for c in plan.kinds:
        cells.append((next(names[v] for v in (c.dtype, c.sampling, c.observations) if v in names), c))
    rows = [[name, *(number(m.best(c, cores=k)) for m in measured for k in ("one", "all"))] for name, c in cells]
    setting = f"ns per update; otherwise d = {base.d}, N = {base.N}, H = {base.H}, {base.seeds} seeds"
    return table([setting, *_columns(measured)], rows)


STARTS = (  # a process, what is timed in it, and how a row calls that
    ("first", "import", "`import fedlsa`"),
    ("first", "first call", "first `simulate`, nothing cached"),
    ("first", "another", "then another dimension, type or sampling: the slowest of three"),
    ("second", "first call", "first `simulate` of a second process, cache on disk"),
    ("fit", "first call", "first `fit` of two small sites, nothing cached"),
    ("jax", "import", "`import jax`"),
    ("jax", "first call", "first call of the JAX loop, without its own cache"),
)


def starts(measured: Sequence[Measured]) -> str:
    """Seconds until a first small result, without and with a cache on disk; JAX beside it."""
    found = [{} if m.starts is None else m.starts for m in measured]
    rows = [[row, *(number(s.get(process, {}).get(what)) for s in found)] for process, what, row in STARTS]
    return table(["seconds", *(m.name for m in measured)], rows)


def goals(measured: Sequence[Measured]) -> str:
    """Each goal, what was measured on each processor, and what the bottleneck is where one misses it."""
    rows: list[list[str]] = []
    missed: dict[str, list[str]] = {}
    for goal in GOALS:
        said = []
        for m in measured:
            met = goal.met(m)
            shown = number(goal.value(m), goal.unit)
            said.append(shown if met is None else f"{shown}, {'met' if met else '**missed**'}")
        rows.append([goal.what, f"{'at least' if goal.at_least else 'at most'} {goal.limit:g}{goal.unit}", *said])
        if any(goal.met(m) is False for m in measured):
            missed.setdefault(goal.bottleneck, []).append(goal.what)
    text = table(["goal", "limit", *(m.name for m in measured)], rows)
    why = "\n".join(f"- {'; '.join(goals)}: {bottleneck}." for bottleneck, goals in missed.items())
    return "\n\n".join([text, "What is missed, and the bottleneck:", why]) if missed else text


def spread(m: Measured) -> str:
    """How far the repeats of the headline lie apart."""
    spreads = [f"{NAMES[r.entry.who]} {r.spread:.0%}" for w in NAMES if (r := m.record(m.plan.headline, w))]
    return f"Medians lie above the best repeats, which are shown, by (one core): {', '.join(spreads)}."


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


PAGE_BLOCKS = {"headline": headline, "goals": goals, "growth": growth, "starts": starts}  # processors are columns
SCREEN_BLOCKS = {"spread": spread, "grid": grid}  # of the run at hand


def page_blocks(measured: Sequence[Measured]) -> dict[str, str]:
    """Every table of the page by the name of its place."""
    return {name: make(measured) for name, make in PAGE_BLOCKS.items()}


def screen_blocks(m: Measured) -> dict[str, str]:
    """Every table of one run."""
    return page_blocks([m]) | {name: make(m) for name, make in SCREEN_BLOCKS.items()}
