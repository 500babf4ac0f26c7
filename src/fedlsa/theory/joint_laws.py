"""Joint laws of theta and all else that goes on from round to round: the server's memory, every control variate.

Of methods that are an exchange (exchange_rounds.py) curves, limits and averages are computed on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm, method, method_class
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError, TheoryWarning, warn
from ..problems import Problem
from ..sampling import IID, Sampling
from ..value_objects import Displayed, ReadOnly
from . import krylov, tuning
from .exchange_rounds import ExchangeRound, declared, exchange_of
from .joint import Joint
from .linear import AveragedState, Index, at_rounds, averaged_states, check_accuracy, refined
from .problem_moments import EPS, Moments
from .rounds import Groups, StateLimit


def checked_method(m: Moments, given: Any, sampling: Sampling) -> Algorithm:
    """The method that is given in any way; one that has no exact moments here is refused."""
    algorithm = method("algorithm", given, "theory")
    if not isinstance(sampling, IID):
        raise ArgumentError(f"sampling must be IID() for exact moments; got {type(sampling).__name__}()")
    if algorithm.projection is not None:
        raise ArgumentError(f"projection must be None: a projected method is not linear; got {algorithm.projection}")
    algorithm.taking_part(m.n_agents)  # refuses more participants than there are agents
    eta = float(algorithm.eta(np.zeros(1, np.int64))[0])
    if declared(algorithm):
        exchange_of(algorithm.in_round(0), eta, m)[0].send.law(m.dim)
    else:
        algorithm.in_round(0).stages(eta, m.n_agents)
    return algorithm


def check_plain(a: Algorithm, agents: int, what: str) -> None:
    """Refuse methods that are none of the paper's, and options, where something is known of neither. agents : N"""
    method_class("algorithm", a, "paper")
    if (taking_part := a.taking_part(agents)) < agents:
        raise ArgumentError(f"participation must be 1.0 for {what}; got {taking_part} of {agents}")
    if a.average_after is not None:
        raise ArgumentError(f"average_after must be None for {what}; got {a.average_after}")


def joint(algorithm: Algorithm, agents: int) -> bool:
    """Whether moments of a method are those of the joint law: of exchanges, and of averages with control variates."""
    return declared(algorithm) or (algorithm.average_after is not None and corrected(algorithm, agents))


def corrected(a: Algorithm, agents: int) -> bool:
    """Whether agents keep control variates, or more: of exchanges. agents : N"""
    return declared(a) or any(np.any(getattr(stage, "gain", 0.0)) for stage in a.in_round(0).stages(1.0, agents))


def rounds_at(a: Algorithm, agents: Groups, upload_noise: float = 0.0) -> Callable[[int], ExchangeRound]:
    """The round t = 0, 1, ... of a method, the same object as long as its step size and length are the same."""

    @lru_cache(maxsize=1)
    def of(eta: float, a: Algorithm) -> ExchangeRound:
        exchange, etas, steps = exchange_of(a, eta, agents.moments, upload_noise)
        return ExchangeRound(agents, exchange, etas, steps, a.taking_part(len(agents.x)))

    return lambda t: of(float(a.eta(np.array([t]))[0]), a.in_round(t) if a.grows else a)


def warn_of_cuts(step: ExchangeRound) -> None:
    """Say where messages reach so far that many of their numbers are cut off, which theory does not know."""
    send = step.exchange.send
    if step.largest > send.reach / 4:  # 6 in 100,000 of normal numbers; rare large ones are not seen by their squares
        rule = f"radius of {send!r} must be at least four times the root mean square of every number of a message"
        warn(f"{rule}, or those that are cut off make exact moments wrong; got {step.largest:.3g}", TheoryWarning)


def joint_curve(
    a: Algorithm, agents: Groups, u: Floats, at: NDArray[np.int64], upload_noise: float = 0.0
) -> tuple[Floats, Floats, Floats, float]:
    """E[u] : (R, d), Cov(u) : (R, d, d), E[u] of a run from theta_star, and the largest variance on the way.

    At the given rounds, round by round. What rounds keep holds on to the rounding of that variance.
    """
    round_at = rounds_at(a, agents, upload_noise)
    first, d = round_at(0), agents.moments.dim
    after = int(at[-1]) + 1 if a.average_after is None else a.average_after
    if int(at[-1]) * first.size**2 * first.seen > tuning.MAX_ROUND_WORK * tuning.KRYLOV_FROM:
        rule = f"rounds must be fewer where only single rounds are exact, of {first.size} numbers together"
        raise ArgumentError(f"{rule}; got {at[-1]}")

    widest, peak = first, 0.0
    states = averaged_states(round_at, first.start(u), first.start(np.zeros(d)), after, d)

    def watched() -> Iterator[tuple[AveragedState, Floats]]:
        nonlocal widest, peak
        for t, (state, drifting) in enumerate(states):
            peak = max(peak, float(np.trace(state.C[:d, :d])))
            widest = max(widest, round_at(max(t - 1, 0)), key=lambda each: each.largest)  # the round before this
            yield state, drifting

    mean, covariance, drifted = at_rounds(watched(), at, lambda now: (now[0].average, now[0].own, now[1]))
    warn_of_cuts(widest)
    return mean, covariance, drifted, peak


# --- where it settles -------------------------------------------------------------------------------------------------
#
# With M the mean map of a round, a round takes covariances to M C M^T + added(C). Sums over rounds of what one of them
# adds, D(X) = sum_k M^k X M^kT, are quick by doubling, and a limit is the C = D(added(C)): where noise hardly depends
# on the state that takes few passes, however slow a round is. All these maps keep order. So D added has a radius below
# one where a round has (Perron and Frobenius), and passes from nothing on rise to the limit.


class Moved:
    """What rounds move of the state, without what they keep, such as sum_c w_c xi_c, and rounding of it.

    What is kept are left eigenvectors of eigenvalue 1 of the mean map, into which no noise comes. They are found, and
    taken away, where noise of local steps has size 1 in every number: at small steps control variates vary far more
    than theta, and what rounding mixes of them into theta would be more than theta itself. mean : (n, n), the mean map
    without them
    """

    def __init__(self, step: ExchangeRound) -> None:
        n = step.size
        self.step, M = step, step.carry(np.eye(n))
        self.unit = step.added(np.zeros((n, n)), None, unit=1.0)  # noise of local steps alone moves nothing kept
        size = np.sqrt(np.diagonal(self.unit))
        size = np.where(np.isfinite(size) & (size > 0), size, 1.0)[:, None]
        U, values, _ = np.linalg.svd(np.where(np.isfinite(M), M, 0.0) / size * size.T - np.eye(n))
        kept = U[:, values < tuning.KEPT * max(1.0, float(values[0]))]
        quiet = np.abs(np.einsum("ij,ik,kj->j", kept, self.unit / size / size.T, kept)) < tuning.KEPT
        kept = np.where(np.abs(kept) < tuning.KEPT, 0.0, kept)[:, quiet]  # or rounding keeps a little of far starts
        self.kept, self.lost = kept / size, kept * size
        self.mean = self.project(M, both=False)

    def project(self, X: Floats, both: bool = True) -> Floats:
        """The projection, of columns and of covariances, onto what is moved."""
        X = X - self.lost @ (self.kept.T @ X)
        return X - (X @ self.kept) @ self.lost.T if both and X.ndim > 1 else X

    @cached_property
    def powers(self) -> list[Floats] | None:
        """M, M^2, M^4, ... until nothing is left; None where they grow."""
        out = [self.mean]
        while not (size := float(np.linalg.norm(out[-1]))) <= tuning.LENGTHS_TAIL**0.5:  # NaN has no end
            if not size < tuning.GROWN**4:
                return None
            if 2.0 ** len(out) > 1 / EPS:
                rule = "rounds must shrink what they move by more than rounding, or grow it, for a limit"
                raise PrecisionError(f"{rule}; after 2^{len(out) - 1} of them {size:.3g} is left of 1")
            out.append(out[-1] @ out[-1])
        return out

    def sums(self, X: Floats) -> Floats:
        """D(X)."""
        for power in self.powers or []:
            X = X + power @ X @ power.T
        return X

    def end(self, begin: Floats) -> tuple[Floats, float]:
        """The mean to which that of a run from a state tends, and its estimated error, relative.

        A mean near 0 is what is left of a start that is not: the second pass finds it to its own digits.
        """
        mean, errors = begin, [0.0]
        for _ in range(2):
            change, error = refined(np.eye(len(begin)) - self.mean, self.project(self.step.move(mean) - mean))
            mean, errors = mean + change, [*errors, error]
        return mean, errors[1]


def joint_limit(step: ExchangeRound, u: Floats) -> StateLimit:
    """The law to which a run from theta_star + u tends; what rounds keep, such as sum_c w_c xi_c, is its own."""
    begin, n, moved = step.start(u), step.size, Moved(step)
    unstable = StateLimit(np.full(n, np.nan), np.full((n, n), np.inf), 0.0, moved.mean)
    if moved.powers is None:
        return unstable
    mean, lost = moved.end(begin)
    linear = lambda v: moved.sums(moved.project(step.added(v.reshape(n, n), None))).ravel()  # noqa: E731
    if (grows := krylov.radius(linear, moved.sums(moved.project(moved.unit)).ravel(), beside=1.0)[0]) >= 1:
        return unstable._replace(mean=mean)
    added = moved.sums(moved.project(step.added(np.zeros((n, n)), mean)))
    found, error = krylov.solve(linear, added.ravel(), tuning.LIMIT_GOAL)
    error, where = max(error, lost), f" on the joint law of {n} numbers"
    check_accuracy(error, "the limit of second moments", tuning.MAX_LIMIT_ERROR, where)
    # rounding of a round adds up over as many as D sums, those of slow means, and what D makes of noise over all passes
    slow = max(1.0, 2.0 ** len(moved.powers) / -math.log(tuning.LENGTHS_TAIL))
    rounded = 4 * EPS * slow / (1 - grows)
    near = f" so slow, or so near to the stability limit,{where}"
    check_accuracy(rounded, "the limit", tuning.MAX_ROUNDING_ERROR, near)
    error = max(error, rounded)
    if np.isfinite(step.exchange.send.reach):
        step.added(found.reshape(n, n), mean)
        warn_of_cuts(step)
    return StateLimit(mean, found.reshape(n, n), error, moved.mean)


def joint_radius(step: ExchangeRound) -> float:
    """The factor by which second moments shrink in a round, in the long run."""
    moved = Moved(step)
    if not np.isfinite(moved.unit).all():
        return np.inf
    linear = lambda v: moved.project(step.covariance(v.reshape(moved.unit.shape), None)).ravel()  # noqa: E731
    value, residual = krylov.radius(linear, moved.project(moved.unit).ravel())
    if residual > tuning.RADIUS_RESIDUAL * max(value, 1.0) and abs(value - 1) < 10 * residual:
        krylov.refuse_radius(value, residual)
    return value


# --- the laws that users see ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class JointLaw(Displayed, ReadOnly):
    """The law of (theta, v_1, ..., xi_1, ..., xi_N): the server's memory, then control variates where they change.

    Agents who remember more, in methods that are an exchange, have that after their xi_c; of rows of tables (SAGA) what
    each last gave, behind which is 0 up to a multiple of d.

    mean : (q,); covariance : (q, q), infinite where second moments do not converge
    """

    mean: Floats
    covariance: Floats


def joint_law(form: Joint, vector: Floats, group: Index) -> JointLaw:
    """The same from a fixed point of joint.py; theta is measured from theta_star. group : (N,), of each agent.

    Agents of a group vary about its mean as equals do: two of n have -1 / (n - 1) of the covariance of one.
    """
    d, N, m = form.d, len(group), form.step.moments
    _, u, x = form.read(np.eye(form.n + form.l))
    rows = np.concatenate([np.eye(form.n + form.l)[form.n :] if form.l else u, x[group].reshape(N * d, -1)])
    memory = len(rows) - N * d
    mean = np.append(np.zeros(memory), m.xi_star[m.table][group])
    if not np.isfinite(vector).all():
        return JointLaw(mean, np.full((len(rows),) * 2, np.inf))
    whole, own = form.parts(vector)
    out = rows @ whole @ rows.T
    alike = np.equal.outer(group, group) / np.maximum(form.count.ravel()[group] - 1, 1)[:, None]
    apart = (np.eye(N) * (1 + alike) - alike)[:, :, None, None] * own[group][:, None]
    out[memory:, memory:] += apart.swapaxes(1, 2).reshape(N * d, N * d)
    return JointLaw(mean, (out + out.T) / 2)


def group_of(problem: Problem | Moments, a: Algorithm) -> Index:
    """(N,): the group of each agent, in the order of `groups_of`; of moments alone agents stand group by group."""
    if isinstance(problem, Moments):
        return np.repeat(np.arange(len(problem.table)), problem.count)
    rows = np.column_stack([problem.assignment, problem.weights, *(a.agent_factors(problem.n_agents) or ())])
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()
