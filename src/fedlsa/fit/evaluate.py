"""How a fitted model does on data that it has not seen, file by file and on all of them together.

A regression is judged by its residuals. A value function has no targets: the TD error delta = r + gamma V(s') - V(s)
holds the noise of transitions and is not the error of V; the mean TD update, mean of u delta, is 0 at the solution of
the hold-out's own system; and where whole episodes are there, the discounted returns are targets, with a spread of
their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import SiteDataError
from .columns import Columns, chosen
from .fitted import Fit
from .numbers import piece_rows
from .observe import raw, recorded
from .sites import Site, open_sites
from .summaries import Summary, summary
from .tasks import Regression, Task, Value

ALL = "all"


@dataclass(frozen=True)
class Residuals:
    """Of a regression on n rows. r_squared : 1 - rmse^2 / spread^2; spread : standard deviation of the targets;
    mean : of the residuals y - x^T theta."""

    name: str
    rows: int
    r_squared: float
    rmse: float
    spread: float
    mean: float


@dataclass(frozen=True)
class TDErrors:
    """Of a value function on n transitions.

    td_error : mean of delta^2, which is not the error of the values; update : ||mean of u delta||, 0 for the solution
    of these data
    returns : how many rows belong to episodes that end in termination; return_rmse : root mean square of V(s) minus
    the discounted return that followed, which holds the returns' own noise; return_spread : their standard deviation
    """

    name: str
    rows: int
    td_error: float
    update: float
    returns: int
    return_rmse: float
    return_spread: float


def evaluate(fit: Fit, sites: Sequence[Any]) -> list[Residuals] | list[TDErrors]:
    """A row for each hold-out (path, mapping or tuple of arrays, as in fl.fit); if several, one for all."""
    checks.instance("fit", fit, Fit, "what fl.fit(...) returns")
    task = _as_fitted(fit)
    opened = open_sites(sites, task)
    columns = chosen(task, opened)
    if columns.state != fit.columns:
        raise SiteDataError(
            f"{opened[0].name} must have the columns of the model, {', '.join(fit.columns[:6])}; "
            f"got {', '.join(columns.state[:6])}"
        )
    if isinstance(task, Regression):
        parts = [summary(_residuals(fit, task, columns, site), site.name) for site in opened]
        named = zip([s.name for s in opened], parts, strict=True)
        rows = [_regression_row(name, part) for name, part in named]
        return rows if len(rows) == 1 else [*rows, _regression_row(ALL, reduce(add, parts))]
    sums = [_sums(fit, task, columns, site) for site in opened]
    found = [_value_row(site.name, s) for site, s in zip(opened, sums, strict=True)]
    return found if len(found) == 1 else [*found, _value_row(ALL, reduce(add, sums))]


def table(found: Sequence[Residuals] | Sequence[TDErrors]) -> list[dict[str, Any]]:
    """The rows as plain values by name."""
    return [asdict(row) for row in found]


def _as_fitted(fit: Fit) -> Task:
    """The task with its features by name: a hold-out may have more columns than the model has."""
    return replace(fit.task, features=fit.columns) if isinstance(fit.task, Regression) else fit.task


def _residuals(fit: Fit, task: Task, columns: Columns, site: Site) -> Iterator[tuple[Floats, Floats]]:
    """Residuals (n, 1) and targets (n,), piece by piece."""
    for x, y in raw(site, task, columns):
        yield (y - fit.design(x) @ fit.theta)[:, None], y


def _regression_row(name: str, s: Summary) -> Residuals:
    mse, variance = s.scatter[0] / s.n + s.mean[0] ** 2, s.scatter[1] / s.n
    explained = 1 - mse / variance if variance > 0 else math.nan
    return Residuals(name, s.n, float(explained), math.sqrt(mse), math.sqrt(variance), float(s.mean[0]))


@dataclass(frozen=True, eq=False)
class _Sums:
    """Over transitions: their number, squared TD errors, updates : (d,); and what is known of returns."""

    n: int
    delta: float
    update: Floats
    returns: Summary | None

    def __add__(self, other: _Sums) -> _Sums:
        known = [r for r in (self.returns, other.returns) if r is not None]
        both = reduce(add, known) if known else None
        return _Sums(self.n + other.n, self.delta + other.delta, self.update + other.update, both)


def _sums(fit: Fit, task: Value, columns: Columns, site: Site) -> _Sums:
    n, squares, update = 0, 0.0, np.zeros(len(fit.theta))
    for _, piece in recorded(site, task, columns):
        delta = piece.y - piece.v @ fit.theta
        n, squares, update = n + len(delta), squares + float(delta @ delta), update + delta @ piece.u
    if n == 0:
        raise SiteDataError(f"{site.name} must have at least one row; it has none")
    if columns.importance is not None:  # returns of the behaviour are not those of the policy
        return _Sums(n, squares, update, None)
    episodes = list(_episodes(fit, task, columns, site))
    return _Sums(n, squares, update, summary(episodes, site.name) if episodes else None)


def _episodes(fit: Fit, task: Value, columns: Columns, site: Site) -> Iterator[tuple[Floats, Floats]]:
    """V(s) less the discounted return from s on (n, 1), and that return (n,), for each episode that terminates."""
    held: list[Floats] = []  # (n, 2) values and rewards of the episode that is going on
    for piece in site.pieces(columns.all, piece_rows(2 * len(fit.theta))):
        states = np.column_stack([piece[c] for c in columns.state])
        given = states[:, 0] if states.shape[1] == 1 and task.features is not None else states
        rows = np.column_stack([fit.design(given) @ fit.theta, piece[columns.reward]])
        ended = piece[str(columns.terminated)] != 0
        cut = ended if columns.truncated is None else ended | (piece[columns.truncated] != 0)
        start = 0
        for end in np.flatnonzero(cut).tolist():
            episode = np.concatenate([*held, rows[start : end + 1]])
            held, start = [], end + 1
            if ended[end]:
                gain = _returns(episode[:, 1], task.discount)
                yield (episode[:, 0] - gain)[:, None], gain
        held.append(rows[start:])


def _returns(rewards: Floats, discount: float) -> Floats:
    """G_k = r_k + discount G_{k+1}, backwards from the end of an episode."""
    out, ahead = np.empty(len(rewards)), 0.0
    for k in range(len(rewards) - 1, -1, -1):
        ahead = out[k] = rewards[k] + discount * ahead
    return out


def _value_row(name: str, s: _Sums) -> TDErrors:
    td, update = s.delta / s.n, float(np.linalg.norm(s.update / s.n))
    if s.returns is None:
        return TDErrors(name, s.n, td, update, 0, math.nan, math.nan)
    g = s.returns
    rmse = math.sqrt(g.scatter[0] / g.n + g.mean[0] ** 2)
    return TDErrors(name, s.n, td, update, g.n, rmse, math.sqrt(g.scatter[1] / g.n))
