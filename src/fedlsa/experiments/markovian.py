"""Observations along trajectories (algo:fed-lsa-markov): what skipping costs, and what it is worth."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy.stats
import xarray as xr

from ..checks import Floats
from .base import Claim, Experiment, Lookup, Panels, Picture, Scale, Table
from .skipping import draw, late, rows, simulated_cells, single_cells, table_cells

ALLOWED = 0.05  # relative difference that counts as none
LEVEL = 2.0  # what is to be reached: so many times the last i.i.d. error
COR = "cor:sample_complexity_lsa_Markov"


def likelihood(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """The least of the p-values (Student, over seeds) of a difference from i.i.d. beyond 5%, times their number."""
    least = []
    for held in cells.values():
        for skip in ("tau_mix", "theorem"):
            run = lookup(held[skip])
            mse, error, expected = late(run, lookup(held["exact"]))
            apart = max(0.0, abs(math.log(mse / expected)) - math.log1p(ALLOWED)) / (error / mse)
            least.append(2 * float(scipy.stats.t.sf(apart, len(run["seed"]) - 1)))
    return min(1.0, len(least) * min(least))


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


def saving(cells: Panels, lookup: Lookup, scale: Scale) -> float:
    """Observations to twice the last i.i.d. error with q = tau_mix, over those with q = 1."""
    run, iid = _single(cells, lookup, "tau_mix")
    whole, _ = _single(cells, lookup, "none")
    level = LEVEL * float(iid["mse"][-1])
    return float(run["q"]) * rounds_to(run, level) / rounds_to(whole, level)


ONE = "one agent, exact: |error after the last round / that of i.i.d. observations - 1|, "
CLAIMS = (
    Claim(
        "markov-iid",
        "With one observation in tau_mix, or in the theorem's q, the error is that of i.i.d. observations.",
        COR,
        "mean squared error in the last half of the rounds: p-value (Student, over seeds) of a difference of more than "
        "5% from the exact i.i.d. one, the least over methods, N and both q, times their number",
        simulated_cells,
        likelihood,
        at_least=0.001,
    ),
    Claim(
        "markov-mixing-time",
        "Skipping to the mixing time already makes trajectories as good as i.i.d. observations.",
        "assum:P_pi_ergodicity, " + COR,
        ONE + "with q = tau_mix",
        single_cells,
        difference("tau_mix"),
        at_most=ALLOWED,
    ),
    Claim(
        "markov-theorem",
        "With the theorem's q trajectories are as good as i.i.d. observations.",
        COR,
        ONE + "with the theorem's q",
        single_cells,
        difference("theorem"),
        at_most=1e-6,
    ),
    Claim(
        "markov-whole",
        "Trajectories that are used whole (q = 1) lead to another error than i.i.d. observations do.",
        "sec:lsa_bounds_fed_markov",
        ONE + "with q = 1",
        single_cells,
        difference("none"),
        at_least=0.02,
    ),
    Claim(
        "markov-price",
        "As many rounds as with i.i.d. observations suffice, each with q times the observations.",
        COR,
        "one agent, exact: observations with q = tau_mix to twice the last i.i.d. error, over tau_mix times those of "
        "i.i.d. observations",
        single_cells,
        price,
        at_least=0.9,
        at_most=1.1,
    ),
    Claim(
        "markov-saving",
        "Skipping saves observations: with q = tau_mix fewer are needed than with q = 1. (A remedy of the proof, not a "
        "saving.)",
        COR,
        "one agent, exact: observations with q = tau_mix over those with q = 1, to twice the last i.i.d. error",
        single_cells,
        saving,
        at_most=1.0,
        expected=False,
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
