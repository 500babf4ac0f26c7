"""Value functions by dynamic programming, and how far a parameter's linear value function is from them.

The value error of theta in agent c's world is the root mean square of Phi theta - V_c over its stationary law mu_c.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..problems import Problem, RankOne


def value_functions(problem: Problem) -> Floats:
    """V_c : (N, S) of every agent by dynamic programming: V_c = r_c + gamma P_c V_c (sec:appendix_td).

    Nothing follows a transition that ends an episode, though the agent's chain restarts; states that an agent's table
    does not describe, such as terminal ones, have value 0.
    """
    S, obs = _states(problem)
    chain = problem.chain
    assert chain is not None
    assert obs.following is not None
    V = np.empty((problem.n_tables, S))
    for m, span in enumerate(problem.spans()):
        s, chance, goes_on = chain.origin[span], chain.conditional[span], obs.following[span] < S
        P = np.zeros((S, S))
        np.add.at(P, (s[goes_on], obs.following[span][goes_on]), chance[goes_on])
        V[m] = np.linalg.solve(np.eye(S) - obs.discount * P, np.bincount(s, chance * obs.y[span], S))
    return V[problem.assignment]


def value_error(problem: Problem, theta: ArrayLike) -> Floats:
    """The root mean square of Phi theta - V_c over each agent's stationary law; theta : (..., d) gives (..., N)."""
    S, obs = _states(problem)
    parameter = checks.array("theta", theta, (*checks.as_array("theta", theta).shape[:-1], problem.dim))
    gap = (parameter @ obs.rows[:S].T)[..., None, :] - value_functions(problem)
    return np.asarray(np.sqrt(np.sum(stationary_law(problem) * gap**2, axis=-1)), np.float64)


def stationary_law(problem: Problem) -> Floats:
    """mu_c : (N, S), the stationary law of every agent's chain, restarts included."""
    S, _ = _states(problem)
    assert problem.chain is not None
    return np.asarray(problem.chain.stationary.reshape(problem.n_tables, S)[problem.assignment], np.float64)


def _states(problem: Problem) -> tuple[int, RankOne]:
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    obs, chain = problem.observations, problem.chain
    if chain is None or not isinstance(obs, RankOne) or obs.following is None:
        made = problem.recipe.get("constructor", "an unknown constructor")
        raise ArgumentError(f"problem must have been made from decision processes or chains; got {made}")
    return int(chain.first_state[1]), obs
