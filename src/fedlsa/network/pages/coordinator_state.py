"""What the coordinator's page, /health and /metrics say, from the files of its folder and from who is connected."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from ...errors import FedLSAError
from ..coordinator.runs import RunFolder, all_runs
from ..disk import read_json
from ..folder.config import Network, certificate_warnings
from ..protocol.records import VERSION, printable
from .http_pages import MetricFamily, PageState, gauge

# What is shown of a run, from the files that its folder has anyway; events are read once, as they come.

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


CERTIFICATES_POLL = 60.0  # seconds
OTHER_RUNS = 12
ASKED = ("method", "epsilon", "step_size", "local_steps", "local", "aggregation", "clip", "noise", "quantise",
         "deadline", "min_sites", "absence", "trim")  # fmt: skip


class CoordinatorState(PageState):
    """Everything that is shown of a network. present : names of the sites that are connected; alive : the run loop."""

    FILES = ("coordinator.html", "coordinator.js", "chart.js")

    def __init__(
        self, network: Network, present: Callable[[], Sequence[str]], alive: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(alive)
        self.network, self.present = network, present
        self._view: RunView | None = None
        self._written = 0  # when network.toml was
        self._expiring: tuple[float, list[str]] | None = None

    def _latest_run(self, now: dict[str, Any]) -> dict[str, Any]:
        run = now["run"] or {"name": None, "state": "none"}
        return {"name": run["name"], "state": run["state"]}

    def _content(self) -> dict[str, Any]:
        network, here = self._loaded(), {str(name) for name in self.present()}
        runs = all_runs(network)
        view = self._viewed(runs)
        alive = self.alive()
        certificates = self._certificates()
        alarms = list(view.alarms) if view else []
        away = [site for site in network.sites if site not in here]
        why = [] if alive else ["the run loop has ended; start the coordinator again"]
        if view is not None and view.state not in ("over", "failed") and away:
            why.append(f"not connected: {', '.join(away)}")
        why += [*certificates, *(a["text"] for a in alarms[-1:])]
        terms = (view.run.read("terms.json") if view else None) or {}
        receipts = _receipts(network.folder / "receipts.json")
        return {
            "now": time.time(),
            "version": metadata.version("fedlsa"),
            "protocol": VERSION,
            "network": network.id,
            "status": "dead" if not alive else "degraded" if why else "ok",
            "why": why,
            "run": None if view is None else self._run(view, terms),
            "sites": [self._site(site, site in here, view, receipts.get(site, {})) for site in network.sites],
            "events": [] if view is None else list(view.events)[::-1],
            "alarms": alarms[::-1],
            "certificates": certificates,
            "other_runs": [{"name": run.name, "end": _end(run)} for run in runs[-1 - OTHER_RUNS : -1][::-1]],
        }

    def _loaded(self) -> Network:
        """The network as its folder says now: sites come and go."""
        with suppress(FedLSAError, OSError):
            written = (self.network.folder / Network.FILE).stat().st_mtime_ns
            if written != self._written:
                self.network, self._written = Network.load(self.network.folder), written
        return self.network

    def _viewed(self, runs: list[RunFolder]) -> RunView | None:
        """The latest run, with its events read."""
        if not runs:
            self._view = None
        elif self._view is None or self._view.run != runs[-1]:
            self._view = RunView(runs[-1])
        if self._view is not None:
            self._view.read()
        return self._view

    def _run(self, view: RunView, terms: dict[str, Any]) -> dict[str, Any]:
        asked = view.run.read("options.json") or {}
        rounds, last = number(view.planned.get("rounds")), view.last
        return {
            "name": view.run.name,
            "state": view.state,
            "end": _end(view.run),
            "plan": printable(terms.get("plan", ""), 600),
            "asked": {name: asked[name] for name in ASKED if asked.get(name)},
            "planned": rounds,
            "rounds": view.rounds,
            "averages": number(last.get("averages")) or 0,
            "seconds": number(last.get("seconds")),
            "error": number(last.get("error")),
            "epsilon": number(terms.get("epsilon")),
            "up": number(last.get("up")) or 0,
            "down": number(last.get("down")) or 0,
            "curve": view.curve,
            "prediction": view.prediction(terms, None if rounds is None else int(rounds)),
        }

    def _site(self, name: str, present: bool, view: RunView | None, said: dict[str, Any]) -> dict[str, Any]:
        """One site: where it stands, in words and in numbers; said : by its last receipt, of all its runs."""
        last = view.last if view else {}
        up, down = (*last.get("moved", {}).get(name, ()), 0, 0)[:2]
        return {
            "name": name,
            "present": present,
            "standing": view.standing(name) if view else "no round yet",
            "missed": view.misses.get(name, 0) if view else 0,
            "up": number(up) or 0,
            "down": number(down) or 0,
            "refused": view.refused.get(name, 0) if view else 0,
            "rho": number(said.get("rho")),
            "budget": number(said.get("budget")),
        }

    def _certificates(self) -> list[str]:
        """Those that end soon, in words; looked at once a minute."""
        if self._expiring is None or time.monotonic() - self._expiring[0] > CERTIFICATES_POLL:
            here = f"{self.network.folder}/"
            soon = [printable(text.replace(here, ""), 300) for text in certificate_warnings(self.network)]
            self._expiring = time.monotonic(), soon
        return self._expiring[1]

    def _families(self, now: dict[str, Any]) -> list[MetricFamily]:
        """What the page says, as metrics; those of the latest run bear its name."""
        sites, run = now["sites"], now["run"]
        out = [
            gauge("fedlsa_up", "Whether the run loop is alive.", now["status"] != "dead"),
            gauge("fedlsa_sites", "Sites of the network.", len(sites)),
            gauge("fedlsa_sites_present", "Sites that are connected.", sum(s["present"] for s in sites)),
            gauge("fedlsa_certificates_expiring", "Certificates that end within 30 days.", len(now["certificates"])),
        ]
        if run is None:
            return out
        name = {"run": run["name"]}
        each = [({**name, "site": site["name"]}, site) for site in sites]
        moved = [({**label, "direction": way}, site[way]) for label, site in each for way in ("up", "down")]
        refused = [(label, site["refused"]) for label, site in each]
        spent = [(label, site["rho"]) for label, site in each if site["rho"] is not None]
        out += [
            MetricFamily("fedlsa_run_rounds_total", "counter", "Rounds closed.", [(name, run["rounds"])]),
            MetricFamily("fedlsa_run_averages_total", "counter", "Rounds averaged.", [(name, run["averages"])]),
            gauge("fedlsa_run_alarms", "Alarms of this run that are shown.", len(now["alarms"]), name),
            MetricFamily("fedlsa_run_bytes_total", "counter", "Bytes moved; up: from the site.", moved),
            MetricFamily("fedlsa_run_refused_total", "counter", "Answers and orders refused.", refused),
            gauge("fedlsa_run_over", "Whether the run has ended.", run["state"] in ("over", "failed"), name),
            gauge("fedlsa_run_failed", "Whether the run has failed.", run["state"] == "failed", name),
            gauge("fedlsa_run_last_round_seconds", "Seconds of the last round.", run["seconds"], name),
            gauge("fedlsa_run_estimated_error", "Estimated distance from the solution.", run["error"], name),
            MetricFamily("fedlsa_privacy_rho", "gauge", "Privacy spent (zCDP), by the site's receipt.", spent),
        ]
        return out


def _receipts(path: Path) -> dict[str, dict[str, Any]]:
    """What the sites' last receipts say: texts of their own, so anything may stand in them."""
    out = {}
    try:
        kept = read_json(path) or {}
        for site, receipt in kept.items():
            said = json.loads(json.loads(receipt)["said"])
            out[site] = said if isinstance(said, dict) else {}
    except (ValueError, KeyError, TypeError, RecursionError, OSError):
        return out
    return out


def _end(run: RunFolder) -> str | None:
    """Why a run is over, or None."""
    for name, key in (("failed.json", "error"), ("result.json", "over")):
        try:
            content = run.read(name)
        except (OSError, ValueError):
            content = None
        if content is not None:
            return printable(content.get(key, "it is over"), 300)
    return None
