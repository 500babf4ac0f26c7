"""From a site's columns to observations of the recursion: A(z) = u v^T (+ ridge I) and b(z) = y u."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import SiteDataError
from ..problems import features as maps
from ..problems.markov import Flags
from ..problems.transitions import traces
from .columns import Columns
from .sites import Site
from .tasks import Regression, Task


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive observations of a site: u, v : (n, d); y : (n,). For least squares u and v are one array."""

    u: Floats
    v: Floats
    y: Floats


@dataclass(frozen=True, eq=False)
class Scale:
    """The run's coordinates: feature j is (x_j - centre_j) / spread_j, the target (y - y_centre) / y_spread.

    All are computed from sums over the sites. With an intercept the last feature is 1.
    """

    centre: Floats
    spread: Floats
    y_centre: float
    y_spread: float
    intercept: bool

    @property
    def dim(self) -> int:
        return len(self.centre) + self.intercept

    def original(self) -> tuple[Floats, Floats]:
        """(T, t) with theta on the original scale = T theta + t : (d, d) and (d,)."""
        d = self.dim
        T, t = np.zeros((d, d)), np.zeros(d)
        k = len(self.centre)
        T[range(k), range(k)] = self.y_spread / self.spread
        if self.intercept:
            T[k, :k] = -self.y_spread * self.centre / self.spread
            T[k, k], t[k] = self.y_spread, self.y_centre
        return T, t


def raw(site: Site, task: Task, columns: Columns) -> Iterator[tuple[Floats, Floats]]:
    """Features : (n, k) and target or reward : (n,) of each piece, as they are recorded: what standardisation sums."""
    wanted = (*columns.state, columns.reward)
    for piece in site.pieces(wanted):
        yield mapped(site, task, columns.state, piece), piece[columns.reward]


def observations(site: Site, task: Task, columns: Columns, scale: Scale) -> Iterator[Piece]:
    """The observations of a site in the run's coordinates, piece by piece; a log's traces go on across pieces."""
    if isinstance(task, Regression):
        for x, y in raw(site, task, columns):
            z = _scaled(x, scale)
            yield Piece(z, z, (y - scale.y_centre) / scale.y_spread)
        return
    carried = np.zeros(scale.dim)
    for piece in site.pieces(columns.all):
        phi = _scaled(mapped(site, task, columns.state, piece), scale)
        following = _scaled(mapped(site, task, columns.next_state, piece), scale)
        ended = _flags(site, columns.terminated, piece)
        cut = ended if columns.truncated is None else ended | _flags(site, columns.truncated, piece)
        rho = None if columns.importance is None else _weights(site, columns.importance, piece)
        v = phi - task.discount * np.where(ended[:, None], 0.0, following)
        u = traces(phi, cut, task.discount * task.trace, rho, carried)
        carried = np.zeros(scale.dim) if cut[-1] else u[-1].copy()
        yield Piece(u, v, piece[columns.reward] / scale.y_spread)


def mapped(site: Site, task: Task, names: tuple[str, ...], piece: dict[str, Floats]) -> Floats:
    """The features (n, k) of a piece: its columns, or what the task's feature map makes of them."""
    columns = np.column_stack([piece[c] for c in names])
    if isinstance(task, Regression) or task.features is None:
        return columns
    states = columns[:, 0] if columns.shape[1] == 1 else columns
    return maps.apply(task.features, states, f"features of {site.name}")


def _scaled(x: Floats, scale: Scale) -> Floats:
    z = np.ones((len(x), scale.dim))
    np.divide(x - scale.centre, scale.spread, out=z[:, : x.shape[1]])
    return z


def _flags(site: Site, column: str | None, piece: dict[str, Floats]) -> Flags:
    assert column is not None
    flags = piece[column]
    if ((flags != 0) & (flags != 1)).any():
        bad = flags[(flags != 0) & (flags != 1)][0]
        raise SiteDataError(f"{site.name}: column {column!r} must hold true and false, or 0 and 1; got {bad:g}")
    return flags.astype(np.bool_)


def _weights(site: Site, column: str, piece: dict[str, Floats]) -> Floats:
    if (piece[column] < 0).any():
        worst = float(piece[column].min())
        raise SiteDataError(f"{site.name}: column {column!r} must hold weights of at least 0; got {worst:g}")
    return checks.array(column, piece[column], (None,))
