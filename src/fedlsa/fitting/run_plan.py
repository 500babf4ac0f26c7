"""From what sites say of themselves to a run between them: step size, local steps, and when it may stop.

The one planner of runs between sites: a network plans by it, and `fl.fit` says by it what a run would take.

Three scalars of each site, in the run's coordinates, are l_c <= L_c, the extreme eigenvalues of the symmetric part of
A_c, and s_c, the trace of its noise. The coordinator learns sums of them (protocol/agreed_design.py), which give

    a = sum_c w_c l_c        at most the smallest eigenvalue of the symmetric part of A = sum_c w_c A_c,
    L >= max_c L_c,          sigma^2 = sum_c w_c^2 s_c  (sites draw independently).

Progress. A round moves theta by about eta H A (theta - theta_star), at a rate of at least 1 - exp(-eta H a), and
teaches xi_c the fraction (1 - e^-x) / x of what it lacks, x = eta H l where A_c has eigenvalue l. So rounds should be
long for theta, short for xi, and the slower of the rates eta H a and 1 / (eta H L) is largest for

    eta H = 1 / sqrt(a L),   which gives   r = (1 - exp(-sqrt(a / L))) / 3 per round,

a third of it for safety. Where some l_c <= 0, a site drifts away by itself in some direction: then eta H = 1 / L.
Scaffnew communicates with probability 1 / H.

Noise. Single steps are stable for eta E[A(z)^T A(z)] <= a / 2; sites report L_c so that E[A(z)^T A(z)] is at most
4 (d + 2) L^2 (`Scalars`). The error that noise sustains is at most about eta sigma^2 / (2 a). It shall be
r epsilon^2 / 4: small enough that movements, too, fall below the threshold of the stop rule. Hence

    eta = min(a / (8 (d + 2) L^2), r a epsilon^2 / (2 sigma^2)).

Stop. ||theta_star|| is not known from scalars, so the run ends by what the server sees: an error e moves theta by at
least r e in a round, so once the root mean square of the last three movements is at most r epsilon, the error is at
most epsilon (`remaining_error`). `rounds` is a limit for safety, enough from ||theta_star|| <= max(1, 1 / a).

FedLSA keeps a bias that depends on how the sites' systems differ, which no scalar tells: it needs moments. With moments
(A_c, b_c and second moments of noise) fl.plan decides exactly, and the coordinator knows the solution at once.

Limits. What the sites' policies ask of steps holds for both: smaller and more local steps of the same length in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .. import checks
from ..algorithms import METHODS, supporting
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..theory.exact_curves import exact_record
from ..theory.planner import plan
from ..theory.problem_moments import Moments, moments
from ..theory.tuning import MAX_EXACT_DIM
from .rows import Piece
from .sums import Systems, null_space
from .tasks import SECURE_SITES

LEAST_LOCAL_STEPS, LARGEST_STEP, MOST_ROUNDS = 20, 1.0, 2000  # as policies begin
ROUNDING = 1e-13  # of the largest singular value: directions of rows below it are rounding errors
WINDOW = 3  # movements that must be small before a run stops
STEP_TIME = 1e-8  # seconds per local step and coefficient, about, to say what rounds cost
MOST_MORE = 64  # times the rounds of a plan, where sites ask for smaller steps than it has
MAX_LOCAL_STEPS = 2**31  # of a round, a minute or more; what needs more is out of reach
TAILS = 4  # times (d + 2) L^2, as Gaussian rows have it, that E[A(z)^T A(z)] may reach before L is called larger
POWER = 8  # p: 100 sites make the largest eigenvalue 1.8 times what it is, ten sites 1.3 times
UP, DOWN = 16, 16  # bytes of a coefficient in a round: masked integers of 128 bits; theta and the last average
FRAMING = 1024  # bytes, at most, that a message has beside: names, weights, digests and receipts of some ten sites
EXACT = "exact moments"  # the basis of a plan for which sites share them
SHARE = "sites can say share_moments = true in their policy.toml, or give step_size, local_steps and rounds"


class StepLimits(NamedTuple):
    """What a site asks of local steps. least_steps : of a round; largest_eta : 0 for any step size."""

    least_steps: int
    largest_eta: float


@dataclass(frozen=True)
class RowSizes:
    """How much single rows stand out at a site, and what its policy therefore asks of local steps, for a run's scale.

    Told to powers of two, for what is told depends on single rows (network/site/limits.py says why these bounds).

    mean : at least the norm of A_c, the mean of u v^T; leverage : the largest share of one row in any direction
    """

    rows: int
    mean: float
    leverage: float

    @property
    def largest(self) -> float:
        """At least the largest |u| |v|, told to a power of two: scales move it through averages of all rows alone."""
        return power_of_two(self.rows * power_of_two(self.leverage) * self.mean)

    def step_limits(
        self, drawn: bool, least_local_steps: int = LEAST_LOCAL_STEPS, largest_step: float = LARGEST_STEP
    ) -> StepLimits:
        """What a policy with these entries allows, whether rows are drawn at random or steps use means.

        A row takes eta |u| |v| of what earlier ones left along its own direction. With 1 / `least_local_steps` of it,
        so many rows that are alike stand behind an answer, not the last of them.
        """
        if not drawn:  # beyond 2 / |A| steps on means leave every range
            mean = power_of_two(self.mean)
            return StepLimits(1, 2 / mean if mean else 0.0)
        least = max(least_local_steps, power_of_two(least_local_steps * self.rows * self.leverage), 1)
        largest = least_local_steps * self.largest
        return StepLimits(int(least), largest_step / largest if largest else 0.0)


def row_sizes(pieces: Callable[[], Iterable[Piece]]) -> RowSizes:
    """The sizes of all rows, in two passes over their pieces.

    The triangular factor of the rows keeps small directions that their products would lose to rounding: two columns
    that differ by 1e-6 in one row have a direction in which that row is alone.
    """

    def directions(piece: Piece) -> dict[str, Floats]:
        """In what a row may stand out: (v, y), which meets theta, and u, along which it moves the answer."""
        return {"w": np.column_stack([piece.v, piece.y])} | ({} if piece.u is piece.v else {"u": np.asarray(piece.u)})

    def norm(triangle: Floats) -> float:
        return float(np.linalg.norm(triangle, 2)) if np.isfinite(triangle).all() and triangle.size else math.inf

    triangles: dict[str, Floats] = {}
    rows = 0
    for piece in pieces():
        rows += len(piece.y)
        for name, w in directions(piece).items():
            above = [triangles[name]] if name in triangles else []
            triangles[name] = np.asarray(np.linalg.qr(np.vstack([*above, w]), mode="r"), np.float64)
    roots = {name: _inverse_root(triangle) for name, triangle in triangles.items()}
    each = ((w @ roots[name]) ** 2 for piece in pieces() for name, w in directions(piece).items())
    leverage = max(float(shares.sum(axis=1).max()) for shares in each)
    norms = [norm(triangles["w"][:, :-1])] + ([norm(triangles["u"])] if "u" in triangles else [])
    return RowSizes(rows, norms[0] * norms[-1] / rows, min(leverage, 1.0))


def _inverse_root(triangle: Floats) -> Floats:
    """R with w R R^T w^T the leverage of a row w; columns are scaled to one length first."""
    largest = np.abs(triangle).max(axis=0)
    largest[largest == 0] = 1.0
    scale = largest * np.linalg.norm(triangle / largest, axis=0)
    scale[scale == 0] = 1.0
    _, values, vectors = np.linalg.svd(triangle / scale, full_matrices=False)
    good = values > ROUNDING * values[0]
    return np.asarray(vectors[good].T / values[good] / scale[:, None], np.float64)


def power_of_two(value: float) -> float:
    """The next power of two: what depends on a single row is told no finer."""
    return 0.0 if value <= 0 else 2.0 ** min(math.ceil(math.log2(value)), 1023) if math.isfinite(value) else math.inf


class Scalars(NamedTuple):
    """What a plan follows from, of one site, or of many: arrays (N,).

    lowest, highest : extreme eigenvalues of the symmetric part of A_c. Where observations are so uneven that the
        eigenvalue would promise too much (E[A(z)^T A(z)] beyond TAILS (d + 2) highest^2), highest is the number that
        does not
    noise : the larger trace of the noise at the site's own solution and at 0, where runs start
    """

    lowest: Any
    highest: Any
    noise: Any

    @classmethod
    def of(cls, A: Floats, b: Floats, noise: Floats | None = None) -> Scalars:
        """Of A_c : (N, d, d) and b_c : (N, d), ridge included; noise : (N, ...) of `noise_form`, None on means."""
        N, d = b.shape
        values = np.linalg.eigvalsh((A + A.swapaxes(1, 2)) / 2)
        squares, most = A.swapaxes(1, 2) @ A, np.zeros(N)
        if noise is not None:
            squares = squares + noise[:, :d, :d]
            for c in range(N):
                free = len(null_space(A[c])) > 0
                own = np.linalg.lstsq(A[c], b[c], rcond=1e-12)[0] if free else np.linalg.solve(A[c], b[c])
                h = np.append(own, 1.0)
                most[c] = max(float(h @ noise[c] @ h), float(noise[c, d, d]), 0.0)
        uneven = np.sqrt(np.maximum(np.linalg.eigvalsh(squares)[:, -1], 0.0) / (TAILS * (d + 2)))
        return cls(values[:, 0], np.maximum(values[:, -1], uneven), most)


def noise_products(p: Piece) -> Floats:
    """The sum of |u|^2 w w^T : (d + 1, d + 1) over rows (A(z), -b(z)) = u w^T."""
    w = np.column_stack([p.v, -p.y])
    return np.asarray((w * np.einsum("nd,nd->n", p.u, p.u)[:, None]).T @ w, np.float64)


def noise_form(W: Floats, A: Floats, b: Floats) -> Floats:
    """Q : (d + 1, d + 1) with Tr Cov(A(z) theta - b(z)) = h^T Q h, h = (theta, 1); W : the mean of `noise_products`,
    A, b : of the rows, without the ridge, which is no noise"""
    mean = np.column_stack([A, -b])
    return W - mean.T @ mean


class PlanNumbers(NamedTuple):
    """Of all sites: a = sum_c w_c l_c, L >= max_c L_c, sigma2 = sum_c w_c^2 s_c; drifting : how many have l_c <= 0."""

    a: float
    L: float
    sigma2: float
    drifting: int

    @classmethod
    def of(cls, weights: Floats, sites: Scalars) -> PlanNumbers:
        """As sums of what all sites say."""
        lowest, highest, noise = sites
        L = np.linalg.norm(np.maximum(highest, 0.0), POWER)
        return cls(float(weights @ lowest), float(L), float(weights**2 @ noise), int((lowest <= 0).sum()))


@dataclass(frozen=True)
class RunPlan:
    """A run that reaches epsilon; local_steps is 1 / probability for Scaffnew.

    rounds : how many, or where `rate` is given, how many at most: the run stops once it `has_settled`
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

    @property
    def samples(self) -> int:
        """Of a site, at most; in expectation for Scaffnew."""
        return self.rounds * self.local_steps


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


def plan_from_scalars(
    numbers: PlanNumbers,
    limits: Iterable[StepLimits],
    epsilon: float,
    method: str,
    dim: int,
    distance: float = 0.0,
    local: str = "rows",
) -> RunPlan:
    """A run to error epsilon, in the run's coordinates, from three scalars per site: see the module's text.

    limits : what sites ask of steps
    distance : a bound on ||theta_star||, where one is known; it raises the limit on rounds, nothing else
    local : what steps use, "rows" drawn at random or the site's "means", which have no noise
    """
    checks.choice("method", method, supporting("network"))
    epsilon = checks.real("epsilon", epsilon, above=0)
    if method == "fedlsa":
        raise ArgumentError(
            "method must be 'scafflsa' or 'scaffnew' to reach epsilon from three scalars per site, for they cannot "
            f"bound FedLSA's bias ({SHARE}); got 'fedlsa'"
        )
    a, L, sigma2, drifting = numbers
    if checks.choice("local", local, ("rows", "means")) == "means":
        sigma2 = 0.0
    if not a > 1e-12 * L:
        raise ArgumentError(
            "the sites' smallest eigenvalues must have a positive mean for a plan from three scalars per site "
            f"({SHARE}); got {a:.3g}"
        )
    length = 1 / math.sqrt(a * L) if drifting == 0 else 1 / L  # eta H
    r = -math.expm1(-length * a) / 3
    stable, noisy = a / (8 * (dim + 2) * L**2), r * a * epsilon**2 / (2 * sigma2) if sigma2 > 0 else math.inf
    eta = min(stable, noisy)
    if length / eta > MAX_LOCAL_STEPS:
        raise ArgumentError(
            f"epsilon must be larger: rounds would have {length / eta:.1g} local steps; got {epsilon:g}"
        )
    far = max(1.0, 1 / a, checks.real("distance", distance, at_least=0))
    rounds = WINDOW + math.ceil(math.log(max(2.0, 2 * far / (r * epsilon))) / r)
    eta, H = apply_limits(eta, max(1, round(length / eta)), limits)
    sentence = (
        f"From three numbers per site: step size {eta:.3g}, {H:,} local steps a round "
        f"({_seconds(H * dim * STEP_TIME)} of work at a site), at most {rounds} rounds; the run stops when movements "
        f"say that the error is at most {epsilon:g}."
    )
    return RunPlan(method, eta, H, rounds, epsilon, r, sentence)


def remaining_error(movement: Sequence[float], rate: float) -> float:
    """About how far theta is from where it goes: the root mean square of the last movements ||theta_t - theta_{t-1}||
    over the rate; inf while there are too few."""
    last = list(movement)[-WINDOW:]
    return math.sqrt(sum(m * m for m in last) / WINDOW) / rate if len(last) == WINDOW else math.inf


def has_settled(movement: Sequence[float], rate: float | None, epsilon: float) -> bool:
    """Whether a run may stop; one with an exact number of rounds, whose rate is None, does all of them."""
    return rate is not None and remaining_error(movement, rate) <= epsilon


def plan_from_moments(
    problem: Problem | Moments,
    numbers: PlanNumbers,
    limits: Iterable[StepLimits],
    epsilon: float,
    method: str,
    local: str = "rows",
    max_samples: float | None = None,
) -> RunPlan:
    """A run to error epsilon from 0 by exact moments (fl.plan), where every site shares them; local : "rows", "means".

    Where the dimension is beyond exact moments the plan is that from scalars; it says so.
    """
    limits, name = list(limits), checks.choice("method", method, supporting("network"))
    if problem.dim > MAX_EXACT_DIM[name] and local == "rows":
        distance = float(np.linalg.norm(problem.theta_star))
        return plan_from_scalars(numbers, limits, epsilon, name, problem.dim, distance, local)
    m = moments(problem)
    if local == "means" and not m.noiseless:
        m = replace(m, noise=np.broadcast_to(np.float64(0), m.noise.shape))
    found = plan(m, epsilon, method=name, max_samples=max_samples, theta_0=np.zeros(m.dim))
    eta, H = float(found.algorithm.step_size), round(found.samples / found.rounds)  # type: ignore[arg-type]
    if name == "fedlsa":  # whose bias grows with local steps: shorter rounds, and more of them
        eta = min([eta, *(limit.largest_eta for limit in limits if limit.largest_eta)])
    eta, H = apply_limits(eta, H, limits)
    rounds = found.rounds
    while True:  # steps that sites allow may be smaller than planned, and need more rounds
        curve_of = exact_record(m, METHODS[name].with_steps(eta, H), rounds, np.zeros(m.dim))
        at, errors = curve_of["coords"]["rounds"], np.sqrt(curve_of["data_vars"]["mse"][1])
        reached = float(errors[-1])
        if reached <= epsilon * (1 + 1e-9):
            break
        if rounds >= MOST_MORE * found.rounds:
            rule = f"epsilon must be larger: with the steps that sites allow {rounds} rounds reach {reached:.3g}"
            raise ArgumentError(f"{rule}; got {epsilon:g}")
        rounds *= 2
    curve = list(zip(at.tolist(), errors.tolist(), strict=True))
    while len(curve) > 1 and curve[-2][1] <= epsilon and curve[-2][0] >= found.rounds:
        curve.pop()  # below epsilon from there on
    sentence = (
        f"From the sites' moments, exactly: step size {eta:.3g}, {H:,} local steps a round "
        f"({_seconds(H * m.dim * STEP_TIME)} of work at a site), {curve[-1][0]} rounds; "
        f"the expected error is {curve[-1][1]:.3g}."
    )
    return RunPlan(name, eta, H, int(curve[-1][0]), epsilon, None, sentence, tuple(curve))


def apply_limits(eta: float, steps: int, limits: Iterable[StepLimits]) -> tuple[float, int]:
    """Smaller and more local steps of the same length in all, where the sites' policies ask for them."""
    factor = max((max(least / steps, eta / (largest or math.inf)) for least, largest in limits), default=1.0)
    return (eta, steps) if factor <= 1 else (eta / factor, math.ceil(steps * factor * (1 - 1e-12)))


def stack_moments(measurements: Sequence[Any], weights: Floats) -> Moments:
    """The moments that all sites have shared, as theory reads them; measurements : what each said, with its A."""
    N = len(measurements)
    for c, measurement in enumerate(measurements):
        if measurement.A is None:
            rule = "every site must share its moments (share_moments = true in its policy.toml)"
            raise ArgumentError(f"{rule}; site {c} does not")
    A, b, noise = (np.stack([getattr(m, name) for m in measurements]) for name in ("A", "b", "noise_map"))
    return Moments(A, b, noise, np.arange(N), checks.array("weights", weights, (N,)), np.ones(N, np.int64))


def solve_shared_moments(m: Moments, rows: Sequence[int], names: Sequence[str]) -> Floats:
    """The solution (d,), in the run's coordinates, of the system that the sites share, from their moments at once."""
    n = np.asarray(rows)
    return Systems(n, m.A_bar, m.b_bar, n.astype(np.float64)).solution(m.weight, names)[1]


def _seconds(value: float) -> str:
    return (
        "less than a second" if value < 1 else f"about {value:.0f} s" if value < 120 else f"about {value / 60:.0f} min"
    )
