"""A run at the coordinator: what was asked, where it stands, what came of it. All commands read it, and what is seen of
a run comes from its events.

runs/EXPERIMENT/options.json   what `fedlsa network run` asked for
                result.json    there once the run is over; failed.json: there once it cannot go on

All else is in the coordinator's store (disk.py), by the run's name: the version of the program that began it, the
token by which sites tell it from an earlier run of the same name, certificates, terms (names of coefficients, the run's
coordinates, the plan), the server's state after every round (server.py), events, and whether it was asked to stop.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ...errors import MessageError, NetworkError, ResultFileError
from .. import audit
from ..disk import Database, read_json, write_json
from ..folder.config import Network
from ..processes import stamp
from ..protocol.codec import decode, encode, printable
from ..protocol.run_settings import StartOptions
from ..protocol.server import ServerState

EVENTS_POLL = 0.25  # seconds between looks for new events
FILES = ("options.json", "result.json", "failed.json")  # that people read
EACH_REFUSAL = 20  # of a site in a run is written down; then every power of two, with their number


@dataclass(frozen=True)
class RunFolder:
    """One experiment."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def store(self) -> Database:
        return Database(self.folder.parent.parent)

    @classmethod
    def create(cls, network: Network, options: StartOptions) -> RunFolder:
        """A new folder; the run begins when the coordinator sees it."""
        name = options.name or time.strftime("run-%Y%m%d-%H%M%S", time.gmtime())
        run = cls(network.runs / name)
        if (busy := unfinished(network)) is not None:
            raise NetworkError(f"one run at a time: {busy.name} is not over; wait, or stop it (fedlsa network stop)")
        if run.folder.exists():
            raise NetworkError(f"name must be that of a new run; {run.name} exists already in {network.runs}")
        run.folder.mkdir(parents=True)
        run.store.forget(run.name)  # of an earlier run, whose folder is gone
        run.write("token", secrets.token_hex(8))
        run.write("version.json", stamp())
        run.write("options.json", asdict(options))
        times = [_written(other) for other in all_runs(network)]
        os.utime(run.folder / "options.json", ns=(max(times) + 1,) * 2)  # the latest, also where a clock went back
        return run

    @property
    def token(self) -> str:
        """By which sites tell this run from an earlier one of the same name."""
        return str(self.read("token"))

    def options(self) -> StartOptions:
        return StartOptions.from_entries(self.read("options.json"))

    def note(self, event: str, **content: Any) -> None:
        """Add to the events, and where it counts to the network's audit log: both or none.

        A site that is refused again and again does not fill the disk: refusals beyond the first are counted.
        """
        with self.store.transaction():
            if event == "refused":
                counter = f"refused {content.get('site')}"
                content["times"] = times = (self.read(counter) or 0) + 1
                self.write(counter, times)
                if times > EACH_REFUSAL and times & (times - 1):
                    return
            if event in audit.AUDITED_EVENTS:
                audited = {name: content[name] for name in ("site", "round", "text", "times") if name in content}
                self.store.append(audit.entry_of(event, run=self.name, **audited))
            self.store.add_event(self.name, {"time": round(time.time(), 3), "event": event, **content})

    def events(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """(place after it, event) for each event from a place on."""
        return self.store.events(self.name, start)

    def last_text(self) -> str | None:
        return (self.store.last_event(self.name) or {}).get("text")

    def follow(self) -> Iterator[list[dict[str, Any]]]:
        """New events, again and again, until the run is over and all of them have been seen."""
        place, over = 0, False
        while not over:
            over = self.over  # the last events are written before the end: one more look after it
            new = list(self.events(place))
            place = new[-1][0] if new else place
            yield [event for _, event in new]
            time.sleep(0 if over else EVENTS_POLL)

    def load(self) -> ServerState | None:
        """The stored state; None before the first."""
        try:
            return None if (content := self.stored()) is None else decode(content, ServerState)
        except MessageError as error:
            raise ResultFileError(f"the state of the run {self.name} is damaged: {error}") from None

    def stored(self) -> bytes | None:
        """The stored state as it is written."""
        return self.store.get(self.name, "state")

    def save(self, state: ServerState) -> None:
        """Store the state; when this returns it is on the disk."""
        self.store.put(self.name, "state", encode(state))

    def read(self, name: str) -> Any:
        """What was written under a name, or None."""
        return read_json(self.folder / name) if name in FILES else self.store.get_json(self.name, name)

    def write(self, name: str, content: Any) -> None:
        """Keep something; with result.json the run is over."""
        if name in FILES:
            write_json(self.folder / name, content, "a run's file")
        else:
            self.store.put_json(self.name, name, content)

    def fail(self, why: str) -> None:
        """The run cannot go on, and trying again would not help."""
        self.write("failed.json", {"error": why})
        self.note("failed", text=why)

    @property
    def over(self) -> bool:
        return any((self.folder / name).exists() for name in FILES[1:])

    @property
    def stopping(self) -> bool:
        return self.read("stop") is not None

    def ask_to_stop(self) -> None:
        """The run ends after the round that is open."""
        self.write("stop", True)


def all_runs(network: Network) -> list[RunFolder]:
    """Every run, the oldest first."""
    if not network.runs.is_dir():
        return []
    found = [RunFolder(p) for p in network.runs.iterdir() if (p / "options.json").is_file()]
    return sorted(found, key=lambda run: (_written(run), run.name))


def _written(run: RunFolder) -> int:
    return os.stat(run.folder / "options.json").st_mtime_ns


def unfinished(network: Network) -> RunFolder | None:
    """The run that is not over yet, if there is one."""
    return next((run for run in all_runs(network) if not run.over), None)


def chosen(network: Network, name: str | None) -> RunFolder:
    """The run of a name, or the latest."""
    runs = all_runs(network)
    if found := [run for run in runs if name in (None, run.name)]:
        return found[-1]
    known = ", ".join(run.name for run in runs) or "none yet"
    raise NetworkError(f"name must be that of a run in {network.runs} ({known}); got {name}")


def summary(result: dict[str, Any]) -> list[str]:
    """A result in lines: coefficients on the original scale, rounds, messages and bytes per site."""
    out = [f"{result['experiment']}: {result['over']}"]
    if "names" not in result:
        return out
    width = max(11, *(len(n) for n in result["names"]))
    columns, errors = {"estimate": result["coefficients"]}, result.get("errors")
    if "one_shot" in result:
        columns["one shot"] = result["one_shot"]
    if errors is not None:
        squares = [row[j] for j, row in enumerate(errors["covariance"])]
        pairs = [(v, s**0.5) if s is not None else (None, None) for v, s in zip(errors["theta"], squares, strict=True)]
        columns["solution"], columns["std err"] = zip(*pairs, strict=True)
    out.append(f"{'coefficient':<{width}}" + "".join(f"  {head:>14}" for head in columns))
    for name, *values in zip(result["names"], *columns.values(), strict=True):
        cells = ("-" if value is None else f"{value:.8g}" for value in values)
        out.append(f"{name:<{width}}" + "".join(f"  {cell:>14}" for cell in cells))
    if "one_shot" in result:
        out.append("one shot: the solution of the averaged moments, which all sites shared")
    if errors is not None:
        kind = errors["covariance_kind"]
        out += [f"solution: of all sites' data, from masked sums, with standard errors ({kind})", *errors["notes"]]
    elif "no_errors" in result:
        out.append(f"no standard errors: {result['no_errors']}")
    out.append(f"{result['averages']} rounds averaged, {result['rounds_opened']} opened; {balance(result)}")
    if result["aside"]:
        out.append(f"put aside, because their answers broke the protocol: {', '.join(result['aside'])}")
    for site, (down, down_bytes, up, up_bytes) in result["traffic"].items():
        refused = result.get("refused", {}).get(site, 0)
        more = f", {refused} refused" if refused else ""
        out.append(f"{site}: {up} messages up ({amount(up_bytes)}), {down} down ({amount(down_bytes)}){more}")
    if "privacy" in result:
        out.append(f"privacy of each site: {result['privacy']}")
    return out


def balance(result: dict[str, Any]) -> str:
    """Whether the sites' own control variates sum to 0, as a complete sum of them says; or why that is not known."""
    why = result.get("no_sum_of_xi", "not all sites took the last message")
    return f"|sum of xi| not known: {why}" if (total := result["sum_of_xi"]) is None else f"|sum of xi| {total:.1e}"


def amount(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


# What is seen of a run, from its events: the live page, `fedlsa network status`, /metrics and the table of
# `fedlsa network run` all show one RunSummary. What somebody else wrote is made printable here, once.

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
            with suppress(NetworkError):
                if (content := self.run.read(name)) is not None:
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
