"""A run's folder at the coordinator: what was asked, where it stands, what came of it. All commands read
these files, and what is seen of a run comes from its events.

runs/EXPERIMENT/options.json   what `fedlsa network start` asked for; version.json: of the program that began it
                token          by which sites tell it from an earlier run of the same name
                events.jsonl   one line per thing that happened, for the display and for people; when it has grown
                               it becomes events.old.jsonl (what counts is in the audit log as well: audit.py)
                terms.json     names of coefficients, the run's coordinates, the plan: known after all sites were heard
                state.npz      the server's state (server.py), stored after every round
                stop           there once `fedlsa network stop` was called
                result.json    there once the run is over; failed.json: there once it cannot go on
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import NetworkError
from .. import audit
from ..disk import load_state, read_json, save_state, write_json
from ..folder.config import Network
from ..processes import stamp
from ..protocol.records import decode, encode
from ..protocol.run_settings import StartOptions
from ..protocol.server import ServerState

EVENTS_POLL = 0.25  # seconds between looks for new events
LAST_BYTES = 2**16  # of the events, in which the last one lies
EVENTS_BYTES = 32 * 2**20  # a hundred thousand rounds of a few sites


@dataclass(frozen=True)
class RunFolder:
    """One experiment's folder."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

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
        (run.folder / "token").write_text(secrets.token_hex(8), encoding="utf-8")
        run.write("version.json", stamp())
        run.write("options.json", asdict(options))
        return run

    @property
    def token(self) -> str:
        """By which sites tell this run from an earlier one of the same name."""
        return (self.folder / "token").read_text(encoding="utf-8")

    def options(self) -> StartOptions:
        """What was asked for."""
        return StartOptions.from_text((self.folder / "options.json").read_text(encoding="utf-8"))

    def note(self, event: str, **content: Any) -> None:
        """Add a line to the events, and before that to the network's audit log where it counts."""
        if event in audit.AUDITED_EVENTS:
            told = {name: content[name] for name in ("site", "round", "text") if name in content} | {"run": self.name}
            audit.note(self.folder.parent.parent, event, **told)
        line = json.dumps({"time": round(time.time(), 3), "event": event, **content})
        path = self.folder / "events.jsonl"
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            grown = file.tell() > EVENTS_BYTES
        if grown:
            plan = [old for _, old in self.events() if old.get("event") == "planned"][-1:]
            os.replace(path, path.with_name("events.old.jsonl"))
            path.write_text("".join(json.dumps(old) + "\n" for old in plan), encoding="utf-8")

    def events(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """(place after it, event) for each whole line from a place on; a line still being written is left for later.

        A place beyond the end means that the file has grown too long and was begun anew.
        """
        try:
            with (self.folder / "events.jsonl").open("rb") as file:
                file.seek(start := start if start <= file.seek(0, os.SEEK_END) else 0)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    start += len(line)
                    try:
                        yield start, json.loads(line)
                    except ValueError:  # a line cut short by a power cut
                        continue
        except FileNotFoundError:
            return

    def last_text(self) -> str | None:
        """What the last event says."""
        last = None
        for _, event in self.events(self._last_place()):
            last = event.get("text")
        return last

    def _last_place(self) -> int:
        """Where the last event or two begin."""
        try:
            with (self.folder / "events.jsonl").open("rb") as file:
                start = max(file.seek(0, os.SEEK_END) - LAST_BYTES, 0)
                file.seek(start)
                return start + (len(file.readline()) if start else 0)
        except FileNotFoundError:
            return 0

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
        arrays = load_state(self.folder / "state.npz")
        return None if arrays is None else decode(arrays["state"].tobytes(), ServerState)

    def save(self, state: ServerState) -> None:
        """Store the state; when this returns it is on the disk."""
        save_state(self.folder / "state.npz", {"state": np.frombuffer(encode(state), np.uint8)})

    def read(self, name: str) -> dict[str, Any] | None:
        """One of the JSON files, or None."""
        return read_json(self.folder / name)

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Store one of the JSON files; with result.json the run is over."""
        write_json(self.folder / name, content, "a run's file")

    def fail(self, why: str) -> None:
        """The run cannot go on, and trying again would not help."""
        self.write("failed.json", {"error": why})
        self.note("failed", text=why)

    @property
    def over(self) -> bool:
        """Whether it has ended, well or not."""
        return any((self.folder / name).exists() for name in ("result.json", "failed.json"))

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return (self.folder / "stop").exists()

    def ask_to_stop(self) -> None:
        """The run ends after the round that is open."""
        (self.folder / "stop").touch()


def all_runs(network: Network) -> list[RunFolder]:
    """Every run, the oldest first."""
    if not network.runs.is_dir():
        return []
    found = [RunFolder(p) for p in network.runs.iterdir() if (p / "options.json").is_file()]
    return sorted(found, key=lambda run: (os.stat(run.folder / "options.json").st_mtime_ns, run.name))


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
    columns = {"estimate": result["coefficients"]}
    if "one_shot" in result:
        columns["one shot"] = result["one_shot"]
    out.append(f"{'coefficient':<{width}}" + "".join(f"  {head:>14}" for head in columns))
    for name, *values in zip(result["names"], *columns.values(), strict=True):
        out.append(f"{name:<{width}}" + "".join(f"  {value:>14.8g}" for value in values))
    if "one_shot" in result:
        out.append("one shot: the solution of the averaged moments, which all sites shared")
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
