"""What varies in a bootstrap: rows, blocks of consecutive rows, or clusters of a site, and the multipliers they get.

A unit's multiplier is 0 or 2 by a fair coin: mean one, variance one. Dropping and doubling is resampling; of the
multipliers with these two moments the coin has the smallest fourth, and its replicas spread as the jackknife does (HC3,
CR3), where those of exponential weights, or of rows drawn with replacement, spread less. Signs are for the wild
bootstrap, mean 0 and variance one: 1 or -1 (Rademacher), or, of few units, six values (Webb): six signs make no more
than 64 different replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ...checks import Floats
from ..rows.observe import Piece
from .cluster_sums import GroupedSums, cluster_labels

GROUP = 64  # replicas that share a stream of random numbers: more replicas leave the first as they are
WEBB = np.sqrt([0.5, 1.0, 1.5])
FEW_UNITS = 12  # clusters, of which replicas would often drop nearly all, and signs would repeat
RESAMPLED = ("pairs", "block", "cluster", "wild")


@dataclass(frozen=True)
class Resampling:
    """What varies.

    kind : "pairs", "block", "cluster" or "wild"; block : rows that stay together
    unit : what varies, "rows" (or blocks of them), "clusters" or "slow cosines"; units : of all sites, but for rows
    within : whether rows vary within their site, which counts the same in every replica
    """

    kind: str
    block: int = 1
    unit: str = "rows"
    units: int = 0
    within: bool = False

    @property
    def few(self) -> bool:
        """Whether units are so few that signs would repeat."""
        return self.unit != "rows" and self.units < FEW_UNITS

    def text(self) -> str:
        """For people."""
        what = f"{self.units:,} {self.unit}" if self.unit != "rows" else "rows" if self.block == 1 else ""
        if self.kind == "wild":
            return f"wild, {what or f'lag {self.block - 1}'}"
        return "pairs" if what == "rows" else what or f"blocks of {self.block} rows"


class Multipliers:
    """The multipliers of one site's units, in their order; kind : "coins", "signs" or "webb".

    overlap : L, so that each is the sum of L neighbouring ones over sqrt(L): then units h apart have the correlation
    (1 - h / L)_+, which is Bartlett's window (the dependent wild bootstrap)
    """

    def __init__(self, kind: str, seed: int, site: int, replicas: int, overlap: int = 1) -> None:
        self.kind, self.replicas, self.overlap = kind, replicas, overlap
        self._streams = [np.random.default_rng([seed, site, group]) for group in range(-(-replicas // GROUP))]
        self._before = self._single(overlap - 1) if overlap > 1 else np.empty((0, replicas))

    def draw(self, units: int) -> Floats:
        """Those of the next units : (units, B)."""
        fresh = self._single(units)
        if self.overlap == 1:
            return fresh
        ends = np.concatenate([self._before, fresh]).cumsum(axis=0)
        self._before = np.concatenate([self._before, fresh])[units:]
        out = ends[self.overlap - 1 :]
        out[1:] -= ends[: max(units - 1, 0)].copy()
        return np.asarray(out / np.sqrt(self.overlap), np.float64)

    def _single(self, units: int) -> Floats:
        if self.kind == "webb":
            which = np.concatenate([rng.integers(0, 6, (units, GROUP)) for rng in self._streams], axis=1)
            return np.asarray(np.concatenate([-WEBB, WEBB])[which[:, : self.replicas]], np.float64)
        words = [rng.integers(0, 2**64, units, np.uint64).astype("<u8") for rng in self._streams]
        bits = np.unpackbits(np.stack(words, axis=1).view(np.uint8), axis=1, bitorder="little")
        return np.asarray(2.0 * bits[:, : self.replicas] - (self.kind == "signs"), np.float64)


def unit_sums(chunks: Iterable[Piece], of_rows: Callable[[Piece], Floats], what: Resampling) -> Iterator[Floats]:
    """Sums over the rows of each unit of a site, some (units, width) at a time, in the order of the units.

    of_rows : what a row adds, (n, width) of a chunk; chunks : the site's rows, some at a time
    """
    if what.unit == "clusters":
        yield _of_clusters(chunks, of_rows)
        return
    left, carried = 0, np.empty(0)  # rows of a block that goes on, and their sum
    for p in chunks:
        values = of_rows(p)
        if what.block == 1:
            yield values
            continue
        begins = np.flatnonzero((left + np.arange(len(values))) % what.block == 0)
        sums = np.add.reduceat(values, [0, *begins] if left else begins, axis=0)
        if left:
            sums[0] += carried
        left = (left + len(values)) % what.block
        if left:
            sums, carried = sums[:-1], sums[-1]
        yield sums
    if left:
        yield carried[None]


def _of_clusters(chunks: Iterable[Piece], of_rows: Callable[[Piece], Floats]) -> Floats:
    grouped: GroupedSums | None = None
    for p in chunks:
        values = of_rows(p)
        grouped = grouped or GroupedSums(values.shape[1])
        grouped.add(cluster_labels(p), values)
    assert grouped is not None
    return grouped.sums


def in_chunks(pieces: Iterable[Piece], rows: int) -> Iterator[Piece]:
    """The same rows, at most so many at a time."""
    for p in pieces:
        for at in range(0, len(p.y), rows):
            part = slice(at, at + rows)
            u = p.u[part]
            v = u if p.v is p.u else p.v[part]
            root, cluster = (None if a is None else a[part] for a in (p.root, p.cluster))
            yield Piece(u, v, p.y[part], root, cluster)
