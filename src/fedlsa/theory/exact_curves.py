"""Exact expected error of every method, without simulation: E[theta_t] and E||theta_t - theta_star||^2 per round.

For i.i.d. observations from finite tables a round is a random linear map, so first and second moments obey linear
recursions; along trajectories so do moments indexed by the state of a chain. A curve is computed by the first of these
ways that suits it, and its attribute `route` says which:

- "powers of a round": without control variates, at a constant step size; "round by round" at others, and for averages;
- "Krylov spaces": with control variates, many rounds at a constant step size, from a limit that is known well; else
  "round by round"; both on the covariances of all agents (joint.py), or on nodes (many_rounds.py) where there are many;
- "states of chains", or "pairs of agents", along trajectories.

What the recursions do not cover is refused; where moments are closed by an approximation, the result says so and
carries an estimate of its error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks, results
from ..algorithms import Algorithm, PowerStep
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..results import recipe
from ..sampling import IID, Markov, Sampling, law_of
from ..threads import small_products
from . import trajectories, tuning
from .exchange_rounds import each_agent
from .joint_laws import checked_method, joint, joint_curve
from .linear import not_negative, smat, svec, traces
from .local_steps import round_length
from .many_rounds import RoundMap, agents_curve, drifted_means, round_map
from .problem_moments import EPS, Moments, moments, start_error
from .rounds import Groups, GroupStages, ServerRound, averaged_curve, groups_of

if TYPE_CHECKING:
    import xarray as xr


def exact(
    problem: Problem | Moments,
    algorithm: Algorithm,
    rounds: int = 500,
    theta_0: ArrayLike | None = None,
    xi_0: ArrayLike | None = None,
    sampling: Sampling = IID(),  # noqa: B008  immutable
    record: int | Sequence[int] = 200,
    upload_noise: float = 0.0,
) -> xr.Dataset:
    """The exact mean and mean squared error of a method at the rounds that `simulate` would record.

    problem : a problem, or its moments (estimated ones serve as well)
    algorithm, rounds, theta_0, xi_0, sampling, record : as in `simulate`

    Returns a dataset over rounds: mean and bias (rounds, dim), mse, and the covariance (rounds, dim, other) of theta,
    which is left out of records above 1 GB; for methods with control variates also psi,
    eq:definition:lyapunov_app at communications. mse = start + drift + noise, none of which is below 0:
    start, what is left of theta_0; drift, what a run from theta_star has of ||mean - theta_star||^2, for FedLSA in the
    limit ||bias||^2 (th:2nd_moment_no_cv), with control variates 0; noise, the variance E||theta - mean||^2.
    And what it costs to get there: communications, samples (expected, per agent) and bytes, counted as `simulate` and
    `plan` do. The attribute `start` names the start, `route` the computation; `rounding` estimates the relative error
    that rounding leaves in mse.

    Only exact errors of independent observations are split. Of a simulated run no part can be seen: lay its error over
    the exact curve. Along trajectories even equal agents, who do not drift, have a mean off theta_star, since
    observations remember each other: there mse = ||mean - theta_star||^2 + noise.

    upload_noise : the standard deviation of noise that every agent adds to each coordinate of what it sends, and with
    which it corrects its own control variate too: what privacy costs, as long as no upload is clipped (i.i.d. only).

    All methods allow partial participation, and averaged iterates but for random lengths of rounds. Methods that are an
    exchange, and averages with control variates, are computed on the joint law of all agents (theory/joint_laws.py).

    With sampling=Markov() (algo:fed-lsa-markov) everyone takes part and iterates are not averaged. The attribute
    `moments` says how the result was found: "exact" (i.i.d. observations, or one agent), "exact on the product of
    chains" (a few agents, small chains), or "closure over pairs of agents" (FedLSA; then `mse_error` estimates the
    error of mse, see theory/trajectories.py).
    """
    import xarray as xr

    return xr.Dataset(**exact_record(problem, algorithm, rounds, theta_0, xi_0, sampling, record, upload_noise))


@small_products
def exact_record(
    problem: Problem | Moments,
    algorithm: Algorithm,
    rounds: int,
    theta_0: ArrayLike | None = None,
    xi_0: ArrayLike | None = None,
    sampling: Sampling = IID(),  # noqa: B008  immutable
    record: int | Sequence[int] = 200,
    upload_noise: float = 0.0,
) -> dict[str, dict[str, Any]]:
    """What `exact` returns, in plain arrays: "data_vars" (name: dimensions, values, attributes), "coords", "attrs"."""
    rounds = checks.integer("rounds", rounds, at_least=1)
    checks.instance("sampling", sampling, Sampling, "fl.IID(), fl.Markov() or fl.Replay()")
    label = _label(sampling)
    if isinstance(problem, Problem):
        problem, sampling = law_of(problem, sampling)
    algorithm = checked_method(moments(problem), algorithm, IID() if isinstance(sampling, Markov) else sampling)
    groups = groups_of(problem, algorithm, xi_0)
    m = groups.moments
    if not algorithm.steady or isinstance(sampling, Markov):
        checks.memory("rounds", rounds, 16, "the step sizes")
    recorded = results.recorded_rounds(record, rounds)
    if algorithm.average_after is not None and algorithm.average_after > rounds:
        raise ArgumentError(f"average_after must be at most rounds, {rounds}; got {algorithm.average_after}")
    start, kept = start_error(m, theta_0), 0.0  # kept : an absolute error
    upload_noise = checks.real("upload_noise", upload_noise, at_least=0)
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(sampling, Markov):
            if upload_noise:
                raise ArgumentError(f"upload_noise must be 0 along trajectories; got {upload_noise:g}")
            if isinstance(problem, Moments):
                rule = "sampling must be IID() where only moments are given: they have no chain"
                raise ArgumentError(f"{rule}; got Markov()")
            trajectories.check(problem, algorithm, sampling)
            xi = np.zeros((m.n_agents, m.dim)) if xi_0 is None else np.array(xi_0, np.float64)
            found = ExactCurve(*trajectories.curve(problem, algorithm, sampling, start, xi, recorded))
            found = replace(found, route="states of chains" if found.error is None else "pairs of agents")
        elif joint(algorithm, m.n_agents):
            agents = each_agent(problem, None if xi_0 is None else np.asarray(xi_0, np.float64))
            mean, covariance, drifted, peak = joint_curve(algorithm, agents, start, recorded, upload_noise)
            found = ExactCurve(mean, svec(covariance), route="joint law, round by round", drifted=drifted)
            kept = float(np.nan_to_num(16 * EPS * peak))
        else:
            found = independent_curve(groups, algorithm, start, recorded, upload_noise)
        values = _values(m, start, found, m.rounding(start, groups.x, round_length(algorithm, rounds)))
    read = algorithm.rows_read(problem) if isinstance(problem, Problem) else 0.0
    costs = _costs(m, algorithm, sampling, recorded, read)
    lost = m.check_digits(float(algorithm.eta(recorded[-1:])[0]), float(costs["samples"][1][-1]))
    attrs = {"method": results.method_label(algorithm), "agents": m.n_agents, "dim": m.dim}
    attrs |= {"algorithm": recipe.text(recipe.algorithm_record(algorithm)), "sampling": label}
    attrs |= {"moments": found.moments, "route": found.route, "start": m.start_label(theta_0)}
    least = float(np.min(values["mse"][1]))
    lost = max(lost, min(1.0, kept / least)) if least > 0 else lost
    attrs["rounding"] = max(lost, _lost_in_means(start, groups, algorithm, values["mse"][1]))
    return {"data_vars": values | costs, "coords": {"rounds": recorded}, "attrs": attrs}


def _lost_in_means(u: Floats, groups: Groups, a: Algorithm, mse: Floats) -> float:
    """The relative error of a mean squared error that has fallen so far that rounding of the start is seen in it."""
    size = np.abs(u).max() + round_length(a) * np.abs(groups.x).max(initial=0.0)
    least = float(np.sqrt(np.min(mse)))
    return min(1.0, 2 * EPS * float(size) / least) if least > 0 else 0.0


def _values(m: Moments, start: Floats, found: ExactCurve, rounding: float) -> dict[str, Any]:
    """The variables of a curve that are no costs."""
    mean, squared_bias, variance = found.mean, np.sum(found.mean**2, axis=1), traces(found.covariance)
    noise = np.where(np.isfinite(variance), variance, np.inf)  # NaN and -inf come of overflow alone
    noise = not_negative(noise, rounding + tuning.VARIANCE_ROUNDING * squared_bias, f"variances by {found.route}")
    mse = np.where(np.isnan(squared_bias), np.inf, squared_bias + noise)
    values = {
        "mse": (("rounds",), mse, {"long_name": "mean squared error", "description": "E||theta - theta_star||^2"}),
        "mean": (("rounds", "dim"), mean + m.theta_star, {"long_name": "mean iterate", "description": "E[theta]"}),
        "bias": (("rounds", "dim"), mean, {"description": "E[theta] - theta_star"}),
        "noise": (("rounds",), noise, {"description": "the variance, E||theta - E[theta]||^2"}),
    }
    if mean.shape[1] * mean.size <= tuning.SHOWN_COVARIANCES:
        covariance = _matrices(found.covariance, m.dim)
        values["covariance"] = (("rounds", "dim", "other"), covariance, {"description": "the covariance of theta"})
    if found.drifted is not None:
        values |= _origins(start, mean, found.drifted, squared_bias)
    if found.psi is not None:
        text = "E of the Lyapunov function, eq:definition:lyapunov_app"
        values["psi"] = (("rounds",), found.psi, {"description": text})
    if found.error is not None:
        text = "estimated error of mse: what chains remember of whole rounds changes in it, over 1 - epsilon"
        values["mse_error"] = (("rounds",), found.error, {"description": text})
    return values


def _matrices(covariance: Floats, d: int) -> Floats:
    """(R, d, d) of svec, or of a 0; infinite where they have no numbers, and no variance is below 0."""
    if covariance.shape[1] < d:
        return np.zeros((len(covariance), d, d))
    if not np.isfinite(covariance).all():
        covariance = np.where(np.isfinite(covariance), covariance, np.inf)
    out = covariance[:, smat(np.arange(covariance.shape[1]), d)]
    own = np.einsum("rii->ri", out)
    np.maximum(own, 0.0, out=own)
    return out


def _origins(start: Floats, mean: Floats, drifted: Floats, squared_bias: Floats) -> dict[str, Any]:
    """What is left of the start, u_0 : (d,), and drift.

    mean, drifted : (R, d), E[u] of the run and of the same from theta_star

    The recursion of means is linear, so that E[u] = s + b: b is the mean from theta_star (FedLSA's bias_t,
    th:2nd_moment_no_cv), and s what is left of the start.
    """
    left = mean - drifted if start.any() else np.zeros_like(mean)
    lengths = np.linalg.norm(left, axis=1), np.linalg.norm(drifted, axis=1)
    shares, squares = start_and_drift(*lengths), np.square(lengths)
    total = np.where(np.isnan(squared_bias), np.inf, squared_bias)
    parts = np.where(shares > 0, shares * total, 0.0)
    beyond = ~np.isfinite(total)  # what has no bound is not shared: each has its own square
    parts = np.where(beyond, np.where(np.isnan(squares), np.inf, squares), parts)
    texts = "of ||E[theta] - theta_star||^2, what is left of theta_0", "and what a run from theta_star has"
    named = zip(("start", "drift"), parts, texts, strict=True)
    return {name: (("rounds",), value, {"description": text}) for name, value, text in named}


def start_and_drift(left: ArrayLike, drifted: ArrayLike) -> Floats:
    """The shares of both in ||s + b||^2, (2, ...), from ||s||, what is left of the start, and ||b||, drift.

    The two may cancel in part, and then ||s||^2 + ||b||^2 is more than the whole. So this is shared between them as
    their squares are: both shares are at least 0, each is 0 where its vector is, and they add up to 1. Where there are
    no numbers, or where all is 0, the first is 1.
    """
    lengths = np.stack([np.asarray(left, np.float64), np.asarray(drifted, np.float64)])
    longest = lengths.max(0)
    part = (lengths / np.where(longest > 0, longest, 1.0)) ** 2  # of numbers whose squares may overflow
    known, first = np.isfinite(longest) & (longest > 0), np.array([1.0, 0.0]).reshape(2, *(1,) * longest.ndim)
    return np.where(known, part / np.maximum(part.sum(0), 1.0), first)


def _costs(m: Moments, a: Algorithm, sampling: Sampling, recorded: NDArray[np.int64], read: float) -> dict[str, Any]:
    """What a run has cost at the recorded rounds, as results of `simulate` count it, in expectation.

    read : rows of an agent's table that a round reads for exact residuals
    """
    answers, size = a.round_costs(m.n_agents, m.dim)
    # where a coin is tossed after each update, which takes `thin` observations; else H counts observations
    each = a.steps_in(np.arange(int(recorded[-1]) if a.grows else 1)) * (sampling.thin if a.random_lengths else 1)
    each = each[:, None]  # of rounds, and of agents where they differ
    if a.agent_factors(m.n_agents) is not None:
        thin = 1 if isinstance(sampling, IID) else sampling.thin
        each = a.of_agents(np.ones(len(each)), np.rint(each[:, 0]).astype(int), thin, m.n_agents)[1]
    mean = np.mean(each * answers, axis=1)
    samples = np.append(0.0, np.cumsum(mean))[recorded] if a.grows else recorded * float(mean[0])
    samples = samples + recorded * read
    text = "expected observations received per agent, dropped ones included"
    sent = "up and down, all agents, eight per number unless less is sent"
    return {
        "communications": (("rounds",), recorded.copy(), {"description": "server averages up to this round"}),
        "samples": (("rounds",), samples, {"long_name": "samples per agent", "description": text}),
        "bytes": (("rounds",), np.rint(recorded * (answers.sum() * size)).astype(np.int64), {"description": sent}),
    }


def _label(sampling: Sampling) -> str:
    if not isinstance(sampling, Markov):
        return repr(sampling).removesuffix("()")
    start = "" if sampling.start is None else f", start={sampling.start}"
    return f"Markov(thin={sampling.thin}{start})"


# --- which way --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ExactCurve:
    """E[u] : (R, d), svec Cov(u) : (R, s), psi of methods with control variates, error of a closure : (R,).

    covariance : where nothing is random it may be (R, 1), a 0
    moments : what kind they are; route : the way by which they were computed
    drifted : (R, d), E[u] of the same run started at theta_star; None along trajectories
    """

    mean: Floats
    covariance: Floats
    psi: Floats | None = None
    error: Floats | None = None
    moments: str = "exact"
    route: str = ""
    drifted: Floats | None = None


def independent_curve(
    groups: Groups, a: Algorithm, u: Floats, at: NDArray[np.int64], upload_noise: float = 0.0
) -> ExactCurve:
    """The curve from u = theta_0 - theta_star by the first way that suits and vouches for it; at : recorded rounds.

    upload_noise : standard deviation per coordinate of what agents add to their uploads
    """
    x, kept = groups.x, not isinstance(a.step_size, PowerStep) or a.step_size.power == 0
    constant = kept and not a.grows
    etas, steps = (of(np.arange(1 if constant else max(int(at[-1]), 1))) for of in (a.eta, a.steps_in))

    @lru_cache(maxsize=1)
    def round_of(eta: float, like: int) -> RoundMap:
        return round_map(groups, GroupStages.of(a.in_round(like), groups, eta, upload_noise), u, constant)

    def round_at(t: int) -> RoundMap:  # the same object as long as step size and length are the same
        t = min(t, len(etas) - 1)
        return round_of(float(etas[t]), int(np.searchsorted(steps, steps[t])))

    first = round_at(0)
    if not isinstance(first, ServerRound):
        (mean, covariance, spread), route = agents_curve(round_at, u, x, at, constant)
        last = np.maximum(at - 1, 0)
        psi = np.sum(mean**2, axis=1) + traces(covariance) + (a.eta(last) * a.steps_in(last)) ** 2 * spread
        return ExactCurve(mean, covariance, psi, route=route, drifted=drifted_means(round_at, x, at, constant))
    if constant and a.average_after is None:
        drifted = replace(first, noise=None).curve(0 * u, at)[0]
        return ExactCurve(*first.curve(u, at), route="powers of a round", drifted=drifted)
    after = int(at[-1]) + 1 if a.average_after is None else a.average_after
    mean, covariance, drifted = averaged_curve(cast(Callable[[int], ServerRound], round_at), u, after, at)
    return ExactCurve(mean, covariance, route="round by round", drifted=drifted)
