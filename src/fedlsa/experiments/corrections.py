"""Where the paper's statements are corrected (docs/theory.md): what is printed against the exact number."""

from __future__ import annotations

import math

import xarray as xr

from .cells import Cell, Results, computes
from .compute import How, Settings, scalars
from .counterexamples import COUNTEREXAMPLES
from .experiment import Claim, Experiment, Row, Scale, Table

LOWER = ("lower_bound", "transient_rate")  # the exact number lies below what is printed: an equality, a slower rate


@computes("counterexample")
def compared(settings: Settings, how: How) -> xr.Dataset:
    """The numbers of a counterexample; "corrected" where the corrected statement has one."""
    _, *numbers = COUNTEREXAMPLES[settings["statement"]]()
    named = dict(zip(("printed", "exact", "corrected"), numbers, strict=True))
    return scalars(**{name: value for name, value in named.items() if not math.isnan(value)})


def cells(scale: Scale) -> list[Cell]:
    """Every counterexample."""
    return [Cell("counterexample", {"statement": name}) for name in COUNTEREXAMPLES]


def rows(results: Results, scale: Scale) -> list[Row]:
    """Statements with their numbers; what is only rounding is 0."""
    table: list[Row] = []
    for cell, numbers in results:
        value = {name: 0.0 if abs(float(number)) < 1e-15 else float(number) for name, number in numbers.items()}
        ratio = value["exact"] / value["printed"] if value["printed"] else math.inf
        row = {"statement": cell["statement"], "printed": value["printed"], "exact": value["exact"]}
        table.append({**row, "exact/printed": ratio, "corrected": value.get("corrected", math.nan)})
    return table


def statements_that_hold(results: Results) -> float:
    """How many counterexamples do not contradict what is printed."""
    gaps = [(1 if c["statement"] in LOWER else -1) * float(r["printed"] - r["exact"]) for c, r in results]
    return float(sum(gap <= 0 for gap in gaps))


EXPERIMENT = Experiment(
    "corrections",
    "Where the paper's statements are corrected",
    (),
    tables=(Table("corrections", "What is printed, the exact number, and the corrected statement's.", cells, rows),),
    claims=(
        Claim(
            "corrections-needed",
            "Every statement that is corrected fails as printed on its counterexample.",
            "docs/theory.md",
            "number of counterexamples that do not contradict what is printed",
            cells,
            statements_that_hold,
            at_most=0.0,
        ),
    ),
)
