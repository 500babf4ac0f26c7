"""Where the paper's statements are corrected (docs/theory.md): what is printed against the exact number."""

from __future__ import annotations

import math

import xarray as xr

from .cells import Cell, Results, computes
from .compute import How, Settings, scalars
from .counterexamples import COUNTEREXAMPLES
from .experiment import Claim, Experiment, Row, Scale, Table

BELOW = (
    "lower_bound",
    "transient_rate",
)  # printed: an equality, and a slower rate; the exact number is the smaller one


@computes("counterexample")
def compared(settings: Settings, how: How) -> xr.Dataset:
    """The numbers of a counterexample; "corrected" where the corrected statement has one."""
    what, *numbers = COUNTEREXAMPLES[settings["statement"]]()
    named = zip(("printed", "exact", "corrected"), numbers, strict=True)
    return scalars(**{name: value for name, value in named if not math.isnan(value)}).assign_attrs(what=what)


def cells(scale: Scale) -> list[Cell]:
    """Every counterexample."""
    return [Cell("counterexample", {"statement": name}) for name in COUNTEREXAMPLES]


def rows(results: Results, scale: Scale) -> list[Row]:
    """Statements with their numbers; what is only rounding is 0."""
    table: list[Row] = []
    for cell, numbers in results:
        value = {str(name): 0.0 if abs(float(number)) < 1e-15 else float(number) for name, number in numbers.items()}
        printed, exact, corrected = (value.get(name, math.nan) for name in ("printed", "exact", "corrected"))
        ratio = exact / printed if printed else math.inf
        row = {"printed": printed, "exact": exact, "corrected": corrected, "exact/printed": ratio}
        table.append({"statement": cell["statement"].replace("_", " "), "what": numbers.attrs["what"], **row})
    return table


def statements_that_hold(results: Results) -> float:
    """How many counterexamples do not contradict what is printed."""
    gaps = [(cell["statement"] in BELOW, float(numbers["exact"] - numbers["printed"])) for cell, numbers in results]
    return float(sum(gap >= 0 if below else gap <= 0 for below, gap in gaps))


CLAIM = Claim(
    "corrections-needed",
    "Every statement that is corrected fails as printed on its counterexample.",
    "docs/theory.md",
    "number of counterexamples that do not contradict what is printed",
    cells,
    statements_that_hold,
    at_most=0.0,
)
TABLE = Table(
    "corrections",
    "What is printed, the exact number, and what the corrected statement says.",
    cells,
    rows,
    {
        "corrected": "the corrected statement gives no number here",
        "exact/printed": "what is printed is 0: there is no ratio",
    },
)
EXPERIMENT = Experiment("corrections", "Where the paper's statements are corrected", (), (), (TABLE,), (CLAIM,))
