"""Exact expected error of every method, without simulation: E[theta_t] and E||theta_t - theta_star||^2 per round.

For i.i.d. observations from finite tables a round is a random linear map, so first and second moments obey linear
recursions (theory/fedlsa.py, theory/controlled.py); along trajectories so do moments indexed by the state of a chain
(theory/trajectories). What the recursions do not cover is refused; where moments are closed by an approximation, the
result says so and carries an estimate of its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .. import checks, results
from ..algorithms import SCAFFLSA, Algorithm, FedLSA, PowerStep, Scaffnew, supporting
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..results import recipe
from ..sampling import IID, Markov, Replay, Sampling
from . import controlled, fedlsa, many_rounds, noiseless, trajectories, tuning
from .linear import not_negative
from .moments import Moments, moments, start_error
from .pairs import pair_map


@dataclass(frozen=True)
class Routes:
    """Where one way of computing gives way to another; all give the same numbers.

    noiseless : whether problems without noise are run instead (theory/noiseless.py)
    one_by_one : rounds of control variates that are gone through one by one, in which no Krylov space is sought
    """

    noiseless: bool = True
    one_by_one: int = tuning.KRYLOV_FROM


USUAL = Routes()


def exact(
    problem: Problem | Moments,
    algorithm: Algorithm,
    rounds: int = 500,
    theta_0: ArrayLike | None = None,
    xi_0: ArrayLike | None = None,
    sampling: Sampling = IID(),  # noqa: B008  immutable
    record: int | Sequence[int] = 200,
) -> xr.Dataset:
    """The exact mean and mean squared error of a method at the rounds that `simulate` would record.

    problem : a problem, or its moments (estimated ones serve as well); the other arguments are those of `simulate`.
    Returns a dataset over round: mean (round, dim), squared_bias = ||mean - theta_star||^2, variance, and mse, their
    sum; for methods with control variates also psi, eq:definition:lyapunov_app at communications. And what it costs to
    get there: communications, samples (expected, per agent) and bytes, counted as `simulate` and `plan` do. The
    attribute `route` names the computation, `rounding` estimates the relative error that rounding leaves in it.

    All methods allow partial participation; only FedLSA allows averaged iterates.

    With sampling=Markov() (algo:fed-lsa-markov) everyone takes part and iterates are not averaged. The attribute
    `moments` says how the result was found: "exact" (i.i.d. observations, or one agent), "exact on the product of
    chains" (a few agents, small chains), or "closure over pairs of agents" (FedLSA; then `mse_error` estimates the
    error of mse, see theory/trajectories/closure.py).
    """
    m, x = centred_start(problem, xi_0)
    rounds = checks.integer("rounds", rounds, at_least=1)
    if not isinstance(getattr(algorithm, "step_size", None), float) or isinstance(sampling, Markov):
        checks.memory("rounds", rounds, 16, "the step sizes")
    recorded = results.recorded_rounds(record, rounds)
    checks.instance("sampling", sampling, (IID, Markov, Replay), "fl.IID(), fl.Markov() or fl.Replay()")
    check_method(m, algorithm, IID() if isinstance(sampling, Markov) else sampling)
    if algorithm.average_after is not None and algorithm.average_after > rounds:
        raise ArgumentError(f"average_after must be at most rounds, {rounds}; got {algorithm.average_after}")
    start = start_error(m, theta_0)
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(sampling, Markov):
            found = _trajectories(problem, algorithm, sampling, start, xi_0, recorded)
        else:
            found = curve(m, algorithm, start, x, recorded)
        rounding = m.rounding(start, x, round_length(algorithm))
        result = _dataset(m, algorithm, sampling, recorded, found, rounding)
    eta = float(algorithm.eta(recorded[-1:])[0])
    return result.assign_attrs(rounding=m.check_digits(eta, float(result["samples"].values[-1])))


def curve(
    m: Moments, a: Algorithm, u: Floats, x: Floats, recorded: NDArray[np.int64], routes: Routes = USUAL
) -> trajectories.Found:
    """Moments at the recorded rounds, i.i.d. sampling, from u = theta_0 - theta_star, x = xi_0 - xi_star : (K, d)."""
    if routes.noiseless and noiseless.suits(m, a):
        return _noiseless(m, a, u, x, recorded)
    return _fedlsa(m, a, u, x, recorded) if isinstance(a, FedLSA) else _controlled(m, a, u, x, recorded, routes)


def _noiseless(m: Moments, a: Algorithm, start: Floats, x: Floats, recorded: NDArray[np.int64]) -> trajectories.Found:
    """Where nothing is random, moments are those of the one run there is, in any dimension."""
    assert isinstance(a, (FedLSA, SCAFFLSA))
    assert isinstance(a.step_size, float)
    u, spread = noiseless.curve(m, a, start, x, recorded)
    psi = None if spread is None else np.sum(u**2, axis=1) + (a.step_size * a.local_steps) ** 2 * spread
    return trajectories.Found(u, np.zeros(len(u)), trajectories.EXACT, "the run without noise", psi)


def _trajectories(
    problem: Problem | Moments,
    a: Algorithm,
    sampling: Markov,
    start: Floats,
    xi_0: ArrayLike | None,
    recorded: NDArray[np.int64],
) -> trajectories.Found:
    if isinstance(problem, Moments):
        raise ArgumentError("sampling must be IID() where only moments are given: they have no chain; got Markov()")
    xi = np.zeros((problem.n_agents, problem.dim)) if xi_0 is None else np.array(xi_0, np.float64)
    return trajectories.curve(problem, a, sampling, start, xi, recorded)


def round_length(a: Algorithm) -> float:
    """eta H, in the first round, which has the largest step size; Scaffnew's H is its mean."""
    H = a.mean_steps
    return float(a.eta(np.zeros(1, np.int64))[0] * H)


def _dataset(
    m: Moments,
    algorithm: Algorithm,
    sampling: Sampling,
    recorded: NDArray[np.int64],
    found: trajectories.Found,
    rounding: Floats | float,
) -> xr.Dataset:
    mean, squared_bias = found.mean, np.sum(found.mean**2, axis=1)
    variance = np.where(np.isnan(found.variance), np.inf, found.variance)
    rounding = rounding + tuning.VARIANCE_ROUNDING * squared_bias
    variance = not_negative(variance, rounding, f"variances by {found.route}")
    mse = np.where(np.isnan(squared_bias), np.inf, squared_bias + variance)
    values = {
        "mse": (("round",), mse, {"long_name": "mean squared error", "description": "E||theta - theta_star||^2"}),
        "mean": (("round", "dim"), mean + m.theta_star, {"long_name": "mean iterate", "description": "E[theta]"}),
        "squared_bias": (("round",), squared_bias, {"description": "||E[theta] - theta_star||^2"}),
        "variance": (("round",), variance, {"description": "E||theta - E[theta]||^2"}),
    }
    if found.psi is not None:
        text = "E of the Lyapunov function, eq:definition:lyapunov_app"
        values["psi"] = (("round",), found.psi, {"description": text})
    if found.error is not None:
        text = "estimated error of mse: what chains remember of whole rounds changes in it, over 1 - epsilon"
        values["mse_error"] = (("round",), found.error, {"description": text})
    attrs = {"method": results.method_label(algorithm), "agents": m.n_agents, "dim": m.dim}
    attrs |= {"algorithm": recipe.text(recipe.algorithm_record(algorithm))}
    attrs |= {"sampling": _label(sampling), "moments": found.moments, "route": found.route}
    return xr.Dataset(values | _costs(m, algorithm, sampling, recorded), coords={"round": recorded}, attrs=attrs)


def _costs(m: Moments, a: Algorithm, sampling: Sampling, recorded: NDArray[np.int64]) -> dict[str, Any]:
    """What a run has cost at the recorded rounds, as results of `simulate` count it, in expectation."""
    taking_part = a.taking_part(m.n_agents)
    # a coin is tossed after each update, which takes `thin` observations; the H of the others counts observations
    length = sampling.thin / a.probability if isinstance(a, Scaffnew) else a.local_steps  # type: ignore[attr-defined]
    samples = recorded * (length * taking_part / m.n_agents)
    text = "expected observations received per agent, dropped ones included"
    sent = "up and down, all agents, eight per number"
    return {
        "communications": (("round",), recorded.copy(), {"description": "server averages up to this round"}),
        "samples": (("round",), samples, {"long_name": "samples per agent", "description": text}),
        "bytes": (("round",), 2 * 8 * m.dim * taking_part * recorded, {"description": sent}),
    }


def _label(sampling: Sampling) -> str:
    if not isinstance(sampling, Markov):
        return "IID"
    start = "" if sampling.start is None else f", start={sampling.start}"
    return f"Markov(thin={sampling.thin}{start})"


def centred_start(problem: Problem | Moments, xi_0: ArrayLike | None) -> tuple[Moments, Floats]:
    """The moments, and xi_0 - xi_star of each group : (K, d); agents with different xi_0 are in different groups."""
    if isinstance(problem, Moments):
        if xi_0 is not None:
            raise ArgumentError("xi_0 must be None where only moments are given: agents have no numbers; got an array")
        return problem, -problem.xi_star[problem.table]
    m = moments(problem)
    if xi_0 is None:
        return m, -m.xi_star[m.table]
    xi = checks.array("xi_0", xi_0, (problem.n_agents, problem.dim))
    if np.abs(problem.weights @ xi).max() > 1e-8 * max(1.0, float(np.abs(xi).max())):
        raise ArgumentError("xi_0 must have a weighted sum of 0 over agents; got another one")
    _, table = np.unique(problem.assignment, return_inverse=True)
    rows = np.column_stack([table, problem.weights, xi])
    groups, count = np.unique(rows, axis=0, return_counts=True)
    split = replace(m, table=groups[:, 0].astype(np.int64), weight=groups[:, 1], count=count.astype(np.int64))
    return split, groups[:, 2:] - m.xi_star[split.table]


def check_method(m: Moments, algorithm: Algorithm, sampling: Sampling) -> None:
    """Refuse what has no exact moments here."""
    known = [kind.__name__ for kind in supporting("theory").values()]
    names = f"{', '.join(known[:-1])} or {known[-1]}"
    checks.instance("algorithm", algorithm, Algorithm, f"a method such as {names}")
    if "theory" not in algorithm.supports:
        raise ArgumentError(f"algorithm must be {names} itself; got {type(algorithm).__name__}")
    if isinstance(sampling, (Markov, Replay)):
        raise ArgumentError(f"sampling must be IID() for exact moments; got {type(sampling).__name__}()")
    if algorithm.projection is not None:
        raise ArgumentError(f"projection must be None: a projected method is not linear; got {algorithm.projection}")
    algorithm.taking_part(m.n_agents)  # refuses more participants than there are agents
    if algorithm.average_after is not None and not isinstance(algorithm, FedLSA):
        raise ArgumentError("average_after must be None for exact moments with control variates; got a round")


def _fedlsa(m: Moments, a: FedLSA, start: Floats, x: Floats, recorded: NDArray[np.int64]) -> trajectories.Found:
    m, x = _one_table_per_group(m, x)
    taking_part, v = a.taking_part(m.n_agents), np.append(start, 1.0)
    last = int(recorded[-1])
    after = last + 1 if a.average_after is None else a.average_after
    different = max(last, 1) if isinstance(a.step_size, PowerStep) and a.step_size.power > 0 else 1
    steps = [fedlsa.round_map(m, float(eta), a.local_steps, x, taking_part) for eta in a.eta(np.arange(different))]
    if len(steps) == 1 and after > last:
        return trajectories.Found(*fedlsa.curve(steps[0], v, recorded), trajectories.EXACT, "powers of a round")
    return trajectories.Found(
        *fedlsa.averaged_curve(steps, v, after, recorded), trajectories.EXACT, many_rounds.ONE_BY_ONE
    )


def _one_table_per_group(m: Moments, x: Floats) -> tuple[Moments, Floats]:
    """The same moments with as many tables as needed for frozen control variates to belong to tables."""
    if np.array_equal(x, -m.xi_star[m.table]):
        return m, -m.xi_star
    t = m.table
    return replace(m, A_bar=m.A_bar[t], b_bar=m.b_bar[t], noise=m.noise[t], table=np.arange(len(t))), x


def controlled_round(m: Moments, a: Algorithm, eta: float) -> controlled.Round:
    """A round of SCAFFLSA or Scaffnew at step size eta."""
    taking_part = a.taking_part(m.n_agents)
    if isinstance(a, Scaffnew):
        return controlled.geometric_round(m, eta, a.probability, a.probability / eta, taking_part)
    assert isinstance(a, SCAFFLSA)
    return controlled.fixed_round(m, eta, a.local_steps, 1 / (eta * a.local_steps), taking_part)


def _controlled(
    m: Moments, a: Algorithm, start: Floats, x: Floats, recorded: NDArray[np.int64], routes: Routes
) -> trajectories.Found:
    if isinstance(a.step_size, float):
        step = controlled_round(m, a, a.step_size)
        mean, variance, spread, route = many_rounds.curve(step, start, x, recorded, routes.one_by_one)
    else:
        values = _decreasing_steps(m, a, a.eta(np.arange(max(int(recorded[-1]), 1))), start, x, recorded)
        mean, variance, spread, route = values[:, :-2], values[:, -2], values[:, -1], many_rounds.ONE_BY_ONE
    length = a.eta(np.maximum(recorded - 1, 0)) / a.eta(np.zeros(1, np.int64)) * round_length(a)
    psi = np.sum(mean**2, axis=1) + variance + length**2 * spread
    return trajectories.Found(mean, variance, trajectories.EXACT, route, psi)


def _decreasing_steps(
    m: Moments, a: Algorithm, etas: Floats, start: Floats, x: Floats, recorded: NDArray[np.int64]
) -> Floats:
    """What PairMap.seen sees at the recorded rounds : (R, d + 2), where every round has its own step size."""
    step = pair_map(controlled_round(m, a, float(etas[0])))
    vector, values, at = step.start(start, x), list[Floats](), 0
    for t in recorded.tolist():
        while at < t:
            if at and etas[at] != etas[at - 1]:
                gain, step = step.round.gain, pair_map(controlled_round(m, a, float(etas[at])))
                vector = step.regauged(vector, gain)
            vector, at = step.advance(vector), at + 1
        values.append(step.seen(vector))
    return np.stack(values)
