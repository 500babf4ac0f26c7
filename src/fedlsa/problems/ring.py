"""A problem to look at: sites in the plane whose own solutions lie around a ring, so that drift can be seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from .base import Problem
from .regression import regression
from .tables import own

ROWS = 60  # of each site
WIDE, NARROW = 1.3, 0.35  # standard deviations of a site's rows along the direction it sees best, and across it


def ring(
    agents: int = 3,
    spread: float = 1.0,
    noise: float = 0.0,
    seed: int = 0,
    *,
    weights: ArrayLike | None = None,
) -> Problem:
    """Least squares with two coefficients (eq:lsa_syst_fed): each site has its own solution and its own view, d = 2.

    agents : how many sites; spread : the size of the ring on which their solutions lie, 0 for one solution of all
    noise : standard deviation of what the coefficients leave unexplained; seed : of solutions and rows

    A site sees one direction well and the other badly, and which one differs from site to site. So A_bar_c differ as
    well as the solutions, without which there would be no bias (th:2nd_moment_no_cv).
    """
    N = checks.integer("agents", agents, at_least=1)
    checks.memory("agents", N, 3 * 8 * 3 * ROWS, "the rows of a site")
    size, sigma = checks.real("spread", spread, at_least=0), checks.real("noise", noise, at_least=0)
    rng = np.random.default_rng(checks.integer("seed", seed))
    angle = 2 * np.pi * np.arange(N) / N + 0.3 + rng.normal(0, 0.15, N)
    radius = size * rng.uniform(0.8, 1.5, N)
    data = []
    for c in range(N):
        home = radius[c] * np.array([np.cos(angle[c]), np.sin(angle[c])])
        tilt = angle[c] / 2 + 0.9
        turn = np.array([[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]])
        X = rng.normal(size=(ROWS, 2)) @ np.diag([WIDE, NARROW]) @ turn.T
        data.append((X, X @ home + sigma * rng.normal(size=ROWS)))
    asked = {"agents": N, "spread": size, "noise": sigma, "seed": seed, "weights": own(weights)}
    return replace(regression(data, weights=weights), recipe={"constructor": "ring", "arguments": asked})
