"""The run itself: a plan for the target accuracy, and the method on the sites' rows or on their means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms import METHODS, Algorithm
from ..checks import Floats
from ..engine import simulate
from ..errors import ArgumentError, DivergenceError
from ..problems import from_observations
from ..problems.base import Problem, RankOne
from ..problems.tables import offsets
from ..sampling import IID, Replay
from ..theory import exact, plan
from ..theory.planner import LARGEST, Plan
from .observe import Piece
from .systems import System

Progress = Callable[[float, float], None]


@dataclass(frozen=True)
class Settings:
    """How to run: a target accuracy from which the rest follows, or step size, local steps and rounds by hand."""

    method: str
    epsilon: float | None
    step_size: float | None
    local_steps: int | None
    rounds: int | None
    max_samples: float | None
    in_order: bool  # rows in the order of the log instead of at random
    seed: int

    @property
    def by_hand(self) -> bool:
        return self.step_size is not None


@dataclass(frozen=True, eq=False)
class Outcome:
    """Where the run ended : (d,), what it was, and the parts of its mean squared error about the data's solution."""

    theta: Floats
    plan: Plan
    squared_bias: float
    variance: float
    sure: bool  # whether the two come from exact theory; else from how the run came out


def rows_problem(sites: Sequence[Sequence[Piece]], weights: Floats, ridge: float) -> Problem:
    """The sites' rows as tables of observations, each row with probability 1 / n_c."""
    counts = [sum(len(p.y) for p in pieces) for pieces in sites]
    first, K = offsets(counts), sum(counts)
    left: NDArray[np.uint32] = np.arange(K, dtype=np.uint32)
    pieces = [p for site in sites for p in site]
    same = all(p.u is p.v for p in pieces)
    rows = [p.u for p in pieces] + ([] if same else [p.v for p in pieces])
    z = RankOne(
        np.concatenate(rows), left, left if same else left + np.uint32(K), np.concatenate([p.y for p in pieces]), ridge
    )
    prob = np.repeat(1 / np.diff(first), np.diff(first))
    return Problem(z, prob, first, np.arange(len(counts)), weights, ordered=True)


def means_problem(systems: Sequence[System], weights: Floats) -> Problem:
    """The sites' means as tables of one observation each: local steps without noise."""
    tables = [(np.ones(1), s.A[None], s.b[None]) for s in systems]
    return from_observations(tables, weights=weights)


def run(problem: Problem, s: Settings, progress: Progress | None = None) -> Outcome:
    """Plan where an accuracy is asked for, run from 0, and say how far from the data's solution that is."""
    zero = np.zeros(problem.dim)
    if s.by_hand:
        algorithm, rounds = _by_hand(s)
        made = _priced(problem, algorithm, rounds)
    else:
        made = plan(problem, s.epsilon, method=s.method, max_samples=s.max_samples, theta_0=zero)
        algorithm, rounds = made.algorithm, made.rounds
    sampling = Replay() if s.in_order else IID()
    r = simulate(problem, algorithm, rounds, [s.seed], zero, sampling=sampling, record=[0, rounds], progress=progress)
    if int(r["diverged_at"][0]) >= 0:
        raise DivergenceError(
            f"the run left the range of numbers at round {int(r['diverged_at'][0])}: "
            f"step_size must be smaller; got {algorithm.step_size:g}"
        )
    theta = np.asarray(r["theta"].values[0, -1], np.float64)
    if not s.in_order and problem.dim <= LARGEST[s.method]:
        found = exact(problem, algorithm, rounds, zero, record=[0, rounds]).isel(round=-1)
        bias, variance = float(found["squared_bias"]), max(float(found["variance"]), 0.0)
        sure = True
    else:
        bias, variance, sure = float(np.sum((theta - problem.theta_star) ** 2)), 0.0, False
    return Outcome(theta, made, bias, variance, sure)


def _by_hand(s: Settings) -> tuple[Algorithm, int]:
    for name in ("step_size", "local_steps", "rounds"):
        if getattr(s, name) is None:
            raise ArgumentError(f"step_size, local_steps and rounds must be given together; got no {name}")
    assert s.local_steps is not None
    assert s.rounds is not None
    length = {"probability": 1 / s.local_steps} if s.method == "scaffnew" else {"local_steps": s.local_steps}
    return METHODS[s.method](step_size=s.step_size, **length), s.rounds  # type: ignore[arg-type]


def _priced(problem: Problem, algorithm: Algorithm, rounds: int) -> Plan:
    steps = 1 / algorithm.probability if hasattr(algorithm, "probability") else algorithm.local_steps  # type: ignore[attr-defined]
    uploads = problem.n_agents * rounds
    return Plan(
        algorithm, rounds, float(rounds * steps), math.nan, uploads, 16 * problem.dim * uploads, "given by hand"
    )
