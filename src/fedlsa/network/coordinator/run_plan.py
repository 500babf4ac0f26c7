"""From what sites say of themselves to a run: its coordinates, step size, local steps, and when it may stop.

Three scalars of each site, in the run's coordinates, are l_c <= L_c, the extreme eigenvalues of the symmetric part of
A_c, and s_c, the trace of its noise. The coordinator learns sums of them (protocol/pooled.py), which give

    a = sum_c w_c l_c        at most the smallest eigenvalue of the symmetric part of A = sum_c w_c A_c,
    L >= max_c L_c,          sigma^2 = sum_c w_c^2 s_c  (sites draw independently).

Progress. A round moves theta by about eta H A (theta - theta_star), at a rate of at least 1 - exp(-eta H a) in the
slowest direction. In a direction where A_c has eigenvalue l, a round also teaches xi_c the fraction (1 - e^-x) / x of
what it lacks, x = eta H l: about 1 while x <= 1, and 1 / x beyond. So rounds should be long for theta, short for xi,
and the slower of the rates eta H a and 1 / (eta H L) is largest for

    eta H = 1 / sqrt(a L),   which gives   r = (1 - exp(-sqrt(a / L))) / 3 per round,

a third of it for safety, since the two are coupled and Scaffnew's rounds are uneven. Where some l_c <= 0, a site drifts
away by itself in some direction: then eta H = 1 / L. Scaffnew communicates with probability 1 / H.

Noise. Single steps are stable for eta E[A(z)^T A(z)] <= a / 2; sites report L_c so that E[A(z)^T A(z)] is at most
4 (d + 2) L^2 (site/facts.py). The error that noise sustains is at most about eta sigma^2 / (2 a). It shall be
r epsilon^2 / 4: small enough that movements, too, fall below the threshold of the stop rule. Hence

    eta = min(a / (8 (d + 2) L^2), r a epsilon^2 / (2 sigma^2)).

A small step size costs local steps, H = 1 / (eta sqrt(a L)), which are cheap, and no rounds, which are not.

Stop. ||theta_star|| is not known from scalars, so the run ends by what the server sees: an error e moves theta by at
least r e in a round, so once the root mean square of the last three movements is at most r epsilon, the error is at
most epsilon (`error_left`). `rounds` is a limit for safety, enough from ||theta_star|| <= max(1, 1 / a).

FedLSA keeps a bias that depends on how the sites' systems differ, which no scalar tells: it needs moments. With moments
(A_c, b_c and second moments of noise) fl.plan decides exactly, and the coordinator knows the solution at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ... import checks
from ...algorithms import METHODS, supporting
from ...checks import Floats
from ...errors import ArgumentError, SiteDataError
from ...fitting.rows import FeatureScale
from ...fitting.sums import Systems, scale_of, unscaled
from ...fitting.tasks import Task
from ...theory.exact_curves import exact
from ...theory.planner import MAX_EXACT_DIM, Plan, plan
from ...theory.problem_moments import Moments
from ..protocol.agreed_design import PlanNumbers, pooled_summary
from ..protocol.messages import Measurement
from ..protocol.run_settings import SECURE_SITES

WINDOW = 3  # movements that must be small before a run stops
STEP_TIME = 1e-8  # seconds per local step and coefficient, about, to say what rounds cost
MOST_MORE = 64  # times the rounds of a plan, where sites ask for smaller steps than it has
MAX_LOCAL_STEPS = 2**31  # of a round, a minute or more; what needs more is out of reach


@dataclass(frozen=True)
class RunPlan:
    """A run that reaches epsilon; local_steps is 1 / probability for Scaffnew.

    rounds : how many, or where `rate` is given, how many at most: the run stops once it has `settled`
    rate : r, by which an error shrinks in a round at least; None where the number of rounds is exact
    curve : (round, expected error), where it is exact
    """

    method: str
    step_size: float
    local_steps: int
    rounds: int
    epsilon: float
    rate: float | None
    sentence: str
    curve: tuple[tuple[int, float], ...] = ()


def weights_of(rows: Sequence[int], weight: str, max_weight: float | None = None) -> Floats:
    """w_c : (N,): 1 / N for "sites", proportional to the rows for "samples", but none above max_weight.

    max_weight : by default a half where there are three sites or more. What is above it goes to the others.
    """
    checks.choice("weight", weight, ("sites", "samples"))
    w = np.array(rows if weight == "samples" else np.ones(len(rows)), np.float64)
    w /= w.sum()
    most = (0.5 if len(w) >= SECURE_SITES else 1.0) if max_weight is None else max_weight
    most = max(most, 1 / len(w))
    while (w > most * (1 + 1e-12)).any():
        high = w >= most
        w = np.where(high, most, w * (1 - most * high.sum()) / w[~high].sum())
    return w


def scale_from(sums: Sequence[int] | None, task: Task, names: Sequence[str], sites: Sequence[str]) -> FeatureScale:
    """The coordinates of the run, as fl.fit has them; sums : of all sites, None where none are needed."""
    k = len(names) - task.intercept
    if sums is None:
        return unscaled(k, task.intercept)
    pooled = pooled_summary(sums)
    if len(pooled.mean) != k + 1:
        raise SiteDataError(f"the sites sent sums of {len(pooled.mean)} columns for {len(names)} coefficients")
    where = f"all {len(sites)} sites ({sites[0]}, ...)"
    return scale_of(task, pooled.mean, pooled.scatter, pooled.largest, names[:k], where)


def plan_from_scalars(
    numbers: PlanNumbers,
    epsilon: float,
    method: str,
    dim: int,
    distance: float = 0.0,
    local: str = "rows",
) -> RunPlan:
    """A run to error epsilon, in the run's coordinates, from three scalars per site: see the module's text.

    distance : a bound on ||theta_star||, where one is known; it raises the limit on rounds, nothing else
    local : what steps use, "rows" drawn at random or the site's "means", which have no noise
    """
    checks.choice("method", method, supporting("network"))
    epsilon = checks.real("epsilon", epsilon, above=0)
    if method == "fedlsa":
        raise ArgumentError(
            "method must be 'scafflsa' or 'scaffnew' to reach epsilon from three scalars per site, for they cannot "
            "bound FedLSA's bias (sites can say share_moments = true in their policy.toml, or give step_size, "
            "local_steps and rounds); got 'fedlsa'"
        )
    a, L, sigma2, drifting = numbers
    if checks.choice("local", local, ("rows", "means")) == "means":
        sigma2 = 0.0
    if not a > 1e-12 * L:
        raise ArgumentError(
            "the sites' smallest eigenvalues must have a positive mean for a plan from three scalars per site "
            "(sites can say share_moments = true in their policy.toml, or give step_size, local_steps and rounds); "
            f"got {a:.3g}"
        )
    length = 1 / math.sqrt(a * L) if drifting == 0 else 1 / L  # eta H
    r = -math.expm1(-length * a) / 3
    stable, noisy = a / (8 * (dim + 2) * L**2), r * a * epsilon**2 / (2 * sigma2) if sigma2 > 0 else math.inf
    eta = min(stable, noisy)
    if length / eta > MAX_LOCAL_STEPS:
        raise ArgumentError(
            f"epsilon must be larger: rounds would have {length / eta:.1g} local steps; got {epsilon:g}"
        )
    H = max(1, round(length / eta))
    far = max(1.0, 1 / a, checks.real("distance", distance, at_least=0))
    rounds = WINDOW + math.ceil(math.log(max(2.0, 2 * far / (r * epsilon))) / r)
    sentence = (
        f"From three numbers per site: step size {eta:.3g}, {H:,} local steps a round "
        f"({_seconds(H * dim * STEP_TIME)} of work at a site), at most {rounds} rounds; the run stops when movements "
        f"say that the error is at most {epsilon:g}."
    )
    return RunPlan(method, eta, H, rounds, epsilon, r, sentence)


def error_left(movement: Sequence[float], rate: float) -> float:
    """About how far theta is from where it goes: the root mean square of the last movements over the rate.

    movement : ||theta_t - theta_{t-1}|| of the rounds so far; inf while there are too few
    """
    last = list(movement)[-WINDOW:]
    return math.sqrt(sum(m * m for m in last) / WINDOW) / rate if len(last) == WINDOW else math.inf


def settled(movement: Sequence[float], rate: float | None, epsilon: float) -> bool:
    """Whether a run may stop; one with an exact number of rounds, whose rate is None, does all of them."""
    return rate is not None and error_left(movement, rate) <= epsilon


def plan_from_moments(
    measurements: Sequence[Measurement],
    numbers: PlanNumbers,
    weights: Floats,
    epsilon: float,
    method: str,
    local: str = "rows",
) -> RunPlan:
    """A run to error epsilon from 0 by exact moments (fl.plan), where every site shares them; local : "rows", "means".

    Where the dimension is beyond exact moments the plan is that from scalars; it says so.
    """
    m = shared(measurements, weights, local)
    if m.dim > MAX_EXACT_DIM[checks.choice("method", method, supporting("network"))] and not m.noiseless:
        distance = float(np.linalg.norm(m.theta_star))
        return plan_from_scalars(numbers, epsilon, method, m.dim, distance, local)
    found: Plan = plan(m, epsilon, method=method, theta_0=np.zeros(m.dim))
    eta, H = allowed(float(found.algorithm.step_size), round(found.samples / found.rounds), measurements)  # type: ignore[arg-type]
    rounds = found.rounds
    while True:  # steps that sites allow may be smaller than planned, and need more rounds
        errors = exact(m, METHODS[method].with_steps(eta, H), rounds, np.zeros(m.dim))
        reached = math.sqrt(errors["mse"].values[-1])
        if reached <= epsilon * (1 + 1e-9):
            break
        if rounds >= MOST_MORE * found.rounds:
            rule = f"epsilon must be larger: with the steps that sites allow {rounds} rounds reach {reached:.3g}"
            raise ArgumentError(f"{rule}; got {epsilon:g}")
        rounds *= 2
    curve = list(zip(errors["rounds"].values.tolist(), np.sqrt(errors["mse"].values).tolist(), strict=True))
    while len(curve) > 1 and curve[-2][1] <= epsilon and curve[-2][0] >= found.rounds:
        curve.pop()  # below epsilon from there on
    sentence = (
        f"From the sites' moments, exactly: step size {eta:.3g}, {H:,} local steps a round "
        f"({_seconds(H * m.dim * STEP_TIME)} of work at a site), {curve[-1][0]} rounds; "
        f"the expected error is {curve[-1][1]:.3g}."
    )
    return RunPlan(method, eta, H, int(curve[-1][0]), epsilon, None, sentence, tuple(curve))


def allowed(eta: float, steps: int, measurements: Sequence[Measurement]) -> tuple[float, int]:
    """Smaller and more local steps of the same length in all, where the sites' policies ask for them."""
    least = max(said.least_steps for said in measurements)
    largest = min((said.largest_eta for said in measurements if said.largest_eta), default=math.inf)
    factor = max(1.0, least / steps, eta / largest)
    return eta / factor, math.ceil(steps * factor * (1 - 1e-12))


def shared(measurements: Sequence[Measurement], weights: Floats, local: str = "rows") -> Moments:
    """The moments that the sites have shared, as theory reads them; with local steps on means there is no noise."""
    N = len(measurements)
    w = checks.array("weights", weights, (N,))
    checks.choice("local", local, ("rows", "means"))
    A, b, noise = [], [], []
    for c, said in enumerate(measurements):
        if said.A is None or said.b is None or said.noise_map is None:
            rule = "every site must share its moments (share_moments = true in its policy.toml)"
            raise ArgumentError(f"{rule}; site {c} does not")
        A.append(said.A)
        b.append(said.b)
        noise.append(said.noise_map)
    maps = np.stack(noise) if local == "rows" else np.broadcast_to(np.float64(0), (N, *noise[0].shape))
    return Moments(np.stack(A), np.stack(b), maps, np.arange(N), w, np.ones(N, np.int64))


def one_shot(measurements: Sequence[Measurement], weights: Floats, names: Sequence[str]) -> Floats:
    """The solution (d,), in the run's coordinates, of the system that the sites share, from their moments at once."""
    m = shared(measurements, weights)
    rows = np.array([said.rows for said in measurements])
    return Systems(rows, m.A_bar, m.b_bar, rows.astype(np.float64)).solution(np.asarray(weights, np.float64), names)[1]


def _seconds(value: float) -> str:
    if value < 1:
        return "less than a second"
    return f"about {value:.0f} s" if value < 120 else f"about {value / 60:.0f} min"
