"""How a fitted model does on data that it has not seen, file by file and on all of them together.

A regression is judged by its residuals. A value function has no targets: the TD error delta = r + gamma V(s') - V(s)
holds the noise of transitions and is not the error of V; the mean TD update, mean of u delta, is 0 at the solution of
the hold-out's own system; and the discounted returns are targets, with a spread of their own. Episodes that are cut
before they end are part of them, or only those would be judged that ended early: what they lack is put in as the
model's own value of the state where they were cut, and how much that is stands beside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import SiteDataError
from ..problems.data import traces
from ..threads import small_products
from ..value_objects import Displayed, ReadOnly
from .fitted import Fit
from .rows import SAME, Columns, Piece, choose_columns, read_observations
from .sites import open_tables
from .sums import SiteSums, refuse_empty
from .tables import DataTable, block_rows
from .tasks import Regression, Value

ALL = "all"
LAST, ENDED = 3, 4  # columns of an episode's rows


@dataclass(frozen=True, eq=False, repr=False)
class Residuals(Displayed, ReadOnly):
    """How a regression does on new rows, each by its weight where the task has row weights.

    name : of the hold-out
    rows : in it
    r_squared : 1 - rmse^2 / spread^2, the share of the targets' variance that is explained
    rmse : root mean square of the residuals y - x^T theta - offset, in units of the target
    spread : standard deviation of the targets
    mean : of the residuals
    """

    name: str
    rows: int
    r_squared: float
    rmse: float
    spread: float
    mean: float


@dataclass(frozen=True, eq=False, repr=False)
class TDErrors(Displayed, ReadOnly):
    """How a value function does on new transitions.

    name : of the hold-out
    rows : in it
    td_error : mean of delta^2, which is not the error of the values
    update : ||mean of u delta||, 0 for the solution of these data
    returns : how many rows have a return, 0 where another policy made the log
    return_rmse : root mean square of V(s) minus the discounted return that followed, which holds the returns' own noise
    return_spread : standard deviation of the returns
    return_mean : of the returns
    episodes : in the log
    cut : the share of them that did not end in termination. Their returns hold the model's own discounted value of the
        state at the cut
    remainder : root mean square of that part over all rows. Where the model's values are off by a share q, the returns
        are off by at most q times as much
    """

    name: str
    rows: int
    td_error: float
    update: float
    returns: int
    return_rmse: float
    return_spread: float
    return_mean: float
    episodes: int
    cut: float
    remainder: float


@small_products
def evaluate(
    fit: Fit, sites: Any, *, site: str | None = None, decimal: str | None = None
) -> list[Residuals] | list[TDErrors]:
    """A row for each hold-out; if several, one for all.

    fit : the model
    sites : hold-outs: whatever fl.fit takes as sites
    site : the column that says which hold-out a row is of; decimal : the mark of CSV files; both as in fl.fit

    >>> x = np.linspace(-1, 1, 20).reshape(20, 1)
    >>> fit = fl.fit([(x, 3 * x[:, 0] + np.sin(np.arange(20)))], fl.Regression("y"), local="means")
    >>> [row] = fl.evaluate(fit, [(x, 3 * x[:, 0])])
    >>> row.rows, round(row.r_squared, 2)
    (20, 0.99)
    """
    checks.instance("fit", fit, Fit, "what fl.fit(...) returns")
    task = fit.task
    if isinstance(task, Regression):  # by name: a hold-out may have more columns than the model has
        task = replace(task, columns=None if task.formula else fit.columns)
    tables = open_tables(sites, task, site, decimal)
    columns = choose_columns(task, tables, tuple(fit.levels.items()))
    if columns.state != fit.columns:
        raise SiteDataError(
            f"{tables[0].name} must have the columns of the model, {', '.join(fit.columns[:6])}; "
            f"got {', '.join(columns.state[:6])}"
        )
    if isinstance(task, Regression):
        sums = SiteSums.joined([_residuals(fit, task, columns, table) for table in tables], columns.row_weights)
        rows = zip(_with_all(sums.names, ALL), _with_all(sums.n), *_moments(sums), strict=True)
        return [_regression_row(*row) for row in rows]
    found = [_transition_sums(fit, task, columns, table) for table in tables]
    names = [name for table in tables for name in table.sites]
    each = [_with_all(np.concatenate(column)) for column in list(zip(*found, strict=True))[:-1]]
    moments = [np.full(3, np.nan)] * len(each[0]), [np.full(3, np.nan)] * len(each[0])
    if columns.importance is None:  # returns of the behaviour are not those of the policy
        moments = _moments(SiteSums.joined([one[-1] for one in found]))
    return [_value_row(*row) for row in zip(_with_all(names, ALL), *each, *moments, strict=True)]


def _with_all(values: Any, together: Any = None) -> list[Any]:
    """What sites have; of several sites, that of all together as well, by default the sum."""
    each = list(values)
    return each if len(each) == 1 else [*each, sum(each) if together is None else together]


def _moments(sums: SiteSums) -> tuple[list[Floats], list[Floats]]:
    """Means and variances of each site's numbers, and of all together."""
    mean, variance = sums.pooled(sums.mass / sums.mass.sum())
    return _with_all(sums.mean, mean), _with_all(sums.variance, variance)


def _residuals(fit: Fit, task: Regression, columns: Columns, table: DataTable) -> SiteSums:
    """The moments of the residuals and targets of a table's sites."""
    sums = SiteSums(table.sites)
    with np.errstate(over="ignore", invalid="ignore"):  # `check` says it in words
        for x, p in read_observations(table, task, columns):
            site = None if task.own is None else np.array(table.sites)[p.sites].repeat(p.counts)
            sums.add((p.y - fit.values_at(x, site))[:, None], p if p.offset is None else replace(p, y=p.y + p.offset))
    sums.check(least=0.0)
    return sums


def _regression_row(name: str, n: int, mean: Floats, variance: Floats) -> Residuals:
    mse = variance[0] + mean[0] ** 2
    share = 1 - mse / variance[1] if variance[1] > 0 else math.nan
    return Residuals(name, int(n), float(share), math.sqrt(mse), math.sqrt(variance[1]), float(mean[0]))


def _transition_sums(fit: Fit, task: Value, columns: Columns, table: DataTable) -> tuple[Any, ...]:
    """Of each site how many transitions, squared TD errors, updates : (N, d), episodes and those cut; and moments of V
    less the return, of what is put in for cuts, and of returns, none where another policy made the log."""
    N = len(table.sites)
    n, squares, update = np.zeros(N, np.int64), np.zeros(N), np.zeros((N, len(fit.theta)))
    for _, p in read_observations(table, task, columns):
        delta = p.y - p.v @ fit.theta
        n[p.sites] += p.counts
        squares[p.sites] += p.sums(delta**2)
        update[p.sites] += p.sums(delta[:, None] * p.u)
    refuse_empty(table.sites, n)
    episodes, cut, returns = np.zeros(N, np.int64), np.zeros(N, np.int64), SiteSums(table.sites)
    if columns.importance is None:  # returns of the behaviour are not those of the policy
        for c, rows in _episodes(fit, task, columns, table):
            gain, remainder = _returns(rows, task.discount)
            episodes[c] += int(rows[:, LAST].sum())
            cut[c] += int((rows[:, LAST] > rows[:, ENDED]).sum())
            x = np.column_stack([rows[:, 0] - gain, remainder])
            returns.add(x, Piece(x, x, gain, np.array([c])))
        returns.check(least=0.0)
    return n, squares, update, episodes, cut, returns


def _episodes(fit: Fit, task: Value, columns: Columns, table: DataTable) -> Iterator[tuple[int, Floats]]:
    """Whole episodes of the sites' logs, many at a time, with the site: (n, 5) value, reward, value of the state that
    followed, whether a row is its episode's last, and whether it ended in termination.

    An episode is cut where it is truncated, where the log ends, and where the next row does not begin in the state that
    this one led to.
    """
    going_on: dict[int, tuple[Floats, Floats]] = {}  # each site's rows of an episode so far, and where they led to
    for block in table.blocks(columns.all, block_rows(4 * len(fit.theta))):
        states, following = (
            np.column_stack([block[c] for c in names]) for names in (columns.state, columns.next_state)
        )
        ended = block[str(columns.terminated)] != 0
        last = ended | (block[columns.truncated] != 0 if columns.truncated is not None else False)
        last[:-1] |= ~np.isclose(following[:-1], states[1:], rtol=SAME, atol=0).all(axis=1)
        mapped = states.shape[1] == 1 and task.features is not None
        before, after = (fit.predict(s[:, 0] if mapped else s) for s in (states, following))
        found = np.column_stack([before, block[columns.reward], after, last, ended])
        for c, start, stop in zip(block.sites.tolist(), block.starts, [*block.starts[1:], len(last)], strict=True):
            rows = found[start:stop]
            cut = columns.truncated is not None and block[columns.truncated][stop - 1] != 0
            rows[-1, LAST] = rows[-1, ENDED] or cut  # the next row is of another site, and says nothing
            if c in going_on:
                earlier, arrived = going_on.pop(c)
                follows = np.isclose(arrived, states[start], rtol=SAME, atol=0).all()
                earlier[-1, LAST] = max(earlier[-1, LAST], not follows)
                rows = np.concatenate([earlier, rows])
            ends = np.flatnonzero(rows[:, LAST])
            done = int(ends[-1]) + 1 if len(ends) else 0
            if done:
                yield c, rows[:done]
            if done < len(rows):
                going_on[c] = rows[done:].copy(), following[stop - 1]
    for c, (rows, _) in going_on.items():
        rows[-1, LAST] = 1
        yield c, rows


def _returns(rows: Floats, discount: float) -> tuple[Floats, Floats]:
    """G_k = r_k + discount G_{k+1}, backwards from the end of each episode, and the part of it that was not seen:
    beyond a cut stands the model's own value of the state there."""
    _, reward, following, last, ended = rows[::-1].T
    beyond = np.where(last > ended, discount * following, 0.0)
    sums = traces(np.column_stack([reward + beyond, beyond]), np.append(last[1:] > 0, False), discount)[::-1]
    return sums[:, 0], sums[:, 1]


def _value_row(
    name: str, n: int, squares: float, update: Floats, episodes: int, cut: int, mean: Floats, variance: Floats
) -> TDErrors:
    td, size = float(squares / n), float(np.linalg.norm(update / n))
    rmse, remainder = np.sqrt(variance[:2] + mean[:2] ** 2).tolist()
    share, spread, seen = float(cut / episodes) if episodes else math.nan, math.sqrt(variance[2]), n * (episodes > 0)
    return TDErrors(name, int(n), td, size, int(seen), rmse, spread, float(mean[2]), int(episodes), share, remainder)
