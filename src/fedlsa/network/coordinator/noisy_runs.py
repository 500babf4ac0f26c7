"""Errors of runs with noise on uploads, and how long the changes are that sites send, round by round, exactly.

From theta = 0, in the coordinates of theory/local_steps.py and theory/pairs.py: what a site sends is u_hat_c - u plus
its noise. Both E||u||^2 and the variance of u_hat_c - u are affine in the variance of the noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...algorithms import METHODS
from ...checks import Floats
from ...theory.controlled import controlled_round
from ...theory.local_steps import fedlsa_round, frozen_step, local_maps
from ...theory.moments import Moments
from ...theory.symmetric import smat, squares, svec, triangle

LENGTHS = 25  # values of eta H that are tried


@dataclass(frozen=True, eq=False)
class NoisyRun:
    """A method at one step size, for 1, ..., T rounds and K groups of sites.

    error : (T,), E||u||^2 at their ends; length : (T, K), ||E[change]|| in them; variance : (T, K), of the change
    error_of_noise, variance_of_noise : what noise of variance 1 on uploads adds to each
    """

    method: str
    step_size: float
    local_steps: int
    error: Floats
    error_of_noise: Floats
    length: Floats
    variance: Floats
    variance_of_noise: Floats


def noisy_runs(m: Moments, method: str, local_steps: int, rounds: int) -> Iterator[NoisyRun]:
    """The method at step sizes up to 1 / L, L the largest norm of an A_c, each as far as it stays finite."""
    L, H = float(np.linalg.norm(m.A_bar, 2, axis=(1, 2)).max()), local_steps
    for eta in (np.geomspace(min(0.02, H) / L, H / L, LENGTHS) / H).tolist():
        found = noisy_run(m, method, eta, H, rounds)
        if len(found.error):
            yield found


def noisy_run(m: Moments, method: str, eta: float, H: int, rounds: int) -> NoisyRun:
    """The method at one step size, as far as it stays finite."""
    scale = max(float(np.linalg.norm(m.theta_star)), 1e-100)  # of the noise that is tried
    follow, a = _follow_fedlsa if method == "fedlsa" else _follow_controlled, METHODS[method].with_steps(eta, H)
    with np.errstate(all="ignore"):
        bare, noisy = (np.array(list(follow(m, a, eta, rounds, s))) for s in (0.0, scale))
        of_noise = np.maximum(noisy - bare, 0.0) / scale**2  # (T, 1 + 2 K)
    good = int(np.argmin(np.append(np.isfinite(bare + of_noise).all(1), False)))
    (error, length, variance), (added, _, more) = (_columns(x[:good]) for x in (bare, of_noise))
    return NoisyRun(method, eta, H, error, added, np.sqrt(length), variance, more)


def _columns(values: Floats) -> tuple[Floats, Floats, Floats]:
    K = values.shape[1] // 2
    return values[:, 0], values[:, 1 : K + 1], values[:, K + 1 :]


def _follow_fedlsa(m: Moments, a: Any, eta: float, rounds: int, s: float) -> Iterator[Floats]:
    """(1 + 2 K,): E||u||^2 after each round, and ||E[change]||^2 and the change's variance in it, before its noise."""
    d, H = m.dim, a.local_steps
    M, noise = (a[m.table] for a in local_maps(m, H, lambda part: frozen_step(m, eta, -m.xi_star, part)))
    moved = M[:, :d] - np.eye(d + 1)[:d]
    step = fedlsa_round(m, eta, H, -m.xi_star, upload_noise=s)
    v, C = np.append(-m.theta_star, 1.0), np.zeros(d * (d + 1) // 2)
    for _ in range(rounds):
        covariance = np.zeros((len(moved), d + 1, d + 1))
        covariance[:, :d, :d] = smat(C, d)
        change = _change(moved, noise, np.broadcast_to(v, (len(moved), d + 1)), covariance)
        if step.noise is not None:
            C = step.own @ C + step.added(v[:d])
        v = step.mean @ v
        yield np.append(v[:d] @ v[:d] + np.trace(smat(C, d)), change)


def _follow_controlled(m: Moments, a: Any, eta: float, rounds: int, s: float) -> Iterator[Floats]:
    """The same of methods with control variates."""
    d, step = m.dim, controlled_round(m, a, eta, s)
    noise = controlled_round(m, a, eta).local_noise if s else step.local_noise
    moved = np.concatenate([step.P - np.eye(d), step.Q, np.zeros((len(step.P), d, 1))], axis=2)
    to_x = np.eye(2 * d + 1)  # (u, y, 1) to (u, x, 1)
    to_x[d : 2 * d, :d] = step.gain * np.eye(d)
    vector = step.start(-m.theta_star, -m.xi_star[m.table])
    for _ in range(rounds):
        p = step.second(vector)
        covariance = np.zeros((len(p.y), 2 * d + 1, 2 * d + 1))
        covariance[:, :d, :d], covariance[:, d : 2 * d, d : 2 * d] = p.U, smat(p.V, d)
        covariance[:, :d, d : 2 * d], covariance[:, d : 2 * d, :d] = p.uy, p.uy.transpose(0, 2, 1)
        mean = np.concatenate([np.broadcast_to(p.u, p.y.shape), p.y, np.ones((len(p.y), 1))], axis=1)
        change = _change(moved, noise, mean @ to_x.T, to_x @ covariance @ to_x.T)
        vector = step.advance(vector)
        yield np.append(step.error(vector), change)


def _change(moved: Floats, noise: Floats, mean: Floats, covariance: Floats) -> Floats:
    """(2 K,): ||E[u_hat - u]||^2 and its variance; moved : (K, d, n); mean, covariance : (K, n), (K, n, n), of w."""
    diagonal = np.flatnonzero(np.equal(*triangle(moved.shape[1])))
    length = ((moved @ mean[..., None])[..., 0] ** 2).sum(1)
    variance = np.einsum("kij,kjl,kil->k", moved, covariance, moved)
    own = np.einsum("ksj,kj->k", noise[:, diagonal], svec(covariance) + squares(mean))
    return np.concatenate([length, variance + own])
