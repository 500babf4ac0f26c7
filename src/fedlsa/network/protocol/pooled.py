"""The sums that sites send before the first round, as exact fractions, and what the server reads of them.

Coordinates: sum_c w_c (1, mean_c, mean square_c) of every column. Sums of exact fractions lose nothing, so that the
pooled variance, a small difference of large numbers, is as exact as the sites' own means and scatters.
Plan: sum_c w_c l_c, sum_c L_c^p and sum_c w_c^2 s_c of the three numbers of each site (run_plan.py), and how many have
l_c <= 0. The p-th root of sum_c L_c^p is at least the largest L_c, and at most N^(1/p) times it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import repeat
from typing import NamedTuple

import numpy as np

from ...errors import MessageError
from ...fit.site_sums import Summary

DITHER = Fraction(1, 2**32)  # of what is told: far below what a scale or a plan needs, far above the last bits
POWER = 8  # p: 100 sites make the largest eigenvalue 1.8 times what it is, ten sites 1.3 times


def scale_sums(summary: Summary, weight: float, dither: Iterator[Fraction] | None = None) -> list[Fraction]:
    """(2 k + 3,): w, w mean and w mean square of the k features and the target.

    dither : numbers within 1. Exact sums with weights that differ in their last bits would tell one site's means there;
        so each mean moves by DITHER of its deviation, and each variance by DITHER of itself
    """
    w, blur = Fraction(weight), dither or repeat(Fraction(0))
    deviation = [Fraction(s) for s in np.sqrt(summary.scatter / summary.n).tolist()]
    mean = [Fraction(m) + DITHER * next(blur) * s for m, s in zip(summary.mean.tolist(), deviation, strict=True)]
    scatter = [Fraction(s) / summary.n * (1 + DITHER * next(blur)) for s in summary.scatter.tolist()]
    return [w, *(w * m for m in mean), *(w * (s + m * m) for m, s in zip(mean, scatter, strict=True))]


def pooled_summary(sums: Sequence[int]) -> Summary:
    """The weighted mean and variance of every column over all sites, from integers in any unit, as of one row.

    `largest` is the root mean square, which is what a scatter of rounding errors is compared with.
    """
    k, left = divmod(len(sums) - 1, 2)
    total = sums[0]
    if left or k < 1 or total <= 0:
        raise MessageError("the sums of all sites must be those of columns with positive weights; they are not")
    mean = [Fraction(s, total) for s in sums[1 : k + 1]]
    square = [Fraction(s, total) for s in sums[k + 1 :]]
    variance = [e - m * m for e, m in zip(square, mean, strict=True)]
    if any(float(v) < -1e-9 * float(e) for v, e in zip(variance, square, strict=True)):
        raise MessageError("the sums of all sites must have mean squares above squared means; they have not")
    scatter = np.array([float(max(v, Fraction(0))) for v in variance])
    return Summary(1, np.array([float(m) for m in mean]), scatter, np.sqrt([max(float(e), 0.0) for e in square]))


def plan_sums(
    weight: float, lowest: float, highest: float, noise: float, dither: Iterator[Fraction] | None = None
) -> list[Fraction]:
    """(4,): w l, L^p, w^2 s and whether l <= 0, of a site; dither : as in `scale_sums`."""
    w, blur = Fraction(weight), dither or repeat(Fraction(0))
    exact = [w * Fraction(lowest), Fraction(max(highest, 0.0)) ** POWER, w * w * Fraction(noise)]
    return [*(x * (1 + DITHER * next(blur)) for x in exact), Fraction(lowest <= 0)]


class PlanNumbers(NamedTuple):
    """Of all sites: a = sum_c w_c l_c, L >= max_c L_c, sigma2 = sum_c w_c^2 s_c; drifting : how many have l_c <= 0."""

    a: float
    L: float
    sigma2: float
    drifting: int


def plan_numbers(sums: Sequence[float]) -> PlanNumbers:
    """The numbers of run_plan.py from the sums over all sites."""
    if len(sums) != 4 or sums[1] < 0 or sums[2] < 0:
        raise MessageError("the sums of all sites must have positive eigenvalues and noise; they have not")
    return PlanNumbers(sums[0], sums[1] ** (1 / POWER), sums[2], round(sums[3]))
