"""Passes over the data of all sites: rows are kept where they fit into memory, and otherwise read again."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..checks import Floats
from ..errors import SiteDataError
from ..problems.features import FeatureMap
from ..theory.threads import cores, one_blas_thread
from .identification import check_visited
from .rows.columns import Columns, choose_columns, integers_error, may_number_states, no_weight
from .rows.design import design_of, feature_names
from .rows.log_facts import LogFacts
from .rows.observe import FeatureScale, Piece, observations, recorded
from .site_sums import CrossMoments, Summary, System, SystemSums, add_up, scale_of
from .sites.missing_rows import MissingRows, MissingValuesError, missing_values
from .sites.site_readers import Site
from .tasks import Regression, Task, Value

FitProgress = Callable[[str, float, float], None]  # what is being done, how much of it, out of how much
MAX_READERS = 8  # sites that are read at the same time
T = TypeVar("T")
Watch = Callable[[Iterable[T]], Iterator[T]]


@dataclass(frozen=True, eq=False)
class PooledData:
    """The sites with what their passes need; `kept` holds the pieces of each site, in the original coordinates, where
    they fit into memory.

    dropped : rows of each site that were left out because they lack a value
    """

    sites: list[Site]
    task: Task
    columns: Columns
    scale: FeatureScale
    kept: list[list[Piece]] | None
    logs: Sequence[LogFacts] = ()  # of a value function
    dropped: tuple[int, ...] = ()
    moments: tuple[Floats, float] | None = None  # mean (k + 1,) of features and target, and variance of the target

    def pieces(self, c: int) -> Iterator[Piece]:
        """The observations of site c, from memory or from its file."""
        if self.kept is None:
            return observations(self.sites[c], self.task, self.columns, self.scale)
        return (p.scaled(self.scale) for p in self.kept[c])

    def each(self, what: str, report: FitProgress, work: Callable[[int, Iterator[Piece]], T]) -> list[T]:
        """work(c, the pieces of site c) for every site."""
        return _each(self.sites, self.task, what, report, lambda c, watch: work(c, watch(self.pieces(c))))

    @property
    def ridge(self) -> float:
        return self.task.ridge if isinstance(self.task, Regression) else 0.0

    @property
    def penalty(self) -> Floats:
        """The ridge of each coefficient, (d,): none of the intercept."""
        return np.append(np.full(len(self.scale.centre), self.ridge), np.zeros(int(self.scale.intercept)))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the coefficients: the features' names, then "intercept" where there is one."""
        names = feature_names(self.task, self.columns, len(self.scale.centre))
        return (*names, "intercept") if self.scale.intercept else names


def read(
    sites: list[Site], task: Task, weight: str, memory: float, report: FitProgress
) -> tuple[PooledData, Floats, list[System]]:
    """The data with their scale, the weights of the sites, and their systems in the run's coordinates.

    One pass over the files, whether features are to be standardised or not.
    """
    columns = choose_columns(task, sites)
    design_of(task, columns.levels)  # made once, before threads ask for it
    room, dropping = _Room(memory), isinstance(task, Regression) and task.missing == "drop"
    in_all = 0 if dropping else sum(site.rows or 0 for site in sites)  # as far as that is known before rows are read

    missing = [MissingRows(site.name) for site in sites]

    def first(c: int, watch: Watch[Any]) -> tuple[FirstPass, list[Piece]] | None:
        kept: list[Piece] = []

        def rows() -> Iterator[tuple[Floats, Piece]]:
            for x, p in watch(recorded(sites[c], task, columns, missing[c])):
                kept.append(p)
                if not room.take(p.nbytes, of=in_all * p.nbytes / max(len(p.y), 1)):
                    kept.clear()
                yield x, p

        try:
            return first_pass(rows(), task, columns, sites[c].name), kept
        except MissingValuesError:
            return None

    found = [one for one in _each(sites, task, "reading", report, first) if one is not None]
    if len(found) < len(sites):
        instead = "; missing='drop' (--missing drop) leaves such rows out" if isinstance(task, Regression) else ""
        raise SiteDataError(missing_values([one for one in missing if one.incomplete], len(sites), instead))
    passes = [one for one, _ in found]
    if all(one.integers for one in passes):
        raise integers_error(sites[0].name, columns.state[0])
    parts = [one.summary for one in passes]
    counts = np.array([p.count for p in parts])  # by the rows' weights, where they have any
    for site in (site for site, count in zip(sites, counts, strict=True) if count == 0):
        raise no_weight(site.name, columns.row_weights)
    weights = np.full(len(sites), 1 / len(sites)) if weight == "sites" else counts / counts.sum()
    k = len(parts[0].mean) - 1
    for site, part in zip(sites, parts, strict=True):
        if len(part.mean) - 1 != k:
            rule = f"the feature map must give as many features at every site, {k} at {sites[0].name}"
            raise SiteDataError(f"{rule}; got {len(part.mean) - 1} at {site.name}")
    logs = [one.log for one in passes if one.log is not None]
    if isinstance(task, Value):
        check_visited(task, logs, feature_names(task, columns, k), [s.name for s in sites])
    scale = scale_of(task, parts, weights, feature_names(task, columns, k), [s.name for s in sites])
    kept = [pieces for _, pieces in found] if room.left >= 0 else None
    dropped = tuple(one.incomplete for one in missing)
    data = PooledData(sites, task, columns, scale, kept, logs, dropped, _moments(parts, weights))
    return data, weights, [one.sums.in_scale(scale).system(data.penalty) for one in passes]


@dataclass(frozen=True, eq=False)
class FirstPass:
    """What one pass over a site's rows gives; integers : whether states seem to be numbers of states."""

    summary: Summary
    sums: CrossMoments | SystemSums
    integers: bool
    log: LogFacts | None = None

    @classmethod
    def of(cls, x: Floats, p: Piece, task: Task, columns: Columns) -> FirstPass:
        """Of one piece: its features (n, d) and the observations made of them."""
        features = x[:, : x.shape[1] - task.intercept]
        if isinstance(task, Regression):
            moments = CrossMoments.of(features, p.y, p.root)
            return cls(moments.summary, moments, False)
        return cls(Summary.of(features, p.y), SystemSums.of(p), may_number_states(task, columns, x), p.log)

    def __add__(self, other: FirstPass) -> FirstPass:
        sums = self.sums + other.sums  # type: ignore[operator]  # both are of one task
        log = None if self.log is None or other.log is None else self.log + other.log
        return FirstPass(self.summary + other.summary, sums, self.integers and other.integers, log)


def first_pass(rows: Iterable[tuple[Floats, Piece]], task: Task, columns: Columns, name: str) -> FirstPass:
    """The sums of rows as they are `recorded`, in the original coordinates; name : of the site, for errors."""
    with np.errstate(over="ignore", invalid="ignore"):  # check_size says it in words
        total = add_up((FirstPass.of(x, p, task, columns) for x, p in rows), name)
    total.summary.check_size(name)
    return total


def _moments(parts: list[Summary], weights: Floats) -> tuple[Floats, float]:
    """The mean of features and target, and the variance of the target, over all sites; weights : (N,), of the sites."""
    means = np.stack([p.mean for p in parts])
    mean = weights @ means
    within = np.array([p.scatter[-1] / p.count for p in parts])
    return mean, float(weights @ (within + (means[:, -1] - mean[-1]) ** 2))


class _Room:
    """Bytes that are left for rows; below 0, none are kept."""

    def __init__(self, size: float) -> None:
        self.size = self.left = size
        self.lock = threading.Lock()

    def take(self, size: int, of: float) -> bool:
        """Whether there is room for so many bytes, and for all of them; if not, there is none from now on."""
        with self.lock:
            self.left -= size if of <= self.size else math.inf
            return self.left >= 0


class _Stopped(Exception):
    """Another site's pass has failed, or was interrupted: this one need not go on."""


def _each(
    sites: list[Site], task: Task, what: str, report: FitProgress, work: Callable[[int, Watch[Any]], T]
) -> list[T]:
    """work(c, watch) for every site, several at a time where the machine has the cores; errors in the sites' order.

    watch : goes round what the work goes through, so that it ends soon after an error or an interruption
    """
    N = len(sites)
    stop = threading.Event()

    def watch(items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if stop.is_set():
                raise _Stopped
            yield item

    out = []
    threads = _threads(task, N)
    limited = one_blas_thread() if threads > 1 else nullcontext()
    with ThreadPoolExecutor(threads) as pool, limited:
        futures = [pool.submit(work, c, watch) for c in range(N)]
        try:
            for c, future in enumerate(futures):
                report(what, c, N)
                out.append(future.result())
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    report(what, N, N)
    return out


def _threads(task: Task, N: int) -> int:
    """As many as there are cores, but pieces of few sites in memory at a time; one for a feature map of the user's own,
    which may not bear more."""
    own = None if isinstance(task, Regression) else task.features
    return min(N, cores(), MAX_READERS) if own is None or isinstance(own, (FeatureMap, np.ndarray)) else 1
