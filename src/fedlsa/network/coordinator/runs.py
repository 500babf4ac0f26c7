"""A run's folder at the coordinator: what was asked, where it stands, what came of it. All commands read these files.

runs/EXPERIMENT/options.json   what `fedlsa network start` asked for
                token          by which sites tell it from an earlier run of the same name
                events.jsonl   one line per thing that happened, for the display and for people
                terms.json     names of coefficients, the run's coordinates, the plan: known after all sites were heard
                state.npz      the server's state (server_state.py), stored after every round
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

from ...errors import NetworkError
from ..disk import load_state, read_json, save_state, write_json
from ..folder.config import Network
from ..protocol.run_settings import StartOptions
from ..protocol.server_state import ServerState

EVENTS_POLL = 0.25  # seconds between looks for new events


@dataclass(frozen=True)
class Run:
    """One experiment's folder."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @classmethod
    def create(cls, network: Network, options: StartOptions) -> Run:
        """A new folder; the run begins when the coordinator sees it."""
        name = options.name or time.strftime("run-%Y%m%d-%H%M%S", time.gmtime())
        run = cls(network.runs / name)
        busy = unfinished(network)
        if busy is not None:
            raise NetworkError(f"one run at a time: {busy.name} is not over; wait, or stop it (fedlsa network stop)")
        if run.folder.exists():
            raise NetworkError(f"name must be that of a new run; {run.name} exists already in {network.runs}")
        run.folder.mkdir(parents=True)
        (run.folder / "token").write_text(secrets.token_hex(8), encoding="utf-8")
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
        """Add a line to the events."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, **content})
        with (self.folder / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()

    def events(self, start: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """(place after it, event) for each whole line from a place on; a line still being written is left for later."""
        try:
            with (self.folder / "events.jsonl").open("rb") as file:
                file.seek(start)
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
        return None if arrays is None else ServerState.from_arrays(arrays)

    def save(self, state: ServerState) -> None:
        """Store the state; when this returns it is on the disk."""
        save_state(self.folder / "state.npz", state.arrays())

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


def all_runs(network: Network) -> list[Run]:
    """Every run, the oldest first."""
    if not network.runs.is_dir():
        return []
    found = [Run(p) for p in network.runs.iterdir() if (p / "options.json").is_file()]
    return sorted(found, key=lambda run: (os.stat(run.folder / "options.json").st_mtime_ns, run.name))


def unfinished(network: Network) -> Run | None:
    """The run that is not over yet, if there is one."""
    return next((run for run in all_runs(network) if not run.over), None)


def chosen(network: Network, name: str | None) -> Run:
    """The run of a name, or the latest."""
    runs = all_runs(network)
    for run in runs:
        if run.name == name:
            return run
    if name is None and runs:
        return runs[-1]
    known = ", ".join(run.name for run in runs) or "none yet"
    raise NetworkError(f"name must be that of a run in {network.runs} ({known}); got {name}")
