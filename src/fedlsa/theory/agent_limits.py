"""Where methods with control variates settle, and how fast: the fixed point of a round and its mean-square radius.

The map L of covariances takes positive matrices to positive ones. So whether a round settles is decided by one linear
system, X = L X + Q with a positive definite Q: its solution is positive definite where the radius is below one, and is
not where it is above (Perron and Frobenius: the left eigenvector l of the radius is positive, and
<l, X> (1 - radius) = <l, Q>). Each route to a solution states its error, and the next is tried where it is too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ..checks import Floats
from ..errors import PrecisionError
from . import krylov, tuning
from .joint import Joint
from .linear import bracket, crossing, positive, refined, smat
from .modes import Limit, ModalRound
from .nodes import Nodes
from .rounds import AgentRound

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

    def vector(self, map_: Joint) -> Floats | None:
        """X as a vector of another form of the round; None where it cannot be had from this one."""
        if self.route == "modes" and self.known:
            equation, S, V = self.known
            return map_.fixed(S, V) if isinstance(map_, Nodes) else equation.written(S, self.U, V)
        return None if isinstance(map_, Nodes) or not self.known else self.known[0]


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
    if tried and rate == 1 and radius(step) > tuning.CLEARLY_UNSTABLE:
        return _without_limit(step, "radius")  # moments that grow have badly conditioned equations
    K, d = step.shape
    rule = f"the limit of second moments must be known to {tuning.MAX_LIMIT_ERROR:g}, relative"
    raise PrecisionError(f"{rule}; got {', '.join(tried) or 'no route'} for {K} groups of agents in dimension {d}")


def _by_modes(step: AgentRound, noise: Floats, goal: float, decides: bool, rate: float) -> AgentLimit | None:
    if not step.reduced or step.sampled[0]:
        return None
    equation = Limit(step, rate)
    if not equation.good:
        return None
    S, U, V, error = equation.solve(noise, goal)
    definite = equation.definite(S, U, V) if decides and np.isfinite(error) else None
    return AgentLimit(U, error, "modes", _largest(V), definite, (equation, S, V))


def _by_krylov(step: AgentRound, noise: Floats, goal: float, decides: bool, rate: float) -> AgentLimit | None:
    joint = Joint(step)
    if not krylov.dimensions(joint.length):
        return None

    def share(change: Floats, total: Floats) -> float:
        """How large a change is beside the whole, in what is asked for: the worse of u and all x."""
        new, whole = joint.second(change), joint.second(total)
        blocks = [np.s_[:, : joint.d, : joint.d], np.s_[:, joint.d : -1, joint.d : -1]]
        blocks = blocks[:1] if step.moments.n_agents == 1 else blocks  # whose x is 0
        return float(max(np.linalg.norm(new[i]) / max(float(np.linalg.norm(whole[i])), 1e-300) for i in blocks))

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
    d, second, (Y, zY, zz, own) = joint.d, joint.second(vector), joint.parts(vector)
    size = _largest(joint.diagonal(Y) + own)
    definite = None
    if decides and np.isfinite(error):
        both = np.block([[Y, zY.T], [zY, zz]]) if len(zz) else Y.copy()
        definite = positive(both, *own[joint.step.moments.count > 1])
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


def radius(step: AgentRound) -> float:
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
    value, residual = krylov.radius(joint.advance, joint.unit())
    if residual <= tuning.RADIUS_RESIDUAL * value:
        return value
    if joint.length <= tuning.WRITTEN_OUT:
        return float(np.abs(np.linalg.eigvals(np.stack([joint.advance(e) for e in np.eye(joint.length)]))).max())
    raise PrecisionError(
        f"the mean-square radius must be known to {tuning.RADIUS_RESIDUAL:g}, relative; got {value:.12g} with a "
        f"residual of {residual:.1e}"
    )


def _radius_by_rates(step: AgentRound) -> float | None:
    """The same, from those of the mean and of the slowest agent alone on; None where modes do not show it."""

    @cache
    def settled(inverse: float) -> float:
        return margin(step, ROUTES[:1], 1 / inverse)

    with np.errstate(all="ignore"):
        form = ModalRound(step)
        least = float(form.own_kernels[0].real.max()) * (1 + tuning.RATE_STEP)  # from where on kernels are definite
        mean, residual = mean_radius(form)
    if not np.isfinite(form.own_map).all():
        return None
    alone = np.linalg.eigvals(form.own_map)
    if residual <= tuning.RATE_STEP * mean:
        least = max(least, mean**2 * (1 - tuning.RATE_STEP))
    start = 1 / (max(float(np.abs(alone).max()), least) * tuning.NEXT_RATE**0.5)  # on neither itself
    try:
        low, high = bracket(settled, start, tuning.NEXT_RATE, start / tuning.STEP_SIZE_RANGE, 1 / least)
        return 1 / crossing(settled, low, high, tuning.RATE_DIGITS) if low > 0 and high < np.inf else None
    except PrecisionError:
        return None
