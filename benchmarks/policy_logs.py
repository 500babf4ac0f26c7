"""Logs of a policy whose value function is known: Markov chains at several sites, for intervals.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedlsa as fl

Floats = NDArray[np.float64]
STATES, GAMMA = 20, 0.9
STEP = np.array([[0.9, 0.2], [-0.1, 0.8]])  # of a linear system, with noise of standard deviation SHOCK
SHOCK = 0.5


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
        rng = np.random.default_rng([123, k])
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
        rng, out = np.random.default_rng([111, k]), []
        for c, n in enumerate(sizes):
            s = rng.choice(STATES, n, p=law[c])
            after = (rows[c, s] < rng.random(n)[:, None]).sum(axis=1).clip(max=STATES - 1)
            out.append((phi[s], r[c, s], phi[after], np.zeros(n)))
        return out

    return draw, p.theta_star


def squares(s: Floats) -> Floats:
    """(n, 6): features 1, x, y, x^2, xy, y^2 of states (n, 2)."""
    x, y = s.T
    return np.column_stack([np.ones(len(s)), x, y, x * x, x * y, y * y])


def linear_system(sizes: Sequence[int], discount: float, ends: float = 0.0, cut: int = 0) -> tuple[Any, Floats]:
    """Logs of a linear system whose cost is quadratic, as is its value; and the coefficients of `squares`.

    ends : the probability that the task ends after a step; cut : after how many steps an episode is cut, 0 for never
    """
    Q, q, g = np.array([1.0, 0.5]), np.array([0.3, -0.2]), discount * (1 - ends)
    P = np.linalg.solve(np.eye(4) - g * np.kron(STEP.T, STEP.T), -np.diag(Q).ravel()).reshape(2, 2)
    linear = np.linalg.solve(np.eye(2) - g * STEP.T, q)
    truth = np.array([g * SHOCK**2 * np.trace(P) / (1 - g), *linear, P[0, 0], 2 * P[0, 1], P[1, 1]])
    n, N = max(sizes), len(sizes)

    def draw(k: int) -> list[dict[str, Floats]]:
        rng = np.random.default_rng([129, k])
        noise, fresh = SHOCK * rng.normal(size=(n, N, 2)), rng.normal(size=(n + 1, N, 2))
        over, age = rng.random((n, N)) < ends, np.zeros(N)
        s, after, stopped = np.empty((n, N, 2)), np.empty((n, N, 2)), np.zeros((n, N), np.bool_)
        now = fresh[n]
        for t in range(n):
            s[t], after[t] = now, now @ STEP.T + noise[t]
            age += 1
            stopped[t] = (age == cut) & ~over[t]
            age[over[t] | stopped[t]] = 0
            now = np.where((age == 0)[:, None], 1.5 * fresh[t], after[t])
        reward = s @ q - s**2 @ Q + 0.3 * rng.normal(size=(n, N))
        flags = {"terminated": over, "truncated": stopped}
        out = []
        for c, rows in enumerate(sizes):
            columns = {"reward": reward[:rows, c]} | {name: f[:rows, c].astype(np.float64) for name, f in flags.items()}
            for i in (0, 1):
                columns |= {f"state_{i}": s[:rows, c, i], f"next_state_{i}": after[:rows, c, i]}
            out.append(columns)
        return out

    return draw, truth
