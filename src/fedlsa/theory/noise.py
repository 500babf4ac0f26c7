"""Passes over the outcomes of a table, in chunks: covariances of A(z), residuals, norms."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..checks import Floats
from ..problems import Dense, Problem, RankOne
from . import tuning


def matrix_noise(problem: Problem, m: int, span: slice) -> tuple[Floats, Floats]:
    """E[A~^T A~] and E[A~ A~^T] of one table, (d, d) each; the ridge drops out of A~."""
    obs, d = problem.observations, problem.dim
    if isinstance(obs, RankOne):
        return _rank_one_noise(problem, obs, span)
    inner, outer = np.zeros((d, d)), np.zeros((d, d))
    for chunk in chunks(problem, span):
        noise = obs.A[chunk] - problem.table_A_bar[m]
        weighted = problem.prob[chunk, None, None] * noise
        inner += np.tensordot(weighted, noise, ((0, 1), (0, 1)))
        outer += np.tensordot(weighted, noise, ((0, 2), (0, 2)))
    return inner, outer


def _rank_one_noise(problem: Problem, obs: RankOne, span: slice) -> tuple[Floats, Floats]:
    """A~ = B - E[B] with B = u_bar v~^T + u~ v^T, all of the size of the noise: small noise keeps its digits."""
    d = obs.dim
    u_bar, v_bar = (problem.prob[span] @ obs.rows[side[span]] for side in (obs.left, obs.right))
    inner, outer, mean = np.zeros((d, d)), np.zeros((d, d)), np.zeros((d, d))
    for chunk in chunks(problem, span):
        p, u, v = problem.prob[chunk], obs.rows[obs.left[chunk]] - u_bar, obs.rows[obs.right[chunk]]
        w = v - v_bar
        mean += (p[:, None] * u).T @ v
        mixed = ((p * (u @ u_bar))[:, None] * w).T @ v
        inner += mixed + mixed.T + (u_bar @ u_bar) * (p[:, None] * w).T @ w
        inner += ((p * np.sum(u * u, axis=1))[:, None] * v).T @ v
        mixed = np.outer(u_bar, (p * np.sum(w * v, axis=1)) @ u)
        outer += mixed + mixed.T + p @ np.sum(w * w, axis=1) * np.outer(u_bar, u_bar)
        outer += ((p * np.sum(v * v, axis=1))[:, None] * u).T @ u
    return inner - mean.T @ mean, outer - mean @ mean.T


def residuals(problem: Problem, chunk: slice, theta: Floats) -> Floats:
    """A(z) theta - b(z) : (chunk, d)."""
    obs = problem.observations
    if isinstance(obs, Dense):
        return obs.A[chunk] @ theta - obs.b[chunk]
    u, v = obs.rows[obs.left[chunk]], obs.rows[obs.right[chunk]]
    return (v @ theta - obs.y[chunk])[:, None] * u + obs.ridge * theta


def norms(problem: Problem, chunk: slice) -> Floats:
    """||A(z)|| : (chunk,)."""
    obs = problem.observations
    if isinstance(obs, Dense):
        return np.asarray(np.linalg.norm(obs.A[chunk], 2, axis=(1, 2)))
    u, v, r = obs.rows[obs.left[chunk]], obs.rows[obs.right[chunk]], obs.ridge
    dot = np.sum(u * v, axis=1)
    if problem.dim == 1:
        return np.asarray(np.abs(dot + r))
    # A^T A - r^2 I acts on span(u, v) alone, where its two eigenvalues have this sum and the product -r^2 area
    squares = np.sum(u * u, axis=1) * np.sum(v * v, axis=1)
    total, area = 2 * r * dot + squares, np.maximum(squares - dot**2, 0)
    return np.asarray(np.sqrt(r**2 + (total + np.sqrt(total**2 + 4 * r**2 * area)) / 2))


def chunks(problem: Problem, span: slice) -> Iterator[slice]:
    """Parts of a span of outcomes that hold about tuning.OUTCOMES_AT_ONCE numbers."""
    d = problem.dim
    size = max(1, tuning.OUTCOMES_AT_ONCE // (d * d if isinstance(problem.observations, Dense) else d))
    for start in range(span.start, span.stop, size):
        yield slice(start, min(start + size, span.stop))
