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
from scipy.special import ndtr

from .. import checks, results
from ..algorithms import Algorithm, PowerStep, method
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..results import recipe
from ..sampling import IID, law_of
from ..threads import small_products
from ..value_objects import Displayed, ReadOnly
from . import krylov, tuning
from .exact_curves import exact
from .exchange_rounds import ExchangeRound, declared
from .joint import Joint
from .joint_laws import checked_method, joint_limit
from .linear import check_accuracy, refined, smat, squares
from .problem_moments import Moments, moments, start_error
from .rounds import AgentRound, StateLimit
from .stationarity import AgentLimit, joint_vector, limit, stationary, steady_round

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
    check_accuracy(error, "the covariance of averages", tuning.MAX_LIMIT_ERROR)
    return CentralLimit(m.theta_star + mean, (V + V.T) / 2, error, False, a)


def _at_constant_steps(problem: Problem | Moments, a: Algorithm, eta: float) -> tuple[Floats, Floats, float]:
    """E[u] : (d,), V : (d, d), infinite where second moments do not converge, and its estimated error, relative."""
    step, d = steady_round(problem, a, eta), problem.dim
    if not isinstance(step, AgentRound):
        end = joint_limit(step, start_error(problem, None)) if isinstance(step, ExchangeRound) else step.limit
        return end.mean[:d], *law_of_averages(end, d)
    u, found = np.zeros(d), limit(step)
    if not (np.isfinite(found.U).all() and found.U.any()):
        return u, found.U, found.error
    form, S = _with_u(step, found)
    sums = [krylov.solve(form.mean, form.mean(s), tuning.LIMIT_GOAL) for s in S.T]
    later = np.stack([s for s, _ in sums], axis=1)
    return u, *_summed(found.U, later, form.read(later)[1], max(found.error, *(error for _, error in sums)))


def law_of_averages(end: StateLimit, d: int) -> tuple[Floats, float]:
    """V and its error, of a state whose first d numbers are u."""
    C, M = end.C, end.M
    if not (np.isfinite(C).all() and C[:d, :d].any()):
        return C[:d, :d], end.error
    later, error = refined(np.eye(len(M)) - M, M @ C[:, :d])
    return _summed(C[:d, :d], later, later[:d], max(error, end.error))


def _summed(C: Floats, later: Floats, X: Floats, error: float) -> tuple[Floats, float]:
    """C + X + X^T and its error; later : what X is a part of, which may cancel."""
    V = C + X + X.T
    return V, error * float((np.linalg.norm(C) + 2 * np.linalg.norm(later)) / np.linalg.norm(V))


def _with_u(step: AgentRound, end: AgentLimit) -> tuple[Joint, Floats]:
    """A round with control variates, and Cov((y, z), u) : (n + l, d) in its limit."""
    if end.route == "modes" and end.known:  # which knows it without the covariances of all pairs
        form = Joint(step)
        return form, end.known[1].swapaxes(1, 2).reshape(form.n, form.d)
    form, vector = joint_vector(step, end)
    rY, rr = form.common_covariances(form.parts(vector))
    by_u = rr @ form.alpha.T
    return form, np.concatenate([rY.T @ form.alpha.T, by_u[len(form.rho) :]])


def _decreasing(problem: Problem | Moments, m: Moments, a: Algorithm, power: float, last: bool) -> CentralLimit:
    """The limit law at steps of this power, and rounds whose lengths grow with another: a round goes eta H far."""
    N, part, shape = m.n_agents, a.taking_part(m.n_agents), a.in_round(0)
    corrected = declared(a) or any(np.any(getattr(stage, "gain", 0.0)) for stage in shape.stages(1.0, N))
    memory = last and (len(a.server()[1]) > 1 or a.server()[1][0] != 1)
    if declared(a) or a.agent_factors(N) is not None or memory or (part < N and corrected):
        grown, (mean, V, error, drifts) = 0.0, _of_small_steps(problem, m, a, last)
    else:
        grown, H, mean = getattr(a, a.length).power if a.grows else 0.0, shape.mean_steps, np.zeros(m.dim)
        drifts = not corrected and (H > 1 or grown > 0) and bool(m.xi_star.any())
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
    eta, rows = tuning.SMALL_STEP / (a.mean_steps * float(np.linalg.norm(m.A_bar, axis=(1, 2)).max())), []
    for step in eta * 0.5 ** np.arange(tuning.SMALL_STEPS):
        one = replace(a, step_size=float(step))
        law = stationary(problem, one) if last else central_limit(problem, one)
        rows.append(np.vstack([law.mean - m.theta_star, law.covariance / (step if last else 1.0)]))
    table, error = np.array(rows), 0.0
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
