"""How an agent meets its observations: independently, along a trajectory, or in the order of a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from . import checks
from .value_objects import Settings


@dataclass(frozen=True, repr=False)
class IID(Settings):
    """Independent draws from each agent's law (assum:noise-level-flsa, assum:generative_model).

    >>> p = fl.problems.garnet(agents=2, seed=0)
    >>> fl.simulate(p, fl.FedLSA(0.1, 10), 5, sampling=fl.IID(), engine="reference").attrs["sampling"]
    '{"name": "IID"}'
    """

    thin: ClassVar[int] = 1


@dataclass(frozen=True, repr=False)
class Markov(Settings):
    """One trajectory per agent that goes on across rounds (assum:P_pi_ergodicity, Algorithm algo:fed-lsa-markov).

    thin : every so many-th observation (the paper's q) makes an update; the others are received and dropped
    start : the state in which each agent's chain starts; by default drawn from its stationary law

    >>> p = fl.problems.garnet(agents=2, seed=0)
    >>> r = fl.simulate(p, fl.FedLSA(0.1, 12), 5, sampling=fl.Markov(thin=4), engine="reference")  # 3 updates each
    >>> float(r["samples"][0, -1])
    60.0
    """

    thin: int = 1
    start: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        checks.integer("thin", self.thin, at_least=1)
        if self.start is None:
            return
        states = checks.entries("start", self.start, "a sequence of states, one per agent")
        object.__setattr__(self, "start", tuple(checks.integer("start", s) for s in states))


@dataclass(frozen=True, repr=False)
class Replay(Settings):
    """Each agent's log in its own order, wrapping at its end.

    thin : every so many-th observation makes an update; the others are received and dropped

    >>> log = (np.eye(8), np.ones(8), np.roll(np.eye(8), 1, axis=0), np.zeros(8))  # phi, r, phi_next, terminated
    >>> p = fl.problems.from_transitions([log], discount=0.5)
    >>> fl.simulate(p, fl.FedLSA(0.5, 8), 40, sampling=fl.Replay(), engine="reference")["theta"].values[0, -1].round(3)
    array([2., 2., 2., 2., 2., 2., 2., 2.])
    """

    thin: int = 1

    def __post_init__(self) -> None:
        checks.integer("thin", self.thin, at_least=1)


Sampling = IID | Markov | Replay
