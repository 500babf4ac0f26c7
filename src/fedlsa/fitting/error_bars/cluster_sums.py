"""Sums over the clusters of a site, whose rows come in any order, and the cluster-robust kinds of covariance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...checks import Floats
from ...errors import SiteDataError
from ..rows.observe import Piece
from .score_sums import LEVERAGE_ONE, ScoreSums, Solved

HELD = 2**20  # numbers of rows' products, and of clusters' systems, that are worked on at a time
CLUSTER_BYTES = 2**30  # for the sums of a site's clusters


class GroupedSums:
    """Sums over the rows of each cluster; width : numbers of a row; too_many : what to say where they do not fit."""

    def __init__(self, width: int, too_many: str = "clusters of one site must fit into memory") -> None:
        self._codes: dict[Any, int] = {}
        self._sums, self._too_many = np.zeros((0, width)), too_many

    def add(self, labels: list[Any], values: Floats) -> None:
        """The next rows, (n, width), with their clusters."""
        codes = np.array([self._codes.setdefault(label, len(self._codes)) for label in labels])
        count, (held, width) = len(self._codes), self._sums.shape
        if count > held:
            if 8 * count * width > CLUSTER_BYTES:
                raise SiteDataError(f"{self._too_many}, {CLUSTER_BYTES >> 20} MiB; got more than {held:,}")
            self._sums = np.concatenate([self._sums, np.zeros((max(count, 2 * held) - held, width))])
        order = np.argsort(codes, kind="stable")
        found, begins = np.unique(codes[order], return_index=True)
        self._sums[found] += np.add.reduceat(values[order], begins, axis=0)

    @property
    def sums(self) -> Floats:
        """(clusters, width), in the order in which clusters were seen first."""
        return self._sums[: len(self._codes)]

    @property
    def labels(self) -> list[Any]:
        """Of the clusters, in the same order."""
        return list(self._codes)


def cluster_labels(p: Piece) -> list[Any]:
    """Of each row; where the site is one cluster, all are None."""
    return [None] * len(p.y) if p.cluster is None else p.cluster.tolist()


class ClusterSums(ScoreSums):
    """Sums over the rows of each cluster: CR0 of these; or CR3, with what theta is without each of them."""

    def __init__(self, at: Solved, penalty: Floats, jackknife: bool) -> None:
        super().__init__(at, penalty)
        d = len(at.A)
        less = f"covariance must be 'HC1' for so many clusters at one site: {d}^2 numbers of each must fit into memory"
        self._jackknife, self._alone = jackknife, ""
        self._grouped = GroupedSums(d + d * d, less) if jackknife else GroupedSums(d)

    def _add(self, p: Piece, g: Floats) -> None:
        labels, rows = cluster_labels(p), max(1, HELD // (1 + self.at.A.size))
        for at in range(0, len(g), rows):
            part = slice(at, at + rows)
            self._grouped.add(labels[part], self._products(p, g, part))

    def _products(self, p: Piece, g: Floats, part: slice) -> Floats:
        """The scores, and with the jackknife u u^T + w ridge, of some rows : (n, d) or (n, d + d^2)."""
        if not self._jackknife:
            return g[part]
        u, d = p.u[part], g.shape[1]
        out = np.empty((len(u), d + d * d))
        out[:, :d] = g[part]
        out[:, d:] = (u[:, :, None] * u[:, None, :]).reshape(len(u), d * d)
        if self.penalty.any():
            weights = np.ones(len(u)) if p.root is None else p.root[part] ** 2
            out[:, d :: d + 1] += weights[:, None] * self.penalty
        return out

    def of_units(self) -> Iterator[Floats]:
        """What clusters put into A theta - b, some (k, d) at a time: S, or with the jackknife A (A - A_g)^-1 S.

        It ends early at a cluster without which a coefficient is open; `alone` then names it.
        """
        d, share, sums, white = len(self.at.A), self.at.share, self._grouped.sums, self.at.whiten
        if not self._jackknife:
            yield share * sums
            return
        for at in range(0, len(sums), max(1, HELD // d**2)):
            some = sums[at : at + max(1, HELD // d**2)]
            left = np.eye(d) - share * (white @ some[:, d:].reshape(-1, d, d) @ white.T)  # of A without the cluster
            heavy = np.flatnonzero(np.trace(left, axis1=1, axis2=2) < d - 0.5)  # others have eigenvalues above 1/2
            lowest = np.linalg.eigvalsh(left[heavy])[:, 0]
            if lowest.min(initial=1.0) < LEVERAGE_ONE:
                label = self._grouped.labels[at + int(heavy[np.argmin(lowest)])]
                self._alone = "all its rows" if label is None else f"cluster {label!r}"
                return
            change = np.linalg.solve(left, share * (some[:, :d] @ white.T)[:, :, None])[:, :, 0]
            yield change @ self.at.root.T

    def meats(self) -> tuple[Floats, Floats]:
        """CR3 or CR0, and CR0."""
        sums = self.at.share * self._grouped.sums[:, : len(self.at.A)]
        total = np.zeros_like(self.at.A)
        for part in self.of_units():
            total += part.T @ part
        return np.full_like(total, np.nan) if self.alone else total, sums.T @ sums

    @property
    def clusters(self) -> int:
        return len(self._grouped.sums)

    @property
    def alone(self) -> str:
        return self._alone
