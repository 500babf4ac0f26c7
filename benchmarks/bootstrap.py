"""What bootstrap error bars cost, beside a loop of resampled least squares, which is what a user would write.

    python benchmarks/bootstrap.py             200 replicas of 20 sites x 10,000 rows; a minute
    python benchmarks/bootstrap.py --quick     a tenth of the rows

The loop draws the rows of each site with replacement and solves the averaged normal equations, replica by replica, with
NumPy. On our side the whole fit counts, checks and HC3 included. Both sides have the rows in memory as float64 and one
pass is warm; best of three in turns. The last columns are the standard errors of either, relative to the sandwich's,
mean over coefficients: both should be near 1.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import fedlsa as fl
from fedlsa.checks import Floats

SITES, ROWS, B = 20, 10_000, 200


def panel(rows: int, d: int) -> list[tuple[Floats, Floats]]:
    """Least squares at SITES sites."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((SITES, rows, d))
    return list(zip(X, X @ np.ones(d) + rng.standard_normal((SITES, rows)), strict=True))


def ours(sites: list[tuple[Floats, Floats]]) -> Floats:
    """Reweighted normal equations, all replicas in one product per site; the estimate and HC3 beside them."""
    task = fl.Regression("y", intercept=False, standardise=False)
    found = fl.fit(sites, task, bootstrap=B, plan=False).bootstrap
    assert found is not None
    return found.replicas


def loop(sites: list[tuple[Floats, Floats]]) -> Floats:
    """Replica by replica: draw rows, add up the sites' systems, solve."""
    rng, out = np.random.default_rng(1), []
    for _ in range(B):
        A, b = 0.0, 0.0
        for X, y in sites:
            rows = rng.integers(len(y), size=len(y))
            A = A + X[rows].T @ X[rows] / (SITES * len(y))
            b = b + X[rows].T @ y[rows] / (SITES * len(y))
        out.append(np.linalg.solve(A, b))
    return np.stack(out)


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description="Bootstrap error bars beside a loop of resampled least squares.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    rows = ROWS // 10 if parser.parse_args().quick else ROWS
    print(f"{SITES} sites x {rows:,} rows, {B} replicas; seconds, and standard errors relative to the sandwich's")
    print(f"{'d':>3} {'fedlsa':>8} {'loop':>8} {'loop / fedlsa':>14} {'fedlsa':>8} {'loop':>8}")
    for d in (2, 8, 32):
        sites = panel(rows, d)
        A = np.mean([X.T @ X / rows for X, _ in sites], axis=0)
        theta = np.linalg.solve(A, np.mean([X.T @ y / rows for X, y in sites], axis=0))
        scores = [X * (X @ theta - y)[:, None] for X, y in sites]
        S = np.sum([np.cov(g.T, bias=True) / rows for g in scores], axis=0) / SITES**2
        sandwich = np.sqrt(np.diag(np.linalg.inv(A) @ np.atleast_2d(S) @ np.linalg.inv(A)))
        calls = (lambda s=sites: ours(s), lambda s=sites: loop(s))
        spread = [float(np.mean(call().std(axis=0, ddof=1) / sandwich)) for call in calls]
        fast, slow = np.min([[seconds(call) for call in calls] for _ in range(3)], axis=0)
        print(f"{d:3} {fast:8.3f} {slow:8.3f} {slow / fast:14.1f} {spread[0]:8.3f} {spread[1]:8.3f}")


if __name__ == "__main__":
    main()
