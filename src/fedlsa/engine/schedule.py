"""What each round of a run does, as plain data: its length, its step size, its gain, and who takes part.

Whoever runs a method reads its rounds here: every engine, the agents' paths, the server of a network. The random
numbers are a function of (seed, round), so the rounds of a run may be asked for all at once or a few at a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..algorithms import Algorithm
from ..checks import Floats
from ..sampling import Sampling
from .random import participants, uniforms

Integers = NDArray[np.int64]


class Schedule(NamedTuple):
    """The rounds first, first + 1, ... of a run; arrays have one entry per round. Compiled code takes it as it is.

    thin : every thin-th observation makes an update
    n_agents : N; participants : (T, m), the agents that take part, in increasing order; (T, 0) where all N do
    observations : (T,), how many each of them receives; step_sizes, gains : (T,); all (T, N) where agents differ
    """

    first: int
    thin: int
    n_agents: int
    observations: Integers
    step_sizes: NDArray[Any]
    gains: Floats
    participants: Integers

    @property
    def updates(self) -> Integers:
        """Local steps of each agent that takes part, (T,) or (T, N)."""
        return self.observations // self.thin

    @property
    def received(self) -> Integers:
        """(T,): observations of an agent that takes part in all rounds; of all together where agents differ."""
        if self.observations.ndim == 1:
            return self.observations
        taken = self.participants.shape[1] > 0
        observed = np.take_along_axis(self.observations, self.participants, 1) if taken else self.observations
        return np.asarray(observed.sum(1))

    def active(self, t: int) -> Integers:
        """(m,): the agents that take part in the t-th of these rounds."""
        return self.participants[t] if self.participants.shape[1] else np.arange(self.n_agents)


def schedule(
    algorithm: Algorithm, sampling: Sampling, seed: int, rounds: int, n_agents: int | None = None, first: int = 0
) -> Schedule:
    """The rounds first, ..., first + rounds - 1 of the run of a method from a seed; n_agents=None : whoever takes part.

    >>> import fedlsa as fl
    >>> s = schedule(fl.SCAFFLSA(0.1, 5, participants=2), fl.IID(), seed=0, rounds=3, n_agents=4)
    >>> s.observations, s.step_sizes, s.gains, s.participants.shape
    (array([5, 5, 5]), array([0.1, 0.1, 0.1]), array([2., 2., 2.]), (3, 2))
    """
    key, thin = np.uint64(seed), sampling.thin
    uniform = uniforms(seed, first, rounds) if algorithm.random_lengths else np.zeros(rounds)
    N, at = n_agents or 0, np.arange(first, first + rounds)
    eta, observations = algorithm.eta(at), observations_of(algorithm, at, uniform, thin)
    eta, observations, gain = algorithm.of_agents(eta, observations, thin, N)
    m = algorithm.taking_part(N) if N else 0
    active = np.empty((rounds, m if m < N else 0), np.int64)
    if m < N:
        participants(key, first, N, active)
    return Schedule(first, thin, N, observations, eta, gain, active)


def observations_of(algorithm: Algorithm, rounds: Integers, uniform: Floats, thin: int) -> Integers:
    """What a method says of the lengths of rounds, checked: compiled code trusts the arrays that it gets."""
    name = f"observations of {type(algorithm).__name__}"
    lengths = checks.array(name, algorithm.observations_in(rounds, uniform, thin), uniform.shape)
    integral = (lengths == np.floor(lengths)) & (lengths < 2.0**63)
    checks.refuse(~integral, lengths, f"{name} must be whole numbers below 2**63")
    checks.refuse(lengths < thin, lengths, f"{name} must be at least {thin}, or a round makes no update")
    return lengths.astype(np.int64)


def typical_observations(algorithm: Algorithm, thin: int, agents: int, rounds: int = 1) -> Integers:
    """(64,): how many observations a round receives, at 64 quantiles of its law; (1, N) where agents differ.

    Of rounds that grow, at the ends of 64 parts of all rounds, so that their mean is not too small.
    """
    at = -(-rounds * np.arange(1, 65) // 64) - 1
    lengths = observations_of(algorithm, at, np.arange(0.5, 64) / 64, thin)
    if algorithm.agent_factors(agents) is not None and not algorithm.grows:
        lengths = lengths[:1]  # the others are equal
    etas = algorithm.eta(at if algorithm.grows else np.minimum(np.arange(len(lengths)), rounds - 1))
    return algorithm.of_agents(etas, lengths, thin, agents)[1]


def expected_updates(algorithm: Algorithm, sampling: Sampling, n_agents: int, rounds: int = 1) -> float:
    """Observations that all agents of one seed receive in a round, in expectation: the cost of a round."""
    each = typical_observations(algorithm, sampling.thin, n_agents, rounds)
    return algorithm.taking_part(n_agents) * float(np.mean(each))
