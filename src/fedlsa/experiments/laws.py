"""Two laws for how a cost grows with the accuracy: a power and a logarithm of x = 1/epsilon, and which fits better.

The power y = a x^b is fitted by least squares on log y, the logarithm y = a + b log x by least squares on y. Both have
two parameters, so the one with the smaller root mean square residual of log y also has the smaller AIC.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..checks import Floats


@dataclass(frozen=True)
class Law:
    """name : "power" or "logarithm"; residual : root mean square of log y minus log of the fit."""

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
    fit = Law(name, a, b, math.inf)(x)
    residual = math.sqrt(np.mean((np.log(y) - np.log(fit)) ** 2)) if (fit > 0).all() else math.inf
    return Law(name, a, b, residual)


def power(x: Floats, y: Floats) -> Law:
    """y = a x^b."""
    b, log_a = np.polyfit(np.log(x), np.log(y), 1)
    return _law("power", math.exp(log_a), float(b), x, y)


def logarithm(x: Floats, y: Floats) -> Law:
    """y = a + b log x."""
    b, a = np.polyfit(np.log(x), y, 1)
    return _law("logarithm", float(a), float(b), x, y)


def better(x: Floats, y: Floats) -> Law:
    """The law with the smaller residual."""
    laws: tuple[Callable[[Floats, Floats], Law], ...] = (power, logarithm)
    return min((law(x, y) for law in laws), key=lambda law: law.residual)


def slope(x: Floats, y: Floats) -> float:
    """The exponent of the power."""
    return power(x, y).b


def final_slope(x: Floats, y: Floats) -> float:
    """The exponent over the larger half of x (two values at least), where what grows slower has died out."""
    last = max(2, math.ceil(len(x) / 2))
    return slope(x[-last:], y[-last:])
