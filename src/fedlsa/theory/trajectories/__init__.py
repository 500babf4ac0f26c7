"""First and second moments of methods whose agents follow trajectories (assum:P_pi_ergodicity, algo:fed-lsa-markov).

One agent: exact, indexed by the state of its chain. Several agents, whose chains go on across rounds, correlate with
theta each on its own: exact on the product of the chains where that is small (product.py), otherwise closed over pairs
of agents with an estimate of the error (closure.py). A result says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...algorithms import Algorithm, FedLSA, FixedRounds, Scaffnew
from ...checks import Floats
from ...errors import ArgumentError
from ...problems import Problem
from ...sampling import Markov
from .. import tuning
from . import closure, product
from .chains import Local, first_law, one_update, whole_round

EXACT, PRODUCT, CLOSURE = "exact", "exact on the product of chains", "closure over pairs of agents"

__all__ = ["CLOSURE", "EXACT", "PRODUCT", "Found", "curve"]


@dataclass(frozen=True, eq=False)
class Found:
    """E[u] : (R, d), E||u - E[u]||^2 : (R,), what kind of moments they are, how they were found, psi of methods with
    control variates, error of a closure."""

    mean: Floats
    variance: Floats
    moments: str
    route: str
    psi: Floats | None = None
    error: Floats | None = None


def curve(
    problem: Problem, algorithm: Algorithm, sampling: Markov, u: Floats, xi: Floats, recorded: NDArray[np.int64]
) -> Found:
    """The moments of u = theta - theta_star at the recorded rounds, from known u and control variates xi : (N, d)."""
    _check(problem, algorithm, sampling)
    N, w, thin = problem.n_agents, problem.weights, sampling.thin
    fixed = isinstance(algorithm, FedLSA) or N == 1  # a single agent's control variate stays where it is
    laws = [first_law(problem, c, sampling.start) for c in range(N)]
    last = int(recorded[-1])
    etas = algorithm.eta(np.arange(max(last, 1)))
    steady = bool((etas == etas[0]).all())
    updates = 1 / algorithm.probability if isinstance(algorithm, Scaffnew) else algorithm.local_steps // thin  # type: ignore[attr-defined]
    agents = _maps(problem, algorithm, thin, xi if fixed else None)
    where = product.Layout(N, problem.dim, not fixed)
    _check_local(problem, where)
    if _product_size(problem, where) > tuning.MAX_PRODUCT_MOMENTS and N > 1:
        if not isinstance(algorithm, FedLSA):
            most, name = tuning.MAX_PRODUCT_MOMENTS, type(algorithm).__name__
            raise ArgumentError(
                f"the product of the chains must have at most {most} moments for {name} with "
                f"sampling=Markov(); got {_product_size(problem, where)} (fewer agents, states or features "
                "would do; the closure over pairs of agents is for FedLSA, and simulate is for all)"
            )
        mean, mse, error = closure.curve(laws, u, w, lambda t: agents(float(etas[t])), steady, recorded)
        if N == 2:  # nothing is left out: pairs of agents are all that there is
            return Found(mean, _variance(mean, mse), PRODUCT, "pairs of agents")
        return Found(mean, _variance(mean, mse), CLOSURE, "pairs of agents", error=error)

    def advance(t: int, Y: Floats) -> tuple[Floats, float]:
        eta = float(etas[t])
        if isinstance(algorithm, Scaffnew):
            return product.random_steps(Y, where, agents(eta), algorithm.probability), 1 / (eta * updates)
        return product.local_steps(Y, where, agents(eta)), 1 / (eta * updates)

    x = xi - problem.xi_star
    mean, mse, spread = product.curve(where, laws, u, x, w, advance, steady, recorded)
    kind = EXACT if N == 1 else PRODUCT
    if isinstance(algorithm, FedLSA):
        return Found(mean, _variance(mean, mse), kind, "states of chains")
    if fixed:
        spread = np.full(len(recorded), np.sum(x**2))
    psi = mse + (etas[np.maximum(recorded - 1, 0)] * updates) ** 2 * spread
    return Found(mean, _variance(mean, mse), kind, "states of chains", psi=psi)


def _variance(mean: Floats, mse: Floats) -> Floats:
    """A difference: where chains have states, second moments are not carried apart from the squares of means."""
    return np.asarray(mse - np.sum(mean**2, axis=1), np.float64)


def _maps(problem: Problem, algorithm: Algorithm, thin: int, xi: Floats | None) -> Callable[[float], list[Local]]:
    """What gives the maps of all agents over a round (Scaffnew: over one update) at a step size; the last are kept."""
    kept: dict[float, list[Local]] = {}

    def at(eta: float) -> list[Local]:
        if eta not in kept:
            kept.clear()
            made: dict[tuple[int, bytes], Local] = {}
            kept[eta] = []
            for c, m in enumerate(problem.assignment.tolist()):
                own = None if xi is None else xi[c]
                key = (m, b"" if own is None else own.tobytes())
                if key not in made:
                    if isinstance(algorithm, FixedRounds):
                        made[key] = whole_round(problem, m, eta, algorithm.local_steps, thin, own)
                    else:
                        made[key] = one_update(problem, m, eta, thin, own)
                kept[eta].append(made[key])
        return kept[eta]

    return at


def _states(problem: Problem) -> list[int]:
    """How many states the chain of each agent has."""
    assert problem.chain is not None
    return np.diff(problem.chain.first_state)[problem.assignment].tolist()


def _product_size(problem: Problem, where: product.Layout) -> int:
    return math.prod(_states(problem)) * where.size**2


def _check_local(problem: Problem, where: product.Layout) -> None:
    n = len(where.own(0))
    most, states = int(math.sqrt(tuning.MAX_CHAIN_MAP) / (n * (n + 1) // 2)), max(_states(problem))
    if states > most:
        raise ArgumentError(
            f"the chains must have at most {most} states in dimension {where.d} for exact moments with "
            f"sampling=Markov(); got {states}"
        )


def _check(problem: Problem, algorithm: Algorithm, sampling: Markov) -> None:
    """Refuse what has no moments along trajectories here, and what `simulate` refuses."""
    chain, N, start = problem.chain, problem.n_agents, sampling.start
    if chain is None:
        raise ArgumentError(
            "sampling must be IID() for exact moments of a problem without a transition kernel; got Markov() "
            f"for a problem made by {problem.recipe.get('constructor', 'hand')}"
        )
    taking_part = algorithm.taking_part(N)
    if taking_part < N:
        raise ArgumentError(
            f"participation must be 1.0 for exact moments with sampling=Markov(); got {taking_part} of {N}"
        )
    if algorithm.average_after is not None:
        got = algorithm.average_after
        raise ArgumentError(f"average_after must be None for exact moments with sampling=Markov(); got {got}")
    if isinstance(algorithm, Scaffnew) and algorithm.probability < tuning.MIN_PROBABILITY:
        rule = f"probability must be at least {tuning.MIN_PROBABILITY:g} for exact moments with sampling=Markov()"
        raise ArgumentError(f"{rule}; got {algorithm.probability:g}")
    algorithm.observations(np.zeros(1), sampling.thin)  # refuses rounds without an update
    if start is None:
        return
    if len(start) != N:
        raise ArgumentError(f"start must hold one state per agent, {N}; got {len(start)}")
    for c, (s, n) in enumerate(zip(start, _states(problem), strict=True)):
        if s >= n:
            raise ArgumentError(f"start must hold states from 0 to {n - 1} for agent {c}; got {s}")
        m = problem.assignment[c]
        if s not in chain.origin[problem.first[m] : problem.first[m + 1]]:
            raise ArgumentError(f"start must hold states that are not terminal; got {s} for agent {c}")
