"""Where a run stands between two rounds: all that it needs to go on, the same for every engine.

Random numbers are a function of (seed, agent, step), so there is no generator to keep. Each engine keeps the control
variates as it works with them, so that a run that it goes on with gives the same bits: xi_c = xi[c] / scale - shift.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..problems import Problem
from ..sampling import Markov, Sampling
from .outcome_tables import OutcomeTables, first_states
from .random import OBSERVATION, block, choose_all

Integers = NDArray[np.int64]


class RunState(NamedTuple):
    """S runs between two rounds; all arrays have one entry per seed.

    theta : (S, d), the server's; running : (S, d), its mean from `average_after` on, before that where it began
    memory : (S, k - 1, d), what else the server remembers
    xi : (S, N, d), shift : (S, d), scale : (S,): the control variates
    steps : (S, N), observations that each agent has received; chain : (S, N), the state of its trajectory, else 0
    received : (S,), observations as `Schedule.received` counts them; rounds : (S,), communications
    diverged_at : (S,), first round whose theta is not finite, or -1
    """

    theta: Floats
    running: Floats
    memory: Floats
    xi: Floats
    shift: Floats
    scale: Floats
    steps: Integers
    chain: Integers
    received: Integers
    rounds: Integers
    diverged_at: Integers

    @property
    def first(self) -> int:
        """How many rounds are done, the same for all seeds."""
        return int(self.rounds[0])

    @property
    def variates(self) -> Floats:
        """xi_c + shift : (S, N, d)."""
        return self.xi if (self.scale == 1).all() else np.asarray(self.xi / self.scale[:, None, None])

    @property
    def control_variates(self) -> Floats:
        """xi_c : (S, N, d)."""
        return np.asarray(self.variates - self.shift[:, None])

    def of_seeds(self, which: slice) -> RunState:
        """The state of some of the seeds."""
        return RunState._make(values[which] for values in self)


def beginning(
    problem: Problem,
    sampling: Sampling,
    outcomes: OutcomeTables,
    seeds: NDArray[np.uint64],
    theta: Floats,
    xi: Floats,
    memory: int = 0,
) -> RunState:
    """The state before the first round; theta : (d,) or (S, d), xi : (N, d) or (S, N, d), memory : k - 1."""
    S, N, d = len(seeds), problem.n_agents, problem.dim
    theta = np.broadcast_to(theta, (S, d))
    none = np.zeros(S, np.int64)
    chain = np.broadcast_to(np.int64(0), (S, N))
    if isinstance(sampling, Markov):
        chain = first_states(problem, sampling, outcomes, seeds)
    return RunState(
        theta,
        theta,
        memory=np.broadcast_to(0.0, (S, memory, d)),
        xi=np.broadcast_to(xi, (S, N, d)),
        shift=np.broadcast_to(0.0, (S, d)),
        scale=np.ones(S),
        steps=np.broadcast_to(np.int64(0), (S, N)),
        chain=chain,
        received=none,
        rounds=none,
        diverged_at=none - 1,
    )


def chain_positions(problem: Problem, outcomes: OutcomeTables, chain: Integers) -> Integers:
    """Where the alias tables of states begin; chain, and the result : (..., N)."""
    m = problem.assignment
    return np.asarray(outcomes.row[m] + (chain << (32 - outcomes.shift[m])))


def chain_states(problem: Problem, outcomes: OutcomeTables, positions: Integers) -> Integers:
    """The inverse of `chain_positions`."""
    m = problem.assignment
    return np.asarray((positions - outcomes.row[m]) >> (32 - outcomes.shift[m]))


def _follow(
    outcomes: OutcomeTables, table: Integers, seed: int, agent: Integers, state: Integers, steps: Integers
) -> Integers:
    """The states of trajectories after so many `steps` that were in `state` at the multiple of four before."""
    row, shift = outcomes.row[table], outcomes.shift[table]
    position = row + (state << (32 - shift))
    drawn = block(seed, agent.astype(np.uint64), OBSERVATION, (steps // 4).astype(np.uint64))
    for i in range(3):
        word = drawn[i].astype(np.int64)
        k = position + choose_all(word, outcomes.slots[position + (word >> shift)].astype(np.int64), shift)
        position = np.where(i < steps % 4, outcomes.successor[k].astype(np.int64), position)
    return np.asarray((position - row) >> (32 - shift))


def from_block_start(
    problem: Problem, outcomes: OutcomeTables, seed: int, chain: Integers, steps: Integers
) -> Integers:
    """The states of trajectories now, from those at the last multiple of four of their steps; all : (N,)."""
    return _follow(outcomes, problem.assignment, seed, np.arange(problem.n_agents), chain, steps)


def to_block_start(problem: Problem, outcomes: OutcomeTables, seed: int, chain: Integers, steps: Integers) -> Integers:
    """States from which the draws since the last multiple of four lead to those of now; all : (N,).

    Trajectories may meet, so they need not be the states that were: what comes from now on is the same.
    """
    states = outcomes.length[problem.assignment]
    agent = np.repeat(np.arange(problem.n_agents), states)
    state = np.arange(len(agent)) - np.repeat(np.cumsum(states) - states, states)
    leads = _follow(outcomes, problem.assignment[agent], seed, agent, state, steps[agent]) == chain[agent]
    out = np.empty_like(chain)
    out[agent[leads]] = state[leads]
    return out
