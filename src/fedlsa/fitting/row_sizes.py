"""How much single rows stand out at a site, and what its policy therefore asks of local steps.

Told to powers of two, for what is told depends on single rows (network/site/limits.py says why these bounds).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..checks import Floats
from .rows import Piece

LEAST_LOCAL_STEPS, LARGEST_STEP, MOST_ROUNDS = 20, 1.0, 2000  # as policies begin
ROUNDING = 1e-13  # of the largest singular value: directions below it are rounding errors


class StepLimits(NamedTuple):
    """What a site asks of local steps. least_steps : of a round; largest_eta : 0 for any step size."""

    least_steps: int
    largest_eta: float


@dataclass(frozen=True)
class RowSizes:
    """What the policy asks of the rows, for a run's scale.

    mean : at least the norm of A_c, the mean of u v^T; leverage : the largest share of one row in any direction
    """

    rows: int
    mean: float
    leverage: float

    @property
    def largest(self) -> float:
        """At least the largest |u| |v|, told to a power of two: scales move it through averages of all rows alone."""
        return power_of_two(self.rows * power_of_two(self.leverage) * self.mean)

    def step_limits(
        self, drawn: bool, least_local_steps: int = LEAST_LOCAL_STEPS, largest_step: float = LARGEST_STEP
    ) -> StepLimits:
        """What a policy with these entries allows, whether rows are drawn at random or steps use means.

        A row takes eta |u| |v| of what earlier ones left along its own direction. With 1 / `least_local_steps` of it,
        so many rows that are alike stand behind an answer, not the last of them.
        """
        if not drawn:  # beyond 2 / |A| steps on means leave every range
            mean = power_of_two(self.mean)
            return StepLimits(1, 2 / mean if mean else 0.0)
        least = max(least_local_steps, power_of_two(least_local_steps * self.rows * self.leverage), 1)
        largest = least_local_steps * self.largest
        return StepLimits(int(least), largest_step / largest if largest else 0.0)


def row_sizes(pieces: Callable[[], Iterable[Piece]]) -> RowSizes:
    """The sizes of all rows, in two passes over their pieces.

    The triangular factor of the rows keeps small directions that their products would lose to rounding: two columns
    that differ by 1e-6 in one row have a direction in which that row is alone.
    """
    triangles: dict[str, Floats] = {}
    rows = 0
    for piece in pieces():
        rows += len(piece.y)
        for name, w in _directions(piece).items():
            above = [triangles[name]] if name in triangles else []
            triangles[name] = np.asarray(np.linalg.qr(np.vstack([*above, w]), mode="r"), np.float64)
    roots = {name: _inverse_root(triangle) for name, triangle in triangles.items()}
    leverage = max(
        float(((w @ roots[name]) ** 2).sum(axis=1).max())
        for piece in pieces()
        for name, w in _directions(piece).items()
    )
    norms = [_norm(triangles["w"][:, :-1])] + ([_norm(triangles["u"])] if "u" in triangles else [])
    return RowSizes(rows, norms[0] * norms[-1] / rows, min(leverage, 1.0))


def _norm(triangle: Floats) -> float:
    """The largest singular value."""
    return float(np.linalg.norm(triangle, 2)) if np.isfinite(triangle).all() and triangle.size else math.inf


def _directions(piece: Piece) -> dict[str, Floats]:
    """In what a row may stand out: (v, y), which meets theta, and u, along which it moves the answer."""
    return {"w": np.column_stack([piece.v, piece.y])} | ({} if piece.u is piece.v else {"u": np.asarray(piece.u)})


def _inverse_root(triangle: Floats) -> Floats:
    """R with w R R^T w^T the leverage of a row w; columns are scaled to one length first."""
    largest = np.abs(triangle).max(axis=0)
    largest[largest == 0] = 1.0
    scale = largest * np.linalg.norm(triangle / largest, axis=0)
    scale[scale == 0] = 1.0
    _, values, vectors = np.linalg.svd(triangle / scale, full_matrices=False)
    good = values > ROUNDING * values[0]
    return np.asarray(vectors[good].T / values[good] / scale[:, None], np.float64)


def power_of_two(value: float) -> float:
    """The next power of two: what depends on a single row is told no finer."""
    return 0.0 if value <= 0 else 2.0 ** min(math.ceil(math.log2(value)), 1023) if math.isfinite(value) else math.inf
