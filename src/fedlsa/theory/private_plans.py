"""What error a privacy budget buys, before a run begins; or that it cannot be afforded.

As long as nothing is clipped, the noise of privacy is added to what sites upload and to nothing else, so the error is
that of exact theory with noise on uploads (exact_curves.py), an affine function of its variance s^2:

    E||theta_R - theta_star||^2 = m_R + n_R s^2,   variance of the change of site c in round t = a_tc + b_tc s^2.

Nothing is clipped, or nearly, where the clip is the length g_tc of the mean change and SAFETY standard deviations more,
for all c and t <= R. For the unit "site" noise is a multiple z of the clip, s = z clip, z^2 proportional to R. With
q = SAFETY^2 b_tc z^2 the smallest such clip solves (clip - g)^2 = SAFETY^2 a + q clip^2: the largest over c and t of

    clip = (g + sqrt(q g^2 + (1 - q) SAFETY^2 a)) / (1 - q).

It exists only while noise does not feed itself, q < 1: changes answer to the noise of earlier rounds, those of methods
with control variates above all, for a site takes its own noise back with the next change. For the unit "record" s
follows from eta, H, the row clip and the number of rows, and the clip from s. All (R, eta H) are tried; one run in
theory for each eta H (`noisy_runs`) serves every R and every budget.

Where only scalars are known: the noise of the last round is in the result whatever was done before, so

    E||theta_R - theta_star||^2 >= d s^2 sum_c w_c^2.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import checks
from ..algorithms import METHODS, Algorithm, Compressed, Noise
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from .exact_curves import exact
from .joint import Joint
from .linear import diagonal, smat, squares, svec, traces
from .local_steps import Kinds
from .privacy import DELTA, LOCAL, UNITS, delta_left, epsilon_of, rho_for, rho_of_answer
from .problem_moments import Moments, moments
from .rounds import AgentRound, groups_of, round_of
from .tuning import MAX_EXACT_DIM

# Errors of runs with noise on uploads, and how long the changes are that sites send, round by round, exactly.
#
# From theta = 0, in the coordinates of rounds.py and joint.py: what a site sends is u_hat_c - u plus
# its noise. Both E||u||^2 and the variance of u_hat_c - u are affine in the variance of the noise.

LENGTHS = 25  # values of eta H that are tried


@dataclass(frozen=True, eq=False)
class NoisyRun:
    """A method at one step size, for 1, ..., T rounds and K groups of sites.

    error : (T,), E||u||^2 at their ends; length : (T, K), ||E[change]|| in them; variance : (T, K), of the change
    error_of_noise, variance_of_noise : what noise of variance 1 on uploads adds to each
    """

    method: str
    step_size: float
    local_steps: int
    error: Floats
    error_of_noise: Floats
    length: Floats
    variance: Floats
    variance_of_noise: Floats


def noisy_runs(m: Moments, method: str, local_steps: int, rounds: int) -> Iterator[NoisyRun]:
    """The method at step sizes up to 1 / L, L the largest norm of an A_c, each as far as it stays finite."""
    L, H = float(np.linalg.norm(m.A_bar, 2, axis=(1, 2)).max()), local_steps
    for eta in (np.geomspace(min(0.02, H) / L, H / L, LENGTHS) / H).tolist():
        found = noisy_run(m, method, eta, H, rounds)
        if len(found.error):
            yield found


def noisy_run(m: Moments, method: str, eta: float, H: int, rounds: int) -> NoisyRun:
    """The method at one step size, as far as it stays finite."""
    scale = max(float(np.linalg.norm(m.theta_star)), 1e-100)  # of the noise that is tried
    a = METHODS[method].with_steps(eta, H)
    with np.errstate(all="ignore"):
        bare, noisy = (np.array(list(_follow(m, a, eta, rounds, s))) for s in (0.0, scale))
        of_noise = np.maximum(noisy - bare, 0.0) / scale**2  # (T, 1 + 2 K)
    good = int(np.argmin(np.append(np.isfinite(bare + of_noise).all(1), False)))
    parts = 1, 1 + bare.shape[1] // 2
    (error, length, variance), (added, _, more) = (np.split(x[:good], parts, axis=1) for x in (bare, of_noise))
    return NoisyRun(method, eta, H, error[:, 0], added[:, 0], np.sqrt(length), variance, more)


def _follow(m: Moments, a: Any, eta: float, rounds: int, s: float) -> Iterator[Floats]:
    """(1 + 2 K,): E||u||^2 after each round, and ||E[change]||^2 and the change's variance in it, before its noise."""
    groups, d, K = groups_of(m, a), m.dim, len(m.table)
    step, bare = round_of(groups, a, eta, s), round_of(groups, a, eta)
    if isinstance(step, AgentRound):
        assert isinstance(bare, AgentRound)
        yield from _follow_agents(Joint(step), bare, groups.x, rounds)
        return
    M, noise = Kinds.of(m.table, np.full(K, eta), np.full(K, a.local_steps), groups.x).maps(m)
    moved = M[:, :d] - np.eye(d + 1)[:d]
    v, C = np.append(-m.theta_star, 1.0), np.zeros(d * (d + 1) // 2)
    for _ in range(rounds):
        covariance = np.zeros((K, d + 1, d + 1))
        covariance[:, :d, :d] = smat(C, d)
        change = _change(moved, noise, np.broadcast_to(v, (K, d + 1)), covariance)
        if step.noise is not None:
            C = step.covariance_map @ C + step.added(v[:d])
        v = step.mean @ v
        yield np.append(v[:d] @ v[:d] + np.trace(smat(C, d)), change)


def _follow_agents(form: Joint, bare: AgentRound, x: Floats, rounds: int) -> Iterator[Floats]:
    """The same of methods with control variates; bare : the round without noise on uploads."""
    means, vector = form.start(-form.step.moments.theta_star, x), np.zeros(form.length)
    for _ in range(rounds):
        _, u, x = form.read(means)
        mean = np.concatenate([np.broadcast_to(u, x.shape), x, np.ones((len(x), 1))], axis=1)
        upper = np.triu(form.second(vector))
        change = _change(bare.moved, bare.agent_noise, mean, upper + np.triu(upper, 1).swapaxes(1, 2))
        vector = form.advance(vector) + form.force(means[:, None])(np.ones(1), np.ones((1, 1)))
        means = form.mean(means)
        _, u, _ = form.read(means)
        yield np.append(u @ u + traces(form.covariances(vector)[:-1]), change)


def _change(moved: Floats, noise: Floats, mean: Floats, covariance: Floats) -> Floats:
    """(2 K,): ||E[u_hat - u]||^2 and its variance; moved : (K, d, n); mean, covariance : (K, n), (K, n, n), of w."""
    length = ((moved @ mean[..., None])[..., 0] ** 2).sum(1)
    variance = np.einsum("kij,kjl,kil->k", moved, covariance, moved)
    of_steps = np.einsum("ksj,kj->k", noise[:, diagonal(moved.shape[1])], svec(covariance) + squares(mean))
    return np.concatenate([length, variance + of_steps])


SAFETY = 3.0  # standard deviations of a change, beyond its mean, that the clip leaves alone
MOST_EPSILON = 1e9  # that is looked at when a budget is too small: who needs more needs no privacy


@dataclass(frozen=True)
class PrivacyBudget:
    """What all answers of a run may spend: epsilon at delta, for the unit "site" or "record" (theory/privacy.py).

    row_clip, rows : for the unit "record": the longest gradient of a row, and the rows of the smallest site
    """

    epsilon: float
    delta: float = DELTA
    unit: str = "site"
    row_clip: float | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.real("epsilon", self.epsilon, above=0))
        object.__setattr__(self, "delta", checks.real("delta", self.delta, above=0, below=1))
        if checks.choice("unit", self.unit, UNITS) == "record":
            for name in ("row_clip", "rows"):
                if getattr(self, name) is None:
                    raise ArgumentError(f"{name} must be given for the unit 'record'; got None")

    def rho(self, rounds: int) -> float:
        """What each of so many answers may spend."""
        return rho_for(self.epsilon, delta_left(self.unit, self.delta, rounds)) / rounds

    def unit_cost(self, step_size: float, local_steps: int, local: str) -> float:
        """rho of an answer with noise of deviation 1: times clip^2 for the unit "site"."""
        if self.unit == "site":
            return rho_of_answer("site", 1.0, 1.0)
        far = 1e9  # a clip that does not count
        return rho_of_answer(
            "record", far, 1 / far, local=local, step_size=step_size, row_clip=self.row_clip, local_steps=local_steps,
            rows=self.rows,
        )  # fmt: skip


@dataclass(frozen=True)
class AffordablePlan:
    """A run within a privacy budget: noise is in units of clip, `rmse` the expected error at its end.

    without_noise : the error of the same run without noise; start : that of not running; local_steps is 1 / probability
    for Scaffnew
    """

    method: str
    step_size: float
    local_steps: int
    rounds: int
    clip: float
    noise: float
    rmse: float
    without_noise: float
    start: float
    sentence: str


def affordable(
    problem: Problem | Moments,
    budget: PrivacyBudget,
    *,
    methods: tuple[str, ...] = ("fedlsa", "scafflsa"),
    local: str = "means",
    local_steps: int = 100,
    max_rounds: int = 60,
    error: float | None = None,
) -> AffordablePlan:
    """The rounds and the step size with the smallest expected error from 0 that a budget buys, by exact moments.

    methods : of which the best is taken; local : what local steps use, "rows" or "means"; error : that is asked for
    A budget that buys less than `error`, or less than not running at all, is an ArgumentError that says what would do.
    """
    T, H = checks.integer("max_rounds", max_rounds, at_least=1), checks.integer("local_steps", local_steps, at_least=1)
    m = moments(problem)
    _check_row_clip(m, budget)
    if checks.choice("local", local, LOCAL) == "means":
        m = replace(m, noise=np.broadcast_to(np.float64(0), m.noise.shape))
    tried = [c for name in methods for c in noisy_runs(m, _checked(name, m, budget), H, T)]
    found = best_run(tried, budget, local)
    start = float(np.linalg.norm(m.theta_star))
    wanted = start if error is None else min(start, checks.real("error", error, above=0))
    if found is None or found[0] > wanted:
        raise ArgumentError(_too_small(tried, budget, local, wanted, found, error is None))
    rmse, s, clip, R, c = found
    algorithm = METHODS[c.method].with_steps(c.step_size, H)
    ends = [exact(m, algorithm, R, np.zeros(m.dim), record=[R], upload_noise=x)["mse"].item() for x in (s, 0.0)]
    rmse, bare = (math.sqrt(x) for x in ends)
    sentence = (
        f"({budget.epsilon:g}, {budget.delta:g})-differential privacy of "
        f"{'the whole table of a site' if budget.unit == 'site' else 'a row'}, for all rounds together: {c.method}, "
        f"{R} round{'s' * (R > 1)} of {H} local steps of size {c.step_size:.3g}, clip {clip:.3g}, noise {s / clip:.3g} "
        f"times the clip; the expected error is {rmse:.3g} ({bare:.3g} without noise, {start:.3g} before the run)."
    )
    return AffordablePlan(c.method, c.step_size, H, R, clip, s / clip, rmse, bare, start, sentence)


def within_privacy(
    problem: Problem | Moments, epsilon: float, name: str, rounds: int, local_steps: int
) -> tuple[Algorithm, int, float, str]:
    """The run of `planner.plan` within (epsilon, DELTA): its method, rounds and RMSE, and what these rest on.

    name : of the method; rounds : at most; local_steps : on rows
    """
    budget = PrivacyBudget(checks.real("privacy", epsilon, above=0))
    checks.choice("method", name, ("fedlsa", "scafflsa"))
    found = affordable(problem, budget, methods=(name,), local="rows", local_steps=local_steps, max_rounds=rounds)
    noise = Noise(found.noise * found.clip)
    a = Compressed(found.step_size, local_steps, noise, corrected=name == "scafflsa")
    return a, found.rounds, found.rmse, f"exact moments, privacy {epsilon:g}, changes clipped at {found.clip:.3g}"


def least_error(
    budget: PrivacyBudget,
    weights: Floats,
    dim: int,
    rounds: int,
    clip: float,
    *,
    local: str = "means",
    step_size: float | None = None,
    local_steps: int | None = None,
) -> tuple[float, float]:
    """What no run of so many rounds can go below, and the noise (in units of clip) that the budget asks for.

    step_size, local_steps : for the unit "record". The bound is that of the last round's noise alone.
    """
    w = checks.array("weights", weights, ("N",))
    clip, d = checks.real("clip", clip, above=0), checks.integer("dim", dim, at_least=1)
    cost = budget.unit_cost(step_size or 0.0, local_steps or 0, local) * (clip**2 if budget.unit == "site" else 1.0)
    s = math.sqrt(cost / budget.rho(checks.integer("rounds", rounds, at_least=1)))
    return s * math.sqrt(d * float(w @ w)), s / clip


def noise_sentence(settings: Any, rows: int, dim: int, epsilon: float | None = None) -> str:
    """What the noise of a run costs and promises, said before it begins; "" for a run without noise.

    settings : RunSettings of a run between sites; rows : of the smallest site
    epsilon : the error that was asked for: one below the noise is refused
    """
    clip, noise, R, H = settings.clip, settings.noise, settings.rounds, settings.local_steps
    if noise is None or clip is None:
        return ""
    least = noise * clip * math.sqrt(dim * float(settings.shares @ settings.shares))
    if epsilon is not None and epsilon < least:
        rule = f"epsilon must be at least {least:.3g}, for the noise of the last round alone is as large: this privacy"
        raise ArgumentError(f"{rule} cannot be afforded at this error (fedlsa network budget); got {epsilon:g}")
    sentence = f"Noise: no run ends nearer than {least:.3g}; {R} rounds spend"
    site = epsilon_of(R * rho_of_answer("site", clip, noise), DELTA)
    if settings.unit == "site" or settings.method == "scaffnew":  # whose rounds have no known length
        return f"{sentence} ({site:.3g}, {DELTA:g}) of a site's privacy."
    each = rho_of_answer(
        "record", clip, noise, local=settings.local, step_size=settings.step_size, row_clip=settings.row_clip,
        local_steps=H, rows=rows,
    )  # fmt: skip
    return f"{sentence} ({epsilon_of(R * each, delta_left('record', DELTA, R)):.3g}, {DELTA:g}) of a row's privacy."


def _checked(name: str, m: Moments, budget: PrivacyBudget) -> str:
    name = checks.choice("each of methods", name, METHODS)
    if m.dim > MAX_EXACT_DIM[name]:
        raise ArgumentError(f"the dimension must be at most {MAX_EXACT_DIM[name]} for exact moments; got {m.dim}")
    if name == "scaffnew" and budget.unit == "record":
        raise ArgumentError("each of methods must have rounds of known length for the unit 'record'; got 'scaffnew'")
    return name


def _check_row_clip(m: Moments, budget: PrivacyBudget) -> None:
    """Refuse a row clip that ordinary gradients exceed, at the start or at the solution."""
    if budget.row_clip is None or budget.unit != "record":
        return
    sizes, centre = [], 0.0 if m.centre is None else m.centre
    for theta in (np.zeros(m.dim), m.theta_star):
        v = np.append(theta - centre, 1.0)
        sizes.append(traces(m.noise @ squares(v)) + ((m.A_bar @ theta - m.b_bar) ** 2).sum(1))
    least = math.sqrt(float(np.max(sizes)))
    if budget.row_clip < least:
        rule = f"row_clip must be at least {least:.3g}, the root mean square of a row's gradient at some site"
        raise ArgumentError(f"{rule}; got {budget.row_clip:g}")


def best_run(
    tried: list[NoisyRun], budget: PrivacyBudget, local: str
) -> tuple[float, float, float, int, NoisyRun] | None:
    """The smallest RMSE, with its noise s, clip and rounds; None where noise feeds itself in every run."""
    best = None
    longest = max((len(c.error) for c in tried), default=1)
    total = budget.rho(longest) * longest
    for c in tried:
        R = np.arange(1, len(c.error) + 1)
        z2 = budget.unit_cost(c.step_size, c.local_steps, local) * R / total  # s^2, of clip^2 for the unit "site"
        for k in range(len(R)):
            g, a, b = c.length[: k + 1], SAFETY**2 * c.variance[: k + 1], SAFETY**2 * c.variance_of_noise[: k + 1]
            if budget.unit == "site":
                q = b * z2[k]
                if q.max() >= 1:
                    break
                clip = float(((g + np.sqrt(q * g**2 + (1 - q) * a)) / (1 - q)).max())
                s = math.sqrt(z2[k]) * clip
            else:
                s = math.sqrt(z2[k])
                clip = float((g + np.sqrt(a + b * s**2)).max())
            mse = float(c.error[k] + c.error_of_noise[k] * s**2)
            if clip > 0 and (best is None or mse < (1 - 1e-9) * best[0] ** 2):
                best = math.sqrt(mse), s, clip, k + 1, c
    return best


def _too_small(
    tried: list[NoisyRun],
    budget: PrivacyBudget,
    local: str,
    wanted: float,
    found: tuple[float, float, float, int, NoisyRun] | None,
    running: bool,
) -> str:
    """Why a budget is not enough, and which would be, to 2%."""

    def buys_enough(epsilon: float) -> bool:
        at = best_run(tried, replace(budget, epsilon=epsilon), local)
        return at is not None and at[0] <= wanted

    most = max(0, math.ceil(math.log(MOST_EPSILON / budget.epsilon, 1.02)))
    larger = [budget.epsilon * 1.02**k for k in range(most)]
    found_at = bisect_left(larger, True, key=buys_enough)
    what = "an error below that of no run at all" if running else "this error"
    buys = "every change would drown in its own noise" if found is None else f"it buys {found[0]:.3g}"
    does = f"about {larger[found_at]:.2g} would do" if found_at < len(larger) else "no budget would do"
    return (
        f"epsilon must be larger for {what}, {wanted:.3g}: {buys}, and {does} with these sites, rows and rounds; "
        f"got {budget.epsilon:g}"
    )
