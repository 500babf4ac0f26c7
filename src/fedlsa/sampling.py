"""How an agent meets its observations: independently, along a trajectory, or in the order of a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from . import checks


@dataclass(frozen=True)
class IID:
    """Independent draws from each agent's law (assum:noise-level-flsa, assum:generative_model)."""

    thin: ClassVar[int] = 1


@dataclass(frozen=True)
class Markov:
    """One trajectory per agent that goes on across rounds (assum:P_pi_ergodicity, Algorithm algo:fed-lsa-markov).

    Every `thin`-th observation (the paper's q) makes an update; the others are received and dropped.
    A chain starts from its stationary law, or from `start`: one state per agent.
    """

    thin: int = 1
    start: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        checks.integer("thin", self.thin, at_least=1)
        if self.start is None:
            return
        states = checks.entries("start", self.start, "a sequence of states, one per agent")
        object.__setattr__(self, "start", tuple(checks.integer("start", s) for s in states))


@dataclass(frozen=True)
class Replay:
    """Each agent's log in its own order, wrapping at its end; every `thin`-th observation makes an update."""

    thin: int = 1

    def __post_init__(self) -> None:
        checks.integer("thin", self.thin, at_least=1)


Sampling = IID | Markov | Replay
