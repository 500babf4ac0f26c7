"""How long the paper's main and appendix grids take here, beside what a plain NumPy loop would need for them.

    python benchmarks/reproduction.py            all of it, 2.2e10 agent updates of one preset: some minutes
    python benchmarks/reproduction.py --quick    a hundredth of the rounds
    python benchmarks/reproduction.py --write    also rewrite the table of benchmarks/measured/README.md

The grids are simulated as `fedlsa reproduce` does it, cell by cell on all cores. The loop of benchmarks/baselines.py
runs for a second or two in the same process, on N = 10 and on N = 100, and its time per update is scaled up.
"""

from __future__ import annotations

import time

import baselines
import documents
import machine

import fedlsa as fl
from fedlsa.experiments import EXPERIMENTS, Scale, compute
from fedlsa.experiments.computations import updates

GRIDS = ("fig1", "local-steps", "small-steps", "debiased")
GOAL = 45.0  # seconds, on two cores with AVX-512


def numpy_nanoseconds(agents: int, steps: int) -> float:
    """Of one agent update in the loop that a researcher would write."""
    loop = baselines.numpy_loop(fl.problems.garnet(agents=agents, preset="authors"), 0.1, 10)
    loop(100, 0)
    begin = time.perf_counter()
    loop(steps, 0)
    return (time.perf_counter() - begin) / (agents * steps) * 1e9


def report(preset: str, quick: bool) -> str:
    scale = Scale(preset, 10, False)
    drawn = [c for n in GRIDS for p in EXPERIMENTS[n].pictures for c in p.cells(scale)]
    runs = [c for c in dict.fromkeys(drawn) if c.kind == "simulate"]
    if quick:
        runs = [type(c)(c.kind, {**c.settings, "rounds": max(1, c["rounds"] // 100)}) for c in runs]
    compute(type(runs[0])(runs[0].kind, {**runs[0].settings, "rounds": 5}))  # compiles
    total = {N: sum(updates(c) for c in runs if c["agents"] == N) for N in (10, 100)}
    begin = time.perf_counter()
    for cell in runs:
        compute(cell)
    ours = time.perf_counter() - begin
    theirs = {N: numpy_nanoseconds(N, 2_000 if quick else 20_000) for N in total}
    loop = sum(total[N] * theirs[N] for N in total) * 1e-9
    every = sum(total.values())
    verdict = "a quick run tells nothing" if quick else "met" if ours <= GOAL else "missed; nearly all is the engine's"
    return "\n".join(
        [
            "| main and appendix grids, one preset | time | per agent update |",
            "| --- | ---: | ---: |",
            f"| fedlsa, all cores: {len(runs)} runs of 10 seeds, {every:.3g} updates "
            f"| {ours:,.0f} s | {ours / every * 1e9:.2f} ns |",
            f"| NumPy loop, scaled up from N = 10 and N = 100 | {loop / 3600:,.1f} h | {loop / every * 1e9:,.0f} ns |",
            "",
            f"Goal on two AVX-512 cores: {GOAL:.0f} s, {verdict}. The loop would take {loop / ours:,.0f} times as "
            f"long. {machine.sentence(machine.describe())}",
        ]
    )


def main() -> None:
    parser = documents.options(__doc__)
    parser.add_argument("--preset", default="authors", choices=("paper", "authors"))
    documents.publish(parser, "reproduction", lambda chosen: report(chosen.preset, chosen.quick))


if __name__ == "__main__":
    main()
