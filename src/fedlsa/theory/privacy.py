"""What noise on answers promises: the discrete Gaussian, exactly drawn, and an account of it over all answers.

A site writes its answer as integers, the multiples of a grid, and adds integers of probability proportional to
exp(-k^2 / (2 sigma^2)) (Canonne, Kamath, Steinke 2020). Arithmetic is rational and randomness comes from the operating
system, so there is no float whose last bits could betray the answer. Two integer vectors at most D apart then cost

    rho = D^2 / (2 sigma^2)    of zero-concentrated differential privacy, exactly as the continuous Gaussian,

and rho adds up over answers, runs and restarts, even where each is chosen in view of the last (`rho_of`). A total rho
is (epsilon, delta) by the best known conversion from Renyi divergence (`epsilon_of`; Proposition 12 there). D is in the
unit of sigma; rounding two vectors to the grid may part them by another grid sqrt(d), and D includes it.

The promise is the site's own and trusts nobody outside: it holds against a coordinator that sees the single answer, so
all the more where it sees sums. Who is protected is the `unit`:

"site". The answer is the change of theta, shortened to `clip`. Whatever two data sets the site may hold, D = 2 clip.

"record". One row is replaced by any other, in a regression. With `row_clip` G a row's step (engine/local.py) is
T(h) = h - eta (s u psi(u . h - y) + ridge h - xi), where psi shortens the residual to [-G / |u|, G / |u|], and
s = min(1, 1 / (eta |u|^2)). Local steps are H such steps, on "rows" that are drawn in secret, or on the mean of all n
rows' steps ("means"). Claim: D = 2 eta G K, K how often the row is drawn, or H / n.
Proof. theta, xi and the draws are the same for both data sets: theta comes from the server, xi from what was sent, and
draws do not look at the data. psi is monotone and 1-Lipschitz: psi(a) - psi(b) = r (a - b), 0 <= r <= 1. So one and
the same row takes h - h' to ((1 - eta ridge) I - eta r s u u^T) (h - h'), a symmetric matrix with eigenvalues in
[-1, 1] as eta s |u|^2 <= 1 and eta ridge <= 1: nothing grows, whatever the row is, nor does it in a mean of such steps.
A step on the row that differs adds at most eta |s u psi - s' u' psi'| <= 2 eta G (the ridge cancels), in a mean 1 / n
of it. Shortening to `clip`, a projection onto a ball, lets nothing grow, so D is also at most 2 clip. K is binomial,
and at most `most_draws` except with probability TAIL, which is added to delta for every answer. Given draws with K at
most that, the answer is a Gaussian mechanism; mixing over draws, the same for both data sets, costs no more than the
worst of them. Value functions have no such step (u v^T is not symmetric, a step may grow): there the unit "record" is
refused. Features must not be standardised by sums that the row is in, unless those sums may be known.

Not covered: whatever leaves without noise (sums for standardisation, three scalars, moments), and how long it takes.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from .. import checks
from ..errors import ArgumentError, ArgumentTypeError

DELTA = 1e-5  # of promises that are shown without being asked for
TAIL = 2.0**-40  # of how often a row is drawn, per answer: a thousand answers add 1e-9 to delta
CLIP_ERROR = 2.0**-30  # relative: more than what float64 leaves of a vector's length beyond its clip
UNITS = ("site", "record")  # what noise hides: all of a site's rows, or any one of them
LOCAL = ("rows", "means")  # what local steps use

RandBelow = Callable[[int], int]  # n -> an integer below n, all equally likely


def discrete_gaussian(variance: Fraction | int, size: int, randbelow: RandBelow = secrets.randbelow) -> list[int]:
    """Independent integers k with probabilities proportional to exp(-k^2 / (2 variance)), without any rounding.

    randbelow : the source of randomness; tests give one that repeats itself
    """
    if isinstance(variance, bool) or not isinstance(variance, (int, Fraction)):
        raise ArgumentTypeError(f"variance must be an integer or a Fraction above 0; got {checks.show(variance)}")
    if variance <= 0:
        raise ArgumentError(f"variance must be an integer or a Fraction above 0; got {checks.show(variance)}")
    p, q = variance.numerator, variance.denominator
    scale = math.isqrt(p // q) + 1  # of the Laplace law that is thinned out: above sigma
    return [_draw_gaussian(p, q, scale, randbelow) for _ in range(checks.integer("size", size))]


def _draw_gaussian(p: int, q: int, scale: int, randbelow: RandBelow) -> int:
    """A Laplace integer k, kept with probability exp(-(|k| - variance / scale)^2 / (2 variance)), variance = p / q."""
    while True:
        k = _draw_laplace(scale, randbelow)
        if _flip_exponential((abs(k) * q * scale - p) ** 2, 2 * p * q * scale**2, randbelow):
            return k


def _draw_laplace(scale: int, randbelow: RandBelow) -> int:
    """An integer k with probability proportional to exp(-|k| / scale)."""
    while True:
        low = randbelow(scale)
        if not _flip_exponential(low, scale, randbelow):
            continue
        high = 0
        while _flip_exponential(1, 1, randbelow):
            high += 1
        size, negative = low + scale * high, randbelow(2)
        if size or not negative:  # 0 has one sign
            return -size if negative else size


def _flip_exponential(p: int, q: int, randbelow: RandBelow) -> bool:
    """True with probability exp(-p / q): for p <= q, whether the first k with a failed coin of p / (k q) is odd."""
    while p > q:  # exp(-1) as often as it goes in
        if not _flip_exponential(1, 1, randbelow):
            return False
        p -= q
    k = 1
    while randbelow(k * q) < p:
        k += 1
    return k % 2 == 1


def rho_of(sensitivity: float, sigma: float) -> float:
    """The rho of one answer: integer vectors at most `sensitivity` apart, with noise of standard deviation sigma."""
    return (checks.real("sensitivity", sensitivity, at_least=0) / checks.real("sigma", sigma, above=0)) ** 2 / 2


def rho_of_answer(
    unit: str,
    clip: float,
    noise: float,
    *,
    dim: int = 0,
    grid: float = 0.0,
    local: str = "rows",
    step_size: float | None = None,
    row_clip: float | None = None,
    local_steps: int | None = None,
    rows: int | None = None,
    ridge: float = 0.0,
    longest: float = 0.0,
) -> float:
    """What one answer spends, for a ledger: see the module's text. Costs of answers add up.

    unit : "site" or "record"; clip : of the answer; noise : its standard deviation as a multiple of clip
    dim, grid : of the integers, whose rounding counts; of integers that hold weight * change it is unit / weight
    local, step_size, row_clip, local_steps, rows, ridge : of the local steps of a regression, for the unit "record"
    longest : a bound on |theta_hat| + eta (G + |xi|) on the way, e.g. |theta| + eta (H + 1) (G + |xi|); with it the
        rounding of float64 in the local steps counts too
    Totals are turned into epsilon by `epsilon_of(rho, delta_left(unit, delta, answers))`.
    """
    sigma = checks.real("noise", noise, above=0) * checks.real("clip", clip, above=0)
    d = checks.integer("dim", dim)
    sensitivity = 2 * clip * (1 + CLIP_ERROR)
    if checks.choice("unit", unit, UNITS) == "record":
        if row_clip is None:
            raise ArgumentError("row_clip must be given for the unit 'record': without it a row has no bound; got None")
        eta = checks.real("step_size", step_size, above=0)
        if eta * checks.real("ridge", ridge, at_least=0) > 1:
            raise ArgumentError(f"ridge must be at most 1 / step_size for the unit 'record'; got {ridge:g}")
        H = checks.integer("local_steps", local_steps, at_least=1)
        n, by_means = checks.integer("rows", rows, at_least=1), checks.choice("local", local, LOCAL) == "means"
        K = H / n if by_means else most_draws(H, n)
        by_rows = 2 * eta * checks.real("row_clip", row_clip, above=0) * K
        by_floats = 2.0**-53 * H * (4 * d + 24 + 4 * n * by_means) * checks.real("longest", longest, at_least=0)
        sensitivity = min(sensitivity, by_rows * (1 + CLIP_ERROR) + by_floats)
    return rho_of(sensitivity + checks.real("grid", grid, at_least=0) * math.sqrt(d), sigma)


def check_unit(unit: str, regression: bool, own: bool = False) -> None:
    """Refuse the unit "record" where no bound on a row's influence is proved: for value functions, and for own
    intercepts, since a row moves the means that all rows of its site are taken from."""
    if checks.choice("unit", unit, UNITS) == "record" and (own or not regression):
        why = "its local steps may grow, so one row has no bound" if not regression else "one row moves all of its site"
        what = "where sites have intercepts of their own" if regression else "for a value function"
        raise ArgumentError(f"unit must be 'site' {what}: {why}; got 'record'")


def most_draws(local_steps: int, rows: int, tail: float = TAIL) -> int:
    """The smallest K with P(a row is drawn more than K times) <= tail, where each of n rows is equally likely."""
    H, n = checks.integer("local_steps", local_steps, at_least=1), checks.integer("rows", rows, at_least=1)
    from scipy.stats import binom  # takes half a second to load: not in every process of a site

    law = binom(H, min(1.0, most_probable(n)))
    most = int(law.isf(checks.real("tail", tail, above=0, below=1)))
    while law.sf(most) > tail:
        most += 1
    while most > 0 and law.sf(most - 1) <= tail:
        most -= 1
    return most


def most_probable(rows: int) -> float:
    """At least the probability of every row in the alias table: 1 / n up to 2^-32, and the last one what is left."""
    return 1 / rows + 2.0**-31 + rows * 2.0**-53


def delta_left(unit: str, delta: float, answers: int) -> float:
    """The part of delta that is left for noise when the tails of so many answers are paid for."""
    delta = checks.real("delta", delta, above=0, below=1)
    paid = TAIL * checks.integer("answers", answers) if checks.choice("unit", unit, UNITS) == "record" else 0.0
    if paid >= delta:
        raise ArgumentError(f"delta must be above {paid:.3g}, the tails of {answers} answers; got {delta:g}")
    return delta - paid


def epsilon_of(rho: float, delta: float) -> float:
    """The smallest epsilon that is known to follow from rho at this delta.

    epsilon = min over alpha > 1 of alpha rho + (log(1 / delta) + alpha log(1 - 1 / alpha) - log(alpha - 1)) / (alpha -
    1); any alpha gives a true bound, so the search for the best one need not be exact.
    """
    delta = checks.real("delta", delta, above=0, below=1)
    if checks.real("rho", rho, at_least=0) == 0:
        return 0.0

    def epsilon(log_order: Any) -> Any:
        a = np.exp(log_order)  # alpha - 1
        return (1 + a) * rho + (math.log(1 / delta) + (1 + a) * (log_order - np.log1p(a)) - log_order) / a

    near = math.log(math.log(1 / delta) / rho) / 2 + np.linspace(-16, 16, 321)
    best = int(np.argmin(epsilon(near)))
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(epsilon, bounds=(near[max(best - 1, 0)], near[min(best + 1, 320)]), method="bounded")
    return max(0.0, float(min(found.fun, epsilon(near[best]))))


def rho_for(epsilon: float, delta: float) -> float:
    """The rho that may be spent in all for this epsilon at this delta: the inverse of `epsilon_of`."""
    epsilon, delta = checks.real("epsilon", epsilon, above=0), checks.real("delta", delta, above=0, below=1)

    def excess(log_rho: float) -> float:
        return epsilon_of(math.exp(log_rho), delta) - epsilon

    high = math.log(epsilon)
    while excess(high) <= 0:
        high += 1
    low = high
    while excess(low) > 0:
        low -= 1
    from scipy.optimize import brentq

    rho = math.exp(brentq(excess, low, high, xtol=1e-13))
    while epsilon_of(rho, delta) > epsilon:
        rho *= 1 - 1e-13
    return rho


def privacy_spent(noise: float, releases: int, delta: float, rounding: float = 0.0) -> float:
    """The epsilon that `releases` noised answers have cost a site at a given delta, for the unit "site".

    noise : standard deviation of the noise as a multiple of the clipping norm
    rounding : grid sqrt(d) / clip, of the integers that are sent
    """
    noise = checks.real("noise", noise, above=0)
    each = rho_of_answer("site", 1.0, noise, dim=1, grid=rounding)
    return epsilon_of(checks.integer("releases", releases) * each, delta)


def promise(noise: float, releases: int, delta: float = DELTA, rounding: float = 0.0, unit: str = "site") -> str:
    """The promise of a run in words, for the display; what a site has spent in all, its ledger says."""
    spent = privacy_spent(noise, releases, delta, rounding)
    rows = " and of a single row's privacy" if unit == "record" else ""
    return (
        f"the {releases} noised answers of this run are ({spent:.3g}, {delta:g})-differentially private about all rows "
        f"of a site; sums that left before them without noise are not in this, and what was spent in all{rows} the "
        "site's ledger says"
    )
