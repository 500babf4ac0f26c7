"""The map over step sizes and local steps: which method has the smallest exact error after the rounds of the page.

All methods send as much in a round, so that the same rounds are the same cost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import FedLSAError
from ..theory.exact_curves import exact_record
from ..theory.problem_moments import moments
from ..theory.stationarity import margin_at
from .answers import BLOWN_UP, Question
from .page_settings import METHODS, SETTINGS
from .pool_worker import Unfinished

STEP_SIZES = tuple(SETTINGS["step_size"].metadata["offers"][::4])
LOCAL_STEPS = (1, 10, 100, 1000, 10000, 3, 30, 300, 3000)  # coarse first, then what lies between
ROW_SECONDS = 20.0  # of the processor, after which the rest of a row is left out: other long work waits for it
LEFT_OUT = (
    f"Left out: the row has taken {ROW_SECONDS:g} s. Draw the map again and it is tried again; "
    "with fewer agents it is complete."
)
ALIKE = 0.01  # relative: errors that differ by less are no reason to prefer a method


@dataclass(frozen=True)
class MapCell:
    """One place of the map: exact errors by method, the best of those that are stable, and why one is refused."""

    errors: dict[str, float]
    best: str = ""
    why: str = ""


def map_row(q: Question, local_steps: int) -> tuple[MapCell, ...]:
    """The cells of one number of local steps.

    From the largest step size down: below the first at which the best method is stable, all are taken to be, as
    `stability_limit` does.
    """
    m, cells, stable = moments(q.problem()), list[MapCell](), False
    end, row = time.process_time() + ROW_SECONDS, tuple[MapCell, ...]
    for eta in reversed(STEP_SIZES):
        if time.process_time() > end:  # however busy the machine is with others
            cells.append(
                MapCell(
                    {},
                    why=LEFT_OUT,
                )
            )
            row = Unfinished
            continue
        s = replace(q.settings, step_size=eta, local_steps=local_steps)
        errors, lasting, why = dict[str, float](), list[str](), ""
        for name in METHODS:
            try:
                mse = exact_record(m, s.method(name), s.rounds, record=[0, s.rounds])["data_vars"]["mse"][1]
                errors[name] = float(mse[-1])
                lasting += [name] * bool(mse[-1] <= BLOWN_UP * mse[0])
            except FedLSAError as error:
                why = f"{name}: {error}"
        settled = [n for n in lasting if stable or margin_at(m, s.method(n), eta) > 0]
        least = min((errors[n] for n in settled), default=math.nan)
        best = next((n for n in settled if errors[n] <= (1 + ALIKE) * least), "")  # the simplest of those alike
        stable = stable or bool(best)
        cells.append(MapCell(errors, best, why))
    return row(reversed(cells))


def row_data(row: Sequence[MapCell], steps: int) -> list[list[Any]]:
    """A row as the page draws it: of each cell what is best, the power of ten of its error, and the cell in words."""
    each = zip(STEP_SIZES, row, strict=True)
    return [
        [c.best or ("refused" if not c.errors else "unstable"), _size(c), _describe(c, eta, steps)] for eta, c in each
    ]


def _size(c: MapCell) -> float:
    """The power of ten of the best error."""
    return round(math.log10(c.errors[c.best]), 3) if c.best and c.errors[c.best] > 0 else 0.0


def _describe(c: MapCell, eta: float, steps: int) -> str:
    """A cell in words, which are shown and read aloud."""
    place = f"Step size {eta:g}, {steps} local step{'s' * (steps > 1)}"
    errors = ", ".join(f"{n} {c.errors[n]:.3g}" for n in METHODS if n in c.errors)
    what = f"{c.best} is best ({errors})" if c.best else f"no method is stable ({errors})" if errors else "refused"
    return f"{place}: {what}.{' ' + c.why if c.why else ''}"
