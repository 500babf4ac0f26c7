"""Why replicas drop and double rows by a coin: how often 95% intervals cover, by the weights that replicas give.

    python benchmarks/multipliers.py           500 data sets of each kind; half a minute

Data sets are heteroscedastic rows, or clusters of ten rows with an error of their own; three coefficients. Weights of a
row or cluster have mean one and variance one: 0 or 2 by a coin, how often it is drawn with replacement, or exponential.
299 replicas; intervals are t quantiles of their standard deviation, or in brackets their percentiles. The sandwich is
HC3, or CR3. Entries are the lowest and the highest of the three, in percent.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import stdtrit

from fedlsa.checks import Floats

B, D = 299, 3


def data_set(units: int, rows: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """X (units, rows, D) and y (units, rows), all coefficients 1; a unit of more than one row is a cluster."""
    X = rng.normal(size=(units, rows, D)) + (rng.normal(size=(units, 1, D)) if rows > 1 else 0)
    X[..., 0] = 1
    if rows == 1:
        X[..., 2] = rng.exponential(size=(units, rows))
        return X, X.sum(axis=2) + np.sqrt(0.3 + 0.7 * X[..., 1] ** 2) * rng.normal(size=(units, rows))
    shared = np.sqrt(0.5 + 0.5 * X[..., 1] ** 2) * rng.normal(size=(units, 1))
    return X, X.sum(axis=2) + shared + rng.normal(size=(units, rows))


def covered(units: int, rows: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Of one data set: whether each interval covers, (2, D) for t quantiles and percentiles."""
    X, y = data_set(units, rows, rng)
    A, b = np.einsum("gni,gnj->gij", X, X), np.einsum("gni,gn->gi", X, y)
    theta = np.linalg.solve(A.sum(axis=0), b.sum(axis=0))
    scores = b - A @ theta
    left = np.linalg.solve(A.sum(axis=0) - A, scores[:, :, None])[:, :, 0]  # what theta loses with the unit
    quantile = stdtrit(units - 1 if rows > 1 else units - D, 0.975)
    out = {"sandwich": np.stack([np.abs(theta - 1) <= quantile * np.sqrt((left**2).sum(axis=0))] * 2)}
    weights = {
        "coins": 2.0 * rng.integers(0, 2, size=(B, units)),
        "with replacement": rng.multinomial(units, np.full(units, 1 / units), size=B).astype(float),
        "exponential": rng.exponential(size=(B, units)),
    }
    replicas = {}
    for name, V in weights.items():
        systems = np.tensordot(V, A, 1)
        kept = np.linalg.cond(systems) < 1e12
        replicas[name] = np.linalg.solve(systems[kept], (V @ b)[kept, :, None])[:, :, 0]
    for name, found in replicas.items():
        low, high = np.quantile(found, [0.025, 0.975], axis=0)
        near = np.abs(theta - 1) <= quantile * found.std(axis=0, ddof=1)
        out[name] = np.stack([near, (low <= 1) & (high >= 1)])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of bootstrap intervals by the weights of replicas.")
    parser.add_argument("--sets", type=int, default=500, help="data sets of each kind")
    sets = parser.parse_args().sets
    names = ("coins", "with replacement", "exponential", "sandwich")
    print(f"{'data':12}" + "".join(f"{name:>18}" for name in names))
    for units, rows in ((30, 1), (80, 1), (12, 10), (30, 10)):
        found = [covered(units, rows, np.random.default_rng([units, rows, k])) for k in range(sets)]
        share = {name: 100 * np.mean([one[name] for one in found], axis=0) for name in names}
        cells = [f"{s[0].min():.0f}-{s[0].max():.0f} ({s[1].min():.0f}-{s[1].max():.0f})" for s in share.values()]
        print(f"{units} {'rows' if rows == 1 else 'clusters':9}" + "".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()
