"""How long exact error curves and limits take, beside a simulation that knows the error to one per cent.

    python benchmarks/theory.py                the table; some minutes on two cores
    python benchmarks/theory.py --quick        few agents and rounds: to see that all of it works
    python benchmarks/theory.py --write        also rewrite the table in benchmarks/measured/README.md

Times are those of whole public calls, the best of a few, compilation apart. The simulation is not run in full: a few
seeds are, the spread of their squared errors says how many seeds a standard error of one per cent of the mean needs,
and the time of those few is scaled up in proportion.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import documents
import machine

import fedlsa as fl

ETA = 0.1
ACCURACY = 0.01  # standard error of the mean squared error, relative
TIMES = "\N{MULTIPLICATION SIGN}"
SEEDS = 32  # that are run, to see their spread and to time them


@dataclass(frozen=True)
class Row:
    """One call that is timed: rounds = None asks for the stationary limit alone; limit in seconds is the goal."""

    algorithm: fl.algorithms.Algorithm
    rounds: int | None
    limit: float
    agents: int = 100
    simulated: int = 500  # rounds that the simulation is asked for
    radius: bool = True  # whether the limit comes with its mean-square radius

    @property
    def name(self) -> str:
        a = self.algorithm
        how = f"p = {a.probability}" if isinstance(a, fl.Scaffnew) else f"H = {a.local_steps:,}"
        what = "limit" + " and radius" * self.radius if self.rounds is None else f"{self.rounds:,} rounds"
        return f"{type(a).__name__}, {how}, N = {self.agents}: {what}"


FULL = [
    Row(fl.FedLSA(ETA, 10), 5_000, 0.01, simulated=5_000),
    Row(fl.FedLSA(ETA, 1000), 500, 0.01),
    Row(fl.SCAFFLSA(ETA, 1000), 500, 1.0),
    Row(fl.SCAFFLSA(ETA, 10), 50_000, 5.0, simulated=5_000),
    Row(fl.SCAFFLSA(ETA, 1000), None, 1.0),
    Row(fl.SCAFFLSA(ETA, 100), None, 10.0, agents=1000, radius=False),
    Row(fl.Scaffnew(ETA, 0.1), 5_000, 2.0, simulated=5_000),
    Row(fl.Scaffnew(ETA, 0.01), 500, 5.0),
]
QUICK = [
    Row(fl.FedLSA(ETA, 10), 100, 0.02, agents=5, simulated=100),
    Row(fl.SCAFFLSA(ETA, 10), None, 1.0, agents=5, simulated=100),
    Row(fl.Scaffnew(ETA, 0.1), 200, 5.0, agents=5, simulated=100),
]


def best(call: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of several calls, after one that compiles and warms up."""
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def exact_seconds(row: Row, repeats: int) -> float:
    """The whole public call on a problem whose moments are not known yet."""

    def call() -> None:
        problem = fl.problems.garnet(agents=row.agents, preset="authors")
        begin = time.perf_counter()
        if row.rounds is None:
            end = fl.theory.stationary(problem, row.algorithm)
            if row.radius:
                assert end.radius < 1
        else:
            fl.theory.exact(problem, row.algorithm, rounds=row.rounds)
        took.append(time.perf_counter() - begin)

    took = list[float]()
    best(call, repeats)
    return min(took[1:])


def simulated_seconds(row: Row) -> tuple[float, int]:
    """What a simulation to the same rounds and one per cent would take, and its seeds, scaled up from a few."""
    problem = fl.problems.garnet(agents=row.agents, preset="authors")
    rounds = row.simulated

    def call() -> None:
        runs.append(fl.simulate(problem, row.algorithm, rounds=rounds, seeds=SEEDS, record=[rounds]))

    runs = list[object]()
    seconds = best(call, 1)
    error = runs[-1]["squared_error"].values[:, -1]
    seeds = int((error.std(ddof=1) / error.mean() / ACCURACY) ** 2) + 1
    wanted = rounds if row.rounds is None else row.rounds
    return seconds * (seeds / SEEDS) * (wanted / rounds), seeds


def seconds_text(s: float) -> str:
    return f"{1e3 * s:.0f} ms" if s < 1 else f"{s:.2g} s" if s < 100 else f"{s:,.0f} s"


def table(rows: list[Row], repeats: int) -> str:
    """The rows in Markdown."""
    here = machine.describe()  # the load before, not of, the measurement
    lines = [
        "| exact moments, d = 8 | time | simulation to 1% | seeds | times sooner |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        print(row.name, file=sys.stderr, flush=True)
        exact = exact_seconds(row, repeats)
        simulated, seeds = simulated_seconds(row)
        verdict = "met" if exact <= row.limit else "not met"
        print(f"    {seconds_text(exact)}; goal {seconds_text(row.limit)}: {verdict}", file=sys.stderr, flush=True)
        lines.append(
            f"| {row.name} | {seconds_text(exact)} "
            f"| {seconds_text(simulated)} | {seeds:,} | {simulated / exact:,.0f}{TIMES} |"
        )
    note = (
        f"The simulation (compiled engine, all cores) is scaled up from {SEEDS} seeds, and from 5,000 rounds where "
        "more are asked for; a limit is compared with 500 rounds, which settle it. Seeds are an estimate."
    )
    return "\n".join([*lines, "", note, "", machine.sentence(here)])


def main() -> None:
    def make(chosen: argparse.Namespace) -> str:
        return table(QUICK if chosen.quick else FULL, 1 if chosen.quick else 3)

    documents.publish(documents.options(__doc__), "theory", make)


if __name__ == "__main__":
    main()
