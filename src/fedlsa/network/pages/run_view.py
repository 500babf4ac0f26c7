"""What is shown of a run, from the files that its folder has anyway; events are read once, as they come."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ..coordinator.runs import RunFolder
from ..protocol.records import printable

SHOWN_EVENTS = 60
SHOWN_ALARMS = 20
CURVE_POINTS = 1000  # of the error; beyond twice as many every second one is left out
PREDICTED_POINTS = 60
ALARMS = ("alarm", "failed")  # events that a person should look at


def number(value: Any) -> float | int | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


@dataclass
class RunView:
    """A run as far as its events have been read. misses : rounds that a site missed in a row; refused : answers."""

    run: RunFolder
    place: int = 0
    rounds: int = 0
    last: dict[str, Any] = field(default_factory=dict)
    planned: dict[str, Any] = field(default_factory=dict)
    curve: list[tuple[int, float]] = field(default_factory=list)
    every: int = 1  # of so many rounds one is in the curve
    misses: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)  # sites that count as gone or were put aside
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SHOWN_EVENTS))
    alarms: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SHOWN_ALARMS))
    newest: str = ""

    def read(self) -> None:
        """Take in the events that have come since the last time."""
        for place, event in self.run.events(self.place):
            self.place = place
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                self._take(event)

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        self.newest = kind
        if kind == "round":
            self._take_round(event)
        elif kind == "planned":
            self.planned = event
        elif kind == "refused":
            site = printable(event.get("site", ""), 60)
            self.refused[site] = self.refused.get(site, 0) + 1
        shown = {"time": number(event.get("time")), "kind": printable(kind, 40), "text": printable(_text(event), 400)}
        self.events.append(shown)
        if kind in ALARMS:
            self.alarms.append(shown)

    def _take_round(self, event: dict[str, Any]) -> None:
        self.rounds += 1
        self.last = event
        for site in event.get("missing", ()):
            self.misses[site] = self.misses.get(site, 0) + 1
        for site in event.get("sites", ()):
            self.misses[site] = 0
            self.away.pop(site, None)
        for key, word in (("gone", "gone"), ("aside", "put aside")):
            self.away.update(dict.fromkeys(event.get(key, ()), word))
        error, averages = number(event.get("error")), event.get("averages")
        if event.get("averaged") and error is not None and isinstance(averages, int) and averages % self.every == 0:
            self.curve.append((averages, float(error)))
        if len(self.curve) > 2 * CURVE_POINTS:
            self.every *= 2
            self.curve = [point for point in self.curve if point[0] % self.every == 0]

    def standing(self, site: str) -> str:
        """What a site did in the last round, in a word or two."""
        if site in self.away:
            return self.away[site]
        for key, word in (("sites", "answered"), ("missing", "late")):
            if site in self.last.get(key, ()):
                return word
        return "not asked" if self.last else "no round yet"

    @property
    def state(self) -> str:
        """In a word: failed, over, stopping, waiting, running, planning."""
        if (self.run.folder / "failed.json").exists():
            return "failed"
        if self.run.over:
            return "over"
        if self.run.stopping:
            return "stopping"
        return "waiting" if self.newest == "waiting" else "running" if self.rounds else "planning"

    def prediction(self, terms: dict[str, Any], rounds: int | None) -> dict[str, Any] | None:
        """The curve that the plan says, and in words what it is; None where nothing was planned.

        terms : of the run: `curve` holds (round, error), exact; `rate` is r, by which an error shrinks at least
        """
        exact = terms.get("curve")
        if isinstance(exact, list) and exact:
            step = max(1, len(exact) // CURVE_POINTS)
            points = [[int(k), float(e)] for k, e in exact[::step] if number(e) is not None]
            return {"label": "expected, exact: from the moments that all sites share", "points": points}
        rate = number(terms.get("rate"))
        if rate is None or not 0 < rate < 1 or not self.curve:
            return None
        first, error = self.curve[0]
        goal = number(terms.get("epsilon")) or error
        needed = math.ceil(math.log(min(1.0, goal / error)) / math.log1p(-rate)) if goal > 0 < error else 0
        end = max(self.curve[-1][0], first + min(needed, rounds or needed), first + 1)
        steps = sorted({first + round((end - first) * k / PREDICTED_POINTS) for k in range(PREDICTED_POINTS + 1)})
        points = [[k, error * (1 - rate) ** (k - first)] for k in steps]
        label = f"at most, by the plan's rate: {100 * rate:.2g}% less with every round, from the first estimate on"
        return {"label": label, "points": [p for p in points if p[1] > 0]}


def _text(event: dict[str, Any]) -> str:
    """An event in a line: short for rounds, whose numbers stand elsewhere."""
    kind, names = event["event"], {key: ", ".join(map(str, event.get(key) or ())) for key in ("missing", "gone")}
    if kind == "round":
        head = f"round {event.get('averages')}" if event.get("averaged") else "a round in vain"
        answered = f"{len(event.get('sites') or ())} of {event.get('present')} sites"
        rest = "".join(f"; {word}: {names[key]}" for key, word in (("missing", "late"), ("gone", "gone")) if names[key])
        return f"{head}: {answered}{rest}"
    if kind == "resumed":
        return f"taken up again after {event.get('averages')} rounds"
    site = f"{event['site']}: " if "site" in event else ""
    return f"{kind}: {site}{event.get('text', '')}"
