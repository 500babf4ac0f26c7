"""Verdicts and their numbers in words, for the report, its table and the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from html import escape
from typing import Any

from .experiment import SOURCES, Claim, Verdict

HOLDS, NOT_AS_STATED, FAILED = "holds", "does not hold as stated", "FAILED"
MARKS = {HOLDS: "good", NOT_AS_STATED: "note", FAILED: "bad"}
COUNTED = {HOLDS: "hold", NOT_AS_STATED: "not as stated", FAILED: "FAILED"}

SYMBOLS = {
    "theta_star": "θ⋆", "theta_t": "θ_t", "theta_0": "θ_0", "tau_mix": "τ_mix", "eta": "η", "||bias||^2": "‖bias‖²",
}  # fmt: skip
MINUS = "\u2212"
POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e\+?(-?)0*(\d+)(?!\w)")
UPPER = re.compile(r"(?<=\S)\^(?:\{([^}]*)\}|(-?\d+(?:\.\d+)?|\w))")
LOWER = re.compile(  # of one letter, with its accent or star; a name with a sign in it is left as it is
    r"(?<![A-Za-z0-9_])([^\W\d_][\u0300-\u036f]?⋆?|min|max)_(?:\{([^}]*)\}|(heter|corr|mix|[^\W_]|∞))(?![A-Za-z0-9_])"
)


def in_print(text: str) -> str:
    """A text as HTML, with symbols instead of their names, and with indices and powers that are set as such.

    >>> in_print("theta_t minus theta_star, e^{-t}")
    'θ<sub>t</sub> minus θ⋆, e<sup>-t</sup>'
    >>> in_print("N^2.23")
    'N<sup>2.23</sup>'
    >>> in_print("1.2e-05").replace("\u202f", " ")
    '1.2 · 10<sup>\u22125</sup>'
    """
    for name, symbol in SYMBOLS.items():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", symbol, text)
    text = UPPER.sub(lambda found: f"<sup>{found[1] or found[2]}</sup>", escape(text))
    text = POWER.sub(lambda found: f"{found[1]}\u202f·\u202f10<sup>{MINUS * len(found[2])}{found[3]}</sup>", text)
    return LOWER.sub(lambda found: f"{found[1]}<sub>{found[2] or found[3]}</sub>", text)


def verdict_words(verdict: Verdict) -> str:
    """What is said of a claim: it holds, it does not hold as stated (as we know), or it came out otherwise.

    A number that is not finite came out otherwise.
    """
    if not verdict.ok:
        return FAILED
    return HOLDS if verdict.holds else NOT_AS_STATED


def interval(claim: Claim) -> str:
    """Where the number of a claim must lie for it to hold."""
    low, high = number(claim.at_least), number(claim.at_most)
    if math.isinf(claim.at_least):
        return "any" if math.isinf(claim.at_most) else f"≤ {high}"
    return f"≥ {low}" if math.isinf(claim.at_most) else f"{low} … {high}"


def number(value: Any) -> str:
    """A value as the report shows it: four digits of a number that is not whole."""
    if isinstance(value, bool) or not isinstance(value, float):
        return f"{value:,}".replace(",", "\u2009") if isinstance(value, int) and abs(value) >= 10_000 else str(value)
    return f"{value:.4g}"


def counts(verdicts: Iterable[Verdict]) -> dict[str, dict[str, int]]:
    """How many claims of each kind hold, do not hold as stated, or came out otherwise."""
    found: dict[str, dict[str, int]] = {kind: dict.fromkeys(MARKS, 0) for kind in SOURCES}
    for v in verdicts:
        found[v.claim.kind][verdict_words(v)] += 1
    return {kind: group for kind, group in found.items() if any(group.values())}


def elsewhere(verdict: Verdict) -> str:
    """On how many other instances a claim holds, in words; nothing where it was not decided on others."""
    return f"{verdict.holds_elsewhere} of {len(verdict.others)}" if verdict.others else ""
