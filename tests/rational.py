"""Linear algebra without rounding: arrays of fractions, for tests of digits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def rational(x):
    """The floating-point numbers of an array as fractions."""
    return np.vectorize(lambda value: Fraction(float(value)), otypes=[object])(np.asarray(x))


def solve(A, b):
    """A^-1 b by elimination."""
    rows = np.column_stack([A, b])
    for i in range(len(b)):
        pivot = i + int(np.argmax(np.abs(rows[i:, i])))
        rows[[i, pivot]] = rows[[pivot, i]]
        rows[i] = rows[i] / rows[i, i]
        for j in {*range(len(b))} - {i}:
            rows[j] = rows[j] - rows[j, i] * rows[i]
    return rows[:, -1]
