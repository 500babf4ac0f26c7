"""Hypotheses about coefficients: what a line such as "educ = exper, tenure = 0" says, and the Wald test of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc, fdtrc

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..formatting import Displayed
from ..frozen import ReadOnly

NUMBER = re.compile(r"\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?")
QUOTED = re.compile(r"`([^`]*)`|\"([^\"]*)\"|'([^']*)'")
WORD = re.compile(r"[^\s=,+*/()-]+(?:\([^()]*\))?(?:\[[^]]*\])?")  # of a name that is not known
SINGULAR = 1e-13  # of the largest eigenvalue of a matrix whose rows have length 1: a rounding error


@dataclass(frozen=True, eq=False, repr=False)
class WaldTest(Displayed, ReadOnly):
    """The F test that q linear combinations of coefficients have the values that are claimed of them.

    statistic : F = (R theta - r)^T (R Cov R^T)^-1 (R theta - r) / q
    df_num : q; df_denom : the degrees of freedom of the covariance. Where they are infinite, q F is chi squared
    p_value : the probability of a statistic as large as this one if the claims are true
    claims : in words; value : (q,) of the combinations; claimed : (q,) what they would be; standard_error : (q,)
    """

    statistic: float
    df_num: int
    df_denom: float
    p_value: float
    claims: tuple[str, ...]
    value: Floats
    claimed: Floats
    standard_error: Floats

    def _display(self) -> tuple[str, list[tuple[str, Any]]]:
        found = zip(self.claims, self.value, self.claimed, self.standard_error, strict=True)
        return f"F({self.df_num:g}, {self.df_denom:g}) = {self.statistic:.5g}, p = {self.p_value:.3g}", [
            (claim, f"{v:.5g} where {c:.5g} is claimed, standard error {s:.3g}") for claim, v, c, s in found
        ]


def wald_test(
    hypothesis: str | ArrayLike,
    values: ArrayLike | None,
    names: Sequence[str],
    theta: Floats,
    root: Floats,
    degrees_of_freedom: float,
) -> WaldTest:
    """The test of a hypothesis about coefficients theta : (d,) that have these names and the covariance root root^T."""
    if isinstance(hypothesis, (list, tuple)) and hypothesis and all(isinstance(claim, str) for claim in hypothesis):
        hypothesis = ", ".join(hypothesis)
    if isinstance(hypothesis, str):
        if values is not None:
            raise ArgumentError(f"values must not be given beside a text, which says them; got {checks.show(values)}")
        claims, R, r = read_hypothesis(hypothesis, names)
    else:
        R = np.atleast_2d(checks.as_array("hypothesis", hypothesis, "a text or an array (q, d)"))
        R = checks.array("hypothesis", R, ("q", len(names)))
        r = np.zeros(len(R)) if values is None else np.atleast_1d(checks.as_array("values", values, "an array (q,)"))
        r = checks.array("values", r, (len(R),))
        claims = tuple(f"{_combination(row, names)} = {c:g}" for row, c in zip(R, r, strict=True))
    if not len(R):
        raise ArgumentError("hypothesis must claim something; got an array without rows")
    for row, claim in zip(R, claims, strict=True):
        if not row.any():
            raise ArgumentError(f"hypothesis must be about coefficients, and {claim!r} names none")
    if _rank(R) < len(R):
        raise ArgumentError(
            f"hypothesis must be claims of which none follows from the others, or contradicts them; got "
            f"{', '.join(claims)}"
        )
    spread = R @ root
    error = np.linalg.norm(spread, axis=1)
    for claim, e in zip(claims, error, strict=True):
        if not e > 0:
            raise ArgumentError(f"hypothesis must be about coefficients with an error; {claim!r} has {e:g}")
    off, spread = (R @ theta - r) / error, spread / error[:, None]
    left, values, _ = np.linalg.svd(spread)
    if len(values) < len(R) or values[-1] ** 2 <= SINGULAR * values[0] ** 2:
        raise ArgumentError(
            f"hypothesis must have fewer claims, for the covariance of these {len(R)} is singular (as with fewer "
            f"clusters than claims); got {', '.join(claims)}"
        )
    F, q = float(np.sum((off @ left / values) ** 2)) / len(R), len(R)
    p = chdtrc(q, q * F) if math.isinf(degrees_of_freedom) else fdtrc(q, degrees_of_freedom, F)
    return WaldTest(F, q, degrees_of_freedom, float(p), claims, R @ theta, r, error)


def _rank(R: Floats) -> int:
    unit = R / np.linalg.norm(R, axis=1, keepdims=True)
    values = np.linalg.svd(unit, compute_uv=False)
    return int((values > math.sqrt(SINGULAR) * values[0]).sum())


def _combination(row: Floats, names: Sequence[str]) -> str:
    parts = [(v, n) for v, n in zip(row, names, strict=True) if v != 0]
    text = " ".join(f"{'-' if v < 0 else '+'} {'' if abs(v) == 1 else f'{abs(v):g} * '}{n}" for v, n in parts)
    return text.removeprefix("+ ") or "0"


def read_hypothesis(text: str, names: Sequence[str]) -> tuple[tuple[str, ...], Floats, Floats]:
    """Claims in words, R : (q, d) and r : (q,) with R theta = r.

    Claims are parted by commas; what stands without "=" is claimed to be 0, and a = b = c are two claims. Names may
    stand in backticks or quotes, and must where they look like a number.
    """
    claims: list[str] = []
    forms: list[Floats] = []
    reader = _Reader(text, names)
    while True:
        start = reader.at
        left = reader.sum()
        alone = not reader.take("=")
        while True:
            right = np.zeros(len(names) + 1) if alone else reader.sum()
            forms.append(left - right)
            claims.append(text[start : reader.at].strip() + (" = 0" if alone else ""))
            if alone or not reader.take("="):
                break
            left = right
        if not reader.take(","):
            break
    if reader.rest():
        raise reader.error(f"what follows {text[: reader.at].strip()!r}")
    matrix = np.stack(forms)
    return tuple(claims), matrix[:, :-1], 0.0 - matrix[:, -1]


class _Reader:
    """A text of linear combinations, read from left to right; a combination is (d + 1,), its constant last."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self.text, self.names, self.at = text, list(names), 0
        longest = sorted((n for n in names if n and not NUMBER.fullmatch(n)), key=len, reverse=True)
        self.patterns = [(n, _pattern(n)) for n in longest]

    def rest(self) -> str:
        """What is left, without spaces before it."""
        self.at += len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
        return self.text[self.at :]

    def take(self, *signs: str) -> str:
        """The sign that comes next, if it is one of these."""
        found = next((s for s in signs if self.rest().startswith(s)), "")
        self.at += len(found)
        return found

    def sum(self) -> Floats:
        """Products that are added and taken away."""
        total = self._product()
        while sign := self.take("+", "-"):
            total = total + self._product() if sign == "+" else total - self._product()
        return total

    def _product(self) -> Floats:
        left = self._factor()
        while sign := self.take("*", "/"):
            right = self._factor()
            if right[:-1].any() and (sign == "/" or left[:-1].any()):
                raise self.error("a product or ratio of coefficients, which is not linear")
            if sign == "/" and right[-1] == 0:
                raise self.error("a division by 0")
            left = left / right[-1] if sign == "/" else left * right[-1] if not right[:-1].any() else right * left[-1]
        return left

    def _factor(self) -> Floats:
        if sign := self.take("-", "+"):
            return -self._factor() if sign == "-" else self._factor()
        name = self._known()
        if name is not None:
            return np.eye(len(self.names) + 1)[self.names.index(name)]
        if self.take("("):
            inner = self.sum()
            if not self.take(")"):
                raise self.error("a bracket that is not closed")
            return inner
        rest = self.rest()
        if number := NUMBER.match(rest):
            self.at += number.end()
            return np.append(np.zeros(len(self.names)), float(number[0]))
        if word := WORD.match(rest):
            raise self.unknown(word[0])
        raise self.error("no name of a coefficient where one belongs")

    def _known(self) -> str | None:
        """The coefficient whose name comes next: in quotes, or the longest that fits."""
        rest = self.rest()
        if quoted := QUOTED.match(rest):
            name = next(group for group in quoted.groups() if group is not None)
            if name not in self.names:
                raise self.unknown(name)
            self.at += quoted.end()
            return name
        for name, pattern in self.patterns:
            if found := pattern.match(rest):
                self.at += found.end()
                return name
        return None

    def unknown(self, name: str) -> ArgumentError:
        hint = checks.did_you_mean(name, self.names) or f"; they are {', '.join(self.names[:8])}"
        return ArgumentError(f"hypothesis must name coefficients of the fit, and none is called {name!r}{hint}")

    def error(self, what: str) -> ArgumentError:
        rule = 'hypothesis must be linear equations such as "educ = 2 * exper, tenure = 0"'
        return ArgumentError(f"{rule}; got {what} in {self.text!r}")


def _pattern(name: str) -> re.Pattern[str]:
    """A name as it is, and not the beginning of a longer one; spaces within a call such as I(x ** 2) mean nothing."""
    text = re.escape(name)
    if "(" in name:
        text = r"\s*".join(re.escape(part) for part in re.findall(r"\w+|[^\w\s]", name))
    return re.compile(text + (r"(?![\w.\[(:])" if re.match(r"\w", name[-1]) else ""))
