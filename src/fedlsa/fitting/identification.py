"""When logs cannot tell a value function, or hardly: states that were never left, values that look further ahead than
any log goes, weights that leave next to nothing, coefficients that rest on a few rows.

Coefficient j is determined as well as the j-th entry of A^-1 (sum of u v^T), which is 1 for the data as a whole, is the
same in all parts of them: with F_j = 1 / variance of its mean. In least squares F is n over the variance inflation
factor, in a table of states about the visits of one. Below 10, the usual limit for instruments (Staiger and Stock,
1997), the estimate is far from linear in the data, and intervals do not cover. The variance is that of up to 32 batches
of each site's rows: rows of a trajectory are correlated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from ..checks import Floats
from ..errors import SiteDataError, warn
from ..problems.features import OneHot
from ..value_objects import counted
from .rows import LogFacts
from .tables import Codes, quoted
from .tasks import Value

if TYPE_CHECKING:
    from .rows import Piece

BATCHES = 32  # of a site's rows
LEAST_F = 10.0  # below which a coefficient is hardly determined
BEYOND = 0.25  # of the range of a feature: how far next states may be outside the states that were visited
ROWS_PER_COEFFICIENT = 10  # that importance weights must leave
SURELY = 5.0  # standard errors


def check_logs(task: Value, logs: Sequence[LogFacts], names: Sequence[str], sites: Sequence[str]) -> None:
    """Refuse episodes without an end where nothing is discounted, and features that are 0 in every state that was left,
    all of them in one line."""
    for site, one in zip(sites, logs, strict=True):
        if task.discount == 1 and one.terminated < one.episodes:
            how = "the last goes on at the end of the log" if one.going_on else f"{task.truncated!r} cuts the others"
            raise SiteDataError(
                f"discount must be below 1 unless every episode ends, for else values are not finite; {site} has "
                f"{counted(one.episodes, 'episode')}, of which {one.terminated:,} end ({task.terminated!r}): {how}"
            )
    log = reduce(add, logs)
    never = np.flatnonzero(~log.states[:, : len(names)].any(axis=0)).tolist()
    if not never:
        return
    where = sites[0] if len(sites) == 1 else f"all {len(sites)} sites ({sites[0]}, ...)"
    them = "it" if len(never) == 1 else "them"
    what = f"{quoted(names, never)} {'is' if len(never) == 1 else 'are'} 0 in every row of {where}"
    if isinstance(task.features, OneHot):
        what = f"{quoted(names, never)} {'was' if len(never) == 1 else 'were'} never visited at {where}"
    entered = [j for j in never if np.nan_to_num(log.following[:, j]).any()]
    if entered:
        raise SiteDataError(
            f"{what}, while next states have {quoted(names, entered)}: nothing was recorded from such states on. "
            f"Where the task ends in them, {task.terminated!r} must be 1"
        )
    if isinstance(task.features, OneHot):
        without = sorted({*task.features.without, *(int(names[j].removeprefix("state ")) for j in never)})
        raise SiteDataError(f"{what}; OneHot({task.features.states}, without={without}) leaves {them} out")
    raise SiteDataError(f"{what}: no state there has {them}; use fewer features")


def warn_of_logs(task: Value, logs: Sequence[LogFacts], names: Sequence[str], sites: Sequence[str]) -> None:
    """Say what the logs of all sites leave open."""
    log, longest = reduce(add, logs), max(one.n for one in logs)
    ahead = 1 / (1 - task.discount) if task.discount < 1 else 0.0  # all episodes end
    if log.terminated == 0 and ahead > longest:
        warn(
            f"nothing terminates, and discount {task.discount:g} looks {ahead:,.0f} steps ahead, further than the "
            f"longest log, {counted(longest, 'row')}: the level of the values rests on the mean reward alone"
        )
    (low, high), (next_low, next_high) = log.states, log.following
    room = np.maximum(BEYOND * (high - low), 1e-6 * np.maximum(abs(low), abs(high)))
    with np.errstate(invalid="ignore"):
        outside = np.flatnonzero((next_low < low - room) | (next_high > high + room)).tolist()
    if outside and task.discount > 0:
        j = outside[0]
        warn(
            f"next states lie outside the states that were visited, in {quoted(names, outside)}: {names[j]!r} is from "
            f"{low[j]:.4g} to {high[j]:.4g} in states, from {next_low[j]:.4g} to {next_high[j]:.4g} in next states: "
            "values there are extrapolated"
        )
    if log.nowhere and isinstance(task.features, OneHot):
        warn(
            f"{counted(log.nowhere, 'row')} of {log.n:,} lead to states that OneHot leaves out, though "
            f"{task.terminated!r} does not say that the task ends there: their value counts as 0"
        )
    if task.trace > 0:
        warn_of_breaks(task, logs, f"trace {task.trace:g}")
    d = len(names)
    for site, one in zip(sites, logs, strict=True):
        n, left, mean = one.n, one.effective_rows, one.mass / one.n
        if left < ROWS_PER_COEFFICIENT * d < n:
            warn(
                f"{site}: importance weights leave {left:.3g} effective rows of {n:,}, for {counted(d, 'coefficient')}:"
                " a few rows decide, and intervals may be too short"
            )
        error = math.sqrt(max(one.squares / n - mean**2, 0.0) / n)
        if abs(mean - 1) > max(SURELY * error, 1e-6):
            warn(
                f"{site}: importance weights must average 1, whatever the policies; they average {mean:.4g} (standard "
                f"error {error:.2g}): the policy may take actions that the log's never took"
            )


def warn_of_breaks(task: Value, logs: Sequence[LogFacts], what: str) -> None:
    """Say so where rows do not follow one another, for what reaches back over several of them."""
    breaks = sum(one.breaks for one in logs)
    if breaks:
        warn(
            f"{counted(breaks, 'row')} of {sum(one.n for one in logs):,} do not lead to the state in which the next "
            f"one begins, though neither {task.terminated!r} nor {task.truncated!r} says that an episode ends there: "
            f"{what} mixes episodes"
        )


class Determination:
    """How well the data of all sites determine each coefficient, from the pieces that another pass goes through.

    A : (d, d), of the shared system; weights, n : (N,) of the sites, and their rows
    """

    def __init__(self, A: Floats, weights: Floats, n: Codes) -> None:
        self._inverse, self._weights, self._n = np.linalg.inv(A), weights, n
        self._batches = np.minimum(BATCHES, n)
        self._sums, self._rows = np.zeros((len(n) * BATCHES, len(A))), np.zeros(len(n), np.int64)  # by batch of rows

    def watched(self, start: int, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces themselves, whose sites count from `start`."""
        for p in pieces:
            entries, c = (p.u @ self._inverse.T) * p.v, np.repeat(p.sites + start, p.counts)
            row = self._rows[c] + np.arange(len(c)) - np.repeat(p.starts, p.counts)
            batch = BATCHES * c + ((row + 1) * self._batches[c] - 1) // self._n[c]
            begins = np.flatnonzero(np.diff(batch, prepend=-1))
            self._sums[batch[begins]] += np.add.reduceat(entries, begins, axis=0)
            self._rows[p.sites + start] += p.counts
            yield p

    @property
    def F(self) -> Floats:
        """(d,): once all sites' pieces have been watched."""
        n, sums = self._n[:, None], self._sums.reshape(len(self._n), BATCHES, -1)
        ends = np.minimum(np.arange(BATCHES + 1) * n // self._batches[:, None], n)
        off = sums - np.diff(ends)[:, :, None] * (sums.sum(axis=1) / n)[:, None]
        spread = self._batches / np.maximum(self._batches - 1, 1)
        variance = np.sum(off**2, axis=1) / n**2 * spread[:, None]  # (N, d), of the entries' means
        with np.errstate(divide="ignore"):
            return np.asarray(1 / (self._weights**2 @ variance), np.float64)

    def warn(self, names: Sequence[str]) -> None:
        """Say so where a coefficient is hardly determined."""
        F = self.F
        weak = [j for j in np.argsort(F).tolist() if F[j] < LEAST_F]
        if weak:
            warn(
                f"the data of all sites together hardly determine the coefficient of {quoted(names, weak)} (F = "
                f"{F[weak[0]]:.2g}, and {LEAST_F:g} is little): too few rows tell it from the rest, and its interval "
                "may be too short"
            )
