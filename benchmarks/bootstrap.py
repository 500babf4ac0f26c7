"""What replicas of a bootstrap cost, beside as many separate runs of fl.simulate.

    python benchmarks/bootstrap.py             d = 8, 200 replicas; half a minute
    python benchmarks/bootstrap.py --quick     a tenth of the rounds

Both sides make the same number of updates of d numbers. Replicas share the draws of one run; separate runs draw their
own, and would each need a reweighted copy of the data to say as much. Best of three in turns, compilation apart.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import fedlsa as fl
from fedlsa.fit.bootstrap import bootstrap

SITES, ROWS, H, B = 20, 1000, 100, 200
METHODS = (fl.FedLSA(0.05, H), fl.SCAFFLSA(0.05, H))


def panel(d: int) -> fl.Problem:
    """Least squares at SITES sites of ROWS rows each."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((SITES, ROWS, d)) / np.sqrt(d)
    y = X @ np.ones(d) + rng.standard_normal((SITES, ROWS))
    return fl.problems.regression(zip(X, y, strict=True))


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description="Replicas of a bootstrap beside separate runs.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    rounds = 5 if parser.parse_args().quick else 50
    print(f"{SITES} sites x {ROWS} rows, {rounds} rounds of {H} steps, {B} replicas; ns per update of d numbers")
    print(f"{'method':10} {'d':>3} {'threads':>8} {'replicas':>9} {'runs':>7} {'runs / replicas':>16}")
    for d in (2, 8, 32):
        problem = panel(d)
        for method in METHODS:
            for threads in (1, None):
                calls = (
                    lambda T, p=problem, m=method, n=threads: bootstrap(p, m, T, replicas=B, threads=n),
                    lambda T, p=problem, m=method, n=threads: fl.simulate(
                        p, m, T, seeds=B, record=[T], theta_0=np.zeros(p.dim), threads=n
                    ),
                )
                for call in calls:
                    call(1)
                best = np.min([[seconds(lambda c=c: c(rounds)) for c in calls] for _ in range(3)], axis=0)
                ours, theirs = best / (rounds * H * SITES * B) * 1e9
                print(
                    f"{type(method).__name__:10} {d:3} {threads or 'all':>8} {ours:9.2f} {theirs:7.2f} "
                    f"{theirs / ours:16.2f}"
                )


if __name__ == "__main__":
    main()
