"""Where methods settle as t goes to infinity, how fast, and the step size at which they no longer do.

With control variates the map L of covariances takes positive matrices to positive ones. So whether a round settles is
decided by one linear system, X = L X + Q with a positive definite Q: its solution is positive definite where the radius
is below one, and is not where it is above (Perron and Frobenius: the left eigenvector l of the radius is positive, and
<l, X> (1 - radius) = <l, Q>). Each route to a solution states its error, and the next is tried where it is too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from typing import Any

import numpy as np

from .. import checks
from ..algorithms import Algorithm, FedLSA, PowerStep
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError
from ..problems import Problem
from ..sampling import IID
from ..threads import small_products
from ..value_objects import Displayed, ReadOnly
from . import krylov, tuning
from .bias_terms import limit_bias
from .exchange_rounds import ExchangeRound, declared, each_agent
from .joint import Joint
from .joint_laws import (
    JointLaw,
    checked_method,
    group_of,
    joint_law,
    joint_limit,
    joint_radius,
    rounds_at,
)
from .linear import bracket, check_accuracy, crossing, not_negative, positive, refined, smat
from .local_steps import round_length
from .modes import Limit, ModalRound
from .problem_moments import EPS, Moments, merged, moments, start_error
from .rounds import AgentRound, ServerRound, groups_of, round_of


@dataclass(frozen=True, eq=False, repr=False)
class Stationary(Displayed, ReadOnly):
    """The law that theta tends to, by its first two moments.

    mean : (d,) of theta
    bias : (d,) mean - theta_star: FedLSA's limit bias; 0 with control variates
    covariance : (d, d) of theta
    variance : the trace of the covariance
    mse : mean squared error, drift + noise; infinite where second moments do not converge
    drift, noise : ||bias||^2 and the variance, to which those of `exact` tend; nothing is left of the start
    route : how the covariance was found: "linear system" or "means" (without control variates), "modes", "krylov" or
        "dense" (with them, below), "joint law" (exchanges, theory/joint_laws.py), or what shows that there is none:
        "mean" (it grows already) or "radius"
    error : the estimated relative error of the covariance: 1e-9 where a route allows it, more where none does or where
        steps that are tiny, or near the stability limit, lose digits; beyond 1e-6 (by the digits of the steps alone,
        1e-3) PrecisionError is raised
    joint : where it was asked for, the law of theta and all else that goes on from round to round
    stable : whether second moments converge
    radius : the factor by which the slowest second moment shrinks in a round. It takes longer than the rest, so it is
        computed when it is asked for
    """

    mean: Floats
    bias: Floats
    covariance: Floats
    variance: float
    mse: float
    route: str
    error: float
    _radius: Callable[[], float] = field(repr=False, compare=False)
    joint: JointLaw | None = None

    @property
    def drift(self) -> float:
        squared = float(self.bias @ self.bias)
        return math.inf if math.isnan(squared) else squared  # means that grow have no limit

    @property
    def noise(self) -> float:
        return self.variance

    @property
    def stable(self) -> bool:
        return math.isfinite(self.mse)

    @cached_property
    def radius(self) -> float:
        found = self._radius()
        if (found < 1) != self.stable:
            side = "below" if self.stable else "at least"
            rule = f"the mean-square radius must be {side} 1, as the limit by {self.route} shows"
            raise PrecisionError(f"{rule}; got {found:.15g}: rounding hides it")
        return found


@small_products
def stationary(problem: Problem | Moments, algorithm: Algorithm, joint: bool = False) -> Stationary:
    """The first two moments of the stationary law (FedLSA: th:2nd_moment_no_cv; control variates: no bias), i.i.d.

    problem : one of fl.problems, or its moments
    algorithm : the method, with its step size and local steps
    joint : whether the law of (theta, xi_1, ..., xi_N) is wanted too, as `joint` of the result

    >>> p = fl.problems.garnet(agents=3, states=4, features=2, seed=0)
    >>> fl.theory.stationary(p, fl.SCAFFLSA(0.1, 5), joint=True).joint.covariance.shape
    (8, 8)
    """
    m, algorithm, eta = _checked(problem, algorithm)
    most = tuning.JOINT_COORDINATES // m.dim - 1
    if checks.boolean("joint", joint) and most < m.n_agents:
        raise ArgumentError(f"agents must be at most {most} for a joint law in dimension {m.dim}; got {m.n_agents}")
    u, rate, lost = np.zeros(m.dim), partial(radius, problem, algorithm), m.check_digits(eta)
    with np.errstate(over="ignore", invalid="ignore"):
        step = steady_round(problem, algorithm, eta)
        if isinstance(step, AgentRound):
            end = limit(step)
            covariance, error, route = end.U, end.error, end.route
            law = joint_law(*joint_vector(step, end), group_of(problem, algorithm)) if joint else None
        else:
            if isinstance(step, ServerRound):
                settled, route, centre = step.limit, "means" if step.noise is None else "linear system", np.zeros(1)
            else:
                settled, route, centre = joint_limit(step, start_error(problem, None)), "joint law", step.centre()
            u, covariance, error = settled.mean[: m.dim], settled.C[: m.dim, : m.dim], settled.error
            law = JointLaw(centre + settled.mean, settled.C)
            if type(algorithm) is FedLSA and np.isfinite(u).all():  # from differences of agents, which may be small
                u, off = limit_bias(m, eta, algorithm.local_steps)
                error = max(error, off)
    own, covariance = np.diagonal(covariance), covariance.copy()
    scale = m.rounding(u, m.xi_star[m.table], round_length(algorithm)) + tuning.SOLUTION_ERROR * abs(float(own.sum()))
    np.fill_diagonal(covariance, not_negative(own, scale, f"stationary variances by {route}"))
    variance = float(np.trace(covariance))
    bias = float(u @ u) if math.isfinite(variance) else 0.0
    if not isinstance(step, ExchangeRound):
        lost = max(lost, rounding_grown(step, u, covariance))
    mean, error = m.theta_star + u, max(error, lost)
    law = JointLaw(np.concatenate([mean, law.mean[m.dim :]]), law.covariance) if law and joint else None
    return Stationary(mean, u, covariance, variance, variance + bias, route, error, rate, law)


def joint_vector(step: AgentRound, end: AgentLimit) -> tuple[Joint, Floats]:
    """The fixed point, as a limit was found, as a vector of joint.py; infinite where there is none."""
    form = Joint(step)
    if not (np.isfinite(end.U).all() and end.U.any()):
        return form, np.full(form.length, float(end.U[0, 0]))  # infinite, or 0
    vector = end.vector()
    found = vector if vector is not None else limit(step, ROUTES[1:]).vector()
    assert found is not None
    return form, found


@np.errstate(over="ignore", invalid="ignore")
def rounding_grown(step: ServerRound | AgentRound, u: Floats, covariance: Floats) -> float:
    """The relative error of the covariance that rounding of a round makes; refused if large.

    Near the stability limit the covariance is many times what a round adds to it, and so is its error. If what n rounds
    add is at least 1 / c of the covariance in every direction, those n shrink it by 1 - 1 / c: errors grow n c-fold.
    """
    if not np.isfinite(covariance).all() or not covariance.any():
        return 0.0
    d, n, grown = len(u), 1.0, np.inf
    if isinstance(step, AgentRound):
        m = step.moments
        added = smat(m.count * m.weight**2 @ step.noise[..., -1], d) * step.stages.change[0] ** 2
        mean = np.eye(d) - step.stages.change[0] * np.tensordot(m.count * m.weight, step.Q @ step.A, 1)
    else:
        added, mean = smat(step.added(step.start(u)[:-1]), len(step.mean) - 1)[:d, :d], step.mean[:d, :d]
    while n < grown and np.isfinite(added).all() and (size := float(np.trace(added))) > 0:  # noise spreads as n doubles
        values, axes = np.linalg.eigh(added / size)
        axes = axes / np.sqrt(np.maximum(values, tuning.NOISE_DEFINITE))
        grown = min(grown, n * float(np.linalg.norm(axes.T @ (covariance / size) @ axes, 2)))
        added, mean, n = added + mean @ added @ mean.T, mean @ mean, 2 * n
    error = 4 * EPS * grown if np.isfinite(grown) else 0.0  # all noise is that of x
    check_accuracy(error, "the covariance", tuning.MAX_ROUNDING_ERROR, " so near to the stability limit")
    return error


@small_products
def radius(problem: Problem | Moments, algorithm: Algorithm) -> float:
    """The mean-square radius of a round: below one, second moments converge.

    problem : one of fl.problems, or its moments
    algorithm : the method, with its step size and local steps
    """
    _, algorithm, eta = _checked(problem, algorithm)
    with np.errstate(over="ignore", invalid="ignore"):
        return _radius(steady_round(problem, algorithm, eta))


def steady_round(problem: Problem | Moments, a: Algorithm, eta: float) -> ServerRound | AgentRound | ExchangeRound:
    """The round of a method, of which all are as long, at a step size; of exchanges at their own."""
    if not declared(a):
        return round_of(groups_of(problem, a), a, eta)
    a.round_steps()  # refuses rounds that grow
    return rounds_at(a, each_agent(problem))(0)


def _radius(step: ServerRound | AgentRound | ExchangeRound) -> float:
    if isinstance(step, ExchangeRound):
        return joint_radius(step)
    return step.radius if isinstance(step, ServerRound) else agents_radius(step)


def margin_at(problem: Problem | Moments, a: Algorithm, eta: float) -> float:
    """Above 0 where second moments of a method converge at a step size; it goes through 0 where they no longer do."""
    with np.errstate(all="ignore"):
        try:
            step = steady_round(problem, replace(a, step_size=eta), eta)
            if isinstance(step, AgentRound):
                try:
                    return margin(step)
                except PrecisionError:  # on the edge itself there is no limit
                    pass
            left = max(1 - _radius(step), -1.0)
            return left if abs(left) > tuning.EDGE or isinstance(step, ServerRound) else 0.0
        except np.linalg.LinAlgError:
            return -1.0


@small_products
def stability_limit(problem: Problem | Moments, algorithm: Algorithm, tolerance: float = 1e-6) -> float:
    """The step size at which the second moment of the method stops converging, to a relative tolerance.

    problem : one of fl.problems, or its moments

    The algorithm's own step size is not used. 0 if no step size is found to be stable, infinity if all are. With one
    local step the stable step sizes are an interval. Otherwise they need not be: what is returned is the first change
    from stable to unstable among step sizes on a grid (four in each of the last three octaves), refined, so every step
    size of the grid below it is stable; an unstable window between two of them would be missed. Of more than 10
    different groups of agents the grid is that of a similar problem with 10. A tolerance below 1e-12 is taken as 1e-12.
    """
    tolerance = max(checks.real("tolerance", tolerance, above=0, below=1), tuning.STEP_SIZE_DIGITS)
    m, algorithm, _ = _checked(problem, algorithm)
    margin = lru_cache(maxsize=None)(partial(margin_at, problem, algorithm))
    size = float(np.linalg.norm(m.A_bar, 2, axis=(1, 2)).max())
    start, factor = 1 / max(size, 1e-300), 2.0  # from here down, since tiny steps are stable by too little to tell
    interval = getattr(algorithm, "local_steps", 0) == 1
    alike = algorithm.agent_factors(m.n_agents) is None and not declared(algorithm)
    if alike and len(m.table) > tuning.SEARCHED_GROUPS:
        similar = stability_limit(merged(m, tuning.SEARCHED_GROUPS), algorithm, tuning.SCOUTED_STEP)
        if 0 < similar < math.inf:
            start, factor, interval = similar, 1 + tuning.SCOUTED_STEP, True
    low, high = bracket(margin, start, factor, start / tuning.STEP_SIZE_RANGE, start * tuning.STEP_SIZE_RANGE)
    if low and high < math.inf and not interval:
        low, high = _first_change(lambda eta: margin(eta) > 0, high, start / tuning.STEP_SIZE_RANGE)
    return crossing(margin, low, high, tolerance) if low and high < math.inf else high if low else 0.0


def _first_change(stable: Callable[[float], bool], high: float, least: float) -> tuple[float, float]:
    """The first neighbours on a grid up to `high`, which is unstable, that are stable and unstable."""
    while high > least:
        last = 0.0
        for eta in high * 2.0 ** (-np.arange(4 * 3, 0, -1) / 4):  # four in each of three octaves
            if not stable(float(eta)):
                high = float(eta)
                break
            last = float(eta)
        if last:
            return last, high
    return 0.0, 0.0


def _checked(problem: Problem | Moments, given: Any) -> tuple[Moments, Algorithm, float]:
    m = moments(problem)
    algorithm = checked_method(m, given, IID())
    if isinstance(algorithm.step_size, PowerStep):
        raise ArgumentError(f"step_size must be constant for a stationary limit; got {algorithm.step_size}")
    if algorithm.average_after is not None:
        raise ArgumentError("average_after must be None: averages have no stationary law; got a round")
    return m, algorithm, float(algorithm.step_size)


# --- with control variates --------------------------------------------------------------------------------------------

ROUTES = ("modes", "krylov", "dense")  # the first is quickest by far, but wants eigenvectors and all agents


@dataclass(frozen=True, eq=False)
class AgentLimit:
    """X = L X + Q: Cov(u) : (d, d), infinite where second moments do not converge, and what the route knows besides.

    error : estimated, relative, of Cov(u)
    route : one of ROUTES, or what shows that there is none: "mean" where the mean of a round grows already, "radius"
        where second moments grow fast
    size : the trace of the largest agent's own covariance; definite : whether X is, None where rounding hides it
    known : empty where there is no X, or where it is 0
    """

    U: Floats
    error: float
    route: str
    size: float = np.inf
    definite: bool | None = False
    known: tuple[Any, ...] = ()

    def vector(self) -> Floats | None:
        """X as a vector of joint.py; None where the route leaves nothing of these coordinates."""
        if self.route == "modes" and self.known:
            equation, S, V = self.known
            return equation.written(S, self.U, V)
        return self.known[0] if self.known else None


def limit(step: AgentRound, routes: Sequence[str] = ROUTES) -> AgentLimit:
    """The fixed point of a round; routes : the ways to it that are tried, in this order."""
    none = _without_limit(step, "mean")
    if not step.finite:
        return none
    noise = (1 + step.sampled[0]) * step.gain[:, None, None] ** 2 * smat(step.noise[..., -1], step.shape[1])
    own = np.linalg.eigvalsh(noise)
    definite = bool((own[:, 0] > tuning.NOISE_DEFINITE * own[:, -1]).all())  # so that it decides by itself
    if not definite:
        if not settles(step, routes):
            return replace(none, route=routes[0])
        if not noise.any():
            return AgentLimit(np.zeros_like(none.U), 0.0, routes[0])
    found = solve(step, noise, routes, tuning.LIMIT_GOAL, definite)
    return found if found.definite or not definite else replace(none, error=found.error, route=found.route)


def _without_limit(step: AgentRound, route: str) -> AgentLimit:
    return AgentLimit(np.full((step.shape[1],) * 2, np.inf), 0.0, route)


def settles(step: AgentRound, routes: Sequence[str] = ROUTES) -> bool:
    """Whether the mean-square radius is below one."""
    return margin(step, routes) > 0


def margin(step: AgentRound, routes: Sequence[str] = ROUTES, rate: float = 1.0) -> float:
    """Above 0 where second moments grow by less than the rate; it goes through 0, smoothly, where it is the radius."""
    if not step.finite:
        return -1.0
    unit = np.broadcast_to(np.eye(step.shape[1]), step.Q.shape)
    found = solve(step, unit, routes, tuning.STABILITY_GOAL, True, rate)
    return step.shape[1] / found.size if found.definite == (found.size > 0) else 1.0 if found.definite else -1.0


def solve(
    step: AgentRound, noise: Floats, routes: Sequence[str], goal: float, decides: bool, rate: float = 1.0
) -> AgentLimit:
    """X by the first route that is accurate enough, and decides; or what shows that there is none.

    noise : (K, d, d), what each round adds to each agent, independently; rate : by which a round is divided
    decides : whether it must be known that X is definite, or that it is not
    """
    tried, best, grows = list[str](), None, cache(lambda: rate == 1 and mean_grows(step))
    for route in routes:
        if route != "modes" and best is None and grows():
            return _without_limit(step, "mean")
        try:
            with np.errstate(all="ignore"):
                found = _SOLVE[route](step, noise, goal, decides, rate)
        except (np.linalg.LinAlgError, ZeroDivisionError) as e:
            tried.append(f"{route} ({e})")
            continue
        if found is None:  # it does not suit
            continue
        usable = found.error <= tuning.MAX_LIMIT_ERROR and not (decides and found.definite is None)
        if usable and (best is None or found.error < best.error):
            best = found
        if best is not None and best.error <= max(tuning.SOLUTION_ERROR, goal):
            return best
        tried.append(f"{route} (error {found.error:.1e})")
    if best is not None:  # its error stands beside it
        return best
    if grows():
        return _without_limit(step, "mean")
    if tried and rate == 1 and agents_radius(step) > tuning.CLEARLY_UNSTABLE:
        return _without_limit(step, "radius")  # moments that grow have badly conditioned equations
    K, d = step.shape
    rule = f"the limit of second moments must be known to {tuning.MAX_LIMIT_ERROR:g}, relative"
    raise PrecisionError(f"{rule}; got {', '.join(tried) or 'no route'} for {K} groups of agents in dimension {d}")


def _by_modes(step: AgentRound, noise: Floats, goal: float, decides: bool, rate: float) -> AgentLimit | None:
    reduced = step if step.reduced else replace(step, most_gain=tuning.MAX_LIMIT_GAIN)
    if not reduced.reduced or step.sampled[0]:
        return None
    equation = Limit(reduced, rate)
    if not equation.good:
        return None
    S, U, V, error = equation.solve(noise, goal)
    definite = equation.definite(S, U, V) if decides and np.isfinite(error) else None
    if reduced is step:
        return AgentLimit(U, error, "modes", _largest(V), definite, (equation, S, V))
    error += tuning.GAIN_ROUNDINGS * np.finfo(float).eps * step.relative_gain
    return AgentLimit(U, error, "modes", _largest(V), definite)  # S and V are of other coordinates than the round's


def _by_krylov(step: AgentRound, noise: Floats, goal: float, decides: bool, rate: float) -> AgentLimit | None:
    joint = Joint(step)
    if not krylov.dimensions(joint.length):
        return None

    def share(change: Floats, total: Floats) -> float:
        """How large a change is beside the whole, in what is asked for: the worse of u and all x."""
        new, whole = joint.second(change), joint.second(total)
        blocks = [np.s_[:, : joint.d, : joint.d], np.s_[:, joint.d : -1, joint.d : -1]]
        blocks = blocks[:1] if step.moments.n_agents == 1 else blocks  # whose x is 0
        return max(krylov.share_of(new[i], whole[i]) for i in blocks)

    vector, error = krylov.solve(lambda v: joint.advance(v) / rate, joint.independent(noise), goal, share)
    return _of_joint(joint, vector, error, "krylov", decides)


def _by_matrix(step: AgentRound, noise: Floats, goal: float, decides: bool, rate: float) -> AgentLimit | None:
    joint = Joint(step)
    if joint.length > tuning.WRITTEN_OUT:
        return None
    matrix = np.stack([joint.advance(e) for e in np.eye(joint.length)], axis=1)
    vector, error = refined(np.eye(joint.length) - matrix / rate, joint.independent(noise))
    return _of_joint(joint, vector, error, "dense", decides)


_SOLVE = {"modes": _by_modes, "krylov": _by_krylov, "dense": _by_matrix}


def _of_joint(joint: Joint, vector: Floats, error: float, route: str, decides: bool) -> AgentLimit:
    d, second, (whole, own) = joint.d, joint.second(vector), joint.parts(vector)
    size, definite = _largest(joint.diagonal(whole) + own), None
    if decides and np.isfinite(error):
        definite = positive(whole.copy(), *own[joint.step.moments.count > 1])
    return AgentLimit(second[0, :d, :d], error, route, size, definite, (vector,))


def _largest(V: Floats) -> float:
    """Of the traces of agents' covariances : (K, d, d), the one that is farthest from 0."""
    return float(max(np.trace(V, axis1=1, axis2=2), key=abs))


def mean_radius(joint: Joint) -> tuple[float, float]:
    """The factor by which means shrink in a round, and its residual: below it, squared, second moments do not."""
    start = np.random.default_rng(0).standard_normal(joint.n + joint.l)
    return krylov.radius(joint.mean, start, restarts=1)


def mean_grows(step: AgentRound) -> bool:
    """Whether the mean of a round clearly grows."""
    value, residual = mean_radius(Joint(step))
    return value > 1 + 1e-6 and residual < 1e-3 * (value - 1)


def agents_radius(step: AgentRound) -> float:
    """The factor by which second moments shrink in a round, in the long run; infinite where one round has none.

    Of few agents it is the largest Ritz value of the space of a positive matrix, which holds it, once its residual is
    small. Of many, which may have many modes as slow, it is the rate by which a round may be divided and still settle.
    """
    if not step.finite:
        return np.inf
    joint = Joint(step)
    if joint.n > tuning.JOINT_MODES and step.reduced and not step.sampled[0]:
        found = _radius_by_rates(step)
        if found is not None:
            return found
    unit = np.broadcast_to(np.eye(joint.d), joint.F.shape)
    value, residual = krylov.radius(joint.advance, joint.independent(unit))
    if residual <= tuning.RADIUS_RESIDUAL * value:
        return value
    if joint.length <= tuning.WRITTEN_OUT:
        return float(np.abs(np.linalg.eigvals(np.stack([joint.advance(e) for e in np.eye(joint.length)]))).max())
    krylov.refuse_radius(value, residual)


def _radius_by_rates(step: AgentRound) -> float | None:
    """The same, from those of the mean and of the slowest agent alone on; None where modes do not show it."""

    @cache
    def settled(inverse: float) -> float:
        return margin(step, ROUTES[:1], 1 / inverse)

    with np.errstate(all="ignore"):
        form = ModalRound(step)
        least = float(form.agent_kernels[0].real.max()) * (1 + tuning.RATE_STEP)  # from where on kernels are definite
        mean, residual = mean_radius(form)
    if not np.isfinite(form.agent_map).all():
        return None
    alone = np.linalg.eigvals(form.agent_map)
    if residual <= tuning.RATE_STEP * mean:
        least = max(least, mean**2 * (1 - tuning.RATE_STEP))
    start = 1 / (max(float(np.abs(alone).max()), least) * tuning.NEXT_RATE**0.5)  # on neither itself
    try:
        low, high = bracket(settled, start, tuning.NEXT_RATE, start / tuning.STEP_SIZE_RANGE, 1 / least)
        return 1 / crossing(settled, low, high, tuning.RATE_DIGITS) if low > 0 and high < np.inf else None
    except PrecisionError:
        return None
