"""A run at the coordinator: what was asked, where it stands, what came of it. All commands read it, and what is seen of
a run comes from its events.

runs/EXPERIMENT/options.json   what `fedlsa network run` asked for
                result.json    there once the run is over; failed.json: there once it cannot go on

All else is in the coordinator's store (store.py), by the run's name: the version of the program that began it, the
token by which sites tell it from an earlier run of the same name, certificates, terms (names of coefficients, the run's
coordinates, the plan), the server's state after every round (server.py), events, and whether it was asked to stop.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...errors import MessageError, NetworkError, ResultFileError
from .. import audit
from ..disk import read_json, write_json
from ..folder.config import Network
from ..processes import stamp
from ..protocol.codec import decode, encode
from ..protocol.run_settings import StartOptions
from ..protocol.server import ServerState
from ..store import Database

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
        """Of the coordinator."""
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
        """What was asked for."""
        return StartOptions.from_text((self.folder / "options.json").read_text(encoding="utf-8"))

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
        """What the last event says."""
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
        """Whether it has ended, well or not."""
        return any((self.folder / name).exists() for name in FILES[1:])

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
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
    for run in runs:
        if run.name == name:
            return run
    if name is None and runs:
        return runs[-1]
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
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
