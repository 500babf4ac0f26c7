"""What is seen of a run, from its events: the live page, `fedlsa network status`, /metrics and the table of
`fedlsa network run` all show one RunSummary. What somebody else wrote is made printable here, once."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..protocol.codec import printable
from .runs import RunFolder, amount

SHOWN_EVENTS, SHOWN_ALARMS, SHOWN_ROUNDS = 60, 20, 12
CURVE_POINTS = 1000  # of the error; beyond twice as many every second one is left out
PREDICTED_POINTS = 60
ALARMS = ("alarm", "failed")  # events that a person should look at
HEADS = ("round", "sites", "missing", "size", "estimated error", "up", "down", "seconds")
ASKED = ("method", "epsilon", "step_size", "local_steps", "local", "aggregation", "clip", "noise", "quantise",
         "deadline", "min_sites", "absence", "trim")  # fmt: skip


def number(value: Any) -> float | int | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def line(event: dict[str, Any]) -> str:
    """An event in a line, whatever version or power cut wrote it."""
    kind = str(event.get("event"))
    if kind == "resumed":
        return f"taken up again after {event.get('averages')} rounds"
    if kind != "round":
        site = f"{event['site']}: " if "site" in event else ""
        head = "" if kind == "waiting" else f"{kind}: "  # which its text says
        return printable(f"{head}{site}{event.get('text', '')}", 400)
    done, sites, missing, size, error, up, down, seconds = _cells(event)
    head = f"round {done}" if event.get("averaged") else f"a round in vain ({event.get('round')}: {event.get('why')})"
    away = {"missing": missing if event.get("missing") else ""}
    away |= {how: ", ".join(map(str, event.get(how) or ())) for how in ("gone", "aside")}
    gone = "".join(f", {how}: {names}" for how, names in away.items() if names)
    text = f"{head}: {sites} sites{gone}, size {size}, error {error}, up {up}, down {down}, {seconds} s"
    return printable(text, 400)


def _cells(event: dict[str, Any]) -> tuple[str, ...]:
    size, error, seconds = (number(event.get(name)) for name in ("size", "error", "seconds"))
    return (
        str(event.get("averages")) if event.get("averaged") else "in vain",
        f"{len(event.get('sites') or ())} of {event.get('present')}",
        ", ".join(map(str, event.get("missing") or ())) or "-",
        "-" if size is None else f"{size:.2e}",
        "-" if error is None else f"{error:.2e}",
        amount(number(event.get("up")) or 0),
        amount(number(event.get("down")) or 0),
        "-" if seconds is None else f"{seconds:.1f}",
    )


@dataclass
class RunSummary:
    """A run as far as its events have been read. misses : rounds that a site missed in a row; refused : answers."""

    run: RunFolder
    place: int = 0
    rounds: int = 0
    last: dict[str, Any] = field(default_factory=dict)  # the last round
    planned: dict[str, Any] = field(default_factory=dict)
    newest: dict[str, Any] = field(default_factory=dict)  # the last event of another kind
    curve: list[tuple[int, float]] = field(default_factory=list)
    every: int = 1  # of so many rounds one is in the curve
    misses: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)  # sites that count as gone or were put aside
    recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SHOWN_ROUNDS))
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SHOWN_EVENTS))
    alarms: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=SHOWN_ALARMS))

    def read(self) -> RunSummary:
        """Take in the events that have come since the last time; itself."""
        for place, event in self.run.events(self.place):
            self.place = place
            self.take(event)
        return self

    def take(self, event: Any) -> None:
        """Take in one event; what is none is left out."""
        if not isinstance(event, dict) or not isinstance(kind := event.get("event"), str):
            return
        if kind == "round":
            self._take_round(event)
        else:
            self.newest = event
        if kind == "planned":
            self.planned = event
        elif kind == "refused":
            site = printable(event.get("site", ""), 60)
            self.refused[site] = int(number(event.get("times")) or self.refused.get(site, 0) + 1)
        shown = {"time": number(event.get("time")), "kind": printable(kind, 40), "text": line(event)}
        self.events.append(shown)
        if kind in ALARMS:
            self.alarms.append(shown)

    def _take_round(self, event: dict[str, Any]) -> None:
        self.rounds += 1
        self.last, self.newest = event, {}
        self.recent.append(event)
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

    @property
    def end(self) -> str | None:
        """Why it is over, or None."""
        for name, key in (("failed.json", "error"), ("result.json", "over")):
            try:
                content = self.run.read(name)
            except (OSError, ValueError):
                content = None
            if content is not None:
                return printable(content.get(key, "it is over"), 300)
        return None

    @property
    def state(self) -> str:
        """In a word: failed, over, stopping, waiting, running, planning."""
        if (self.run.folder / "failed.json").exists():
            return "failed"
        if self.run.over:
            return "over"
        if self.run.stopping:
            return "stopping"
        return "waiting" if self.newest.get("event") == "waiting" else "running" if self.rounds else "planning"

    def site(self, name: str) -> dict[str, Any]:
        """Where a site stands, and what it has sent and got."""
        standing = "not asked" if self.last else "no round yet"
        for key, word in (("missing", "late"), ("sites", "answered")):
            standing = word if name in self.last.get(key, ()) else standing
        up, down = (*self.last.get("moved", {}).get(name, ()), 0, 0)[:2]
        out = {"standing": self.away.get(name, standing), "missed": self.misses.get(name, 0)}
        return out | {"up": number(up) or 0, "down": number(down) or 0, "refused": self.refused.get(name, 0)}

    def facts(self) -> dict[str, Any]:
        """The run as plain values, for the page, for programs and for metrics."""
        asked, terms = (self.run.read(name) or {} for name in ("options.json", "terms.json"))
        rounds, last = number(self.planned.get("rounds")), self.last
        return {
            "name": self.run.name,
            "state": self.state,
            "end": self.end,
            "plan": printable(terms.get("plan", ""), 600),
            "asked": {name: asked[name] for name in ASKED if asked.get(name)},
            "planned": rounds,
            "rounds": self.rounds,
            "averages": number(last.get("averages")) or 0,
            "seconds": number(last.get("seconds")),
            "error": number(last.get("error")),
            "epsilon": number(terms.get("epsilon")),
            "up": number(last.get("up")) or 0,
            "down": number(last.get("down")) or 0,
            "curve": self.curve,
            "prediction": self._prediction(terms, None if rounds is None else int(rounds)),
        }

    def _prediction(self, terms: dict[str, Any], rounds: int | None) -> dict[str, Any] | None:
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

    def lines(self, sites: Iterable[str]) -> list[str]:
        """Where it stands, for a terminal."""
        out = [f"{self.run.name}: {self.state}" + (f": {self.end}" if self.run.over else "")]
        out += [line(event) for event in (self.planned, self.last) if event]
        for name in sites if self.last else ():
            at = self.site(name)
            out.append(f"  {name}: {at['standing']}, up {amount(at['up'])}, down {amount(at['down'])}")
        return [*out, line(self.newest)] if self.newest and self.newest is not self.planned else out

    def table(self) -> Any:
        """The last rounds, and under them the last word that was said, for a live display."""
        from rich.table import Table
        from rich.text import Text

        words = line(self.newest) if self.newest else "" if self.last else "waiting for the coordinator"
        done = f"{self.run.name}: {self.last.get('averages', 0)} of {self.planned.get('rounds', '?')} rounds"
        out = Table(title=Text(done), caption=Text(words))
        for head in HEADS:
            out.add_column(head, justify="right")
        for event in self.recent:
            out.add_row(*map(Text, _cells(event)))
        return out
