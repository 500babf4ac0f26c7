"""Many rounds of a linear recursion at once: Arnoldi's method on the distance to the limit, restarted as it decays.

After m rounds of a recursion d <- L d the Krylov space knows how d goes on: with an orthonormal basis B of it and the
small matrix h = B^T L B, L^t d = |d| B h^t e_1 for t < m exactly, and beyond m for as long as two sizes of the space
agree. What is left of d by then starts the next space.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..checks import Floats

SIZE, SMALLER = 48, 40  # dimensions of the space, and of the part that must agree with the whole


def leap(
    apply: Callable[[Floats], Floats],
    look: Callable[[Floats], Floats],
    distance: Floats,
    rounds: NDArray[np.int64],
    tolerance: Floats,
) -> Floats:
    """look(L^t distance) at the given rounds t >= 0, in increasing order : (R, k); tolerance : (k,), absolute.

    apply : the linear map L; look : a linear function of the state with k values, the only ones that are asked for.
    """
    at, out = 0, list[Floats]()
    while len(out) < len(rounds):
        basis, h, size = krylov_space(apply, distance)
        m, small = len(h), min(SMALLER, len(h))
        seen = np.stack([look(b) for b in basis[:m]], 1)  # (k, m)
        reach, x, y = 0, size * np.eye(m)[0], size * np.eye(small)[0]
        for t in rounds[len(out) :] - at:
            power = np.linalg.matrix_power(h, int(t - reach)), np.linalg.matrix_power(h[:small, :small], int(t - reach))
            further, check = power[0] @ x, power[1] @ y
            apart = np.abs(seen @ further - seen[:, :small] @ check)
            if t >= small and not (apart <= tolerance).all():
                break
            reach, x, y = int(t), further, check
            out.append(seen @ x)
        if len(out) < len(rounds):
            if reach < small - 1:  # the next round that is asked for is far: go as far as the space is exact
                x, reach = np.linalg.matrix_power(h, small - 1 - reach) @ x, small - 1
            distance, at = basis[:m].T @ x, at + reach
    return np.stack(out)


def krylov_space(apply: Callable[[Floats], Floats], start: Floats) -> tuple[Floats, Floats, float]:
    """An orthonormal basis of start, L start, ... as rows, the map in it, and the length of start."""
    size = float(np.linalg.norm(start))
    basis = np.empty((SIZE + 1, len(start)))
    h = np.zeros((SIZE + 1, SIZE))
    if size == 0:
        return basis[:1] * 0, np.zeros((1, 1)), 0.0
    basis[0] = start / size
    for j in range(SIZE):
        image = apply(basis[j])
        for _ in range(2):  # once more, for orthogonality to the last digit
            along = basis[: j + 1] @ image
            h[: j + 1, j] += along
            image = image - along @ basis[: j + 1]
        h[j + 1, j] = np.linalg.norm(image)
        if h[j + 1, j] <= 1e-14 * np.abs(h[: j + 1, j]).max():
            return basis, h[: j + 1, : j + 1], size
        basis[j + 1] = image / h[j + 1, j]
    return basis, h[:SIZE], size
