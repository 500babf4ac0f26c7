"""Where methods with control variates settle, and how fast: the fixed point of a round and its mean-square radius.

The state of theory/controlled.py is as long as the square of the number of groups, so a round is only ever applied to
it, never written out: the fixed point is found by GMRES, the radius as the largest Ritz value of a Krylov space.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, gmres

from ..checks import Floats
from .controlled import Round, State, advance, conserve, start, unflatten
from .leaps import krylov_space, leap

TOLERANCE = 1e-13


def linear_part(step: Round, vector: Floats) -> Floats:
    """A round without its noise, which is linear in (E[u], E[x], second moments), on `State.flat`."""
    return advance(step, conserve(step.moments, unflatten(vector, *step.P.shape[:2])), 0.0).flat()


def _nothing(step: Round) -> State:
    K, d = step.P.shape[:2]
    return start(np.zeros(d), np.zeros((K, d)))


def radius(step: Round) -> float:
    """The factor by which second moments shrink in a round, in the long run; infinite where one round has none.

    The map takes positive matrices to positive ones, so the space of a positive one holds its largest eigenvalue.
    """
    if not np.isfinite(step.second).all():
        return np.inf
    K, d = step.P.shape[:2]
    positive = replace(_nothing(step), U=np.eye(d), V=np.tile(np.eye(d), (K, 1, 1)))
    _, h, _ = krylov_space(lambda v: linear_part(step, v), conserve(step.moments, positive).flat())
    return float(np.abs(np.linalg.eigvals(h)).max())


def fixed_point(step: Round) -> State | None:
    """The moments that a round leaves as they are; None where second moments do not converge."""
    if not np.isfinite(step.second).all():
        return None
    noise = advance(step, _nothing(step)).flat()
    rest = LinearOperator(
        (len(noise), len(noise)), matvec=lambda v: v.ravel() - linear_part(step, v.ravel()), dtype=np.float64
    )
    found, failed = gmres(rest, noise, rtol=TOLERANCE, atol=0.0, restart=60, maxiter=20)
    state = unflatten(found, *step.P.shape[:2])
    smallest = min(np.linalg.eigvalsh(state.U).min(), np.linalg.eigvalsh(state.V).min())
    if failed or smallest < -1e-9 * np.abs(state.V).max():  # a limit of second moments is positive
        return None
    return state


def curve(step: Round, begin: State, rounds: NDArray[np.int64]) -> tuple[Floats, Floats, Floats] | None:
    """E[u] : (R, d), E||u||^2 and E_c E||x_c||^2 : (R,) at the given rounds, at a cost that hardly depends on them.

    None where there is no limit to measure the distance from.
    """
    limit = fixed_point(step)
    if limit is None:
        return None
    d, share = len(begin.u), step.moments.count * step.moments.weight

    def look(vector: Floats) -> Floats:
        s = unflatten(vector, *step.P.shape[:2])
        return np.array([*s.u, np.trace(s.U), share @ np.trace(s.V, axis1=1, axis2=2)])

    end = look(limit.flat())
    size = np.array([*np.full(d, np.sqrt(end[d])), end[d], end[d + 1]])
    away = leap(lambda v: linear_part(step, v), look, begin.flat() - limit.flat(), rounds, 1e-12 * size)
    values = end + away
    return values[:, :d], values[:, d], values[:, d + 1]
