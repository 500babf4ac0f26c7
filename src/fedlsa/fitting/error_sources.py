"""Where the error of an answer comes from, and which site it comes from, in standard errors of the estimate.

The protocol's answer, off the data's solution, is what is left of the start, drift (FedLSA's limit bias) and the noise
of the run's draws; the data's solution is off the truth because data are finite. All is in the run's coordinates.

With Sigma the covariance of the estimate, a difference delta of d coefficients has the length

    sqrt(delta^T Sigma^-1 delta / d),

the same in every unit of every column, and under every linear change of coordinates: 1 for a difference as large as
the estimate's own error. No single coefficient is off by more than sqrt(d) lengths, in its own standard errors.

Replicas are what the estimate would have been on other data: reweighted normal equations, in one pass.

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

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import solve_continuous_lyapunov

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError, warn
from ..theory.exact_curves import start_and_drift
from ..threads import one_blas_thread
from .covariance import Estimate, covariance_text
from .fitted import Bootstrap
from .heterogeneity import SiteReport
from .protocol import FitSettings, RunOutcome
from .reading import FitProgress, PooledData
from .rows import Piece
from .scores import PILOT, SHARE, ClusterSums, FirstResiduals, join_pairs
from .sums import SolvedSystem, singular
from .tables import Codes
from .tasks import SITES, CovarianceKind

NO_SPREAD = 1e-12  # of the largest eigenvalue of the correlation matrix, or of the solution's size: a rounding error
NO_DIFFERENCE = 1e-9  # of the solution's size: what is below it, in directions without any error, is none
LEAST_CORRELATION = 0.05  # of residuals of consecutive rows: with less, error bars of independent rows are nearly right
FEW_CLUSTERS = 10  # below which intervals are said to be rough
ROWS_PER_LAG = 25  # below which intervals from a log were seen to cover less often than they say
UNLUCKY = 2  # times epsilon: one run may well come out this far, since epsilon is a root mean square
NUMBERS = 2**18  # of units' products, and of their coins, that are held at a time
MOST_WORK = 1e15  # products in all: about a day of one core
MOST_OPEN = 0.01  # of replicas that leave a coefficient open; so few are replaced by those of the rows they drop
ROWS_PER_COEFFICIENT = 4  # below which replicas would often drop nearly all rows
BLOCKS = 32  # of a site's rows, at least: one in 2^32 replicas drops them all
BLOCKS_PER_LAG = 4  # rows of a block for a lag that counts: blocks are Bartlett's window, whose bias falls like 1/L
GROUP = 64  # replicas that share a stream of random numbers: more replicas leave the first as they are
LEAST_CLUSTERS = 12  # of which replicas would often drop nearly all
RESAMPLED = ("pairs", "block", "cluster")


@dataclass(frozen=True, eq=False)
class Metric:
    """whiten : (k, d) with whiten Sigma whiten^T = I; exact : (d - k, d), combinations of coefficients without error
    of their own (data without noise), where every difference beyond `none` is infinitely many standard errors."""

    whiten: Floats
    exact: Floats
    none: float

    def lengths(self, deltas: Floats) -> Floats:
        """(N,): of differences : (N, d); NaN where they are not known."""
        out = np.linalg.norm(deltas @ self.whiten.T, axis=1) / math.sqrt(deltas.shape[1])
        if len(self.exact):
            out = np.where(np.abs(deltas @ self.exact.T).max(axis=1) > self.none, math.inf, out)
        return np.where(np.isnan(deltas).any(axis=1), math.nan, out)

    def length(self, delta: Floats) -> float:
        """Of one difference : (d,)."""
        return float(self.lengths(delta[None])[0])

    def spreads(self, covariances: Floats) -> Floats:
        """(N,): root mean squared lengths of differences with mean 0 and these covariances : (N, d, d)."""
        inside = np.einsum("nij,ij->n", covariances, self.whiten.T @ self.whiten)
        out = np.sqrt(np.maximum(inside, 0.0) / covariances.shape[1])
        if len(self.exact):
            rounding = NO_SPREAD * abs(self.exact) @ abs(covariances) @ abs(self.exact).T
            beyond = abs(self.exact @ covariances @ self.exact.T) > np.maximum(self.none**2, rounding)
            out = np.where(beyond.any(axis=(1, 2)), math.inf, out)
        return out

    def largest_spread(self, variance: float) -> float:
        """The largest `spread` of a covariance with this trace."""
        if variance == 0 or math.isnan(variance):
            return variance
        return math.inf if len(self.exact) else math.sqrt(variance / self.whiten.shape[1]) * self.stretch

    @property
    def stretch(self) -> float:
        """The most by which a direction is stretched: 1 / sqrt(smallest eigenvalue of Sigma); inf where it is 0."""
        return math.inf if len(self.exact) else float(np.linalg.norm(self.whiten, 2))


def metric_of(covariance: Floats, theta: Floats, more: Floats | None = None) -> Metric:
    """The metric of an estimate theta : (d,) with a covariance : (d, d).

    more : (d, d), that of independent rows. It is added where a combination of coefficients has an error there alone,
    for fewer clusters than coefficients cannot tell the error of every one
    """
    size = float(np.linalg.norm(theta))
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    known = error > NO_SPREAD * size
    scale = np.where(known, error, 1.0)  # to a correlation matrix: then units play no part
    correlation = np.where(np.outer(known, known), covariance / np.outer(scale, scale), 0.0)
    values, directions = np.linalg.eigh(correlation)
    kept = values > NO_SPREAD * max(values[-1], 0.0) if values[-1] > 0 else np.zeros(len(values), np.bool_)
    whiten = (directions[:, kept] / np.sqrt(values[kept])).T / scale
    exact = directions[:, ~kept].T / scale
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    if len(exact) and more is not None and len((wider := metric_of(covariance + more, theta)).exact) < len(exact):
        return wider
    return Metric(whiten, exact, NO_DIFFERENCE * size)


def warn_if_coarse(outcome: RunOutcome, settings: FitSettings, metric: Metric) -> None:
    """Say so where the run's error is more than was asked for, or, by hand, more than that of the data."""
    kind = "predicted" if outcome.sure else "realised"
    rmse = math.sqrt(float(outcome.bias @ outcome.bias) + outcome.variance)
    if settings.by_hand:
        error = math.hypot(metric.length(outcome.bias), metric.largest_spread(outcome.variance))
        if error > 1:
            warn(
                f"the run ends at a {kind} distance of {error:.3g} standard errors from the data's solution: "
                "more rounds or a smaller step_size would help"
            )
    elif settings.epsilon is not None and rmse > UNLUCKY * settings.epsilon:
        warn(
            f"the run ends at a {kind} distance of {rmse:.3g} from the data's solution, more than epsilon, "
            f"{settings.epsilon:.3g}: the plan is for rows drawn at random"
        )


def warn_of_errors(names: Sequence[str], s: Estimate, asked: CovarianceKind) -> None:
    """Say so where sites are too small for their part of the error bars, or these are of another kind than asked."""
    kind, single = s.kind, np.flatnonzero(s.systems.n == 1)
    if len(single) and kind.values:
        warn(
            f"{_sites(single, names)} with one row: one row has no spread, so its score is taken about 0, which "
            "is right where such sites are like the others, and too wide where they differ"
        )
    few = (s.systems.n < ROWS_PER_LAG * s.window) | (s.window >= np.minimum(s.systems.n, PILOT) // SHARE)
    short = np.flatnonzero(few & (s.systems.n > 1))
    if len(short) and kind.long_run and kind.lag is None:
        warn(
            f"{_sites(short, names)} with logs too short to see how far apart rows are correlated, fewer than "
            f"{ROWS_PER_LAG} rows for each lag: standard errors may be too small; lag=... says it"
        )
    if kind.name != asked.name:
        warn(f"{s.fallback}; error bars are {covariance_text(s)} instead, which may be too short")
    if kind.independent:
        rho, z, pairs = neighbour_correlation(s.residuals)
        if is_plainly_correlated(rho, z, pairs):
            warn(
                f"residuals of consecutive rows are correlated ({rho:.2g}, {z:.1f} standard errors from 0), so that "
                "error bars for independent rows are too short: covariance='HAC', lag=... or cluster=... says what "
                "depends on what"
            )
    if 0 < s.clusters < FEW_CLUSTERS:
        warn(f"error bars from {s.clusters} clusters are rough: fewer than {FEW_CLUSTERS} hardly show their own spread")


def neighbour_correlation(found: Sequence[FirstResiduals]) -> tuple[float, float, int]:
    """The autocorrelation at lag 1 of residuals e of each site, about its mean; in standard errors; and of how many
    pairs of rows.

    With t_i = e_i e_{i+1} these are S / sum e^2 and S / sqrt(sum t^2), where S = sum t + sum over sites of
    sum e^2 / n, which has mean 0 over all orders of a site's rows. Variances may differ between rows.
    """
    S, squares, spread, pairs = np.sum([one.sums() for one in found], axis=0).tolist()
    return (S / squares, S / math.sqrt(spread), int(pairs)) if spread > 0 else (0.0, 0.0, int(pairs))


def is_plainly_correlated(rho: float, z: float, pairs: int) -> bool:
    """Whether the correlation of neighbours is beyond chance: in standard errors for rows of one variance, pairs^-1/2,
    and in its own, z, whose law has shorter tails for few rows.

    Measured on independent rows, 10,000 to 100,000 data sets for each case of 1 to 200 sites and 8 to 5,000 rows: of
    1,000 fits at most 0.5 are warned (normal, t with 3 degrees of freedom, exponential, lognormal, two values), and 1.2
    where standard deviations grow along the rows up to fiftyfold (2.5 where one of four sites of 15 rows has ten
    times that of the others in its last five). 56 rows with a correlation of 0.6 are warned in 8 of 10.
    """
    return bool(pairs and rho > max(LEAST_CORRELATION, 3.3 / math.sqrt(pairs)) and z > 3.09 - 18 / pairs)


def _sites(which: Codes, names: Sequence[str]) -> str:
    return f"{len(which)} of {len(names)} sites ({names[int(which[0])]}{', ...' if len(which) > 1 else ''})"


def error_by_origin(outcome: RunOutcome, covariance: Floats, metric: Metric) -> dict[str, float]:
    """Root mean squared errors of all coefficients together, in standard errors.

    Squares of "start" and "drift" add up to that of the mean error, split as `theory.exact` splits it, but for one
    thing: drift here is that of the limit, so that start is all that more rounds would remove, and with it what control
    variates have still to learn. "noise" is at most what is given, for only the total variance of the run is known;
    "finite data" is 1 unless some have no error at all.
    """
    left, drifted = metric.length(outcome.bias - outcome.drift), metric.length(outcome.drift)
    if math.isfinite(left + drifted):
        left, drifted = metric.length(outcome.bias) * np.sqrt(start_and_drift(left, drifted))
    return {
        "start": float(left),
        "drift": float(drifted),
        "noise": metric.largest_spread(outcome.variance),
        "finite data": float(metric.spreads(covariance[None])[0]),
    }


def site_reports(data: PooledData, s: Estimate, metric: Metric, outcome: RunOutcome) -> tuple[SiteReport, ...]:
    """How each site stands to the data's solution."""
    (T, t), own = data.scale.original(), s.systems
    inverse, noise = np.linalg.inv(s.A), metric.largest_spread(outcome.variance)
    alone = SolvedSystem.of_each(own, not s.kind.values)
    left_open = alone.open_in(T)
    both = left_open[:, :, None] | left_open[:, None, :]
    determined = np.where((alone.rank == len(t))[:, None], alone.theta, np.nan)
    each = {
        "rows": s.systems.n,
        "weight": s.weights,
        "theta": np.where(left_open, np.nan, alone.theta @ T.T + t),
        "distance": metric.lengths(determined - s.theta),
        "influence": metric.lengths(s.weights[:, None] * (s.mean @ inverse.T)),
        "noise": noise * np.sqrt(noise_shares(s, metric)) if noise != 0 else np.zeros(len(s.systems.n)),
        "finite_data": metric.spreads(inverse @ s.meats @ inverse.T),
        "window": s.window,
        "covariance": np.where(both, np.nan, T @ s.own @ T.T),
        "degrees_of_freedom": s.own_freedom,
        "without": own.without(s.weights, s.theta) @ T.T + t,
        "dropped": data.dropped,
    }
    for name in ("episodes", "terminated", "effective_rows") if data.logs else ():
        each[name] = np.array([getattr(log, name) for log in data.logs])
    columns = [values.tolist() if values.ndim == 1 else list(values) for values in each.values()]
    return tuple(
        SiteReport(name, **dict(zip(each, values, strict=True)))
        for name, *values in zip(data.names, *columns, strict=True)
    )


def noise_shares(s: Estimate, metric: Metric) -> Floats:
    """(N,): each site's share in the squared noise, in standard errors, that small steps leave; they add up to one.

    With a small step eta the iterates' covariance U solves A U + U A^T = eta sum_c w_c^2 Sigma_c, which is linear in
    the sites' Sigma_c; so trace(W U W^T) = eta sum_c w_c^2 trace(Q Sigma_c) with A^T Q + Q A = W^T W.
    """
    Q = solve_continuous_lyapunov(s.A.T, metric.whiten.T @ metric.whiten)
    parts = s.weights**2 * np.einsum("ij,nji->n", Q, s.row)
    if not (np.isfinite(parts).all() and (parts >= 0).all() and parts.sum() > 0):  # no noise, or no stable small step
        return np.full(len(parts), 1 / len(parts))
    return np.asarray(parts / parts.sum(), np.float64)


def choose_block(resample: str | None, kind: CovarianceKind, s: Estimate, dim: int) -> int:
    """What varies: rows of a block, 1 for single rows, 0 for clusters. As asked for, else clusters where there are any,
    blocks where rows are correlated, else rows."""
    n, M = int(s.systems.n.sum()), int(s.window.max())
    fewest = int(s.systems.n.min()) if kind.values else n
    block = M + 1 if kind.lag is not None and not kind.values else max(1, min(BLOCKS_PER_LAG * M, fewest // BLOCKS))
    if resample == "cluster" and kind.cluster is None:
        raise ArgumentError("resample='cluster' needs clusters, cluster=...; got none")
    if resample == "block" and kind.name != "HAC":
        raise ArgumentError("resample='block' needs rows in their order: a lag, or covariance='HAC'; got neither")
    by_cluster = kind.cluster is not None and resample in (None, "cluster")
    if by_cluster and s.clusters < LEAST_CLUSTERS:
        rule = f"bootstrap must have at least {LEAST_CLUSTERS} clusters to drop some of"
        raise ArgumentError(f"{rule}; got {s.clusters}: the intervals of CR3, by t quantiles, are for fewer")
    if n < ROWS_PER_COEFFICIENT * dim:
        rule = f"bootstrap must have at least {ROWS_PER_COEFFICIENT} rows for each coefficient, {dim}"
        raise ArgumentError(f"{rule}; got {n}: the intervals without it, by t quantiles, are for fewer")
    return 0 if by_cluster else 1 if resample == "pairs" else block


def draw_replicas(
    data: PooledData, s: Estimate, count: int, resample: str | None, seed: int, report: FitProgress
) -> Bootstrap:
    """The estimate with `count` replicas, on the original scale."""
    (T, t), d = data.scale.original(), len(s.A)
    block, n = choose_block(resample, s.kind, s, d), int(s.systems.n.sum())
    checks.memory("bootstrap", count, 32 * d * (d + 1), "the system of a replica")
    if count * n * d * (d + 1) > MOST_WORK:
        raise ArgumentError(
            f"bootstrap must be at most {MOST_WORK / (n * d * (d + 1)):,.0f} for {n:,} rows and {d} coefficients: "
            f"more take days; got {count}"
        )

    def pieces() -> Iterator[Piece]:  # of all sites, with the places of sites among all
        for group in data.groups:
            report("bootstrap", group.start, len(data.names))
            yield from (p.moved(group.start) for p in data.pieces(group))

    with one_blas_thread(d):
        found = solve_reweighted(pieces(), s, data.penalty, block, replicas=count, seed=seed)
    what = f"{s.clusters:,} clusters" if block == 0 else "pairs" if block == 1 else f"blocks of {block} rows"
    freedom = float(n - d) if block == 1 else s.freedom
    return Bootstrap(T @ s.theta + t, found @ T.T + t, what, freedom)


def solve_reweighted(
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
    sums = pairs.joined(share[pairs.sites, None] * pairs.sums)
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


def _solutions(systems: Floats, all_rows: Floats | None) -> Floats:
    """theta with M theta = m for each (M, m) : (B, d, d + 1), where M would be I without weights.

    all_rows : (I, theta), of the data: a replica that leaves a coefficient open is then replaced by the one that keeps
    the rows it drops and drops those it keeps, as likely as itself; None where that is not known
    """
    found = singular(systems[:, :, :-1])
    if all_rows is not None and 0 < found.mean() <= MOST_OPEN:
        systems[found] = 2 * all_rows - systems[found]
        found = singular(systems[:, :, :-1])
    if found.any():
        raise ArgumentError(
            f"every replica must determine all coefficients, but {found.sum()} of {len(found)} drop all rows on which "
            "one depends (few rows or clusters, or a column that differs from a constant in few of them): leave the "
            "column out, or take the standard errors without bootstrap"
        )
    return np.asarray(np.linalg.solve(systems[:, :, :-1], systems[:, :, -1:])[:, :, 0], np.float64)
