"""First and second moments of methods whose agents follow trajectories (assum:P_pi_ergodicity, algo:fed-lsa-markov).

One agent: exact, indexed by the state of its chain (chains.py). Several agents, whose chains go on across rounds,
correlate with theta each on its own: exact on the product of the chains for two agents and where that is small,
otherwise closed over pairs of agents with an estimate of the error (closure.py). A result says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ... import checks
from ...algorithms import Algorithm, FedLSA, FixedRounds, Scaffnew
from ...checks import Floats
from ...errors import ArgumentError
from ...problems import Problem
from ...sampling import Markov
from .. import tuning
from . import chains, closure
from .chains import ChainMap, JointLayout, State

EXACT, PRODUCT, CLOSURE = "exact", "exact on the product of chains", "closure over pairs of agents"

__all__ = ["check", "curve", "fits", "too_large"]


def curve(
    problem: Problem,
    algorithm: Algorithm,
    sampling: Markov,
    u: Floats,
    xi: Floats,
    recorded: NDArray[np.int64],
    closed: bool,
) -> tuple[Floats, Floats, Floats | None, Floats | None, str]:
    """E[u] : (R, d), E||u - E[u]||^2, psi and the error of a closure : (R,) at the recorded rounds, and their kind.

    From known u = theta_0 - theta_star : (d,) and control variates xi : (N, d). closed : over pairs of agents, or
    else on the product of chains. psi is that of methods with control variates.
    """
    N, w, layout = problem.n_agents, problem.weights, _layout(problem, algorithm)
    laws = [_first_law(problem, c, sampling.start) for c in range(N)]
    etas = algorithm.eta(np.arange(max(int(recorded[-1]), 1)))
    steady = bool((etas == etas[0]).all())
    maps = _maps(problem, algorithm, sampling.thin, None if layout.controlled else xi)
    if closed:
        alike: dict[tuple[object, ...], list[int]] = {}
        for c, m in enumerate(problem.assignment.tolist()):
            alike.setdefault((m, w[c], xi[c].tobytes(), laws[c].tobytes()), []).append(c)
        firsts, counts = [cs[0] for cs in alike.values()], np.array([len(cs) for cs in alike.values()], np.float64)

        def of_groups(t: int) -> list[ChainMap]:
            return [maps(float(etas[t]))[c] for c in firsts]

        of_one = [laws[c] for c in firsts], w[firsts], counts
        mean, variance, error = closure.curve(*of_one, u, of_groups, steady, recorded)
        return mean, variance, None, error, CLOSURE
    updates = algorithm.mean_steps if isinstance(algorithm, Scaffnew) else algorithm.mean_steps // sampling.thin

    def advance(t: int, state: State) -> tuple[State, float]:
        agents, gain = maps(float(etas[t])), 1 / (float(etas[t]) * updates)
        if isinstance(algorithm, Scaffnew):
            return chains.random_steps(state, layout, agents, algorithm.probability), gain
        return chains.local_steps(state, layout, agents), gain

    x = xi - problem.xi_star
    mean, variance, spread = chains.curve(layout, laws, u, x, w, advance, steady, recorded)
    kind, psi = EXACT if N == 1 else PRODUCT, None
    if not isinstance(algorithm, FedLSA):
        mse = np.sum(mean**2, axis=1) + variance
        psi = mse + (etas[np.maximum(recorded - 1, 0)] * updates) ** 2 * spread
    return mean, variance, psi, None, kind


def fits(problem: Problem, algorithm: Algorithm) -> bool:
    """Whether the product of the chains is small enough; for FedLSA that of two always is."""
    small = _product_size(problem, _layout(problem, algorithm)) <= tuning.MAX_PRODUCT_MOMENTS
    return small or problem.n_agents <= (2 if isinstance(algorithm, FedLSA) else 1)


def too_large(problem: Problem, algorithm: Algorithm) -> ArgumentError:
    """The error of those that do not fit, where there is no closure."""
    most, size = tuning.MAX_PRODUCT_MOMENTS, _product_size(problem, _layout(problem, algorithm))
    return ArgumentError(
        f"the product of the chains must have at most {most} moments for {type(algorithm).__name__} with "
        f"sampling=Markov(); got {size} (fewer agents, states or features would do; the closure over pairs of agents "
        "is for FedLSA, and simulate is for all)"
    )


def _layout(problem: Problem, algorithm: Algorithm) -> JointLayout:
    """A single agent's control variate stays where it is."""
    return JointLayout(problem.n_agents, problem.dim, not isinstance(algorithm, FedLSA) and problem.n_agents > 1)


def _maps(problem: Problem, algorithm: Algorithm, thin: int, xi: Floats | None) -> Callable[[float], list[ChainMap]]:
    """What gives the maps of all agents over a round (Scaffnew: over one update) at a step size; the last are kept."""
    received = algorithm.local_steps if isinstance(algorithm, FixedRounds) else thin

    @lru_cache(maxsize=1)
    def at(eta: float) -> list[ChainMap]:
        known: dict[tuple[int, bytes], ChainMap] = {}
        keys = [(m, b"" if xi is None else xi[c].tobytes()) for c, m in enumerate(problem.assignment.tolist())]
        for c, key in enumerate(keys):
            if key not in known:
                known[key] = chains.whole_round(problem, key[0], eta, received, thin, None if xi is None else xi[c])
        return [known[key] for key in keys]

    return at


def _first_law(problem: Problem, agent: int, start: tuple[int, ...] | None) -> Floats:
    """(S,): the law of the state in which an agent's trajectory starts."""
    chain, m = problem.chain, int(problem.assignment[agent])
    assert chain is not None
    law = chain.stationary[chain.first_state[m] : chain.first_state[m + 1]]
    return law if start is None else np.eye(len(law))[start[agent]]


def _states(problem: Problem) -> list[int]:
    """How many states the chain of each agent has."""
    assert problem.chain is not None
    return np.diff(problem.chain.first_state)[problem.assignment].tolist()


def _product_size(problem: Problem, layout: JointLayout) -> int:
    return math.prod(_states(problem)) * (layout.size - layout.d) ** 2


def check(problem: Problem, algorithm: Algorithm, sampling: Markov) -> None:
    """Refuse what has no moments along trajectories here, and what `simulate` refuses."""
    chain, N, start = problem.chain, problem.n_agents, sampling.start
    if chain is None:
        raise ArgumentError(
            "sampling must be IID() for exact moments of a problem without a transition kernel; got Markov() "
            f"for a problem made by {problem.made_by}"
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
    layout = _layout(problem, algorithm)
    d, n, states = layout.d, len(layout.local()), max(_states(problem))
    most = int(math.sqrt(tuning.MAX_CHAIN_MAP) / (n * (n + 1) // 2))
    if states > most:
        raise ArgumentError(
            f"the chains must have at most {most} states in dimension {d} for exact moments with "
            f"sampling=Markov(); got {states}"
        )
    if fits(problem, algorithm):
        checks.memory("the states of all chains together", math.prod(_states(problem)), 64 * layout.size**2, "moments")
    else:
        each = 8 * states**2 * (d * (d + 1) // 2 * (n * (n + 1) // 2) + 2 * d * n)
        checks.memory("the tables of the agents", len(set(problem.assignment.tolist())), each, "the map of a round")
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
