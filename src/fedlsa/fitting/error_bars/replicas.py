"""Bootstraps of the data's solution in one pass: reweighted normal equations, and the wild bootstrap.

Replica b gives every unit (a row, a block of consecutive rows, a cluster) a weight V_b of 0 or 2 by a fair coin. Its
answer solves the reweighted system, with the observations A(z) = u v^T + ridge and b(z) = y u of row weight w,

    sum_c W_c / mass_bc sum_z V_b(z) w A(z) theta_b = sum_c W_c / mass_bc sum_z V_b(z) w b(z).

For a regression mass_bc is the site's own sum of w: sites are not held fixed, and the replicas' covariance is that of
scores about 0. For a value function it is the sum of V_b w: rows vary within their site. At each site the sums of all
replicas are one matrix product: multipliers (B, units) times the units' sums (units, d (d + 1)).

The wild bootstrap leaves the columns as they are: theta_b = theta + A^-1 sum over units of V_b s, with signs V_b and
contributions s whose squares are the meat of the covariance: r_c w x e / (1 - h) of a row (HC3), A (A - A_g)^-1 S_g of
a cluster (CR3), scores with signs that overlap as Bartlett's window (HAC with a lag), the slow cosines of a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ... import checks
from ...checks import Floats
from ...errors import ArgumentError
from ...theory.threads import one_blas_thread
from ..reading import FitProgress, PooledData
from ..rows.observe import Piece
from ..site_sums import System
from ..solutions import SINGULAR
from .bootstrap import Bootstrap
from .covariance import CovarianceKind, Scores
from .error_sources import Estimate
from .resampling import FEW_UNITS, Multipliers, Resampling, in_chunks, unit_sums
from .score_sums import ScoreSums, Solved

NUMBERS = 2**18  # of units' products, and of their multipliers, that are held at a time
MOST_WORK = 1e15  # products in all: about a day of one core
MOST_OPEN = 0.01  # of replicas that leave a coefficient open; so few are replaced by those of the rows they drop
ROWS_PER_COEFFICIENT = 4  # below which replicas would often drop nearly all rows
BLOCKS = 32  # of a site's rows, at least: one in 2^32 replicas drops them all
BLOCKS_PER_LAG = 4  # rows of a block for a lag that counts: blocks are Bartlett's window, whose bias falls like 1/L


def bootstrapped(
    data: PooledData, estimate: Estimate, count: int, what: Resampling, seed: int, report: FitProgress
) -> Bootstrap:
    """The estimate with `count` replicas, on the original scale."""
    (T, t), kind, noise = estimate.original, estimate.kind, estimate.scores
    n, d, shared = sum(s.n for s in noise), len(estimate.A), (estimate.A, estimate.theta)
    _check_work(count, n, d)

    def pieces(c: int) -> Iterator[Piece]:
        report("bootstrap", c, len(noise))
        return data.pieces(c)

    with one_blas_thread(d):
        if what.kind == "wild":
            sums = [
                _contributing(kind, Solved(estimate.theta, estimate.A, w / own.mass), data.penalty, s)
                for own, w, s in zip(estimate.systems, estimate.weights, noise, strict=True)
            ]
            factor = 1.0 if kind.name == "classical" else kind.factor(n, d, noise)
            found = wild_solutions(pieces, sums, shared, what, replicas=count, factor=factor, seed=seed)
        else:
            found = reweighted_solutions(
                pieces,
                estimate.systems,
                estimate.weights,
                shared,
                data.penalty,
                what,
                replicas=count,
                seed=seed,
            )
    freedom = float(n - d) if what.kind == "pairs" else kind.degrees_of_freedom(n, d, noise)
    return Bootstrap(T @ estimate.theta + t, found @ T.T + t, what.text(), freedom)


def _contributing(kind: CovarianceKind, at: Solved, penalty: Floats, s: Scores) -> ScoreSums:
    """What says how the rows of a site contribute: as its kind has it, and by HC3 where that is classical."""
    kind = replace(kind, name="HC3") if kind.name == "classical" else kind
    return kind.sums(at, penalty, s.mean, s.window, s.n)


def choose_resampling(resample: str | None, kind: CovarianceKind, noise: Sequence[Scores], dim: int) -> Resampling:
    """What varies: as asked for, else clusters where there are any, blocks where rows are correlated, else rows; and
    signs where units are so few that replicas would drop nearly all of them."""
    n, clusters = sum(s.n for s in noise), sum(s.clusters for s in noise)
    M, fewest = max(s.window for s in noise), min(s.n for s in noise) if kind.values else n
    block = M + 1 if kind.lag is not None and not kind.values else max(1, min(BLOCKS_PER_LAG * M, fewest // BLOCKS))
    if resample is None:
        few = clusters < FEW_UNITS if kind.cluster else n < ROWS_PER_COEFFICIENT * dim
        resample = "wild" if few else "cluster" if kind.cluster else "block" if block > 1 else "pairs"
    if resample == "cluster" and kind.cluster is None:
        raise ArgumentError("resample='cluster' needs a task with clusters, fl.Regression(..., cluster=...); got none")
    if resample == "block" and kind.name != "HAC":
        raise ArgumentError("resample='block' needs rows in their order: a lag, or covariance='HAC'; got neither")
    if kind.cluster is not None and resample in ("cluster", "wild"):
        return Resampling(resample, unit="clusters", units=clusters)
    if kind.long_run and kind.lag != 0 and resample == "wild":
        return Resampling(resample, unit="slow cosines", units=int(sum(s.degrees for s in noise)))
    return Resampling(resample, block if resample in ("block", "wild") else 1, within=kind.values)


def _check_work(replicas: int, rows: int, dim: int) -> None:
    """Refuse replicas that would not fit into memory, or would take days."""
    checks.memory("bootstrap", replicas, 32 * dim * (dim + 1), "the system of a replica")
    each = rows * dim * (dim + 1)
    if replicas * each > MOST_WORK:
        raise ArgumentError(
            f"bootstrap must be at most {MOST_WORK / each:,.0f} for {rows:,} rows and {dim} coefficients: "
            f"more take days; got {replicas}"
        )


def reweighted_solutions(
    pieces: Callable[[int], Iterable[Piece]],
    systems: Sequence[System],
    weights: Floats,
    shared: tuple[Floats, Floats],
    penalty: Floats,
    what: Resampling,
    *,
    replicas: int,
    seed: int,
) -> Floats:
    """The solutions of `replicas` reweighted copies of the data : (B, d).

    pieces : the observations of site c, in their order; systems, weights : of the sites; penalty : (d,), the ridge
    shared : A : (d, d) and theta : (d,) of all sites together
    seed : equal seeds give equal replicas, and more replicas begin with those of fewer
    """
    B, d, (A, theta) = replicas, len(penalty), shared
    total = np.zeros((B, d, d + 1))
    for c, (own, w) in enumerate(zip(systems, weights, strict=True)):
        sums, coins = np.zeros((B, d * (d + 1) + 1)), Multipliers("coins", seed, c, B)
        for part in _parts(unit_sums(in_chunks(pieces(c), _rows(B, d)), _observations, what), _rows(B, d)):
            sums += coins.draw(len(part)).T @ part
        mass = sums[:, -1]
        if what.within and not mass.all():
            raise ArgumentError(
                f"every site must keep some rows in every replica, but replica {int(np.argmin(mass))} drops all of "
                f"site {c}, whose {own.n} rows make {-(-own.n // what.block)} blocks: use a smaller lag, or "
                f"resample='wild'; got blocks of {what.block}"
            )
        share = w / (mass if what.within else np.full(B, own.mass))
        total += share[:, None, None] * sums[:, :-1].reshape(B, d, d + 1)
        total[:, range(d), range(d)] += (share * mass)[:, None] * penalty  # the ridge is part of every observation
    relative = np.asarray(np.linalg.solve(A, total), np.float64)
    return _solutions(relative, None if what.within else np.column_stack([np.eye(d), theta]))


def wild_solutions(
    pieces: Callable[[int], Iterable[Piece]],
    sums: Sequence[ScoreSums],
    shared: tuple[Floats, Floats],
    what: Resampling,
    *,
    replicas: int,
    factor: float,
    seed: int,
) -> Floats:
    """The wild bootstrap's replicas : (B, d), whose covariance is the sandwich of the kind of `sums`.

    sums : of each site, what says how rows or clusters contribute; factor : of the covariance
    the rest as for `reweighted_solutions`
    """
    B, (A, theta) = replicas, shared
    total, rows = np.zeros((B, len(theta))), _rows(B, len(theta))
    for c, found in enumerate(sums):
        signs = Multipliers("webb" if what.few else "signs", seed, c, B, what.block)
        if what.unit != "rows":
            for p in pieces(c):
                found.add(p)
        units = found.of_units() or map(found.contributions, in_chunks(pieces(c), rows))
        for part in _parts(units, rows):
            total += signs.draw(len(part)).T @ part
    return np.asarray(theta + np.sqrt(factor) * np.linalg.solve(A, total.T).T, np.float64)


def _rows(B: int, d: int) -> int:
    """Of a chunk, so that neither its products nor its multipliers take much."""
    return max(1, NUMBERS // max(B, d * (d + 1)))


def _observations(p: Piece) -> Floats:
    """u (v, y)^T and the weight of each row : (n, d (d + 1) + 1)."""
    n, d = p.u.shape
    out = np.empty((n, d * (d + 1) + 1))
    system = out[:, :-1].reshape(n, d, d + 1)
    np.multiply(p.u[:, :, None], p.v[:, None, :], out=system[:, :, :d])
    np.multiply(p.u, p.y[:, None], out=system[:, :, d])
    out[:, -1] = 1.0 if p.root is None else p.root**2
    return out


def _parts(sums: Iterable[Floats], rows: int) -> Iterator[Floats]:
    """The same, at most so many at a time: a site's clusters come all at once."""
    for part in sums:
        yield from (part[at : at + rows] for at in range(0, len(part), rows))


def _solutions(systems: Floats, whole: Floats | None) -> Floats:
    """theta with M theta = m for each (M, m) : (B, d, d + 1), where M would be I without weights.

    whole : (I, theta), of the data: a replica that leaves a coefficient open is then replaced by the one that keeps the
    rows it drops and drops those it keeps, as likely as itself; None where that is not known
    """
    found = _is_open(systems)
    if whole is not None and 0 < found.mean() <= MOST_OPEN:
        systems[found] = 2 * whole - systems[found]
        found = _is_open(systems)
    if found.any():
        raise ArgumentError(
            f"every replica must determine all coefficients, but {found.sum()} of {len(found)} drop all rows on which "
            "one depends (few rows or clusters, or a column that differs from a constant in few of them): use "
            "resample='wild', leave the column out, or take the standard errors without bootstrap"
        )
    return np.asarray(np.linalg.solve(systems[:, :, :-1], systems[:, :, -1:])[:, :, 0], np.float64)


def _is_open(systems: Floats) -> NDArray[np.bool_]:
    values = np.linalg.svd(systems[:, :, :-1], compute_uv=False)
    return np.asarray(values[:, -1] <= SINGULAR * values[:, 0])
