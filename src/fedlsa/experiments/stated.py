"""What the paper's complexity tables state (tab:summary-of-results, tab:summary-of-results-TD), up to constants."""

from __future__ import annotations

from dataclasses import dataclass

SMALL = 0.25  # an exponent this far below the stated one beats it
LARGE = 0.45  # above it by this much, more than a factor log 1/ε explains


@dataclass(frozen=True)
class Stated:
    """A row of the paper's table, up to constants: T, H and T H in words; power : of 1/epsilon in T, 0 for a logarithm;
    agents : the power of N in the samples."""

    rounds: str
    local_steps: str
    samples: str
    power: float
    agents: float


ROWS_LSA = {
    "synchronous": Stated("N² / (a² ε²) · log 1/ε", "1", "N² / (a² ε²) · log 1/ε", 2.0, 2.0),
    "fedlsa": Stated("1 / (a² ε) · log 1/ε", "1 / (N ε)", "1 / (N a² ε²) · log 1/ε", 1.0, -1.0),
    "scaffnew": Stated("1 / (a ε) · log 1/ε", "1 / (a ε)", "1 / (a² ε²) · log 1/ε", 1.0, 0.0),
    "scafflsa": Stated("1 / a² · log 1/ε", "1 / (N ε²)", "1 / (N a² ε²) · log 1/ε", 0.0, -1.0),
}
RATE = "(1\u2212\u03b3)² ν²"
ROWS_TD = {
    "synchronous": Stated(f"N² / ({RATE} ε²) · log 1/ε", "1", f"N² / ({RATE} ε²) · log 1/ε", 2.0, 2.0),
    "fedlsa": Stated(f"1 / ({RATE} ε) · log 1/ε", "1 / (N ε)", f"1 / (N {RATE} ε²) · log 1/ε", 1.0, -1.0),
    "scaffnew": Stated("no row; as for LSA", "no row; as for LSA", "no row; as for LSA", 1.0, 0.0),
    "scafflsa": Stated(f"1 / ({RATE}) · log 1/ε", "1 / (N ε²)", f"1 / (N {RATE} ε²) · log 1/ε", 0.0, -1.0),
}


def verdict(stated: float, law: str, exponent: float) -> str:
    """How measured communications compare with the paper's upper bound, in words."""
    if stated == 0:
        near = "close to stated" if exponent < SMALL else "more than stated"  # few accuracies may not tell them apart
        return "as stated" if law == "logarithm" else near
    if law == "logarithm" or exponent < stated - SMALL:
        return "fewer than stated"
    return "as stated" if exponent <= stated + LARGE else "more than stated"
