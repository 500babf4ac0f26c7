"""The run itself: a plan for the target accuracy, and the method on the sites' rows or on their means."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..algorithms import METHODS, Algorithm, FedLSA
from ..checks import Floats
from ..engine import simulate
from ..errors import ArgumentError, DivergenceError, DivergenceWarning, TheoryWarning
from ..problems import Problem, RankOne, from_observations
from ..problems.arguments import offsets
from ..sampling import IID, Replay
from ..theory import bias as limit_bias
from ..theory import exact, plan, stability_limit
from ..theory.planner import MAX_EXACT_DIM, Plan
from .observe import Piece
from .systems import System

Progress = Callable[[float, float], None]
QUICK = 1e6  # local steps of all sites that are done before threads have started
CHEAP, FEW = 8, 100  # dimension and number of sites up to which the largest stable step size is quickly found


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
    """Where the run ended : (d,), what it was, and its error about the data's solution.

    bias : (d,) mean of theta minus the data's solution; drift : (d,) the part of it that more rounds do not remove
    variance : E||theta - E theta||^2; sure : whether it is known, else it is the square of how the run came out
    """

    theta: Floats
    plan: Plan
    bias: Floats
    drift: Floats
    variance: float
    sure: bool


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


def planned(problem: Problem, s: Settings) -> Plan:
    """The run that reaches the accuracy asked for from 0, or the one that is given by hand."""
    if s.by_hand:
        return _priced(problem, *_by_hand(s))
    return plan(problem, s.epsilon, method=s.method, max_samples=s.max_samples, theta_0=np.zeros(problem.dim))


def run(problem: Problem, made: Plan, s: Settings, progress: Progress | None = None) -> Outcome:
    """Run from 0 as planned, and say how far from the data's solution that is."""
    algorithm, rounds, zero = made.algorithm, made.rounds, np.zeros(problem.dim)
    sampling = Replay() if s.in_order else IID()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)  # here it is an error
        threads = 1 if problem.n_agents * made.samples < QUICK else None
        r = simulate(
            problem, algorithm, rounds, [s.seed], zero,
            sampling=sampling, record=[0, rounds], threads=threads, progress=progress,
        )  # fmt: skip
    if int(r["diverged_at"][0]) >= 0:
        raise _diverged(problem, algorithm, f"left the range of numbers at round {int(r['diverged_at'][0])}")
    theta = np.asarray(r["theta"].values[0, -1], np.float64)
    bias, variance, sure = _error(problem, algorithm, rounds, s, theta)
    if not (math.isfinite(variance) and np.isfinite(bias).all()):
        raise _diverged(problem, algorithm, f"has an infinite mean squared error after {rounds} rounds")
    if s.by_hand:
        basis = "given by hand, " + ("exact moments" if sure else "as the run came out")
        made = replace(made, rmse=math.sqrt(float(bias @ bias) + variance), basis=basis)
    return Outcome(theta, made, bias, _drift(problem, algorithm), variance, sure)


def _error(
    problem: Problem, algorithm: Algorithm, rounds: int, s: Settings, theta: Floats
) -> tuple[Floats, float, bool]:
    """The mean of theta minus the data's solution : (d,), its variance, and whether exact theory knows both.

    Where it knows only the mean (a log in its order) the variance is the square of what came out beside it; where it
    knows nothing (rows in large dimensions), of all that came out.
    """
    off, zero = theta - problem.theta_star, np.zeros(problem.dim)
    if s.method != "scaffnew" and len(problem.prob) == problem.n_tables:  # one outcome each: nothing is random
        return off, 0.0, True
    if problem.dim > MAX_EXACT_DIM[s.method]:
        return zero, float(off @ off), False
    found = exact(problem, algorithm, rounds, zero, record=[0, rounds]).isel(round=-1)
    bias = found["mean"].values - problem.theta_star
    if not s.in_order:
        return bias, max(float(found["variance"]), 0.0), True
    if not np.isfinite(bias).all():  # a log may be kinder than rows at random
        bias = zero
    return bias, float(np.sum((off - bias) ** 2)), False


def _drift(problem: Problem, algorithm: Algorithm) -> Floats:
    """The limit bias of FedLSA (th:2nd_moment_no_cv) : (d,); 0 for methods with control variates."""
    if not isinstance(algorithm, FedLSA):
        return np.zeros(problem.dim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TheoryWarning)
        found = limit_bias(problem, float(algorithm.step_size), algorithm.local_steps)  # type: ignore[arg-type]
    return found if np.isfinite(found).all() else np.zeros(problem.dim)


def _diverged(problem: Problem, algorithm: Algorithm, what: str) -> DivergenceError:
    """The error for a run that is not stable; in small dimensions it says which step sizes are."""
    rule = "smaller"
    if problem.dim <= CHEAP and problem.n_agents <= FEW:
        rule = f"below {stability_limit(problem, algorithm, tolerance=1e-2):.3g}, where its error stays finite"
    return DivergenceError(f"the run {what}: step_size must be {rule}; got {algorithm.step_size:g}")


def _by_hand(s: Settings) -> tuple[Algorithm, int]:
    for name in ("step_size", "local_steps", "rounds"):
        if getattr(s, name) is None:
            raise ArgumentError(f"step_size, local_steps and rounds must be given together; got no {name}")
    assert s.local_steps is not None
    assert s.rounds is not None
    return METHODS[s.method].with_steps(s.step_size, s.local_steps), s.rounds  # type: ignore[arg-type]


def _priced(problem: Problem, algorithm: Algorithm, rounds: int) -> Plan:
    uploads = problem.n_agents * rounds
    return Plan(
        algorithm,
        rounds,
        float(rounds * algorithm.mean_steps),
        math.nan,
        uploads,
        16 * problem.dim * uploads,
        "given by hand",
    )
