"""Error bars from replicas, what the estimate would have been on other data: reweighted normal equations, in one pass.

Replica b gives every unit (a row, a block of consecutive rows, a cluster) a weight V_b of 0 or 2 by a fair coin: mean
one, variance one. Dropping and doubling is resampling; of the weights with these two moments the coin has the smallest
fourth, and its replicas spread as the jackknife does (HC3, CR3), where those of exponential weights, or of rows drawn
with replacement, spread less. The answer of a replica solves the reweighted system, with the observations A(z) = u v^T
+ ridge and b(z) = y u of row weight w,

    sum_c W_c / mass_bc sum_z V_b(z) w A(z) theta_b = sum_c W_c / mass_bc sum_z V_b(z) w b(z).

For a regression mass_bc is the site's own sum of w: sites are not held fixed, and the replicas' covariance is that of
scores about 0. For a value function it is the sum of V_b w: rows vary within their site. The sums of all replicas are
matrix products: coins (B, units) times the units' sums (units, d (d + 1)).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..theory.threads import one_blas_thread
from .covariance import Scores
from .error_sources import Estimate
from .fitted import Bootstrap
from .reading import FitProgress, PooledData
from .rows import Piece
from .scores import ClusterSums, CovarianceKind, join_pairs
from .sums import singular
from .tasks import SITES

NUMBERS = 2**18  # of units' products, and of their coins, that are held at a time
MOST_WORK = 1e15  # products in all: about a day of one core
MOST_OPEN = 0.01  # of replicas that leave a coefficient open; so few are replaced by those of the rows they drop
ROWS_PER_COEFFICIENT = 4  # below which replicas would often drop nearly all rows
BLOCKS = 32  # of a site's rows, at least: one in 2^32 replicas drops them all
BLOCKS_PER_LAG = 4  # rows of a block for a lag that counts: blocks are Bartlett's window, whose bias falls like 1/L
GROUP = 64  # replicas that share a stream of random numbers: more replicas leave the first as they are
FEW_CLUSTERS = 12  # of which replicas would often drop nearly all
RESAMPLED = ("pairs", "block", "cluster")


def choose_block(resample: str | None, kind: CovarianceKind, s: Scores, dim: int) -> int:
    """What varies: rows of a block, 1 for single rows, 0 for clusters. As asked for, else clusters where there are any,
    blocks where rows are correlated, else rows."""
    n, M = int(s.n.sum()), int(s.window.max())
    fewest = int(s.n.min()) if kind.values else n
    block = M + 1 if kind.lag is not None and not kind.values else max(1, min(BLOCKS_PER_LAG * M, fewest // BLOCKS))
    if resample == "cluster" and kind.cluster is None:
        raise ArgumentError("resample='cluster' needs clusters, cluster=...; got none")
    if resample == "block" and kind.name != "HAC":
        raise ArgumentError("resample='block' needs rows in their order: a lag, or covariance='HAC'; got neither")
    by_cluster = kind.cluster is not None and resample in (None, "cluster")
    if by_cluster and s.clusters < FEW_CLUSTERS:
        rule = f"bootstrap must have at least {FEW_CLUSTERS} clusters to drop some of"
        raise ArgumentError(f"{rule}; got {s.clusters}: the intervals of CR3, by t quantiles, are for fewer")
    if n < ROWS_PER_COEFFICIENT * dim:
        rule = f"bootstrap must have at least {ROWS_PER_COEFFICIENT} rows for each coefficient, {dim}"
        raise ArgumentError(f"{rule}; got {n}: the intervals without it, by t quantiles, are for fewer")
    return 0 if by_cluster else 1 if resample == "pairs" else block


def bootstrapped(
    data: PooledData, estimate: Estimate, count: int, resample: str | None, seed: int, report: FitProgress
) -> Bootstrap:
    """The estimate with `count` replicas, on the original scale."""
    (T, t), s, kind, d = estimate.original, estimate.scores, estimate.kind, len(estimate.A)
    block, n = choose_block(resample, kind, s, d), int(s.n.sum())
    checks.memory("bootstrap", count, 32 * d * (d + 1), "the system of a replica")
    if count * n * d * (d + 1) > MOST_WORK:
        raise ArgumentError(
            f"bootstrap must be at most {MOST_WORK / (n * d * (d + 1)):,.0f} for {n:,} rows and {d} coefficients: "
            f"more take days; got {count}"
        )
    with one_blas_thread(d):
        found = reweighted_solutions(_pieces(data, report), estimate, data.penalty, block, replicas=count, seed=seed)
    what = f"{s.clusters:,} clusters" if block == 0 else "pairs" if block == 1 else f"blocks of {block} rows"
    freedom = float(n - d) if block == 1 else s.freedom
    return Bootstrap(T @ estimate.theta + t, found @ T.T + t, what, freedom)


def _pieces(data: PooledData, report: FitProgress) -> Iterator[Piece]:
    """All sites' rows, with the places of sites among all."""
    for group in data.groups:
        report("bootstrap", group.start, len(data.names))
        for p in data.pieces(group):
            yield p.moved(group.start)


def reweighted_solutions(
    pieces: Iterable[Piece], estimate: Estimate, penalty: Floats, block: int, *, replicas: int, seed: int
) -> Floats:
    """The solutions of `replicas` reweighted copies of the data : (B, d).

    pieces : the observations of all sites, each in its order; penalty : (d,), the ridge; block : as `choose_block` says
    seed : equal seeds give equal replicas, and more replicas begin with those of fewer
    """
    B, d, systems, within = replicas, len(penalty), estimate.systems, estimate.kind.values
    share = estimate.weights / systems.mass
    sums = np.zeros((len(share) if within else 1, B, d * (d + 1) + 1))  # of each site, where its mass varies; else all
    if block == 0:
        sums[0] = _cluster_replicas(pieces, estimate, share, B, seed)
    else:
        coins = {c: Coins(seed, c, B) for c in range(len(share))}
        for c, part in _units(pieces, block, max(1, NUMBERS // max(B, d * (d + 1)))):
            drawn = coins[c].draw(len(part)).T @ part
            sums[c if within else 0] += drawn if within else share[c] * drawn
    mass = sums[:, :, -1]
    if within and not mass.all():
        c, b = (int(k) for k in np.unravel_index(np.argmin(mass), mass.shape))
        raise ArgumentError(
            f"every site must keep some rows in every replica, but replica {b} drops all of site {c}, whose "
            f"{systems.n[c]} rows make {-(-systems.n[c] // block)} blocks: use a smaller lag; got blocks of {block}"
        )
    scaled = sums * (estimate.weights[:, None] / mass)[:, :, None] if within else sums
    total = scaled[:, :, :-1].sum(axis=0).reshape(B, d, d + 1)
    total[:, range(d), range(d)] += scaled[:, :, -1].sum(axis=0)[:, None] * penalty  # part of every observation
    relative = np.asarray(np.linalg.solve(estimate.A, total), np.float64)
    return _solutions(relative, None if within else np.column_stack([np.eye(d), estimate.theta]))


class Coins:
    """The weights of one site's units, in their order: 0 or 2."""

    def __init__(self, seed: int, site: int, replicas: int) -> None:
        self.replicas = replicas
        self._streams = [np.random.default_rng([seed, site, group]) for group in range(-(-replicas // GROUP))]

    def draw(self, units: int) -> Floats:
        """Those of the next units : (units, B)."""
        words = [rng.integers(0, 2**64, units, np.uint64).astype("<u8") for rng in self._streams]
        bits = np.unpackbits(np.stack(words, axis=1).view(np.uint8), axis=1, bitorder="little")
        return np.asarray(2.0 * bits[:, : self.replicas], np.float64)


def _units(pieces: Iterable[Piece], block: int, rows: int) -> Iterator[tuple[int, Floats]]:
    """Sums over the rows of each unit, (units, d (d + 1) + 1) with the site that they are of; blocks hold so many
    consecutive rows of a site, those that were left out among them, and go on from piece to piece."""
    at: dict[int, int] = {}  # rows of each site so far
    carried: dict[int, tuple[int, Floats]] = {}  # the block that goes on, and its sum so far
    for p in pieces:
        for c, own in p.parts():
            for first in range(own.start, own.stop, rows):
                part = slice(first, min(first + rows, own.stop))
                values = _observations(p, part)
                if block == 1:
                    yield c, values
                    continue
                gaps = 0 if p.gaps is None else np.cumsum(p.gaps[part])
                place = at.get(c, 0) + np.arange(len(values)) + gaps
                at[c] = int(place[-1]) + 1
                blocks, begins = np.unique(place // block, return_index=True)
                sums = np.add.reduceat(values, begins, axis=0)
                if c in carried and carried[c][0] == blocks[0]:
                    sums[0] += carried[c][1]
                elif c in carried:
                    yield c, carried[c][1][None]
                carried[c] = int(blocks[-1]), sums[-1]
                yield c, sums[:-1]
    for c, (_, last) in carried.items():
        yield c, last[None]


def _cluster_replicas(pieces: Iterable[Piece], estimate: Estimate, share: Floats, B: int, seed: int) -> Floats:
    """(B, d (d + 1) + 1): sums over all clusters' rows with the coins of the clusters, which may have rows at several
    sites; a cluster has a coin of the first site where it has rows."""
    d = len(estimate.A)
    found = ClusterSums(d * (d + 1) + 1, estimate.kind.cluster == SITES)
    for p in pieces:
        found.add(p, partial(_observations, p))
    pairs = join_pairs([found.pairs(0)])
    first = np.full(len(pairs.labels), len(share))
    np.minimum.at(first, pairs.places, pairs.sites)
    sums = np.zeros((len(pairs.labels), found.width))
    np.add.at(sums, pairs.places, share[pairs.sites, None] * pairs.sums)
    out = np.zeros((B, found.width))
    for c in np.unique(first).tolist():
        own = pairs.places[(pairs.sites == c) & (first[pairs.places] == c)]  # in the order of their first rows there
        out += Coins(seed, c, B).draw(len(own)).T @ sums[own]
    return out


def _observations(p: Piece, part: slice) -> Floats:
    """u (v, y)^T and the weight of some rows : (n, d (d + 1) + 1)."""
    u, v, y = p.u[part], p.v[part], p.y[part]
    n, d = u.shape
    out = np.empty((n, d * (d + 1) + 1))
    system = out[:, :-1].reshape(n, d, d + 1)
    np.multiply(u[:, :, None], v[:, None, :], out=system[:, :, :d])
    np.multiply(u, y[:, None], out=system[:, :, d])
    out[:, -1] = 1.0 if p.root is None else p.root[part] ** 2
    return out


def _solutions(systems: Floats, whole: Floats | None) -> Floats:
    """theta with M theta = m for each (M, m) : (B, d, d + 1), where M would be I without weights.

    whole : (I, theta), of the data: a replica that leaves a coefficient open is then replaced by the one that keeps the
    rows it drops and drops those it keeps, as likely as itself; None where that is not known
    """
    found = singular(systems[:, :, :-1])
    if whole is not None and 0 < found.mean() <= MOST_OPEN:
        systems[found] = 2 * whole - systems[found]
        found = singular(systems[:, :, :-1])
    if found.any():
        raise ArgumentError(
            f"every replica must determine all coefficients, but {found.sum()} of {len(found)} drop all rows on which "
            "one depends (few rows or clusters, or a column that differs from a constant in few of them): leave the "
            "column out, or take the standard errors without bootstrap"
        )
    return np.asarray(np.linalg.solve(systems[:, :, :-1], systems[:, :, -1:])[:, :, 0], np.float64)
