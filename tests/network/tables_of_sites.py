"""The tables of the sites of a test: rows, the target last, and files of them."""

import numpy as np


def write_table(path, rows):
    """Columns x0, x1, ... and y, to the last bit."""
    names = [f"x{j}" for j in range(rows.shape[1] - 1)] + ["y"]
    np.savetxt(path, rows, delimiter=",", header=",".join(names), comments="", fmt="%.17g")


def site_data(sites, rows, columns, seed=3):
    """(X, y) of each site, whose laws differ."""
    rng, out = np.random.default_rng(seed), []
    for c in range(sites):
        X = rng.normal(size=(rows, columns)) * (1 + 0.2 * (c % 5)) + 0.2 * (c % 5)
        out.append((X, X @ (np.arange(columns) / columns + 0.3 * (c % 7)) + rng.normal(size=rows)))
    return out
