"""A multiplier bootstrap of the data's solution, by reweighted normal equations.

Replica b gives every block of consecutive rows a weight W_b of 0 or 2: mean one, variance one. Its answer solves the
reweighted data's system, with the observations A(z) = u v^T + ridge and b(z) = y u,

    sum_c w_c / w_bar_bc (mean over site c of W_b(z) A(z)) theta_b = sum_c w_c / w_bar_bc (mean of W_b(z) b(z)).

`centred` divides by the site's mean weight w_bar_bc: rows vary within their site, and the covariance of the replicas
tends to A^-1 (sum_c w_c^2 Cov_c(g) / n_c) A^-T with the scores g = A(z) theta - b(z). Otherwise w_bar = 1, and second
moments take the place of covariances, as in HC0 standard errors. At each site the sums of all replicas are one matrix
product: weights (B, blocks) times the blocks' sums (blocks, d (d + 1)). One pass over the rows is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..formatting import Displayed
from ..frozen import ReadOnly
from ..small_pictures import Strip, strips
from .observe import Piece
from .solutions import SINGULAR

COINS = 64  # replicas that share a stream of random words, one bit each: more replicas leave the first as they are
NUMBERS = 2**18  # of blocks' products, and of their weights, that are held at a time
MOST_WORK = 1e15  # products in all: about a day of one core


@dataclass(frozen=True, eq=False, repr=False)
class Bootstrap(Displayed, ReadOnly):
    """An estimate and what it would have been on reweighted data.

    theta : (d,) the data's solution
    replicas : (B, d) the solutions of reweighted data
    """

    theta: Floats
    replicas: Floats

    def _picture(self) -> str:
        rows = [Strip(f"theta[{j}]", float(v), None, self.replicas[:, j]) for j, v in enumerate(self.theta)]
        return strips(rows, "bars: the estimate; dots: its replicas; each row on its own scale")

    @property
    def covariance(self) -> Floats:
        """(d, d): of the replicas about their mean."""
        return np.atleast_2d(np.cov(self.replicas, rowvar=False))

    @property
    def standard_error(self) -> Floats:
        """(d,): the standard deviation of the replicas."""
        return np.asarray(self.replicas.std(axis=0, ddof=1), np.float64)

    def interval(self, level: float = 0.95, kind: str = "percentile") -> Floats:
        """(d, 2): lower and upper ends for each coordinate, which cover the truth with probability `level`.

        kind : "percentile", the quantiles q of the replicas, or "basic", which turns them round: 2 theta - q.
        """
        level = checks.real("level", level, above=0, below=1)
        checks.choice("kind", kind, ("percentile", "basic"))
        low, high = np.quantile(self.replicas, [(1 - level) / 2, (1 + level) / 2], axis=0)
        if kind == "basic":
            low, high = 2 * self.theta - high, 2 * self.theta - low
        return np.stack([low, high], axis=1)


class Coins:
    """The weights, 0 or 1 for 0 or 2, of one site's blocks in their order: (blocks, B)."""

    def __init__(self, seed: int, site: int, replicas: int) -> None:
        self.replicas = replicas
        self.streams = [np.random.default_rng([seed, site, group]) for group in range(-(-replicas // COINS))]

    def draw(self, blocks: int) -> Floats:
        """Those of the next blocks."""
        words = [rng.integers(0, 2**64, blocks, np.uint64).astype("<u8") for rng in self.streams]
        bits = np.unpackbits(np.stack(words, axis=1).view(np.uint8), axis=1, bitorder="little")
        return bits[:, : self.replicas].astype(np.float64)


def check_work(replicas: int, rows: int, dim: int) -> None:
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
    weights: Floats,
    ridge: Floats,
    A: Floats,
    *,
    replicas: int,
    block: int = 1,
    centred: bool = True,
    seed: int = 0,
) -> Floats:
    """The solutions of `replicas` reweighted copies of the data : (B, d).

    pieces : the observations of site c, in their order; weights : (N,), of the sites; ridge : of each coefficient, (d,)
    A : (d, d) of the data's own system, against which a replica is told to be singular
    block : how many consecutive rows share a weight; for logs, longer than their autocorrelation time
    seed : equal seeds give equal replicas, and more replicas begin with those of fewer
    """
    B, d = replicas, len(ridge)
    total = np.zeros((B, d, d + 1))
    for c, w in enumerate(weights):
        products, mass, n = _weighted_sums(pieces(c), Coins(seed, c, B), block, d)
        if centred and not mass.all():
            raise ArgumentError(
                f"every site must keep some rows in every replica, but replica {int(np.argmin(mass))} drops all of "
                f"site {c}, whose rows make {-(-n // block)} blocks: use smaller blocks (lag) or centred=False; "
                f"got blocks of {block}"
            )
        total += w * products / (mass[:, None, None] if centred else n / 2)
        penalty = np.ones(B) if centred else 2 * mass / n  # the ridge is part of every observation
        total[:, range(d), range(d)] += w * penalty[:, None] * ridge
    return _solutions(np.asarray(np.linalg.solve(A, total), np.float64))


def _weighted_sums(pieces: Iterable[Piece], coins: Coins, block: int, d: int) -> tuple[Floats, Floats, int]:
    """Of one site: sums of W u (v, y)^T : (B, d, d + 1) and of W : (B,), W the coins, and the number of rows."""
    B, start = coins.replicas, 0
    total, mass = np.zeros((B, d * (d + 1))), np.zeros(B)
    last = np.empty((0, B))  # the weights of a block that goes on in the next rows
    for u, vy in _chunks(pieces, max(1, NUMBERS // max(B, d * (d + 1)))):
        products = (u[:, :, None] * vy[:, None, :]).reshape(len(u), -1)
        begins = np.flatnonzero((start + np.arange(len(u))) % block == 0)
        W = np.concatenate([last, coins.draw(len(begins))])
        begins = np.append(np.zeros(len(last), np.int64), begins)
        if block > 1:
            products = np.add.reduceat(products, begins, axis=0)
        total += W.T @ products
        mass += np.diff(begins, append=len(u)) @ W
        start += len(u)
        last = W[-1:] if start % block else last[:0]
    return total.reshape(B, d, d + 1), mass, start


def _chunks(pieces: Iterable[Piece], rows: int) -> Iterator[tuple[Floats, Floats]]:
    """u : (n, d) and (v, y) : (n, d + 1), at most `rows` rows at a time."""
    for p in pieces:
        for at in range(0, len(p.y), rows):
            part = slice(at, at + rows)
            yield p.u[part], np.column_stack([p.v[part], p.y[part]])


def _solutions(systems: Floats) -> Floats:
    """theta with M theta = m for each (M, m) : (B, d, d + 1), where M would be I without weights."""
    M, m = systems[:, :, :-1], systems[:, :, -1]
    try:
        inverse = np.linalg.inv(M)
    except np.linalg.LinAlgError:
        inverse = np.full_like(M, np.inf)
    with np.errstate(invalid="ignore"):
        condition = np.linalg.norm(M, axis=(1, 2)) * np.linalg.norm(inverse, axis=(1, 2))
    if not (condition < 1 / SINGULAR).all():
        raise ArgumentError(
            "every replica must determine all coefficients, but some drop all rows on which one depends (a column that "
            "differs from a constant in few rows): leave it out, or take the standard errors without bootstrap; "
            f"got {len(M)} replicas"
        )
    return np.asarray(np.einsum("bij,bj->bi", inverse, m), np.float64)
