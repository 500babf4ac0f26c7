"""How an agent meets its observations: independently, along a trajectory, in the order of a log, or in a way of one's
own, which is another law of them (theory and all engines take it) or another order (engines "cpu" and "reference")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import checks
from .errors import ArgumentError
from .problems import Problem
from .value_objects import Checked, count

SAME_MEANS = 1e-9  # by which a law of one's own may move A_bar and b_bar, relative to their size


@dataclass(frozen=True, repr=False)
class Sampling(Checked):
    """Base of all samplings; one of your own is a frozen dataclass that says one of two things.

    reweighted(problem) gives another law: a problem of the same agents with the same A_bar and b_bar, as
    `problem.with_prob(q)` makes it, of whose tables all then draw independently.

    order, a static function (rows, words) that Numba can compile, gives another order. It changes `rows`, at first
    0, 1, ..., length - 1 of the agent's table, into those of its next pass; `words`, as many, are random numbers from 0
    to 2^32 - 1 drawn from (seed, agent, pass). The outcomes of a table must be equally likely.

    >>> class Flat(fl.Sampling):  # all outcomes of a table equally often
    ...     def reweighted(self, problem):
    ...         return problem.with_prob(np.concatenate([np.full(n, 1 / n) for n in np.diff(problem.first)]))
    >>> p, a = fl.problems.garnet(agents=2, seed=1), fl.SCAFFLSA(0.1, 10)
    >>> [float(fl.theory.exact(p, a, 50, sampling=s).mse[-1].round(2)) for s in (fl.IID(), Flat())]
    [0.27, 0.4]
    """

    thin = 1  # every so many-th observation makes an update
    order: ClassVar[Any] = None

    def reweighted(self, problem: Problem) -> Problem:
        """The problem with the law that is drawn from; by default its own."""
        return problem


@dataclass(frozen=True, repr=False)
class IID(Sampling):
    """Independent draws from each agent's law (assum:noise-level-flsa, assum:generative_model).

    >>> p = fl.problems.garnet(agents=2, seed=0)
    >>> fl.simulate(p, fl.FedLSA(0.1, 10), 5, sampling=fl.IID(), engine="reference").attrs["sampling"]
    '{"name": "IID"}'
    """


@dataclass(frozen=True, repr=False)
class Markov(Sampling):
    """One trajectory per agent that goes on across rounds (assum:P_pi_ergodicity, Algorithm algo:fed-lsa-markov).

    thin : every so many-th observation (the paper's q) makes an update; the others are received and dropped
    start : the state in which each agent's chain starts; by default drawn from its stationary law

    >>> p = fl.problems.garnet(agents=2, seed=0)
    >>> r = fl.simulate(p, fl.FedLSA(0.1, 12), 5, sampling=fl.Markov(thin=4), engine="reference")  # 3 updates each
    >>> float(r["samples"][0, -1])
    60.0
    """

    thin: int = count(1, at_least=1)
    start: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start is not None:
            states = checks.entries("start", self.start, "a sequence of states, one per agent")
            object.__setattr__(self, "start", tuple(checks.integer("start", s) for s in states))


@dataclass(frozen=True, repr=False)
class Replay(Sampling):
    """Each agent's log in its own order, wrapping at its end.

    thin : every so many-th observation makes an update; the others are received and dropped

    >>> log = (np.eye(8), np.ones(8), np.roll(np.eye(8), 1, axis=0), np.zeros(8))  # phi, r, phi_next, terminated
    >>> p = fl.problems.from_transitions([log], discount=0.5)
    >>> fl.simulate(p, fl.FedLSA(0.5, 8), 40, sampling=fl.Replay(), engine="reference")["theta"].values[0, -1].round(3)
    array([2., 2., 2., 2., 2., 2., 2., 2.])
    """

    thin: int = count(1, at_least=1)


BUILT_IN = (IID, Markov, Replay)


def law_of(problem: Problem, sampling: Sampling) -> tuple[Problem, Sampling]:
    """The problem whose tables are drawn from, and how: a law of one's own is then drawn from independently."""
    if isinstance(sampling, BUILT_IN):
        return problem, sampling
    kind = type(sampling).__name__
    law = sampling.reweighted(problem)
    checks.instance(f"reweighted of {kind}", law, Problem, "a fedlsa problem")
    for name in ("A_bar", "b_bar"):
        old, new = getattr(problem, name), getattr(law, name)
        off = np.abs(new - old).max() / np.abs(old).max(initial=1e-300) if new.shape == old.shape else np.inf
        if not off <= SAME_MEANS:
            raise ArgumentError(f"reweighted of {kind} must keep {name} of every agent; got one that is {off:.2g} off")
    if not np.array_equal(law.weights, problem.weights):
        raise ArgumentError(f"reweighted of {kind} must keep the weights of agents; got others")
    if sampling.order is None:
        return law, IID()
    length = np.diff(law.first)[np.repeat(np.arange(law.n_tables), np.diff(law.first))]
    if np.abs(law.prob * length - 1).max() > SAME_MEANS:
        rule = f"order of {kind} needs outcomes that are equally likely in their table"
        raise ArgumentError(f"problem must have equal prob: {rule}; got from {law.prob.min():g} to {law.prob.max():g}")
    return law, sampling
