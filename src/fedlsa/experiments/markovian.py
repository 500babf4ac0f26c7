"""Observations along trajectories (algo:fed-lsa-markov): what skipping costs, and what it is worth."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy.stats
import xarray as xr

from ..checks import Floats
from .base import Claim, Experiment, Lookup, Panels, Picture, Scale, Table
from .skipping import RUNS, draw, late, rows, simulated_cells, single_cells, table_cells

ALLOWED = 0.05  # relative difference of exact errors that counts as none
MARGIN = 0.2  # of simulated ones: runs in the number we make tell this from none
LEVEL = 2.0  # what is to be reached: so many times the last i.i.d. error
COR = "cor:sample_complexity_lsa_Markov"


def _compared(scale: Scale) -> Panels:
    """The simulations that are compared with the exact i.i.d. error."""
    kept = ("exact", "tau_mix", "theorem")
    return {k: {role: held[role] for role in kept} for k, held in simulated_cells(scale).items()}


def inequivalence(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The largest p-value of "the error is off the i.i.d. one by the margin or more" (two one-sided Student tests)."""
    found = []
    for held in cells.values():
        for skip in ("tau_mix", "theorem"):
            run = lookup(held[skip])
            mse, error, expected = late(run, lookup(held["exact"]))
            inside = (math.log1p(MARGIN) - abs(math.log(mse / expected))) / (error / mse)
            found.append(float(scipy.stats.t.sf(inside, len(run["seed"]) - 1)))
    return float(np.max(found))


def _single(cells: Panels, lookup: Lookup, skip: str) -> tuple[xr.Dataset, xr.Dataset]:
    (held,) = cells.values()
    return lookup(held[skip]), lookup(held["iid"])


def difference(skip: str) -> Callable[[Panels, Lookup, Scale], float]:
    """|error with this skipping / i.i.d. error - 1| of one agent after the last round, exact."""

    def measure(cells: Panels, lookup: Lookup, scale: Scale) -> float:
        run, iid = _single(cells, lookup, skip)
        return abs(float(run["mse"][-1] / iid["mse"][-1]) - 1)

    return measure


def rounds_to(curve: xr.Dataset, level: float) -> float:
    """When the error first reaches a level, between recorded rounds by the logarithm; infinite if it never does."""
    t, mse = curve["round"].values, curve["mse"].values
    below = np.flatnonzero(mse <= level)
    if not len(below):
        return math.inf
    i = int(below[0])
    if i == 0:
        return float(t[0])
    fall: Floats = np.log(mse[i - 1 : i + 1])
    return float(t[i - 1] + (t[i] - t[i - 1]) * (fall[0] - math.log(level)) / (fall[0] - fall[1]))


def price(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """Observations to twice the last i.i.d. error with q = tau_mix, over tau_mix times those of i.i.d. sampling."""
    run, iid = _single(cells, lookup, "tau_mix")
    level = LEVEL * float(iid["mse"][-1])
    return rounds_to(run, level) / rounds_to(iid, level)


def _one(*roles: str) -> Callable[[Scale], Panels]:
    """One agent: exact curves by their roles."""
    return lambda scale: {k: {role: held[role] for role in roles} for k, held in single_cells(scale).items()}


ONE = "one agent, exact: |error after the last round / that of i.i.d. observations - 1|, "
CLAIMS = (
    Claim(
        "markov-iid",
        "With one observation in tau_mix, or in the theorem's q, the error is that of i.i.d. observations.",
        COR,
        f"{RUNS} runs or more: p-value of a mean squared error in the last half of the rounds that is off the exact "
        f"i.i.d. one by {MARGIN:.0%} or more (two one-sided Student tests of its logarithm), the largest over methods, "
        "N and both q; large where noise hides the answer",
        _compared,
        inequivalence,
        at_most=0.05,
        kind="paper",
        quote="with probability at least 1-δ the results of Algorithm algo:fed-lsa-markov are indistinguishable from "
        "the result of its counterpart Algorithm algo:fed-lsa applied with number of local steps H / q",
    ),
    Claim(
        "markov-mixing-time",
        "Skipping to the mixing time already makes trajectories as good as i.i.d. observations.",
        "sec:analysis-fed-lsa-iid, before " + COR,
        ONE + "with q = tau_mix",
        _one("iid", "tau_mix"),
        difference("tau_mix"),
        at_most=ALLOWED,
        kind="paper",
        quote="adjusting the number of skipped observations (keeping about 1 observation out of τ_mix(c)) allows to "
        "control the correlation of successive observations",
    ),
    Claim(
        "markov-theorem",
        "With the theorem's q trajectories are as good as i.i.d. observations.",
        "sec:proof_markov_sampling, eq:q_block_size",
        ONE + "with the theorem's q",
        _one("iid", "theorem"),
        difference("theorem"),
        at_most=1e-6,
        kind="paper",
        quote="setting the block size q as in eq:q_block_size, [...] the results of Algorithm algo:fed-lsa-markov are "
        "indistinguishable",
    ),
    Claim(
        "markov-whole",
        "Trajectories that are used whole (q = 1) lead to another error than i.i.d. observations do.",
        "",
        ONE + "with q = 1",
        _one("iid", "none"),
        difference("none"),
        at_least=0.02,
    ),
    Claim(
        "markov-price",
        "As many rounds as with i.i.d. observations suffice, each with q times the observations.",
        "after " + COR,
        "one agent, exact: observations with q = tau_mix to twice the last i.i.d. error, over tau_mix times those of "
        "i.i.d. observations",
        _one("iid", "tau_mix"),
        price,
        at_least=0.9,
        at_most=1.1,
        kind="paper",
        quote="Most crucially, it shows that the communication complexity is the same, regardless of the type of noise",
    ),
)

EXPERIMENTS = (
    Experiment(
        "markov",
        "Trajectories, and the price of skipping",
        (COR, "algo:fed-lsa-markov"),
        pictures=(
            Picture(
                "markov",
                "Mean squared error on trajectories of which one observation in q is used, against communications and "
                "against observations, beside i.i.d. sampling; heterogeneous agents, step size 0.1, ten updates a "
                "round. With the theorem's q only the first 200 rounds are simulated.",
                simulated_cells,
                draw,
            ),
        ),
        tables=(
            Table(
                "markov",
                "Mean squared error in the last half of the rounds and its standard error over seeds, beside the exact "
                "expectation for i.i.d. observations in the same rounds. One agent: exact values after the last round.",
                table_cells,
                rows,
            ),
        ),
        claims=CLAIMS,
    ),
)
