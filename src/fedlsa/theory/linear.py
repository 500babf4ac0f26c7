"""Linear algebra of moments: checked answers about a matrix, symmetric matrices as vectors, steps that are repeated."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from ..errors import PrecisionError
from . import tuning


def contracts(M: Floats) -> bool:
    """Whether all eigenvalues of M are inside the unit circle: some power has a norm below one.

    Eigenvalues of a matrix without eigenvectors are known to a few digits only; norms of powers to nearly all.
    """
    with np.errstate(all="ignore"):
        for _ in range(64):  # M^(2^64) of a radius below one is 0
            size = np.linalg.norm(M)
            if not size < 1e100:  # powers of this size do not come back
                return False
            if size < 1:
                return True
            M = M @ M
    return False


def positive(*matrices: Floats) -> bool | None:
    """Whether all of them, which are overwritten, are positive definite; their scale does not matter."""
    from scipy.linalg import LinAlgError, cholesky

    hidden = False
    for X in matrices:
        size = np.diagonal(X)
        if not (size > 0).all():
            return False
        scale = 1 / np.sqrt(size)
        X *= scale[:, None]
        X *= scale
        try:
            cholesky(X.T, lower=True, overwrite_a=True, check_finite=False)  # in place: X.T stands as LAPACK wants it
        except LinAlgError:
            np.fill_diagonal(X, 1)
            if np.linalg.eigvalsh(X, UPLO="L")[0] < -tuning.SOLUTION_ERROR:
                return False
            hidden = True
    return None if hidden else True


def refined(A: Floats, b: Floats) -> tuple[Floats, float]:
    """The x with A x = b, and its relative error as estimated by one step of iterative refinement."""
    x = np.linalg.solve(A, b)
    change = np.linalg.solve(A, b - A @ x)
    return np.asarray(x + change, np.float64), float(np.linalg.norm(change) / np.linalg.norm(x)) if b.any() else 0.0


def not_negative(values: Floats, rounding: Floats | float, what: str) -> Floats:
    """Squares and variances, 0 where rounding made them negative; by more than that it is an error."""
    if (np.isnan(values) | (values < -np.asarray(rounding))).any():
        worst = int(np.argmin(values + rounding))
        size = float(np.broadcast_to(rounding, values.shape)[worst])
        raise PrecisionError(f"{what} must not be negative; got {values[worst]:.1e}, where rounding makes {size:.1e}")
    return np.maximum(values, 0.0)


def check_accuracy(error: float, what: str, most: float = tuning.SOLUTION_ERROR, where: str = "") -> None:
    """Refuse an estimated error that is too large; where : added to what was got."""
    if not error <= most:
        raise PrecisionError(f"{what} must be known to {most:g}, relative; got an error of {error:.1e}{where}")


def bracket(
    margin: Callable[[float], float], start: float, factor: float, least: float, most: float
) -> tuple[float, float]:
    """Where it is positive, and where no longer, about `start`; (0, least) or (most, inf) where it does not change.

    factor : of the first step, whose logarithm is doubled each time, up to 2
    """
    low = high = start
    while not margin(low) > 0:
        if low == least:
            return 0.0, low
        low, high, factor = max(low / factor, least), low, min(factor**2, 2.0)
    while low == high or margin(high) > 0:
        if high == most:
            return high, np.inf
        low, high, factor = high, min(high * factor, most), min(factor**2, 2.0)
    return low, high


def crossing(margin: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """Where it is no longer positive, between two that are known, to a relative tolerance."""
    from scipy.optimize import brentq

    beyond = [high]  # the bracket of the root ends at the last of them

    def side(x: float) -> float:
        try:
            found = margin(x)
        except PrecisionError:  # so near to the edge that rounding hides it
            found = 0.0
        beyond.extend([x] if found <= 0 else [])
        return found

    brentq(side, low, high, xtol=tolerance * low, rtol=4 * np.finfo(np.float64).eps)
    return float(min(beyond))


# Symmetric matrices as vectors: svec is the upper triangle, symkron(M) the map svec(X) -> svec(M X M^T).

Index = NDArray[np.intp]
Number = TypeVar("Number", bound=np.generic)


@functools.cache
def triangle(n: int) -> tuple[Index, Index]:
    """Row and column of each entry of svec in dimension n; there are n (n + 1) / 2."""
    return np.triu_indices(n)


def svec(X: Floats) -> Floats:
    """The upper triangle of each symmetric matrix : (..., n, n) -> (..., n (n + 1) / 2)."""
    i, j = triangle(X.shape[-1])
    return X[..., i, j]


@functools.cache
def diagonal(n: int) -> Index:
    """Where the diagonal stands in svec of dimension n."""
    return np.flatnonzero(np.equal(*triangle(n)))


def traces(x: Floats) -> Floats:
    """The trace of each symmetric matrix, from svec : (..., n (n + 1) / 2) -> (...)."""
    return np.asarray(x[..., diagonal(math.isqrt(2 * x.shape[-1]))].sum(-1), np.float64)


def squares(w: Floats) -> Floats:
    """svec(w w^T) of each vector : (..., n) -> (..., n (n + 1) / 2)."""
    i, j = triangle(w.shape[-1])
    return w[..., i] * w[..., j]


def smat(x: NDArray[Number], n: int) -> NDArray[Number]:
    """The inverse of `svec`."""
    i, j = triangle(n)
    out = np.empty((*x.shape[:-1], n, n), x.dtype)
    out[..., i, j] = x
    out[..., j, i] = x
    return out


def symkron(M: Floats) -> Floats:
    """The matrix of X -> M X M^T on svec, for each M : (..., m, n) -> (..., m (m + 1) / 2, n (n + 1) / 2)."""
    (i, j), (k, q) = triangle(M.shape[-2]), triangle(M.shape[-1])
    first, second = M[..., k], M[..., q]  # columns of the small matrices; what follows copies whole rows
    out = first[..., i, :] * second[..., j, :]
    out += np.where(k == q, 0.0, second)[..., i, :] * first[..., j, :]
    return out


def folded(T: Floats) -> Floats:
    """The matrix on svec of X -> sum_kl T[i, k, j, l] X[k, l], for a T that keeps symmetry; T : (..., m, n, m, n)."""
    m, n = T.shape[-4], T.shape[-3]
    i, j = triangle(m)
    k, q = triangle(n)
    direct = T[..., i[:, None], k, j[:, None], q]
    crossed = T[..., i[:, None], q, j[:, None], k]
    return np.where(k == q, direct, direct + crossed)


def functionals(C: Floats, n: int) -> Floats:
    """Rows of a matrix on svec as symmetric matrices: C svec(X) = sum_kl T[..., k, l] X[k, l], T : (..., n, n)."""
    k, q = triangle(n)
    return smat(np.where(k == q, C, C / 2), n)


def rows_of(T: Floats) -> Floats:
    """The inverse of `functionals`."""
    k, q = triangle(T.shape[-1])
    return np.where(k == q, 1.0, 2.0) * svec(T)


def within(inner: int, outer: int) -> Index:
    """Where the entries of the leading inner x inner block stand in svec of dimension `outer`."""
    _, j = triangle(outer)
    return np.flatnonzero(j < inner)


# A step that is repeated: many times at once by repeated squaring, or one by one up to the rounds that are wanted.

Step = TypeVar("Step")
State = TypeVar("State")


def repeat(step: Step, n: int, then: Callable[[Step, Step], Step]) -> Step:
    """n >= 1 times the same step in O(log n) compositions; then(a, b) : a, and after it b.

    Factor by factor, which for round numbers takes fewer compositions than digit by digit: 12 for 1000 instead of 14.
    """
    while n > 1:
        factor, twice = next((f for f in (2, 3, 5) if n % f == 0), n), then(step, step)
        step, n = then(repeat(twice, factor // 2, then), step) if factor > 2 else twice, n // factor
    return step


class Squares(Generic[Step]):
    """A step twice, four times, eight times, ...: as many as were asked for so far. For many numbers of repetitions."""

    def __init__(self, step: Step, then: Callable[[Step, Step], Step]) -> None:
        self._then, self._known = then, [step]

    def of(self, n: int) -> Iterator[Step]:
        """Those which, one after the other, are n steps."""
        for bit in range(n.bit_length()):
            if bit == len(self._known):
                self._known.append(self._then(self._known[-1], self._known[-1]))
            if n >> bit & 1:
                yield self._known[bit]


def powers_on(M: Floats, v: Floats, rounds: NDArray[np.int64]) -> Floats:
    """M^t v at the given rounds t, in increasing order : (R, n)."""
    squares, found = Squares(M, lambda a, b: b @ a), np.empty((len(rounds), len(v)))
    for i, gap in enumerate(np.diff(rounds, prepend=0).tolist()):
        short = gap < len(v) * gap.bit_length()  # products with a vector are less work than squares
        for power in [M] * gap if short else squares.of(gap):
            v = power @ v
        found[i] = v
    return found


def at_rounds(
    states: Iterable[State], rounds: NDArray[np.int64], show: Callable[[State], Sequence[Floats | float]]
) -> list[Floats]:
    """What `show` says at the given rounds, in increasing order : one array (R, ...) for each of its values.

    states : after 0, 1, 2, ... rounds; where they end the last one stays.
    """
    ahead, at, shown = iter(states), -1, []
    for t in rounds.tolist():
        for state in islice(ahead, t - at):
            now = state
        at = t
        shown.append(show(now))
    return [np.array(column) for column in zip(*shown, strict=True)]


@dataclass(frozen=True, eq=False)
class AveragedState:
    """Mean (n,) and covariance (n, n) of a state that begins with u; and the same of the mean of u since some round.

    average : (d,), E of that mean; across : (n, d), Cov(state, average); own : (d, d), its covariance
    """

    mean: Floats
    C: Floats
    average: Floats
    across: Floats
    own: Floats

    def after(self, step: Any, share: float) -> AveragedState:
        """A round later; share : of the new u in the average, 1 where it only begins."""
        mean, C, d = step.move(self.mean), step.covariance(self.C, self.mean), len(self.average)
        average = self.average + share * (mean[:d] - self.average)
        if share == 1:
            return AveragedState(mean, C, average, C[:, :d], C[:d, :d])
        across = step.carry(self.across)
        cross = share * (1 - share) * across[:d]
        own = (1 - share) ** 2 * self.own + share**2 * C[:d, :d] + cross + cross.T
        return AveragedState(mean, C, average, (1 - share) * across + share * C[:, :d], own)


def averaged_states(
    step_at: Callable[[int], Any], begin: Floats, drifting: Floats, after: int, d: int
) -> Iterator[tuple[AveragedState, Floats]]:
    """States after 0, 1, 2, ... rounds with means of u from round `after` on (Polyak-Ruppert), by what round t does.

    drifting : (n,), the state of a run from theta_star, of which E of that mean comes beside
    """
    n, average = len(begin), drifting[:d]
    state = AveragedState(begin, np.zeros((n, n)), begin[:d], np.zeros((n, d)), np.zeros((d, d)))
    for t in count():
        yield state, average
        step, share = step_at(t), 1.0 if t + 1 <= after else 1 / (t + 2 - after)
        state, drifting = state.after(step, share), step.move(drifting)
        average = average + share * (drifting[:d] - average)
