"""Which columns of the sites a task needs; every site must have the same ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..checks import Floats
from ..errors import SiteDataError
from ..problems.features import FeatureMap, names_of
from .design import Levels, agreed_levels, design_of
from .formulas import parse_formula
from .tables import DataTable, listed, natural, refuse_index
from .tasks import Names, Regression, Task, Value


@dataclass(frozen=True)
class Columns:
    """The columns that a task reads, the same at every site. Those of `state` and `next_state` stand in one order.

    regression : state are the columns of the features, of a formula those that its right side names; reward is that of
        the target, of a formula the first that its left side names. row_weights, offset, cluster : as the task names
        them
    labels : categories of a formula, and the cluster, which are read as they are, numbers or not
    levels : of each category of a formula, agreed by all sites, in order
    beside : further columns of the left side of a formula
    """

    state: tuple[str, ...]
    next_state: tuple[str, ...]
    reward: str
    terminated: str | None = None
    truncated: str | None = None
    importance: str | None = None
    row_weights: str | None = None
    offset: str | None = None
    cluster: str | None = None
    labels: tuple[str, ...] = ()
    levels: Levels = ()
    beside: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every column once, in the order in which they are read."""
        rest = (
            self.reward,
            self.terminated,
            self.truncated,
            self.importance,
            self.row_weights,
            self.offset,
            self.cluster,
        )
        return tuple(dict.fromkeys([*self.state, *self.next_state, *self.beside, *(c for c in rest if c is not None)]))


def choose_columns(
    task: Task, tables: Sequence[DataTable], levels: Levels | None = None, cluster: str | None = None
) -> Columns:
    """The columns that the task reads, found in the first table and checked in all.

    levels : of the categories of a formula. By default those of all these tables, from a pass over their rows
    cluster : the column of the clusters, where there is one
    """
    first, *others = [member for table in tables for member in table.members or (table,)]
    columns = _own(task, first, cluster)
    for table in others:
        for column in columns.all:
            if column not in table.columns:
                raise SiteDataError(f"{table.name} lacks the column {column!r} that {first.name} has")
        for extra in (c for c in _own(task, table, cluster).all if c not in columns.all):
            hint = "; name the columns" if isinstance(task, Regression) else ""
            raise SiteDataError(f"{table.name} has a column {extra!r} that {first.name} lacks{hint}")
    if not isinstance(task, Regression) or task.formula is None:
        return columns
    if levels is None:
        levels = agreed_levels(tables, task, [cluster] if cluster is not None else [])
    return replace(columns, levels=levels, labels=tuple(dict.fromkeys([*(c for c, _ in levels), *columns.labels])))


def _own(task: Task, site: DataTable, cluster: str | None) -> Columns:
    """The columns that the task reads in one table."""
    return _regression(task, site, cluster) if isinstance(task, Regression) else _value(task, site)


def _regression(task: Regression, site: DataTable, cluster: str | None) -> Columns:
    labels = () if cluster is None else (cluster,)
    beside: dict[str, Any] = {"row_weights": task.row_weights, "offset": task.offset, "cluster": cluster}
    if task.formula is not None:
        parsed = parse_formula(task.formula)
        target, *more = parsed.target.columns
        found = Columns(parsed.columns, (), target, labels=labels, beside=tuple(more), **beside)
        for column in found.all:
            site.require(column)
        return found
    others = {task.target, task.row_weights, task.offset, cluster, site.split_by}
    features = [c for c in site.columns if c not in others] if task.columns is None else task.columns
    if task.columns is None:
        refuse_index(site.name, features, "name the columns that explain the target (columns, --columns)")
    if task.target not in site.columns and re.search("[=+]", task.target):
        rule = "a formula has a ~ between its target and its terms, 'y ~ a + b'"
        raise SiteDataError(f"{site.name} has no column {task.target!r}; {rule}")
    for column in (task.target, *features, *(c for c in (task.row_weights, task.offset, cluster) if c is not None)):
        site.require(column)
    if task.target in features:
        raise SiteDataError(f"{site.name}: the target {task.target!r} must not be a feature as well")
    for column in features:
        if list(features).count(column) > 1:
            raise SiteDataError(f"{site.name}: columns must be named once each; {column!r} is named twice")
    if not features:
        raise SiteDataError(f"{site.name} must have at least one column beside the target {task.target!r}")
    return Columns(tuple(features), (), task.target, labels=labels, **beside)


def _value(task: Value, site: DataTable) -> Columns:
    site.require(task.reward)
    site.require(task.terminated)
    before = _group(site, task, task.state, task.next_state, "state")
    after = _group(site, task, task.next_state, task.state, "next_state")
    for column in (*before, *after):
        if (*before, *after).count(column) > 1:
            raise SiteDataError(f"{site.name}: columns of state and next_state must be named once; {column!r} is twice")
    if len(before) != len(after):
        raise SiteDataError(
            f"{site.name} must have as many columns of the next state as of the state, "
            f"{len(before)} ({listed(before)}); got {len(after)} ({listed(after)})"
        )
    if isinstance(task.state, str) and isinstance(task.next_state, str):  # in one order, by what follows the prefix
        tails = {c.removeprefix(task.next_state) for c in after}
        for column in before:
            tail = column.removeprefix(task.state)
            if tail not in tails:
                raise SiteDataError(f"{site.name} has {column!r} but no {task.next_state + tail!r} for the next state")
        after = [task.next_state + c.removeprefix(task.state) for c in before]
    optional: dict[str, Any] = {
        c: (getattr(task, c) if getattr(task, c) in site.columns else None) for c in ("truncated", "importance")
    }
    return Columns(tuple(before), tuple(after), task.reward, task.terminated, **optional)


def _group(site: DataTable, task: Value, names: Names, others: Names, what: str) -> list[str]:
    """A list of columns as it is; a column of just this name; else all columns that begin so, numbers in their order.

    others : the names or prefix of the other state. Where one prefix begins with the other, the longer takes its own.
    """
    if not isinstance(names, str):
        for column in names:
            site.require(column)
        return list(names)
    if names in site.columns:
        return [names]
    taken = {task.reward, task.terminated, task.truncated, task.importance, site.split_by}
    taken |= {others} if isinstance(others, str) else set(others)
    longer = isinstance(others, str) and len(others) > len(names) and others.startswith(names)
    matching = [
        c for c in site.columns if c.startswith(names) and c not in taken and not (longer and c.startswith(str(others)))
    ]
    if not matching:
        rule = f"{site.name} has no column {names!r}, nor any that begins so, for {what}"
        raise SiteDataError(f"{rule}; it has {listed(site.columns)}")
    return sorted(matching, key=natural)


def feature_names(task: Task, columns: Columns, k: int) -> tuple[str, ...]:
    """Of the k features, the intercept not among them."""
    if task.features is not None:
        return names_of(task.features, k)
    design = design_of(task, columns.levels)
    names = columns.state if design is None else design.names
    counts = Counter([*names, *(["intercept"] if task.intercept else [])])
    for name in (n for n, count in counts.items() if count > 1):
        raise SiteDataError(f"coefficients must have a name each; {name!r} would be of two: rename a column")
    return names


def feature_count(task: Task, columns: Columns) -> int:
    """How many features the task has, the intercept not among them."""
    if task.features is not None:
        return task.features.dim if isinstance(task.features, FeatureMap) else np.shape(task.features)[-1]
    return len(feature_names(task, columns, 0))


def may_number_states(task: Task, columns: Columns, x: Floats) -> bool:
    """Whether features x : (n, k) are one column of integers of which nobody has said that they are numbers."""
    asked = isinstance(task, Value) and task.features is None and not task.numbers and len(columns.state) == 1
    return asked and bool((x[:, 0] == np.rint(x[:, 0])).all())


def integers_error(site: str, column: str) -> SiteDataError:
    """The error for states that are integers."""
    return SiteDataError(
        f"{site}: column {column!r} holds integers alone. Where they number states, features must say so (--features "
        "'OneHot(64)'); where they are numbers that are their own feature, numbers must be given (--numbers)"
    )
