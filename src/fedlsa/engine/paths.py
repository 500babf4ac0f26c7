"""Where every agent goes within the rounds: the recursion of the reference engine, with its local steps kept.

Without noise the agents follow their mean systems, theta_hat <- theta_hat - eta (A_bar_c theta_hat - b_bar_c - xi_c).
Several of those steps are one affine map, so long rounds cost no more than short ones. With noise the observations are
those of `simulate`, drawn one at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..algorithms import Algorithm
from ..checks import Floats
from ..errors import ArgumentError
from ..frozen import ReadOnly
from ..problems import Problem
from ..sampling import IID
from ..theory.bias import power_sums
from .hooks import apply_server_step
from .random import participants, uniforms
from .reference import Observer
from .tables import layout

Integers = NDArray[np.int64]
Walk = Callable[
    [Floats, Floats, Integers, float, Integers], Floats
]  # theta, xi, active, eta, steps -> (N, points+1, d)
MOST_STEPS = 10**7  # taken one at a time: a few minutes


@dataclass(frozen=True, eq=False)
class Paths(ReadOnly):
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

    theta_0 : (d,), by default theta_star + 1. noise=False : the mean systems; what is drawn from `seed` is then only
    who takes part and how long Scaffnew's rounds are. noise=True : the run of `simulate` with this seed.
    """
    checks.instance("problem", problem, Problem, "a fedlsa problem")
    checks.instance("algorithm", algorithm, Algorithm, "a method such as fl.SCAFFLSA(0.1, 10)")
    rounds = checks.integer("rounds", rounds, at_least=1)
    seed = checks.integer("seed", seed, at_most=2**64 - 1)
    points = checks.integer("points", points, at_least=1)
    noise = checks.boolean("noise", noise)
    N, d, w = problem.n_agents, problem.dim, problem.weights
    start = problem.theta_star + 1 if theta_0 is None else checks.array("theta_0", theta_0, (d,))

    m = algorithm.taking_part(N)
    checks.memory("rounds", rounds, 64, "step sizes and lengths of rounds")
    checks.memory("rounds", rounds, 8 * 2 * (N * d + 1) * (points + 1), "the agents' paths")
    _check_work("points of all rounds", rounds * points)
    lengths = algorithm.observations(uniforms(np.uint64(seed), 0, rounds), 1)
    etas = algorithm.eta(np.arange(rounds))
    gains = algorithm.gain(etas, lengths)
    if noise:
        _check_work("local steps of all agents and rounds with noise=True", m * sum(map(int, lengths)))
    steps = np.rint(np.linspace(0, lengths, points + 1, axis=1)).astype(np.int64)
    walk = _noisy_walk(problem, seed) if noise else _mean_walk(problem)

    theta, xi = np.empty((rounds + 1, d)), np.zeros((rounds + 1, N, d))
    local = np.empty((rounds, N, points + 1, d))
    theta[0] = start
    for t in range(rounds):
        active = np.arange(N)
        if m < N:
            chosen = np.empty((1, m), np.int64)
            participants(np.uint64(seed), t, N, chosen)
            active = chosen[0]
        local[t] = walk(theta[t], xi[t], active, float(etas[t]), steps[t])
        change = np.zeros((N, d))
        change[active] = local[t, active, -1] - theta[t]
        moved = w @ change
        mean = theta[t] + N / m * moved
        xi[t + 1] = xi[t] + gains[t] * (moved - change)  # keeps sum_c w_c xi_c = 0
        theta[t + 1] = _projected(algorithm, apply_server_step(algorithm, theta[t], mean, t + 1))
    return Paths(problem, algorithm, seed, noise, theta, local, steps, xi)


@np.errstate(over="ignore", invalid="ignore")
def uncorrected(paths: Paths) -> Floats:
    """Where agents would go in each round from the same theta without control variates : (rounds, N, points + 1, d).

    Only for paths without noise; NaN for agents that do not take part.
    """
    checks.instance("paths", paths, Paths, "what round_paths returns")
    if paths.noise:
        raise ArgumentError("paths must be without noise to be compared with others; got noise=True")
    walk, none = _mean_walk(paths.problem), np.zeros_like(paths.xi[0])
    etas = paths.algorithm.eta(np.arange(paths.rounds))
    out = np.empty_like(paths.local)
    for t in range(paths.rounds):
        active = np.flatnonzero(~np.isnan(paths.local[t, :, 0, 0]))
        out[t] = walk(paths.theta[t], none, active, float(etas[t]), paths.steps[t])
    return out


def _check_work(what: str, count: int) -> None:
    """Refuse what Python would take hours for."""
    if count > MOST_STEPS:
        raise ArgumentError(f"{what} must be at most {MOST_STEPS:,}; got {count:.3g}")


def _projected(algorithm: Algorithm, theta: Floats) -> Floats:
    """theta in the method's ball, where it has one : (d,)."""
    norm = np.sqrt(theta @ theta)
    if algorithm.projection is not None and norm > algorithm.projection:
        theta = theta * (algorithm.projection / norm)
    return theta


def _noisy_walk(problem: Problem, seed: int) -> Walk:
    """Local steps on the observations of the engines."""
    where = layout(problem, IID())
    agents = [Observer(problem, IID(), where, seed, c, None) for c in range(problem.n_agents)]

    def walk(theta: Floats, xi: Floats, active: Integers, eta: float, steps: Integers) -> Floats:
        out = np.full((len(xi), len(steps), len(theta)), np.nan)
        for c in active:
            theta_hat, at = theta, 0
            for k, step in enumerate(steps):
                for _ in range(at, step):
                    A, b = agents[c].receive()
                    theta_hat = theta_hat - eta * (A @ theta_hat - b - xi[c])
                out[c, k], at = theta_hat, step
        return out

    return walk


def _mean_walk(problem: Problem) -> Walk:
    """Local steps on the mean systems: h of them are theta_hat + eta S_h (b_bar_c + xi_c - A_bar_c theta_hat)."""
    A, b, table = problem.table_A_bar, problem.b_bar, problem.assignment
    known: dict[tuple[float, int], tuple[Floats, Floats]] = {}  # S_h and S_h A_bar_c of each table

    def maps(eta: float, h: int) -> tuple[Floats, Floats]:
        if (eta, h) not in known:
            if len(known) > 64:  # random lengths, or a step size that changes: no use for all of them
                known.clear()
            S, _ = power_sums(A, eta, h)
            known[eta, h] = S, S @ A
        return known[eta, h]

    def walk(theta: Floats, xi: Floats, active: Integers, eta: float, steps: Integers) -> Floats:
        out = np.full((len(xi), len(steps), len(theta)), np.nan)
        mine, theta_hat = table[active], np.tile(theta, (len(active), 1))
        out[active, 0] = theta_hat
        for k, h in enumerate(np.diff(steps), start=1):
            if h > 0:
                S, SA = maps(eta, int(h))
                pull = np.einsum("cij,cj->ci", S[mine], b[active] + xi[active])
                theta_hat = theta_hat + eta * (pull - np.einsum("cij,cj->ci", SA[mine], theta_hat))
            out[active, k] = theta_hat
        return out

    return walk
