"""Verdicts and their numbers in words, for the report, its table and the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from html import escape
from typing import Any

from ..mathml import INLINE, inline, mathml
from .experiment import SOURCES, Claim, Verdict

HOLDS, NOT_AS_STATED, FAILED = "holds", "does not hold as stated", "FAILED"
MARKS = {HOLDS: "good", NOT_AS_STATED: "note", FAILED: "bad"}
COUNTED = {HOLDS: "hold", NOT_AS_STATED: "not as stated", FAILED: "FAILED"}

NAMED = {  # symbols by their names in code and in charts
    "theta_star": r"\theta_\star", "theta_t": r"\theta_t", "eta": r"\eta", "psi": r"\psi",
    **dict.fromkeys(("tau_mix", "τ_mix"), r"\tau_{\mathrm{mix}}"),
    **dict.fromkeys(("||bias||^2", "‖bias‖²"), r"\Vert\mathrm{bias}\Vert^2"),
}  # fmt: skip
SYMBOL = rf"(?<![\w.])({'|'.join(map(re.escape, NAMED))}|[NHTKdnpqεηψ\u03b3\u03bd]|(?<=1/)a)(?![A-Za-z0-9_])"
FORMULA = re.compile(f"{INLINE}|{SYMBOL}")
POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e\+?(-?)0*(\d+)(?!\w)")
RAISED = re.compile(r"(?<=\S)\^(-?\d+(?:\.\d+)?)")
NEGATIVE = re.compile(r"(?<![\w)])-(?=\d)")


def in_print(text: str) -> str:
    """A text as HTML: its formulas and its symbols are MathML, its numbers have powers of ten and a minus sign.

    >>> in_print("N agents").replace(in_print("N"), "symbol")
    'symbol agents'
    >>> in_print("-1.2e-05").replace("\u202f", " ")
    '\u22121.2 · 10<sup>\u22125</sup>'
    """
    parts, end = [], 0
    for found in FORMULA.finditer(text):
        shown = inline(found) if found[1] else mathml(NAMED.get(found[3], found[3]), "inline")
        parts += [_with_powers(text[end : found.start()]), shown]
        end = found.end()
    return "".join([*parts, _with_powers(text[end:])])


def _with_powers(text: str) -> str:
    text = POWER.sub(lambda found: _times(found[1]) + f"10^{found[2]}{found[3]}", escape(text))
    return NEGATIVE.sub("\u2212", RAISED.sub(r"<sup>\1</sup>", text))


def _times(digits: str) -> str:
    return "" if digits == "1" else f"{digits}\u202f·\u202f"


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
    return f"{value + 0.0:.4g}"  # no minus before a zero


def counts(verdicts: Iterable[Verdict]) -> dict[str, dict[str, int]]:
    """How many claims of each kind hold, do not hold as stated, or came out otherwise."""
    found: dict[str, dict[str, int]] = {kind: dict.fromkeys(MARKS, 0) for kind in SOURCES}
    for v in verdicts:
        found[v.claim.kind][verdict_words(v)] += 1
    return {kind: group for kind, group in found.items() if any(group.values())}


def elsewhere(verdict: Verdict) -> str:
    """On how many other instances a claim holds, in words; nothing where it was not decided on others."""
    return f"{verdict.holds_elsewhere} of {len(verdict.others)}" if verdict.others else ""
