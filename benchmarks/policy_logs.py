"""Logs of a policy whose value function is known: Markov chains at several sites, for intervals.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedlsa as fl

Floats = NDArray[np.float64]
STATES, GAMMA = 20, 0.9


def chains(sites: int, stay: float, seed: int) -> tuple[Floats, Floats, Floats]:
    """Transition matrices (N, S, S) and rewards (N, S) of worlds that are like one another; features (S, 4)."""
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(STATES, 4))
    phi /= np.linalg.norm(phi, axis=1).max()
    common, reward = rng.dirichlet(np.full(STATES, 0.3), size=STATES), rng.uniform(size=STATES)
    own = rng.dirichlet(np.full(STATES, 0.3), size=(sites, STATES))
    P = stay * np.eye(STATES) + (1 - stay) * (0.7 * common + 0.3 * own)
    return P, reward + 0.3 * rng.normal(size=(sites, STATES)), phi


def exact_problem(P: Floats, r: Floats, phi: Floats) -> fl.Problem:
    """Whose theta_star is the truth."""
    return fl.problems.from_mdps(P[:, :, None], r[:, :, None], np.ones((len(phi), 1)), phi, GAMMA)


def trajectories(rows: int, stay: float, seed: int = 1, sites: int = 3) -> tuple[Any, Floats]:
    """A trajectory of the stationary chain at every site; and the truth."""
    P, r, phi = chains(sites, stay, seed)
    p = exact_problem(P, r, phi)
    law, each, ends = p.chain.stationary.reshape(sites, STATES), np.arange(sites), P.cumsum(axis=2)[:, :, :-1]

    def draw(k: int) -> list[tuple[Floats, Floats, Floats, Floats]]:
        rng = np.random.default_rng([23, k])
        u, s = rng.random((rows, sites, 1)), np.empty((rows + 1, sites), np.int64)
        s[0] = [rng.choice(STATES, p=m) for m in law]
        for t in range(rows):
            s[t + 1] = (ends[each, s[t]] < u[t]).sum(axis=1)
        return [(phi[s[:-1, c]], r[c, s[:-1, c]], phi[s[1:, c]], np.zeros(rows)) for c in each]

    return draw, p.theta_star


def transitions(sizes: Sequence[int], seed: int = 3) -> tuple[Any, Floats]:
    """Independent transitions of the stationary law; and the truth."""
    P, r, phi = chains(len(sizes), 0.0, seed)
    p = exact_problem(P, r, phi)
    law, rows = p.chain.stationary.reshape(-1, STATES), P.cumsum(axis=2)

    def draw(k: int) -> list[tuple[Floats, Floats, Floats, Floats]]:
        rng, out = np.random.default_rng([11, k]), []
        for c, n in enumerate(sizes):
            s = rng.choice(STATES, n, p=law[c])
            after = (rows[c, s] < rng.random(n)[:, None]).sum(axis=1).clip(max=STATES - 1)
            out.append((phi[s], r[c, s], phi[after], np.zeros(n)))
        return out

    return draw, p.theta_star
