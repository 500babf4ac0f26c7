"""Problems without tables: means that are known, and a function of yours that draws observations from random numbers.

A finite table with the same means and covariances stands in for the observations in exact theory, which needs no more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from math import cos, log, pi, sin, sqrt
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from .arguments import agents, filled, offsets, recorded
from .system import ROUNDING, Dense, Problem

MOST_UNIFORMS = 2**12  # of an observation: they stand on a thread's stack
DRAW = "a function of (agent, uniforms, u, v) that fills u and v, returns y, and that Numba can compile"


@dataclass(frozen=True, eq=False, repr=False)
class Stream(Dense):
    """Observations A(z) = u v^T and b(z) = y u that a function draws: a step costs O(d).

    A, b : outcomes with their means and covariances, for theory; where covariances are not known the means alone
    draw : the function (agent, uniforms, u, v) -> y; uniforms : how many random numbers it gets
    moments : whether covariances are known
    """

    draw: Callable[..., float]
    uniforms: int
    moments: bool

    def __post_init__(self) -> None:
        checks.callback("draw", self.draw)
        try:
            inspect.signature(self.draw).bind("agent", "uniforms", "u", "v")
        except (TypeError, ValueError):
            raise ArgumentError(f"draw must be {DRAW}; got {checks.show(self.draw)}") from None
        checks.integer("uniforms", self.uniforms, at_least=1, at_most=MOST_UNIFORMS)
        checks.boolean("moments", self.moments)
        super().__post_init__()

    def stand_in(self) -> Dense:
        """The table that theory takes in its place; refused where covariances are not known."""
        if not self.moments:
            rule = "covariance of fl.problems.stream must be given for theory of second moments"
            raise ArgumentError(f"{rule}; got None: problem.on_means() has the exact means")
        return Dense(self.A, self.b)

    def matrices(self, span: slice) -> NoReturn:
        """Refused: there is no list of all outcomes, in `span` or elsewhere."""
        raise ArgumentError("problem must have tables that list its observations; got a stream, which draws them")

    factors = matrices


def stream(
    A_bar: ArrayLike,
    b_bar: ArrayLike,
    draw: Callable[..., float],
    uniforms: int,
    covariance: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    assignment: ArrayLike | None = None,
) -> Problem:
    """A federated linear system (eq:lsa_syst_fed) of any law with known means, whose observations a function draws.

    A_bar : (M, d, d) and b_bar : (M, d), the means of A(z) = u v^T and b(z) = y u
    draw : the function (agent, uniforms, u, v), which Numba compiles. It fills u and v, (d,) each and 0 at first, and
        returns y; `fl.problems.to_normals` makes normal numbers of uniforms
    uniforms : how many random numbers in (0, 1) it gets, rounded up to an even one; they depend on seed, agent and
        number of the observation alone
    covariance : (M, d^2 + d, d^2 + d) of the numbers of A(z), row by row, and then of b(z), for exact second moments
    weights, assignment : (N,) how much each agent counts, by default the same; which means it has, by default its own

    >>> def draw(agent, uniforms, u, v):
    ...     u[0] = v[0] = 1.0
    ...     return 6 * uniforms[0]
    >>> p = fl.problems.stream([[[1.0]]], [[3.0]], draw, uniforms=1, covariance=[[[0, 0], [0, 3.0]]])
    >>> p.theta_star, round(fl.theory.stationary(p, fl.FedLSA(0.1, 1)).mse, 6)  # 3 eta / (2 - eta)
    (array([3.]), 0.157895)
    """
    A = filled("A_bar", A_bar, ("M", "d", "d"))
    M, d = A.shape[:2]
    b = checks.array("b_bar", b_bar, (M, d))
    count = checks.integer("uniforms", uniforms, at_least=1)
    count, draw = count + count % 2, getattr(draw, "py_func", draw)  # of what Numba has compiled
    C = np.zeros((M, 0, 0)) if covariance is None else checks.array("covariance", covariance, (M, d * d + d, d * d + d))
    points = [_spread_points(each, d * d + d) for each in C]
    first = offsets([len(each) for each in points])
    prob, table = np.repeat(1 / np.diff(first), np.diff(first)), np.repeat(np.arange(M), np.diff(first))
    z = np.concatenate([A.reshape(M, -1), b], 1)[table] + np.concatenate(points)
    observations = Stream(z[:, : d * d].reshape(-1, d, d), z[:, d * d :], draw, count, covariance is not None)
    problem = Problem(observations, prob, first, *agents(M, assignment, weights), laboratory=True)
    given: dict[str, Any] = {"A_bar": A_bar, "b_bar": b_bar, "covariance": covariance, "weights": weights}
    return recorded(problem, "stream", {"draw": draw, "uniforms": count}, assignment=assignment, **given)


def _spread_points(C: Floats, D: int) -> Floats:
    """(K, D): points that are equally likely, with mean 0 and this covariance; 0 alone where it is 0 or empty."""
    if not C.any():
        return np.zeros((1, D))
    values, vectors = np.linalg.eigh(C)
    if np.abs(C - C.T).max() > ROUNDING * values[-1] or values[0] < -ROUNDING * values[-1]:
        rule = "covariance must be symmetric, without negative eigenvalues"
        raise ArgumentError(f"{rule}; got one with eigenvalues from {values[0]:g} to {values[-1]:g}")
    held = values > D * np.finfo(np.float64).eps * values[-1]
    half = (vectors[:, held] * np.sqrt(values[held] * held.sum())).T
    return np.concatenate([half, -half])


def to_normals(uniforms: Floats) -> None:
    """Turn uniforms, random numbers in (0, 1), in place and pair by pair, into normal ones (Box and Muller).

    Of an odd number the last one stays as it is. Functions that Numba compiles for fedlsa may call this.

    >>> x = np.array([0.5, 0.25, 0.9])
    >>> fl.problems.to_normals(x)
    >>> x.round(6) + 0.0
    array([0.     , 1.17741, 0.9    ])
    """
    for i in range(0, len(uniforms) - 1, 2):
        radius, angle = sqrt(-2 * log(uniforms[i])), 2 * pi * uniforms[i + 1]
        uniforms[i], uniforms[i + 1] = radius * cos(angle), radius * sin(angle)
