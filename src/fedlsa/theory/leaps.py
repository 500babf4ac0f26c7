"""Many rounds of a linear recursion at once: Krylov spaces of the distance to the limit, one after another.

After m rounds of a recursion d <- L d the Krylov space knows how d goes on: with a basis B of it and the small matrix
h of L in it, L^t d = |d| B h^t e_1 for t < m exactly, and beyond m for as long as two sizes of the space agree. The
space grows until all rounds are reached or it is full; what is left of d by then starts the next one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats
from .krylov import Krylov

STAGE, APART = 8, 8  # dimensions that a space grows by, and by which the space that must agree with it is smaller


def leap(
    apply: Callable[[Floats], Floats],
    look: Callable[[Floats], Floats],
    distance: Floats,
    rounds: NDArray[np.int64],
    tolerance: Floats,
) -> Floats:
    """look(L^t distance) at the given rounds t >= 0, in increasing order : (R, k); tolerance : (k,), absolute.

    apply : the linear map L; look : a linear function of states, (..., n) to (..., k): all that is asked for.
    """
    at, out = 0, list[Floats]()
    while len(out) < len(rounds):
        space, seen = Krylov(apply, distance), np.empty((0, len(tolerance)))
        if space.length == 0:
            return np.stack([*out, *np.zeros((len(rounds) - len(out), len(tolerance)))])
        ahead = rounds[len(out) :] - at
        while True:
            space.grow(space.size + STAGE)
            seen = np.concatenate([seen, look(space.basis[len(seen) :])])
            found, reach, x = _powers(space, seen.T, ahead, tolerance)
            if len(found) == len(ahead) or space.closed or space.size == space.most:
                break
        out += found
        if len(out) < len(rounds):
            exact = max(space.size - APART, 1) - 1
            if reach < exact:  # the next round that is asked for is far: go as far as the space is exact
                x, reach = np.linalg.matrix_power(space.h, exact - reach) @ x, exact
            reach, x = max(reach, 1), x if reach else space.h @ x
            distance, at = x @ space.basis, at + reach
    return np.stack(out)


def _powers(
    space: Krylov, seen: Floats, rounds: NDArray[np.int64], tolerance: Floats
) -> tuple[list[Floats], int, Floats]:
    """Values for as many of the rounds as the space is good for, the last such round, and the state there."""
    h, m = space.h, space.size
    small = m if space.closed else max(m - APART, 1)
    reach, x, y = 0, space.length * np.eye(m)[0], space.length * np.eye(small)[0]
    squares, fewer = [h], [h[:small, :small]]
    out = list[Floats]()
    for t in rounds.tolist():
        further, check = _further(squares, t - reach, x), _further(fewer, t - reach, y)
        value = seen @ further
        if t >= small and not (np.abs(value - seen[:, :small] @ check) <= tolerance).all():
            break
        reach, x, y = t, further, check
        out.append(value)
    return out, reach, x


def _further(squares: list[Floats], rounds: int, x: Floats) -> Floats:
    """h^rounds x; squares : h, h^2, h^4, ..., as many as were needed so far."""
    for bit in range(rounds.bit_length()):
        if bit == len(squares):
            squares.append(squares[-1] @ squares[-1])
        if rounds >> bit & 1:
            x = squares[bit] @ x
    return x
