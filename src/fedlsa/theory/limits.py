"""Where methods with control variates settle, and how fast: the fixed point of a round and its mean-square radius.

The state of theory/pairs.py is as long as the square of the number of groups, so a round is only ever applied to it,
never written out: the fixed point is the sum of what becomes of one round's noise, the radius the largest Ritz value.
With a thousand different agents of dimension 8 a vector takes 260 MB and a Krylov space some tens of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from .controlled import Round, State
from .krylov import Krylov
from .leaps import leap
from .pairs import PairMap, pair_map
from .symmetric import smat, svec

TOLERANCE = 1e-13  # of the fixed point, relative
STEADY = 1e-9  # relative change of the radius over a few more dimensions
CLEAR = 0.01
STAGE = 8
FEW = 100  # rounds that take no longer one by one: the spaces of a limit and of the way there have some 80 dimensions


@dataclass(frozen=True, eq=False)
class Limit:
    """The moments a round leaves as they are, as a vector of `step`; None where second moments do not converge."""

    step: PairMap
    vector: Floats | None
    radius: float

    @property
    def U(self) -> Floats:
        """E[u u^T] : (d, d), infinite where it does not converge."""
        d = self.step.shape[1]
        return np.full((d, d), np.inf) if self.vector is None else self.step.common(self.vector)[1]


def radius(step: Round) -> float:
    """The factor by which second moments shrink in a round, in the long run; infinite where one round has none.

    The map takes positive matrices to positive ones, so the space of a positive one holds its largest eigenvalue.
    """
    if not np.isfinite(step.noise).all():
        return np.inf
    return _radius(pair_map(step))


def settles(step: Round) -> bool:
    """Whether that factor is below one, for which it need not be known well where it is far from one."""
    return bool(np.isfinite(step.noise).all()) and _radius(pair_map(step), CLEAR) < 1


def _radius(step: PairMap, clear: float = 0.0) -> float:
    """clear : the change over a few more dimensions that will do, as a share of the distance to one."""
    d = step.shape[1]
    positive = np.zeros(step.length)
    step.parts(positive)[1][:] = svec(np.eye(d))
    space, last = Krylov(lambda v: step.advance(v, 0.0), positive), np.inf
    while True:
        space.grow(space.size + STAGE)
        largest = _largest(space)
        enough = max(STEADY * largest, clear * abs(1 - largest))
        if abs(largest - last) <= enough or space.closed or space.size == space.most:
            return largest
        last = largest


def _largest(space: Krylov) -> float:
    return float(np.abs(np.linalg.eigvals(space.h)).max())


def limit(step: Round) -> Limit:
    """The fixed point of a round and its radius."""
    if not np.isfinite(step.noise).all():
        return Limit(pair_map(step), None, np.inf)
    return _limit(pair_map(step))


def _limit(step: PairMap) -> Limit:
    rest = step.advance(np.zeros(step.length))
    d = step.shape[1]
    own = np.linalg.eigvalsh(smat(step.parts(rest)[1], d))
    # noise in every direction of every agent is as good a positive matrix as any
    size = None if own.min() > 1e-6 * own.max() > 0 else _radius(step)
    total, goal, last = np.zeros(step.length), None, np.inf
    for _ in range(20):
        if size is not None and not size < 1:
            return Limit(step, None, size)
        space = Krylov(lambda v: step.advance(v, 0.0), rest)
        goal = space.length * TOLERANCE if goal is None else goal
        while True:
            space.grow(space.size + STAGE)
            if space.length == 0:
                return Limit(step, total, size if size is not None else _radius(step))
            y = np.linalg.solve(np.eye(space.size) - space.h, space.length * np.eye(space.size)[0])
            out, along = (0.0, rest) if space.closed else space.rest
            steady = size is not None
            if size is None:
                largest = _largest(space)
                steady, last = abs(largest - last) <= STEADY * largest or space.closed, largest
                if steady and not largest < 1:
                    return Limit(step, None, largest)
            done = out * abs(y[-1]) <= goal and steady
            if done or space.closed or space.size == space.most:
                break
        if size is None:
            size = last
        total += y @ space.basis
        if done or space.closed:
            return Limit(step, total, size) if size < 1 and _positive(step, total) else Limit(step, None, size)
        rest = out * y[-1] * along
    return Limit(step, None, size if size is not None else np.inf)


def _positive(step: PairMap, vector: Floats) -> bool:
    """A limit of second moments is."""
    V = smat(step.parts(vector)[1], step.shape[1])
    U = step.common(vector)[1]
    scale = np.abs(V).max()
    return bool(np.linalg.eigvalsh(V).min() >= -1e-9 * scale and np.linalg.eigvalsh(U).min() >= -1e-9 * np.abs(U).max())


def fixed_point(step: Round) -> State | None:
    """The moments that a round leaves as they are; None where second moments do not converge."""
    found = limit(step)
    return None if found.vector is None else found.step.unpack(found.vector)


def curve(step: Round, begin: State, rounds: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    """E[u] : (R, d), E||u||^2 and E_c E||x_c||^2 : (R,) at the given rounds.

    Few rounds are gone through one by one, and so are those of a round without a limit; the cost of many hardly depends
    on how many they are, for they are measured by their distance from the limit.
    """
    pairs, d = pair_map(step), len(begin.u)
    vector = pairs.pack(begin)
    found = _limit(pairs) if rounds[-1] > FEW and np.isfinite(step.noise).all() else None
    if found is None or found.vector is None:
        values = _one_by_one(pairs, vector, rounds)
    else:
        end = pairs.look(found.vector)
        size = np.array([*np.full(d, np.sqrt(end[d])), end[d], end[d + 1]])
        values = end + leap(lambda v: pairs.advance(v, 0.0), pairs.look, vector - found.vector, rounds, 1e-12 * size)
    return values[:, :d], values[:, d], values[:, d + 1]


def _one_by_one(step: PairMap, vector: Floats, rounds: NDArray[np.int64]) -> Floats:
    values, at = list[Floats](), 0
    mean = step.parts(vector)[0]
    for t in rounds.tolist():
        while at < t and np.isfinite(vector).all():
            vector, at = step.advance(vector), at + 1
            mean = step.parts(vector)[0]
        while at < t and np.isfinite(mean).all():  # second moments overflow first
            mean[:], at = step.mean(mean), at + 1
        values.append(step.look(vector))
    return np.stack(values)
