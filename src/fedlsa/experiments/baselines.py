"""The one-shot baselines: every site sends one message, made from n observations of its own, and is done.

- The averaged system (federated LSTD, normal equations): sites send estimates of (A_bar_c, b_bar_c), d^2 + d numbers,
  and the server solves their average. Consistent; n times its MSE tends to tr(A^-1 S A^-T), A = sum_c w_c A_bar_c,
  S = sum_c w_c^2 Sigma_omega_c.
- The average of local solutions: sites send the solutions of their own estimates, d numbers. It tends to the mean of
  the theta_star_c, which is not theta_star unless agents are alike.

Random numbers: one NumPy generator per seed and number of observations, default_rng([seed, n]); each agent's counts of
the outcomes of its table are one multinomial draw, agent after agent. Nothing here shares draws with `fl.simulate`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from .. import theory
from ..checks import Floats
from ..problems import Problem
from .planning import Settings, problem


def estimated_systems(p: Problem, n: int, seed: int) -> tuple[Floats, Floats]:
    """Means of A(z) : (N, d, d) and of b(z) : (N, d) over n i.i.d. observations of each agent."""
    rng = np.random.default_rng([seed, n])
    spans = list(p.spans())
    means = [p.observations.mean(spans[m], rng.multinomial(n, p.prob[spans[m]]) / n) for m in p.assignment]
    return np.stack([A for A, _ in means]), np.stack([b for _, b in means])


def averaged_system(A: Floats, b: Floats, weights: Floats) -> Floats:
    """The solution (d,) of sum_c w_c A_c theta = sum_c w_c b_c (eq:lsa_syst_fed with estimates)."""
    return _solution(np.tensordot(weights, A, 1), weights @ b)


def average_of_solutions(A: Floats, b: Floats, weights: Floats) -> Floats:
    """sum_c w_c theta_c with A_c theta_c = b_c : (d,)."""
    return np.asarray(weights @ np.stack([_solution(*own) for own in zip(A, b, strict=True)]), np.float64)


def _solution(A: Floats, b: Floats) -> Floats:
    """Of all solutions the shortest, for few observations may leave directions that none has shown."""
    return np.asarray(np.linalg.lstsq(A, b)[0], np.float64)


def limits(p: Problem) -> dict[str, float]:
    """For large n: n times the MSE of the averaged system; squared bias, and n times the variance, of the average."""
    known, w = theory.constants(p), p.weights
    inverse = np.linalg.inv(np.tensordot(w, p.A_bar, 1))
    own = np.linalg.inv(p.A_bar)
    off = w @ p.theta_star_local - p.theta_star
    at_star, at_home = known.Sigma_omega, known.Sigma_eps
    return {
        "system_noise": float(np.trace(inverse @ np.tensordot(w**2, at_star, 1) @ inverse.T)),
        "solutions_bias": float(off @ off),
        "solutions_noise": float(np.einsum("c,cij,cjk,cik->", w**2, own, at_home, own)),
    }


def one_shot(settings: Settings, how: Mapping[str, object], report: object) -> xr.Dataset:
    """Squared errors (seed,) of both baselines with "samples" observations per agent, with their `limits`."""
    p, n = problem(settings), settings["samples"]
    errors = np.empty((2, settings["seeds"]))
    for seed in range(settings["seeds"]):
        A, b = estimated_systems(p, n, seed)
        for row, estimate in zip(errors, (averaged_system, average_of_solutions), strict=True):
            row[seed] = np.sum((estimate(A, b, p.weights) - p.theta_star) ** 2)
    return xr.Dataset(
        {"system": ("seed", errors[0]), "solutions": ("seed", errors[1])}
        | {name: ((), value) for name, value in limits(p).items()},
        coords={"seed": np.arange(settings["seeds"])},
    )
