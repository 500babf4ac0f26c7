"""Passes over the data of all sites: rows are kept where they fit into memory, and otherwise read again."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import add
from typing import Any, TypeVar

import numpy as np

from ..checks import Floats
from ..errors import SiteDataError, warn
from ..problems.features import FeatureMap, OneHot
from ..threads import cores, one_blas_thread
from ..value_objects import counted
from .design import design_of
from .rows import (
    Columns,
    FeatureScale,
    LogFacts,
    Piece,
    choose_columns,
    coefficient_names,
    feature_names,
    integers_error,
    may_number_states,
    read_observations,
)
from .scores import ScorePass, SharedSolution
from .sums import SiteSums, Systems, penalty_of, scale_of
from .tables import Codes, DataTable, MemoryTable, MissingRows, MissingValuesError, quoted
from .tasks import Regression, Task, Value

FitProgress = Callable[[str, float, float], None]  # what is being done, how much of it, out of how much
MAX_READERS = 8  # tables that are read at the same time
MAX_GROUPS = 64  # of tables: between two of them progress is told, and a pass can be given up
MANY_ROWS = 2**16  # of a table in memory: then it is read in parts, one for each core
JOINED = 2**13  # rows: pieces of small tables are put together until they have as many
LEAVE_OUT = "; missing='drop' (--missing drop) leaves such rows out"
ScoresAt = tuple[SharedSolution, Systems, Floats]  # the solution of all sites, their systems and weights
FirstPass = tuple[SiteSums, bool, list[LogFacts]]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class SiteGroup:
    """Tables that are read one after the other; names : of their sites, the first of which is site `start` of all.

    kept : their pieces in the original coordinates, where they fit into memory. Places of sites are those in `names`
    """

    tables: Sequence[DataTable]
    names: Sequence[str]
    start: int
    kept: list[Piece] = field(default_factory=list)

    def read_observations(
        self, task: Task, columns: Columns, missing: MissingRows, start: int = 0
    ) -> Iterator[tuple[Floats, Piece]]:
        """Features and observations of all tables, in the original coordinates; in `missing` sites count from `start`.

        Tables are read to their end, to count, whatever is missing in others.
        """
        at, lacking = 0, False
        small: list[Piece] = []
        for table in self.tables:
            try:
                for k, (x, piece) in enumerate(read_observations(table, task, columns, missing, start + at)):
                    moved = piece.moved(at)
                    if len(self.tables) == 1 or isinstance(task, Value):
                        yield x, moved
                    elif k == 0 and sum(len(p.y) for p in small) + len(moved.y) <= JOINED:
                        small.append(moved)  # the first of a table alone: a piece has each site once
                    else:
                        yield from ((p.u, p) for p in (_joined(small), moved) if p is not None)
                        small = []
            except MissingValuesError:
                lacking = True
            at += len(table.sites)
        yield from ((p.u, p) for p in (_joined(small),) if p is not None)
        if lacking:
            raise MissingValuesError(missing.text())


def _joined(pieces: list[Piece]) -> Piece | None:
    """Pieces of a regression as one."""
    if len(pieces) < 2:
        return pieces[0] if pieces else None
    ends, gaps = np.cumsum([len(p.y) for p in pieces]), None
    if any(p.gaps is not None for p in pieces):
        gaps = np.concatenate([np.zeros(len(p.y), np.int64) if p.gaps is None else p.gaps for p in pieces])
    order = [p.order if isinstance(p.order, np.ndarray) else p.order + np.arange(len(p.y)) for p in pieces]
    starts = np.concatenate([p.starts + end - len(p.y) for p, end in zip(pieces, ends, strict=True)])
    u = np.concatenate([p.u.T for p in pieces], axis=1).T  # column by column, as they are read
    more: dict[str, Any] = {
        name: np.concatenate(each)
        for name in ("sites", "root", "cluster", "offset")
        if (each := [getattr(p, name) for p in pieces])[0] is not None
    }
    y = np.concatenate([p.y for p in pieces])
    return Piece(u, u, y, starts=starts, gaps=gaps, order=np.concatenate(order), **more)


@dataclass(frozen=True, eq=False)
class PooledData:
    """All sites' data, and what passes over them need; names : of the N sites; kept : whether rows are kept in memory.

    logs : of each site, of a value function; dropped : (N,) rows left out because they lack a value
    mean, variance : (k + 1,) of the features and the target, over all sites
    centres : the sites' means, where each has an intercept of its own; mean and variance are then of rows less these
    """

    groups: Sequence[SiteGroup]
    names: tuple[str, ...]
    task: Task
    columns: Columns
    scale: FeatureScale
    kept: bool
    logs: Sequence[LogFacts]
    dropped: Codes
    mean: Floats
    variance: Floats
    centres: SiteSums | None = None

    def within(self, p: Piece, group: SiteGroup) -> Piece:
        """Rows less their sites' means, where each site has an intercept of its own."""
        return p if self.centres is None else self.centres.centre(p, group.start)

    def own_intercepts(self, theta: Floats, level: Floats) -> dict[str, Any]:
        """The fields of a Fit on each site's own intercept beside theta : (k,), on the original scale; none where there
        are none. level : as in an Estimate"""
        if self.centres is None:
            return {}
        x, y = self.centres.mean[:, :-1], self.centres.mean[:, -1]
        error = self.scale.y_spread * level * np.append(self.scale.y_spread, np.diag(self.scale.original()[0]))
        each = np.column_stack([error[:, 0], x, error[:, 1:]])
        return {
            "own_effects": dict(zip(self.names, (y - x @ theta).tolist(), strict=True)),
            "own_errors": dict(zip(self.names, each, strict=True)),
        }

    def pieces(self, group: SiteGroup) -> Iterator[Piece]:
        """The observations of a group's sites in the run's coordinates, from memory or from files."""
        found: Iterable[Piece] = group.kept
        if not self.kept:
            found = (p for _, p in group.read_observations(self.task, self.columns, MissingRows(group.names)))
        return (self.within(p, group).scaled(self.scale) for p in found)

    def each(self, what: str, report: FitProgress, work: Callable[[SiteGroup, Iterator[Piece]], T]) -> list[T]:
        """work(group, its pieces) for every group."""
        dim = self.scale.dim
        return _each(self.groups, self.task, dim, what, report, lambda g, watch: work(g, watch(self.pieces(g))))

    def scores(
        self, what: str, report: FitProgress, at: ScoresAt, watching: Determination | None = None
    ) -> list[ScorePass]:
        """The sites' scores at the solution of all, in one pass over the rows."""
        of, systems, weights = at

        def work(group: SiteGroup, pieces: Any) -> ScorePass:
            own = slice(group.start, group.start + len(group.names))
            pieces = pieces if watching is None else watching.watched(group.start, pieces)
            return ScorePass(of, group.start, systems.of_sites(own), weights[own], self.dropped[own]).run(pieces)

        return self.each(what, report, work)

    @property
    def penalty(self) -> Floats:
        """The ridge of each coefficient, (d,)."""
        return penalty_of(self.task, self.scale)

    @property
    def coefficients(self) -> tuple[str, ...]:
        """Their names: the features', then "intercept" where there is one."""
        return coefficient_names(self.task, self.columns, len(self.scale.centre))


def read(
    tables: Sequence[DataTable], task: Task, weight: str, memory: float, report: FitProgress, cluster: str | None = None
) -> tuple[PooledData, Floats, Systems]:
    """The data with their scale, the weights of the sites, and their systems in the run's coordinates, in one pass over
    the files; cluster : the column of the clusters"""
    columns = choose_columns(task, tables, cluster=cluster)
    design = design_of(task, columns.levels)  # made once, before threads ask for it
    for text in design.cautions if design is not None else ():
        warn(text)
    groups = _grouped(tables)
    names = tuple(name for group in groups for name in group.names)
    room, full, missing = [memory], threading.Lock(), MissingRows(names)  # bytes left for rows; below 0, none are kept
    in_all = 0 if task.missing == "drop" else sum(t.rows or 0 for t in tables)  # as far as that is known before reading

    def first(group: SiteGroup, watch: Callable[[Iterable[Any]], Iterator[Any]]) -> FirstPass | None:
        def rows() -> Iterator[tuple[Floats, Piece]]:
            for x, p in watch(group.read_observations(task, columns, missing, group.start)):
                group.kept.append(p)
                with full:
                    room[0] -= p.nbytes if in_all * p.nbytes / max(len(p.y), 1) <= memory else math.inf
                if room[0] < 0:
                    group.kept.clear()
                yield x, p

        try:
            return first_pass(rows(), task, columns, group.names)
        except MissingValuesError:
            return None

    found = _each(groups, task, len(columns.all), "reading", report, first)
    passes = [one for one in found if one is not None]
    if len(passes) < len(groups):
        raise SiteDataError(missing.text(LEAVE_OUT if isinstance(task, Regression) else ""))
    each, integers, by_group = zip(*passes, strict=True)
    if all(integers):
        raise integers_error(names[0], columns.state[0])
    kept, logs = room[0] >= 0, list(chain.from_iterable(by_group))
    for group in groups if not kept else ():
        group.kept.clear()
    sums = SiteSums.joined(each, columns.row_weights)
    return pooled(PooledData, task, weight, columns, sums, missing, groups=groups, kept=kept, logs=logs)


def pooled(
    kind: type[PooledData], task: Task, weight: str, columns: Columns, sums: SiteSums, missing: MissingRows, **more: Any
) -> tuple[PooledData, Floats, Systems]:
    """What `read` gives, from the sums of all sites; more : further fields of this kind of data."""
    names, N = tuple(sums.names), len(sums.names)
    weights = np.full(N, 1 / N) if weight == "sites" else sums.mass / sums.mass.sum()
    features = feature_names(task, columns, sums.origin.shape[1] - 1)
    if isinstance(task, Value):
        check_logs(task, more["logs"], features, names)
    centres, sums = (None, sums) if task.own is None else (sums, sums.within())
    mean, variance = sums.pooled(weights)
    where = names[0] if N == 1 else f"all {N} sites ({names[0]}, ...)"
    scale = scale_of(task, mean, variance, sums.largest.max(axis=0), features, where)
    fields: dict[str, Any] = {"columns": columns, "scale": scale, "mean": mean, "variance": variance}
    data = kind(names=names, task=task, dropped=missing.incomplete, centres=centres, **fields, **more)
    return data, weights, sums.systems(scale, data.penalty)


def first_pass(rows: Iterable[tuple[Floats, Piece]], task: Task, columns: Columns, names: Sequence[str]) -> FirstPass:
    """The sums of rows as `read_observations` gives them, in the original coordinates, whether their states seem to be
    numbers of states, and what each site's log says; names : of the sites"""
    sums, integers, logs = SiteSums(names), True, dict[int, LogFacts]()
    with np.errstate(over="ignore", invalid="ignore"):  # `check` says it in words
        for x, p in rows:
            sums.add(x[:, : x.shape[1] - task.intercept], p)
            integers = integers and may_number_states(task, columns, x)
            for c, log in zip(p.sites.tolist(), p.logs, strict=False):
                logs[c] = logs[c] + log if c in logs else log
    sums.check()
    return sums, integers, [logs[c] for c in sorted(logs)]


def read_scaled(table: DataTable, task: Task, columns: Columns, scale: FeatureScale) -> Iterator[Piece]:
    """The observations of a table in the run's coordinates, piece by piece; a log's traces go on across pieces.

    Where intercepts are the sites' own, a pass before finds the means that each site takes from its rows
    """
    centres = None
    if task.own is not None:
        centres, *_ = first_pass(read_observations(table, task, columns), task, columns, table.sites)
    for _, piece in read_observations(table, task, columns):
        yield (piece if centres is None else centres.centre(piece, 0)).scaled(scale)


def _grouped(tables: Sequence[DataTable]) -> list[SiteGroup]:
    """Tables in groups: one by one where they are few, else so many together that there are not too many groups."""
    out: list[SiteGroup] = []
    start = 0
    if len(tables) == 1 and isinstance(tables[0], MemoryTable) and (tables[0].rows or 0) >= MANY_ROWS:
        tables = tables[0].parts(cores())
    for some in np.array_split(np.arange(len(tables)), min(len(tables), MAX_GROUPS)):
        group = [tables[t] for t in some.tolist()]
        names = [name for table in group for name in table.sites]
        out.append(SiteGroup(group, names, start))
        start += len(names)
    return out


class _Stopped(Exception):
    """Another group's pass has failed, or was interrupted: this one need not go on."""


def _each(
    groups: Sequence[SiteGroup],
    task: Task,
    dim: int,
    what: str,
    report: FitProgress,
    work: Callable[[SiteGroup, Any], T],
) -> list[T]:
    """work(group, watch) for every group, several at a time where the machine has the cores; errors in their order.

    dim : of the products that the work is made of
    watch : goes round what the work goes through, so that it ends soon after an error or an interruption
    """
    N = sum(len(group.names) for group in groups)
    stop = threading.Event()

    def watch(items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if stop.is_set():
                raise _Stopped
            yield item

    out, own = [], task.features  # a feature map of the user's own may not bear several threads
    threads = min(len(groups), cores(), MAX_READERS) if own is None or isinstance(own, (FeatureMap, np.ndarray)) else 1
    with ThreadPoolExecutor(threads) as pool, one_blas_thread(1 if threads > 1 else dim):
        futures = [pool.submit(work, group, watch) for group in groups]
        try:
            for group, future in zip(groups, futures, strict=True):
                report(what, group.start, N)
                out.append(future.result())
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    report(what, N, N)
    return out


# When logs cannot tell a value function, or hardly: states that were never left, values that look further ahead than
# any log goes, weights that leave next to nothing, coefficients that rest on a few rows.

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

    Coefficient j is determined as well as the j-th entry of A^-1 (sum of u v^T), which is 1 for the data as a whole, is
    the same in all parts of them: with F_j = 1 / variance of its mean. In least squares F is n over the variance
    inflation factor, in a table of states about the visits of one. Below 10, the usual limit for instruments (Staiger
    and Stock, 1997), the estimate is far from linear in the data, and intervals do not cover. The variance is that of
    up to 32 batches of each site's rows: rows of a trajectory are correlated.

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
