"""What the solutions of a federated problem say of each agent's values: the kind of cell behind `values`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from .. import problems, theory
from ..checks import Floats
from ..problems import Problem, RankOne


def values(p: Problem) -> tuple[Floats, Floats, Floats]:
    """V_c and mu_c of every agent, (N, S), and the features Phi, (S, d)."""
    V = theory.value_functions(p)
    assert isinstance(p.observations, RankOne)
    return V, theory.stationary_law(p), p.observations.rows[: V.shape[1]]


def squared_errors(V: Floats, mu: Floats, phi: Floats, theta: Floats) -> Floats:
    """||Phi theta_i - V_c||^2 in mu_c for each parameter and each agent's world; theta : (k, d), returns (k, N)."""
    gap = (theta @ phi.T)[:, None, :] - V[None]
    return np.asarray(np.einsum("cs,kcs->kc", mu, gap**2), np.float64)


def _closest(V: Floats, mu: Floats, phi: Floats) -> Floats:
    """The parameter with the least total squared error in the given worlds; V, mu : (k, S)."""
    root = np.sqrt(mu)
    rows, values = (root[..., None] * phi).reshape(-1, phi.shape[1]), (root * V).ravel()
    return np.asarray(np.linalg.lstsq(rows, values, rcond=None)[0], np.float64)


def value_errors(settings: Mapping[str, Any], how: Mapping[str, Any], report: Any) -> xr.Dataset:
    """Squared value errors in every agent's world: of theta_star, the virtual MDP's solution, each local solution.

    Beside them, as ends of the scale: the zero function, the best shared parameter and each agent's own best.
    """
    problem = problems.garnet(**settings["problem"])
    V, mu, phi = values(problem)
    shared = {
        "shared": problem.theta_star,
        "virtual": theory.virtual_mdp(problem).theta_tilde,
        "best_shared": _closest(V, mu, phi),
        "zero": np.zeros(problem.dim),
    }
    errors = squared_errors(V, mu, phi, np.stack(list(shared.values())))
    out: dict[str, Any] = {name: ("world", e) for name, e in zip(shared, errors, strict=True)}
    out["local"] = (("agent", "world"), squared_errors(V, mu, phi, problem.theta_star_local))
    best = np.stack([_closest(V[c : c + 1], mu[c : c + 1], phi) for c in range(problem.n_agents)])
    out["best_local"] = ("world", np.diagonal(squared_errors(V, mu, phi, best)).copy())
    return xr.Dataset(out)
