"""What share of the cores works for a run that has fewer seeds than cores, or a number that does not divide them.

    python benchmarks/few_seeds.py                 10 seeds on 16 cores, 3 on 2, and one; about two minutes
    python benchmarks/few_seeds.py --agents 100 --steps 10 --seeds 1 10

The measure is updates per second: those of so many seeds, over those of one seed per core, in the same process and in
turns, of which the best counts. Goal: 0.85. `--waiting` tries other values of `cpu.WAITING`, what a thread that shares
a round is thought to cost: with 1e12 none do.
"""

from __future__ import annotations

import argparse
import itertools
import time

import fedlsa as fl
from fedlsa.engine import cpu

CORES = fl.threads.cores()
REPEATS = 5
SECONDS = 0.4  # of a call
GOAL = 0.85


def pace(problem: fl.Problem, steps: int, seeds: int, rounds: int) -> float:
    """Updates per second of a run; without the set-up, as far as a run of two rounds shows it."""
    method = fl.SCAFFLSA(step_size=0.1, local_steps=steps)

    def seconds(count: int) -> float:
        begin = time.perf_counter()
        fl.simulate(problem, method, rounds=count, seeds=seeds, record=2, keep=())
        return time.perf_counter() - begin

    return (rounds - 2) * problem.n_agents * steps * seeds / max(1e-9, seconds(rounds) - seconds(2))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 10, 100, 1000], help="local steps H")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 3 if CORES == 2 else 10])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--waiting", type=float, nargs="+", default=[cpu.WAITING])
    options = parser.parse_args(arguments)
    print(f"{CORES} cores; goal {GOAL}\n  agents     H  waiting  seeds  share  ns of a core, one seed on each")
    for N, H, cpu.WAITING in itertools.product(options.agents, options.steps, options.waiting):
        p = fl.problems.garnet(agents=N, states=30, features=8, preset="paper")
        counts = [CORES, *options.seeds]
        rounds = dict.fromkeys(counts, 1000)
        for S in counts:
            rounds[S] = 2 + int(SECONDS * pace(p, H, S, 2 + int(1e7 // (N * H * S))) / (N * H * S))
        best = dict.fromkeys(counts, 0.0)
        for _ in range(options.repeats):
            for S in counts:
                best[S] = max(best[S], pace(p, H, S, rounds[S]))
        for S in options.seeds:
            row = f"{N:8}{H:6}{cpu.WAITING:9.0f}{S:7}{best[S] / best[CORES]:7.2f}{1e9 * CORES / best[CORES]:6.2f}"
            print(row, flush=True)


if __name__ == "__main__":
    main()
