"""The virtual MDP of Wang et al. (sec:appendix_td): TD(0) on the average of the agents' decision processes.

Its solution theta_tilde is what a single agent in the averaged environment would find. In general it is neither
theta_star nor the mean of the agents' own solutions, for averaging kernels does not average stationary laws.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, SingularSystemError
from ..formatting import Displayed
from ..frozen import ReadOnly
from ..problems import Problem, RankOne
from ..problems.temporal_difference import stationary_laws


@dataclass(frozen=True, eq=False, repr=False)
class VirtualMDP(Displayed, ReadOnly):
    """The averaged process under the shared policy, and its system A_tilde theta_tilde = b_tilde."""

    kernel: Floats = field(repr=False)  # (S, S) E_c P_pi^c(s' | s)
    reward: Floats = field(repr=False)  # (S,) E_c sum_a pi(a | s) r^c(s, a)
    stationary: Floats = field(repr=False)  # (S,) invariant law of the averaged kernel
    A_tilde: Floats = field(repr=False)  # (d, d)
    b_tilde: Floats = field(repr=False)  # (d,)
    theta_tilde: Floats  # (d,)
    theta_star: Floats  # (d,) of the averaged system, for comparison
    distance: float  # ||theta_tilde - theta_star||


def virtual_mdp(problem: Problem) -> VirtualMDP:
    """The virtual MDP (eq:td_virtual_iterates) of a problem made from decision processes (from_mdps, garnet).

    Agents share the policy, so the averages over actions that the problem's chains keep are all that is needed:

        A_tilde = E[phi(s) (phi(s) - gamma phi(s'))^T],   b_tilde = E[phi(s) r_tilde(s)],

    with s from the averaged kernel's own stationary law mu_tilde, and s' from the averaged kernel.

    Where episodes end, the averaged chain restarts as the agents' chains do.
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    obs, chain = problem.observations, problem.chain
    if chain is None or not isinstance(obs, RankOne):
        made = problem.recipe.get("constructor", "an unknown constructor")
        raise ArgumentError(f"problem must have been made from decision processes (from_mdps, garnet); got {made}")
    S, d = int(chain.first_state[1]), problem.dim
    kernel, reward, ahead, mass = np.zeros((S, S)), np.zeros(S), np.zeros((S, d)), np.zeros(S)
    for w, span in zip(problem.table_weights, problem.spans(), strict=True):
        s, chance = chain.origin[span], w * chain.conditional[span]
        np.add.at(kernel, (s, chain.successor[span]), chance)
        np.add.at(reward, s, chance * obs.y[span])
        np.add.at(ahead, s, chance[:, None] * obs.rows[obs.right[span]])  # E_c E[phi(s) - gamma phi(s') | s]
        np.add.at(mass, s, chance)
    partial = (mass > 1e-9) & (mass < 1 - 1e-9)
    if partial.any():
        state = int(np.argmax(partial))
        raise ArgumentError(f"states must be terminal for all agents or for none; got state {state} for some")
    mu = _law(problem, kernel, S)
    phi = obs.rows[:S]
    A, b = (mu[:, None] * phi).T @ ahead, (mu * reward) @ phi
    try:
        theta = np.asarray(np.linalg.solve(A, b), np.float64)
    except np.linalg.LinAlgError:
        raise SingularSystemError("the virtual MDP's matrix A_tilde must be invertible; it is singular") from None
    gap = float(np.linalg.norm(theta - problem.theta_star))
    return VirtualMDP(kernel, reward, mu, A, b, theta, problem.theta_star, gap)


def _law(problem: Problem, kernel: Floats, S: int) -> Floats:
    """The invariant law of the averaged kernel, on what it reaches from where the agents live."""
    assert problem.chain is not None
    lived_in = problem.chain.stationary.reshape(-1, S).max(axis=0) > 0
    origin, successor = np.nonzero(kernel)
    return stationary_laws(
        origin, successor, kernel[origin, successor], np.asarray(lived_in)[None], np.zeros(1, np.int64)
    )[0]
