"""The statistics of claims: how a cost grows, and whether simulations follow their exact law.

Two laws for how a cost grows with the accuracy, a power and a logarithm of x = 1/epsilon, are fitted by least squares
on y itself: communications are whole numbers, and rounding shifts a small and a large one alike. (On log y the rounding
of the smallest counts most, and four accuracies may be too few to tell a logarithm from a small power.) Both have two
parameters, so the smaller residual is also the smaller AIC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.optimize import minimize_scalar
from scipy.special import chdtr, chdtrc

from ..checks import Floats

PLACE = ["agents", "heterogeneous", "method", "step_size", "local_steps"]  # in the grids
LEVEL = 0.001  # at which simulations that are right are taken for wrong, over all comparisons of a claim
EXPONENT_TOLERANCE = {"xatol": 1e-10}
CLEARLY_SMALLER = 0.25  # an exponent this far below the stated one beats it
CLEARLY_LARGER = 0.45  # above it by this much, more than a factor log 1/ε explains

Measure = Callable[[Floats, Floats], float]  # of x = 1/epsilon and a cost


@dataclass(frozen=True)
class GrowthLaw:
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


def _law(name: str, a: float, b: float, x: Floats, y: Floats) -> GrowthLaw:
    return GrowthLaw(name, a, b, float(np.sqrt(np.mean((y - GrowthLaw(name, a, b, 0.0)(x)) ** 2))))


def power(x: Floats, y: Floats) -> GrowthLaw:
    """y = a x^b: for each b the best a is known, and b is near that of the straight line through the logarithms."""

    def best(b: float) -> GrowthLaw:
        return _law("power", float(y @ x**b / (x**b @ x**b)), b, x, y)

    near = slope(x, y)
    bounds = (near - 1, near + 1)
    found = minimize_scalar(lambda b: best(b).residual, bounds=bounds, method="bounded", options=EXPONENT_TOLERANCE)
    return best(float(found.x))


def logarithm(x: Floats, y: Floats) -> GrowthLaw:
    """y = a + b log x."""
    b, a = np.polyfit(np.log(x), y, 1)
    return _law("logarithm", float(a), float(b), x, y)


def better(x: Floats, y: Floats) -> GrowthLaw:
    """The law with the smaller residual."""
    laws: tuple[Callable[[Floats, Floats], GrowthLaw], ...] = (power, logarithm)
    return min((law(x, y) for law in laws), key=lambda law: law.residual)


def slope(x: Floats, y: Floats) -> float:
    """The slope of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def final_slope(x: Floats, y: Floats) -> float:
    """The exponent over the larger half of x (two values at least), where what grows slower has died out."""
    last = max(2, math.ceil(len(x) / 2))
    return slope(x[-last:], y[-last:])


def residual_ratio(law: Callable[[Floats, Floats], GrowthLaw], other: Callable[[Floats, Floats], GrowthLaw]) -> Measure:
    """A function of (x, y) that is below 1 where `law` fits better than `other`."""
    return lambda x, y: law(x, y).residual / other(x, y).residual


def compare_with_stated(power: float, law: str, exponent: float) -> str:
    """How measured communications compare with an upper bound of the paper, in words.

    power : of 1/epsilon in the bound, 0 for a logarithm; law, exponent : that were measured
    """
    if power == 0:  # few accuracies may not tell a small power from a logarithm
        near = "close to stated" if exponent < CLEARLY_SMALLER else "more than stated"
        return "as stated" if law == "logarithm" else near
    if law == "logarithm" or exponent < power - CLEARLY_SMALLER:
        return "fewer than stated"
    return "as stated" if exponent <= power + CLEARLY_LARGER else "more than stated"


def p_values(theta: Floats, mean: Floats, covariance: Floats) -> tuple[float, float]:
    """How likely simulated parameters, (seed, dim), are under a normal law with exact moments: mean and spread.

    The first is the squared distance of the mean over seeds, the second the sum of the squared distances of the seeds,
    both in units of the covariance: chi-square variables with d and n d degrees of freedom. The squared error
    ||theta - theta_star||^2 itself would lose most of that: it hardly sees any direction but the noisiest.
    """
    n, d = theta.shape
    away = np.linalg.solve(np.linalg.cholesky(covariance), (theta - mean).T)
    shift, spread = n * np.sum(away.mean(axis=1) ** 2), np.sum(away**2)
    tails = chdtr(n * d, spread), chdtrc(n * d, spread)  # chi-square; scipy.stats would take a second to load
    return float(chdtrc(d, shift)), min(1.0, 2 * float(min(tails)))


def aligned(results: pd.DataFrame, setting: str, *values: Any) -> list[pd.DataFrame]:
    """The rows with each of some values of a setting, by their other settings and in the same order."""
    others = [name for name in PLACE if name != setting]
    parts = [results[results[setting] == value].set_index(others) for value in values]
    return [part.loc[parts[0].index] for part in parts]


def runs_and_laws(results: pd.DataFrame) -> Iterator[tuple[Floats, xr.Dataset]]:
    """Simulated parameters after the last round, (seed, dim), and their exact law: of that round, or the limit."""
    at, simulated = results.set_index(PLACE)["result"], (results["kind"] == "simulate").to_numpy()
    for place, run in at[simulated].items():
        yield run["theta"].values[:, -1], at[~simulated][place]


def least_p_value(results: pd.DataFrame) -> float:
    """The least p-value of a mean or a spread over seeds, times the number of comparisons (Bonferroni)."""
    laws = [p_values(theta, law["mean"].values, law["covariance"].values) for theta, law in runs_and_laws(results)]
    return min(1.0, np.size(laws) * float(np.min(laws)))
