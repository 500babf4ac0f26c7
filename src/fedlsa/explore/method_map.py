"""The map over step sizes and local steps: which method has the smallest exact error after the rounds of the page.

All methods send as much in a round, so that the same rounds are the same cost.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import marimo as mo

from ..errors import FedLSAError
from ..theory.exact_curves import exact_record
from ..theory.problem_moments import moments
from ..theory.stationary_limits import margin_at
from .answers import BLOWN_UP, Question
from .controls import element
from .open_page import OpenPage
from .page_settings import METHODS, SETTINGS, PageSettings
from .pool_worker import LONG_LANE, Unfinished
from .updates import Put

STEP_SIZES = tuple(SETTINGS["step_size"].metadata["offers"][::4])
LOCAL_STEPS = (1, 10, 100, 1000, 10000, 3, 30, 300, 3000)  # coarse first, then what lies between
ROW_SECONDS = 20.0  # of the processor, after which the rest of a row is left out: other long work waits for it
ALIKE = 0.01  # relative: errors that differ by less are no reason to prefer a method
MAP = """## The map
Which method has the smallest exact error after the rounds T above, for step sizes η (across) and local steps H
(upwards); the thick line is the edge of stability. Choose a cell, and the sliders go there."""


@dataclass(frozen=True)
class MapCell:
    """One place of the map: exact errors by method, the best of those that are stable, and why one is refused."""

    errors: dict[str, float]
    best: str = ""
    why: str = ""


@dataclass(frozen=True, eq=False)
class MethodMap:
    """What is known of the map of one question, by local steps: cells in the order of STEP_SIZES."""

    question: Question | None = None
    rows: dict[int, tuple[MapCell, ...]] = field(default_factory=dict)
    trouble: str = ""

    @property
    def progress(self) -> str:
        """How far it is, or what went wrong."""
        if self.question is None or self.trouble:
            return self.trouble
        done = f"{len(self.rows)} of {len(LOCAL_STEPS)} rows"
        whole = f"After {self.question.settings.rounds} rounds of independent observations."
        return whole if len(self.rows) == len(LOCAL_STEPS) else f"Computing the map: {done} …"


def map_question(q: Question) -> Question:
    """What the map depends on: the problem and the rounds. It is made for independent observations."""
    return q.without("step_size", "local_steps", "probability", "seeds", "scale", "sampling", "thin")


def map_row(q: Question, local_steps: int) -> tuple[MapCell, ...]:
    """The cells of one number of local steps.

    From the largest step size down: below the first at which the best method is stable, all are taken to be, as
    `stability_limit` does.
    """
    m, cells, stable = moments(q.problem()), list[MapCell](), False
    end, row = time.process_time() + ROW_SECONDS, tuple[MapCell, ...]
    for eta in reversed(STEP_SIZES):
        if time.process_time() > end:  # however busy the machine is with others
            cells.append(MapCell({}, why=f"The row has taken {ROW_SECONDS:g} s; with fewer agents it is whole."))
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


def draw(page: OpenPage, q: Question, put: Put) -> None:
    """The map row by row, as rows are found."""
    q = map_question(q)
    known = MethodMap(q)
    put(known)
    for a in page.ask("map", map_row, *((q, steps) for steps in LOCAL_STEPS), lane=LONG_LANE):
        if page.question is None or map_question(page.question) != q:
            return
        if a.kind == "done":
            known = replace(known, rows={**known.rows, LOCAL_STEPS[a.index]: a.value})
        elif a.kind == "failed":
            known = replace(known, trouble=str(a.value))
        put(known)


def map_places() -> Any:
    """The places of the map, made once; a chosen one moves the sliders."""
    return element("map", columns=STEP_SIZES, rows=sorted(LOCAL_STEPS, reverse=True))


def map_cells(known: MethodMap, s: PageSettings) -> Any:
    """What the places show; s : the page's settings, whose place is marked."""
    cells = {
        f"{steps} {eta:g}": [c.best or ("refused" if not c.errors else "unstable"), _size(c), _said(c, eta, steps)]
        for steps, row in known.rows.items()
        for eta, c in zip(STEP_SIZES, row, strict=True)
    }
    eta = min(STEP_SIZES, key=lambda v: abs(math.log(v / s.step_size)))
    steps = min(LOCAL_STEPS, key=lambda v: abs(math.log(v / s.local_steps)))
    text = json.dumps({"cells": cells, "here": f"{steps} {eta:g}", "methods": METHODS})
    shown = f'<marimo-fedlsa-cells data-map="{escape(text)}"></marimo-fedlsa-cells>'
    return mo.Html(f'<div class="explore-quiet" role="status">{escape(known.progress)}{shown}</div>')


def _size(c: MapCell) -> float:
    """The power of ten of the best error."""
    return round(math.log10(c.errors[c.best]), 3) if c.best and c.errors[c.best] > 0 else 0.0


def _said(c: MapCell, eta: float, steps: int) -> str:
    """A cell in words, which are shown and read aloud."""
    place = f"Step size {eta:g}, {steps} local step{'s' * (steps > 1)}"
    errors = ", ".join(f"{n} {c.errors[n]:.3g}" for n in METHODS if n in c.errors)
    what = f"{c.best} is best ({errors})" if c.best else f"no method is stable ({errors})" if errors else "refused"
    return f"{place}: {what}.{' ' + c.why if c.why else ''}"
