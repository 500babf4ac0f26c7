"""Child processes, each with a log of its own, started again when it dies and ended by its own id; and their ports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import NetworkError

LAUNCH = Path(__file__).resolve().parent / "flower" / "launch.py"
FIRST_WAIT, MAX_WAIT = 0.5, 30.0  # seconds between attempts to start again: they double
SETTLED = 60.0  # seconds: a child that lived this long starts with a short wait again


def environment(home: Path) -> dict[str, str]:
    """What every Flower process is told: nothing leaves this machine, and its files lie in `home`."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    ours = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(home)}
    return {**os.environ, **ours, "PYTHONUNBUFFERED": "1"}


def launched(role: str, *before: str, arguments: Sequence[str]) -> list[str]:
    """The command of a link, node or gate (flower/launch.py), which ends when this process does."""
    return [sys.executable, "-P", str(LAUNCH), role, str(os.getpid()), *before, "--", *arguments]


def module(name: str, *arguments: str) -> list[str]:
    """The command of one of our modules, which ends when this process does."""
    return [sys.executable, "-P", "-m", name, str(os.getpid()), *arguments]


def free_port(host: str = "127.0.0.1") -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as s:
        s.bind((host, 0))
        return int(s.getsockname()[1])


@dataclass
class Child:
    """One process. command : made anew at every start, so that a port that was taken can be another next time."""

    name: str
    command: Callable[[], list[str]]
    log: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0

    @property
    def pid(self) -> int | None:
        """The id of the running process."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    @property
    def cause(self) -> str:
        """Why it ended."""
        code = None if self.process is None else self.process.returncode
        if code is None:
            return "unknown"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def start(self) -> None:
        """Start it, in a process group of its own so that a terminal's Ctrl-C reaches only us."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env, start_new_session=True
            )
        self.started = time.monotonic()

    def end(self, patience: float = 5.0) -> None:
        """End it by its own id: first politely, then for certain."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


@dataclass
class ProcessGroup:
    """Children that live and die together: when one is gone the others are ended and all start again, after a wait."""

    children: list[Child]
    say: Callable[[str], None]
    wait: float = FIRST_WAIT
    due: float | None = field(default=0.0)

    def look(self) -> None:
        """Start what is due and notice what has died; call this every fraction of a second."""
        if self.due is not None:
            if time.monotonic() >= self.due:
                self.due = None
                for child in self.children:
                    child.start()
            return
        dead = [child for child in self.children if child.pid is None]
        if not dead:
            return
        if min(time.monotonic() - child.started for child in self.children) > SETTLED:
            self.wait = FIRST_WAIT
        self.say(f"{dead[0].name} ended ({dead[0].cause}); starting again in {self.wait:g} s, see {dead[0].log}")
        self.end()
        self.due, self.wait = time.monotonic() + self.wait, min(2 * self.wait, MAX_WAIT)

    def end(self) -> None:
        """End all, the first started last."""
        for child in self.children:  # all are told before any is waited for
            if child.pid is not None and child.process is not None:
                child.process.send_signal(signal.SIGTERM)
        for child in reversed(self.children):
            child.end()


class Supervised:
    """Groups that are started, started again and ended by who owns them."""

    groups: list[ProcessGroup]

    def look(self) -> None:
        """Start what must run and is not running; call this every fraction of a second."""
        for group in self.groups:
            group.look()

    def end(self) -> None:
        """End every process, each by its own id."""
        for group in reversed(self.groups):
            group.end()

    def run(self, each_time: Callable[[], None]) -> None:
        """Look after the processes until Ctrl-C or SIGTERM, then end them; each_time : called after every look."""
        stop = threading.Event()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stop.set())
        try:
            while not stop.wait(0.2):
                self.look()
                each_time()
        finally:
            self.end()


@contextmanager
def only_one(path: Path, refusal: str | None = None) -> Iterator[None]:
    """Hold a lock on a file while the block lasts, so that two processes never do the same to one folder.

    refusal : what is said where another process holds it; None waits for it
    """
    import fcntl

    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if refusal is None else fcntl.LOCK_NB))
        except OSError:
            file.seek(0)
            holder = file.read().strip()
            raise NetworkError(f"{refusal}, by the process {holder or 'that holds ' + str(path)}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def reachable(host: str, port: int) -> bool:
    """Whether someone listens there."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False
