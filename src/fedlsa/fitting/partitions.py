"""Tables that no machine holds, Ray Data sets and Dask data frames: every partition sends sums of its sites, never a
row, and workers add them up, some at a time.

Such a table is read twice, for moments and for scores at the solution; a formula needs the levels of categories before.
How rows are shared out does not matter, nor the order of partitions. Where a worker dies, Ray and Dask's distributed
scheduler make its partition again; a pool of processes is lost, and said to be.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks import Floats
from ..engine.ray_tasks import OTHER_VERSION, RETRIES
from ..errors import ArgumentError, ClusterError, FedLSAError, SiteDataError, warn
from ..files import reason
from ..installation import __version__
from .design import Levels, agree_levels, design_of, level_counts
from .formulas import parse_formula
from .reading import LEAVE_OUT, FitProgress, PooledData, ScoresAt, pooled
from .rows import Columns, FeatureScale, choose_columns, read_observations
from .scores import ClusterSums, ScorePass
from .sites import SAYS, from_columns, split_by_column
from .sums import SiteSums, Systems
from .tables import Codes, DataTable, MissingRows, MissingValuesError, check_unique, sites_by_label
from .tasks import CovarianceKind, Regression, Task

KINDS = ("ray.data.", "Dataset"), ("dask.", "DataFrame")  # where classes stand, and what they are called
TOGETHER = 16  # partitions' sums that one task adds up
EXACT = 2**53  # from which floating point does not tell integers apart, which other partitions may hold
SAME_ROWS = 1e-6  # relative, of what two passes find: a difference beyond it is no rounding error
RunCoordinates = tuple[FeatureScale, SiteSums | None]  # and the sites' means, where intercepts are their own
SCORES = ("squares", "products", "second", "free", "rows", "alone", "leverage_one")  # of ScoreSums, which add up


def is_partitioned(sites: Any) -> bool:
    """Whether it is a Ray Data set or a Dask data frame."""
    classes = type(sites).__mro__
    return any(c.__name__ == name and c.__module__.startswith(package) for c in classes for package, name in KINDS)


class MissingInPart(MissingRows):
    """What is missing in a partition. Sites of which it has no row left may have others elsewhere."""

    def refuse_lost_sites(self, here: slice) -> None:
        """None are known to be lost."""


@dataclass(eq=False)
class PartitionSums:
    """What partitions send: sums over their rows, by site.

    names : of the N sites that have rows there; each : (N, ...), by what it is; moments : of the same sites
    pairs : of sites and clusters, as ClusterSums has them; total : (6,), of all sites together
    levels : of categories that some partition has, and the orders that its types declare, by their text
    refused : why a partition could not be read
    """

    names: Sequence[str] = ()
    each: dict[Any, NDArray[Any]] = field(default_factory=dict)
    moments: SiteSums = field(default_factory=lambda: SiteSums(()))
    pairs: tuple[Codes, list[Any], Floats] | None = None
    total: Any = 0.0
    levels: dict[str, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    refused: FedLSAError | None = None


def add_up(parts: Sequence[PartitionSums], names: Sequence[str] = ()) -> PartitionSums:
    """The sums over the rows of all these partitions; names : sites that come first, in this order."""
    names = tuple(dict.fromkeys([*names, *(name for part in parts for name in part.names)]))
    place = {name: c for c, name in enumerate(names)}
    out, clusters = PartitionSums(names, moments=SiteSums(names)), list[ClusterSums]()
    for part in parts:
        if part.refused is not None:
            return part
        s = np.array([place[name] for name in part.names], np.int64)
        for key, values in part.each.items():
            out.each.setdefault(key, np.zeros((len(names), *values.shape[1:]), values.dtype))[s] += values
        with np.errstate(over="ignore", invalid="ignore"):  # SiteSums.check says it in words
            out.moments.add_sums(part.moments, s)
        if part.pairs is not None:
            clusters = clusters or [ClusterSums(part.pairs[2].shape[1], by_site=False)]
            clusters[0].add_pairs(s[part.pairs[0]], *part.pairs[1:])
        out.total = out.total + part.total
        out.levels |= part.levels
    out.pairs = clusters[0].pairs(0) if clusters else None
    return out


@dataclass(frozen=True, eq=False)
class PartitionWork:
    """What a worker makes of a partition: find(table, task, columns, *more); site : the column of the sites."""

    find: Callable[..., PartitionSums]
    site: str
    task: Task
    columns: Columns
    more: tuple[Any, ...] = ()
    version: str = __version__

    def __call__(self, block: Any) -> PartitionSums:
        """The sums of a partition, an Arrow table or a pandas frame; refused where it holds what it must not."""
        if self.version != __version__:
            return PartitionSums(refused=ClusterError(OTHER_VERSION))
        if not len(block):
            return PartitionSums()
        try:
            table = from_columns("a partition", block)
            for column in dict.fromkeys((self.site, *self.columns.labels)):
                labels = table.column(column, True)
                if labels.dtype.kind == "f" and np.nanmax(abs(labels), initial=0) >= EXACT:
                    rule = f"column {column!r} must have labels that are text or integers where they are so large"
                    raise SiteDataError(f"{rule}; got floating point, which has lost digits that others may have")
            return self.find(split_by_column(table, self.site), self.task, self.columns, *self.more)
        except FedLSAError as error:
            where = " (rows are counted in their partition)" if re.search(r"\brow \d", str(error)) else ""
            return PartitionSums(refused=type(error)(f"{error}{where}"))


def find_levels(table: DataTable, task: Task, columns: Columns) -> PartitionSums:
    """The levels of categories in a partition; none of a column without any value there."""
    counts = level_counts(table, task, columns.labels, MissingInPart(table.sites))
    found = {column: tuple(levels) for column, levels in counts.items()}
    declared = {**table.categories, **parse_formula(str(task.formula)).listed}
    return PartitionSums(levels={repr((found, declared)): (found, declared)})


def find_moments(table: DataTable, task: Task, columns: Columns) -> PartitionSums:
    """The moments of features and target in a partition, and what is missing."""
    moments, missing = SiteSums(table.sites), MissingInPart(table.sites)
    with np.errstate(over="ignore", invalid="ignore"), suppress(MissingValuesError):  # all partitions count theirs
        for x, p in read_observations(table, task, columns, missing):
            moments.add(x[:, : x.shape[1] - task.intercept], p)
    each = {"rows": missing.rows, "incomplete": missing.incomplete}
    return PartitionSums(table.sites, each | {(c,): counts for c, (counts, _) in missing.columns.items()}, moments)


def find_scores(
    table: DataTable, task: Task, columns: Columns, run: RunCoordinates, place: dict[str, int], at: ScoresAt
) -> PartitionSums:
    """The scores of a partition's rows at the solution of all and at the sites' own; place : of each site among all."""
    (scale, centres), (of, systems, weights) = run, at
    s = np.array([place.get(name, -1) for name in table.sites], np.int64)
    if s.min() < 0:
        raise _other_rows()
    one = ScorePass(of, 0, systems.of_sites(s), weights[s])
    for _, p in read_observations(table, task, columns, MissingInPart(table.sites)):
        if centres is not None:
            p = replace(centres.centre(replace(p, sites=s[p.sites]), 0), sites=p.sites)
        one.add(p.scaled(scale))
    each: dict[Any, NDArray[Any]] = {}
    for own, sums in enumerate((one.sums, one.own_sums)):
        each |= {(own, name): getattr(sums, name) for name in SCORES}
    total, pairs = np.array([one.shares, one.log_weights, *one.residuals.sums()]), None
    if one.clusters is not None:
        sites, labels, values = one.clusters.pairs(0)
        pairs = sites, [0] * len(sites) if one.clusters.by_site else labels, values
    return PartitionSums(table.sites, each, pairs=pairs, total=total)


def _other_rows() -> SiteDataError:
    rule = "a Ray or Dask data set must have the same rows whenever it is read (materialize(), persist() hold them)"
    return SiteDataError(f"{rule}; it had others the second time")


def _to_frame(block: Any, work: PartitionWork) -> Any:
    import pandas as pd

    return pd.DataFrame({"sums": [work(block)]})  # as Ray has an object


def _sums_in(frames: Sequence[Any]) -> list[PartitionSums]:
    return [one for frame in frames if "sums" in frame for one in frame["sums"]]  # Ray makes none of no rows


def _add_frames(*frames: Any) -> Any:
    import pandas as pd

    return pd.DataFrame({"sums": [add_up(_sums_in(frames))]})


def _refuse_absent(wanted: Sequence[Any], error: Exception) -> None:
    """Say which column a partition lacks, where that is what an error is about; of Ray it is text alone."""
    lines = [line for line in f"{type(error).__name__}: {error}".splitlines() if "KeyError: " in line]
    for column in wanted:
        if any(repr(column) in line or f'"{column}"' in line for line in lines):
            raise SiteDataError(f"every partition must have the column {column!r}; one lacks it") from None


@dataclass(frozen=True, eq=False)
class Partitions:
    """A data set in partitions; columns : as it calls them, by name; site : the column of the sites."""

    given: Any
    columns: dict[str, Any]
    site: str

    def add_up(self, find: Callable[..., PartitionSums], task: Task, columns: Columns, *more: Any) -> PartitionSums:
        """What `find` finds in all partitions, added up in a tree."""
        work = PartitionWork(find, self.site, task, columns, more)
        wanted = [self.columns[c] for c in dict.fromkeys([*columns.all, self.site])]
        out = add_up((self._on_ray if type(self.given).__module__.startswith("ray.") else self._on_dask)(wanted, work))
        if out.refused is not None:
            raise out.refused
        return out

    def _on_ray(self, wanted: list[Any], work: PartitionWork) -> list[PartitionSums]:
        import ray

        whole: dict[str, Any] = {"batch_size": None, "batch_format": None, "zero_copy_batch": True}
        data = self.given.select_columns(wanted).map_batches(_to_frame, fn_args=[work], **whole)
        try:
            parts, add = data.to_pandas_refs(), ray.remote(max_retries=RETRIES)(_add_frames)
            while len(parts) > TOGETHER:
                parts = [add.remote(*parts[k : k + TOGETHER]) for k in range(0, len(parts), TOGETHER)]
            return _sums_in(ray.get(parts))
        except ray.exceptions.RayTaskError as error:
            _refuse_absent(wanted, error)
            raise  # of what makes the rows, the user's own
        except ray.exceptions.RayError as error:
            raise ClusterError(f"the Ray cluster lost a partition for good: {reason(error)}") from error

    def _on_dask(self, wanted: list[Any], work: PartitionWork) -> list[PartitionSums]:
        import dask

        held, run, add = (dask.delayed(one, traverse=False) for one in (work, operator.call, add_up))
        parts = [run(held, part) for part in self.given[wanted].to_delayed()]
        while len(parts) > TOGETHER:
            parts = [add(parts[k : k + TOGETHER]) for k in range(0, len(parts), TOGETHER)]
        try:
            return list(dask.compute(*parts))
        except KeyError as error:
            _refuse_absent(wanted, error)
            raise
        except BrokenExecutor as error:
            rule = "a process of Dask's pool was lost, and all partitions with it; dask.distributed makes them again"
            raise ClusterError(f"{rule}: {reason(error)}") from error


@dataclass(frozen=True, eq=False, kw_only=True)
class PartitionedData(PooledData):
    """Of a data set in partitions; it has no groups."""

    source: Partitions

    def scores(self, what: str, report: FitProgress, at: ScoresAt, watching: Any = None) -> list[ScorePass]:
        """The sites' scores at the solution of all, in one pass over the partitions."""
        report(what, 0, len(self.names))
        (of, systems, weights), run = at, (self.scale, self.centres)
        place, out = {name: c for c, name in enumerate(self.names)}, ScorePass(of, 0, systems, weights)
        found = add_up([self.source.add_up(find_scores, self.task, self.columns, run, place, at)], self.names)
        for own, sums in enumerate((out.sums, out.own_sums)):
            vars(sums).update({name: found.each[own, name] for name in SCORES})
            sums.leverage_one *= -1  # such a row there is, and nobody knows where
        if out.clusters is not None and found.pairs is not None:
            out.clusters.add_pairs(*found.pairs)
        (out.shares, out.log_weights), out.residuals.summed = found.total[:2].tolist(), found.total[2:]
        gap = out.sums.products / systems.mass[:, None] + of.penalty * of.theta - (systems.A @ of.theta - systems.b)
        size = abs(systems.A) @ abs(of.theta) + abs(systems.b)
        if (out.sums.rows != systems.n).any() or (abs(gap) > SAME_ROWS * size).any():
            raise _other_rows()
        report(what, len(self.names), len(self.names))
        return [out]


def open_partitions(
    sites: Any, site: str | None, task: Task, kind: CovarianceKind, bootstrap: int | None, local: str
) -> Partitions:
    """A data set in partitions, of which a fit asks for nothing but sums."""
    for rule, why, broken, got in (
        ("task must be fl.Regression(...)", "partitions cut trajectories", not isinstance(task, Regression), task),
        ("site must be given", "a column says what site a row is of", site is None, None),
        ("covariance must not be 'HAC'", "partitions cut the order of rows", kind.name == "HAC", "HAC"),
        ("bootstrap must not be given", "it reweights rows in their order", bootstrap is not None, bootstrap),
        ("local must be 'auto' or 'means'", "rows stay where they are", local in ("rows", "log"), local),
    ):
        if broken:
            raise ArgumentError(f"{rule} where sites are a Ray or Dask data set, for {why}; got {checks.show(got)}")
    columns = (sites.columns() if callable(sites.columns) else list(sites.columns)) or ()
    check_unique("the data set", list(map(str, columns)))
    return Partitions(sites, {str(column): column for column in columns}, str(site))


def read_partitions(
    source: Partitions, task: Task, weight: str, report: FitProgress, cluster: str | None = None
) -> tuple[PooledData, Floats, Systems]:
    """The data with their scale, the weights of the sites, and their systems in the run's coordinates, as `read`."""
    report("reading", 0, 1)
    table = DataTable(name="the data set", columns=tuple(source.columns), split_by=source.site)
    table.require(source.site, SAYS)
    columns = choose_columns(task, [table], (), cluster)
    if task.formula is not None:
        columns = choose_columns(task, [table], _agree(source.add_up(find_levels, task, columns)), cluster)
    design = design_of(task, columns.levels)
    for text in design.cautions if design is not None else ():
        warn(text)
    found = source.add_up(find_moments, task, columns)
    if not found.names:
        raise SiteDataError(f"{table.name} must have at least one row; it has none")
    names, _ = sites_by_label({name: name for name in found.names})
    found, missing = add_up([found], names), MissingRows(names)
    missing.rows, missing.incomplete = found.each.pop("rows"), found.each.pop("incomplete")
    missing.columns = {c: (counts, np.zeros_like(counts)) for (c,), counts in found.each.items()}  # nobody knows where
    if missing.incomplete.any() and task.missing != "drop":
        raise SiteDataError(missing.text(LEAVE_OUT))
    missing.refuse_lost_sites(slice(0, None))
    found.moments.check()
    sums = SiteSums.joined([found.moments], columns.row_weights)
    more: dict[str, Any] = {"groups": (), "kept": False, "logs": (), "source": source}
    out = pooled(PartitionedData, task, weight, columns, sums, missing, **more)
    report("reading", 1, 1)
    return out


def _agree(found: PartitionSums) -> Levels:
    """The levels that all partitions have together. One without any value of a column takes what others make of it."""
    parts = {f"some partitions ({i})": found.levels[key] for i, key in enumerate(sorted(found.levels), 1)}
    known = {c: levels for own, _ in parts.values() for c, levels in own.items() if levels}
    levels = {name: {c: own[c] or known[c] for c in own if c in known} for name, (own, _) in parts.items()}
    return agree_levels(levels, {name: declared for name, (_, declared) in parts.items()})
