"""Two laws for how a cost grows with the accuracy: a power and a logarithm of x = 1/epsilon, and which fits better.

Both are fitted by least squares on y itself: communications are whole numbers, and rounding shifts a small and a large
one alike. (On log y the rounding of the smallest counts most, and four accuracies may be too few to tell a logarithm
from a small power.) Both have two parameters, so the smaller residual is also the smaller AIC.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from ..checks import Floats

TIGHT = {"xatol": 1e-10}  # of exponents


@dataclass(frozen=True)
class Law:
    """name : "power" or "logarithm"; residual : root mean square of y minus the fit."""

    name: str
    a: float
    b: float
    residual: float

    def __call__(self, x: Floats) -> Floats:
        return self.a * x**self.b if self.name == "power" else self.a + self.b * np.log(x)

    def __str__(self) -> str:
        power, line = f"{self.a:.3g} (1/ε)^{self.b:.2f}", f"{self.a:.2g} + {self.b:.2g} log 1/ε"
        return (power if self.name == "power" else line).replace("+ -", "\u2212 ").replace("-", "\u2212")


def _law(name: str, a: float, b: float, x: Floats, y: Floats) -> Law:
    return Law(name, a, b, float(np.sqrt(np.mean((y - Law(name, a, b, 0.0)(x)) ** 2))))


def power(x: Floats, y: Floats) -> Law:
    """y = a x^b: for each b the best a is known, and b is near that of the straight line through the logarithms."""

    def best(b: float) -> Law:
        return _law("power", float(y @ x**b / (x**b @ x**b)), b, x, y)

    near = slope(x, y)
    found = minimize_scalar(lambda b: best(b).residual, bounds=(near - 1, near + 1), method="bounded", options=TIGHT)
    return best(float(found.x))


def logarithm(x: Floats, y: Floats) -> Law:
    """y = a + b log x."""
    b, a = np.polyfit(np.log(x), y, 1)
    return _law("logarithm", float(a), float(b), x, y)


def better(x: Floats, y: Floats) -> Law:
    """The law with the smaller residual."""
    laws: tuple[Callable[[Floats, Floats], Law], ...] = (power, logarithm)
    return min((law(x, y) for law in laws), key=lambda law: law.residual)


def slope(x: Floats, y: Floats) -> float:
    """The slope of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def final_slope(x: Floats, y: Floats) -> float:
    """The exponent over the larger half of x (two values at least), where what grows slower has died out."""
    last = max(2, math.ceil(len(x) / 2))
    return slope(x[-last:], y[-last:])
