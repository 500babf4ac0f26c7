"""Questions about a matrix, answered with a check: do its powers vanish, is it positive, what solves its system."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cholesky

from ..checks import Floats
from ..errors import PrecisionError
from . import tuning


def contracts(M: Floats) -> bool:
    """Whether all eigenvalues of M are inside the unit circle: some power has a norm below one.

    Eigenvalues of a matrix without eigenvectors are known to a few digits only; norms of powers to nearly all.
    """
    with np.errstate(all="ignore"):
        for _ in range(64):  # M^(2^64) of a radius below one is 0
            size = np.linalg.norm(M)
            if not size < 1e100:  # powers of this size do not come back
                return False
            if size < 1:
                return True
            M = M @ M
    return False


def positive(X: Floats) -> bool | None:
    """Whether X, which is overwritten, is positive definite; its scale does not matter."""
    size = np.diagonal(X)
    if not (size > 0).all():
        return False
    scale = 1 / np.sqrt(size)
    X *= scale[:, None]
    X *= scale
    try:
        cholesky(X.T, lower=True, overwrite_a=True, check_finite=False)  # in place: X.T stands as LAPACK wants it
    except LinAlgError:
        np.fill_diagonal(X, 1)
        return False if np.linalg.eigvalsh(X, UPLO="L")[0] < -tuning.SOLUTION_ERROR else None
    return True


def refined(A: Floats, b: Floats) -> tuple[Floats, float]:
    """The x with A x = b, and its relative error as estimated by one step of iterative refinement."""
    x = np.linalg.solve(A, b)
    change = np.linalg.solve(A, b - A @ x)
    return np.asarray(x + change, np.float64), float(np.linalg.norm(change) / np.linalg.norm(x)) if b.any() else 0.0


def not_negative(values: Floats, rounding: Floats | float, what: str) -> Floats:
    """Squares and variances, 0 where rounding made them negative; by more than that it is an error."""
    if (np.isnan(values) | (values < -np.asarray(rounding))).any():
        worst = int(np.argmin(values + rounding))
        size = float(np.broadcast_to(rounding, values.shape)[worst])
        raise PrecisionError(f"{what} must not be negative; got {values[worst]:.1e}, where rounding makes {size:.1e}")
    return np.maximum(values, 0.0)


def check_accuracy(error: float, what: str) -> None:
    """Refuse an estimated error that is too large."""
    if not error <= tuning.SOLUTION_ERROR:
        raise PrecisionError(
            f"{what} must be known to {tuning.SOLUTION_ERROR:g}, relative; got an error of {error:.1e}"
        )
