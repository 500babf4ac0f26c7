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
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import SiteDataError
from ..formatting import Displayed
from ..frozen import ReadOnly
from ..theory.threads import small_products
from .fitted import Fit
from .rows.columns import Columns, choose_columns, no_weight
from .rows.log_facts import SAME
from .rows.observe import recorded
from .site_sums import CrossMoments, Summary, add_up, no_rows, summary
from .sites.arrays import piece_rows
from .sites.site_readers import Site, open_sites
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
def evaluate(fit: Fit, sites: Any, *, site: str | None = None) -> list[Residuals] | list[TDErrors]:
    """A row for each hold-out; if several, one for all.

    fit : the model
    sites : hold-outs: whatever fl.fit takes as sites
    site : the column that says which hold-out a row is of, as in fl.fit

    >>> x = np.linspace(-1, 1, 20).reshape(20, 1)
    >>> fit = fl.fit([(x, 3 * x[:, 0] + np.sin(np.arange(20)))], fl.Regression("y"), local="means")
    >>> [row] = fl.evaluate(fit, [(x, 3 * x[:, 0])])
    >>> row.rows, round(row.r_squared, 2)
    (20, 0.99)
    """
    checks.instance("fit", fit, Fit, "what fl.fit(...) returns")
    task = fit.task
    if isinstance(task, Regression):  # by name: a hold-out may have more columns than the model has, and no clusters
        task = replace(task, columns=None if task.formula else fit.columns, cluster=None)
    opened = open_sites(sites, task, site)
    columns = choose_columns(task, opened, tuple(fit.levels.items()))
    if columns.state != fit.columns:
        raise SiteDataError(
            f"{opened[0].name} must have the columns of the model, {', '.join(fit.columns[:6])}; "
            f"got {', '.join(columns.state[:6])}"
        )
    names = [s.name for s in opened]
    if isinstance(task, Regression):
        sums = [_residuals(fit, task, columns, site) for site in opened]
        return [_regression_row(n, s) for n, s in _with_all(names, sums, reduce(add, sums))]
    parts = [_transition_sums(fit, task, columns, site) for site in opened]
    together = tuple(reduce(add, column) for column in zip(*parts, strict=True))
    return [_value_row(n, *s) for n, s in _with_all(names, parts, together)]


def _with_all(names: list[str], parts: list[Any], together: Any) -> list[tuple[str, Any]]:
    """The sites' parts by name; of several sites, all together as well."""
    named = list(zip(names, parts, strict=True))
    return named if len(named) == 1 else [*named, (ALL, together)]


def _residuals(fit: Fit, task: Regression, columns: Columns, site: Site) -> Summary:
    """The summary of a site's residuals and targets."""
    rows = recorded(site, task, columns)
    parts = (
        CrossMoments.of((p.y - x @ fit.theta)[:, None], p.y if p.offset is None else p.y + p.offset, p.root)
        for x, p in rows
    )
    with np.errstate(over="ignore", invalid="ignore"):  # check_size says it in words
        total = add_up(parts, site.name).summary
    total.check_size(site.name, least=0.0)
    if total.count == 0:
        raise no_weight(site.name, columns.row_weights)
    return total


def _regression_row(name: str, s: Summary) -> Residuals:
    mse, variance = s.scatter[0] / s.count + s.mean[0] ** 2, s.scatter[1] / s.count
    explained = 1 - mse / variance if variance > 0 else math.nan
    return Residuals(name, s.n, float(explained), math.sqrt(mse), math.sqrt(variance), float(s.mean[0]))


def _transition_sums(fit: Fit, task: Value, columns: Columns, site: Site) -> tuple[Any, ...]:
    """Of one site's transitions, what adds up over sites: their number, squared TD errors, updates : (d,), episodes and
    those cut; and, in a list, a summary of V less the return, of what is put in for cuts, and of returns, where known.
    """
    n, squares, update = 0, 0.0, np.zeros(len(fit.theta))
    for _, piece in recorded(site, task, columns):
        delta = piece.y - piece.v @ fit.theta
        n, squares, update = n + len(delta), squares + float(delta @ delta), update + delta @ piece.u
    if n == 0:
        raise no_rows(site.name)
    if columns.importance is not None:  # returns of the behaviour are not those of the policy
        return n, squares, update, 0, 0, []
    count = cut = 0

    def targets() -> Iterator[tuple[Floats, Floats]]:
        nonlocal count, cut
        for rows in _episodes(fit, task, columns, site):
            gain, remainder = _returns(rows, task.discount)
            count, cut = count + int(rows[:, LAST].sum()), cut + int((rows[:, LAST] > rows[:, ENDED]).sum())
            yield np.column_stack([rows[:, 0] - gain, remainder]), gain

    returns = summary(targets(), site.name)
    return n, squares, update, count, cut, [returns]


def _episodes(fit: Fit, task: Value, columns: Columns, site: Site) -> Iterator[Floats]:
    """Whole episodes of a log, many at a time: (n, 5) value, reward, value of the state that followed, whether a row is
    its episode's last, and whether it ended in termination.

    An episode is cut where it is truncated, where the log ends, and where the next row does not begin in the state that
    this one led to.
    """
    episode: list[Floats] = []  # the one that is going on, from pieces before
    arrived: Floats | None = None  # the state that the last row led to
    for piece in site.pieces(columns.all, piece_rows(4 * len(fit.theta))):
        states, following = (
            np.column_stack([piece[c] for c in names]) for names in (columns.state, columns.next_state)
        )
        ended = piece[str(columns.terminated)] != 0
        last = ended | (piece[columns.truncated] != 0 if columns.truncated is not None else False)
        last[:-1] |= ~np.isclose(following[:-1], states[1:], rtol=SAME, atol=0).all(axis=1)
        before, after = (_values(fit, task, s) for s in (states, following))
        rows = np.column_stack([before, piece[columns.reward], after, last, ended])
        if episode and arrived is not None and not np.isclose(arrived, states[0], rtol=SAME, atol=0).all():
            episode[-1][-1, LAST] = 1
        arrived = following[-1]
        if last.any() or (episode and episode[-1][-1, LAST]):
            rows = np.concatenate([*episode, rows])
            whole = int(np.flatnonzero(rows[:, LAST])[-1]) + 1
            yield rows[:whole]
            episode, rows = [], rows[whole:]
        episode = [*episode, rows] if len(rows) else episode
    if episode:
        episode[-1][-1, LAST] = 1
        yield np.concatenate(episode)


def _values(fit: Fit, task: Value, states: Floats) -> Floats:
    given = states[:, 0] if states.shape[1] == 1 and task.features is not None else states
    return np.asarray(fit.design(given) @ fit.theta, np.float64)


def _returns(rows: Floats, discount: float) -> tuple[Floats, Floats]:
    """G_k = r_k + discount G_{k+1}, backwards from the end of each episode, and the part of it that was not seen:
    beyond a cut stands the model's own value of the state there."""
    gains, parts = np.empty(len(rows)), np.empty(len(rows))
    ahead = part = 0.0
    for k, (_, reward, following, last, ended) in zip(range(len(rows) - 1, -1, -1), rows[::-1].tolist(), strict=True):
        if last:
            ahead = part = 0.0 if ended else following
        ahead = gains[k] = reward + discount * ahead
        part = parts[k] = discount * part
    return gains, parts


def _value_row(
    name: str, n: int, squares: float, update: Floats, episodes: int, cut: int, returns: list[Summary]
) -> TDErrors:
    td, size = squares / n, float(np.linalg.norm(update / n))
    if not returns:
        return TDErrors(name, n, td, size, 0, math.nan, math.nan, math.nan, 0, math.nan, math.nan)
    g = reduce(add, returns)
    rmse, remainder = np.sqrt(g.scatter[:2] / g.n + g.mean[:2] ** 2).tolist()
    spread = math.sqrt(g.scatter[2] / g.n)
    return TDErrors(name, n, td, size, g.n, rmse, spread, float(g.mean[2]), episodes, cut / episodes, remainder)
