"""First and second moments of methods whose agents follow trajectories (assum:P_pi_ergodicity, algo:fed-lsa-markov).

One agent: exact, indexed by the state of its chain (chains.py). Several agents, whose chains go on across rounds,
correlate with theta each on its own: exact on the product of the chains for two agents and where that is small,
otherwise closed over pairs of agents with an estimate of the error (closure.py). A result says which.
"""

from __future__ import annotations

import math
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from ... import checks
from ...algorithms import Algorithm, FedLSA, FixedRounds, Scaffnew, method_class
from ...checks import Floats
from ...errors import ArgumentError
from ...problems import Problem
from ...sampling import Markov
from .. import tuning
from ..linear import at_rounds
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
    received = algorithm.local_steps if isinstance(algorithm, FixedRounds) else sampling.thin
    keys = [(m, xi[c].tobytes() if not layout.x else b"") for c, m in enumerate(problem.assignment.tolist())]
    ones = dict(zip(keys, range(N), strict=True))  # an agent for each map that there is
    _check_memory(problem, layout, len(ones), 1 if steady else 2, closed)

    @lru_cache(maxsize=1)
    def maps(eta: float) -> list[ChainMap]:
        """Of each agent over a round, for Scaffnew over one update."""
        constant = {key: None if layout.x else xi[c] for key, c in ones.items()}
        known = {k: chains.whole_round(problem, k[0], eta, received, sampling.thin, constant[k]) for k in ones}
        return [known[key] for key in keys]

    if closed:
        alike: dict[tuple[object, ...], list[int]] = {}
        for c, key in enumerate(keys):
            alike.setdefault((key, w[c], laws[c].tobytes()), []).append(c)
        firsts, counts = [cs[0] for cs in alike.values()], np.array([len(cs) for cs in alike.values()], np.float64)

        def of_groups(t: int) -> list[ChainMap]:
            return [maps(float(etas[t]))[c] for c in firsts]

        of_one = [laws[c] for c in firsts], w[firsts], counts
        mean, variance, error = closure.curve(*of_one, u, of_groups, steady, recorded)
        return mean, variance, None, error, CLOSURE
    updates = algorithm.mean_steps if isinstance(algorithm, Scaffnew) else algorithm.mean_steps // sampling.thin

    def advance(t: int, state: State) -> State:
        agents, end = maps(float(etas[t])), layout.server(w, 1 / (float(etas[t]) * updates))
        if isinstance(algorithm, Scaffnew):
            mean, second = chains.random_steps(state, layout, agents, algorithm.probability)
        else:
            mean, second = chains.local_steps(state, layout, agents)
        second = end @ second @ end.T
        return end @ mean, (second + second.swapaxes(-1, -2)) / 2  # an asymmetry by rounding would grow

    x, second = xi - problem.xi_star, np.zeros((*map(len, laws), layout.size, layout.size))
    second[..., -1, -1] = reduce(np.multiply.outer, laws)
    start = np.concatenate([u, np.zeros(u.size * N), x.ravel() if layout.x else [], [1.0]])

    def show(state: State) -> tuple[Floats, float, float]:
        mean, variance = state[0], np.diagonal(state[1].sum(axis=tuple(range(N))))
        each = [(mean**2 + variance)[entries].sum() for entries in layout.x] or np.sum(x**2, axis=1)
        return mean[: u.size], float(variance[: u.size].sum()), float(w @ each)

    states = chains.until_still((start, second), advance, chains.change, steady)
    mean, variance, spread = at_rounds(states, recorded, show)
    psi = np.sum(mean**2, axis=1) + variance + (etas[np.maximum(recorded - 1, 0)] * updates) ** 2 * spread
    return mean, variance, None if isinstance(algorithm, FedLSA) else psi, None, EXACT if N == 1 else PRODUCT


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


def _check_memory(problem: Problem, layout: JointLayout, maps: int, rounds: int, closed: bool) -> None:
    """rounds : whose maps are held at a time."""
    d, n, S = layout.d, len(layout.local), max(_states(problem))
    if closed:
        each = 8 * rounds * S**2 * (d * (d + 1) // 2 * (n * (n + 1) // 2) + 2 * d * n)
        checks.memory("the different agents", maps, each, "what one does in a round")
    else:
        checks.memory("the states of all chains together", math.prod(_states(problem)), 64 * layout.size**2, "moments")


def check(problem: Problem, algorithm: Algorithm, sampling: Markov) -> None:
    """Refuse what has no moments along trajectories here, and what `simulate` refuses."""
    chain, N, start = problem.chain, problem.n_agents, sampling.start
    method_class("algorithm", algorithm, "paper")
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
    n, states = len(layout.local), max(_states(problem))
    most = int(math.sqrt(tuning.MAX_CHAIN_MAP) / (n * (n + 1) // 2))
    if states > most:
        raise ArgumentError(
            f"the chains must have at most {most} states in dimension {layout.d} for exact moments with "
            f"sampling=Markov(); got {states}"
        )
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
