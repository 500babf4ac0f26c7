"""Hypotheses about coefficients: what a line such as "educ = exper, tenure = 0" says, and the Wald test of it."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc, fdtrc

from .. import checks
from ..checks import Floats
from ..errors import ArgumentError
from ..value_objects import Displayed, ReadOnly
from .formulas import OPERATORS

NUMBER = r"\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?"
QUOTED = r"`([^`]*)`|\"([^\"]*)\"|'([^']*)'"
WORD = r"[^\s=,+*/()-]+(?:\([^()]*\))?(?:\[[^]]*\])?"  # of a name that is not known
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


def wald_test(fit: Any, hypothesis: str | ArrayLike, values: ArrayLike | None) -> WaldTest:
    """The test of a hypothesis about the coefficients of a fit."""
    names, theta, root = fit.names, fit.theta, fit.root
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
        raise ArgumentError("hypothesis must claim something; got nothing")
    for row, claim in zip(R, claims, strict=True):
        if not row.any():
            raise ArgumentError(f"hypothesis must be about coefficients, and {claim!r} names none")
    if np.linalg.matrix_rank(R / np.linalg.norm(R, axis=1, keepdims=True), rtol=math.sqrt(SINGULAR)) < len(R):
        raise ArgumentError(
            f"hypothesis must be claims of which none follows from the others, or contradicts them; got "
            f"{', '.join(claims)}"
        )
    spread = np.stack([row[row != 0] @ root[row != 0] for row in R])  # errors of other coefficients need not be known
    error = np.linalg.norm(spread, axis=1)
    for claim, e in zip(claims, error, strict=True):
        if not e > 0:
            has = "none that is known" if math.isnan(e) else "0"
            raise ArgumentError(f"hypothesis must be about coefficients with a standard error; {claim!r} has {has}")
    off, spread = (R @ theta - r) / error, spread / error[:, None]
    left, values, _ = np.linalg.svd(spread)
    if len(values) < len(R) or values[-1] ** 2 <= SINGULAR * values[0] ** 2:
        raise ArgumentError(
            f"hypothesis must have fewer claims, for the covariance of these {len(R)} is singular (as with fewer "
            f"clusters than claims); got {', '.join(claims)}"
        )
    F, q = float(np.sum((off @ left / values) ** 2)) / len(R), len(R)
    degrees = float(fit.degrees_of(R).min())
    p = chdtrc(q, q * F) if math.isinf(degrees) else fdtrc(q, degrees, F)
    return WaldTest(F, q, degrees, float(p), claims, R @ theta, r, error)


def _combination(row: Floats, names: Sequence[str]) -> str:
    parts = [(v, n) for v, n in zip(row, names, strict=True) if v != 0]
    text = " ".join(f"{'-' if v < 0 else '+'} {f'{abs(v):g} * '.removeprefix('1 * ')}{n}" for v, n in parts)
    return text.removeprefix("+ ") or "0"


def read_hypothesis(text: str, names: Sequence[str]) -> tuple[tuple[str, ...], Floats, Floats]:
    """Claims in words, R : (q, d) and r : (q,) with R theta = r.

    Claims are parted by commas; what stands without "=" is claimed to be 0, and a = b = c are two claims. Names may
    stand in backticks or quotes, and must where they look like a number. What is left once names and numbers have
    placeholders is arithmetic as Python has it, and Python reads it.
    """
    longest = sorted((n for n in names if n and not re.fullmatch(NUMBER, n)), key=len, reverse=True)
    tokens = re.compile("|".join([QUOTED, *(f"({_pattern(n)})" for n in longest), f"({NUMBER})", WORD]))
    written: dict[str, str] = {}
    forms: dict[str, Floats] = {}  # (d + 1,) of each placeholder: a combination of coefficients, and a number

    def placeholder(token: re.Match[str]) -> str:
        key, group = f"_{len(forms)}", token.lastindex or 0  # names in quotes, other names, numbers; 0 for what is none
        numeric = group == len(longest) + 4
        name = token[group] if group < 4 or numeric else longest[group - 4]
        if not numeric and name not in names:
            hint = checks.did_you_mean(name, names) or f"; they are {', '.join(names[:8])}"
            raise ArgumentError(f"hypothesis must name coefficients of the fit, and none is called {name!r}{hint}")
        written[key], forms[key] = token[0], np.zeros(len(names) + 1)
        forms[key][-1 if numeric else list(names).index(name)] = float(name) if numeric else 1.0
        return f" {key} "

    def words(side: str) -> str:
        return re.sub(r" (_\d+) ", lambda found: written[found[1]], side).strip()

    def combination(side: str) -> Floats:
        try:
            return _combination_of(ast.parse(" ".join(side.split()), mode="eval").body, forms)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            rule = 'hypothesis must be linear equations such as "educ = 2 * exper, tenure = 0"'
            what = error if isinstance(error, ValueError) else repr(words(side)) if side.strip() else "an empty side"
            raise ArgumentError(f"{rule}; got {what} in {text!r}") from None

    claims: list[tuple[str, Floats]] = []
    for claim in tokens.sub(placeholder, text).split(","):
        first, *others = map(str, claim.split("="))
        if not others:
            claims.append((f"{words(first)} = 0", combination(first)))
        claims += [(f"{words(a)} = {words(b)}", combination(a) - combination(b)) for a, b in pairwise([first, *others])]
    matrix = np.stack([form for _, form in claims])
    return tuple(claim for claim, _ in claims), matrix[:, :-1], 0.0 - matrix[:, -1]


def _combination_of(node: ast.expr, forms: Mapping[str, Floats]) -> Floats:
    """What an expression of placeholders comes to : (d + 1,)."""
    match node:
        case ast.Name(id=key):
            return forms[key]
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=inner):
            return OPERATORS[type(sign)](_combination_of(inner, forms))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as sign, right=right):
            a, b = _combination_of(left, forms), _combination_of(right, forms)
            if isinstance(sign, ast.Mult) and b[:-1].any():
                a, b = b, a
            if isinstance(sign, ast.Mult | ast.Div):
                if b[:-1].any():
                    raise ValueError("a product or ratio of coefficients, which is not linear")
                if isinstance(sign, ast.Div) and b[-1] == 0:
                    raise ValueError("a division by 0")
                b = b[-1]
            return OPERATORS[type(sign)](a, b)
    raise SyntaxError  # other signs


def _pattern(name: str) -> str:
    """A name as it is, and not the beginning of a longer one; spaces within a call such as I(x ** 2) mean nothing."""
    text = re.escape(name)
    if "(" in name:
        text = r"\s*".join(re.escape(part) for part in re.findall(r"\w+|[^\w\s]", name))
    return text + (r"(?![\w.\[(:])" if re.match(r"\w", name[-1]) else "")
