"""Normal laws around exact moments: the central limit of averaged iterates and of the last one, and how far runs are.

A round is a linear map in the mean, E[s+ | s] = M s, of a joint state s of which u = theta - theta_star is a part. In
its stationary law Cov(s_k, u_0) = M^k Cov(s, u), so that sqrt(T) (mean of T iterates - its limit) has the covariance

    V = C + X + X^T,   C = Cov(u),   X = the part u of sum_{k > 0} Cov(s_k, u_0) = (I - M)^-1 M Cov(s, u).

With decreasing steps noise at theta_star is all that counts: for an average over agents and a local step that is
Sigma = sum_c w_c^2 Cov(A_c(z) theta_star - b_c(z)). The sum of all rounds, A_bar sum_t u_t = -(noise), gives Polyak's
and Ruppert's V = A_bar^-1 Sigma A_bar^-T / H. Of the last iterate, (theta_t - theta_star) / sqrt(eta_t) tends to the
normal law of the V with A_bar V + V A_bar^T = Sigma. Where rounds grow, the noise of round t is Sigma / H_t: so the sum
of T rounds has that of sum_t H_0 / H_t first ones, and the last iterate what it had. Where agents remember noise, in an
exchange or in control variates of rounds that they missed, V is what those of ever smaller constant steps tend to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaincinv, ndtr, ndtri

from .. import checks, results
from ..algorithms import Algorithm, PowerStep, method
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..problems import Problem
from ..results import recipe
from ..sampling import IID, law_of
from ..threads import small_products
from ..value_objects import Displayed, ReadOnly
from . import krylov, tuning
from .exact_curves import exact
from .exchange_rounds import ExchangeRound, declared
from .joint import Joint
from .joint_laws import checked_method, corrected, joint_limit
from .linear import check_accuracy, refined, smat, squares
from .problem_moments import Moments, moments, start_error
from .rounds import AgentRound, StateLimit
from .stationarity import AgentLimit, joint_vector, limit, rounding_grown, stationary, steady_round

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False, repr=False)
class CentralLimit(Displayed, ReadOnly):
    """The normal law that sqrt(n) (theta_bar - mean) tends to, n = `number(rounds)`; theta_bar : of those rounds.

    mean : (d,), to which averages tend; covariance : (d, d), the paper's V of the module's text
    error : the estimated relative error of the covariance
    last : whether the last iterate stands in for the average
    algorithm : the method
    """

    mean: Floats
    covariance: Floats
    error: float
    last: bool
    algorithm: Algorithm = field(repr=False)

    def number(self, rounds: int) -> float:
        """What sqrt(n) is of: 1 / eta for the last iterate, else rounds, times the harmonic mean of H_t / H_0."""
        t, a = checks.integer("rounds", rounds, at_least=1), self.algorithm
        if self.last:
            return 1 / float(a.eta(np.array([t - 1]))[0])
        return float(t if not a.grows else t / np.mean(a.steps_in(np.zeros(1, np.int64)) / a.steps_in(np.arange(t))))

    def after(self, rounds: int) -> Floats:
        """(d, d): the covariance of the average of so many rounds, or of the last iterate, if the limit held there."""
        return self.covariance / self.number(rounds)


@small_products
def central_limit(problem: Problem | Moments, algorithm: Algorithm, last: bool = False) -> CentralLimit:
    """The central limit law of averaged iterates (Polyak and Ruppert), i.i.d. observations.

    problem : one of fl.problems, or its moments
    algorithm : the method; at constant steps the mean of FedLSA keeps its bias. Its `average_after` does not matter
    last : whether the law of the last iterate is meant; it is normal in the limit of decreasing steps alone

    >>> p = fl.problems.garnet(agents=4, states=5, features=2, seed=1)
    >>> law = fl.theory.central_limit(p, fl.SCAFFLSA(0.1, 10))
    >>> curve = fl.theory.exact(p, fl.FedLSA(0.1, 1, average_after=0), rounds=5000, record=[5000])
    >>> single = fl.theory.central_limit(p, fl.FedLSA(0.1, 1)).after(5000)
    >>> bool(np.allclose(curve["covariance"][-1], single, rtol=0.05)), law.covariance.shape
    (True, (2, 2))
    """
    m = moments(problem)
    a = checked_method(m, replace(method("algorithm", algorithm, "theory"), average_after=None), IID())
    if isinstance(a.step_size, PowerStep) and a.step_size.power > 0:
        return _decreasing(problem, m, a, a.step_size.power, checks.boolean("last", last))
    eta = float(a.eta(np.zeros(1, np.int64))[0])
    lost = m.check_digits(eta)
    if checks.boolean("last", last):
        raise ArgumentError(f"last must be False at a constant step size: the limit is not normal; got {last}")
    with np.errstate(over="ignore", invalid="ignore"):
        mean, V, error = _at_constant_steps(problem, a, eta)
    if not np.isfinite(V).all():
        raise ArgumentError(f"step_size must be small enough for second moments to converge; got {a.step_size}")
    error = max(lost, error)
    check_accuracy(lost, "the covariance of averages", tuning.MAX_LIMIT_ERROR)
    return CentralLimit(m.theta_star + mean, (V + V.T) / 2, error, False, a)


def _at_constant_steps(problem: Problem | Moments, a: Algorithm, eta: float) -> tuple[Floats, Floats, float]:
    """E[u] : (d,), V : (d, d), infinite where second moments do not converge, and its estimated error, relative."""
    step, d = steady_round(problem, a, eta), problem.dim
    if isinstance(step, ExchangeRound):
        end = joint_limit(step, start_error(problem, None))
        return end.mean[:d], *law_of_averages(end, d)
    if not isinstance(step, AgentRound):
        end = step.limit
        V, error = law_of_averages(end, d)
        return end.mean[:d], V, max(error, rounding_grown(step, end.mean[:d], end.C[:d, :d]))
    u, found = np.zeros(d), limit(step)
    if not (np.isfinite(found.U).all() and found.U.any()):
        return u, found.U, found.error
    form, S = _with_u(step, found)
    sums = [krylov.solve(form.mean, form.mean(s), tuning.LIMIT_GOAL) for s in S.T]
    later = np.stack([s for s, _ in sums], axis=1)
    V, error = _summed(found.U, later, form.read(later)[1], max(found.error, *(error for _, error in sums)))
    return u, V, max(error, rounding_grown(step, u, found.U))


def law_of_averages(end: StateLimit, d: int) -> tuple[Floats, float]:
    """V and its error, of a state whose first d numbers are u."""
    C, M = end.C, end.M
    if not (np.isfinite(C).all() and C[:d, :d].any()):
        return C[:d, :d], end.error
    later, error = refined(np.eye(len(M)) - M, M @ C[:, :d])
    return _summed(C[:d, :d], later, later[:d], max(error, end.error))


def _summed(C: Floats, later: Floats, X: Floats, error: float) -> tuple[Floats, float]:
    """C + X + X^T and its error, refused if large; later : what X is a part of, which may cancel."""
    V = C + X + X.T
    error *= float((np.linalg.norm(C) + 2 * np.linalg.norm(later)) / np.linalg.norm(V))
    check_accuracy(error, "the covariance of averages", tuning.MAX_LIMIT_ERROR)
    return V, error


def _with_u(step: AgentRound, end: AgentLimit) -> tuple[Joint, Floats]:
    """A round with control variates, and Cov((y, z), u) : (n + l, d) in its limit."""
    if end.route == "modes" and end.known:  # which knows it without the covariances of all pairs
        form = Joint(step)
        return form, end.known[1].swapaxes(1, 2).reshape(form.n, form.d)
    form, vector = joint_vector(step, end)
    return form, form.common(form.parts(vector).whole).T @ form.alpha.T


def _decreasing(problem: Problem | Moments, m: Moments, a: Algorithm, power: float, last: bool) -> CentralLimit:
    """The limit law at steps of this power, and rounds whose lengths grow with another: a round goes eta H far."""
    N, part, shape = m.n_agents, a.taking_part(m.n_agents), a.in_round(0)
    memory = last and (len(a.server()[1]) > 1 or a.server()[1][0] != 1)
    if declared(a) or a.agent_factors(N) is not None or memory or (part < N and corrected(a, N)):
        grown, (mean, V, error, drifts) = 0.0, _of_small_steps(problem, m, a, last)
    else:
        grown, H, mean = getattr(a, a.length).power if a.grows else 0.0, shape.mean_steps, np.zeros(m.dim)
        drifts = not corrected(a, N) and (H > 1 or grown > 0) and bool(m.xi_star.any())
        if part < N and grown > 0:
            raise ArgumentError(f"participation must be 1.0 where rounds grow, for a limit law; got {part} of {N}")
        V, error = _at_theta_star(m, part, H, last)
        check_accuracy(error, "the limit covariance")
    least = grown + ((grown if last else (1 + grown) / 2) if drifts else 0)  # FedLSA's bias falls as eta H
    if not least < power < 1 + grown:
        most = f"below {1 + grown:g}"
        raise ArgumentError(f"power of step_size must be above {least:g} and {most} for a limit law; got {power:g}")
    if grown >= 1 and not last:
        raise ArgumentError(f"power of local_steps must be below 1 for a law of averages; got {grown:g}")
    return CentralLimit(m.theta_star + mean, (V + V.T) / 2, error, last, a)


def _of_small_steps(
    problem: Problem | Moments, m: Moments, a: Algorithm, last: bool
) -> tuple[Floats, Floats, float, bool]:
    """What laws at constant steps tend to as these do, by extrapolation: E[u], V, its error, and whether E[u] moves."""
    if declared(a) and (send := a.checked_exchange(1.0, 1, m.n_agents, m.dim).send).law(m.dim).noise:
        rule = "send must add no noise for a limit law at decreasing steps, beside which it would not shrink"
        raise ArgumentError(f"{rule}; got {send!r}")
    eta, rows = tuning.SMALL_STEP / (a.mean_steps * float(np.linalg.norm(m.A_bar, axis=(1, 2)).max())), []
    for step in eta * 0.5 ** np.arange(tuning.SMALL_STEPS):
        one = replace(a, step_size=float(step))
        law = stationary(problem, one) if last else central_limit(problem, one)
        rows.append(np.vstack([law.mean - m.theta_star, law.covariance / (step if last else 1.0)]))
    table, error = np.array(rows), 0.0
    plain, _ = _at_theta_star(m, m.n_agents, a.mean_steps, last)
    if np.abs(table[:, 1:]).max() < tuning.VANISHED_VARIANCE * np.abs(plain).max():  # steps that bring no noise
        table[:, 1:] = 0.0
    for k in range(1, len(table)):
        finer = table[1:] + (table[1:] - table[:-1]) / (2**k - 1)
        error, table = float(np.linalg.norm(finer[-1, 1:] - table[-1, 1:])), finer
    (mean, *V), size = table[0], float(np.linalg.norm(table[0, 1:]))
    moves = float(np.linalg.norm(rows[0][0] - mean)) > tuning.MAX_LIMIT_ERROR * eta * np.sqrt(size)
    error = error / size if size else 0.0
    check_accuracy(error, "the limit at ever smaller steps", tuning.MAX_LIMIT_ERROR)
    return mean, np.array(V), error, moves


def _at_theta_star(m: Moments, part: int, H: float, last: bool) -> tuple[Floats, float]:
    """V of agents that are alike but for their observations, from their noise at theta_star, and its error."""
    N, t, w = m.n_agents, m.table, m.weight
    own = smat(m.noise[t] @ squares(np.append(m.offset, 1.0)), m.dim)
    noise = np.tensordot(m.count * w**2, own, 1) * N / part / H
    if part < N:  # who takes part is seen in what agents lack at theta_star, which is xi_star
        x = np.sqrt(m.count)[:, None] * w[:, None] * m.xi_star[t]
        noise = noise + N * (N - part) / (part * (N - 1)) * x.T @ x
    A = np.tensordot(m.table_weights, m.A_bar, 1)
    if not (slowest := float(np.linalg.eigvals(A).real.min())) > 0:
        raise ArgumentError(f"A_bar must have eigenvalues with real parts above 0 for a limit law; got {slowest:g}")
    if not last:
        half, error = refined(A, noise)
        V, off = refined(A, half.T)
        return V, error + off
    from scipy.linalg import solve_continuous_lyapunov as solve  # slow to load

    Q = noise * H
    V = solve(A, Q)
    change = solve(A, Q - A @ V - V @ A.T)
    return V + change, float(np.linalg.norm(change) / np.linalg.norm(V)) if Q.any() else 0.0


def normal_distance(
    runs: xr.Dataset, problem: Problem | None = None, algorithm: Algorithm | None = None, level: float = 0.95
) -> xr.Dataset:
    """How far simulated runs are from their central limit law: the largest Kolmogorov distance of a coordinate.

    runs : of `simulate`, of many seeds and several recorded rounds; with `average_after`, or the last iterate at
        decreasing steps
    problem, algorithm : needed only where the result could not hold them; must then be those of the run
    level : the probability with which a round's distances are known to within the band

    Returns a dataset over rounds and part: "total", from the limit law; "moments", the exact distance of the normal law
    with the exact mean and covariance of that round from the limit law; "shape", from that normal law, so that total <=
    moments + shape. distance is at most the convex distance, of which theorems speak. It is known to within band, by
    the inequality of Dvoretzky, Kiefer and Wolfowitz in each coordinate, and resolved where it is above that. exponent
    says that resolved distances fall as (rounds averaged)^-exponent; NaN where fewer than three are. exponent_error is
    its standard error at most, however the rounds depend on each other. A part is NaN while a coordinate has no noise.

    >>> p = fl.problems.from_observations([([0.9, 0.1], np.ones((2, 1, 1)), [[0.0], [1.0]])])  # skewed noise
    >>> runs = fl.simulate(p, fl.FedLSA(0.5, 1, average_after=1), 64, 2000, record=[8, 16, 32, 64])
    >>> far = fl.theory.normal_distance(runs, p)
    >>> far["distance"].sel(part="moments").values.round(4), float(far["exponent"][2].round(1))
    (array([0.0281, 0.0133, 0.0065, 0.0032]), 0.5)
    """
    import xarray as xr

    recipe.require_result("runs", runs)
    given, level = results.arguments(runs, problem, algorithm), checks.real("level", level, above=0, below=1)
    a, first = given["algorithm"], given["algorithm"].average_after
    if "theta" not in runs or not np.isfinite(runs["theta"]).all():
        raise ArgumentError("runs must hold theta, and none may have diverged; got other runs")
    drawn, sampling = law_of(given["problem"], given["sampling"])
    if sampling != IID():
        raise ArgumentError(f"runs must have independent observations for a limit law; got {given['sampling']!r}")
    if first is None and not (isinstance(a.step_size, PowerStep) and a.step_size.power > 0):
        raise ArgumentError(f"runs must have average_after, or decreasing steps, for a normal limit law; got {a!r}")
    law = central_limit(drawn, a, last=first is None)
    size = np.sqrt(np.diagonal(law.covariance))
    checks.refuse(size <= 0, size, "runs must have noise in every coordinate in their limit")
    if not (t := [int(n) for n in runs["rounds"] if n >= max(1, first or 0)]):
        raise ArgumentError("runs must hold a recorded round from the first that is averaged on; got none")
    curve = exact(drawn, a, t[-1], given["theta_0"], given["xi_0"], record=t)
    n = np.array(t) - (1 if first is None else first) + 1  # of rounds that are averaged
    unit = size / np.sqrt([[law.number(int(number))] for number in n])
    mean, sd = curve["mean"].values, np.sqrt(np.einsum("rii->ri", curve["covariance"].values))
    theta = runs["theta"].sel(rounds=t).values
    with np.errstate(divide="ignore", invalid="ignore"):  # of coordinates that noise has not reached yet
        by_moments = _between_normals((mean - law.mean) / unit, sd / unit)
        D = np.stack([_from_normal((theta - law.mean) / unit), by_moments, _from_normal((theta - mean) / sd)])
    noise = 1 / (2 * np.sqrt(len(theta)))  # standard error of an empirical distribution function, at most
    known = law.error + curve.attrs["rounding"]
    band = np.array([noise, 0, noise]) * np.sqrt(2 * np.log(2 * len(size) / (1 - level))) + [0, known, 0]
    resolved = band[:, None] < D
    fits = [_exponent(n[ok], d[ok], e) for ok, d, e in zip(resolved, D, (noise, 0.0, noise), strict=True)]
    values = {
        "distance": (("part", "rounds"), D),
        "resolved": (("part", "rounds"), resolved),
        "band": ("part", band),
        "exponent": ("part", [fit[0] for fit in fits]),
        "exponent_error": ("part", [fit[1] for fit in fits]),
    }
    return xr.Dataset(values, {"part": ["total", "moments", "shape"], "rounds": t}, {"level": level})


def _from_normal(z: Floats) -> Floats:
    """The largest Kolmogorov distance of samples z : (S, R, d) from the standard normal law, over d : (R,)."""
    P, S = ndtr(np.sort(z, axis=0)), len(z)
    ranks = np.arange(1, S + 1)[:, None, None] / S
    return np.asarray(np.maximum(ranks - P, P - ranks + 1 / S).max((0, 2)))


def _between_normals(m: Floats, s: Floats) -> Floats:
    """The same of normal laws with means m and standard deviations s : (R, d): where densities cross, it is largest.

    (s^2 - 1) x^2 + 2 m x - m^2 - 2 s^2 log s = 0.
    """
    a, c = s**2 - 1, -(m**2) - 2 * s**2 * np.log(s)
    q = -(m + np.copysign(np.sqrt(np.maximum(m**2 - a * c, 0)), m))
    x = np.nan_to_num(np.stack([q / a, c / q]))  # a root at infinity, where distributions agree, and equal laws
    return np.asarray(np.abs(ndtr((x - m) / s) - ndtr(x)).max((0, 2)))


def _exponent(n: Floats, D: Floats, noise: float) -> tuple[float, float]:
    """The exponent of the decay of D with n by weighted least squares, and its standard error at most."""
    if len(n) < 3:
        return np.nan, np.nan
    x = np.log(n) - np.average(np.log(n), weights=D**2)
    slope = D**2 * x / np.sum(D**2 * x**2)
    return float(-slope @ np.log(D)), float(np.abs(slope / D).sum() * noise)


# --- confidence regions of exact curves: intervals, ellipsoids, and bands of the squared error, under the normal law --
#
# The squared length Q of a normal vector with mean m and variances lambda along the axes of its covariance has
#
#     P(Q <= x) = (1 / 2 pi i) int exp(phi(p)) dp,
#     phi(p) = p x - log p - sum_i (log(1 + 2 lambda_i p) / 2 + m_i^2 p / (1 + 2 lambda_i p)),
#
# right of all singularities, which are real and at most 0. The path goes through the least value p_0 of phi on p > 0,
# and bends to the left as steepest descent does, p = p_0 + i y + y^2 phi''' / (6 phi''). The trapezoidal rule on it
# converges geometrically; what half of its nodes find beside all of them is more than its error.


def confidence(curve: xr.Dataset, level: float = 0.95) -> xr.Dataset:
    """Where theta and its squared error lie with a probability, each round for itself, if theta is normal.

    curve : of fl.theory.exact; level : the probability

    Returns a dataset over rounds: lower and upper (rounds, dim), an interval for each coordinate alone; radius, of the
    ellipsoid (theta - mean)^T covariance^+ (theta - mean) <= radius^2, for all of them together; and error_lower and
    error_upper, a band of ||theta - theta_star||^2 with equal tails. The attribute `error` estimates the numerical
    error of the probability of the bands; how nearly normal theta is, it does not say.

    >>> p = fl.problems.garnet(agents=4, states=5, features=2, seed=1)
    >>> regions = fl.theory.confidence(fl.theory.exact(p, fl.SCAFFLSA(0.1, 10), rounds=50))
    >>> bool((regions["error_lower"] <= regions["error_upper"]).all()), round(float(regions["radius"][-1]), 3)
    (True, 2.448)
    """
    import xarray as xr

    level = checks.real("level", level, above=0, below=1)
    if not isinstance(curve, xr.Dataset) or not {"covariance", "bias"} <= set(curve):
        raise ArgumentError("curve must be a dataset of fl.theory.exact with a covariance; got another one")
    mean, C = curve["mean"].values, curve["covariance"].values
    sd = np.sqrt(np.einsum("rii->ri", C))
    finite = np.isfinite(C).all((1, 2))
    rank = np.linalg.matrix_rank(np.where(finite[:, None, None], C, 0.0), hermitian=True)
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    bands, error = squared_length_quantiles(curve["bias"].values, C, tails)
    half, radius = ndtri(tails[1]) * sd, np.sqrt(2 * gammaincinv(np.maximum(rank, 1) / 2, level)) * (rank > 0)
    values = {
        "lower": (("rounds", "dim"), mean - half),
        "upper": (("rounds", "dim"), mean + half),
        "radius": ("rounds", np.where(finite, radius, np.inf)),
        "error_lower": ("rounds", bands[:, 0]),
        "error_upper": ("rounds", bands[:, 1]),
    }
    return xr.Dataset(values, coords={"rounds": curve["rounds"]}, attrs={"level": level, "error": error})


def squared_length_quantiles(mean: Floats, covariance: Floats, levels: Floats) -> tuple[Floats, float]:
    """Quantiles : (R, q) of ||w||^2, w normal with means (R, d) and covariances (R, d, d); error of their levels."""
    out, worst = np.full((len(mean), len(levels)), np.inf), 0.0
    usable = np.isfinite(covariance).all((1, 2)) & np.isfinite(mean).all(1)
    for r in np.flatnonzero(usable):
        variance, axes = np.linalg.eigh(covariance[r])
        square = (axes.T @ mean[r]) ** 2
        some = variance > tuning.VANISHED_VARIANCE * variance[-1]
        rest, size = float(square[~some].sum()), float(variance[some].sum() + square[some].sum())
        out[r] = rest
        if some.any():
            found, error = _quantiles(variance[some] / size, square[some] / size, levels)
            out[r], worst = rest + size * found, max(worst, error)
    if not worst <= tuning.LEVEL_ERROR:
        raise PrecisionError(f"levels of squared errors must be known to {tuning.LEVEL_ERROR:g}; got {worst:.1e}")
    return out, worst


def _quantiles(variance: Floats, square: Floats, levels: Floats) -> tuple[Floats, float]:
    """Where `_probability` reaches the levels : (q,), by Newton's method on normal scores; and the error of the levels.

    For Q of mean 1, within Cantelli's bounds, and that of the widest axis alone, P <= (2 x / (pi lambda))^(1/2).
    """
    spread = np.sqrt(2 * np.sum(variance**2) + 4 * variance @ square)
    low = np.maximum(1 - spread / np.sqrt(levels), levels**2 * variance[-1])
    high = 1 + spread / np.sqrt(1 - levels)
    x = np.clip(1 + ndtri(levels) * spread, low, high)
    for _ in range(tuning.QUANTILE_STEPS):
        P, density, error = _probability(variance, square, x)
        off = P - levels
        if np.abs(off).max() <= tuning.LEVEL_ROUNDING:
            break
        low, high, score = np.where(off < 0, x, low), np.where(off > 0, x, high), ndtri(np.clip(P, 1e-300, 1 - 1e-16))
        slope = density * np.sqrt(2 * np.pi) * np.exp(score**2 / 2)
        step = x - (score - ndtri(levels)) / np.where(slope > 0, slope, np.inf)
        x = np.where((step > low) & (step < high) & (slope > 0), step, np.sqrt(low * high))
    return x, float(np.abs(off).max() + error)


@np.errstate(all="ignore")
def _probability(variance: Floats, square: Floats, x: Floats) -> tuple[Floats, Floats, float]:
    """P(Q <= x), the density there : (q,), and the error of both."""
    v, s, q = variance[:, None], square[:, None], len(x)

    def slope(p: Floats) -> Floats:
        return np.asarray(x - 1 / p - np.sum(v / (1 + 2 * v * p) + s / (1 + 2 * v * p) ** 2, axis=0))

    low, high = 1 / x, 2 / x
    while (slope(high) < 0).any():
        high = np.where(slope(high) < 0, 4 * high, high)
    for _ in range(12):
        middle = np.sqrt(low * high)
        below = slope(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    p_0, t = high, 1 + 2 * v * high
    second = 1 / p_0**2 + np.sum(2 * v**2 / t**2 + 4 * s * v / t**3, axis=0)
    third = -2 / p_0**3 - np.sum(8 * v**3 / t**3 + 24 * s * v**2 / t**4, axis=0)
    h, best = tuning.PATH_STEP / np.sqrt(second), np.full((3, q), np.inf)
    for share in tuning.BENDS:  # full bends lead squares that are far from 0 into the disc where exp(phi) grows
        bend, y = share * third / (6 * second), h * np.arange(tuning.PATH_NODES)[:, None]
        p = p_0 + 1j * y + bend * y**2
        factor = 1 + 2 * variance[:, None, None] * p
        phi = p * x - np.log(p) - np.sum(np.log(factor) / 2 + square[:, None, None] * p / factor, axis=0)
        values = np.exp(phi) * (1j + 2 * bend * y) * np.stack([np.ones(p.shape), p])
        values[:, 0] /= 2
        whole, half = h / np.pi * values.imag.sum(1), 2 * h / np.pi * values[:, ::2].imag.sum(1)
        error = np.abs(whole[0] - half[0]) + len(y) * h * np.abs(values[0, -1])
        best = np.where(error < best[2], np.stack([*whole, error]), best)
        if best[2].max() <= tuning.LEVEL_ERROR / 100:
            break
    rounded = np.finfo(float).eps * float(np.max(np.abs(p_0 * x)) + np.max(p_0 * np.sum(s / t, axis=0)))
    return best[0], best[1], float(best[2].max()) + rounded
