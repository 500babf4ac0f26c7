"""Where the paper's statements are corrected: what is printed (corrections.csv) against the exact number."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import resources

import pandas as pd
import xarray as xr

from .cells import Cell, computes
from .computations import How, Settings, scalars
from .counterexamples import COUNTEREXAMPLES
from .experiment import Claim, Experiment, Scale, Table

EQUALITY = "lower_bound"  # is printed as one, and the exact number is below it; all others are upper bounds
NO_CARD = (
    "debiased",  # has one among the paper's sentences
    "speed up",  # the theorem on psi holds; what is corrected is what it says of the server's error
    "transient rate",  # the printed rate holds, and is weaker than the one that its proof finds
    "scafflsa rounds",  # the proof lacks a factor of two, the error is as small as stated
)


@computes("counterexample")
def compared(settings: Settings, how: How) -> xr.Dataset:
    """The numbers of a counterexample; "corrected" where the corrected statement has one."""
    what, *numbers = COUNTEREXAMPLES[settings["statement"]]()
    named = zip(("printed", "exact", "corrected"), numbers, strict=True)
    return scalars(**{name: value for name, value in named if not math.isnan(value)}).assign_attrs(what=what)


def _cells(statements: Iterable[str], scale: Scale) -> list[Cell]:
    return [Cell("counterexample", {"statement": name}) for name in statements]


def rows(results: pd.DataFrame, scale: Scale) -> pd.DataFrame:
    """Statements with their numbers; what is only rounding is 0."""
    table = []
    for statement, numbers in zip(results["statement"], results["result"], strict=True):
        value = {str(name): 0.0 if abs(float(number)) < 1e-15 else float(number) for name, number in numbers.items()}
        printed, exact, corrected = (value.get(name, math.nan) for name in ("printed", "exact", "corrected"))
        ratio = exact / printed if printed else math.inf
        row = {"printed": printed, "exact": exact, "corrected": corrected, "exact/printed": ratio}
        table.append({"statement": statement.replace("_", " "), "what": numbers.attrs["what"], **row})
    return pd.DataFrame(table)


def _claims() -> Iterator[Claim]:
    """A claim per row of corrections.csv whose printed statement fails on a counterexample."""
    text = resources.files(__package__).joinpath("corrections.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        named = re.match("`(.*?)`", row["evidence: printed against exact"])
        if not named or named[1] in NO_CARD:
            continue
        name, holds, statement = named[1], row["what holds"], named[1].replace(" ", "_")
        yield Claim(
            f"printed-{name.replace(' ', '-')}",
            f"Corrected: {holds}.",
            row["statement"],
            "the exact number less the printed one; on a counterexample",
            partial(_cells, [statement]),
            lambda results: float((results["exact"] - results["printed"]).item()),
            at_least=0.0 if statement == EQUALITY else -math.inf,
            at_most=math.inf if statement == EQUALITY else 0.0,
            expected=False,
            kind="printed",
            quote=row["printed"],
            why=f"What holds: {holds}.",
            row=name,
        )


TABLE = Table(
    "corrections",
    "What is printed, the exact number, and what the corrected statement says.",
    partial(_cells, COUNTEREXAMPLES),
    rows,
    {
        "corrected": "the corrected statement gives no number here",
        "exact/printed": "what is printed is 0: there is no ratio",
    },
)
EXPERIMENT = Experiment("corrections", "Where the paper's statements are corrected", (), (), (TABLE,), tuple(_claims()))
