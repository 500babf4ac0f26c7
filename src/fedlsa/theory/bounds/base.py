"""What a bound is, and what every theorem needs of a problem."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import checks
from ...algorithms.base import Algorithm
from ...checks import Floats
from ...errors import ArgumentError, TheoryWarning
from ...formatting import Displayed
from ...problems import Problem
from ..constants import Constants
from ..moments import start_error

Numbers = dict[str, tuple[float, float]]  # condition -> (left side, right side)
Rounds: TypeAlias = int | NDArray[np.int64]
Value: TypeAlias = Any  # a float; where several rounds were asked for, an array with one entry for each


@dataclass(frozen=True, eq=False, repr=False)
class Bound(Displayed):
    """The right-hand side of a theorem: `value` bounds what `bounds` says, if all `conditions` are met.

    `terms` add up to `value`; `numbers` holds the two sides of each condition; `mse` is the bound on
    E||theta_t - theta_star||^2 that follows. NaN where a constant does not exist, such as a(eta).
    `proved` is False where the proof rests on a statement that the paper cites and that is not proved here.
    For several `rounds`, `value`, `mse` and each term are arrays over them; conditions do not depend on rounds.
    """

    name: str
    label: str  # of the paper's LaTeX source
    bounds: str
    rounds: Rounds
    samples: Value  # observations of an agent by then; for Scaffnew the iterations K
    value: Value
    terms: dict[str, Value]
    conditions: dict[str, bool]
    mse: Value
    numbers: Numbers = field(repr=False)
    proved: bool = True

    @property
    def holds(self) -> bool:
        """Whether every condition of the theorem is met."""
        return all(self.conditions.values())


@dataclass(frozen=True, eq=False)
class Inputs:
    """The numbers of a problem that the theorems at step size eta ask for: computed, or promised by a Claim."""

    a: float  # of assum:exp_stability, at eta
    C_A: float
    Sigma_A_norm: float  # largest ||Sigma_A_c||
    eps: float  # sum_c w_c^2 tr Sigma_eps_c, the paper's sigma_eps / N
    heter: float  # sum_c w_c^2 ||Sigma_A_c|| ||theta_star_c - theta_star||^2, the paper's v_heter / N
    Sigma_A: float  # sum_c w_c^2 ||Sigma_A_c||, the paper's E_c ||Sigma_A_c|| / N
    Sigma_omega_norm: float  # largest ||Sigma_omega_c||
    sigma_omega: float  # E_c tr Sigma_omega_c
    a_sym: float  # a and L of assum:L-a-constant
    L: float
    extra: Numbers = field(default_factory=dict)  # conditions that the numbers themselves rest on


def squared_weights(problem: Problem) -> Floats:
    """sum of w_c^2 over the agents that hold each table, (M,): independent agents average with these."""
    return np.bincount(problem.assignment, problem.weights**2, problem.n_tables).astype(np.float64)


def computed_inputs(known: Constants, eta: float) -> Inputs:
    """Every number from the problem's own tables, with a = a(eta)."""
    problem = known.problem
    held = problem.table_weights > 0
    w2 = squared_weights(problem)[held]
    noise = np.linalg.norm(known.table_Sigma_A[held], 2, axis=(1, 2))
    gap = np.sum((problem.table_theta_star_local[held] - problem.theta_star) ** 2, axis=1)
    return Inputs(
        a=known.stability(eta),
        C_A=known.C_A,
        Sigma_A_norm=known.Sigma_A_norm,
        eps=float(w2 @ np.trace(known.table_Sigma_eps[held], axis1=1, axis2=2)),
        heter=float(w2 @ (noise * gap)),
        Sigma_A=float(w2 @ noise),
        Sigma_omega_norm=known.Sigma_omega_norm,
        sigma_omega=known.sigma_omega,
        a_sym=known.a_sym,
        L=known.L,
    )


def constant_step(algorithm: Algorithm) -> float:
    """The step size of a method that the theorems speak of: constant steps, all agents, the last iterate."""
    checks.instance("algorithm", algorithm, Algorithm, "a fedlsa algorithm")
    if not isinstance(algorithm.step_size, float):
        raise ArgumentError(f"the theorems need a constant step_size; got {algorithm.step_size!r}")
    for name in ("participation", "participants"):
        if getattr(algorithm, name) is not None:
            raise ArgumentError(f"the theorems need all agents to take part; got {name}={getattr(algorithm, name)!r}")
    if algorithm.projection is not None:
        raise ArgumentError(f"the theorems need projection=None; got {algorithm.projection!r}")
    if algorithm.average_after is not None:
        raise ArgumentError(f"the theorems bound the last iterate, average_after=None; got {algorithm.average_after!r}")
    return algorithm.step_size


def start_distance(problem: Problem, theta_0: ArrayLike | None) -> float:
    """||theta_0 - theta_star||; by default theta_0 = theta_star + 1."""
    return float(np.linalg.norm(start_error(problem, theta_0)))


def equal_weights(problem: Problem) -> None:
    """The paper averages with 1/N; where that matters, other weights are refused."""
    w, N = problem.weights, problem.n_agents
    if not np.allclose(w, 1 / N, rtol=1e-9, atol=0):
        c = int(np.argmax(np.abs(w - 1 / N)))
        raise ArgumentError(f"this theorem needs equal weights, {1 / N:g} each; got {w[c]:g} for agent {c}")


def finished(
    name: str,
    label: str,
    bounds: str,
    rounds: Rounds,
    samples: Value,
    terms: dict[str, Value],
    at_most: Numbers,
    mse: Value | None = None,
    proved: bool = True,
) -> Bound:
    """The bound with its conditions left <= right decided; a TheoryWarning, once, names those that fail."""
    terms = {term: _like(rounds, value) for term, value in terms.items()}
    value = sum(terms.values())
    met = {rule: bool(left <= right) for rule, (left, right) in at_most.items()}
    failed = [f"{rule} ({at_most[rule][0]:.4g} against {at_most[rule][1]:.4g})" for rule, ok in met.items() if not ok]
    if failed:
        warnings.warn(f"{name} ({label}): conditions not met: {'; '.join(failed)}", TheoryWarning, stacklevel=4)
    mse = value if mse is None else _like(rounds, mse)
    return Bound(name, label, bounds, rounds, samples, value, terms, met, mse, at_most, proved)


def _like(rounds: Rounds, value: Value) -> Value:
    """A float for one round; for several an array of their number."""
    return float(value) if isinstance(rounds, int) else np.broadcast_to(value, rounds.shape).astype(np.float64)
