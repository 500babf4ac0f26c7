"""What is exact of problems made from decision processes: value functions, and the virtual MDP of Wang et al.

The value error of theta in agent c's world is the root mean square of Phi theta - V_c over its stationary law mu_c.

The virtual MDP (sec:appendix_td) is the average of the agents' processes; its TD(0) solution theta_tilde is what a
single agent in the averaged environment would find. In general it is neither theta_star nor the mean of the agents' own
solutions, for averaging kernels does not average stationary laws.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array, eye_array
from scipy.sparse.linalg import gmres, splu

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, PrecisionError, SingularSystemError
from ..problems import Chain, Problem, RankOne
from ..problems.finite_chains import MOST_DENSE, Edges, Trajectories, stationary_laws
from ..problems.mdp import trajectories_of
from ..value_objects import Displayed, ReadOnly

WEIGHTED = {"behaviour", "trace", "emphatic"}  # arguments of from_mdps that change what outcomes are credited with
MOST_SWEEPS = 20_000  # over the transitions of a large chain: some ten seconds with a million of them


def value_functions(problem: Problem) -> Floats:
    """V_c : (N, S) of every agent by dynamic programming: V_c = r_c + gamma P_c V_c (sec:appendix_td).

    problem : one of fl.problems, made of decision processes or chains

    Nothing follows a transition that ends an episode, though the agent's chain restarts; states that an agent's table
    does not describe, such as terminal ones, have value 0. With discount 1, states that are never visited have NaN.
    """
    on, gamma = _evaluated(problem)
    (M, S), edges = on.mu.shape, on.edges
    V, first = np.zeros((M, S)), np.searchsorted(edges.table, np.arange(M + 1))
    for m in range(M):
        _, s, s_next, y, chance, ends, ratio = edges.at(np.arange(first[m], first[m + 1]))
        chance = chance if ratio is None else chance * ratio
        K = coo_array((gamma * chance[~ends], (s[~ends], s_next[~ends])), shape=(S, S)).tocsr()
        reward = np.bincount(s, chance * y, S).astype(np.float64, copy=False)
        if gamma == 1:  # then values exist where every episode ends: at states that are visited
            V[m, s], live = np.nan, np.flatnonzero(on.mu[m])
            V[m, live] = splu((eye_array(S, format="csr") - K)[live][:, live].tocsc()).solve(reward[live])
        else:
            dense = S <= MOST_DENSE
            V[m] = np.linalg.solve(np.eye(S) - K.toarray(), reward) if dense else _sparse_values(K, reward, gamma)
    return V[problem.assignment]


def _sparse_values(K: csr_array, reward: Floats, discount: float) -> Floats:
    """V = r + K V for a large K, swept until V is still.

    It begins where GMRES ends; where that is too far away, states are many steps apart, and factors of I - K sparse.

    Sweeps contract by the discount, so V is off by at most the last change times discount / (1 - discount).
    """
    system = (eye_array(len(reward), format="csr") - K).tocsc()
    accuracy = max(1e-10 * (1 - discount), 4 * np.finfo(np.float64).eps)
    for direct in (False, True):
        V = splu(system).solve(reward) if direct else gmres(system, reward, rtol=1e-13, restart=50, maxiter=20)[0]
        for _ in range(MOST_SWEEPS):
            before, V = V, reward + K @ V
            if np.abs(V - before).max() <= accuracy * np.abs(V).max():
                return np.asarray(V, np.float64)
    rule = f"values must settle in {MOST_SWEEPS} sweeps"
    raise PrecisionError(f"{rule}; got a discount of {discount} for {len(reward)} states")


def value_error(problem: Problem, theta: ArrayLike) -> Floats:
    """The root mean square of Phi theta - V_c over each agent's stationary law; theta : (..., d) gives (..., N).

    problem : one of fl.problems, made of decision processes or chains
    """
    phi, mu = _evaluated(problem)[0].features, stationary_law(problem)
    parameter = checks.array("theta", theta, (*checks.as_array("theta", theta).shape[:-1], problem.dim))
    gap = (parameter[..., : phi.shape[1]] @ phi.T)[..., None, :] - value_functions(problem)
    return np.asarray(np.sqrt(np.sum(mu * np.where(mu > 0, gap, 0) ** 2, axis=-1)), np.float64)


def stationary_law(problem: Problem) -> Floats:
    """mu_c : (N, S), the stationary law of every agent's chain, restarts included, of the policy that acts.

    problem : one of fl.problems, made of decision processes or chains
    """
    return np.asarray(_evaluated(problem)[0].mu[problem.assignment], np.float64)


@dataclass(frozen=True, eq=False, repr=False)
class VirtualMDP(Displayed, ReadOnly):
    """The averaged process under the shared policy, and its system A_tilde theta_tilde = b_tilde.

    kernel : (S, S) the averaged kernel, E_c P_pi^c(s' | s)
    reward : (S,) the averaged reward, E_c sum_a pi(a | s) r^c(s, a)
    stationary : (S,) invariant law of the averaged kernel
    A_tilde : (d, d) matrix of its system
    b_tilde : (d,) vector of its system
    theta_tilde : (d,) solution of its system
    theta_star : (d,) of the averaged system, for comparison
    distance : of the two, ||theta_tilde - theta_star||
    """

    kernel: Floats = field(repr=False)
    reward: Floats = field(repr=False)
    stationary: Floats = field(repr=False)
    A_tilde: Floats = field(repr=False)
    b_tilde: Floats = field(repr=False)
    theta_tilde: Floats
    theta_star: Floats
    distance: float


def virtual_mdp(problem: Problem) -> VirtualMDP:
    """The virtual MDP (eq:td_virtual_iterates) of a problem made from decision processes (from_mdps, garnet).

    Agents share the policy, so the averages over actions that the problem's chains keep are all that is needed:

        A_tilde = E[phi(s) (phi(s) - gamma phi(s'))^T],   b_tilde = E[phi(s) r_tilde(s)],

    with s from the averaged kernel's own stationary law mu_tilde, and s' from the averaged kernel.

    Where episodes end, the averaged chain restarts as the agents' chains do.
    """
    chain, obs, S = _chain_and_observations(problem, "decision processes (from_mdps, garnet)")
    checks.memory("the states of the problem", S, 8 * S, "the averaged kernel")
    chance = np.repeat(problem.table_weights, np.diff(problem.first)) * chain.conditional
    kernel = coo_array((chance, (chain.origin, chain.successor)), shape=(S, S)).toarray()
    reward, mass = (np.bincount(chain.origin, x, S).astype(np.float64) for x in (chance * obs.y, chance))
    to_rows = coo_array((chance, (chain.origin, obs.right)), shape=(S, len(obs.rows)))  # of phi(s) - gamma phi(s')
    partial = (mass > 1e-9) & (mass < 1 - 1e-9)
    if partial.any():
        state = int(np.argmax(partial))
        raise ArgumentError(f"states must be terminal for all agents or for none; got state {state} for some")
    lived_in = np.asarray(chain.stationary.reshape(-1, S).max(axis=0) > 0)  # mu is on what is reached from there
    origin, successor = np.nonzero(kernel)
    chances, start = kernel[origin, successor], np.zeros(1, np.int64)
    mu = stationary_laws(origin, successor, chances, lived_in[None], start)[0]
    phi = obs.rows[:S]
    A, b = (mu[:, None] * phi).T @ (to_rows @ obs.rows), (mu * reward) @ phi
    try:
        theta = np.asarray(np.linalg.solve(A, b), np.float64)
    except np.linalg.LinAlgError:
        raise SingularSystemError("the virtual MDP's matrix A_tilde must be invertible; it is singular") from None
    gap = float(np.linalg.norm(theta - problem.theta_star))
    return VirtualMDP(kernel, reward, mu, A, b, theta, problem.theta_star, gap)


def _evaluated(problem: Problem) -> tuple[Trajectories, float]:
    """The chains of the policy that a problem evaluates, with the ratios where another one acts; and the discount."""
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    given = problem.recipe.get("arguments", {})
    if problem.made_by == "gradient_td" or (problem.made_by == "from_mdps" and given.keys() & WEIGHTED):
        return trajectories_of(given), given["discount"]
    chain, obs, S = _chain_and_observations(problem, "decision processes or chains")
    assert obs.following is not None
    table = np.repeat(np.arange(problem.n_tables), np.diff(problem.first))
    edges = Edges(table, chain.origin, chain.successor, obs.y, chain.conditional, obs.following == S)
    mu = chain.stationary.reshape(-1, S)
    return Trajectories(edges, mu, obs.rows[:S], problem.assignment, problem.weights), obs.discount


def _chain_and_observations(problem: Problem, kind: str) -> tuple[Chain, RankOne, int]:
    """The chain of a problem made from such a kind, its observations, and the number of states."""
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    obs, chain = problem.observations, problem.chain
    if chain is None or not isinstance(obs, RankOne) or obs.following is None:
        got = problem.made_by if problem.recipe else "one made by hand"
        raise ArgumentError(f"problem must be TD(0) made from {kind}; got {got}")
    S = int(chain.first_state[1])
    if obs.features != S or (np.diff(chain.first_state) != S).any() or not np.array_equal(obs.left, chain.origin):
        rule = "problem must have the same states in every table, and a row of features for each, in their order"
        raise ArgumentError(f"{rule}; got {obs.features} rows of features and {S} states in the first table")
    return chain, obs, S
