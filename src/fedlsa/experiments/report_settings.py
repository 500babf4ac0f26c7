"""What a claim ran, in words; which chart shows it; and where the explorer shows the same setting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from ..figures.lines import number
from .cells import Cell
from .experiment import Claim, Outcome, Scale
from .paper_curves import FEWEST, STEPS, world

EXPLORER_PORT = 8765  # of the addresses in the report; `fedlsa explore` takes a free one unless it is told
EXPLORED = ("simulate", "exact", "limit", "law")  # kinds of cells that are runs
OF_GARNET = {"agents", "heterogeneous", "preset", "seed", "features", "perturbation", "discount"}  # on the page
MOST_AGENTS, MOST_ROUNDS, SHOWN_ROUNDS = 200, 100_000, 5_000  # of the page; and of a limit, which has none
RUN = {"agents": "N", "local_steps": "H", "step_size": "η", "rounds": "rounds", "epsilon": "ε", "seeds": "seeds"}
MOST_LISTED = 4  # values of a setting that are listed one by one


def ran(cells: Iterable[Cell]) -> dict[str, str]:
    """The agents, steps, rounds and seeds of some cells, by the symbol: all values, or the first and the last."""
    found: dict[str, set[Any]] = {}
    for cell in cells:
        for name, symbol in RUN.items():
            if name in cell:
                copies = cell.columns.get("copies", 1) if name == "agents" else 1
                found.setdefault(symbol, set()).add(cell[name] * copies)
    return {symbol: listed(sorted(found[symbol])) for symbol in RUN.values() if symbol in found}


def listed(values: Sequence[float]) -> str:
    """Numbers in a row, or from the first to the last."""
    words = [number(v) for v in values]
    return ", ".join(words) if len(words) <= MOST_LISTED else f"{words[0]} to {words[-1]}"


def in_words(settings: dict[str, str]) -> str:
    """N = 10, 100; 200 rounds; 3 seeds."""
    counted = ("rounds", "seeds")
    return "; ".join(f"{v} {k}" if k in counted else f"{k} = {v}" for k, v in settings.items())


def smaller(claim: Claim, scale: Scale) -> str | None:
    """How a quick run differs from a full one for a claim, in words; None where it does not."""
    full = replace(scale, quick=False)
    here, there = (list(claim.cells(s)) for s in (scale, full))
    if not scale.quick or {c.text for c in here} == {c.text for c in there}:
        return None
    quick, whole = ran(here), ran(there)
    differ = {k: f"{v} (full run: {whole[k]})" for k, v in quick.items() if k in whole and whole[k] != v}
    return in_words(differ) or "a smaller instance"


def deciding_chart(claim: Claim, outcome: Outcome) -> tuple[str, int] | None:
    """The name of the picture and the place of the chart in it that show a claim; None where there is no picture.

    It is the chart that the claim names, or else the one of whose title its cells have most: N, H and the world. Of
    several it is that of different agents, with the most of them and the longest rounds.
    """
    charts = [(name, i, panel[0]) for name, made in outcome.sheets.items() for i, panel in enumerate(made.panels)]
    if not charts:
        return None
    if claim.panel:
        return next(((name, i) for name, i, title in charts if claim.panel in f"{name} {title}"), charts[0][:2])
    cells = [_title_words(cell) for cell in claim.cells(outcome.scale)]

    def likeness(chart: tuple[str, int, str]) -> tuple[int, bool, int]:
        words = _chart_words(chart[0], chart[2])
        alike = max((len(words & own) for own in cells), default=0)
        return alike, world(True) in words, charts.index(chart)

    name, i, title = max(charts, key=likeness)
    sizes = {word for word in _chart_words(name, title) if word.startswith("N = ")}
    if sizes and not any(sizes & own for own in cells):  # it is about other numbers of agents
        return None
    return name, i


def _chart_words(picture: str, title: str) -> set[str]:
    return set(re.split(r",\s+", f"{picture.rpartition('-')[2]}, {title}"))


def _title_words(cell: Cell) -> set[str]:
    words = {"agents": "N = {}", "local_steps": "H = {:,}"}
    named = {text.format(cell[name]) for name, text in words.items() if name in cell}
    named |= {world(cell["heterogeneous"])} if "heterogeneous" in cell else set()
    return named | ({str(cell["step_size"])} if "step_size" in cell else set())


def explorer_settings(claim: Claim, outcome: Outcome) -> str:
    """The explorer's settings, as in its address, of a cell that it can show; or nothing.

    Of the claim's cells it is the one that is most like the chart in its card, of several the last.
    """
    chart = deciding_chart(claim, outcome)
    words = _chart_words(chart[0], outcome.sheets[chart[0]].panels[chart[1]][0]) if chart else set()
    cells = list(claim.cells(outcome.scale))
    if any("skip" in cell for cell in cells):  # about trajectories, and not about what they are compared with
        cells = [cell for cell in cells if "skip" in cell]
    found = [(cell, settings) for cell in cells if (settings := _address(cell))]
    ordered = sorted(found, key=lambda pair: len(words & _title_words(pair[0])))
    return urlencode(ordered[-1][1]) if ordered else ""


def _address(cell: Cell) -> dict[str, Any]:
    problem, here = cell.settings.get("problem", {}), cell.columns
    if cell.kind not in EXPLORED or not set(problem) <= OF_GARNET or problem.get("agents", 0) > MOST_AGENTS:
        return {}
    settings = {name: ("yes" if value else "no") if value in (True, False) and name == "heterogeneous" else value
                for name, value in problem.items()}  # fmt: skip
    steps = here.get("local_steps")
    if "skip" in here:  # whose number of observations the problem decides, unless all are used
        if here["skip"] != 1:
            return {}
        settings["sampling"], steps = "markov", here["updates"]
    if steps is None:
        return {}
    rounds = here.get("rounds", min(SHOWN_ROUNDS, max(FEWEST, STEPS // steps)))
    if rounds > MOST_ROUNDS:
        return {}
    return {"problem": "garnet", **settings, "step_size": here["step_size"], "local_steps": steps, "rounds": rounds}
