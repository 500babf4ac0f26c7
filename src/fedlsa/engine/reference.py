"""The recursion in plain NumPy, written to be read beside the paper; every other engine is held to it by tests.

It draws the same random numbers as the compiled engine, one at a time, and keeps nothing clever.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms import Algorithm
from ..checks import Floats
from ..problems import Problem
from ..sampling import Markov, Replay, Sampling
from .hooks import apply_server_step
from .random import OBSERVATION, choose, participants, uniforms, words
from .tables import Layout, first_states

Integers = NDArray[np.int64]


@dataclass
class Observer:
    """One agent's stream of observations for one seed: `receive` gives (A(z), b(z)) of the next one."""

    problem: Problem
    sampling: Sampling
    where: Layout
    seed: int
    agent: int
    state: int | None  # of its trajectory, if it follows one
    step: int = 0  # how many observations it has received

    def __post_init__(self) -> None:
        self.table = int(self.problem.assignment[self.agent])
        self.shift = int(self.where.shift[self.table])
        if self.state is not None:
            self.position = self.where.row[self.table] + (self.state << (32 - self.shift))

    def receive(self) -> tuple[Floats, Floats]:
        """A(z) : (d, d) and b(z) : (d,) of the next observation."""
        where, m = self.where, self.table
        if isinstance(self.sampling, Replay):
            k = where.row[m] + self.step % where.length[m]
        else:
            word = int(words(np.uint64(self.seed), self.agent, OBSERVATION, self.step, 1)[0])
            if isinstance(self.sampling, Markov):
                entry = int(where.slots[self.position + (word >> self.shift)])
                k = self.position + choose(word, entry, self.shift)
                self.position = int(where.successor[k])
            else:
                entry = int(where.slots[where.slot[m] + (word >> self.shift)])
                k = where.row[m] + choose(word, entry, self.shift)
        self.step += 1
        z = int(where.order[k])
        A, b = self.problem.observations.matrices(slice(z, z + 1))
        return A[0], b[0]


@dataclass
class Trajectory:
    """What one seed leaves behind: theta at the recorded rounds, final control variates, where it diverged."""

    theta: Floats  # (records, d)
    xi: Floats  # (N, d)
    observations: Integers  # (rounds,)
    diverged_at: int


@np.errstate(over="ignore", invalid="ignore")  # a run that diverges says so itself
def run_seed(
    problem: Problem,
    algorithm: Algorithm,
    sampling: Sampling,
    where: Layout,
    rounds: int,
    recorded: Integers,
    seed: int,
    theta_0: Floats,
    xi_0: Floats,
    dtype: str = "float64",
) -> Trajectory:
    """One run of a method: Algorithm 1 (algo:fed-lsa), Algorithm 2 (algo:fed-lsa-controlvar-h2), Scaffnew
    (algo:fed-lsa-controlvar-h1), with i.i.d., Markov (algo:fed-lsa-markov) or replayed observations."""
    N, q, w = problem.n_agents, sampling.thin, problem.weights
    m = algorithm.taking_part(N)
    lengths = algorithm.observations(uniforms(np.uint64(seed), 0, rounds), q)
    etas = algorithm.eta(np.arange(rounds))
    gains = algorithm.gain(etas, lengths // q)
    everyone = np.arange(N)
    states = first_states(problem, sampling, where, seed) if isinstance(sampling, Markov) else None
    agents = [Observer(problem, sampling, where, seed, c, None if states is None else int(states[c])) for c in range(N)]

    theta, xi = theta_0.copy(), xi_0.copy()  # what lasts from round to round is float64; local steps are in dtype
    average, diverged_at, out = theta.copy(), -1, {0: theta.copy()}
    for t in range(rounds):
        eta, H = etas[t].astype(dtype), int(lengths[t])
        active = everyone
        if m < N:
            chosen = np.empty((1, m), np.int64)
            participants(np.uint64(seed), t, N, chosen)
            active = chosen[0]
        start, change = theta.astype(dtype), np.zeros((N, len(theta)))
        for c in active:
            theta_hat = start
            for h in range(1, H + 1):
                A, b = agents[c].receive()
                if h % q == 0:
                    theta_hat = theta_hat - eta * (A.astype(dtype) @ theta_hat - b.astype(dtype) - xi[c].astype(dtype))
            change[c] = theta_hat.astype(np.float64) - start
        moved = w @ change
        mean = theta + N / m * moved
        xi += gains[t] * (moved - change)  # of all agents, and keeps sum_c w_c xi_c = 0
        theta = apply_server_step(algorithm, theta, mean, t + 1)
        norm = np.sqrt(theta @ theta)
        if algorithm.projection is not None and norm > algorithm.projection:
            theta = theta * (algorithm.projection / norm)
        if not np.isfinite(norm) and diverged_at < 0:
            diverged_at = t + 1
        best = theta
        if algorithm.average_after is not None and t + 1 >= algorithm.average_after:
            average = average + (theta - average) / (t + 2 - algorithm.average_after)
            best = average
        out[t + 1] = best.copy()
    return Trajectory(np.stack([out[int(r)] for r in recorded]), xi, lengths, diverged_at)
