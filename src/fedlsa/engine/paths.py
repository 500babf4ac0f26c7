"""Where every agent goes within the rounds: the rounds of engine/reference.py, with their inner points kept.

Without noise the agents follow their mean systems, theta_hat <- theta_hat - eta (A_bar_c theta_hat - b_bar_c - xi_c).
Several of those steps are one affine map, so long rounds cost no more than short ones. With noise the observations are
those of `simulate`, drawn one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..algorithms import Algorithm, method
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem
from ..sampling import IID
from ..value_objects import Displayed, ReadOnly
from .outcome_tables import outcome_tables
from .reference import Iterate, Observer, noiseless_steps, observed_steps, run_rounds
from .schedule import schedule

Integers = NDArray[np.int64]
MOST_STEPS = 10**7  # taken one at a time: a few minutes


@dataclass(frozen=True, eq=False, repr=False)
class Paths(Displayed, ReadOnly):
    """One run of a method with what happens inside its rounds.

    theta : (rounds + 1, d), what the server holds after each round (the iterate itself, never a running mean of it)
    local : (rounds, N, points + 1, d), where each agent is after `steps` of its local steps; NaN if it takes no part
    steps : (rounds, points + 1), from 0 to the length of the round, equally spaced up to rounding
    xi : (rounds + 1, N, d), the control variates with which each round begins, and the last ones
    """

    problem: Problem
    algorithm: Algorithm
    seed: int
    noise: bool
    theta: Floats
    local: Floats
    steps: Integers
    xi: Floats

    @property
    def rounds(self) -> int:
        return len(self.local)


@np.errstate(over="ignore", invalid="ignore")  # a run that diverges is shown as far as numbers go
def round_paths(
    problem: Problem,
    algorithm: Algorithm,
    rounds: int = 20,
    seed: int = 0,
    theta_0: ArrayLike | None = None,
    points: int = 40,
    noise: bool = False,
) -> Paths:
    """Run a method (Algorithm 1, Algorithm 2 or Scaffnew) and keep each agent's path at `points` moments of each round.

    theta_0 : (d,), by default `problem.start`. noise=False : the mean systems; what is drawn from `seed` is then only
    who takes part and how long Scaffnew's rounds are. noise=True : the run of `simulate` with this seed.
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    algorithm = method("algorithm", algorithm)
    rounds = checks.integer("rounds", rounds, at_least=1)
    seed = checks.integer("seed", seed, at_most=2**64 - 1)
    points = checks.integer("points", points, at_least=1)
    noise = checks.boolean("noise", noise)
    N, d = problem.n_agents, problem.dim
    start = checks.array("theta_0", problem.start if theta_0 is None else theta_0, (d,))

    if type(algorithm).exchange is not Algorithm.exchange:
        raise ArgumentError(f"algorithm must not declare an exchange for paths; got {type(algorithm).__name__}")
    m, memory = algorithm.taking_part(N), len(algorithm.server()[1]) - 1
    if algorithm.agent_factors(N) is not None:
        raise ArgumentError("algorithm must give all agents rounds of one length; got agent_factors")
    checks.memory("rounds", rounds, 64, "step sizes and lengths of rounds")
    checks.memory("rounds", rounds, 8 * 2 * (N * d + 1) * (points + 1), "the agents' paths")
    _check_work("points of all rounds", rounds * points)
    plan = schedule(algorithm, IID(), seed, rounds, N)
    if noise:
        _check_work("local steps of all agents and rounds with noise=True", m * sum(map(int, plan.observations)))
    steps = np.rint(np.linspace(0, plan.observations, points + 1, axis=1)).astype(np.int64)
    walk = noiseless_steps(problem)
    if noise:
        tables = outcome_tables(problem, IID())
        walk = observed_steps([Observer(problem, IID(), tables, seed, c) for c in range(N)], 1)

    theta, xi = np.empty((rounds + 1, d)), np.zeros((rounds + 1, N, d))
    local = np.empty((rounds, N, points + 1, d))
    theta[0] = start
    begin = Iterate(start, xi[0], start, start, np.zeros((memory, d)))
    for t, (now, inside) in enumerate(run_rounds(problem, algorithm, plan, begin, walk, steps)):
        theta[t + 1], xi[t + 1], local[t] = now.theta, now.xi, inside
    return Paths(problem, algorithm, seed, noise, theta, local, steps, xi)


def _check_work(what: str, count: int) -> None:
    """Refuse what Python would take hours for."""
    if count > MOST_STEPS:
        raise ArgumentError(f"{what} must be at most {MOST_STEPS:,}; got {count:.3g}")
